"""Duplicates: telling a request that came again from a new one.

Owns: the last requests of one client and what answered them. A network that loses datagrams brings a packet twice or
late, or makes its sender repeat it. A repeated SUBSCRIBE is then answered without being carried out again, and a QoS 2
message whose exchange is over is not published again, although its packet identifier is free.
"""

from typing import Final, final

PUBLISHES_MAX: Final = 16
PACKET_IDS_MAX: Final = 64


@final
class Duplicates:
    """The recent requests of one client; `window_ms` is how long an equal request counts as a duplicate."""

    __slots__ = ("_window_ms", "_request", "_answer", "_request_ms", "_open_id", "_recent_ids", "_publishes")

    def __init__(self, window_ms: int) -> None:
        self._window_ms: Final = window_ms
        self._request = b""
        self._answer: bytes | None = None
        self._request_ms = 0
        self._open_id = 0  # the packet identifier of the one request that is unanswered; 0 for none
        self._recent_ids: dict[int, None] = {}
        self._publishes: dict[int, tuple[int, int]] = {}  # QoS 2, by packet identifier: hash of the content, end

    # -- SUBSCRIBE, UNSUBSCRIBE ------------------------------------------------------------------------------------

    def is_last_request(self, request: bytes, now_ms: int) -> bool:
        """Whether the last request had the same bytes, within the window."""
        return request == self._request and now_ms - self._request_ms < self._window_ms

    def remember_request(self, request: bytes, now_ms: int) -> None:
        """A new request; it replaces the one before it."""
        self._request = request
        self._request_ms = now_ms
        self._answer = None

    def remember_answer(self, answer: bytes) -> None:
        """The last request was answered."""
        if self._request:
            self._answer = answer

    def last_answer(self) -> bytes | None:
        """What answered the last request; None while that is pending in the core."""
        return self._answer

    # -- one request at a time -------------------------------------------------------------------------------------

    def begin(self, packet_id: int) -> bool:
        """A request begins. False: another one is unanswered, which breaks the rule of MQTT-SN-4.9-1.

        A packet identifier that was used lately is most likely a late copy: it breaks no rule and begins nothing.
        """
        if packet_id in self._recent_ids:
            return True
        if self._open_id:
            return False
        self._open_id = packet_id
        self._recent_ids[packet_id] = None
        if len(self._recent_ids) > PACKET_IDS_MAX:
            del self._recent_ids[next(iter(self._recent_ids))]
        return True

    def end(self, packet_id: int) -> None:
        """A request has its final answer."""
        if self._open_id == packet_id:
            self._open_id = 0

    # -- QoS 2 -------------------------------------------------------------------------------------------------------

    def begin_publish(self, packet_id: int, content: bytes) -> None:
        """A QoS 2 message was handed to the core."""
        self._publishes.pop(packet_id, None)
        self._publishes[packet_id] = (hash(content), 0)
        if len(self._publishes) > PUBLISHES_MAX:
            del self._publishes[next(iter(self._publishes))]

    def end_publish(self, packet_id: int, now_ms: int) -> None:
        """The PUBREL of a QoS 2 message has come: its packet identifier is free."""
        entry = self._publishes.get(packet_id)
        if entry is not None:
            self._publishes[packet_id] = (entry[0], now_ms)

    def is_late_publish(self, packet_id: int, content: bytes, now_ms: int) -> bool:
        """Whether a QoS 2 PUBLISH is a copy of one whose exchange ended within the window."""
        entry = self._publishes.get(packet_id)
        if entry is None or entry[1] == 0:
            return False
        return entry[0] == hash(content) and now_ms - entry[1] < self._window_ms
