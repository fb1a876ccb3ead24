"""The selector of the server's event loop: it waits for the server's sockets and for asyncio's files in one call.

Owns: how long it waits before asyncio has its next turn. Turns of the server do not need asyncio.
"""

import selectors
import time
from contextlib import suppress
from typing import Final, final

from embermq.transport.sockets.interface import READABLE, WRITABLE
from embermq.transport.sockets.poll import EVENTS_MAX, Poll

EVENTS_FEW: Final = 42
"""How many sockets are asked for after a turn that had fewer: more would take a call of malloc, each time."""
REST_S: Final = 0.001
"""How often sockets are looked at while a commit group gathers (`Effects.may_rest`)."""

_now_s: Final = time.monotonic
_sleep: Final = time.sleep


@final
class SocketSelector:
    """Has the methods of `selectors.BaseSelector`, and does not derive from it: compiled, a base would make it slow."""

    def __init__(self, poll: Poll) -> None:
        self._poll: Final = poll
        self._keys: Final[dict[int, selectors.SelectorKey]] = {}
        self._events_max = EVENTS_FEW
        self._is_loop_wanted = False  # the event loop was given something to call since it waits

    def register(self, fileobj: object, events: int, data: object = None) -> selectors.SelectorKey:
        descriptor = _descriptor(fileobj)
        if descriptor in self._keys:
            raise KeyError(f"{fileobj!r} is registered already")
        self._poll.epoll.register(descriptor, _mask(events))
        key = selectors.SelectorKey(fileobj, descriptor, events, data)  # type: ignore[arg-type]
        self._keys[descriptor] = key
        return key

    def unregister(self, fileobj: object) -> selectors.SelectorKey:
        key = self._keys.pop(_descriptor(fileobj))
        with suppress(OSError):  # it was closed before
            self._poll.epoll.unregister(key.fd)
        return key

    def modify(self, fileobj: object, events: int, data: object = None) -> selectors.SelectorKey:
        before = self._keys[_descriptor(fileobj)]
        if events != before.events:
            self._poll.epoll.modify(before.fd, _mask(events))
        key = self._keys[before.fd] = before._replace(events=events, data=data)
        return key

    def get_key(self, fileobj: object) -> selectors.SelectorKey:
        return self._keys[_descriptor(fileobj)]

    def get_map(self) -> dict[int, selectors.SelectorKey]:
        return self._keys

    def close(self) -> None:
        self._keys.clear()
        self._poll.close()

    def want_loop(self) -> None:
        """The event loop was given something to call: return to it after this turn."""
        self._is_loop_wanted = True

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Wait until asyncio has something to do, with turns of the server meanwhile; returns what is ready."""
        poll = self._poll
        self._is_loop_wanted = False
        wait_s = -1.0 if timeout is None else max(timeout, 0.0)
        until_s = _now_s() + wait_s
        while True:
            if wait_s > 0.0 and poll.may_rest():
                _sleep(min(REST_S, wait_s))
                wait_s = max(until_s - _now_s(), 0.0)
            ready = poll.wait(wait_s, self._events_max)
            self._events_max = EVENTS_FEW if len(ready) < EVENTS_FEW else EVENTS_MAX
            others = poll.look(ready) if ready else ready
            if others or self._is_loop_wanted or not ready:
                return [found for found in map(self._found, others) if found is not None]
            if timeout is not None:
                wait_s = until_s - _now_s()
                if wait_s <= 0.0:
                    return []

    def _found(self, other: tuple[int, int]) -> tuple[selectors.SelectorKey, int] | None:
        descriptor, events = other
        key = self._keys.get(descriptor)
        if key is None:
            return None
        seen = 0
        if events & ~READABLE:  # a file that has failed is readable and writable: both tell of it
            seen |= selectors.EVENT_WRITE
        if events & ~WRITABLE:
            seen |= selectors.EVENT_READ
        return key, seen & key.events


def _descriptor(fileobj: object) -> int:
    if isinstance(fileobj, int):
        return fileobj
    descriptor: int = fileobj.fileno()  # type: ignore[attr-defined]
    return descriptor


def _mask(events: int) -> int:
    return (READABLE if events & selectors.EVENT_READ else 0) | (WRITABLE if events & selectors.EVENT_WRITE else 0)
