"""Repeated requests: a change that is sent twice with the same Idempotency-Key is done once.

Owns: the answers of the last changes that had a key, as long as this server runs.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, final

from embermq.http.fields import Model
from embermq.http.refusal import HttpRefusal

if TYPE_CHECKING:
    from embermq.http.operation import Answer

ANSWERS_MAX: Final = 1_000
KEPT_S: Final = 3_600.0
KEY_CHARACTERS_MAX: Final = 128

Key = tuple[str, str, str]
"""Who asks, the path, and the key."""


@final
class _Done:
    """One change: the digest of its body, when it came, and its answer once there is one."""

    __slots__ = ("answer", "came_s", "digest")

    def __init__(self, digest: bytes, came_s: float) -> None:
        self.digest: Final = digest
        self.came_s: Final = came_s
        self.answer: Final[asyncio.Future[Model]] = asyncio.get_running_loop().create_future()


@final
class RepeatedRequests:
    """The changes that had a key, the oldest first."""

    __slots__ = ("_answers_max", "_done")

    def __init__(self, answers_max: int = ANSWERS_MAX) -> None:
        self._done: Final[OrderedDict[Key, _Done]] = OrderedDict()
        self._answers_max: Final = answers_max

    async def answer(self, key: Key, body: bytes, work: "Callable[[], Awaitable[Answer]]") -> "Answer":
        """The answer of the first request with this key; a change that was refused or has failed is done again."""
        if not 1 <= len(key[2]) <= KEY_CHARACTERS_MAX:
            raise HttpRefusal(400, f"Idempotency-Key: expected 1 to {KEY_CHARACTERS_MAX} characters")
        digest = blake2b(body, digest_size=16).digest()
        known = self._done.get(key)
        if known is not None and time.monotonic() - known.came_s < KEPT_S:
            if known.digest != digest:
                raise HttpRefusal(422, "this Idempotency-Key was used with another body")
            return await asyncio.shield(known.answer)
        done = self._done[key] = _Done(digest, time.monotonic())
        self._done.move_to_end(key)
        if len(self._done) > self._answers_max:
            self._done.popitem(last=False)
        try:
            answer = await work()
        except BaseException:
            self._forget(key, done)
            raise
        if isinstance(answer, Model):
            done.answer.set_result(answer)
        else:  # a stream, which has been read
            self._forget(key, done)
        return answer

    def _forget(self, key: Key, done: _Done) -> None:
        if self._done.get(key) is done:
            del self._done[key]
        done.answer.cancel()
