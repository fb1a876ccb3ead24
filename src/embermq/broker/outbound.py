"""What one session is owed at QoS 1 and 2 (3.1.1 sections 4.3 and 4.4; 5.0 section 4.9).

Owns: for each session the sequence numbers, the packet identifiers, the window and the redelivery.

Sequence numbers. Every message that a session is owed has one, counted up from 1 on, in the order in which messages
became durable. They divide what the session was ever owed:

    1 ... acknowledged | in flight ... | in the backlog ... fetched | in the stored queue only ... durable

`fetched` is the newest one that was taken out of the queue, `durable` the newest one that may be sent. A session
without a stored queue has all of it in memory: then `fetched` is `durable`, and the backlog is its queue. With a stored
queue the backlog holds only what was read ahead, and is dropped with the connection: it is read again.

Packet identifiers. The identifier of a message follows from its sequence number (1 to 65,535, then 1 again), so a crash
cannot change it, and nothing has to remember which ones are free. They run out only when a message 65,535 places back
is still unacknowledged; then the next one waits. Messages of share groups at QoS 1 are not part of the sequence, since
another member may get them; they have identifiers half the range away.

The window (`window`) says how many messages may be in flight. A place is free when PUBACK or PUBCOMP has come. `pump`
then sends more, once a turn for each session with a change.

The order. A message is sent only when nothing is before it: nothing to send again, nothing in the backlog, nothing in
the queue. Then it goes to the link directly (`offer`); else it waits, and `pump` sends it in its turn.

Redelivery. What was sent and not acknowledged stays in flight when the connection ends. To the next connection it is
sent again first, in its order: PUBLISH with DUP, or PUBREL if PUBREC had come (MQTT-4.4.0-1). After a restart of the
server what is in flight is not known; but it is known how far had been sent at most (`sent_before`), and up to there
messages have DUP.

Memory is bounded in bytes and in messages. Above a high water mark publishers wait for the client (`flow`).
"""

from collections import deque
from sys import getrefcount
from typing import Final, final

from embermq.broker.clock import Clock
from embermq.broker.counters import Counters
from embermq.broker.inflight import Inflight
from embermq.broker.limits import Limits
from embermq.broker.link import Link
from embermq.broker.route_group import RouteGroup
from embermq.broker.window import adapted_window, first_window
from embermq.protocol.packets import PACKET_IDS, PUBREL, Acknowledgement, Columns, Delivery, Publish, packet_id_of
from embermq.store.interface import Queue

READ_AHEAD: Final = 512
READ_AHEAD_MIN: Final = 32
"""How many messages are read from a persistent queue at a time: twice as many as may be in flight, between these."""
DELIVERY_BYTES: Final = 256
"""About what a message in a queue takes besides its bytes."""
LOG_CHECK_MESSAGES: Final = 1_024
"""After this many messages it is looked up how much of the log a persistent queue keeps from being trimmed."""
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
_NO_SHARED: Final[dict[int, tuple[RouteGroup, Delivery]]] = {}
_NO_INFLIGHT: Final = Inflight()
_NO_MESSAGES: Final[list[Publish]] = []


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
        "_waiting",
        "window",
        "_window_max",
        "_full_at_sequence",
        "_full_at_us",
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
        "_bytes_max",
        "_clock",
        "_length_max",
        "_log_bytes_max",
        "_log_bytes",
        "_is_reported_long",
        "dropped",
        "_counters",
        "_acknowledged",
    )

    def __init__(
        self,
        queue: Queue | None,
        window_max: int,
        limits: Limits,
        counters: Counters,
        clock: Clock,
    ) -> None:
        self.queue: Final = queue
        self.inflight = _NO_INFLIGHT
        self.backlog = _NO_BACKLOG
        self._waiting = 0  # messages in the backlog
        self.window = 0  # how many messages may be in flight now
        self._window_max = 0
        self._full_at_sequence = 0  # the newest message in flight when the window was full
        self._full_at_us = 0
        self.set_window(window_max)
        self._unsent = 0  # messages in flight that the client's new connection has not been sent yet
        self.shared = _NO_SHARED  # QoS 1 of share groups in flight, by packet identifier
        self.promised = 0  # QoS 2 messages of share groups that wait for their commit
        self._shared_number = 0
        self.fetched = 0  # the newest sequence number in flight or in the backlog, or acknowledged
        self.durable = 0  # the newest sequence number that is durable and may be sent
        self.memory_bytes = 0  # of topic names, payloads and properties in flight and in the backlog
        self._bytes_max: Final = limits.queue_bytes_max
        self.memory_bytes_max = limits.queue_bytes_max  # less while it is throttled
        self.high_water_bytes: Final = limits.queue_bytes_max // HIGH_WATER_PART
        self.is_congested = False  # publishers wait for it (`flow`)
        self.is_slow = False  # it has not drained while they waited
        # What the client has sent itself since its queue was below the low water mark: no publisher waits for that.
        self._own_bytes = 0
        self._own_messages = 0
        self.dropped = 0  # messages for this session, at any QoS, since the session or the server began
        self._clock: Final = clock
        self._length_max: Final = limits.queue_messages_max
        self._log_bytes_max: Final = limits.queue_log_bytes_max
        self._log_bytes = -1  # of the log that is kept for the queue, when that was last looked up; below 0: none
        self._is_reported_long = False
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
        if self._is_stored_full(queue):
            self._counters.dropped_queue_full += 1
            self.dropped += 1
            return False
        queue.push(message, offset, qos, retain, ids)
        return True

    def _is_stored_full(self, queue: Queue) -> bool:
        number = queue.last()
        if number % LOG_CHECK_MESSAGES == 0 or self._log_bytes >= self._log_bytes_max:
            self._log_bytes = queue.log_bytes()
        is_long_in_memory = self._log_bytes < 0 and number - self._acknowledged >= self._length_max
        return is_long_in_memory or self._log_bytes >= self._log_bytes_max

    def offer(
        self,
        link: Link | None,
        messages: list[Publish],
        qos: int,
        retain: bool,
        ids: tuple[int, ...] = (),
        *,
        is_live: bool = True,
    ) -> None:
        """Messages are durable: send those that are next and that the client can take, let the others wait.

        `is_live`: they have not expired before they became durable. One that expires is alone.
        """
        if link is not None and is_live:
            while messages:
                taken = self._send_new(link, messages, None, qos, retain, ids)
                if not taken:
                    break
                messages = messages[taken:] if taken < len(messages) else _NO_MESSAGES
        if not messages:
            return
        if self.queue is not None:
            self.durable += len(messages)  # they are read from the queue in their turn
        else:
            self._wait(link, messages, qos, retain, ids)
        if link is not None and not is_live:
            self.pump(link)

    def send_columns(self, link: Link, columns: Columns, qos: int) -> int:
        """Send retained messages to a session without a stored queue; how many of the first ones were sent.

        No more than `space`, so that none has to wait here.
        """
        return self._send_new(link, _NO_MESSAGES, columns, qos, True, ())

    def _send_new(
        self,
        link: Link,
        messages: list[Publish],
        columns: Columns | None,
        qos: int,
        retain: bool,
        ids: tuple[int, ...],
    ) -> int:
        """Send new messages past the queue, if nothing waits before them; how many of the first ones."""
        if self.backlog or self.fetched != self.durable or self._unsent or not link.has_room():
            return 0
        sequence = self.durable + 1
        places = self._places(link, sequence)
        if places <= 0 or self.memory_bytes >= self.memory_bytes_max:
            return 0
        run = Delivery(messages, qos, retain, False, packet_id_of(sequence), ids, sequence, False, columns)
        if len(run) > places:
            run = run.part(0, places)
        size_bytes = run.size_bytes()
        if self.memory_bytes + size_bytes > self.memory_bytes_max and len(run) > 1:
            run = run.part(0, 1)  # the bound may be exceeded by one message
            size_bytes = run.size_bytes()
        if self._is_too_large(link, run):
            self.durable = self.fetched = sequence
            return 1
        taken = link.deliver(run)
        if not taken:
            return 0
        if taken < len(run):
            run = run.part(0, taken)
            size_bytes = run.size_bytes()
        self.durable += taken
        self.fetched = self.durable
        self.memory_bytes += size_bytes
        self._sent(run)
        return taken

    def _places(self, link: Link, sequence: int) -> int:
        """How many messages can be sent as one run, from a sequence number on.

        The window has places for them, and their packet identifiers count up and are free. To a client with a maximum
        packet size messages go one by one.
        """
        inflight = self.inflight
        places = self.window - len(inflight) - len(self.shared)
        if places <= 0:
            return 0
        if len(inflight):
            places = min(places, inflight.oldest_sequence() + PACKET_IDS - sequence)
        if self.shared:
            return 0 if packet_id_of(sequence) in self.shared else min(places, 1)
        return min(places, 1 if link.maximum_packet_size else PACKET_IDS + 1 - packet_id_of(sequence))

    def _is_too_large(self, link: Link, run: Delivery) -> bool:
        """Whether a lone message is larger than the client takes: it counts as delivered (5.0, MQTT-3.1.2-25)."""
        if not link.maximum_packet_size or link.fits(run):
            return False
        self._counters.dropped_too_large += 1
        return True

    def _sent(self, run: Delivery) -> None:
        """A run is in flight from now on."""
        if self.inflight is _NO_INFLIGHT:
            self.inflight = Inflight()
        self.inflight.add(run)
        if not self._full_at_sequence and len(self.inflight) >= self.window:
            self._full_at_sequence = run.sequence + len(run) - 1
            self._full_at_us = self._clock.now_us()

    def _wait(self, link: Link | None, messages: list[Publish], qos: int, retain: bool, ids: tuple[int, ...]) -> None:
        """Add messages to the backlog, as far as it has places."""
        for message in messages:
            if not self._has_place(link):
                self._counters.dropped_queue_full += 1
                self.dropped += 1
                continue
            sequence = self.durable = self.fetched = self.durable + 1
            self._queue_in_memory(Delivery([message], qos, retain, False, packet_id_of(sequence), ids, sequence))

    def _queue_in_memory(self, run: Delivery) -> None:
        if self.backlog is _NO_BACKLOG:
            self.backlog = deque()
        self.backlog.append(run)
        self._waiting += len(run)
        self.memory_bytes += run.size_bytes()

    def take_backlog(self) -> deque[Delivery]:
        """The session has ended: what it was still to get is not needed any more."""
        backlog, self.backlog = self.backlog, _NO_BACKLOG
        self._waiting = 0
        return backlog

    def restore(self, sent: int) -> None:
        """After a restart: messages up to a sequence number may have been sent."""
        self.sent_before = sent

    def count_dropped(self, count: int) -> None:
        """Messages at QoS 0 were dropped: the client reads too slowly."""
        self.dropped += count

    def _has_place(self, link: Link | None) -> bool:
        """Publishers wait for a client that reads: what came before they did is not dropped for being too many."""
        length_max = self._length_max
        if link is not None and not self.is_slow:
            length_max += max(length_max, LATE_MESSAGES)
        return self._waiting < length_max and self.memory_bytes < self.memory_bytes_max

    def throttle(self, is_throttled: bool) -> None:
        """All clients together hold too much, and this one holds most of it, or no longer."""
        self.memory_bytes_max = min(self._bytes_max, THROTTLED_BYTES) if is_throttled else self._bytes_max

    def own_bytes(self) -> int:
        """About what the messages in memory take, each divided by the number of clients that share it.

        Clients share a run's list of messages, or only the messages.
        """
        if not self.memory_bytes:
            return 0
        found = self.inflight.runs[:SAMPLES]
        step = len(self.backlog) // SAMPLES + 1
        for position in range(0, len(self.backlog), step):
            found.append(self.backlog[position])
        whole = own = 1
        for run in found:
            if not run.messages:  # in columns, which no other client has
                continue
            message = run.messages[0]
            size = len(message.payload) + len(message.topic_name)
            whole += size
            lists = getrefcount(message) - 2  # without `message` and the call
            own += size // max(1, lists + getrefcount(run.messages) - 2)  # without the call, and one for both
        return self.memory_bytes * own // whole + DELIVERY_BYTES * (self._waiting + len(self.inflight))

    def is_long(self) -> bool:
        """Whether a persistent queue keeps three fourths of what it may of the log."""
        return self._log_bytes * 4 > self._log_bytes_max * 3

    def must_report_long(self) -> bool:
        """Whether it `is_long`, and has not been reported since it was not."""
        must_report = self.is_long() and not self._is_reported_long
        self._is_reported_long = self._is_reported_long or must_report
        return must_report

    def is_above_high_water(self) -> bool:
        """Whether so much waits that publishers should wait: in memory, or in the log."""
        is_much = self.memory_bytes - self._own_bytes > self.high_water_bytes or self.is_long()
        return is_much or (self._waiting - self._own_messages) * HIGH_WATER_PART > self._length_max

    def is_filling(self) -> bool:
        """Whether more waits in memory than the low water mark."""
        length = 2 * HIGH_WATER_PART * self._waiting
        return length > self._length_max or self.memory_bytes * 2 > self.high_water_bytes

    def is_below_low_water(self) -> bool:
        """Whether so little waits that publishers may go on."""
        if self.queue is not None and self.is_long():
            self._log_bytes = self.queue.log_bytes()
            if self.is_long():
                return False
            self._is_reported_long = False
        return not self.is_filling()

    def is_watched(self) -> bool:
        """Whether it matters when the queue is below its low water mark."""
        return self.is_congested or self.is_slow or self._own_messages > 0

    def set_congested(self, is_congested: bool) -> None:
        """Publishers wait for the client from now on, or no longer."""
        self.is_congested = is_congested

    def set_slow(self) -> None:
        """The client has not drained its queue while publishers waited."""
        self.is_slow = True

    def drained(self) -> None:
        """The queue is below its low water mark, or the connection has ended."""
        self.is_slow = False
        self._own_bytes = self._own_messages = 0

    def add_own(self, message: Publish) -> None:
        """The client is to get a message that it has sent itself, although its queue is filling."""
        self._own_bytes += message.size_bytes()
        self._own_messages += 1

    def water_bytes(self, message: Publish) -> int:
        """What a message counts towards the high water mark in bytes, with its part of that in messages."""
        part_bytes = self.high_water_bytes * HIGH_WATER_PART // self._length_max
        return part_bytes + message.size_bytes()

    def set_window(self, window_max: int) -> None:
        """At most `window_max` messages are in flight, at first fewer."""
        self._window_max = window_max
        self.window = first_window(window_max)
        self._full_at_sequence = 0

    def _adapt_window(self) -> None:
        """Once a window that was full has been acknowledged, the next one follows from how long that took."""
        inflight = self.inflight
        if len(inflight) and inflight.oldest_sequence() <= self._full_at_sequence:
            return
        self._full_at_sequence = 0
        self.window = adapted_window(self.window, self._window_max, self._clock.now_us() - self._full_at_us)

    def pump(self, link: Link) -> int:
        """Send what is owed, as far as the window and the client's reading allow.

        Returns how many messages were dropped instead. With `DROPS_AT_ONCE` the rest waits for the next call.
        """
        if self._unsent and not self._resend(link):
            return 0
        if self._full_at_sequence:
            self._adapt_window()
        drops = 0
        while drops < DROPS_AT_ONCE and link.has_room() and (self.backlog or self._read_ahead()):
            first = self.backlog[0]
            places = self._places(link, first.sequence)
            if places <= 0:
                break
            if first.messages[0].expires_us and self._may_not_be_sent(first):
                self._leave_backlog(1)
                self.memory_bytes -= first.size_bytes()
                self._counters.dropped_expired += 1
                self.dropped += 1
                drops += 1
            elif first.released:
                self._leave_backlog(1)
                self._sent(first)
                link.acknowledge(Acknowledgement(PUBREL, first.packet_id))
            elif self._is_too_large(link, first):
                self._leave_backlog(1)
                self.memory_bytes -= first.size_bytes()
                drops += 1
            else:
                run = self._next_run(places)
                taken = link.deliver(run)
                if not taken:
                    break
                self._leave_backlog(taken)
                self._sent(run.part(0, taken) if taken < len(run) else run)
        return drops

    def _next_run(self, places: int) -> Delivery:
        """The first messages of the backlog that can be sent as one run: all are sent alike and follow each other."""
        first = self.backlog[0]
        is_again = first.sequence <= self.sent_before
        messages: list[Publish] = []
        next_sequence = first.sequence
        for run in self.backlog:
            if len(messages) >= places or run.sequence != next_sequence or run.released or run.qos != first.qos:
                break
            if run.retain != first.retain or run.subscription_ids != first.subscription_ids:
                break
            message = run.messages[0]
            if messages and (message.expires_us or (run.sequence <= self.sent_before) != is_again):
                break
            messages.append(message)
            next_sequence += 1
        return Delivery(
            messages,
            first.qos,
            first.retain,
            is_again,
            first.packet_id,
            first.subscription_ids,
            first.sequence,
        )

    def _leave_backlog(self, count: int) -> None:
        """The first messages of the backlog are sent, or dropped."""
        self._waiting -= count
        popleft = self.backlog.popleft
        for _ in range(count):
            popleft()

    def _may_not_be_sent(self, delivery: Delivery) -> bool:
        """Whether a message has expired. One that was sent once is sent again all the same (5.0, MQTT-4.3.3-7)."""
        return delivery.sequence > self.sent_before and self._clock.has_expired(delivery.messages[0])

    def _read_ahead(self) -> bool:
        if self.queue is None or self.fetched >= self.durable or self.memory_bytes >= self.memory_bytes_max:
            return False
        deliveries = self.queue.read(self.fetched, min(self._read_ahead_max(), self.durable - self.fetched))
        for delivery in deliveries:
            self._queue_in_memory(delivery)
            self.fetched = delivery.sequence
        return len(deliveries) > 0

    def _read_ahead_max(self) -> int:
        """A client with a small window would have messages in memory for long."""
        return max(READ_AHEAD_MIN, min(READ_AHEAD, 2 * self.window))

    def drop_read_ahead(self) -> None:
        """The connection has ended: what was not sent stays in the persistent queue, and is read again."""
        if self.queue is None or not self.backlog:
            return
        for delivery in self.backlog:
            self.memory_bytes -= delivery.size_bytes()
        self.fetched -= self._waiting
        self.take_backlog()

    def resume(self, link: Link) -> None:
        """A client is back: what it has not acknowledged is sent again, in order, with DUP (MQTT-4.4.0-1).

        Its window may be smaller than over its last connection. It bounds PUBLISH only (5.0, MQTT-3.3.4-9, -10).
        """
        inflight = self.inflight
        self._unsent = len(inflight)
        for run in inflight.runs:
            run.set_sent(False)
        if self._unsent and not self._resend(link) and len(inflight) > self.window:
            for run in inflight.runs:
                if run.released and not run.is_sent:
                    self._resend_pubrel(link, run)

    def _resend(self, link: Link) -> bool:
        """True: all that was in flight has been sent again. A whole window may be more than a client reads at once."""
        inflight = self.inflight
        place = 0
        while self._unsent:
            if not link.has_room():
                return False
            place = inflight.next_unsent(place)
            run = inflight.runs[place]
            if run.released:
                self._resend_pubrel(link, run)
                continue
            places = self.window - (len(inflight) - self._unsent)
            if places <= 0:
                return False
            if link.maximum_packet_size:
                places = 1
            inflight.cut(place, 0, min(places, len(run)))
            run = inflight.runs[place].repeated()
            if self._is_too_large(link, run):
                self._discard(place)
                continue
            taken = link.deliver(run)
            if not taken:
                return False
            inflight.cut(place, 0, taken)
            inflight.replace(place, run.part(0, taken) if taken < len(run) else run)
            self._unsent -= taken
        return True

    def _resend_pubrel(self, link: Link, run: Delivery) -> None:
        link.acknowledge(Acknowledgement(PUBREL, run.packet_id, len(run)))
        run.set_sent(True)
        self._unsent -= len(run)

    def _discard(self, place: int) -> None:
        """A run in flight is acknowledged, or counts as delivered."""
        run = self.inflight.remove(place)
        if not run.is_sent:
            self._unsent -= len(run)
        self.memory_bytes -= run.size_bytes()

    # -- share groups ----------------------------------------------------------------------------------------------

    def can_take(self, qos: int) -> bool:
        """Whether the client may get a message of a share group: its window has a place.

        QoS 2 becomes its own (`ShareGroup`), so the queue of its session must have a place too.
        """
        count = len(self.shared) + self.promised
        return (
            len(self.inflight) + count < self.window
            and count < SHARED_INFLIGHT_MAX
            and self.memory_bytes < self.memory_bytes_max
            and not self._unsent
            and (qos < 2 or self.queue is None or not self._is_stored_full(self.queue))
        )

    def send_shared(
        self, link: Link, group: RouteGroup, delivery: Delivery, retain: bool, ids: tuple[int, ...]
    ) -> bool:
        """Send a QoS 1 message of a share group. False: it is too large for the client."""
        packet_id = self._shared_packet_id()
        run = Delivery(delivery.messages, 1, retain, False, packet_id, ids, delivery.sequence)
        if self._is_too_large(link, run):
            return False
        link.deliver(run)
        if self.shared is _NO_SHARED:
            self.shared = {}
        self.shared[packet_id] = (group, delivery)
        self.memory_bytes += delivery.size_bytes()
        return True

    def promise(self) -> None:
        """A QoS 2 message of a share group is to be offered when its commit is done; it has a place in the window."""
        self.promised += 1

    def keep_promise(self) -> None:
        """Such a message is offered now."""
        self.promised -= 1

    def _shared_packet_id(self) -> int:
        """An identifier far from those of the session's own messages, which follow from their sequence numbers."""
        newest = max(self.durable, self.sent_before)
        while True:
            self._shared_number += 1
            packet_id = packet_id_of(newest + PACKET_IDS // 2 + self._shared_number % (2 * SHARED_INFLIGHT_MAX))
            if packet_id not in self.shared and self.inflight.place_of(packet_id) < 0:
                return packet_id

    def return_shared(self) -> None:
        """The connection has ended: another member gets what the client has not acknowledged at QoS 1."""
        for group, delivery in reversed(self.shared.values()):
            self.memory_bytes -= delivery.size_bytes()
            group.take_back(delivery)
        self.shared = _NO_SHARED

    def _shared_done(self, packet_id: int) -> bool:
        sent = self.shared.pop(packet_id, None)
        if sent is None:
            return False
        group, delivery = sent
        self.memory_bytes -= delivery.size_bytes()
        group.finish(delivery.sequence)
        return True

    def newest_sent(self) -> int:
        """The sequence number of the newest message that has been sent."""
        return self.fetched - self._waiting

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

    def finish(self, packet_id: int, count: int, qos: int) -> int:
        """PUBACK of QoS 1 or PUBCOMP of QoS 2: messages are done. How many identifiers were not waiting for it."""
        unknown = 0
        end_id = packet_id + count
        while packet_id < end_id:
            place = self.inflight.find(packet_id, end_id - packet_id, qos)
            if place >= 0 and (qos == 1 or self.inflight.runs[place].released):
                packet_id += len(self.inflight.runs[place])
                self._discard(place)
                continue
            if qos != 1 or not self._shared_done(packet_id):
                unknown += 1
            packet_id += 1
        return unknown

    def pubrec(self, packet_id: int, count: int) -> int:
        """QoS 2: the client has messages. How many of the first ones PUBREL is owed for, once this is durable."""
        place = self.inflight.find(packet_id, count, 2)
        if place < 0:
            return 0
        run = self.inflight.runs[place]
        if not run.released:
            run.release()
            if self.queue is not None:
                for sequence in range(run.sequence, run.sequence + len(run)):
                    self.queue.release(sequence)
        return len(run)

    def is_waiting(self) -> bool:
        """Whether something follows from an acknowledgement: a message waits for the window, or the store must know."""
        return self.queue is not None or bool(self.backlog) or self._unsent > 0 or self.is_watched()

    def record_acknowledged(self) -> None:
        """Once a turn: tell the persistent queue how far everything is acknowledged."""
        if self.queue is None:
            return
        done = self.inflight.oldest_sequence() - 1 if len(self.inflight) else self.newest_sent()
        if done > self._acknowledged:
            self._acknowledged = done
            self.queue.acknowledge(done)
