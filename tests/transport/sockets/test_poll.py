"""The poll: one turn for all that is ready, what comes after it, and calls from other threads."""

import asyncio
import os
import threading
from functools import partial

import pytest

from embermq.broker.access import AllowAll
from embermq.broker.limits import Limits
from embermq.protocol.mqtt.encode import encode
from embermq.protocol.packets import Connect, Pingreq, Publish, Subscribe, SubscriptionRequest, Will
from embermq.store.engines.memory import MemoryStore
from embermq.transport.server import Server
from embermq.transport.sockets.interface import READABLE
from embermq.transport.sockets.poll import ENDED_MAX, EVENTS_MAX, Poll, Wake
from support.polled_server import Pair, is_silent, look, run

CONNACK = bytes.fromhex("20020000")


def fail() -> None:
    raise ValueError("a bug")


# -- the turn --------------------------------------------------------------------------------------------------------


def test_all_that_is_ready_is_one_turn_which_ends_at_once() -> None:
    async def scenario(server: Server, poll: Poll) -> None:
        turns: list[int] = []
        server.end_of_turn.append(lambda: turns.append(1))
        pairs = [Pair(server, poll) for _ in range(20)]
        for number, pair in enumerate(pairs):
            pair.send(Connect(f"c{number}"))
        assert look(poll) == []
        assert turns == [1]
        assert [pair.client.recv(4) for pair in pairs] == [CONNACK] * 20

    run(scenario)


def test_the_connections_of_clients_that_leave_together_end_in_several_turns() -> None:
    async def scenario(server: Server, poll: Poll) -> None:
        count = 2 * ENDED_MAX + 10
        pairs = [Pair(server, poll) for _ in range(count)]
        for number, pair in enumerate(pairs):
            pair.send(Connect(f"c{number}", will=Will("gone", b"", 0, False)))
        look(poll)
        assert server.core.counters.clients_connected == count
        turns: list[int] = []
        server.end_of_turn.append(lambda: turns.append(server.core.counters.clients_connected))
        for pair in pairs:
            pair.reset()
        look(poll)
        assert all(pair.is_closed() for pair in pairs)
        assert turns == [count - ENDED_MAX]
        while server.core.counters.clients_connected:
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert turns == [count - ENDED_MAX, 10, 0]
        assert all(pair.is_told() for pair in pairs)

    run(scenario)


def test_a_turn_that_began_before_ends_with_that_of_the_poll() -> None:
    async def scenario(server: Server, poll: Poll) -> None:
        turns: list[int] = []
        server.end_of_turn.append(lambda: turns.append(1))
        pair = Pair(server, poll)
        pair.send(Connect("c"))
        server.begin_turn()
        look(poll)
        await asyncio.sleep(0)
        assert turns == [1]
        server.begin_turn()
        await asyncio.sleep(0)
        assert turns == [1, 1]

    run(scenario)


def test_what_is_not_watched_is_returned() -> None:
    async def scenario(server: Server, poll: Poll) -> None:
        reading, writing = os.pipe()
        try:
            poll.epoll.register(reading, READABLE)
            os.write(writing, b"x")
            pair = Pair(server, poll)
            pair.send(Connect("c"))
            assert look(poll) == [(reading, READABLE)]
            assert pair.client.recv(4) == CONNACK
        finally:
            os.close(reading)
            os.close(writing)

    run(scenario)


def test_clients_that_end_in_a_turn_are_told_in_it_and_their_wills_are_sent() -> None:
    async def scenario(server: Server, poll: Poll) -> None:
        reader = Pair(server, poll)
        reader.send(Connect("reader"), Subscribe(1, [SubscriptionRequest("t", 0)]))
        look(poll)
        assert reader.client.recv(9) == CONNACK + bytes.fromhex("9003000100")
        pairs = [Pair(server, poll) for _ in range(3)]
        for number, pair in enumerate(pairs):
            pair.send(Connect(f"c{number}", will=Will("t", b"gone")))
        look(poll)
        for pair in pairs:
            pair.reset()
        look(poll)
        assert all(pair.is_closed() and pair.is_told() for pair in pairs)
        assert server._connections == {reader.connection}
        assert reader.client.recv(100) == encode(Publish("t", b"gone")) * 3

    run(scenario)


def test_what_is_to_come_after_the_turn_comes_after_it_also_if_one_fails() -> None:
    async def scenario(server: Server, poll: Poll) -> None:
        order: list[str] = []
        server.end_of_turn.append(lambda: order.append("end"))
        pair = Pair(server, poll)
        pair.send(Connect("c"))
        for call in (lambda: order.append("first"), fail, lambda: order.append("last")):
            poll.after_turn(call)
        look(poll)
        assert order == ["end", "first", "last"]
        pair.send(Pingreq())
        look(poll)
        assert order == ["end", "first", "last", "end"]

    run(scenario, internal_errors=1)


def test_an_interrupt_in_a_turn_leaves_the_next_turns_whole() -> None:
    async def scenario(server: Server, poll: Poll) -> None:
        turns: list[int] = []
        server.end_of_turn.append(lambda: turns.append(1))
        wake = Wake()
        poll.add(wake)
        pair = Pair(server, poll)

        def interrupt() -> None:
            server.begin_turn()
            raise KeyboardInterrupt

        wake.call(interrupt)
        with pytest.raises(KeyboardInterrupt):
            look(poll)
        assert turns == [1]
        server.begin_turn()
        pair.stream.abort()
        await asyncio.sleep(0)
        assert turns == [1, 1]
        assert pair.is_told()
        poll.remove(wake)
        wake.close()

    run(scenario)


def test_one_server_at_a_time_has_a_poll() -> None:
    async def scenario(server: Server, poll: Poll) -> None:
        other = Server(store=MemoryStore(), access=AllowAll(), limits=Limits())
        assert poll.take(server)
        assert not poll.take(other)
        poll.leave()
        assert poll.take(other)
        assert not poll.take(server)

    run(scenario)


# -- calls from other threads ----------------------------------------------------------------------------------------


def test_calls_of_many_threads_are_all_made_and_in_each_threads_order() -> None:
    threads_count, calls_count = 8, 2_000

    async def scenario(server: Server, poll: Poll) -> None:
        wake = Wake()
        poll.add(wake)
        called: list[list[int]] = [[] for _ in range(threads_count)]

        def call_often(of_thread: list[int]) -> None:
            for number in range(calls_count):
                wake.call(partial(of_thread.append, number))

        threads = [threading.Thread(target=call_often, args=(of_thread,)) for of_thread in called]
        for thread in threads:
            thread.start()
        while sum(map(len, called)) < threads_count * calls_count:
            look(poll)
        for thread in threads:
            thread.join()
        assert called == [list(range(calls_count))] * threads_count
        poll.look(poll.wait(0, EVENTS_MAX))
        assert is_silent(poll)
        poll.remove(wake)
        wake.close()

    run(scenario)


def test_a_call_that_fails_does_not_lose_the_next_ones() -> None:
    async def scenario(server: Server, poll: Poll) -> None:
        wake = Wake()
        poll.add(wake)
        called: list[int] = []
        for number in range(3):
            wake.call(fail)
            wake.call(partial(called.append, number))
        while len(called) < 3:
            look(poll)
        assert called == [0, 1, 2]
        poll.remove(wake)
        wake.close()

    run(scenario, internal_errors=3)


def test_calls_that_call_again_leave_turns_to_the_sockets() -> None:
    async def scenario(server: Server, poll: Poll) -> None:
        wake = Wake()
        poll.add(wake)

        def call_again() -> None:
            wake.call(call_again)

        call_again()
        pair = Pair(server, poll)
        pair.send(Connect("c"))
        look(poll)
        assert pair.client.recv(4) == CONNACK
        look(poll)
        poll.remove(wake)
        wake.close()

    run(scenario)


def test_after_the_end_nothing_is_called_and_no_other_file_is_written_to() -> None:
    wake = Wake()
    before = wake.descriptor
    wake.close()
    wake.close()
    reading, writing = os.pipe2(os.O_NONBLOCK)
    try:
        assert before in (reading, writing)
        wake.call(fail)
        with pytest.raises(BlockingIOError):
            os.read(reading, 8)
    finally:
        os.close(reading)
        os.close(writing)
