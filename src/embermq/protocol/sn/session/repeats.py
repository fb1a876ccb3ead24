"""Repeats: telling a request that came again from a new one.

Owns: the last requests of one client and what answered them. A lossy network brings a packet twice, late, or makes
its sender send it again; a SUBSCRIBE must then be answered without its effects happening again, and a QoS 2 message
that was already handed on must not be handed on again although its packet id is free.
"""

from typing import Final, final

REMEMBERED: Final = 16
REMEMBERED_IDS: Final = 64


@final
class Repeats:
    """What one client asked for lately."""

    __slots__ = ("_window_ms", "_request", "_answer", "_request_ms", "_exchange_id", "_recent_ids", "_finished")

    def __init__(self, window_ms: int) -> None:
        self._window_ms: Final = window_ms
        self._request = b""
        self._answer: bytes | None = None
        self._request_ms = 0
        self._exchange_id = 0  # the packet id of the one request that is unanswered; 0 for none
        self._recent_ids: dict[int, None] = {}
        self._finished: dict[int, tuple[int, int]] = {}  # QoS 2: packet id to its content's hash, and when it ended

    # -- SUBSCRIBE, UNSUBSCRIBE ------------------------------------------------------------------------------------

    def again(self, request: bytes, now_ms: int) -> bool:
        """Whether this very request was the client's last one, a moment ago."""
        return request == self._request and now_ms - self._request_ms < self._window_ms

    def asked(self, request: bytes, now_ms: int) -> None:
        """A new request; the one before it is over."""
        self._request = request
        self._request_ms = now_ms
        self._answer = None

    def answered(self, answer: bytes) -> None:
        """The last request got its answer."""
        if self._request:
            self._answer = answer

    def answer(self) -> bytes | None:
        """What answered the last request; None while that waits for the store."""
        return self._answer

    # -- one request at a time -------------------------------------------------------------------------------------

    def begins(self, packet_id: int) -> bool:
        """A request begins. False: another is unanswered, so the client breaks the rule of one (4.9-1).

        A packet id that was used lately is most likely a late copy: it neither breaks the rule nor begins anything.
        """
        if packet_id in self._recent_ids:
            return True
        if self._exchange_id:
            return False
        self._exchange_id = packet_id
        self._recent_ids[packet_id] = None
        if len(self._recent_ids) > REMEMBERED_IDS:
            del self._recent_ids[next(iter(self._recent_ids))]
        return True

    def ends(self, packet_id: int) -> None:
        """A request was answered for good."""
        if self._exchange_id == packet_id:
            self._exchange_id = 0

    # -- QoS 2 -------------------------------------------------------------------------------------------------------

    def began(self, packet_id: int, content: bytes) -> None:
        """A QoS 2 message was handed on."""
        self._finished.pop(packet_id, None)
        self._finished[packet_id] = (hash(content), 0)
        if len(self._finished) > REMEMBERED:
            del self._finished[next(iter(self._finished))]

    def finished(self, packet_id: int, now_ms: int) -> None:
        """Its PUBREL has come: the packet id is free."""
        entry = self._finished.get(packet_id)
        if entry is not None:
            self._finished[packet_id] = (entry[0], now_ms)

    def late(self, packet_id: int, content: bytes, now_ms: int) -> bool:
        """Whether a QoS 2 PUBLISH is a copy of one that ended a moment ago."""
        entry = self._finished.get(packet_id)
        if entry is None or entry[1] == 0:
            return False
        return entry[0] == hash(content) and now_ms - entry[1] < self._window_ms
