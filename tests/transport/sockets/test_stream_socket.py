"""A client's socket: what waits for the kernel, pauses of reading, and every way to end."""

import asyncio
import os
import socket
import tracemalloc
from collections.abc import Callable
from random import Random

import pytest

from embermq.protocol.packets import Connect, Pingreq, Publish
from embermq.transport.server import Server
from embermq.transport.sockets.poll import EVENTS_MAX, Poll
from embermq.transport.sockets.stream_socket import HIGH_BYTES, PARTS_MAX, READ_BYTES, SHARED_BYTES_MIN
from support.polled_server import Pair, is_silent, look, run, tcp_pair, unix_pair

NOT_TOLD = -1


def test_what_the_kernel_does_not_take_at_once_arrives_in_order() -> None:
    async def scenario(server: Server, poll: Poll) -> None:
        pair = Pair(server, poll)
        written = pair.fill()
        for size in (1, 70_000, 3, 500_000, 2):
            part = os.urandom(size)
            pair.stream.write(part)
            written += part
        assert pair.stream.get_write_buffer_size() > 570_000
        assert pair.read_all(len(written)) == written
        assert pair.stream.get_write_buffer_size() == 0
        assert is_silent(poll)

    run(scenario)


def test_more_parts_than_one_call_writes_arrive() -> None:
    async def scenario(server: Server, poll: Poll) -> None:
        pair = Pair(server, poll)
        written = pair.fill()
        parts = [b"%d," % number for number in range(3 * PARTS_MAX)]
        for part in parts:
            pair.stream.write(part)
        written += b"".join(parts)
        assert pair.read_all(len(written)) == written

    run(scenario)


def test_an_empty_part_does_not_wait_for_ever() -> None:
    async def scenario(server: Server, poll: Poll) -> None:
        pair = Pair(server, poll)
        pair.stream.write(b"")
        written = pair.fill()
        pair.stream.write(b"")
        assert pair.read_all(len(written)) == written
        assert is_silent(poll)

    run(scenario)


def test_a_payload_that_waits_for_many_clients_is_not_copied() -> None:
    async def scenario(server: Server, poll: Poll) -> None:
        pairs = [Pair(server, poll) for _ in range(8)]
        payload = bytes(16_000_000)
        tracemalloc.start()
        try:
            for pair in pairs:
                pair.stream.write(payload)
                pair.stream.write(payload)
                look(poll)
            peak_bytes = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak_bytes < 1_000_000
        for pair in pairs:
            pair.stream.abort()

    run(scenario)


def test_output_that_many_clients_share_is_kept_and_counted_once() -> None:
    async def scenario(server: Server, poll: Poll) -> None:
        pairs = [Pair(server, poll) for _ in range(8)]
        frames = [os.urandom(4_096) for _ in range(200)]
        size = sum(map(len, frames))
        for _ in range(3):  # the first write finds a kernel that takes a part of it
            for pair in pairs:
                assert pair.stream.write_parts(frames, False) == size
        kept = poll.unsent.size_bytes
        assert all(pair.stream.get_write_buffer_size() > 2 * size for pair in pairs)
        assert size < kept < size + 100_000
        written = b"".join(frames) * 3
        assert pairs[0].read_all(len(written)) == written
        for pair in pairs[1:]:
            assert 0 < poll.unsent.size_bytes <= kept
            pair.stream.abort()
        assert poll.unsent.size_bytes == 0

    run(scenario)


def test_parts_of_every_size_arrive_in_order_and_leave_nothing_counted() -> None:
    async def scenario(server: Server, poll: Poll) -> None:
        random = Random(1)
        sizes = (0, 1, 2, SHARED_BYTES_MIN - 1, SHARED_BYTES_MIN, 5_000)
        pair = Pair(server, poll)
        written = pair.fill()
        for turn in range(300):
            parts = [random.randbytes(random.choice(sizes)) for _ in range(random.randrange(1, 9))]
            assert pair.stream.write_parts(parts, turn % 3 == 0) == sum(map(len, parts))
            written += b"".join(parts)
        assert pair.read_all(len(written)) == written
        assert (pair.stream.get_write_buffer_size(), poll.unsent.size_bytes) == (0, 0)
        assert is_silent(poll)

    run(scenario)


def test_small_parts_that_wait_take_little_more_than_their_bytes() -> None:
    async def scenario(server: Server, poll: Poll) -> None:
        pair = Pair(server, poll)
        pair.fill()
        before = pair.stream.get_write_buffer_size(), poll.unsent.size_bytes
        for _ in range(10_000):
            pair.stream.write_parts([b"\x40\x02", b"\x00\x01"], False)
        assert pair.stream.get_write_buffer_size() == before[0] + 40_000
        assert poll.unsent.size_bytes - before[1] < 44_000
        pair.stream.abort()

    run(scenario)


def test_an_error_does_not_keep_what_a_client_has_sent_in_memory() -> None:
    async def scenario(server: Server, poll: Poll) -> None:
        pair = Pair(server, poll)
        pair.send(Connect("c"))
        look(poll)
        pair.reset()
        look(poll)
        assert pair.is_told()
        assert isinstance(pair.stream._end, OSError)
        assert pair.stream._end.__traceback__ is None  # its frames would refer to the socket, which refers to it

    run(scenario)


@pytest.mark.parametrize("high_bytes", [None, 4_096])
def test_the_connection_is_told_once_when_a_quarter_of_the_mark_is_left(high_bytes: int | None) -> None:
    async def scenario(server: Server, poll: Poll) -> None:
        pair = Pair(server, poll)
        stream, protocol = pair.stream, pair.connection._connection
        if high_bytes is not None:
            stream.set_write_buffer_limits(high=high_bytes)
        mark_bytes = high_bytes or HIGH_BYTES
        pair.client.setblocking(False)

        def told_when_read() -> list[int]:
            told: list[int] = []
            protocol.pending_bytes = NOT_TOLD  # it asks how much there is when it is told
            while stream.get_write_buffer_size():
                try:
                    pair.client.recv(2_000)
                except BlockingIOError:
                    look(poll)
                else:
                    poll.look(poll.wait(0, EVENTS_MAX))
                if protocol.pending_bytes != NOT_TOLD:
                    told.append(protocol.pending_bytes)
                    protocol.pending_bytes = NOT_TOLD
            return told

        pair.fill()
        stream.write(bytes(HIGH_BYTES))
        told = told_when_read()
        assert len(told) == 1
        assert told[0] <= mark_bytes // 4
        pair.fill(mark_bytes // 2)
        assert told_when_read() == []  # it was never above the mark
        pair.fill()
        stream.write(bytes(HIGH_BYTES))
        assert len(told_when_read()) == 1

    run(scenario)


def test_what_waits_below_the_mark_is_no_matter_of_the_connection() -> None:
    async def scenario(server: Server, poll: Poll) -> None:
        pair = Pair(server, poll)
        stream, protocol = pair.stream, pair.connection._connection
        protocol.pending_bytes = NOT_TOLD
        written = pair.fill()
        assert 0 < stream.get_write_buffer_size() < HIGH_BYTES
        assert pair.read_all(len(written)) == written
        assert protocol.pending_bytes == NOT_TOLD

    run(scenario)


@pytest.mark.parametrize("size", [1, READ_BYTES - 1, READ_BYTES, READ_BYTES + 1, 300_000])
def test_everything_that_a_client_sends_is_read(size: int) -> None:
    async def scenario(server: Server, poll: Poll) -> None:
        pair = Pair(server, poll)
        pair.send(Connect("c"))
        look(poll)
        message = Publish("t", bytes(size))
        sending = asyncio.get_running_loop().run_in_executor(None, pair.send, message, message, message)
        while server.core.counters.publish_received < 3:
            look(poll)
            await asyncio.sleep(0)
        await sending
        assert is_silent(poll)

    run(scenario)


def test_what_a_client_has_sent_together_is_read_in_one_turn() -> None:
    async def scenario(server: Server, poll: Poll) -> None:
        pair = Pair(server, poll, unix_pair)
        pair.send(Connect("c"))
        look(poll)
        for _ in range(2):  # also after a turn with little
            before = server.core.counters.publish_received
            pair.send(*[Publish("t", bytes(100))] * 100)
            look(poll)
            assert server.core.counters.publish_received == before + 100
            pair.send(Pingreq())
            look(poll)

    run(scenario)


def test_a_paused_client_is_read_from_when_reading_goes_on() -> None:
    async def scenario(server: Server, poll: Poll) -> None:
        pair = Pair(server, poll)
        pair.stream.pause_reading()
        pair.stream.pause_reading()
        pair.send(Connect("c"))
        assert is_silent(poll)
        pair.stream.resume_reading()
        pair.stream.resume_reading()
        look(poll)
        assert pair.client.recv(4) == bytes.fromhex("20020000")

    run(scenario)


@pytest.mark.parametrize("kind", [tcp_pair, unix_pair])
def test_the_end_of_a_paused_client_is_found_when_reading_goes_on(
    kind: Callable[[], tuple[socket.socket, socket.socket]],
) -> None:
    async def scenario(server: Server, poll: Poll) -> None:
        pair = Pair(server, poll, kind)
        pair.stream.pause_reading()
        pair.reset()
        assert is_silent(poll)
        pair.stream.resume_reading()
        look(poll)
        assert pair.is_closed() and pair.is_told()

    run(scenario)


def test_a_reset_of_a_paused_client_that_is_written_to_is_found_by_writing() -> None:
    async def scenario(server: Server, poll: Poll) -> None:
        pair = Pair(server, poll)
        pair.stream.pause_reading()
        pair.fill()
        pair.reset()
        look(poll)
        assert pair.is_closed() and pair.is_told()

    run(scenario)


def test_a_shut_down_client_of_a_unix_socket_that_reads_nothing_does_not_keep_the_server_busy() -> None:
    async def scenario(server: Server, poll: Poll) -> None:
        pair = Pair(server, poll, unix_pair)
        pair.stream.pause_reading()
        pair.fill()
        assert is_silent(poll)
        pair.client.shutdown(socket.SHUT_RDWR)  # what it was sent stays in the kernel: there is no room to write
        look(poll)
        assert pair.is_closed() and pair.is_told()

    run(scenario)


def test_what_waits_when_a_socket_is_closed_is_sent_before_the_end() -> None:
    async def scenario(server: Server, poll: Poll) -> None:
        pair = Pair(server, poll)
        written = pair.fill()
        pair.stream.close()
        pair.stream.close()
        pair.stream.write(b"too late")
        assert not pair.is_closed()
        assert pair.read_all(len(written)) == written
        assert pair.client.recv(1) == b""
        assert pair.is_closed() and pair.is_told()

    run(scenario)


def test_a_closed_socket_is_not_read_from_while_it_is_written_to() -> None:
    async def scenario(server: Server, poll: Poll) -> None:
        pair = Pair(server, poll, unix_pair)
        pair.fill()
        pair.stream.close()
        pair.send(Connect("c"))
        pair.stream.resume_reading()
        assert is_silent(poll)
        assert server.core.counters.bytes_received == 0
        pair.stream.abort()

    run(scenario)


def test_the_connection_is_told_the_end_once_and_not_within_its_own_call() -> None:
    async def scenario(server: Server, poll: Poll) -> None:
        pair = Pair(server, poll)
        pair.fill()
        pair.stream.abort()
        assert pair.is_closed() and not pair.is_told()
        assert pair.stream.get_write_buffer_size() == 0
        await asyncio.sleep(0)
        assert pair.is_told()
        pair.connection._end_detail = "told"
        pair.stream.abort()
        pair.stream.close()
        pair.stream.write(b"too late")
        pair.stream.pause_reading()
        pair.stream.resume_reading()
        await asyncio.sleep(0)
        assert pair.connection._end_detail == "told"
        assert is_silent(poll)

    run(scenario)


def test_a_reset_that_a_write_finds_is_told_after_the_write() -> None:
    async def scenario(server: Server, poll: Poll) -> None:
        pair = Pair(server, poll)
        pair.reset()
        pair.stream.write(b"x")
        assert pair.is_closed() and not pair.is_told()
        await asyncio.sleep(0)
        assert pair.is_told()
        assert "reset" in pair.connection._end_detail or "Broken pipe" in pair.connection._end_detail

    run(scenario)


def test_the_answers_of_a_turn_to_a_client_that_is_gone_end_its_connection_in_that_turn() -> None:
    async def scenario(server: Server, poll: Poll) -> None:
        pair = Pair(server, poll)
        pair.send(Connect("c"), Pingreq())
        ready = poll.wait(1, EVENTS_MAX)
        pair.client.close()
        poll.look(ready)  # reads, and writes to a client that does not read: the next write finds it gone
        if not pair.is_closed():
            look(poll)
        assert pair.is_closed() and pair.is_told()
        assert not server._connections

    run(scenario)


def test_the_end_of_a_stream_closes_the_socket_when_all_was_sent() -> None:
    async def scenario(server: Server, poll: Poll) -> None:
        pair, other = Pair(server, poll), Pair(server, poll, unix_pair)
        pair.client.shutdown(socket.SHUT_WR)
        look(poll)
        assert pair.is_closed() and pair.is_told()
        assert pair.client.recv(1) == b""
        written = other.fill()
        other.client.shutdown(socket.SHUT_WR)
        look(poll)
        assert not other.is_closed()
        assert other.read_all(len(written)) == written
        assert other.client.recv(1) == b""
        assert other.is_closed() and other.is_told()

    run(scenario)


def test_an_event_of_a_closed_socket_does_not_harm_the_one_that_has_its_descriptor_next() -> None:
    async def scenario(server: Server, poll: Poll) -> None:
        first, second = Pair(server, poll), Pair(server, poll)
        first.send(Connect("first"))
        second.client.shutdown(socket.SHUT_WR)
        ready = poll.wait(1, EVENTS_MAX)
        descriptor = second.stream.descriptor
        assert {first.stream.descriptor, descriptor} == {found for found, _ in ready}
        client, served = tcp_pair()
        second.stream.abort()
        os.dup2(served.fileno(), descriptor, inheritable=False)
        served.close()
        third = Pair(server, poll, lambda: (client, socket.socket(fileno=descriptor)))
        assert third.stream.descriptor == descriptor
        poll.look([(found, events | 0x18) for found, events in ready])  # also with the bits of a failure
        assert not third.is_closed()
        third.send(Connect("third"))
        look(poll)
        assert third.client.recv(4) == first.client.recv(4) == bytes.fromhex("20020000")
        await asyncio.sleep(0)
        assert second.is_told()

    run(scenario)


def test_a_closed_socket_that_a_forked_process_has_open_is_not_told_of_again() -> None:
    async def scenario(server: Server, poll: Poll) -> None:
        pair = Pair(server, poll)
        copy = os.dup(pair.stream.descriptor)  # as a child has it
        try:
            pair.stream.abort()
            pair.client.send(b"x")
            assert is_silent(poll)
        finally:
            os.close(copy)

    run(scenario)
