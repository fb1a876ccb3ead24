"""Rows: a group in columns, and the rows that the state asks for."""

from embermq.store.rows import RECORD_OVERHEAD_BYTES, RETAIN_FLAG, Group, Kind


def test_offsets_follow_one_another_from_the_first_of_the_group() -> None:
    group = Group(40)
    assert [group.append(1, Kind.PUBLISH, 0, b"t", b"p", b"c") for _ in range(3)] == [40, 41, 42]
    assert len(group) == 3


def test_the_size_of_a_group_counts_every_column() -> None:
    group = Group(1)
    group.append(1, Kind.PUBLISH, 0, b"topic", b"payload", b"client", b"properties")
    assert group.size_bytes == len("topicpayloadclientproperties") + RECORD_OVERHEAD_BYTES


def test_a_group_has_the_rows_that_the_state_asks_for_with_their_offsets() -> None:
    group = Group(40)
    for number in range(2):
        assert group.append_unapplied(1, Kind.PUBLISH, 1, b"t", b"p", b"c", b"") == 40 + number
    assert (len(group), group.rows) == (2, [])
    assert group.append(2, Kind.PUBLISH, RETAIN_FLAG, b"kept", b"p", b"c") == 42
    assert group.append_unapplied(3, Kind.PUBLISH, 1, b"t", b"p", b"c", b"") == 43
    assert (len(group), group.next_offset, group.columns.count) == (4, 44, 4)
    assert [(row.offset, row.timestamp_us, row.flags, row.topic) for row in group.rows] == [
        (42, 2, RETAIN_FLAG, b"kept")
    ]
    assert (group.columns.first_timestamp_us, group.columns.last_timestamp_us) == (1, 3)
