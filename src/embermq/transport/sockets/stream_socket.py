"""One socket of a client: what a connection reads and writes, without a transport of the event loop.

Owns: the descriptor, and the output that the kernel has not taken yet.
"""

import os
import time
from collections.abc import Callable
from typing import Final

from embermq.transport.sockets.interface import CLOSED, READABLE, WRITABLE, ByteReceiver, Watched
from embermq.transport.sockets.poll import Poll

HIGH_BYTES: Final = 64 * 1024
"""When more than this has waited, the connection is told as soon as a quarter of it is left."""
PARTS_MAX: Final = 1_024
"""How many parts one call writes; systems take no more."""
READ_BYTES: Final = 479
"""How much is read at a time from a client that sends little: as much as Python has room for without a call of malloc.
After a read that was full, the next ones go into the memory that all sockets share (`Poll.read_much`), and their bytes
are copied: to allocate memory for each read would take longer."""
FRAMED_BYTES: Final = 64 * 1024
"""How much is read at a time from a WebSocket: it may be thousands of frames, which take longer than their bytes."""
SHARED_BYTES_MIN: Final = 128
"""From here on a part is kept as it is, since other sockets may keep it too; smaller ones are joined."""
JOINED_BYTES_MAX: Final = 4 * 1024
"""Small parts that follow one another are joined up to here: each object takes memory besides its bytes."""

# Looked up once: these are called for every message that comes alone.
_read: Final[Callable[[int, int], bytes]] = os.read
_write: Final[Callable[[int, bytes], int]] = os.write


class StreamSocket(Watched):
    """A `ByteTransport`. It writes at once, and keeps what the kernel does not take.

    `is_framed`: what it reads are frames of a WebSocket, which take longer than their bytes.
    """

    def __init__(
        self, poll: Poll, descriptor: int, peer: object, receiver: ByteReceiver, is_framed: bool = False
    ) -> None:
        Watched.__init__(self, descriptor)
        self._poll: Final = poll
        self._peer: Final = peer
        self._receiver: Final = receiver
        self._is_framed: Final = is_framed
        self._events = READABLE
        self._sends_much = False
        self._unsent: list[bytes] | None = None
        self._unsent_bytes = 0
        self._first_sent = 0  # how many bytes of the first part have been sent
        self._is_last_joined = False  # the last part is of this socket alone, made of small ones
        self._high_bytes = HIGH_BYTES
        self._is_above = False  # more than `_high_bytes` waited, and the connection waits to be told that it is less
        self._is_closing = False
        self._end: OSError | None = None  # why it was closed

    def fileno(self) -> int:
        return self.descriptor

    def get_extra_info(self, name: str, default: object = None) -> object:
        if name == "peername":
            return self._peer
        return self if name == "socket" else default

    # -- from the poll -----------------------------------------------------------------------------------------------

    def ready(self, events: int) -> None:
        if events & WRITABLE or not self._events & READABLE:  # the end of what is not read from is found by writing
            self._write_on()
        if events & ~WRITABLE and self._events & READABLE:
            if self._is_framed:
                self._read_in_turn()
            else:
                self._read()

    def _read_in_turn(self) -> None:
        """Read what must be decoded, which takes time: one that brings much may have to wait for the next turn."""
        poll = self._poll
        if not self._sends_much:
            self._read()
        elif poll.is_decoding_time_used_up():
            poll.defer(self)
        else:
            before_s = time.thread_time()
            self._read()
            poll.spent_decoding(time.thread_time() - before_s)

    def _read(self) -> None:
        try:
            if not self._sends_much:
                data = _read(self.descriptor, READ_BYTES)
            elif self._is_framed:
                data = _read(self.descriptor, FRAMED_BYTES)
            else:
                data = self._poll.read_much(self.descriptor)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._close_now(error)
            return
        if not data:
            self.close()
            return
        is_much = len(data) >= READ_BYTES
        if is_much and not self._sends_much and not self._is_framed:
            data += self._read_more()  # what was sent together is processed in one turn, with one commit
        self._sends_much = is_much
        self._receiver.data_received(data)

    def _read_more(self) -> bytes:
        """What there is behind what was read. If it is the end, or an error, the next turn finds it."""
        try:
            return self._poll.read_much(self.descriptor)
        except OSError:
            return b""

    def tell_end(self) -> None:
        self._receiver.connection_lost(self._end)

    # -- from the connection -----------------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        if data:  # an empty part would never leave: no write takes a byte of it
            self.write_parts([data], False)

    def write_parts(self, parts: list[bytes], has_large: bool) -> int:
        """Write what a turn has gathered; returns its size. What the kernel does not take is kept as these parts.

        `has_large`: a part is not to be copied.
        """
        if self._is_closing:
            return 0
        sent = 0
        if self._unsent is None:
            data = parts[0] if len(parts) == 1 else b"" if has_large else b"".join(parts)
            try:
                sent = _write(self.descriptor, data) if data else os.writev(self.descriptor, parts[:PARTS_MAX])
            except (BlockingIOError, InterruptedError):
                pass
            except OSError as error:
                self._close_now(error)
                return 0
            if data and sent == len(data):
                return sent
        size = self._keep(parts, sent)
        if self._unsent_bytes > self._high_bytes:
            self._is_above = True
        return sent + size

    def _keep(self, parts: list[bytes], sent: int) -> int:
        """Keep what is behind the bytes that were sent of some parts; returns its size."""
        before_bytes = self._unsent_bytes
        small: list[bytes] = []
        for part in parts:
            size = len(part)
            if sent >= size:
                sent -= size
                continue
            if size >= SHARED_BYTES_MIN:
                if small:
                    self._append(b"".join(small))
                    small.clear()
                self._append(part)
                if sent:  # nothing was kept before it
                    self._first_sent = sent
                    self._unsent_bytes -= sent
            else:
                small.append(part[sent:])
            sent = 0
        if small:
            self._append(b"".join(small))
        return self._unsent_bytes - before_bytes

    def _append(self, part: bytes) -> None:
        unsent = self._unsent
        parts = self._poll.unsent
        self._unsent_bytes += len(part)
        if unsent is None:
            unsent = self._unsent = []
            self._watch(self._events | WRITABLE)
        elif len(part) < SHARED_BYTES_MIN and len(unsent) > 1:  # the first may have been sent in part
            last = unsent[-1]
            if len(last) < SHARED_BYTES_MIN or (self._is_last_joined and len(last) < JOINED_BYTES_MAX):
                parts.remove(last)
                part = unsent.pop() + part
                self._is_last_joined = True
            else:
                self._is_last_joined = False
        else:
            self._is_last_joined = False
        unsent.append(part)
        parts.add(part)

    def get_write_buffer_size(self) -> int:
        return self._unsent_bytes

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high_bytes = HIGH_BYTES if high is None else high

    def pause_reading(self) -> None:
        if not self._is_closing:
            self._watch(self._events & ~READABLE)

    def resume_reading(self) -> None:
        if not self._is_closing:
            self._watch(self._events | READABLE)

    def close(self) -> None:
        """Read no more, and end when all was sent."""
        if self._is_closing:
            return
        self._is_closing = True
        if self._unsent is None:
            self._close_now(None)
        else:
            self._watch(WRITABLE)

    def abort(self) -> None:
        """End at once."""
        self._close_now(None)

    # -- the socket --------------------------------------------------------------------------------------------------

    def _watch(self, events: int) -> None:
        before = self._events
        if events != before:
            self._events = events
            self._poll.change(self.descriptor, before, events)

    def _write_on(self) -> None:
        unsent = self._unsent
        if unsent is None:
            return
        buffers: list[bytes | memoryview] = [*unsent[:PARTS_MAX]]
        if self._first_sent:
            buffers[0] = memoryview(unsent[0])[self._first_sent :]
        try:
            sent = os.writev(self.descriptor, buffers)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._close_now(error)
            return
        self._unsent_bytes -= sent
        sent += self._first_sent
        whole = 0
        count = len(unsent)
        while whole < count and sent >= len(unsent[whole]):
            part = unsent[whole]
            sent -= len(part)
            self._poll.unsent.remove(part)
            whole += 1
        del unsent[:whole]
        self._first_sent = sent
        if not unsent:
            self._unsent = None
            if self._is_closing:
                self._close_now(None)
                return
            self._watch(self._events & ~WRITABLE)
        if self._is_above and self._unsent_bytes <= self._high_bytes // 4:
            self._is_above = False
            self._receiver.resume_writing()

    def _close_now(self, error: OSError | None) -> None:
        if self.descriptor == CLOSED:
            return
        self._is_closing = True
        # Without its traceback, whose frames would keep this socket and all that its client has sent alive.
        self._end = None if error is None else error.with_traceback(None)
        self._poll.ended(self)
        self._watch(0)  # to close it is not enough: a process that was forked has it open, and epoll would tell of it
        os.close(self.descriptor)
        self.descriptor = CLOSED
        if self._unsent is not None:
            for part in self._unsent:
                self._poll.unsent.remove(part)
            self._unsent = None
        self._unsent_bytes = 0
