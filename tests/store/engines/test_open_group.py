"""The open group: what it gathers, and what it says of its queues when it is closed."""

from array import array

from embermq.store.engines.open_group import OpenGroup, QueueTail
from embermq.store.records import SESSION_SEQUENCE, RetainedRemoved, SessionEnded, queue_entry
from embermq.store.rows import Kind


def records(group: OpenGroup) -> list[tuple[int, bytes]]:
    """Kind and payload of each record of the group, which this closes."""
    closed = group.close().group
    return [(row.kind, row.payload) for row in closed.rows]


def test_a_group_that_is_closed_is_followed_by_one_with_the_next_offset() -> None:
    open_group = OpenGroup(7, now_us=50)
    assert open_group.is_empty()
    assert open_group.append(RetainedRemoved("t", "x")) == 7
    assert open_group.must_be_durable
    assert open_group.must_be_applied
    closed = open_group.close()
    assert (closed.group.first_offset, len(closed.group), closed.group.rows[0].timestamp_us) == (7, 1, 50)
    assert open_group.is_empty()
    assert open_group.next_offset() == 8
    assert not open_group.must_be_durable
    assert not open_group.must_be_applied


def test_the_entries_of_a_queue_become_one_record_with_its_first_sequence_number() -> None:
    open_group = OpenGroup(1, 0)
    tail = QueueTail(3, acknowledged=4, last=9)
    entries = [queue_entry(offset, 1, False) for offset in (20, 21)]
    assert [open_group.push(tail, entry) for entry in entries] == [10, 11]
    assert open_group.must_be_durable
    assert open_group.must_be_applied
    expected = SESSION_SEQUENCE.pack(3, 10) + array("Q", entries).tobytes()
    assert records(open_group) == [(Kind.QUEUED, expected)]
    assert open_group.is_empty()


def test_a_queue_is_brought_forward_to_where_it_was_when_the_group_was_closed() -> None:
    open_group = OpenGroup(1, 0)
    tail = QueueTail(3, 0, 0)
    open_group.push(tail, queue_entry(1, 1, False))
    closed = open_group.close()
    open_group.push(tail, queue_entry(2, 1, False))
    assert closed.tails == [(tail, 1)]
    assert (tail.last, tail.durable) == (2, 0)


def test_an_acknowledgement_alone_makes_a_group_that_is_not_empty_and_that_nothing_waits_for() -> None:
    open_group = OpenGroup(1, 0)
    tail = QueueTail(3, acknowledged=0, last=9)
    open_group.acknowledge(tail, 4)
    open_group.acknowledge(tail, 5)
    assert not open_group.is_empty()
    assert open_group.group.size_bytes > 0
    assert not open_group.must_be_durable
    assert records(open_group) == [(Kind.ACKNOWLEDGED, SESSION_SEQUENCE.pack(3, 5))]
    open_group.push(tail, queue_entry(1, 1, False))
    assert [kind for kind, _ in records(open_group)] == [Kind.QUEUED]


def test_a_session_that_has_ended_leaves_no_records_of_its_queue() -> None:
    open_group = OpenGroup(1, 0)
    open_group.push(QueueTail(3, 0, 0), queue_entry(1, 1, False))
    open_group.append(SessionEnded(3, "device"))
    assert [kind for kind, _ in records(open_group)] == [Kind.SESSION_ENDED]
