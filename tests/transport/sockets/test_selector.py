"""The selector: asyncio's files and the server's sockets in one wait, which asyncio can end."""

import asyncio
import os
import selectors
import socket
import time
from collections.abc import Iterator
from functools import partial

import pytest

from embermq.protocol.packets import Connect
from embermq.transport.server import Server
from embermq.transport.sockets.interface import READABLE
from embermq.transport.sockets.poll import Poll, Wake
from embermq.transport.sockets.selector import EVENTS_FEW, REST_S, SocketSelector
from support.polled_server import TIMEOUT_S, Pair, run

READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE


@pytest.fixture
def poll() -> Iterator[Poll]:
    loop = asyncio.new_event_loop()
    yield Poll(loop)
    loop.close()


@pytest.fixture
def selector(poll: Poll) -> Iterator[SocketSelector]:
    made = SocketSelector(poll)
    yield made
    made.close()


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    first, second = socket.socketpair()
    with first, second:
        yield first, second


Ends = tuple[socket.socket, socket.socket]


def test_a_file_is_ready_for_what_it_was_registered_for(selector: SocketSelector, ends: Ends) -> None:
    key = selector.register(ends[0], READ, "data")
    assert key == (ends[0], ends[0].fileno(), READ, "data")
    assert selector.select(0) == []
    ends[1].send(b"x")
    assert selector.select(TIMEOUT_S) == [(key, READ)]
    both = selector.modify(ends[0], READ | WRITE, "other")
    assert selector.select(TIMEOUT_S) == [(both, READ | WRITE)]
    assert both.data == "other"
    only = selector.modify(ends[0], WRITE)
    assert selector.select(TIMEOUT_S) == [(only, WRITE)]
    assert selector.unregister(ends[0]) == only
    assert selector.select(0) == []


def test_files_are_known_by_object_and_by_number(selector: SocketSelector, ends: Ends) -> None:
    key = selector.register(ends[0].fileno(), READ)
    assert selector.get_key(ends[0]) == selector.get_key(ends[0].fileno()) == key
    assert list(selector.get_map().values()) == [key]
    with pytest.raises(KeyError):
        selector.register(ends[0], READ)
    with pytest.raises(KeyError):
        selector.get_key(ends[1])
    with pytest.raises(KeyError):
        selector.modify(ends[1], READ)
    with pytest.raises(KeyError):
        selector.unregister(ends[1])


def test_a_file_that_was_closed_before_can_be_unregistered(selector: SocketSelector, ends: Ends) -> None:
    descriptor = ends[0].fileno()
    selector.register(descriptor, READ)
    ends[0].close()
    selector.unregister(descriptor)
    assert not selector.get_map()


@pytest.mark.parametrize("events", [READ, WRITE, READ | WRITE])
def test_a_file_that_has_failed_is_ready_for_all_it_was_registered_for(selector: SocketSelector, events: int) -> None:
    reading, writing = os.pipe()
    try:
        failed = reading if events == READ else writing
        selector.register(failed, events)
        os.close(writing if events == READ else reading)
        assert [found for _, found in selector.select(TIMEOUT_S)] == [events]
    finally:
        os.close(failed)


def test_what_nobody_has_registered_is_passed_over(poll: Poll, selector: SocketSelector, ends: Ends) -> None:
    poll.epoll.register(ends[0].fileno(), READABLE)
    ends[1].send(b"x")
    assert selector.select(TIMEOUT_S) == []


def test_it_waits_no_longer_than_asked_although_turns_go_on(poll: Poll, selector: SocketSelector) -> None:
    wake = Wake()
    poll.add(wake)
    turns: list[int] = []

    def call_again() -> None:
        turns.append(1)
        wake.call(call_again)

    call_again()
    assert selector.select(0.2) == []
    assert len(turns) > 2
    turns.clear()
    assert selector.select(-1) == selector.select(0) == []
    assert turns == [1, 1]
    wake.close()


def test_it_returns_after_the_turn_in_which_the_event_loop_was_given_something(
    poll: Poll, selector: SocketSelector
) -> None:
    wake = Wake()
    poll.add(wake)
    called: list[str] = []

    def second() -> None:
        called.append("second")
        selector.want_loop()

    def first() -> None:
        called.append("first")
        wake.call(second)
        wake.call(partial(called.append, "third"))

    selector.want_loop()  # that is what asyncio has done already
    wake.call(first)
    assert selector.select(None) == []
    assert called == ["first", "second", "third"]
    wake.close()


def test_files_of_asyncio_are_ready_in_the_same_wait_as_sockets_of_the_server() -> None:
    async def scenario(server: Server, poll: Poll) -> None:
        selector = SocketSelector(poll)
        first, second = socket.socketpair()
        with first, second:
            key = selector.register(first, READ)
            second.send(b"x")
            pair = Pair(server, poll)
            pair.send(Connect("c"))
            assert selector.select(None) == [(key, READ)]
            assert pair.client.recv(4) == bytes.fromhex("20020000")
            selector.unregister(first)

    run(scenario)


def test_while_a_commit_group_gathers_it_rests_before_it_looks() -> None:
    async def scenario(server: Server, poll: Poll) -> None:
        selector = SocketSelector(poll)
        first, second = socket.socketpair()
        with first, second:
            key = selector.register(first, READ)
            second.send(b"x")
            server.core.effects._is_gathering = True
            began_s = time.monotonic()
            assert selector.select(TIMEOUT_S) == [(key, READ)]
            assert time.monotonic() - began_s >= REST_S
            assert selector.select(0) == [(key, READ)]
            server.core.effects._is_gathering = False
            selector.unregister(first)

    run(scenario)


def test_more_sockets_than_a_turn_usually_has_are_all_looked_after() -> None:
    async def scenario(server: Server, poll: Poll) -> None:
        selector = SocketSelector(poll)
        pairs = [Pair(server, poll) for _ in range(2 * EVENTS_FEW + 5)]
        for number, pair in enumerate(pairs):
            pair.send(Connect(f"c{number}"))
        turns: list[int] = []
        while sum(turns) < len(pairs):
            opened = server.core.counters.messages_sent
            selector.want_loop()
            selector.select(0)
            turns.append(server.core.counters.messages_sent - opened)
        assert turns == [EVENTS_FEW, len(pairs) - EVENTS_FEW]

    run(scenario)
