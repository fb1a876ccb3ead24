"""Streams and slices: one slice a pass of the loop for all answers, and an end for readers that do not read."""

import asyncio
import socket
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from aiohttp import web

from embermq.http.streaming import USUAL_SWITCH_S, SliceTurns, Stream, StreamPlaces


def test_each_pass_of_the_loop_has_one_slice() -> None:
    async def test() -> None:
        loop = asyncio.get_running_loop()
        turns = SliceTurns(loop)
        passes = 0
        slices: list[tuple[int, str]] = []

        def count() -> None:
            nonlocal passes
            passes += 1
            loop.call_soon(count)

        async def work(name: str) -> None:
            for _ in range(5):
                await turns.next()
                slices.append((passes, name))

        loop.call_soon(count)
        gone = asyncio.ensure_future(work("gone"))
        workers = [asyncio.ensure_future(work(name)) for name in "abc"]
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.gather(*workers)
        assert len({at for at, _ in slices}) == len(slices) == 15
        assert [name for _, name in slices[:6]] == ["a", "b", "c", "a", "b", "c"]
        await asyncio.wait_for(work("alone"), 60)

    asyncio.run(test())


def test_other_threads_get_the_interpreter_sooner_as_long_as_there_are_slices() -> None:
    async def test() -> None:
        turns = SliceTurns(asyncio.get_running_loop(), switch_check_s=0.01)
        await turns.next()
        while_working_s = sys.getswitchinterval()
        assert while_working_s < USUAL_SWITCH_S
        async with asyncio.timeout(60):
            while sys.getswitchinterval() != USUAL_SWITCH_S:
                assert sys.getswitchinterval() == while_working_s
                await asyncio.sleep(0)

    asyncio.run(test())


async def sends_without_end(stream: Stream, _: web.Request) -> web.StreamResponse:
    while True:
        await stream.line("x" * 100_000)


async def ends_behind_what_is_not_read(stream: Stream, request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.write(bytes(8 << 20))  # more than the socket takes: only the end of the answer waits
    return await stream.complete()


@pytest.mark.parametrize("answer", [sends_without_end, ends_behind_what_is_not_read])
def test_a_reader_that_does_not_read_is_disconnected(
    tmp_path: Path, answer: Callable[[Stream, web.Request], Awaitable[web.StreamResponse]]
) -> None:
    places = StreamPlaces(1)
    ended = asyncio.Event()

    async def test() -> None:
        async def handle(request: web.Request) -> web.StreamResponse:
            try:
                async with Stream(request, places, stall_s=0.1) as stream:
                    return await answer(stream, request)
            finally:
                ended.set()

        application = web.Application()
        application.router.add_get("/", handle)
        runner = web.AppRunner(application)
        await runner.setup()
        await web.UnixSite(runner, str(tmp_path / "socket")).start()
        with socket.socket(socket.AF_UNIX) as reader:
            reader.setblocking(False)
            await asyncio.get_running_loop().sock_connect(reader, str(tmp_path / "socket"))
            await asyncio.get_running_loop().sock_sendall(reader, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            async with asyncio.timeout(60):
                await ended.wait()
                assert (places.count, places.unread.counts.streams_ended) == (0, 1)
                while await asyncio.get_running_loop().sock_recv(reader, 1 << 20):
                    pass  # what was sent before; then the connection is at its end
        await runner.cleanup()

    asyncio.run(test())
