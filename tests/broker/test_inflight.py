"""What is in flight: runs are found by packet identifier and cut. Whole scripts: tests/broker/test_runs.py."""

from random import Random

from embermq.broker.inflight import Inflight
from embermq.protocol.packets import PACKET_IDS, Columns, Delivery, Publish, packet_id_of


def run_of(sequence: int, count: int, qos: int = 1) -> Delivery:
    messages = [Publish("t", bytes(number), qos) for number in range(count)]
    return Delivery(messages, qos, False, False, packet_id_of(sequence), (7,), sequence)


def in_flight(*runs: Delivery) -> Inflight:
    inflight = Inflight()
    for run in runs:
        inflight.add(run)
    return inflight


def test_a_run_is_cut_to_what_is_acknowledged() -> None:
    inflight = in_flight(run_of(1, 5), run_of(6, 4, 2))
    assert (len(inflight), inflight.ids(), inflight.oldest_sequence()) == (9, [*range(1, 10)], 1)
    place = inflight.find(2, 3, 1)
    assert (place, [len(run) for run in inflight.runs]) == (1, [1, 3, 1, 4])
    removed = inflight.remove(place)
    assert (removed.packet_id, removed.sequence, removed.size_bytes()) == (2, 2, 1 + 2 + 3 + 3)
    assert (removed.qos, removed.subscription_ids) == (1, (7,))
    assert (len(inflight), inflight.ids()) == (6, [1, 5, 6, 7, 8, 9])
    assert inflight.find(5, 9, 1) == 1, "the next ones are of another run"
    assert inflight.find(2, 1, 1) < 0, "it is acknowledged"
    assert inflight.find(1, 1, 2) < 0, "of another QoS"
    assert inflight.find(10, 1, 2) < 0


def test_a_part_knows_what_is_known_of_its_run() -> None:
    inflight = in_flight(run_of(4, 4, 2))
    inflight.runs[inflight.find(5, 2, 2)].release()
    inflight.runs[inflight.find(6, 2, 2)].set_sent(False)
    parts = [(run.packet_id, len(run), run.released, run.is_sent) for run in inflight.runs]
    assert parts == [(4, 1, False, True), (5, 1, True, True), (6, 1, True, False), (7, 1, False, True)]
    assert inflight.next_unsent(0) == 2


def test_what_is_sent_again_differs_in_dup_alone() -> None:
    messages = [Publish("t", b"x")]
    run = Delivery(messages, 2, True, False, 9, (7,), 12, True, is_sent=False)
    assert run.repeated() == Delivery(messages, 2, True, True, 9, (7,), 12, True)


def test_messages_in_columns_become_packets_when_they_are_asked_for() -> None:
    columns = Columns(["0é".encode(), "1é".encode()], [b"", b"x"])
    inflight = in_flight(Delivery([], 1, True, False, 9, (), 9, columns=columns))
    assert (inflight.ids(), len(inflight)) == ([9, 10], 2)
    inflight.remove(inflight.find(9, 1, 1))
    [left] = inflight.runs
    assert (left.packet_id, left.sequence, left.size_bytes()) == (10, 10, 3 + 1)
    assert left.unpacked() == [Publish("1é", b"x", 1, True)]


def test_a_packet_identifier_is_found_in_a_window_of_any_size_and_behind_the_highest_one() -> None:
    """Random runs and acknowledgements, against a dict by packet identifier."""
    random = Random(3)
    for first in (1, PACKET_IDS - 40, 3 * PACKET_IDS - 5):
        inflight, expected = Inflight(), dict[int, int]()
        sequence = first
        for _ in range(3_000):
            if random.random() < 0.3:
                count = min(random.choice([1, 1, 5]), PACKET_IDS + 1 - packet_id_of(sequence))
                inflight.add(run_of(sequence, count))
                expected |= {packet_id_of(number): number for number in range(sequence, sequence + count)}
                sequence += count
            asked = packet_id_of(random.randint(max(first, sequence - 120), sequence + 5))
            place = inflight.find(asked, random.choice([1, 3]), 1)
            assert (place >= 0) == (asked in expected)
            if place >= 0:
                run = inflight.remove(place)
                for number in range(len(run)):
                    assert expected.pop(run.packet_id + number) == run.sequence + number
            assert inflight.ids() == list(expected)
            assert len(inflight) == len(expected)
