"""What must hold however often the server was killed: told what happened, it says what must not have happened.

Owns: the expectation for every stream of messages, every session and every retained message; the violations found.
Never: a socket, a process. So a made-up history can show that each kind of violation is found.

A stream is one topic, to which one publisher, named by its second level, publishes with one QoS and the numbers 1, 2,
3, ... A publisher redoes what was not acknowledged until it is, and the log keeps its order: so a session must get each
number after the one before it, and a gap is a loss at once. Across its streams a publisher's order holds as well.

A server may drop messages for a session that is owed `queue_messages_max` of them (docs/limits.md), and such a drop
looks like a loss. The checker keeps the two apart by arithmetic: no session is owed more than what was sent since all
sessions had got everything. As long as that is within the limit, nothing may be dropped. The test lets all sessions
catch up before it is exceeded; if it does not, that is a violation of its own.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

KEPT = "kept"
"""Streams below this are retained; every `CLEAR_EVERY`-th message of them is empty and so clears."""
LIVE = "live"
CLEAR_EVERY = 5


def payload_of(topic_name: str, number: int) -> bytes:
    """The one payload that a message can have: its size varies, and a byte that is not its own is seen."""
    if is_clear(topic_name, number):
        return b""
    head = f"{topic_name} {number} ".encode()
    size = number * 7919 % 409 if number % 50 else 20_000
    return head + (head * (size // len(head) + 1))[:size]


def is_clear(topic_name: str, number: int) -> bool:
    return topic_name.startswith(KEPT) and number % CLEAR_EVERY == 0


@dataclass(slots=True)
class Stream:
    """One topic: how far it was sent and acknowledged."""

    qos: int
    sent: int = 0
    acknowledged: int = 0
    attempts: Counter[int] = field(default_factory=Counter)
    """How often a message was sent again."""
    places: list[int] = field(default_factory=lambda: [0])
    """By number: which message of its publisher it is, whatever the stream."""


@dataclass(slots=True)
class Received:
    """What one session has got: the newest number of each stream."""

    qos: int
    prefix: str
    newest: dict[str, int] = field(default_factory=dict)
    places: dict[str, int] = field(default_factory=dict)
    """By publisher: which of its messages was the newest."""
    joined: dict[str, int] | None = None
    """How far each stream was sent when SUBACK came: everything after that is owed. None: no SUBACK yet."""
    repeats: Counter[tuple[str, int]] = field(default_factory=Counter)
    """Messages that came again without DUP, where that is allowed because the publisher repeated itself."""

    def begins(self, topic_name: str) -> int:
        """After which number of a stream everything is owed."""
        return self.joined.get(topic_name, 0) if self.joined is not None else 0

    def owed(self, topic_name: str, stream: Stream) -> int:
        """How many messages of a stream are still to come."""
        if self.joined is None or not topic_name.startswith(self.prefix):
            return 0
        newest = self.newest.get(topic_name, self.begins(topic_name))
        return max(0, _last_message(topic_name, stream.acknowledged) - newest)


class Checker:
    """Is told everything that clients see."""

    def __init__(self, queue_messages_max: int) -> None:
        """`queue_messages_max` is the server's limit for what a session is owed."""
        self.violations: list[str] = []
        self._queue_messages_max = queue_messages_max
        self._sent_since_drained = 0
        self.streams: dict[str, Stream] = {}
        self.received: dict[str, Received] = {}
        self._sessions: set[str] = set()
        self._ended: set[str] = set()
        self._published: Counter[str] = Counter()
        self.on_acknowledged: Callable[[], None] = lambda: None
        self.deliveries = 0
        self.redeliveries = 0

    def wrong(self, text: str) -> None:
        self.violations.append(text)

    # -- publishers --------------------------------------------------------------------------------------------

    def stream(self, topic_name: str, qos: int) -> None:
        self.streams[topic_name] = Stream(qos)

    def sent(self, topic_name: str, number: int) -> None:
        """A PUBLISH has left, for the first time or again."""
        stream = self.streams[topic_name]
        self._sent_since_drained += 1
        if self._sent_since_drained == self._queue_messages_max + 1:
            self.wrong("the test is at fault: so much was sent that the server may drop messages")
        if number > stream.sent:
            assert number == stream.sent + 1
            stream.sent = number
            self._published[_publisher(topic_name)] += 1
            stream.places.append(self._published[_publisher(topic_name)])
        else:
            stream.attempts[number] += 1

    def acknowledged(self, topic_name: str, number: int) -> None:
        """PUBACK or PUBREC has come: from now on the server answers for the message."""
        stream = self.streams[topic_name]
        if number != stream.acknowledged + 1:
            self.wrong(f"{topic_name}: {number} was acknowledged after {stream.acknowledged}")
        stream.acknowledged = max(number, stream.acknowledged)
        self.on_acknowledged()

    def messages_acknowledged(self) -> int:
        return sum(stream.acknowledged for stream in self.streams.values())

    # -- sessions ----------------------------------------------------------------------------------------------

    def connected(self, client_id: str, session_present: int) -> None:
        """CONNACK has come: from now on the server answers for the session."""
        if client_id in self._sessions and not session_present:
            self.wrong(f"{client_id}: the session is gone")
        if client_id in self._ended and session_present:
            self.wrong(f"{client_id}: the session is back, but it was ended")
        self._ended.discard(client_id)
        self._sessions.add(client_id)

    def subscribing(self, client_id: str, qos: int, prefix: str = "") -> None:
        """SUBSCRIBE is about to leave; messages may come from now on, but none is owed yet."""
        self.received.setdefault(client_id, Received(qos, prefix))

    def subscribed(self, client_id: str) -> None:
        """SUBACK has come: from now on every message of these streams is owed."""
        received = self.received[client_id]
        if received.joined is None:
            received.joined = {topic_name: stream.sent for topic_name, stream in self.streams.items()}

    def ended(self, client_id: str) -> None:
        """CONNACK has come for a clean session: the one before is gone with all that it was owed."""
        self._sessions.discard(client_id)
        self._ended.add(client_id)
        self.received.pop(client_id, None)

    def delivered(self, client_id: str, topic_name: str, payload: bytes, qos: int, retain: int, dup: int) -> None:
        """A message has come that the client's own QoS 2 state does not know."""
        self.deliveries += 1
        received = self.received[client_id]
        stream = self.streams.get(topic_name)
        if stream is None:
            self.wrong(f"{client_id}: {topic_name} was never sent to")
            return
        if qos != min(stream.qos, received.qos):
            self.wrong(f"{client_id}: {topic_name} came with QoS {qos}")
        if retain:
            self.wrong(f"{client_id}: {topic_name} came with RETAIN on an old subscription")
        if not payload and topic_name.startswith(KEPT):
            return  # it does not say which clear it is
        number = number_of(topic_name, payload)
        if not 0 < number <= stream.sent:
            self.wrong(f"{client_id}: {topic_name} never had the payload {payload[:60]!r}")
            return
        newest = received.newest.get(topic_name)
        if newest is None:
            self._came_first(client_id, received, topic_name, number)
        elif number <= newest:
            self._came_again(client_id, received, topic_name, number, stream, dup)
            return
        elif number != (expected := _next_message(topic_name, newest)):
            self.wrong(f"{client_id}: {topic_name} {number} came after {newest}: {expected} is lost or late")
        received.newest[topic_name] = number
        self._check_place(client_id, received, topic_name, number, stream.places[number])

    def _check_place(self, client_id: str, received: Received, topic_name: str, number: int, place: int) -> None:
        """What was sent before SUBACK may be the publisher's second try of something that was not owed at the first."""
        publisher = _publisher(topic_name)
        newest = received.places.get(publisher, 0)
        if place < newest and received.joined is not None and number > received.begins(topic_name):
            self.wrong(f"{client_id}: {topic_name} {number} was overtaken by a later message of its publisher")
        received.places[publisher] = max(newest, place)

    def _came_first(self, client_id: str, received: Received, topic_name: str, number: int) -> None:
        """The first message may be older than what is owed; without SUBACK nothing is."""
        expected = _next_message(topic_name, received.begins(topic_name))
        if received.joined is not None and number > expected:
            self.wrong(f"{client_id}: {topic_name} {number} came first: {expected} is lost or late")

    def _came_again(
        self, client_id: str, received: Received, topic_name: str, number: int, stream: Stream, dup: int
    ) -> None:
        self.redeliveries += 1
        if stream.qos == 2 and received.qos == 2:
            self.wrong(f"{client_id}: {topic_name} {number} came twice with QoS 2")
        elif not dup:
            received.repeats[topic_name, number] += 1
            if received.repeats[topic_name, number] > stream.attempts[number]:
                self.wrong(f"{client_id}: {topic_name} {number} came again without DUP")

    def redelivered(self, client_id: str, packet_id: int, same: bool, dup: int) -> None:
        """A PUBLISH has come whose packet id is in the client's QoS 2 state."""
        self.redeliveries += 1
        if not same:
            self.wrong(f"{client_id}: packet id {packet_id} was used for another message before PUBREL")
        if not dup:
            self.wrong(f"{client_id}: packet id {packet_id} came again without DUP")

    # -- retained ----------------------------------------------------------------------------------------------

    def must_be_retained(self) -> set[str]:
        """The topics of which a retained message exists whatever became of the unacknowledged ones."""
        return {topic_name for topic_name in self._kept() if None not in self._allowed(topic_name)}

    def retained(self, found: dict[str, bytes]) -> None:
        """All retained messages as a new subscription got them, while no client published."""
        for topic_name in self._kept():
            payload = found.get(topic_name)
            allowed = self._allowed(topic_name)
            if payload not in allowed:
                shown = None if payload is None else payload[:60]
                oldest = self.streams[topic_name].acknowledged
                self.wrong(f"{topic_name}: retained is {shown!r}, but number {oldest} was acknowledged")
        for topic_name in found.keys() - self.streams.keys():
            self.wrong(f"{topic_name}: retained, but never sent")

    def _kept(self) -> list[str]:
        return [topic_name for topic_name in self.streams if topic_name.startswith(KEPT)]

    def _allowed(self, topic_name: str) -> list[bytes | None]:
        """What may be retained: the last acknowledged message, or one that was sent after it."""
        stream = self.streams[topic_name]
        numbers = range(stream.acknowledged, stream.sent + 1)
        return [payload_of(topic_name, number) or None if number else None for number in numbers]

    # -- what is owed --------------------------------------------------------------------------------------------

    def owed_max(self) -> int:
        """How many messages a session can be owed at most, acknowledgements that a crash has lost included."""
        return self._sent_since_drained

    def drained(self) -> None:
        """The server was stopped in order after every session had got and acknowledged everything."""
        self._sent_since_drained = 0

    def owed(self, client_id: str) -> int:
        """How many messages a session has still to get."""
        received = self.received[client_id]
        return sum(received.owed(topic_name, stream) for topic_name, stream in self.streams.items())

    def finished(self) -> None:
        """Everybody has had the time to get everything."""
        for topic_name, stream in self.streams.items():
            if stream.acknowledged < stream.sent:
                self.wrong(f"{topic_name}: {stream.acknowledged + 1} to {stream.sent} were never acknowledged")
            for client_id, received in self.received.items():
                if received.owed(topic_name, stream):
                    newest = received.newest.get(topic_name, 0)
                    self.wrong(f"{client_id}: {topic_name} ended at {newest}, acknowledged were {stream.acknowledged}")


def _publisher(topic_name: str) -> str:
    return topic_name.split("/")[1]


def number_of(topic_name: str, payload: bytes) -> int:
    """The number of a message; 0 if it has none or is not what was sent."""
    parts = payload[:80].split(b" ")
    number = int(parts[1]) if len(parts) > 2 and parts[1].isdigit() else 0
    return number if number and payload == payload_of(topic_name, number) else 0


def _next_message(topic_name: str, number: int) -> int:
    """The next message that is not a clear."""
    return number + 2 if is_clear(topic_name, number + 1) else number + 1


def _last_message(topic_name: str, number: int) -> int:
    """The newest message up to a number that is not a clear."""
    return number - 1 if number and is_clear(topic_name, number) else number
