"""Unread answers: what is kept in memory because readers of the HTTP interface do not take it.

Owns: how many bytes all answers keep together, and which of them is ended when there are too many. One answer keeps no
more than its body, or one line of a stream; the streams of live messages bound what waits behind it.
"""

from typing import Final, final

from aiohttp import web

from embermq.http.counts import HttpCounts

UNREAD_BYTES_MAX: Final = 64 * 1024 * 1024
"""How much all answers keep together; one alone may be larger."""


@final
class UnreadAnswer:
    """What one answer keeps, inside a context."""

    __slots__ = ("_all", "_request", "kept_bytes")

    def __init__(self, everything: "UnreadAnswers", request: web.Request) -> None:
        self._all: Final = everything
        self._request: Final = request
        self.kept_bytes = 0

    def __enter__(self) -> "UnreadAnswer":
        self._all.begin(self)
        return self

    def __exit__(self, *ended: object) -> None:
        self._all.end(self)

    def keep(self, size_bytes: int) -> bool:
        """Keep more; False if others keep too much, also after those whose readers are behind were ended."""
        if not self._all.has_room(self, size_bytes):
            return False
        self._all.add(size_bytes)
        self.kept_bytes += size_bytes
        return True

    def release(self, size_bytes: int) -> None:
        """The reader has taken something."""
        released_bytes = min(size_bytes, self.kept_bytes)  # 0 if the answer was ended
        self._all.add(-released_bytes)
        self.kept_bytes -= released_bytes

    def is_behind(self) -> bool:
        """Whether the reader has not taken all that was sent."""
        transport = self._request.transport
        return transport is not None and transport.get_write_buffer_size() > 0

    def abort(self) -> None:
        """End the connection: its reader does not read."""
        self._all.counts.streams_ended += 1
        self.release(self.kept_bytes)
        if self._request.transport is not None:
            self._request.transport.abort()


@final
class UnreadAnswers:
    """All answers of a server that are being sent."""

    __slots__ = ("_answers", "_bytes_max", "counts", "kept_bytes")

    def __init__(self, counts: HttpCounts | None = None, bytes_max: int = UNREAD_BYTES_MAX) -> None:
        self.counts: Final = counts if counts is not None else HttpCounts()
        self.kept_bytes = 0
        self._answers: Final[dict[UnreadAnswer, None]] = {}
        self._bytes_max: Final = bytes_max

    def begin(self, answer: UnreadAnswer) -> None:
        self._answers[answer] = None

    def end(self, answer: UnreadAnswer) -> None:
        answer.release(answer.kept_bytes)
        self._answers.pop(answer, None)

    def add(self, size_bytes: int) -> None:
        self.kept_bytes += size_bytes

    def has_room(self, answer: UnreadAnswer, size_bytes: int) -> bool:
        """Whether an answer may keep so much more. For it, others that keep much and are not read are ended."""
        while self.kept_bytes + size_bytes > self._bytes_max:
            if self.kept_bytes == answer.kept_bytes:
                return True  # it is alone
            unread = [each for each in self._answers if each is not answer and each.kept_bytes and each.is_behind()]
            if not unread:
                return False
            max(unread, key=lambda each: each.kept_bytes).abort()
        return True


def stall_s(request: web.BaseRequest) -> float:
    """How long a reader may leave an answer unread: a person who reads page by page on this machine, or a program."""
    return 60.0 if request.get_extra_info("peername") else 3600.0
