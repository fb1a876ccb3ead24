"""The service manager that started this process, such as systemd: it is told that the server is ready, and runs.

Owns: the datagrams of sd_notify(3) on the socket that NOTIFY_SOCKET names, and the watchdog's interval.
Never: what is done if it cannot be told; the server runs all the same.
"""

import asyncio
import logging
import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import Final, Self, final

logger: Final = logging.getLogger("embermq")


@final
class ServiceManager:
    """Tells the service manager READY=1 inside the context, WATCHDOG=1 twice in each of its intervals, then STOPPING=1.

    The watchdog is fed by the event loop: if that hangs, systemd restarts the server. Without NOTIFY_SOCKET nothing is
    done.
    """

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        self._address: Final = environment.get("NOTIFY_SOCKET", "")
        self._watchdog_s: Final = _watchdog_s(environment) if self._address else 0.0
        self._feeding: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._tell("READY=1", "STATUS=serving clients")
        if self._watchdog_s:
            self._feeding = asyncio.create_task(self._feed())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._tell("STOPPING=1", "STATUS=stopping")
        if self._feeding is not None:
            self._feeding.cancel()
            with suppress(asyncio.CancelledError):
                await self._feeding

    async def _feed(self) -> None:
        while True:
            self._tell("WATCHDOG=1")
            await asyncio.sleep(self._watchdog_s / 2)

    def _tell(self, *states: str) -> None:
        if not self._address:
            return
        # A name that begins with @ is in Linux's abstract namespace, where it begins with a zero byte.
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                sender.setblocking(False)
                sender.sendto("\n".join(states).encode(), address)
        except OSError as error:
            logger.warning("the service manager at %s was not told %s: %s", self._address, states[0], error)


def _watchdog_s(environment: Mapping[str, str]) -> float:
    """The interval in which the service manager wants to be told that the process runs; 0 if it does not."""
    if environment.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return 0.0
    try:
        return max(0, int(environment.get("WATCHDOG_USEC", "0"))) / 1_000_000
    except ValueError:
        return 0.0
