"""One socket of a client over TLS, and the TLS handshakes of all of them.

Owns: what OpenSSL has of a connection (an object, and two buffers of one record each at most), and how many handshakes
there are at a time. A client that sends nothing has none of the memory for reading that transports of asyncio have.
"""

import os
import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final, final

from embermq.transport.sockets.addresses import shown_peer
from embermq.transport.sockets.interface import CLOSED, READABLE, WRITABLE, ByteReceiver
from embermq.transport.sockets.poll import Poll
from embermq.transport.sockets.stream_socket import READ_BYTES, StreamSocket

HANDSHAKES_MAX: Final = 256
"""How many TLS handshakes there are at a time. OpenSSL has about 45 KiB for each, and 150 KiB for a hostile one."""
STALLED_S: Final = 2.0
"""When there are as many, the oldest is ended for a new one if it began this long ago."""
HANDSHAKE_BYTES_MAX: Final = 64 * 1024
"""How much a client may send until its handshake is over: its hello, and its certificates."""
RECORD_BYTES: Final = 16 * 1024
"""The largest record of TLS (RFC 8446, 5.1), which is encrypted or decrypted at a time."""
CHUNKS_MAX: Final = 16
"""How many times that size is read in one turn at most. Less if it is hardly any data: small records take longer."""
ANSWERS_MAX: Final = 64
"""How many answers of TLS itself a client may leave unread: each change of keys (RFC 8446, 4.6.3) can ask for one."""

_read: Final[Callable[[int, int], bytes]] = os.read


@final
class Handshakes:
    """The TLS handshakes of one server that have not ended, oldest first. `report` takes lines for the log."""

    def __init__(self, report: Callable[[str], None]) -> None:
        self._begun_s: Final[dict[TlsSocket, float]] = {}
        self._report: Final = report
        self.handshakes_max = HANDSHAKES_MAX
        self.stalled_s = STALLED_S
        self.ended = 0  # for a new one
        self.failed = 0

    def has_room(self) -> bool:
        """Whether one more may begin; the oldest is ended for it if the client has let it wait."""
        if len(self._begun_s) < self.handshakes_max:
            return True
        for oldest, begun_s in self._begun_s.items():
            if time.monotonic() - begun_s < self.stalled_s:
                return False
            self.ended += 1
            self._report(f"the TLS handshake of {oldest.shown_peer()} was ended for a new one")
            oldest.abort()
            return True
        return False

    def begin(self, stream: "TlsSocket") -> None:
        self._begun_s[stream] = time.monotonic()

    def end(self, stream: "TlsSocket") -> None:
        """It is complete, or the connection is lost."""
        self._begun_s.pop(stream, None)

    def fail(self, stream: "TlsSocket", reason: str) -> None:
        """A client does not speak TLS, or its certificate is not accepted, or it does not accept the server's."""
        self.failed += 1
        self._report(f"the TLS handshake of {stream.shown_peer()} failed: {reason}")

    def counts(self) -> dict[str, int]:
        """For `$SYS/broker/`."""
        return {
            "tls/handshakes": len(self._begun_s),
            "tls/handshakes-ended": self.ended,
            "tls/handshakes-failed": self.failed,
        }


@final
class TlsSocket(StreamSocket):
    """A `StreamSocket` whose bytes are encrypted."""

    def __init__(
        self,
        poll: Poll,
        descriptor: int,
        peer: object,
        receiver: ByteReceiver,
        is_framed: bool,
        context: ssl.SSLContext,
        handshakes: Handshakes,
    ) -> None:
        StreamSocket.__init__(self, poll, descriptor, peer, receiver, is_framed)
        self._context: Final = context
        self._handshakes: Final = handshakes
        self._incoming: Final = ssl.MemoryBIO()
        self._outgoing: Final = ssl.MemoryBIO()
        self._tls: ssl.SSLObject | None = None
        self._is_open = False  # the handshake is over
        self._handshake_bytes = 0
        self._answers = 0  # that were made while the client read nothing
        self._sends_much = True  # a handshake takes long

    def begin(self) -> None:
        """The connection is within all limits: let the handshake begin."""
        self._tls = self._context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._handshakes.begin(self)

    def shown_peer(self) -> str:
        return shown_peer(self._peer)

    def get_extra_info(self, name: str, default: object = None) -> object:
        if name == "peercert" and self._tls is not None:
            return self._tls.getpeercert()
        return StreamSocket.get_extra_info(self, name, default)

    # -- reading -----------------------------------------------------------------------------------------------------

    def ready(self, events: int) -> None:
        if events & WRITABLE or not self._events & READABLE:
            self._write_on()
        if events & ~WRITABLE and self._events & READABLE:
            self._read_in_turn()

    def _read(self) -> None:
        tls = self._tls
        if tls is None:
            return
        plain: list[bytes] = []
        wanted = RECORD_BYTES if self._sends_much else READ_BYTES
        raw_bytes = 0
        is_end = False
        for _ in range(CHUNKS_MAX):
            try:
                raw = _read(self.descriptor, wanted)
            except (BlockingIOError, InterruptedError):
                break
            except OSError as error:
                if not plain:
                    self._close_now(error)
                break  # else the next turn finds it
            if not raw:
                is_end = not plain
                break
            raw_bytes += len(raw)
            self._incoming.write(raw)
            if not self._is_open and not self._shake_hands(tls, len(raw)):
                return
            decrypted_bytes = self._decrypt(tls, plain)
            if decrypted_bytes < 0:
                is_end = True
                break
            if len(raw) < wanted or 2 * decrypted_bytes < len(raw):
                break
            wanted = RECORD_BYTES
        self._sends_much = raw_bytes >= READ_BYTES
        if self._outgoing.pending:
            self._answer()
        if plain and self.descriptor != CLOSED:
            self._receiver.data_received(plain[0] if len(plain) == 1 else b"".join(plain))
        if is_end:
            self.close()

    def _shake_hands(self, tls: ssl.SSLObject, size: int) -> bool:
        """One step of the handshake; returns whether it is over."""
        self._handshake_bytes += size
        try:
            if self._handshake_bytes > HANDSHAKE_BYTES_MAX:
                raise ValueError(f"more than {HANDSHAKE_BYTES_MAX} bytes")
            tls.do_handshake()
        except ssl.SSLWantReadError:
            self._answer()
            return False
        except (ssl.SSLError, ValueError) as error:
            self._answer()  # the alert that says why
            self._handshakes.fail(self, _reason(error))
            self.close()
            return False
        self._is_open = True
        self._handshakes.end(self)
        self._answer()
        return self.descriptor != CLOSED

    def _decrypt(self, tls: ssl.SSLObject, plain: list[bytes]) -> int:
        """Decrypt what there is; returns how many bytes that are, or -1 if nothing follows them."""
        size = 0
        while self._incoming.pending or tls.pending():
            try:
                data = tls.read(RECORD_BYTES)
            except ssl.SSLWantReadError:
                break
            except ssl.SSLError:  # the client has ended it, or broken it
                return -1
            if not data:
                return -1
            plain.append(data)
            size += len(data)
        return size

    def _answer(self) -> None:
        """Send what TLS itself has to say."""
        data = self._outgoing.read()
        if not data:
            return
        self._answers = self._answers + 1 if self._unsent is not None else 0
        if self._answers > ANSWERS_MAX:
            self._close_now(None)
        else:
            self._send(data)

    # -- writing -----------------------------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        tls = self._tls
        if self._is_closing or not self._is_open or tls is None or not data:
            return
        try:
            if len(data) <= RECORD_BYTES:
                tls.write(data)
                encrypted = self._outgoing.read()
            else:
                encrypted = self._encrypted(tls, data)
        except ssl.SSLError as error:
            self._close_now(error)
            return
        self._send(encrypted)

    def write_parts(self, parts: list[bytes], has_large: bool) -> int:
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        self.write(data)
        return len(data)

    def _send(self, encrypted: bytes) -> None:
        if encrypted:
            StreamSocket.write_parts(self, [encrypted], False)

    def _encrypted(self, tls: ssl.SSLObject, data: bytes) -> bytes:
        """Record by record, since a buffer of OpenSSL that has grown stays large."""
        parts: list[bytes] = []
        view = memoryview(data)
        at = 0
        while at < len(data):
            at += tls.write(view[at : at + RECORD_BYTES])
            parts.append(self._outgoing.read())
        return b"".join(parts)

    def close(self) -> None:
        """Say that nothing follows, and end when all was sent, without waiting for the client to say the same."""
        if self._is_open and not self._is_closing and self._tls is not None:
            with suppress(ssl.SSLError, ValueError):  # the client has not said the same yet
                self._tls.unwrap()
            data = self._outgoing.read()
            if data:
                self._send(data)
        StreamSocket.close(self)

    def _close_now(self, error: OSError | None) -> None:
        self._handshakes.end(self)
        StreamSocket._close_now(self, error)
        self._tls = None  # what OpenSSL has is much: it must not wait until nothing else refers to this object


def _reason(error: Exception) -> str:
    """As OpenSSL names it."""
    reason = error.reason if isinstance(error, ssl.SSLError) else None
    return str(reason or (error.args[-1] if error.args else error)).lower().replace("_", " ")
