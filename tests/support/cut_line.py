"""A line that is cut at any byte: a TCP proxy in front of a server, for bridges and what is behind them.

Owns: the connections through it.
"""

import random
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Final, Self


class CutLine:
    """The proxy, as a context manager. `port` is asked for with each connection: a server may start on another one."""

    def __init__(self, port: Callable[[], int]) -> None:
        self._target: Final = port
        self._listener: Final = socket.create_server(("127.0.0.1", 0))
        self.port: Final[int] = self._listener.getsockname()[1]
        self._accepting: Final = threading.Thread(target=self._accept, daemon=True)
        self._lock: Final = threading.Lock()
        self._open: list[socket.socket] = []
        self._is_cut = False
        self._left = 0
        self.cuts = 0

    def __enter__(self) -> Self:
        self._accepting.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self._accepting.join()
        self.cut()
        self._listener.close()

    def cut(self) -> None:
        """Reset all connections; new ones are closed until `mend`."""
        with self._lock:
            self._is_cut = True
            self._close_all()

    def mend(self) -> None:
        with self._lock:
            self._is_cut = False

    def cut_after(self, draw: random.Random, most: int, times: int) -> None:
        """Cut each of the next connections after some bytes, of both directions together, and accept the next."""
        with self._lock:
            self._draw, self._most, self._times = draw, most, times
            self._left = draw.randrange(1, most)

    def _close_all(self) -> None:
        for (
            each
        ) in self._open:  # closed by their own threads: others may be given the number of a socket that is closed
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        self._open.clear()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self._target()), 10)
            except OSError:
                client.close()
                continue
            server.settimeout(None)
            with self._lock:
                if self._is_cut:
                    client.close()
                    server.close()
                    continue
                self._open += [client, server]
            threading.Thread(target=self._carry, args=(client, server), daemon=True).start()

    def _carry(self, client: socket.socket, server: socket.socket) -> None:
        """One connection, in both directions, to its end."""
        back = threading.Thread(target=self._pass, args=(server, client), daemon=True)
        back.start()
        self._pass(client, server)
        back.join()
        with self._lock:
            self._open = [each for each in self._open if each not in (client, server)]
        client.close()
        server.close()

    def _pass(self, source: socket.socket, target: socket.socket) -> None:
        try:
            while data := source.recv(16 * 1024):
                target.sendall(data[: self._allowed(len(data))])
        except OSError:
            pass
        finally:
            for each in (source, target):
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def _allowed(self, count: int) -> int:
        """How many of these bytes pass; fewer than there are if the line is cut within them."""
        with self._lock:
            if not self._left:
                return count
            if count < self._left:
                self._left -= count
                return count
            allowed = self._left
            self.cuts += 1
            self._times -= 1
            self._left = self._draw.randrange(1, self._most) if self._times else 0
            self._close_all()
            return allowed
