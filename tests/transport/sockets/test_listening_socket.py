"""Accepting: many at once, more than there is room for, and without a file for one."""

import asyncio
import gc
import os
import resource
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from embermq.broker.limits import Limits
from embermq.protocol.mqtt.encode import encode
from embermq.protocol.packets import Connect
from embermq.transport.server import Server
from embermq.transport.sockets.listening_socket import ACCEPTED_MAX, RETRY_S, ListeningSocket
from embermq.transport.sockets.poll import EVENTS_MAX, Poll
from support.polled_server import TIMEOUT_S, Pair, is_silent, look, run, tcp_pair
from support.transports import connection_of

CONNACK = bytes.fromhex("20020000")


def listening() -> socket.socket:
    bound = socket.create_server(("127.0.0.1", 0), backlog=1_024)
    bound.setblocking(False)
    return bound


def client(bound: socket.socket) -> socket.socket:
    return socket.create_connection(bound.getsockname(), TIMEOUT_S)


def listening_socket(server: Server, poll: Poll, bound: socket.socket, retry_s: float = RETRY_S) -> ListeningSocket:
    return ListeningSocket(poll, bound, lambda: connection_of(server), server.handshakes, retry_s=retry_s)


@contextmanager
def no_files_left() -> Iterator[None]:
    """The process cannot open a file within this. Garbage of a test before would make room."""
    gc.disable()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(map(int, os.listdir("/proc/self/fd")))
    taken: list[int] = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 2, hard))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            while True:
                taken.append(os.dup(0))
        yield
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        gc.enable()


def test_more_connections_than_one_turn_accepts_are_accepted_in_the_next() -> None:
    async def scenario(server: Server, poll: Poll) -> None:
        bound = listening()
        accepting = listening_socket(server, poll, bound)
        clients = [client(bound) for _ in range(2 * ACCEPTED_MAX + 1)]
        for expected in (ACCEPTED_MAX, 2 * ACCEPTED_MAX, 2 * ACCEPTED_MAX + 1):
            look(poll)
            assert len(server._connections) == expected
        assert is_silent(poll)
        for number, each in enumerate(clients):
            each.sendall(encode(Connect(f"c{number}")))
        look(poll)
        assert all(each.recv(4) == CONNACK for each in clients)
        accepting.close()

    run(scenario)


def test_connections_for_which_there_is_no_room_are_closed_and_make_room_when_they_end() -> None:
    async def scenario(server: Server, poll: Poll) -> None:
        bound = listening()
        accepting = listening_socket(server, poll, bound)
        first = client(bound)
        look(poll)
        refused = [client(bound) for _ in range(5)]
        while server.core.counters.connections_refused < 5:
            look(poll)
            await asyncio.sleep(0)
        assert all(each.recv(1) == b"" for each in refused)
        assert is_silent(poll)
        next_client = client(bound)
        first.close()
        look(poll)  # the end of the first counts before the next is accepted
        next_client.sendall(encode(Connect("next")))
        look(poll)
        assert next_client.recv(4) == CONNACK
        accepting.close()

    run(scenario, limits=Limits(connections_max=1))


def test_after_a_connection_for_which_there_is_no_room_ends_are_looked_for_before_the_next() -> None:
    async def scenario(server: Server, poll: Poll) -> None:
        bound = listening()
        accepting = listening_socket(server, poll, bound)
        first = client(bound)
        look(poll)
        refused, accepted = client(bound), client(bound)
        ready = poll.wait(TIMEOUT_S, EVENTS_MAX)
        first.close()
        poll.look(ready)
        assert refused.recv(1) == b""
        look(poll)
        accepted.sendall(encode(Connect("next")))
        look(poll)
        assert accepted.recv(4) == CONNACK
        accepting.close()

    run(scenario, limits=Limits(connections_max=1))


def test_without_a_file_for_a_connection_it_is_accepted_later_and_the_server_is_not_busy(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(server: Server, poll: Poll) -> None:
        bound = listening()
        accepting = listening_socket(server, poll, bound, retry_s=0.02)
        waiting = client(bound)
        with no_files_left():
            look(poll)
            assert is_silent(poll)
            assert not server._connections
        assert "connections cannot be accepted for 0.02 s: Too many open files" in caplog.text
        is_ready = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_reader(poll.epoll.fileno(), is_ready.set)
        await asyncio.wait_for(is_ready.wait(), TIMEOUT_S)
        loop.remove_reader(poll.epoll.fileno())
        look(poll)
        waiting.sendall(encode(Connect("c")))
        look(poll)
        assert waiting.recv(4) == CONNACK
        accepting.close()

    run(scenario)


def test_a_socket_that_is_closed_while_it_waits_for_files_does_not_come_back() -> None:
    async def scenario(server: Server, poll: Poll) -> None:
        bound = listening()
        accepting = listening_socket(server, poll, bound, retry_s=0.01)
        waiting = client(bound)
        with no_files_left():
            look(poll)
        accepting.close()
        accepting.close()
        await asyncio.sleep(0.02)  # for longer than it would have waited
        assert is_silent(poll)
        waiting.close()

    run(scenario)


def test_a_closed_socket_accepts_nothing_although_it_is_open_elsewhere() -> None:
    async def scenario(server: Server, poll: Poll) -> None:
        bound = listening()
        copy = bound.dup()  # as the event loop has it
        accepting = listening_socket(server, poll, bound)
        accepting.close()
        waiting = client(copy)
        assert is_silent(poll)
        waiting.close()
        copy.close()

    run(scenario)


def test_a_socket_that_is_closed_twice_does_no_harm_to_the_one_that_has_its_descriptor_next() -> None:
    async def scenario(server: Server, poll: Poll) -> None:
        bound = listening()
        descriptor = bound.fileno()
        accepting = listening_socket(server, poll, bound)
        a_client, served = tcp_pair()
        accepting.close()
        os.dup2(served.fileno(), descriptor, inheritable=False)
        served.close()
        pair = Pair(server, poll, lambda: (a_client, socket.socket(fileno=descriptor)))
        accepting.close()
        pair.send(Connect("c"))
        look(poll)
        assert a_client.recv(4) == CONNACK

    run(scenario)


def test_a_connection_that_was_reset_before_it_is_accepted_does_no_harm() -> None:
    async def scenario(server: Server, poll: Poll) -> None:
        bound = listening()
        accepting = listening_socket(server, poll, bound)
        gone, stays = client(bound), client(bound)
        gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        gone.close()
        stays.sendall(encode(Connect("c")))
        look(poll)
        look(poll)
        assert stays.recv(4) == CONNACK
        assert len(server._connections) == 1
        assert is_silent(poll)
        accepting.close()

    run(scenario)
