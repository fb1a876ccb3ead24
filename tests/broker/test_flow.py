"""Publishers wait for receivers that read, and for no others."""

from pathlib import Path

import pytest

from embermq.broker.flow import DEFERRED_BYTES_MAX, HOLD_BACK_MAX_MS
from embermq.broker.limits import Limits
from embermq.protocol.packets import Disconnect, Packet, Pingreq, Pingresp, Publish
from support.acknowledgements import is_puback, puback
from support.core import Bench, DiskBench, ScriptedLink

LIMITS = Limits(queue_messages_max=40, inflight_max=4)  # congested above 10 messages, drained at 5


def messages(first: int, count: int, topic_name: str = "t", qos: int = 1) -> list[Packet]:
    """PUBLISH packets whose payload is their number."""
    return [
        Publish(topic_name, str(number).encode(), qos, packet_id=number if qos else 0)
        for number in range(first, first + count)
    ]


def acknowledge_all(bench: Bench, link: ScriptedLink) -> list[bytes]:
    """A client reads and acknowledges until nothing more comes."""
    payloads: list[bytes] = []
    while True:
        bench.commit()
        got = link.take_messages()
        if not got:
            return payloads
        payloads += [message.payload for message in got]
        bench.send(link, *[puback(message.packet_id) for message in got])


def pubacks(link: ScriptedLink) -> int:
    return sum(is_puback(packet) for packet in link.take())


@pytest.fixture
def bench() -> Bench:
    return Bench(limits=LIMITS)


@pytest.fixture
def receiver(bench: Bench) -> ScriptedLink:
    link = bench.join("receiver")
    bench.subscribed(link, "t", 1)
    return link


def test_a_publisher_that_is_faster_than_a_reader_waits_and_nothing_is_lost(
    bench: Bench, receiver: ScriptedLink
) -> None:
    publisher = bench.join("publisher")
    for start in range(1, 201, 10):
        bench.send(publisher, *messages(start, 10))
    assert pubacks(publisher) < 30
    assert acknowledge_all(bench, receiver) == [str(number).encode() for number in range(1, 201)]
    assert bench.core.counters.dropped_queue_full == 0
    assert bench.core.counters.publishers_held_back > 0


def test_nothing_else_of_the_publisher_overtakes_what_was_deferred(bench: Bench, receiver: ScriptedLink) -> None:
    publisher = bench.join("publisher")
    other = bench.join("other")
    bench.subscribed(other, "u", 0)
    bench.send(publisher, *messages(1, 30))
    bench.send(publisher, *messages(31, 1), Publish("u", b"later"), *messages(32, 1))
    assert other.payloads() == []
    payloads = acknowledge_all(bench, receiver)
    assert payloads == [str(number).encode() for number in range(1, 33)]
    assert other.payloads() == [b"later"]


def test_publishers_to_other_topics_do_not_wait(bench: Bench, receiver: ScriptedLink) -> None:
    publisher, other = bench.join("publisher"), bench.join("other")
    bench.send(publisher, *messages(1, 30))
    bench.send(publisher, *messages(31, 1))
    assert "publisher" in {session.client_id for session in bench.core.delivery.flow.held}
    bench.send(other, *messages(1, 5, "u"))
    assert pubacks(other) == 5


def test_qos_0_does_not_wait_for_a_full_queue(bench: Bench, receiver: ScriptedLink) -> None:
    publisher, other = bench.join("publisher"), bench.join("other")
    bench.send(publisher, *messages(1, 30))
    receiver.take()
    bench.send(other, *messages(1, 3, qos=0))
    assert len(receiver.payloads()) == 3


def test_a_publisher_that_waits_is_not_read_from_beyond_a_bound(bench: Bench, receiver: ScriptedLink) -> None:
    publisher = bench.join("publisher")
    bench.send(publisher, *messages(1, 30))
    assert not publisher.is_held_back
    bench.send(publisher, Publish("t", bytes(DEFERRED_BYTES_MAX), 1, packet_id=99))
    assert publisher.is_held_back
    assert len(acknowledge_all(bench, receiver)) == 31
    assert not publisher.is_held_back


def test_a_receiver_that_does_not_drain_counts_as_slow_and_holds_nobody_back(
    bench: Bench, receiver: ScriptedLink
) -> None:
    publisher = bench.join("publisher", keep_alive_s=2)
    bench.send(publisher, *messages(1, 30))
    bench.send(publisher, *messages(31, 1))
    publisher.take()
    for _ in range(HOLD_BACK_MAX_MS // 1000 + 1):
        bench.pass_s(1)
    assert publisher.closed is None  # it could not be heard while it waited
    assert bench.core.counters.receivers_slow == 1
    bench.send(publisher, *messages(32, 40))
    assert bench.core.counters.dropped_queue_full > 0
    assert pubacks(publisher) >= 40
    # Once it has drained it is waited for again.
    acknowledge_all(bench, receiver)
    held_back = bench.core.counters.publishers_held_back
    bench.send(publisher, *messages(71, 30))
    bench.send(publisher, *messages(101, 1))
    assert bench.core.counters.publishers_held_back == held_back + 1


def test_two_clients_that_publish_to_each_other_both_go_on(bench: Bench) -> None:
    first, second = bench.join("first"), bench.join("second")
    bench.subscribed(first, "to/first", 1)
    bench.subscribed(second, "to/second", 1)
    for start in range(1, 101, 10):
        bench.send(first, *messages(start, 10, "to/second"))
        bench.send(second, *messages(start, 10, "to/first"))
    got_first: list[bytes] = []
    got_second: list[bytes] = []
    while True:
        more_first, more_second = first.take_messages(), second.take_messages()
        if not more_first and not more_second:
            break
        got_first += [message.payload for message in more_first]
        got_second += [message.payload for message in more_second]
        bench.send(first, *[puback(message.packet_id) for message in more_first])
        bench.send(second, *[puback(message.packet_id) for message in more_second])
    expected = [str(number).encode() for number in range(1, 101)]
    assert got_first == expected
    assert got_second == expected
    assert bench.core.counters.dropped_queue_full == 0


def test_a_publisher_that_is_congested_itself_is_read_from(bench: Bench) -> None:
    """Else its acknowledgements would never be read: each would wait for the other."""
    first, second = bench.join("first"), bench.join("second")
    bench.subscribed(first, "to/first", 1)
    bench.subscribed(second, "to/second", 1)
    for link, topic_name in ((first, "to/second"), (second, "to/first")):
        bench.send(link, *messages(1, 30, topic_name))
        bench.send(link, Publish(topic_name, bytes(DEFERRED_BYTES_MAX), 1, packet_id=99))
    assert not (first.is_held_back and second.is_held_back)
    bench.send(first, Pingreq())
    assert any(isinstance(packet, Pingresp) for packet in first.take())


def test_what_was_sent_before_the_connection_ended_is_processed(bench: Bench, receiver: ScriptedLink) -> None:
    publisher = bench.join("publisher")
    bench.send(publisher, *messages(1, 30))
    bench.send(publisher, Publish("t", b"last", 1, packet_id=99), Disconnect())
    bench.lose(publisher)
    assert acknowledge_all(bench, receiver)[-1] == b"last"
    assert not bench.core.delivery.flow.held


def test_publishers_go_on_when_the_receiver_goes(bench: Bench, receiver: ScriptedLink) -> None:
    publisher = bench.join("publisher")
    bench.send(publisher, *messages(1, 30))
    bench.send(publisher, *messages(31, 10))
    bench.lose(receiver)
    assert pubacks(publisher) == 40
    assert not bench.core.delivery.flow.congested


def test_publishers_wait_for_a_reader_on_disk_too(tmp_path: Path) -> None:
    bench = DiskBench(tmp_path / "data", LIMITS)
    receiver, publisher = bench.join("receiver"), bench.join("publisher")
    bench.subscribe(receiver, "t", 1)
    bench.commit()
    receiver.take()
    for start in range(1, 201, 10):
        bench.send(publisher, *messages(start, 10))
        bench.commit()
    assert acknowledge_all(bench, receiver) == [str(number).encode() for number in range(1, 201)]
    assert bench.core.counters.dropped_queue_full == 0
    bench.journal.close()


def hostile(bench: Bench, client_id: str, *, user: str = "", address: str = "test") -> ScriptedLink:
    """A client that gets everything, reads nothing, and whose queue another client fills."""
    link = bench.join(client_id, user=user)
    session = next(session for session in bench.core.sessions() if session.client_id == client_id)
    session.address = address
    bench.subscribed(link, "#", 1)
    filler = bench.join(f"{client_id}-filler")
    bench.send(filler, *messages(1, 30, "filling"))
    bench.lose(filler)
    return link


def held_s(bench: Bench, publisher: ScriptedLink, seconds: int) -> int:
    """For how many seconds of these a publisher that sends a message every second was held back."""
    count = 0
    for number in range(seconds):
        if publisher.session not in bench.core.delivery.flow.held:
            bench.send(publisher, *messages(1 + number, 1, "v"))
        count += publisher.session in bench.core.delivery.flow.held
        bench.pass_s(1)
    return count


def test_nobody_waits_for_a_client_that_has_filled_its_own_queue() -> None:
    bench = Bench(limits=Limits(queue_messages_max=400, inflight_max=4))
    greedy = bench.join("greedy")
    bench.subscribed(greedy, "#", 1)
    for start in range(1, 2001, 10):
        bench.send(greedy, *messages(start, 10, "own"))
        bench.pass_s(0.01)
    assert len(greedy.session.outbound.backlog) > 350  # type: ignore[union-attr]  # it is connected
    publisher = bench.join("publisher")
    bench.send(publisher, *messages(1, 20))
    bench.send(publisher, *messages(21, 20))
    assert pubacks(publisher) == 40
    assert not bench.core.delivery.flow.congested


def test_what_a_client_sent_itself_is_forgotten_when_its_queue_has_drained() -> None:
    bench = Bench(limits=Limits(queue_messages_max=400, inflight_max=4))
    client = bench.join("client")
    bench.subscribed(client, "#", 1)
    for start in range(1, 301, 10):
        bench.send(client, *messages(start, 10, "own"))
    acknowledge_all(bench, client)
    publisher = bench.join("publisher")
    for start in range(1, 301, 10):
        bench.send(publisher, *messages(start, 10))
    assert publisher.session in bench.core.delivery.flow.held


@pytest.mark.parametrize("by", ["user", "address"])
def test_the_slowness_of_a_client_outlives_its_session(by: str) -> None:
    bench = Bench(limits=LIMITS)
    publisher = bench.join("publisher")
    held = 0
    for number in range(6):
        if by == "user":
            link = hostile(bench, f"name-{number}", user="mallory", address=f"10.0.0.{number}:1234")
        else:
            link = hostile(bench, f"name-{number}", address=f"2001:db8::{number}:1234")
        held += held_s(bench, publisher, 9)
        bench.lose(link)
    assert 9 <= held <= 9 + 54 // 6 + 2
    assert bench.core.counters.receivers_slow >= 1


def test_slowness_is_forgotten_after_a_minute() -> None:
    bench = Bench(limits=LIMITS)
    publisher = bench.join("publisher")
    bench.lose(hostile(bench, "first", user="u"))
    held_s(bench, publisher, 1)
    link = hostile(bench, "second", user="u")
    assert held_s(bench, publisher, 12) == 10
    bench.lose(link)
    bench.pass_s(61)
    hostile(bench, "third", user="u")
    assert held_s(bench, publisher, 12) == 10


def test_a_publisher_waits_for_a_part_of_the_time_however_many_receivers_are_slow() -> None:
    bench = Bench(limits=LIMITS)
    publisher = bench.join("publisher")
    held = 0
    for number in range(20):
        link = hostile(bench, f"name-{number}", user=f"user-{number}")
        held += held_s(bench, publisher, 9)
        bench.lose(link)
    assert 10 <= held <= 10 + 180 // 6 + 2


def test_publishers_that_send_little_do_not_wait_while_another_fills_the_queue() -> None:
    bench = Bench(limits=Limits(queue_messages_max=4_000, inflight_max=4))
    receiver = bench.join("receiver")
    bench.subscribed(receiver, "#", 1)
    filler, others = bench.join("filler"), [bench.join(f"other-{number}") for number in range(10)]
    for start in range(1, 2001, 100):
        bench.send(filler, *messages(start, 100))
    assert filler.session in bench.core.delivery.flow.held
    for other in others:
        bench.send(other, *messages(1, 50))
        assert pubacks(other) == 50
    # All together may send as much as the high water mark, and one of them a sixteenth of it.
    bench.send(others[0], *messages(51, 20))
    assert others[0].session in bench.core.delivery.flow.held
    acknowledge_all(bench, receiver)
    assert not bench.core.delivery.flow.held
    assert bench.core.counters.dropped_queue_full == 0


def test_many_publishers_that_send_little_wait_before_the_queue_is_full() -> None:
    bench = Bench(limits=Limits(queue_messages_max=400, inflight_max=4))
    receiver = bench.join("receiver")
    bench.subscribed(receiver, "#", 1)
    others = [bench.join(f"other-{number}") for number in range(500)]
    for other in others:
        bench.send(other, *messages(1, 5))
    assert 100 < len(receiver.session.outbound.backlog) < 220  # type: ignore[union-attr]  # it is connected
    assert len(acknowledge_all(bench, receiver)) == 2_500


def test_a_reader_that_drains_soon_is_waited_for_without_end(bench: Bench, receiver: ScriptedLink) -> None:
    publisher = bench.join("publisher")
    sent = 0
    got: list[bytes] = []
    for _ in range(200):
        if publisher.session not in bench.core.delivery.flow.held:
            bench.send(publisher, *messages(sent + 1, 20))
            sent += 20
        bench.pass_s(1)
        for _ in range(4):
            arrived = receiver.take_messages()
            got += [message.payload for message in arrived]
            bench.send(receiver, *[puback(message.packet_id) for message in arrived])
    got += acknowledge_all(bench, receiver)
    assert bench.core.counters.publishers_held_back > 50
    assert bench.core.counters.dropped_queue_full == bench.core.counters.receivers_slow == 0
    assert got == [str(number).encode() for number in range(1, sent + 1)]


def test_a_receiver_whose_messages_are_all_in_flight_drains_when_it_acknowledges() -> None:
    bench = Bench(limits=Limits(queue_bytes_max=4_000))  # congested above 1,000 bytes
    receiver, publisher = bench.join("receiver"), bench.join("publisher")
    bench.subscribed(receiver, "t", 1)
    for number in range(1, 4):
        bench.send(publisher, Publish("t", bytes(600), 1, packet_id=number))
    assert publisher.session in bench.core.delivery.flow.held
    for message in receiver.take_messages():
        if not bench.core.acknowledged(receiver, message.packet_id, bench.now_ms):
            bench.send(receiver, puback(message.packet_id))
    assert not bench.core.delivery.flow.held
    assert not bench.core.delivery.flow.congested
