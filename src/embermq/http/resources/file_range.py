"""Bytes of a file as an answer, sent away from the event loop.

Owns: how a long answer leaves without taking the time of the broker's clients: on a thread the system copies from the
file to the socket (sendfile) until the socket is full. With TLS, small pieces are encrypted on the event loop.
"""

import asyncio
import os
import socket
from functools import partial
from typing import Any, Final

from aiohttp import web

from embermq.http.operation import Call
from embermq.http.resources.listing import stall_s

OCTETS: Final = "application/octet-stream"
STINT_BYTES: Final = 1 << 20
"""What a thread sends before it is free for other requests."""
TLS_BYTES: Final = 64 * 1024


async def send_file_range(
    call: Call[Any, Any], head: bytes, descriptor: int, position: int, end: int
) -> web.StreamResponse:
    """Answer with some bytes and, behind them, a range of an open file, which is left open."""
    request = call.request
    response = web.StreamResponse(
        headers={"Content-Type": OCTETS, "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
    )
    response.content_length = len(head) + end - position
    await response.prepare(request)
    if request.method == "HEAD":
        return response
    transport = request.transport
    if transport is None:
        raise ConnectionResetError("the reader is gone")
    stalled_s = stall_s(request)
    try:
        # What is in the transport's buffer, such as the head of this answer, must not be overtaken.
        if transport.get_extra_info("sslcontext") is None and transport.get_write_buffer_size() == 0:
            await _send_on_threads(call, transport, head, descriptor, position, end)
        else:
            await _send_through(call, response, head, descriptor, position, end)
        async with asyncio.timeout(stalled_s):
            await response.write_eof()
    except TimeoutError:
        transport.abort()
        raise ConnectionResetError("the reader of an answer does not read") from None
    except OSError as error:
        transport.abort()  # the answer is not complete
        raise ConnectionResetError(str(error)) from None
    return response


async def _send_on_threads(
    call: Call[Any, Any], transport: asyncio.Transport, head: bytes, descriptor: int, position: int, end: int
) -> None:
    stalled_s = stall_s(call.request)
    with socket.socket(fileno=os.dup(transport.get_extra_info("socket").fileno())) as writing:
        while head or position < end:
            # Each call has descriptors of its own: this task may be cancelled while the thread still sends.
            stint = partial(_send_stint, os.dup(writing.fileno()), os.dup(descriptor), head, position, end)
            sent_head, sent = await call.service.on_thread(stint)
            head = head[sent_head:]
            position += sent
            if sent_head + sent < STINT_BYTES and (head or position < end):
                async with asyncio.timeout(stalled_s):
                    await _until_writable(writing)


def _send_stint(socket_descriptor: int, file_descriptor: int, head: bytes, position: int, end: int) -> tuple[int, int]:
    """Send until the socket is full, or enough is sent: how many bytes of the head, and of the file."""
    sent_head = sent = 0
    try:
        with socket.socket(fileno=socket_descriptor) as writing:
            while sent_head < len(head):
                sent_head += writing.send(memoryview(head)[sent_head:])
            while position + sent < end and sent < STINT_BYTES:
                count = min(end - position - sent, STINT_BYTES)
                written = os.sendfile(writing.fileno(), file_descriptor, position + sent, count)
                if not written:
                    raise OSError("the file has become shorter")
                sent += written
    except BlockingIOError:
        pass
    finally:
        os.close(file_descriptor)
    return sent_head, sent


async def _until_writable(writing: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    writable = asyncio.Event()
    loop.add_writer(writing.fileno(), writable.set)
    try:
        await writable.wait()
    finally:
        loop.remove_writer(writing.fileno())


async def _send_through(
    call: Call[Any, Any], response: web.StreamResponse, head: bytes, descriptor: int, position: int, end: int
) -> None:
    stalled_s = stall_s(call.request)
    for start in range(0, len(head), TLS_BYTES):
        async with asyncio.timeout(stalled_s):
            await response.write(head[start : start + TLS_BYTES])
    own = os.dup(descriptor)
    try:
        while position < end:
            count = min(TLS_BYTES, end - position)
            data = await call.service.on_thread(partial(os.pread, own, count, position))
            if not data:
                raise OSError("the file has become shorter")
            async with asyncio.timeout(stalled_s):
                await response.write(data)
            position += len(data)
    finally:
        os.close(own)
