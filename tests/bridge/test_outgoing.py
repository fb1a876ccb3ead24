"""The sending side of a bridge against a broker that keeps its session: whatever is cut or killed, and in which order.

The other broker is a model: it has the packet identifiers that it has received and not released, as the standard says.
"""

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from embermq.bridge.facts import BridgeCounters
from embermq.bridge.log_cursor import LogCursor
from embermq.bridge.marks import MARKS_MAX, Marks
from embermq.bridge.outgoing import WINDOW, Outgoing
from embermq.bridge.plan import Rule
from embermq.bridge.position import Position, PositionFile
from embermq.bridge.remote import Remote
from embermq.errors import ConfigError
from embermq.protocol.mqtt.decode import Decoder
from embermq.protocol.mqtt.dialect import MQTT_5
from embermq.protocol.mqtt.encode import encode
from embermq.protocol.mqtt.message_fields import message_properties
from embermq.protocol.packets import (
    PUBACK,
    PUBCOMP,
    PUBREC,
    PUBREL,
    Acknowledgement,
    Connack,
    Connect,
    Packet,
    Publish,
)
from embermq.protocol.reasons import ReasonCode
from embermq.store.interface import Retained
from support.recorded import Recorder

OWN = "$bridge/b"
ALL = (Rule("#", "", "", 2),)


class OtherBroker:
    """A session, and what was published. `lose`: packets of ours that the next connection has lost."""

    def __init__(self) -> None:
        self.has_session = False
        self.received: set[int] = set()
        self.published: list[Publish] = []
        self.reason = 0

    def answers(self, packets: list[Packet]) -> list[Acknowledgement]:
        found: list[Acknowledgement] = []
        for packet in packets:
            if isinstance(packet, Publish):
                found += self._take(packet)
            elif isinstance(packet, Acknowledgement) and packet.packet_type == PUBREL:
                for packet_id in range(packet.packet_id, packet.packet_id + packet.count):
                    self.received.discard(packet_id)
                    found.append(Acknowledgement(PUBCOMP, packet_id))
        return found

    def _take(self, message: Publish) -> list[Acknowledgement]:
        packet_id = message.packet_id
        if message.qos == 2 and packet_id in self.received:
            return [Acknowledgement(PUBREC, packet_id)]
        if self.reason:
            return [Acknowledgement(PUBACK if message.qos == 1 else PUBREC, packet_id, 1, self.reason)]
        self.published.append(message)
        if message.qos == 0:
            return []
        if message.qos == 2:
            self.received.add(packet_id)
            assert len(self.received) <= 2 * WINDOW
        return [Acknowledgement(PUBACK if message.qos == 1 else PUBREC, packet_id)]


class Sender:
    """A bridge's process, over a log and a position on disk, and its line to the other broker."""

    def __init__(
        self,
        data: Path,
        other: OtherBroker,
        rules: tuple[Rule, ...] = ALL,
        retained: Callable[[Rule], Iterator[Retained | None]] = lambda rule: iter(()),
        changed: bool = False,
        window: int = 65_535,
        packet_bytes_max: int = 0,
    ) -> None:
        self.other = other
        self.counters = BridgeCounters()
        self.file = PositionFile(data, "b")
        position = self.file.load() or Position(1, is_retained_due=False)
        marks = Marks("0123")
        cursor = LogCursor(data / "log", rules, OWN, marks)
        self.outgoing = Outgoing(rules, cursor, self.file, position, self.counters, marks, retained, OWN)
        if changed:
            self.outgoing.change_rules()
        self._window = window
        self._packet_bytes_max = packet_bytes_max
        self.remote: Remote | None = None

    def connect(self) -> None:
        self.remote = Remote("other", Connect("b", protocol_level=5), 1 << 20)
        self.remote.take_output()
        connack = Connack(
            self.other.has_session, receive_maximum=self._window, maximum_packet_size=self._packet_bytes_max
        )
        self.remote.receive(encode(connack, MQTT_5))
        self.outgoing.connected(self.remote, self.other.has_session)
        self.decoder = Decoder(1 << 20, levels=(5,), dialect=MQTT_5)
        if not self.other.has_session:
            self.other.received.clear()
        self.other.has_session = True

    def sent(self) -> list[Packet]:
        """What has left since the last call."""
        assert self.remote is not None
        packets = self.decoder.feed(self.remote.take_output())
        assert self.decoder.error is None
        return packets

    def step(self, arrives: float = 1.0, returns: float = 1.0, most: int = 50) -> int:
        """Send, and be answered; of both only the first part arrives before the line is cut. How much there was."""
        assert self.remote is not None
        self.outgoing.fill(self.remote, 0, most)
        packets = self.sent()
        answers = self.other.answers(packets[: int(len(packets) * arrives + 0.5)])
        for answer in answers[: int(len(answers) * returns + 0.5)]:
            self.outgoing.acknowledge(answer, self.remote)
        self.outgoing.advance(self.remote)
        return len(packets)

    def run(self) -> None:
        """Until all is sent and acknowledged."""
        while self.step() or not self.outgoing.is_at_end or self.outgoing.in_flight:
            pass
        assert self.outgoing.position.offset == self.outgoing.cursor.offset

    def kill(self) -> None:
        self.file.close()


SendersOn = Callable[..., Sender]


@pytest.fixture
def sender_on() -> Iterator[SendersOn]:
    """Makes senders; the last of each test ends with it."""
    made: list[Sender] = []

    def make(*arguments: Any, **options: Any) -> Sender:
        made.append(Sender(*arguments, **options))
        return made[-1]

    yield make
    for each in made:
        each.kill()


def payloads(messages: list[Publish]) -> list[bytes]:
    return [message.payload for message in messages]


@pytest.mark.parametrize("seed", range(24))
def test_at_qos_2_every_message_comes_once_and_in_order_whatever_is_cut_or_killed(
    seed: int, recorder: Callable[..., Recorder], sender_on: SendersOn
) -> None:
    draw = random.Random(seed)
    log = recorder(group_records=draw.choice([1, 7, 40]))
    other = OtherBroker()
    sender = sender_on(log.data, other, window=draw.choice([3, 20, 65_535]))
    expected: list[bytes] = []
    for turn in range(60):
        for number in range(draw.randrange(30)):
            payload = b"%d-%d" % (turn, number)
            kind = draw.random()
            if kind < 0.1:
                log.publish("t/own", payload, qos=2, client_id=OWN)
                continue
            log.publish(f"t/{number % 5}", payload, qos=2)
            expected.append(payload)
        log.flush()
        if sender.remote is None:
            sender.connect()
        fate = draw.random()
        if fate < 0.4:
            sender.step(most=draw.randrange(1, 40))
        elif fate < 0.7:  # the line is cut
            sender.step(draw.random(), draw.random(), most=draw.randrange(1, 40))
            sender.connect()
        else:
            sender.step(draw.random(), draw.random(), most=draw.randrange(1, 40))
            sender.kill()
            sender = sender_on(log.data, other, window=draw.choice([3, 20, 65_535]))
    sender.connect()
    sender.run()
    assert payloads(other.published) == expected
    assert other.received == set()


@pytest.mark.parametrize("seed", range(12))
def test_with_every_qos_nothing_is_lost_qos_2_comes_once_and_the_first_of_each_in_order(
    seed: int, recorder: Callable[..., Recorder], sender_on: SendersOn
) -> None:
    draw = random.Random(seed)
    log = recorder(group_records=11)
    other = OtherBroker()
    sender = sender_on(log.data, other, window=10)
    sender.connect()
    expected: list[bytes] = []
    twice_allowed: set[bytes] = set()
    for number in range(400):
        qos = draw.choice([1, 2])
        log.publish("t", b"%d" % number, qos=qos)
        expected.append(b"%d" % number)
        if qos == 1:
            twice_allowed.add(b"%d" % number)
    log.flush()
    for _ in range(60):
        sender.step(draw.random(), draw.random(), most=20)
        if draw.random() < 0.5:
            sender.kill()
            sender = sender_on(log.data, other, window=10)
        sender.connect()
    sender.run()
    found = payloads(other.published)
    assert list(dict.fromkeys(found)) == expected
    assert {each for each in found if found.count(each) > 1} <= twice_allowed


def test_other_rules_take_no_identifier_that_the_other_broker_may_have(
    recorder: Callable[..., Recorder], sender_on: SendersOn
) -> None:
    log = recorder()
    for number in range(20):
        log.publish("a", b"a%d" % number, qos=2)
        log.publish("b", b"b%d" % number, qos=2)
    log.flush()
    other = OtherBroker()
    first = sender_on(log.data, other, (Rule("a", "", "", 2),))
    first.connect()
    first.step(1.0, 0.0)  # all are received, and no answer has come back
    first.kill()
    # Were they counted from 1 again, the messages of b would be taken for those of a.
    second = sender_on(log.data, other, (Rule("b", "", "", 2),), changed=True)
    second.connect()
    second.run()
    assert payloads(other.published)[20:] == [b"b%d" % number for number in range(20)]
    assert other.received == set()


def test_records_that_were_trimmed_are_counted_and_their_identifiers_not_used_again(
    recorder: Callable[..., Recorder],
    sender_on: SendersOn,
) -> None:
    log = recorder(segment_bytes=2_000)
    for number in range(300):
        log.publish("t", b"%d" % number, qos=2)
    log.flush()
    other = OtherBroker()
    sender = sender_on(log.data, other, window=20)
    sender.connect()
    sender.step(1.0, 0.0, most=20)  # received, not acknowledged
    sender.kill()
    segments = log.log.segments()
    log.log.trim(segments[4].first_offset)
    sender = sender_on(log.data, other)
    sender.connect()
    sender.run()
    first = segments[4].first_offset
    assert sender.outgoing.cursor.lost == first - 1
    assert payloads(other.published) == [b"%d" % number for number in [*range(20), *range(first - 1, 300)]]


def test_records_that_are_trimmed_while_they_are_sent_again_cost_no_other_message(
    recorder: Callable[..., Recorder],
    sender_on: SendersOn,
) -> None:
    log = recorder(segment_bytes=2_000)
    for number in range(40):
        log.publish("t", b"%d" % number, qos=2)
        for _ in range(9):
            log.publish("not sent", b"")
    log.flush()
    other = OtherBroker()
    sender = sender_on(log.data, other, (Rule("t", "", "", 2),))
    sender.connect()
    sender.step(1.0, 0.0, most=20)  # received, not acknowledged
    sender.connect()
    sender.step(most=3)  # the next two are in the segment that is open
    log.log.trim(log.log.next_offset * 3 // 4)
    with pytest.raises(ConfigError, match="trimmed"):
        sender.run()
    sender.connect()
    sender.run()
    first = -(-(log.log.segments()[0].first_offset - 1) // 10)
    assert first > 20
    assert payloads(other.published) == [b"%d" % number for number in [*range(20), *range(first, 40)]]


def test_the_retained_messages_come_first_and_again_when_the_session_is_lost(
    recorder: Callable[..., Recorder],
    sender_on: SendersOn,
) -> None:
    log = recorder()
    kept = [
        Retained(b"r/1", b"one", 2, b"", 0, 0),
        Retained(b"r/own", b"came over the bridge", 1, b"", 1, 0, OWN.encode()),
        Retained(b"r/2", b"of a record that the log sends", 1, b"", 10, 0),
    ]
    for number in range(10):
        log.publish("old", b"%d" % number, qos=1)
    log.publish("r/2", b"new", qos=1, retain=True)
    log.flush()
    other = OtherBroker()

    def retained(rule: Rule) -> Iterator[Retained | None]:
        yield kept[0]
        yield None
        yield from kept[1:]

    sender = sender_on(log.data, other, (Rule("r/#", "", "x/", 1),), retained)
    sender.connect()
    sender.run()
    found = [(each.topic_name, each.payload, each.qos, each.retain) for each in other.published]
    assert found == [("x/r/1", b"one", 1, True), ("x/r/2", b"new", 1, True)]
    sender.connect()
    sender.run()
    assert len(other.published) == 2
    other.has_session = False
    sender.connect()
    sender.run()
    again = [each.payload for each in other.published[2:]]
    assert again == [b"one", b"of a record that the log sends"]  # as they are now: it is before the position


def test_what_has_expired_or_is_too_large_is_counted_and_the_next_message_goes_on(
    recorder: Callable[..., Recorder],
    sender_on: SendersOn,
) -> None:
    log = recorder()
    soon = message_properties({"expiry": 1, "content_type": "text"})
    log.publish("t", b"expired in 2023", qos=2, properties=soon)
    log.publish("t", bytes(500), qos=1)
    log.publish("t", b"fits", qos=2)
    log.flush()
    other = OtherBroker()
    sender = sender_on(log.data, other, packet_bytes_max=200)
    sender.connect()
    sender.run()
    assert payloads(other.published) == [b"fits"]
    assert (sender.counters.expired, sender.counters.too_large) == (1, 1)


def test_a_refused_message_is_counted_and_one_that_may_be_taken_later_ends_the_connection(
    recorder: Callable[..., Recorder],
    sender_on: SendersOn,
) -> None:
    log = recorder()
    for qos in (1, 2, 2):
        log.publish("t", b"%d" % qos, qos=qos)
    log.flush()
    other = OtherBroker()
    sender = sender_on(log.data, other, window=1)
    sender.connect()
    other.reason = ReasonCode.NOT_AUTHORIZED
    sender.step()
    sender.step()
    assert (sender.counters.refused, other.published) == (2, [])
    other.reason = ReasonCode.QUOTA_EXCEEDED
    with pytest.raises(ConfigError, match="cannot take a message now: quota exceeded"):
        sender.step()
    other.reason = 0
    sender.connect()
    sender.run()
    assert payloads(other.published) == [b"2"]


def test_what_has_passed_many_servers_is_not_sent(recorder: Callable[..., Recorder], sender_on: SendersOn) -> None:
    log = recorder()
    log.publish("t", b"few", qos=1, properties=b"".join(Marks(f"{n:04}").own for n in range(MARKS_MAX - 1)))
    log.publish("t", b"many", qos=1, properties=b"".join(Marks(f"{n:04}").own for n in range(MARKS_MAX)))
    log.flush()
    other = OtherBroker()
    sender = sender_on(log.data, other)
    sender.connect()
    sender.run()
    assert payloads(other.published) == [b"few"]
    assert sender.outgoing.cursor.take_loops() == 1
    assert other.published[0].properties.endswith(Marks("0123").own)


def test_memory_does_not_grow_with_what_waits(recorder: Callable[..., Recorder], sender_on: SendersOn) -> None:
    log = recorder(group_records=500)
    for _ in range(20_000):
        log.publish("t", bytes(100), qos=2)
    log.flush()
    sender = sender_on(log.data, OtherBroker())
    sender.connect()
    assert sender.remote is not None
    while sender.outgoing.fill(sender.remote, 0, 500):
        pass
    assert sender.outgoing.in_flight == WINDOW
    assert sender.outgoing.cursor.offset <= WINDOW + 2
