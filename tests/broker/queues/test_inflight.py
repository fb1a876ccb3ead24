"""What is in flight: runs are answered in their order, and anything else parts them. Scripts: test_shortcuts.py."""

from embermq.broker.queues.inflight import RUNS_MAX, Inflight, SentRun
from embermq.protocol.packets import Delivery, Publish
from embermq.store.interface import Retained, RetainedPiece


def run_of(first: int, count: int, qos: int = 1) -> SentRun:
    messages = [Publish("t", bytes(number), qos) for number in range(count)]
    return SentRun(first, first, qos, messages, None, (7,), sum(1 + number for number in range(count)))


def in_flight(*runs: SentRun) -> Inflight:
    inflight = Inflight()
    for run in runs:
        inflight.add_run(run)
    return inflight


def test_a_run_is_acknowledged_in_parts_and_over_the_end_of_another() -> None:
    inflight = in_flight(run_of(1, 5), run_of(6, 4))
    assert (len(inflight), inflight.ids(), inflight.oldest_sequence()) == (9, [*range(1, 10)], 1)
    assert inflight.finish(1, 2, True) == (2, 1 + 2)
    assert (len(inflight), inflight.oldest_sequence()) == (7, 3)
    assert inflight.finish(3, 5, True) == (5, 3 + 4 + 5 + 1 + 2)
    assert inflight.ids() == [8, 9]
    assert inflight.finish(8, 9, True) == (2, 3 + 4), "the identifiers behind the newest are unknown"
    assert (len(inflight), inflight.ids()) == (0, [])


def test_what_is_not_the_next_of_a_run_is_left_to_the_general_path() -> None:
    inflight = in_flight(run_of(1, 5), run_of(6, 4, 2))
    assert inflight.finish(2, 2, True) == (0, 0)
    assert inflight.finish(1, 2, False) == (0, 0), "PUBCOMP of QoS 1"
    assert inflight.finish(6, 2, True) == (0, 0), "PUBACK of QoS 2"
    assert inflight.finish(6, 2, False) == (0, 0), "PUBREC must come first"
    assert inflight.release(1, 2) == 0, "PUBREC of QoS 1"
    assert inflight.release(6, 3) == 3
    assert inflight.release(6, 3) == 0, "again"
    assert inflight.finish(6, 4, False) == (3, 1 + 2 + 3)
    assert inflight.ids() == [1, 2, 3, 4, 5, 9]


def test_parted_runs_are_deliveries_with_what_is_known_of_each() -> None:
    inflight = in_flight(run_of(4, 4, 2))
    older = Delivery(Publish("o", b"", 1), 1, packet_id=1, sequence=1)
    inflight.by_id[1] = older
    assert inflight.release(4, 3) == 3
    assert inflight.finish(4, 1, False) == (1, 1)
    parted = inflight.parted()
    assert list(parted) == inflight.ids() == [1, 5, 6, 7]
    assert [parted[packet_id].released for packet_id in (5, 6, 7)] == [True, True, False]
    assert parted[5] == Delivery(Publish("t", b"\0", 2), 2, False, False, 5, (7,), 5, True)
    assert (len(inflight), inflight.runs) == (4, [])
    assert inflight.finish(5, 1, False) == (0, 0)


def test_retained_messages_become_packets_when_they_are_parted() -> None:
    found = [Retained(f"{n}é".encode(), bytes(n), 2, b"", n, 0) for n in range(4)]
    piece = RetainedPiece(found, "", True, 0, 0)
    inflight = in_flight(SentRun(9, 9, 1, [], piece, (), sum(2 + n for n in range(4))))
    assert inflight.finish(9, 1, True) == (1, 2), "characters of the topic name count, not bytes"
    [delivery, *_] = inflight.parted().values()
    assert delivery == Delivery(Publish("1é", b"\0", 2, True), 1, True, False, 10, (), 10)


def test_the_runs_are_bounded() -> None:
    inflight = in_flight(*[run_of(1 + 4 * number, 4) for number in range(RUNS_MAX + 1)])
    assert len(inflight.runs) == 1
    assert inflight.ids() == [*range(1, 4 * RUNS_MAX + 5)]
    assert len(inflight) == 4 * RUNS_MAX + 4
