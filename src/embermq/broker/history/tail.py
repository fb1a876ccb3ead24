"""The live part of a replay: messages from an offset on, as they are published.

Owns: the messages that a replay is to get live, in the order of their offsets, until each may be sent.

A tail is a place in the trie, so that only messages which match come here, and a server without replays has none. It
takes every message from the fence on, the offset of the next record when it was added; the log gives all before it.
- Until the log part has reached the fence, messages wait here. What the log part has passed meanwhile is dropped here.
- From then on a message is sent when it may be: at QoS 0 at once, else when it is durable. An earlier one that is not
  durable yet is waited for: a replay is in the order of offsets throughout.
- If the client cannot take a message, or too many wait, the tail is given up and the log part goes on from there. So a
  slow reader neither loses a message of the log nor fills the memory.
Messages that are not recorded (`store.recording`, `$SYS`) have no offset: they are sent as they come, or dropped.
"""

from collections.abc import Callable
from typing import Final, final

from embermq.broker.access import Access
from embermq.broker.history.sender import HistorySender
from embermq.broker.history.stream import LIVE, HistoryStream
from embermq.broker.route_group import RouteGroup
from embermq.protocol.packets import Publish
from embermq.store.interface import Store

WAITING_MESSAGES_MAX: Final = 10_000
WAITING_BYTES_MAX: Final = 4 * 1024 * 1024
"""What may wait in one tail; beyond it the log is read instead."""

_NOT_WANTED: Final = -1


@final
class _Waiting:
    __slots__ = ("message", "offset", "timestamp_us", "may_be_sent")

    def __init__(self, message: Publish, offset: int, timestamp_us: int) -> None:
        self.message: Final = message
        self.offset: Final = offset  # 0: it is not recorded
        self.timestamp_us: Final = timestamp_us
        self.may_be_sent = False


@final
class LiveTail(RouteGroup):
    """The live messages of one replay."""

    __slots__ = (
        "fence_offset",
        "has_ended",
        "_leave",
        "_sender",
        "_store",
        "_stream",
        "_waiting",
        "_number",
        "_bytes",
        "_max",
    )

    def __init__(
        self,
        leave: Callable[[HistoryStream], None],
        sender: HistorySender,
        store: Store,
        stream: HistoryStream,
        messages_max: int = WAITING_MESSAGES_MAX,
    ) -> None:
        """`leave` is called when the log is to be read instead; it ends the tail."""
        super().__init__(stream.asked.topic_filter)
        self.fence_offset: Final = store.next_offset()
        self.has_ended = False
        self._leave: Final = leave
        self._sender: Final = sender
        self._store: Final = store
        self._stream: Final = stream
        self._waiting: Final[dict[int, _Waiting]] = {}  # in the order in which the server took them
        self._number = 0
        self._bytes = 0
        self._max: Final = messages_max

    def may_get(self, topic_name: str, access: Access) -> bool:
        return access.reaches(self._stream.subscription.session.identity, topic_name)

    def enqueue(self, message: Publish, offset: int, client_id: str) -> int:
        stream = self._stream
        subscription = stream.subscription
        if self.has_ended or (subscription.no_local and subscription.session.client_id == client_id):
            return _NOT_WANTED
        if self._store.next_offset() == offset:  # nothing was recorded
            if stream.state != LIVE:
                return _NOT_WANTED
            offset = 0
        self._number += 1
        self._waiting[self._number] = _Waiting(message, offset, self._sender.now_us())
        self._bytes += message.size_bytes()
        if len(self._waiting) > self._max or self._bytes > WAITING_BYTES_MAX:
            self._leave(stream)
            return _NOT_WANTED
        return self._number

    def offer(self, message: Publish, sequence: int) -> None:
        if self.has_ended or sequence == _NOT_WANTED:
            return
        if sequence == 0:
            if self._stream.state == LIVE and not self._waiting and self._sender.has_place(self._stream, 0):
                self._sender.send(self._stream, message, 0, 0)
            return
        waiting = self._waiting.get(sequence)
        if waiting is not None:
            waiting.may_be_sent = True
            if self._stream.state == LIVE:
                self.advance()

    def advance(self) -> None:
        """Send what may be sent, in order."""
        stream = self._stream
        sender = self._sender
        while self._waiting:
            sequence = next(iter(self._waiting))
            first = self._waiting[sequence]
            if 0 < first.offset < stream.offset:  # the log part has sent it
                self._remove(sequence, first)
                continue
            if not first.may_be_sent:
                return
            if not sender.has_place(stream, first.message.qos):
                self._leave(stream)
                return
            self._remove(sequence, first)
            sender.send(stream, first.message, first.offset, first.timestamp_us)
            if first.offset:
                stream.offset = first.offset + 1

    def drop_before(self, offset: int) -> None:
        """The log part has passed an offset."""
        while self._waiting:
            sequence = next(iter(self._waiting))
            first = self._waiting[sequence]
            if first.offset >= offset:
                return
            self._remove(sequence, first)

    def first_offset(self) -> int:
        """The offset of the first recorded message that waits; 0 if there is none."""
        for waiting in self._waiting.values():
            if waiting.offset:
                return waiting.offset
        return 0

    def end(self) -> int:
        """It is given up; returns how many messages are lost that the log does not have."""
        self.has_ended = True
        lost = 0
        for waiting in self._waiting.values():
            if waiting.offset == 0:
                lost += 1
        self._waiting.clear()
        self._bytes = 0
        return lost

    def _remove(self, sequence: int, waiting: _Waiting) -> None:
        del self._waiting[sequence]
        self._bytes -= waiting.message.size_bytes()
