"""What a whole server does with a torn or damaged log, a lost state, and a directory that another server has."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from embermq.store.log.segments import read_entries
from support.ember_command import ember
from support.server_process import ServerProcess, client, owed, persistent, retained
from support.wire import PUBACK, PUBCOMP, PUBREC, PUBREL, ack, publish

SETTINGS = {"server.sys_interval_s": "1"}
HEADER_BYTES = 48  # of a block: docs/log-format.md


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    served = ServerProcess(tmp_path / "data", tmp_path / "server.log", SETTINGS)
    yield served
    served.kill()


def segments(directory: Path) -> list[Path]:
    return sorted((directory / "data" / "log").glob("*.log"))


def end_of_blocks(log: Path) -> int:
    """Where the last block of a segment ends; zeros may follow it."""
    return read_entries(log.with_suffix(".idx"), int(log.stem)).end()


def test_a_torn_last_block_is_cut_and_everything_before_it_is_there(server: ServerProcess, tmp_path: Path) -> None:
    server.start()
    persistent(server, "away", "t/#", 1)
    with client(server, "publisher") as publisher:
        for number in range(5):
            publisher.publish("t/1", b"%d" % number, qos=1, retain=True)
    assert server.stop() == 0
    [log] = segments(tmp_path)
    whole_bytes = log.stat().st_size
    # The state is made to last by the stop: what follows is in the log only, as after a crash.
    server.start()
    with client(server, "publisher") as publisher:
        before_bytes = end_of_blocks(log)
        publisher.publish("t/1", b"torn", qos=1, retain=True)
    server.kill()
    assert end_of_blocks(log) > before_bytes >= whole_bytes
    torn = log.read_bytes()[: end_of_blocks(log)]
    shutil.copytree(tmp_path / "data" / "log", tmp_path / "kept" / "log")
    shutil.copytree(tmp_path / "data" / "state", tmp_path / "kept" / "state")
    cuts = [1, HEADER_BYTES - 1, HEADER_BYTES, HEADER_BYTES + 9, len(torn) - before_bytes - 1]
    for cut in cuts:
        shutil.rmtree(tmp_path / "data")
        shutil.copytree(tmp_path / "kept", tmp_path / "data")
        log.write_bytes(torn[: before_bytes + cut])
        server.start()
        unfinished = torn[before_bytes : before_bytes + cut].rstrip(b"\0")  # zeros may be those that are written ahead
        assert f"cut {len(unfinished)} bytes of an unfinished block at position {before_bytes}" in server.log()
        assert retained(server) == {"t/1": b"4"}, cut
        assert owed(server, "away") == [b"0", b"1", b"2", b"3", b"4"], cut
        with client(server, "publisher") as publisher:
            publisher.publish("t/1", b"after", qos=1, retain=True)
        server.kill()
    # The log goes on behind a cut as if nothing had been there.
    server.start()
    assert retained(server) == {"t/1": b"after"}


def test_a_flipped_bit_in_the_middle_is_refused_with_file_and_position(server: ServerProcess, tmp_path: Path) -> None:
    server.start()
    with client(server, "publisher") as publisher:
        for number in range(3):
            publisher.publish("t", b"look for me %d" % number, qos=1)
    server.kill()
    [log] = segments(tmp_path)
    data = bytearray(log.read_bytes())
    at = data.index(b"look for me 1")
    data[at] ^= 0x01
    log.write_bytes(data)
    begins = data.rindex(b"EMBK", 0, at)
    assert str(log) in (sentence := server.refused())
    assert f"position {begins}:" in sentence
    data[at] ^= 0x01
    log.write_bytes(data)
    server.start()


def test_a_server_that_was_killed_and_whose_log_is_damaged_is_repaired_and_starts(
    server: ServerProcess, tmp_path: Path
) -> None:
    server.start()
    persistent(server, "away", "t/#", 1)
    with client(server, "publisher") as publisher:
        for number in range(6):
            publisher.publish(f"t/{number}", b"look for me %d" % number, qos=1, retain=True)
        publisher.publish("t/0", b"again", qos=1, retain=True)
    assert server.stop() == 0  # so the state has applied all that comes before
    server.start()
    with client(server, "publisher") as publisher:
        publisher.publish("t/1", b"only in the log", qos=1, retain=True)
    server.kill()
    [log] = segments(tmp_path)
    data = bytearray(log.read_bytes())
    data[data.index(b"look for me 2")] ^= 0x01
    log.write_bytes(data)
    assert "`ember store repair` goes on with what is behind it" in server.refused()
    done = ember("store", "repair", "--yes", "--data", tmp_path / "data")
    assert done.code == 0 and " are lost" in done.text, done
    server.start()
    kept = {f"t/{number}": b"look for me %d" % number for number in range(2, 6)}
    assert retained(server) == kept | {"t/0": b"again", "t/1": b"only in the log"}
    numbers = [b"look for me %d" % number for number in (0, 1, 3, 4, 5)]
    assert owed(server, "away") == [*numbers, b"again", b"only in the log"]
    server.restart()
    assert retained(server)["t/2"] == b"look for me 2"


def test_a_lost_state_is_rebuilt_from_the_log(server: ServerProcess, tmp_path: Path) -> None:
    server.start()
    persistent(server, "away-1", "t/#", 1)
    persistent(server, "away-2", "t/#", 2)
    publisher = client(server, "publisher", clean=False)
    for number in range(4):
        publisher.publish(f"t/{number}", b"%d" % number, qos=1 + number % 2, retain=True)
    publisher.publish("t/0", b"", qos=1, retain=True)
    # One exchange of each direction is left in the middle.
    publisher.send(publish("t/half", b"half", qos=2, packet_id=77))
    publisher.expect(PUBREC, 77)
    publisher.close()
    with server.wire() as half:
        half.connect("away-2", clean=False)
        first = half.receive_message(answer=False)
        second = half.receive_message(answer=False)
        half.send(ack(PUBREC, second.packet_id))
        half.await_reply(PUBREL, second.packet_id)
    server.kill()
    shutil.rmtree(tmp_path / "data" / "state")
    server.start()
    assert retained(server) == {"t/1": b"1", "t/2": b"2", "t/3": b"3"}
    assert owed(server, "away-1") == [b"0", b"1", b"2", b"3", b"", b"half"]
    with server.wire() as back:
        assert back.connect("away-2", clean=False).session_present == 1
        again = back.receive_message(answer=False)
        assert (again.payload, again.packet_id, again.dup) == (first.payload, first.packet_id, True)
        assert back.expect(PUBREL).packet_id == second.packet_id
        assert [message.payload for message in back.peek_messages()] == [b"2", b"3", b"", b"half"]
    with server.wire() as back:
        assert back.connect("publisher", clean=False).session_present == 1
        back.send(publish("t/half", b"half", qos=2, dup=True, packet_id=77))
        back.expect(PUBREC, 77)
        back.send(ack(PUBREL, 77))
        back.await_reply(PUBCOMP, 77)
    assert owed(server, "away-1").count(b"half") == 1


def test_a_second_server_on_the_directory_says_so_and_leaves_the_first_alone(
    server: ServerProcess, tmp_path: Path
) -> None:
    server.start()
    sentence = server.refused()
    assert str(tmp_path / "data") in sentence and f"in use by another server, process {server.pid}" in sentence
    with client(server, "publisher") as publisher:
        publisher.publish("t", b"goes on", qos=1, retain=True)
    server.restart()
    assert retained(server) == {"t": b"goes on"}


def test_acknowledgements_are_recorded_although_nothing_waits_for_them(server: ServerProcess) -> None:
    server.start()
    persistent(server, "away", "t", 1)
    with client(server, "publisher") as publisher:
        for number in range(300):
            publisher.send(publish("t", b"%d" % number, qos=1, packet_id=number + 1))
        for number in range(300):
            publisher.expect(PUBACK, number + 1)
    # A silent server is told nothing but these acknowledgements: they must not wait for a message to come.
    with server.wire() as back, client(server, "watch") as watch:
        watch.subscribe("$SYS/broker/uptime")
        back.connect("away", clean=False)
        assert [back.receive_message().payload for _ in range(300)] == [b"%d" % number for number in range(300)]
        back.ping()
        watch.take_messages()
        for _ in range(3):
            watch.receive_message()
        server.kill()
    server.start()
    assert owed(server, "away") == []
