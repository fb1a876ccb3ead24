"""What one session is owed at QoS 1 and 2 (3.1.1 sections 4.3 and 4.4; 5.0 section 4.9).

Owns: for each session the packet identifiers, the window and the redelivery.
A packet identifier follows from the message's sequence number, so that a crash cannot change it, and identifiers run
out only when a message 65,535 places back is still unacknowledged; then the next one waits.
"""

from collections import deque
from sys import getrefcount
from typing import TYPE_CHECKING, Final, final

from embermq.broker.counters import Counters
from embermq.broker.limits import QUEUE_BYTES_MAX, QUEUE_LOG_BYTES_MAX
from embermq.broker.link import Link
from embermq.broker.queues.clock import Clock
from embermq.broker.queues.inflight import Inflight
from embermq.broker.runs.deliveries import send_run
from embermq.protocol.packets import PUBREL, Delivery, Publish
from embermq.store.interface import PACKET_IDS, Queue, packet_id_of

if TYPE_CHECKING:
    from embermq.broker.queues.shared import ShareGroup

READ_AHEAD: Final = 512
READ_AHEAD_MIN: Final = 32
"""How many messages are read from a persistent queue at a time: twice as many as may be in flight, between these."""
DELIVERY_BYTES: Final = 256
"""About what a message in a queue takes besides its bytes."""
LOG_CHECK_MESSAGES: Final = 1_024
"""After this many messages it is looked up how much of the log a persistent queue keeps from being trimmed."""
WINDOW_START: Final = 500
"""How many messages are in flight at most until the client has shown that it acknowledges quickly."""
WINDOW_QUICK_US: Final = 100_000
WINDOW_LONG_US: Final = 1_000_000
"""A full window that is acknowledged within the first time is doubled; one that takes the second time is halved."""
HIGH_WATER_PART: Final = 4
"""The high water mark is this part of the largest queue, a fourth; the low one is half of it."""
LATE_MESSAGES: Final = 8_192
"""A queue that publishers wait for may have as many more messages as it may have anyway, or this many."""
DROPS_AT_ONCE: Final = 1_024
"""How many messages one `pump` drops because they have expired or are too large; a queue may have a million of them."""
THROTTLED_BYTES: Final = 64 * 1024
"""How much of a client's messages is in memory at most while all clients together hold too much (`owed`)."""
SAMPLES: Final = 8
"""Of this many messages it is looked up how many clients share each."""
SHARED_INFLIGHT_MAX: Final = 8_192
"""How many messages of share groups one client has in flight: their packet identifiers must not meet its own."""

# One empty one for all sessions, never changed: most are owed nothing, and an empty deque takes 624 bytes.
_NO_BACKLOG: Final[deque[Delivery]] = deque()
_NO_IDS: Final[set[int]] = set()
_NO_RESENDS: Final[list[int]] = []
_NO_SHARED: Final[dict[int, "tuple[ShareGroup, Delivery]"]] = {}
NO_INFLIGHT: Final = Inflight()


@final
class Outbound:
    """What one session is owed at QoS 1 and 2, from the moment a message is durable until the client acknowledged it.

    `backlog` is the queue of a session without a persistent one; with one it holds only what was read ahead.
    What is in memory is bounded in bytes as well as in messages. One message is always sent, however large.
    """

    __slots__ = (
        "queue",
        "sent_before",
        "inflight",
        "backlog",
        "window",
        "_window_max",
        "_full_at_sequence",
        "_full_at_us",
        "resend_ids",
        "shared",
        "promised",
        "_unsent",
        "_shared_number",
        "fetched",
        "durable",
        "is_congested",
        "is_slow",
        "_own_bytes",
        "_own_messages",
        "memory_bytes",
        "memory_bytes_max",
        "high_water_bytes",
        "direct_bytes_max",
        "_bytes_max",
        "_clock",
        "_live",
        "_length_max",
        "_log_bytes_max",
        "_log_bytes",
        "is_reported_long",
        "dropped",
        "_counters",
        "_acknowledged",
    )

    def __init__(
        self,
        queue: Queue | None,
        window_max: int,
        length_max: int,
        counters: Counters,
        bytes_max: int = QUEUE_BYTES_MAX,
        clock: Clock | None = None,
        log_bytes_max: int = QUEUE_LOG_BYTES_MAX,
    ) -> None:
        self.queue: Final = queue
        self.inflight = NO_INFLIGHT
        self.backlog = _NO_BACKLOG
        self.window = 0  # how many messages may be in flight now
        self._window_max = 0
        self._full_at_sequence = 0  # the newest message in flight when the window was full
        self._full_at_us = 0
        self.set_window(window_max)
        # Packet identifiers in flight that the client's new connection has not been sent yet, the next one last.
        self.resend_ids = _NO_RESENDS
        self._unsent = _NO_IDS  # those of them that the client has not acknowledged meanwhile
        self.shared = _NO_SHARED  # QoS 1 of share groups in flight, by packet identifier
        self.promised = 0  # QoS 2 messages of share groups that wait for their commit
        self._shared_number = 0
        self.fetched = 0  # the newest sequence number in flight or in the backlog, or acknowledged
        self.durable = 0  # the newest sequence number that is durable and may be sent
        self.memory_bytes = 0  # of topic names, payloads and properties in flight and in the backlog
        self._bytes_max: Final = bytes_max
        self.memory_bytes_max = bytes_max  # less while it is throttled
        self.high_water_bytes: Final = bytes_max // HIGH_WATER_PART
        self.direct_bytes_max = self.high_water_bytes  # above it no shortcut adds to what is in flight
        self.is_congested = False  # publishers wait for it (`flow`)
        self.is_slow = False  # it has not drained while they waited
        # What the client has sent itself since its queue was below the low water mark: nobody waits because of that.
        self._own_bytes = 0
        self._own_messages = 0
        self.dropped = 0  # messages for this session, at any QoS, since the session or the server began
        self._clock: Final = clock if clock is not None else Clock()
        self._live = 0  # the sequence number of a message that has not waited: it does not expire
        self._length_max: Final = length_max
        self._log_bytes_max: Final = log_bytes_max
        self._log_bytes = -1  # of the log that is kept for the queue, when that was last looked up; below 0: none
        self.is_reported_long = False
        self._counters: Final = counters
        self._acknowledged = 0
        # After a restart: messages up to here may have been sent already, and so are sent with DUP. That can be more
        # than one window: nothing waits for the records of acknowledgements, so a crash may lose those of several.
        self.sent_before = 0
        if queue is not None:
            self.durable = queue.last()
            self.fetched = queue.acknowledged()
            self._acknowledged = self.fetched

    def accept(self, message: Publish, offset: int, qos: int, retain: bool, ids: tuple[int, ...] = ()) -> bool:
        """For a session with a persistent queue: add to it, in the open commit group. False: full, counted."""
        queue = self.queue
        assert queue is not None
        number = queue.last()
        if number % LOG_CHECK_MESSAGES == 0 or self._log_bytes >= self._log_bytes_max:
            self._log_bytes = queue.log_bytes()
        is_long_in_memory = self._log_bytes < 0 and number - self._acknowledged >= self._length_max
        if is_long_in_memory or self._log_bytes >= self._log_bytes_max:
            self._counters.dropped_queue_full += 1
            self.dropped += 1
            return False
        queue.push(message, offset, qos, retain, ids)
        return True

    def offer(
        self,
        link: Link | None,
        message: Publish,
        qos: int,
        retain: bool,
        ids: tuple[int, ...] = (),
        *,
        is_live: bool = True,
    ) -> None:
        """A message is durable: send it if it is the next one and the client can take it, else let it wait.

        `is_live`: it has not expired before it became durable.
        """
        sequence = self.durable + 1
        packet_id = packet_id_of(sequence)
        is_next = self.fetched == self.durable and not self.backlog and not self.resend_ids
        if self.queue is not None:
            self.durable = sequence
        elif self._has_place(link):
            self.durable = sequence
            self.fetched = sequence
            self.memory_bytes += len(message.topic_name) + len(message.payload) + len(message.properties)
            self._own_backlog().append(Delivery(message, qos, retain, False, packet_id, ids, sequence))
        else:
            self._counters.dropped_queue_full += 1
            self.dropped += 1
            return
        if link is not None and is_next and packet_id not in self.inflight.parted():
            self._live = sequence if is_live else 0
            self.pump(link)
            self._live = 0

    def own_inflight(self) -> Inflight:
        """What is in flight, to add to it; one empty one is shared by all sessions."""
        if self.inflight is NO_INFLIGHT:
            self.inflight = Inflight()
        return self.inflight

    def _own_backlog(self) -> deque[Delivery]:
        if self.backlog is _NO_BACKLOG:
            self.backlog = deque()
        return self.backlog

    def take_backlog(self) -> deque[Delivery]:
        """The session has ended: what it was still to get is not needed any more."""
        backlog, self.backlog = self.backlog, _NO_BACKLOG
        return backlog

    def _has_place(self, link: Link | None) -> bool:
        """Publishers wait for a client that reads: what came before they did is not dropped for being too many."""
        length_max = self._length_max
        if link is not None and not self.is_slow:
            length_max += max(length_max, LATE_MESSAGES)
        return len(self.backlog) < length_max and self.memory_bytes < self.memory_bytes_max

    def throttle(self, is_throttled: bool) -> None:
        """All clients together hold too much, and this one holds most of it, or no longer."""
        self.memory_bytes_max = min(self._bytes_max, THROTTLED_BYTES) if is_throttled else self._bytes_max
        self.direct_bytes_max = min(self.high_water_bytes, self.memory_bytes_max)

    def own_bytes(self) -> int:
        """About what the messages in memory take, each divided by the number of clients that share it."""
        if not self.memory_bytes:
            return 0
        count = len(self.backlog) + len(self.inflight)
        found = self.inflight.first(SAMPLES)
        step = len(self.backlog) // SAMPLES + 1
        for position in range(0, len(self.backlog), step):
            found.append(self.backlog[position].message)
        whole = own = 1
        for message in found:
            size = len(message.payload) + len(message.topic_name)
            whole += size
            own += size // max(1, getrefcount(message) - 3)  # those of `found`, `message` and the call
        return self.memory_bytes * own // whole + DELIVERY_BYTES * count

    def is_long(self) -> bool:
        """Whether a persistent queue keeps three fourths of what it may of the log."""
        return self._log_bytes * 4 > self._log_bytes_max * 3

    def is_above_high_water(self) -> bool:
        """Whether so much waits that publishers should wait: in memory, or in the log."""
        is_much = self.memory_bytes - self._own_bytes > self.high_water_bytes or self.is_long()
        return is_much or (len(self.backlog) - self._own_messages) * HIGH_WATER_PART > self._length_max

    def is_filling(self) -> bool:
        """Whether more waits in memory than the low water mark."""
        length = 2 * HIGH_WATER_PART * len(self.backlog)
        return length > self._length_max or self.memory_bytes * 2 > self.high_water_bytes

    def is_below_low_water(self) -> bool:
        """Whether so little waits that publishers may go on."""
        if self.queue is not None and self.is_long():
            self._log_bytes = self.queue.log_bytes()
            if self.is_long():
                return False
            self.is_reported_long = False
        return not self.is_filling()

    def is_watched(self) -> bool:
        """Whether it matters when the queue is below its low water mark."""
        return self.is_congested or self.is_slow or self._own_messages > 0

    def drained(self) -> None:
        """The queue is below its low water mark, or the connection has ended."""
        self.is_slow = False
        self._own_bytes = self._own_messages = 0

    def add_own(self, message: Publish) -> None:
        """The client is to get a message that it has sent itself, although its queue is filling."""
        self._own_bytes += len(message.topic_name) + len(message.payload) + len(message.properties)
        self._own_messages += 1

    def water_bytes(self, message: Publish) -> int:
        """What a message counts towards the high water mark in bytes, with its part of that in messages."""
        part_bytes = self.high_water_bytes * HIGH_WATER_PART // self._length_max
        return part_bytes + len(message.topic_name) + len(message.payload) + len(message.properties)

    def set_window(self, window_max: int) -> None:
        """At most `window_max` messages are in flight: first `WINDOW_START`, more if they are acknowledged quickly."""
        self._window_max = window_max
        self.window = min(window_max, WINDOW_START)
        self._full_at_sequence = 0

    def _adapt_window(self) -> None:
        """A full window has been acknowledged: take twice as many if that was quick, half if it took long."""
        inflight = self.inflight
        if len(inflight) and inflight.oldest_sequence() <= self._full_at_sequence:
            return
        self._full_at_sequence = 0
        took_us = self._clock.now_us - self._full_at_us
        if took_us <= WINDOW_QUICK_US:
            self.window = min(2 * self.window, self._window_max)
        elif took_us > WINDOW_LONG_US:
            self.window = max(self.window // 2, min(self._window_max, WINDOW_START))

    def pump(self, link: Link, in_runs: bool = False) -> int:
        """Send what is owed, as far as the window and the client's reading allow; `in_runs`: many at a time.

        Returns how many messages were dropped instead. With `DROPS_AT_ONCE` the rest waits for the next call.
        """
        if self.resend_ids and not self._resend(link):
            return 0
        if self._full_at_sequence:
            self._adapt_window()
        drops = self._send(link, in_runs)
        if not self._full_at_sequence and len(self.inflight) >= self.window:
            self._full_at_sequence = self.newest_sent()
            self._full_at_us = self._clock.now_us
        return drops

    def _send(self, link: Link, in_runs: bool) -> int:
        drops = 0
        while drops < DROPS_AT_ONCE and len(self.inflight) + len(self.shared) < self.window and link.has_room():
            if not self.backlog and not self._read_ahead():
                break
            in_runs = in_runs and send_run(self, link)  # not again after one that sent nothing: it would look in vain
            if in_runs:
                continue
            delivery = self.backlog[0]
            packet_id = delivery.packet_id
            if packet_id in self.inflight.parted() or packet_id in self.shared:
                break
            self.backlog.popleft()
            if delivery.message.expires_us and self._may_not_be_sent(delivery):
                message = delivery.message
                self.memory_bytes -= len(message.topic_name) + len(message.payload) + len(message.properties)
                self._counters.dropped_expired += 1
                self.dropped += 1
                drops += 1
                continue
            if delivery.sequence <= self.sent_before:
                delivery = delivery.repeated()
            self.own_inflight().by_id[packet_id] = delivery
            if delivery.released:
                link.acknowledge(PUBREL, packet_id, 0)
            elif not link.deliver(delivery):
                self.discard(packet_id)
                drops += 1
        return drops

    def _may_not_be_sent(self, delivery: Delivery) -> bool:
        """Whether a message has expired. One that was sent once is sent again all the same (5.0, MQTT-4.3.3-7)."""
        sequence = delivery.sequence
        return sequence > self.sent_before and sequence != self._live and self._clock.has_expired(delivery.message)

    def discard(self, packet_id: int) -> None:
        """A message is delivered, or is too large for the client and counts as delivered (5.0, MQTT-3.1.2-25)."""
        message = self.inflight.parted().pop(packet_id).message
        if self._unsent:
            self._unsent.discard(packet_id)
        self.memory_bytes -= len(message.topic_name) + len(message.payload) + len(message.properties)

    def _read_ahead(self) -> bool:
        if self.queue is None or self.fetched >= self.durable or self.memory_bytes >= self.memory_bytes_max:
            return False
        deliveries = self.queue.read(self.fetched, min(self._read_ahead_max(), self.durable - self.fetched))
        for delivery in deliveries:
            message = delivery.message
            self.memory_bytes += len(message.topic_name) + len(message.payload) + len(message.properties)
        if deliveries:
            self._own_backlog().extend(deliveries)
            self.fetched = deliveries[-1].sequence
        return len(deliveries) > 0

    def _read_ahead_max(self) -> int:
        """A client with a small window would have messages in memory for long."""
        return max(READ_AHEAD_MIN, min(READ_AHEAD, 2 * self.window))

    def drop_read_ahead(self) -> None:
        """The connection has ended: what was not sent stays in the persistent queue, and is read again."""
        if self.queue is None or not self.backlog:
            return
        for delivery in self.backlog:
            message = delivery.message
            self.memory_bytes -= len(message.topic_name) + len(message.payload) + len(message.properties)
        self.fetched -= len(self.backlog)
        self.backlog = _NO_BACKLOG

    def resume(self, link: Link) -> None:
        """A client is back: what it has not acknowledged is sent again, in order, with DUP (MQTT-4.4.0-1).

        Its window may be smaller than over its last connection. It bounds PUBLISH only (5.0, MQTT-3.3.4-9, -10).
        """
        inflight = self.inflight.parted()
        self.resend_ids = list(reversed(inflight)) if inflight else _NO_RESENDS
        self._unsent = set(self.resend_ids) if self.resend_ids else _NO_IDS
        if not self._resend(link) and len(inflight) > self.window:
            publishes: list[int] = []
            for packet_id in self.resend_ids:
                if inflight[packet_id].released:
                    self._unsent.discard(packet_id)
                    link.acknowledge(PUBREL, packet_id, 0)
                else:
                    publishes.append(packet_id)
            self.resend_ids = publishes

    def _resend(self, link: Link) -> bool:
        """True: all that was in flight has been sent again. A whole window may be more than a client reads at once."""
        resend_ids, unsent, inflight = self.resend_ids, self._unsent, self.inflight.parted()
        while resend_ids:
            if not link.has_room():
                return False
            packet_id = resend_ids[-1]
            delivery = inflight.get(packet_id)
            if delivery is None:
                # Acknowledged in the meantime: the client had got it over its last connection.
                unsent.discard(packet_id)
                resend_ids.pop()
                continue
            if delivery.released:
                link.acknowledge(PUBREL, packet_id, 0)
            elif len(inflight) - len(unsent) >= self.window:
                return False
            else:
                if not delivery.dup:
                    inflight[packet_id] = delivery = delivery.repeated()
                if not link.deliver(delivery):
                    self.discard(packet_id)
            unsent.discard(packet_id)
            resend_ids.pop()
        return True

    # -- share groups ----------------------------------------------------------------------------------------------

    def can_take(self) -> bool:
        """Whether the client may get a message of a share group: its window has a place."""
        count = len(self.shared) + self.promised
        return (
            len(self.inflight) + count < self.window
            and count < SHARED_INFLIGHT_MAX
            and self.memory_bytes < self.memory_bytes_max
            and not self.resend_ids
        )

    def send_shared(
        self, link: Link, group: "ShareGroup", delivery: Delivery, retain: bool, ids: tuple[int, ...]
    ) -> bool:
        """Send a QoS 1 message of a share group. False: it is too large for the client."""
        packet_id = self._shared_packet_id()
        message = delivery.message
        if not link.deliver(Delivery(message, 1, retain, False, packet_id, ids, delivery.sequence)):
            return False
        if self.shared is _NO_SHARED:
            self.shared = {}
        self.shared[packet_id] = (group, delivery)
        self.memory_bytes += len(message.topic_name) + len(message.payload) + len(message.properties)
        return True

    def _shared_packet_id(self) -> int:
        """An identifier far from those of the session's own messages, which follow from their sequence numbers."""
        newest = max(self.durable, self.sent_before)
        while True:
            self._shared_number += 1
            packet_id = packet_id_of(newest + PACKET_IDS // 2 + self._shared_number % (2 * SHARED_INFLIGHT_MAX))
            if packet_id not in self.shared and packet_id not in self.inflight.parted():
                return packet_id

    def return_shared(self) -> None:
        """The connection has ended: another member gets what the client has not acknowledged at QoS 1."""
        for group, delivery in reversed(self.shared.values()):
            message = delivery.message
            self.memory_bytes -= len(message.topic_name) + len(message.payload) + len(message.properties)
            group.take_back(delivery)
        self.shared = _NO_SHARED

    def _shared_done(self, packet_id: int) -> bool:
        sent = self.shared.pop(packet_id, None)
        if sent is None:
            return False
        group, delivery = sent
        message = delivery.message
        self.memory_bytes -= len(message.topic_name) + len(message.payload) + len(message.properties)
        group.finish(delivery.sequence)
        return True

    def newest_sent(self) -> int:
        """The sequence number of the newest message that has been sent."""
        return self.fetched - len(self.backlog)

    def newest_sent_ever(self) -> int:
        """What a restart must treat as sent: before the last restart more may have been sent than since."""
        return max(self.sent_before, self.newest_sent())

    def owed(self) -> int:
        """How many messages the client has not acknowledged, sent or not."""
        newest = self.durable if self.queue is None else self.queue.last()
        return max(0, newest - self.newest_sent()) + len(self.inflight) + len(self.shared)

    def space(self) -> int:
        """How many more messages may be added without making the queue longer than the window."""
        newest = self.durable if self.queue is None else self.queue.last()
        return min(self.window, self._length_max) - newest + self.newest_sent() - len(self.inflight) - len(self.shared)

    def puback(self, packet_id: int) -> bool:
        """QoS 1 is done. False: no message with this identifier was waiting for it."""
        delivery = self.inflight.parted().get(packet_id)
        if delivery is None or delivery.qos != 1:
            return self._shared_done(packet_id) if self.shared else False
        self.discard(packet_id)
        return True

    def pubrec(self, packet_id: int) -> bool:
        """QoS 2: the client has the message. True: PUBREL is owed, once this is durable."""
        delivery = self.inflight.parted().get(packet_id)
        if delivery is None or delivery.qos != 2:
            return False
        if not delivery.released:
            delivery.released = True
            if self.queue is not None:
                self.queue.release(delivery.sequence)
        return True

    def pubcomp(self, packet_id: int) -> bool:
        """QoS 2 is done. False: no message with this identifier was waiting for it."""
        delivery = self.inflight.parted().get(packet_id)
        if delivery is None or not delivery.released:
            return False
        self.discard(packet_id)
        return True

    def is_waiting(self) -> bool:
        """Whether something follows from an acknowledgement: a message waits for the window, or the store must know."""
        return self.queue is not None or bool(self.backlog) or bool(self.resend_ids) or self.is_watched()

    def record_acknowledged(self) -> None:
        """Once a turn: tell the persistent queue how far everything is acknowledged."""
        if self.queue is None:
            return
        done = self.inflight.oldest_sequence() - 1 if len(self.inflight) else self.newest_sent()
        if done > self._acknowledged:
            self._acknowledged = done
            self.queue.acknowledge(done)
