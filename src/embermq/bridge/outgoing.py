"""What a bridge sends: the log from a position on, at the other broker's pace.

Owns: the position, packet identifiers, and what was sent and is not acknowledged. No message is kept: whatever the
other broker has not acknowledged is read from the log again.

The rule by which nothing is lost, and at QoS 2 nothing comes twice:
1. The messages that the rules choose from the log, at QoS 1 and 2, are counted: the n-th has the packet identifier
   (n - 1) modulo 65,535 + 1. The log never changes, so after a crash the same message gets the same identifier.
2. The position is the offset up to which every message is acknowledged (PUBACK, or PUBREC at QoS 2), and how many they
   are. It is written and synced before PUBREL leaves for any of them.
3. After a connection was lost, or this server was killed, all messages behind the position are sent again with DUP, in
   the same session of the other broker. A message at QoS 2 whose PUBREC was lost has not been released (2), so its
   identifier is still one that the other broker has received: it answers PUBREC and publishes nothing.
4. For what the position has passed, PUBREL may not have arrived: it is sent again for the last `WINDOW` identifiers
   whose handshake is not known to have ended.
5. If the identifiers of a message may not be the same as before (other rules, records that were trimmed), the count
   goes on `WINDOW` further: then what was sent and not acknowledged may come twice, but nothing is taken for something
   else.
6. If the other broker has lost the session, it knows none of the identifiers. The retained messages of before the
   position are sent (at QoS 1 at most, since the retained set is not the same after a crash), then the log goes on.
A message that needs no sending, since it has expired or is larger than the other broker takes, has its identifier too.
"""

import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from typing import Final, final

from embermq.bridge.facts import BridgeCounters
from embermq.bridge.log_cursor import LogCursor, OutMessage
from embermq.bridge.marks import Marks
from embermq.bridge.plan import Rule, first_moved
from embermq.bridge.position import Position, PositionFile
from embermq.bridge.remote import Remote
from embermq.client.reasons import reason_text
from embermq.errors import ConfigError
from embermq.protocol.message_expiry import with_remaining_expiry
from embermq.protocol.mqtt.reason_codes import FAILURE
from embermq.protocol.packets import PUBACK, PUBCOMP, PUBREC, PUBREL, Acknowledgement, Publish, packet_id_of
from embermq.protocol.reasons import ReasonCode
from embermq.store.interface import Retained

WINDOW: Final = 1_000
"""How many messages may be sent and unacknowledged. It is a part of the rule above: it never changes."""
OUTPUT_BYTES_MAX: Final = 256 * 1024
"""How much output may wait for the network before more is gathered."""
SAVE_S: Final = 1.0
"""A position that nothing waits for is written so often."""

_TRY_LATER: Final = (ReasonCode.QUOTA_EXCEEDED, ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR)
"""Refusals that may end: the message is sent again, over another connection."""


@final
class Sent:
    """A message that was sent. `next_offset`: of the record behind it. `is_release_due`: PUBREL follows."""

    __slots__ = ("is_done", "is_release_due", "next_offset", "qos", "sequence")

    def __init__(self, sequence: int, next_offset: int, qos: int, is_done: bool, is_release_due: bool) -> None:
        self.sequence: Final = sequence
        self.next_offset: Final = next_offset
        self.qos: Final = qos
        self.is_done = is_done
        self.is_release_due = is_release_due

    def finish(self, is_release_due: bool) -> None:
        self.is_done = True
        self.is_release_due = is_release_due


@final
class Outgoing:
    """The sending side of one bridge, over one connection after the other."""

    def __init__(
        self,
        rules: tuple[Rule, ...],
        cursor: LogCursor,
        file: PositionFile,
        position: Position,
        counters: BridgeCounters,
        marks: Marks,
        retained: Callable[[Rule], Iterator[Retained | None]],
        own_client_id: str,
    ) -> None:
        """`retained` gives the retained messages of a rule, as they are now; some are None so that others can go on."""
        self.cursor: Final = cursor
        self.position = position
        self.is_at_end = False
        """Whether nothing is to be sent that is not sent, as of the last `fill`."""
        self._rules: Final = rules
        self._file: Final = file
        self._counters: Final = counters
        self._marks: Final = marks
        self._retained: Final = retained
        self._own: Final = own_client_id.encode()
        self._is_saved = False
        self._saved_s = 0.0
        self._kept_offset = -1  # from where on the store keeps the log
        self._offset = position.offset
        self._sequence = position.sequence  # of the newest message
        self._maybe_sent = position.sequence + WINDOW  # by this process or the one before
        self._window = 0
        self._sent: Final[deque[Sent]] = deque()  # in order
        self._by_id: Final[dict[int, Sent]] = {}
        self._unreleased: Final[OrderedDict[int, None]] = OrderedDict()  # sequences: PUBREL was sent, PUBCOMP not come
        first = max(1, position.completed + 1, position.sequence - WINDOW + 1)
        for sequence in range(first, position.sequence + 1):
            self._unreleased[sequence] = None
        self._pass: Iterator[OutMessage | None] | None = None
        cursor.seek(position.offset)

    @property
    def in_flight(self) -> int:
        return len(self._by_id) + len(self._unreleased)

    @property
    def is_retained_due(self) -> bool:
        """Whether the retained messages are not all acknowledged yet."""
        return bool(self._rules) and self.position.is_retained_due

    def change_rules(self) -> None:
        """The rules are others than when the position was written: the retained messages are due again."""
        self._move(self.position.offset, self.position.sequence, True)
        self.skip_identifiers()

    def skip_identifiers(self, remote: Remote | None = None) -> None:
        """The identifiers of what is behind the position may have been others before (5)."""
        skipped = range(self.position.sequence + 1, self.position.sequence + WINDOW + 1)
        self._unreleased.update(dict.fromkeys(skipped))
        if remote is not None:  # otherwise when it is connected
            _release(skipped, remote)
        self._move(self.position.offset, self.position.sequence + WINDOW, self.position.is_retained_due)
        self._sequence = self.position.sequence
        self._maybe_sent = self._sequence
        self._save(True)

    def connected(self, remote: Remote, is_session_present: bool) -> None:
        """A connection is open: all that is behind the position is sent again."""
        self._sent.clear()
        self._by_id.clear()
        self._window = min(WINDOW, remote.window)
        self._sequence = self.position.sequence
        self._offset = self.position.offset
        self._pass = None
        self.cursor.seek(self._offset)
        if is_session_present:
            _release(self._unreleased, remote)
        else:
            self._unreleased.clear()
            self._maybe_sent = self._sequence
            self._move(self._offset, self._sequence, True)
            self._save(True)

    # -- out -----------------------------------------------------------------------------------------------------------

    def fill(self, remote: Remote, unwritten_bytes: int, count_max: int) -> int:
        """Gather messages as far as there is room; returns how many."""
        count = 0
        self.is_at_end = False
        now_us = time.time_ns() // 1000
        while count < count_max and self._has_room(remote, unwritten_bytes):
            found = self._next(remote)
            if found is None:
                break
            count += self._send(found, remote, now_us)
        self.advance(remote)
        return count

    def is_full(self, remote: Remote, unwritten_bytes: int) -> bool:
        """Whether nothing more is sent until something is acknowledged, or the network takes what waits."""
        return not self._has_room(remote, unwritten_bytes)

    def _has_room(self, remote: Remote, unwritten_bytes: int) -> bool:
        is_free = len(self._sent) + len(self._unreleased) < self._window
        return is_free and remote.pending_bytes + unwritten_bytes < OUTPUT_BYTES_MAX

    def _next(self, remote: Remote) -> OutMessage | None:
        if self.position.is_retained_due:
            if self._pass is None:
                self._pass = self._retained_messages()
            found = next(self._pass, _PASS_ENDED)
            if found is not _PASS_ENDED:
                return found
            if self._sent:
                self.is_at_end = True  # until all are acknowledged
                return None
            self._move(self._offset, self._sequence, False)
            self._save(True)
        lost = self.cursor.lost
        found = self.cursor.next()
        self.is_at_end = self.cursor.has_ended
        if self.cursor.lost > lost and self._sent and self._sequence < self._maybe_sent:
            raise ConfigError("records were trimmed while they were sent again")  # (5) once there is nothing in flight
        if self.cursor.lost > lost and not self._sent:
            self._move(self.cursor.offset, self._sequence, False)
            if self._sequence < self._maybe_sent:
                self.skip_identifiers(remote)
        return found

    def _retained_messages(self) -> Iterator[OutMessage | None]:
        """The retained messages of before the position: of a later one the log has the message."""
        for rule in self._rules:
            for retained in self._retained(rule):
                if retained is None:
                    yield None
                    continue
                moved = first_moved(self._rules, retained.topic_name, True)
                is_new = retained.offset >= self._offset or retained.sender == self._own
                has_passed = self._marks.is_own(retained.properties) or self._marks.are_too_many(retained.properties)
                if moved is None or moved[1] is not rule or is_new or has_passed:
                    continue
                message = Publish(
                    moved[0],
                    retained.payload,
                    min(retained.qos, rule.qos, 1),
                    True,
                    False,
                    0,
                    retained.properties,
                    retained.expires_us,
                )
                yield OutMessage(message, self._offset)

    def _send(self, found: OutMessage, remote: Remote, now_us: int) -> int:
        message = found.message
        qos = message.qos
        sequence = packet_id = 0
        if qos:
            self._sequence += 1
            sequence = self._sequence
            packet_id = packet_id_of(sequence)
        was_sent = sequence > 0 and sequence <= self._maybe_sent
        frame = self._frame(message, packet_id, was_sent, remote, now_us)
        if frame:
            remote.gather(frame)
            self._counters.sent += 1
        if qos or self._sent:
            is_done = not qos or not frame
            sent = Sent(sequence, found.next_offset, qos, is_done, is_done and qos == 2 and was_sent)
            self._sent.append(sent)
            if not is_done:
                self._by_id[packet_id] = sent
        return 1 if frame else 0

    def _frame(self, message: Publish, packet_id: int, dup: bool, remote: Remote, now_us: int) -> bytes:
        """The message as bytes; empty if it is not to be sent."""
        if message.expires_us and message.expires_us <= now_us:
            self._counters.expired += 1
            return b""
        properties = b""
        if remote.dialect.has_properties:
            properties = message.properties
            if message.expires_us:
                properties = with_remaining_expiry(properties, message.expires_us, now_us)
            properties += self._marks.own
        frame = remote.encoded(
            Publish(message.topic_name, message.payload, message.qos, message.retain, dup, packet_id, properties)
        )
        if len(frame) > remote.packet_bytes_max:
            self._counters.too_large += 1
            return b""
        return frame

    # -- acknowledgements ----------------------------------------------------------------------------------------------

    def acknowledge(self, packet: Acknowledgement, remote: Remote) -> None:
        """PUBACK, PUBREC or PUBCOMP. `advance` follows, once for all that came together.

        A `ConfigError`: the other broker cannot take the message now, so it is to be sent again later.
        """
        for packet_id in range(packet.packet_id, packet.packet_id + packet.count):
            if packet.packet_type == PUBCOMP:
                self._completed(packet_id)
                continue
            sent = self._by_id.get(packet_id)
            is_of_its_qos = sent is not None and sent.qos == (1 if packet.packet_type == PUBACK else 2)
            if sent is None or not is_of_its_qos:
                if packet.packet_type == PUBREC and packet.reason < FAILURE:
                    remote.send(Acknowledgement(PUBREL, packet_id, 1, self._unknown(packet_id)))
                continue
            if packet.reason in _TRY_LATER:
                raise ConfigError(f"it cannot take a message now: {reason_text(packet.reason)}")
            if packet.reason >= FAILURE:
                self._counters.refused += 1
            else:
                self._counters.acknowledged += 1
            del self._by_id[packet_id]
            sent.finish(sent.qos == 2 and packet.reason < FAILURE)

    def _unknown(self, packet_id: int) -> int:
        is_known = any(packet_id_of(sequence) == packet_id for sequence in self._unreleased)
        return ReasonCode.SUCCESS if is_known else ReasonCode.PACKET_IDENTIFIER_NOT_FOUND

    def _completed(self, packet_id: int) -> None:
        unreleased = self._unreleased
        # Usually the oldest: PUBCOMP comes in the order of PUBREL.
        for sequence in unreleased:
            if packet_id_of(sequence) == packet_id:
                del unreleased[sequence]
                self._is_saved = False
                return

    def advance(self, remote: Remote) -> None:
        """The position moves behind all that is done, and what it has passed is released."""
        offset, sequence = self._offset, self.position.sequence
        released: list[int] = []
        while self._sent and self._sent[0].is_done:
            sent = self._sent.popleft()
            offset = sent.next_offset
            if sent.sequence:
                sequence = sent.sequence
            if sent.is_release_due:
                released.append(sent.sequence)
        if not self._sent and not self.position.is_retained_due:
            offset = self.cursor.offset
        self._offset = offset
        for each in released:
            self._unreleased[each] = None
        if offset != self.position.offset or sequence != self.position.sequence:
            self._move(offset, sequence, self.position.is_retained_due)
        self._maybe_sent = max(self._maybe_sent, self._sequence)
        if released:
            self._save(True)  # before PUBREL leaves (2)
            _release(released, remote)

    def _move(self, offset: int, sequence: int, is_retained_due: bool) -> None:
        self.position = Position(offset, sequence, 0, is_retained_due)
        self._is_saved = False

    def _save(self, is_durable: bool) -> None:
        position = self.position
        completed = next(iter(self._unreleased), position.sequence + 1) - 1
        self.position = Position(position.offset, position.sequence, completed, position.is_retained_due)
        self._file.save(self.position, is_durable)
        self._is_saved = True

    def save_if_due(self, now_s: float, at_once: bool = False) -> None:
        """Write a position that nothing waits for, and let the store trim what is behind it."""
        if at_once or now_s - self._saved_s >= SAVE_S:
            self._saved_s = now_s
            if not self._is_saved:
                self._save(False)
            if self._rules and self._kept_offset != self.position.offset:
                self._kept_offset = self.position.offset
                self._file.keep_log(self._kept_offset)


def _release(sequences: Iterable[int], remote: Remote) -> None:
    """PUBREL, those that follow each other at once."""
    first = count = 0
    for sequence in sequences:
        packet_id = packet_id_of(sequence)
        if count and packet_id == first + count:
            count += 1
            continue
        if count:
            remote.send(Acknowledgement(PUBREL, first, count))
        first, count = packet_id, 1
    if count:
        remote.send(Acknowledgement(PUBREL, first, count))


_PASS_ENDED: Final = OutMessage(Publish("", b""), 0)
