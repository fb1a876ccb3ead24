"""Delivery of QoS 1 and 2 to one client: packet ids, the window, redelivery (3.1.1 sections 4.3 and 4.4).

Owns: what one session is owed, from the moment a message is durable until the client has acknowledged it.
A message's packet id follows from its place in the session's sequence, so that a crash cannot change it and ids run
out only when a message 65,535 places back is still unacknowledged; then the next one waits.
"""

from collections import deque
from typing import Final, final

from embermq.broker.counters import Counters
from embermq.broker.limits import QUEUE_BYTES_MAX
from embermq.broker.link import Link
from embermq.protocol.packets import PUBREL, Delivery, Publish
from embermq.store.interface import PACKET_IDS, Queue, packet_id_of

READ_AHEAD: Final = 256
"""How many messages are fetched from a lasting queue at a time."""


@final
class Outbound:
    """One session's way out for QoS 1 and 2.

    `backlog` is the queue of a session without a lasting one; with one it only holds what was read ahead.
    What is in memory, in flight or in the backlog, is held to a number of bytes as well as of messages: a few large
    messages weigh more than many small ones. One message always goes, however large.
    """

    __slots__ = (
        "queue",
        "sent_before",
        "inflight",
        "backlog",
        "window",
        "length_max",
        "_bytes_max",
        "_bytes",
        "_again",
        "sent",
        "released",
        "_counters",
        "_acknowledged",
    )

    def __init__(
        self, queue: Queue | None, window: int, length_max: int, counters: Counters, bytes_max: int = QUEUE_BYTES_MAX
    ) -> None:
        self.queue: Final = queue
        self.inflight: dict[int, Delivery] = {}  # by packet id, oldest first
        self.backlog: deque[Delivery] = deque()
        self.window = window
        self.length_max: Final = length_max
        self._bytes_max: Final = bytes_max
        self._bytes = 0  # of topics and payloads in flight and in the backlog
        # Packet ids in flight that the client's new connection has not been sent yet, the next one last.
        self._again: list[int] = []
        self.sent = 0  # the sequence number of the newest message that was sent or read ahead
        self.released = 0  # the newest that is durable and may be sent
        self._counters: Final = counters
        self._acknowledged = 0
        # After a restart: up to here messages may have left already, and so go out with DUP. That can be more than one
        # window: acknowledgements are not waited for, so a crash may have eaten those of several.
        self.sent_before = 0
        if queue is not None:
            self.released = queue.last()
            self.sent = queue.acknowledged()
            self._acknowledged = self.sent

    def accept(self, message: Publish, offset: int, qos: int, retain: bool) -> bool:
        """For a session with a lasting queue: add to it, in the open commit group. False: full, counted."""
        queue = self.queue
        assert queue is not None
        if queue.last() - self._acknowledged >= self.length_max:
            self._counters.dropped_queue_full += 1
            return False
        queue.push(message, offset, qos, retain)
        return True

    def offer(self, link: Link | None, message: Publish, qos: int, retain: bool) -> None:
        """A message is durable: send it now if it is its turn and there is room, or leave it in the queue."""
        inflight = self.inflight
        if (
            link is not None
            and not self.backlog
            and self.sent == self.released
            and len(inflight) < self.window
            and self._bytes < self._bytes_max
            and not self._again
            and link.has_room()
        ):
            sequence = self.released + 1
            packet_id = self.released % PACKET_IDS + 1
            if packet_id not in inflight:
                self.released = sequence
                self.sent = sequence
                self._bytes += len(message.topic_name) + len(message.payload)
                delivery = Delivery(message, qos, retain, False, packet_id, (), sequence)
                inflight[packet_id] = delivery
                link.deliver(delivery)
                return
        if self.queue is not None:
            self.released += 1
        elif len(self.backlog) < self.length_max and self._bytes < self._bytes_max:
            sequence = self.released + 1
            self.released = sequence
            self.sent = sequence
            self._bytes += len(message.topic_name) + len(message.payload)
            packet_id = packet_id_of(sequence)
            self.backlog.append(Delivery(message, qos, retain, False, packet_id, (), sequence))
        else:
            self._counters.dropped_queue_full += 1

    def pump(self, link: Link) -> None:
        """Send what is owed, as far as the window and the client's reading allow."""
        if self._again and not self._resend(link):
            return
        while len(self.inflight) < self.window and link.has_room():
            if not self.backlog and not self._read_ahead():
                return
            delivery = self.backlog[0]
            packet_id = delivery.packet_id
            if packet_id in self.inflight:
                return
            self.backlog.popleft()
            if delivery.sequence <= self.sent_before:
                delivery = delivery.repeated()
            self.inflight[packet_id] = delivery
            if delivery.released:
                link.acknowledge(PUBREL, packet_id, 0)
            else:
                link.deliver(delivery)

    def _read_ahead(self) -> bool:
        if self.queue is None or self.sent >= self.released or self._bytes >= self._bytes_max:
            return False
        for queued in self.queue.read(self.sent, min(READ_AHEAD, self.released - self.sent)):
            self.backlog.append(queued)
            self._bytes += len(queued.message.topic_name) + len(queued.message.payload)
        if not self.backlog:
            return False
        self.sent = self.backlog[-1].sequence
        return True

    def resume(self, link: Link) -> None:
        """A client is back: what it has not acknowledged goes out again, in order, with DUP (MQTT-4.4.0-1)."""
        self._again = list(reversed(self.inflight))
        self._resend(link)

    def _resend(self, link: Link) -> bool:
        """True: all that was in flight is on its way again. A whole window may be far more than a client reads."""
        again = self._again
        while again:
            if not link.has_room():
                return False
            packet_id = again.pop()
            delivery = self.inflight.get(packet_id)
            if delivery is None:
                continue  # acknowledged meanwhile: it came over the connection before
            if delivery.released:
                link.acknowledge(PUBREL, packet_id, 0)
            else:
                if not delivery.dup:
                    delivery = delivery.repeated()
                    self.inflight[packet_id] = delivery
                link.deliver(delivery)
        return True

    def newest_sent(self) -> int:
        """The sequence number of the newest message that has left."""
        return self.sent - len(self.backlog)

    def newest_sent_ever(self) -> int:
        """What a restart must treat as sent: before the last one more may have left than has since."""
        return max(self.sent_before, self.newest_sent())

    def room(self) -> int:
        """How many more messages may be added without making a queue longer than the window."""
        newest = self.released if self.queue is None else self.queue.last()
        return min(self.window, self.length_max) - (newest - self.newest_sent()) - len(self.inflight)

    def puback(self, packet_id: int) -> bool:
        """QoS 1 is done. False: nothing of that id was waiting for it."""
        queued = self.inflight.get(packet_id)
        if queued is None or queued.qos != 1:
            return False
        del self.inflight[packet_id]
        self._bytes -= len(queued.message.topic_name) + len(queued.message.payload)
        return True

    def pubrec(self, packet_id: int) -> bool:
        """QoS 2: the client has the message. True: PUBREL is owed, once this is durable."""
        queued = self.inflight.get(packet_id)
        if queued is None or queued.qos != 2:
            return False
        if not queued.released:
            queued.released = True
            if self.queue is not None:
                self.queue.release(queued.sequence)
        return True

    def pubcomp(self, packet_id: int) -> bool:
        """QoS 2 is done. False: nothing of that id was waiting for it."""
        queued = self.inflight.get(packet_id)
        if queued is None or not queued.released:
            return False
        del self.inflight[packet_id]
        self._bytes -= len(queued.message.topic_name) + len(queued.message.payload)
        return True

    def waits(self) -> bool:
        """Whether more follows from an acknowledgement than that it came: room for another, something to remember."""
        return self.queue is not None or bool(self.backlog) or bool(self._again)

    def settle(self) -> None:
        """Once a turn: tell a lasting queue how far everything is acknowledged."""
        if self.queue is None:
            return
        done = self.newest_sent()
        if self.inflight:
            done = self.inflight[next(iter(self.inflight))].sequence - 1
        if done > self._acknowledged:
            self._acknowledged = done
            self.queue.acknowledge(done)
