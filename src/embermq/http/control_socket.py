"""The control socket: the unix socket in a data directory, by which this user's commands ask a running server.

Owns: the path, and when somebody asks for the first time. What answers is loaded then: aiohttp and what it needs take a
fifth of a fresh server's memory.
"""

import asyncio
import socket
from pathlib import Path
from typing import Final, final

from embermq.transport.sockets.addresses import unix_address

BACKLOG: Final = 100


@final
class ControlSocket:
    """Listens from the start; a server in the same directory has its lock, so a socket left there is replaced."""

    __slots__ = ("_path", "socket")

    def __init__(self, path: Path) -> None:
        """OSError if the file system has no sockets."""
        path.unlink(missing_ok=True)
        self._path: Final = path
        self.socket: Final = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with unix_address(path) as address:
                self.socket.bind(address)
            path.chmod(0o600)
            self.socket.setblocking(False)
            self.socket.listen(BACKLOG)
        except BaseException:
            self.socket.close()
            raise

    async def asked(self) -> None:
        """Wait for a connection, which is not accepted here."""
        loop = asyncio.get_running_loop()
        asked = asyncio.Event()
        loop.add_reader(self.socket, asked.set)
        try:
            await asked.wait()
        finally:
            loop.remove_reader(self.socket)

    def close(self) -> None:
        """Nobody can ask any more."""
        self.socket.close()
        self._path.unlink(missing_ok=True)
