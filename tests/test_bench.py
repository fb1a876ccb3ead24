"""The benchmark's arithmetic: counts and acknowledgements are right however the bytes are cut."""

import json
import select
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from bench import packets
from bench.attacks import http
from bench.attacks.catalog import ATTACKS
from bench.attacks.clients import Target
from bench.attacks.pair import Victims
from bench.figures import BEFORE, MEMORY, Metric, Report
from bench.flood import flood, open_traffic
from bench.load import LoadFailed, Publisher, Subscriber, open_client, subscribe
from bench.machine import Cores
from bench.packets import PUBCOMP, PUBREC, PUBREL, Shape
from bench.picture import PAGE, PICTURE, RESULT, lines_of, picture, with_table
from bench.retained_load import PAYLOAD_BYTES, RetainedReader
from bench.servers import sink
from bench.wires import WebSocketSocket, make_certificate

from embermq import Broker

Pair = tuple[socket.socket, socket.socket, select.epoll]


@pytest.fixture
def pair() -> Iterator[Pair]:
    ours, theirs = socket.socketpair()
    theirs.settimeout(60)
    with ours, theirs, select.epoll() as poller:
        yield ours, theirs, poller


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_frame_is_a_valid_publish(qos: int) -> None:
    frame = Shape(qos).frames([packets.topic_name(7)])[0].tobytes()
    assert frame[0] == 0x30 | qos << 1
    assert frame[1] == len(frame) - 2
    assert frame[2:4] == b"\x00\x12"
    assert frame[4:22] == b"plant/000/unit/007"
    assert frame[22:].lstrip(b" ") == (b"" if qos == 0 else frame[22:])
    assert len(frame) == 22 + (2 if qos else 0) + 64
    assert qos == 0 or frame[22:24] == b"\x00\x01"


@pytest.mark.parametrize("qos", [0, 1])
def test_a_frame_of_mqtt_5_has_an_empty_property_section(qos: int) -> None:
    old = Shape(qos).frames([packets.topic_name(7)])[0].tobytes()
    frame = Shape(qos, level=5).frames([packets.topic_name(7)])[0].tobytes()
    at = len(old) - 64
    assert frame == old[:1] + bytes([len(frame) - 2]) + old[2:at] + b"\x00" + old[at:]


@pytest.mark.parametrize("level", [4, 5])
def test_the_generator_connects_and_subscribes_with_both_levels(level: int) -> None:
    with Broker.in_thread() as broker:
        assert broker.port is not None
        with open_client(broker.port, "c", level=level) as sock:
            subscribe(sock, ["a/+", "$share/g/b"], 1, level)
            with pytest.raises(LoadFailed):
                subscribe(sock, ["/".join("x" * 200)], 1, level)


def test_numbers_survive_in_the_payload() -> None:
    shape = Shape(1)
    rows = shape.frames([packets.topic_name(0)] * 3)
    shape.number(rows, np.array([0, 5, 2**40]))
    assert shape.numbers_of(rows).tolist() == [0, 5, 2**40]


@pytest.mark.parametrize("step", [1, 3, 50, 89, 4096])
def test_qos_1_frames_are_counted_and_acknowledged_however_cut(pair: Pair, step: int) -> None:
    ours, theirs, poller = pair
    shape = Shape(1)
    subscriber = Subscriber(ours, poller, shape)
    stream = shape.frames([packets.topic_name(0)] * 5).tobytes()
    for start in range(0, len(stream), step):
        theirs.sendall(stream[start : start + step])
        subscriber.read()
    assert subscriber.received == 5
    assert theirs.recv(100) == b"".join(bytes([0x40, 2, 0, packet_id]) for packet_id in range(1, 6))


@pytest.mark.parametrize("step", [1, 3, 50, 89, 4096])
def test_qos_2_publish_and_pubrel_are_told_apart_however_cut(pair: Pair, step: int) -> None:
    ours, theirs, poller = pair
    shape = Shape(2)
    subscriber = Subscriber(ours, poller, shape)
    frames = shape.frames([packets.topic_name(0)] * 3)
    frames[1, 22:24] = (PUBREL, 2)  # a packet id that looks like the head of a PUBREL
    rel = bytes([PUBREL, 2, 0x62, 0x02])
    stream = frames[0].tobytes() + rel + frames[1].tobytes() + frames[2].tobytes() + rel
    for start in range(0, len(stream), step):
        theirs.sendall(stream[start : start + step])
        subscriber.read()
    answers = theirs.recv(1000)
    words = sorted(answers[at : at + 4] for at in range(0, len(answers), 4))
    assert subscriber.received == 3
    assert words == sorted(
        [bytes([PUBREC, 2, 0, 1]), bytes([PUBREC, 2, PUBREL, 2]), bytes([PUBREC, 2, 0, 3])]
        + [bytes([PUBCOMP, 2, 0x62, 0x02])] * 2
    )


def test_a_publisher_answers_pubrec_and_counts_pubcomp(pair: Pair) -> None:
    ours, theirs, poller = pair
    shape = Shape(2)
    publisher = Publisher(ours, poller, shape, shape.frames([packets.topic_name(0)] * 2))
    theirs.sendall(bytes([PUBREC, 2, 0, 1, PUBCOMP, 2, 0, 2, PUBREC, 2]))
    publisher.read()
    assert publisher.acked == 1
    assert theirs.recv(100) == bytes([PUBREL, 2, 0, 1])
    theirs.sendall(bytes([0, 3]))
    publisher.read()
    assert theirs.recv(100) == bytes([PUBREL, 2, 0, 3])


def test_a_publisher_goes_round_its_cycle(pair: Pair) -> None:
    ours, theirs, poller = pair
    shape = Shape(1)
    frames = shape.frames([packets.topic_name(0)] * 3)
    publisher = Publisher(ours, poller, shape, frames)
    publisher.publish(2)
    publisher.publish(2)
    expected = frames.tobytes() + frames[0].tobytes()
    assert theirs.recv(10_000) == expected
    assert publisher.sent == 4


@pytest.mark.parametrize("step", [1, 7, 125, 4096])
@pytest.mark.parametrize("suback_after", [0, 2, 3])
def test_a_suback_may_come_anywhere_among_retained_messages(pair: Pair, suback_after: int, step: int) -> None:
    ours, theirs, poller = pair
    shape = Shape(1, PAYLOAD_BYTES)
    reader = RetainedReader(ours, poller, shape, 4)
    rows = shape.frames([packets.topic_name(index) for index in range(3)], retain=True)
    shape.number(rows, np.array([0, 1, 6]))
    rows[1, 0] &= 0xFE
    stream = rows[:suback_after].tobytes() + b"\x90\x03\x00\x01\x01" + rows[suback_after:].tobytes()
    for start in range(0, len(stream), step):
        theirs.sendall(stream[start : start + step])
        reader.read()
    assert reader.received == 3
    assert reader.unmarked == 1
    assert reader.distinct == 3
    assert reader.numbers.tolist() == [0, 1, 6, -1]


@pytest.mark.parametrize("qos", [0, 1])
def test_a_flood_through_the_sink_loses_nothing(qos: int) -> None:
    with sink(Cores(None, None)) as server:
        names = [packets.topic_name(index) for index in range(2)]
        traffic = open_traffic(server.port, Shape(qos), [[name] for name in names], [names[:1]] * 3, 3, 20)
        result = flood(server, traffic, 0.05, warm_up_s=0.01)
        directory = server.directory
    assert result.published > 0
    assert result.delivered == 3 * result.published
    assert result.lost == 0
    assert not directory.exists()


def test_a_target_is_judged_on_medians() -> None:
    report = Report()
    metrics = (Metric("rate", "rate", "1/s", "more", ratio=1.0), Metric("lost", "lost", "messages", "zero"))
    for ours, theirs in ((10.0, 5.0), (4.0, 5.0), (4.0, 5.0)):
        report.add("flood", metrics, "EmberMQ", {"rate": ours, "lost": 0})
        report.add("flood", metrics, "Mosquitto", {"rate": theirs, "lost": 1})
    assert [row.metric.key for row in report.missed()] == ["rate"]
    assert report.rows["flood", "lost"].met is True


def test_both_stores_of_embermq_have_targets() -> None:
    report = Report()
    metrics = (Metric("rate", "rate", "1/s", "more", ratio=2.0, memory_ratio=3.0),)
    for name, rate in (("EmberMQ", 10.0), (MEMORY, 14.0), ("Mosquitto", 5.0)):
        report.add("flood", metrics, name, {"rate": rate})
    row = report.rows["flood", "rate"]
    assert row.verdicts() == [(">= 2.0 x", True), (">= 3.0 x with --memory", False)]
    assert row.met is False


def test_another_build_is_compared_within_the_run() -> None:
    report = Report()
    metrics = (Metric("cpu_us", "broker CPU", "us/message", "less"),)
    for ours, before in ((3.0, 6.0), (4.0, 5.0), (5.0, 4.0)):
        report.add("paced", metrics, "EmberMQ", {"cpu_us": ours})
        report.add("paced", metrics, BEFORE, {"cpu_us": before})
    assert report.rows["paced", "cpu_us"].change == 4.0 / 5.0
    assert "to before" in [column.header for column in report.table().columns]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return make_certificate(tmp_path_factory.mktemp("certificate"))


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("name", sorted(set(ATTACKS) - set(http.ATTACKS)))  # those need a server with a user
def test_an_attack_ends_in_time_and_the_pair_beside_it_loses_nothing(name: str, certificate: tuple[Path, Path]) -> None:
    public, key = certificate
    with Broker.in_thread(ws_port=0, tls_port=0, certificate=public, key=key, sn_port=0) as broker:
        assert broker.port and broker.ws_port and broker.tls_port and broker.sn_port
        pair = Victims(broker.port)
        target = Target(broker.port, broker.ws_port, broker.tls_port, 0, broker.sn_port)
        attackers = threading.Thread(target=ATTACKS[name].run, args=(target, time.monotonic() + 0.4))
        attackers.start()
        pair.begin(0.4)
        attackers.join(60)
        assert not attackers.is_alive()
        seen = pair.end(60)
        pair.close()
    assert (seen.sent, seen.lost) == (20, 0)
    assert 0 < seen.p99_ms < float("inf")


def test_the_picture_and_the_table_of_the_docs_come_from_the_run_that_is_kept() -> None:
    result = json.loads(RESULT.read_text(encoding="utf-8"))
    page = PAGE.read_text(encoding="utf-8")
    assert PICTURE.read_text(encoding="utf-8") == picture(result)
    assert page == with_table(page, result)
    assert len(lines_of(result)) >= 10


@pytest.mark.parametrize("step", [1, 2, 7, 1000])
def test_websocket_frames_are_taken_apart_however_cut(step: int) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(b"HTTP/1.1 101 Switching Protocols\r\n\r\n")
        client = WebSocketSocket(ours)
        payloads = [b"a", b"b" * 125, b"c" * 126, b"d" * 70_000]
        stream = b"".join(
            bytes((0x82,))
            + (
                bytes((size,))
                if size < 126
                else b"\x7e" + size.to_bytes(2, "big")
                if size < 65_536
                else b"\x7f" + size.to_bytes(8, "big")
            )
            + payload
            for payload in payloads
            for size in (len(payload),)
        )
        sender = threading.Thread(target=theirs.sendall, args=(stream,))
        sender.start()
        found, buffer = b"", bytearray(step + 20)
        while len(found) < sum(map(len, payloads)):
            try:
                found += buffer[: client.recv_into(memoryview(buffer)[:step])]
            except BlockingIOError:
                continue
        sender.join()
        assert found == b"".join(payloads)
