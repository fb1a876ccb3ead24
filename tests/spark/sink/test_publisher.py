"""The sink's own client against a real server: windows, qualities of service, refusals."""

import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from embermq import Broker
from embermq.access.file_access import FileAccess
from embermq.access.passwords import write_password
from embermq.broker.limits import Limits
from embermq.certificates import Authority
from embermq.protocol.mqtt.settings import Mqtt5Settings
from embermq.spark.options import parse_sink_options
from embermq.spark.sink.publisher import Publisher, PublishFailed, Refused, connect_with_retry, fail
from embermq.store.log.reader import LogReader

Row = tuple[str, bytes, int]
CONNACK = bytes.fromhex("20 03 00 00 00")


def recorded(data: Path) -> list[Row]:
    """Topic, payload and flags of every publish in a server's log."""
    return [
        (row["topic"], row["payload"], row["flags"])
        for batch in LogReader(data / "log").batches(1)
        for row in batch.to_pylist()
        if row["kind"] == 1
    ]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def broker(data: Path) -> Iterator[Broker]:
    with Broker.in_thread(data=data, sys_interval_s=0) as running:
        yield running


def publish(url: str, rows: Sequence[tuple[int, bytes, bytes | None]], **options: str) -> None:
    publisher = connect_with_retry(parse_sink_options({"url": url, **options}), "test")
    try:
        publisher.publish(*zip(*rows, strict=True))
        publisher.finish()
    finally:
        publisher.close()


@pytest.mark.parametrize("window", ["1", "7", "1000"])
def test_every_message_arrives_once_and_in_order(broker: Broker, data: Path, window: str) -> None:
    rows = [(0x30 | (number % 3) << 1 | number % 2, b"t/%d" % number, b"%d" % number) for number in range(500)]
    publish(f"mqtt://127.0.0.1:{broker.port}", rows, window=window)
    found = recorded(data)
    # QoS 2 may pass others on its way; within one quality the order is kept.
    for qos in range(3):
        expected = [
            (topic.decode(), payload, qos | (header & 1) << 2)
            for header, topic, payload in rows
            if header >> 1 & 3 == qos
        ]
        assert [row for row in found if row[2] & 3 == qos] == expected


def test_large_and_empty_payloads_arrive(broker: Broker, data: Path) -> None:
    payloads = [b"x" * size for size in (0, 100, 127, 128, 16_383, 16_384, 300_000, 2_100_000)]
    publish(f"mqtt://127.0.0.1:{broker.port}", [(0x32, b"t", payload) for payload in payloads] + [(0x33, b"t", None)])
    assert [payload for _, payload, _ in recorded(data)] == [*payloads, b""]


def test_more_messages_than_packet_ids_arrive(broker: Broker, data: Path) -> None:
    publish(f"mqtt://127.0.0.1:{broker.port}", [(0x32, b"t", b"%d" % number) for number in range(70_000)])
    assert [int(payload) for _, payload, _ in recorded(data)] == list(range(70_000))


def test_a_password_opens_the_door(tmp_path: Path, data: Path) -> None:
    passwords = tmp_path / "passwords"
    write_password(passwords, "anna", b"secret")
    (tmp_path / "secret.txt").write_text("secret\n")
    with Broker.in_thread(data=data, access=FileAccess(password_file=passwords)) as broker:
        url = f"mqtt://127.0.0.1:{broker.port}"
        publish(url, [(0x32, b"t", b"1")], username="anna", password="secret")
        publish(url, [(0x32, b"t", b"2")], username="anna", passwordFile=str(tmp_path / "secret.txt"))
        with pytest.raises(PublishFailed, match="refused the connection: user name or password is wrong"):
            publish(url, [(0x32, b"t", b"3")], username="anna", password="wrong")
    assert [payload for _, payload, _ in recorded(data)] == [b"1", b"2"]


def test_tls_needs_a_certificate_that_is_trusted(tmp_path: Path, data: Path) -> None:
    authority = Authority(tmp_path)
    server = authority.sign("server")
    with Broker.in_thread(data=data, tls_port=0, certificate=server.certificate, key=server.key) as broker:
        url = f"mqtts://localhost:{broker.tls_port}"
        publish(url, [(0x32, b"t", b"1")], caFile=str(authority.certificate))
        with pytest.raises(PublishFailed, match="no TLS with localhost"):
            publish(url, [(0x32, b"t", b"2")])
    assert [payload for _, payload, _ in recorded(data)] == [b"1"]


def test_properties_arrive_as_they_were_given(broker: Broker, data: Path) -> None:
    properties = [b"", bytes.fromhex("01 01 26 0001 61 0001 62"), b"\x26" + bytes(2) + b"\x00\xc8" + b"x" * 200]
    publisher = connect_with_retry(parse_sink_options({"url": f"mqtt://127.0.0.1:{broker.port}"}), "test")
    publisher.publish([0x32, 0x30, 0x34], [b"t"] * 3, [b"x"] * 3, properties)
    publisher.finish()
    found = [row for batch in LogReader(data / "log").batches(1) for row in batch.to_pylist() if row["kind"] == 1]
    assert sorted(row["properties"] for row in found) == sorted(properties)


@pytest.mark.parametrize("qos", [1, 2])
def test_refused_rows_are_handed_over_and_the_others_arrive(tmp_path: Path, data: Path, qos: int) -> None:
    access_list = tmp_path / "access.list"
    access_list.write_text("anonymous\nread,write t/+\n")
    access = FileAccess(acl_file=access_list, allow_anonymous=True)
    refused: list[Refused] = []
    with Broker.in_thread(data=data, access=access) as broker:
        options = parse_sink_options({"url": f"mqtt://127.0.0.1:{broker.port}", "window": "3"})
        publisher = connect_with_retry(options, "test", refused.append)
        topics = [b"t/%d" % number if number % 3 else b"no/%d" % number for number in range(20)]
        publisher.publish([0x30 | qos << 1] * 20, topics, [b"x"] * 20)
        publisher.finish()
    assert [row.topic for row in refused] == [topic for topic in topics if topic.startswith(b"no")]
    assert {(row.payload, row.why()) for row in refused} == {(b"x", "Not authorized")}
    assert [topic.encode() for topic, _, _ in recorded(data)] == [topic for topic in topics if topic.startswith(b"t")]


def test_the_limits_that_a_server_announces_are_kept(data: Path) -> None:
    settings = Mqtt5Settings(receive_maximum=2)
    limits = Limits(packet_bytes_max=1_000)
    with Broker.in_thread(data=data, mqtt5=settings, limits=limits) as broker:
        url = f"mqtt://127.0.0.1:{broker.port}"
        publish(url, [(0x30 | 1 + number % 2 << 1, b"t", b"%d" % number) for number in range(50)])
        publish(url, [(0x32, b"t", bytes(1_000 - 9))])
        with pytest.raises(PublishFailed, match="the row of topic 't' has a payload of 992 bytes"):
            publish(url, [(0x32, b"t", bytes(1_000 - 8))])
    assert len(recorded(data)) == 51


def test_answers_may_be_split_anywhere() -> None:
    answers = bytes.fromhex("40020001 4003000210 4004000310 00 4002 0004")
    for split in range(1, len(answers)):
        listening = socket.create_server(("127.0.0.1", 0))

        def serve(at: int = split, listening: socket.socket = listening) -> None:
            connection, _ = listening.accept()
            with connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connection.recv(65_536)
                connection.sendall(CONNACK)
                connection.recv(65_536)
                connection.sendall(answers[:at])
                connection.sendall(answers[at:])
                while connection.recv(65_536):
                    pass

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        options = parse_sink_options({"url": f"mqtt://127.0.0.1:{listening.getsockname()[1]}", "timeoutSeconds": "60"})
        publisher = connect_with_retry(options, "test")
        publisher.publish([0x32] * 4, [b"t"] * 4, [b"x"] * 4)
        publisher.flush()
        publisher.close()
        thread.join(60)
        listening.close()


def test_nothing_that_listens_is_said_in_a_sentence() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        with pytest.raises(PublishFailed, match=f"nothing listens at 127.0.0.1:{port}"):
            connect_with_retry(parse_sink_options({"url": f"mqtt://127.0.0.1:{port}"}), "test", attempts=1)


def scripted_server(answers: list[bytes]) -> tuple[socket.socket, threading.Thread]:
    """Takes one connection, and gives each answer after something was read."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = listening.accept()
        with connection:
            for answer in answers:
                connection.recv(65_536)
                connection.sendall(answer)
            connection.shutdown(socket.SHUT_WR)
            with suppress(OSError):
                while connection.recv(65_536):  # closed with something unread, the last answer may be lost
                    pass

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    return listening, thread


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ([b"\x20\x02\x00\x01"], "refused the connection: it does not support MQTT 5"),
        ([b"\x20\x03\x00\x88\x00"], "refused the connection: it is not available"),
        ([b"\x20\x03\x00\x9c\x00"], "refused the connection: Use another server"),
        ([b"HTTP/1.1 400" + bytes(100)], "refused the connection: no CONNACK came"),
        ([CONNACK, b"\x40\x02\x00"], "closed the connection"),
        ([CONNACK, b"\x90\x04\x00\x01\x00\x00"], "sent an unexpected Suback"),
        ([CONNACK, b"\x00\x00"], "sent a bad packet"),
        ([CONNACK, b"\xe0\x02\x8b\x00"], "ended the connection: Server shutting down"),
        ([CONNACK, b"\x40\x03\x00\x01\x87"], "refused the row of topic 't': Not authorized"),
        ([CONNACK, b"\x50\x04\x00\x01\x97\x00"], "refused the row of topic 't': Quota exceeded"),
    ],
)
def test_a_server_that_fails_is_named_with_what_it_did(answers: list[bytes], said: str) -> None:
    listening, thread = scripted_server(answers)
    with listening, pytest.raises(PublishFailed, match=said):
        publish(f"mqtt://127.0.0.1:{listening.getsockname()[1]}", [(0x32, b"t", b"x")])
    thread.join(60)


def test_a_server_that_never_acknowledges_is_not_waited_for_without_end() -> None:
    release = threading.Event()
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = listening.accept()
        with connection:
            connection.recv(65_536)
            connection.sendall(CONNACK)
            release.wait(60)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    options = parse_sink_options({"url": f"mqtt://127.0.0.1:{listening.getsockname()[1]}", "timeoutSeconds": "2"})
    publisher = Publisher(options, "test", fail)
    try:
        publisher.publish([0x32], [b"t"], [b"x"])
        with pytest.raises(PublishFailed, match="leaves 1 messages unacknowledged"):
            publisher.finish()
    finally:
        publisher.close()
        release.set()
        thread.join(60)
        listening.close()
