"""The server's event loop: all of asyncio works on it while the server has turns without end; brokers on any loop."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path

import pytest
import uvloop

from embermq import Broker
from embermq.transport.sockets.loop import SocketLoop
from support.polled_server import TIMEOUT_S
from support.wire import Wire

Scenario = Callable[[SocketLoop], Coroutine[None, None, None]]


def run(scenario: Scenario, *, is_busy: bool = True) -> None:
    """Run a scenario while the loop's poll has one turn after the other, each for the call of another."""

    async def whole() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SocketLoop)
        is_over = False
        turns = 0

        def call_again() -> None:
            nonlocal turns
            turns += 1
            if not is_over:
                loop.wake.call(call_again)

        if is_busy:
            call_again()
        try:
            await asyncio.wait_for(scenario(loop), 4 * TIMEOUT_S)
        finally:
            is_over = True
        assert turns > 1 or not is_busy

    with asyncio.Runner(loop_factory=SocketLoop) as runner:
        runner.run(whole())


# -- asyncio ---------------------------------------------------------------------------------------------------------


def test_timers_and_calls_come_although_turns_go_on_without_end() -> None:
    async def scenario(loop: SocketLoop) -> None:
        order: list[str] = []
        loop.call_later(0.03, order.append, "late")
        loop.call_later(0.01, order.append, "early")
        loop.call_soon(order.append, "soon")
        cancelled = loop.call_later(0.02, order.append, "cancelled")
        cancelled.cancel()
        begun_s = loop.time()
        await asyncio.sleep(0.05)
        assert order == ["soon", "early", "late"]
        assert loop.time() - begun_s >= 0.049

    run(scenario)
    run(scenario, is_busy=False)


def test_what_a_turn_gives_the_loop_to_call_is_called() -> None:
    async def scenario(loop: SocketLoop) -> None:
        soon, later = asyncio.Event(), asyncio.Event()

        def begin() -> None:
            loop.call_soon(soon.set)

        def begin_timer() -> None:
            loop.call_later(0.001, later.set)

        loop.wake.call(begin)
        await soon.wait()
        loop.wake.call(begin_timer)
        await later.wait()

    run(scenario)
    run(scenario, is_busy=False)


@pytest.mark.parametrize("is_busy", [True, False])
def test_other_threads_can_have_functions_called(is_busy: bool) -> None:
    async def scenario(loop: SocketLoop) -> None:
        called = asyncio.Event()
        thread = threading.Thread(target=loop.call_soon_threadsafe, args=(called.set,))
        thread.start()
        await called.wait()
        thread.join()
        assert await loop.run_in_executor(None, sum, (1, 2)) == 3

    run(scenario, is_busy=is_busy)


@pytest.mark.parametrize("is_busy", [True, False])
def test_signals_are_handled(is_busy: bool) -> None:
    async def scenario(loop: SocketLoop) -> None:
        came = asyncio.Event()
        loop.add_signal_handler(signal.SIGUSR1, came.set)
        loop.call_later(0.01, os.kill, os.getpid(), signal.SIGUSR1)
        await came.wait()
        assert loop.remove_signal_handler(signal.SIGUSR1)

    run(scenario, is_busy=is_busy)


@pytest.mark.parametrize("is_busy", [True, False])
def test_servers_and_connections_of_asyncio(is_busy: bool, tmp_path: Path) -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.read())
        writer.close()

    async def sent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        writer.write(bytes(3_000_000))
        writer.write_eof()
        answer = await reader.read()
        writer.close()
        return answer

    async def scenario(loop: SocketLoop) -> None:
        path = str(tmp_path / "socket")
        async with await asyncio.start_server(echo, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            assert len(await sent(*await asyncio.open_connection("127.0.0.1", port))) == 3_000_000
        async with await asyncio.start_unix_server(echo, path):
            assert len(await sent(*await asyncio.open_unix_connection(path))) == 3_000_000

    run(scenario, is_busy=is_busy)


@pytest.mark.parametrize("is_busy", [True, False])
def test_subprocesses_and_pipes(is_busy: bool) -> None:
    async def scenario(loop: SocketLoop) -> None:
        process = await asyncio.create_subprocess_exec(
            "cat", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        printed, _ = await process.communicate(bytes(500_000))
        assert (process.returncode, len(printed)) == (0, 500_000)
        reading, writing = os.pipe()
        reader = asyncio.StreamReader()
        transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(reading, "rb")
        )
        os.write(writing, b"x")
        os.close(writing)
        assert await reader.read() == b"x"
        transport.close()

    run(scenario, is_busy=is_busy)


@pytest.mark.parametrize("is_busy", [True, False])
def test_readers_and_writers_of_files(is_busy: bool) -> None:
    async def scenario(loop: SocketLoop) -> None:
        first, second = socket.socketpair()
        with first, second:
            first.setblocking(False)
            readable, writable = asyncio.Event(), asyncio.Event()
            loop.add_reader(first, readable.set)
            loop.add_writer(first, writable.set)
            await writable.wait()
            assert loop.remove_writer(first) and not readable.is_set()
            second.send(b"x")
            await readable.wait()
            assert loop.remove_reader(first)
            assert await loop.sock_recv(first, 1) == b"x"

    run(scenario, is_busy=is_busy)


def test_datagrams_of_asyncio() -> None:
    class Received(asyncio.DatagramProtocol):
        def __init__(self) -> None:
            self.data: asyncio.Queue[bytes] = asyncio.Queue()

        def datagram_received(self, data: bytes, addr: object) -> None:
            self.data.put_nowait(data)

    async def scenario(loop: SocketLoop) -> None:
        transport, protocol = await loop.create_datagram_endpoint(Received, ("127.0.0.1", 0))
        transport.sendto(b"x", transport.get_extra_info("sockname"))
        assert await protocol.data.get() == b"x"
        transport.close()

    run(scenario)


# -- the end ---------------------------------------------------------------------------------------------------------


def files() -> set[tuple[str, str]]:
    """The numbers and names of all that is open."""
    found: set[tuple[str, str]] = set()
    for path in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # that of the directory itself, and what the collector closes
            found.add((path.name, os.readlink(path)))
    return found


def test_a_loop_can_be_closed_twice_and_leaves_no_file() -> None:
    before = files()
    loop = SocketLoop()
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    loop.close()
    assert loop.is_closed()
    loop.wake.call(lambda: None)
    assert files() <= before


def test_a_loop_that_runs_cannot_be_closed_and_goes_on() -> None:
    async def scenario(loop: SocketLoop) -> None:
        with pytest.raises(RuntimeError):
            loop.close()
        called = asyncio.Event()
        loop.wake.call(called.set)
        await called.wait()

    run(scenario, is_busy=False)


# -- brokers ---------------------------------------------------------------------------------------------------------


def exchange(broker: Broker) -> None:
    """What clients on TCP see of a broker that works: a message of each QoS comes back."""
    assert broker.port is not None
    with Wire(("127.0.0.1", broker.port)) as client:
        assert client.connect("c").return_code == 0
        client.subscribe(("t", 2))
        for qos in range(3):
            client.publish("t", b"%d" % qos, qos=qos)
            assert client.receive_message().payload == b"%d" % qos
        client.publish("t", bytes(1_000_000), qos=1)
        assert len(client.receive_message().payload) == 1_000_000
        client.disconnect()


LoopFactory = Callable[[], asyncio.AbstractEventLoop]

LOOPS: list[LoopFactory] = [SocketLoop, asyncio.SelectorEventLoop, uvloop.new_event_loop]


def files_left(loop_factory: LoopFactory, main: Callable[[], Coroutine[None, None, None]]) -> set[tuple[str, str]]:
    """The files that are open after a program on a loop and were not before."""
    loop_factory().close()  # the first of uvloop opens files for all that follow
    before = files()
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(main())
    return files() - before


@pytest.mark.parametrize("loop_factory", LOOPS)
def test_brokers_beside_one_another_on_one_loop(loop_factory: LoopFactory, tmp_path: Path) -> None:
    async def brokers() -> None:
        async with Broker(port=0, data=tmp_path / "first") as first:
            async with Broker(port=0, sn_port=0, unix_path=tmp_path / "s") as second, Broker(port=0) as third:
                for broker in (first, second, third):
                    await asyncio.to_thread(exchange, broker)
            await asyncio.to_thread(exchange, first)
            async with Broker(port=0) as fourth:
                await asyncio.to_thread(exchange, fourth)
        async with Broker(port=0, data=tmp_path / "first") as fifth:  # the loop's own poll is free again
            await asyncio.to_thread(exchange, fifth)

    assert files_left(loop_factory, brokers) == set()


@pytest.mark.parametrize("loop_factory", LOOPS)
def test_a_broker_ends_with_clients_that_do_not_read_or_send(loop_factory: LoopFactory) -> None:
    async def broker() -> None:
        async with Broker(port=0) as broker:
            assert broker.port is not None
            clients = [Wire(("127.0.0.1", broker.port)) for _ in range(3)]
            await asyncio.to_thread(clients[0].connect, "c")
            await asyncio.to_thread(clients[0].subscribe, ("t", 0))
            clients[1].send("10")
        for client in clients:
            await asyncio.to_thread(client.assert_closed)
            client.close()

    assert files_left(loop_factory, broker) == set()


WITHOUT_EPOLL = """
import os, select

for module, word in ((select, "epoll"), (os, "eventfd"), (os, "efd_")):
    for name in [name for name in dir(module) if word in name.lower()]:
        delattr(module, name)

import asyncio
from embermq import Broker

async def main():
    async with Broker(port=0, sn_port=0) as broker:
        reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
        writer.write(bytes.fromhex("100d 00044d515454 04020000 000163"))
        assert await reader.readexactly(4) == bytes.fromhex("20020000")
        writer.close()

asyncio.run(main())
"""


def test_a_broker_works_where_the_system_has_no_epoll() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_EPOLL], env=os.environ, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
