"""Repeated requests: a change that is sent twice with the same Idempotency-Key is done once.

Owns: the answers of the last changes that had a key, as long as this server runs.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, final

from embermq.http.fields import Model, json_text
from embermq.http.refusal import HttpRefusal

if TYPE_CHECKING:
    from embermq.http.operation import Answer

ANSWERS_MAX: Final = 1_000
ANSWERS_BYTES_MAX: Final = 64 * 1024 * 1024
"""How much the answers have together, or one that is larger: they name what was refused, topic by topic."""
KEPT_S: Final = 3_600.0
KEY_CHARACTERS_MAX: Final = 128

Key = tuple[str, str, str, str]
"""Who asks, by which kind of login, the path, and the key."""


@final
class _Change:
    """One change: the digest of its body, when it came, and its answer once there is one; None if it is not kept."""

    __slots__ = ("answer", "came_s", "digest", "size_bytes")

    def __init__(self, digest: bytes, came_s: float) -> None:
        self.digest: Final = digest
        self.came_s: Final = came_s
        self.answer: Final[asyncio.Future[Model | None]] = asyncio.get_running_loop().create_future()
        self.size_bytes = 0

    def is_old(self) -> bool:
        return self.answer.done() and time.monotonic() - self.came_s >= KEPT_S

    def finish(self, answer: Model | None) -> None:
        if answer is not None:
            self.size_bytes = len(json_text(answer.model_dump(exclude_none=True)))
        self.answer.set_result(answer)


@final
class RepeatedRequests:
    """The changes that had a key: those under way, and the last that were done, the oldest first."""

    __slots__ = ("_answers_max", "_bytes", "_bytes_max", "_changes")

    def __init__(self, answers_max: int = ANSWERS_MAX, bytes_max: int = ANSWERS_BYTES_MAX) -> None:
        self._changes: Final[OrderedDict[Key, _Change]] = OrderedDict()
        self._answers_max: Final = answers_max
        self._bytes_max: Final = bytes_max
        self._bytes = 0

    async def answer(self, key: Key, body: bytes, work: "Callable[[], Awaitable[Answer]]") -> "Answer":
        """The answer of the first request with this key; a change that was refused or has failed is done again."""
        if not 1 <= len(key[-1]) <= KEY_CHARACTERS_MAX:
            raise HttpRefusal(400, f"Idempotency-Key: expected 1 to {KEY_CHARACTERS_MAX} characters")
        digest = blake2b(body, digest_size=16).digest()
        while (known := self._changes.get(key)) is not None and not known.is_old():
            if known.digest != digest:
                raise HttpRefusal(422, "this Idempotency-Key was used with another body")
            found = await asyncio.shield(known.answer)
            if found is not None:
                return found
        return await self._do(key, digest, work)

    async def _do(self, key: Key, digest: bytes, work: "Callable[[], Awaitable[Answer]]") -> "Answer":
        self._forget(key)  # an old one
        change = self._changes[key] = _Change(digest, time.monotonic())
        try:
            answer = await work()
        except BaseException:
            self._forget(key)
            change.finish(None)
            raise
        if isinstance(answer, Model):
            change.finish(answer)
            self._changes.move_to_end(key)
            self._bytes += change.size_bytes
            self._make_room(change)
        else:  # a stream, which has been read
            self._forget(key)
            change.finish(None)
        return answer

    def _make_room(self, newest: _Change) -> None:
        """Forget the oldest answers beyond the bounds, but not the newest one, and not what is under way."""
        while len(self._changes) > self._answers_max or self._bytes > self._bytes_max:
            done = (key for key, each in self._changes.items() if each.answer.done() and each is not newest)
            oldest = next(done, None)
            if oldest is None:
                return
            self._forget(oldest)

    def _forget(self, key: Key) -> None:
        change = self._changes.pop(key, None)
        if change is not None:
            self._bytes -= change.size_bytes
