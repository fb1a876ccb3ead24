"""Records: a group in columns, and the entry of a queue."""

from embermq.store.log.records import QOS_MASK, RECORD_OVERHEAD_BYTES, RETAIN_FLAG, Columns, Group, Kind, queue_entry


def test_offsets_follow_one_another_from_the_first_of_the_group() -> None:
    group = Group(40)
    assert [group.append(1, Kind.PUBLISH, 0, b"t", b"p", b"c") for _ in range(3)] == [40, 41, 42]
    assert len(group) == 3


def test_the_size_of_a_group_counts_every_column() -> None:
    group = Group(1)
    group.append(1, Kind.PUBLISH, 0, b"topic", b"payload", b"client", b"properties")
    assert group.size_bytes == len("topicpayloadclientproperties") + RECORD_OVERHEAD_BYTES


def test_the_lists_have_what_the_state_asks_for_at_its_row() -> None:
    group = Group(40, Columns())
    for number in range(2):
        assert group.append_unapplied(1, 1, b"t", b"p", b"c", b"") == 40 + number
    assert (len(group), group.topics) == (2, [])
    assert group.append(2, Kind.PUBLISH, RETAIN_FLAG, b"kept", b"p", b"c") == 42
    assert group.append_unapplied(3, 1, b"t", b"p", b"c", b"") == 43
    assert (len(group), group.topics) == (4, [b"", b"", b"kept"])
    assert group.kinds == [Kind.PUBLISH] * 3
    assert group.flags == [0, 0, RETAIN_FLAG]
    assert (group.first_timestamp_us, group.timestamps_us[2], group.last_timestamp_us) == (1, 2, 3)
    assert len(group.payloads) == len(group.client_ids) == len(group.properties) == 3


def test_an_entry_holds_offset_qos_and_retain() -> None:
    for qos in (1, 2):
        for retain in (False, True):
            entry = queue_entry(2**60, qos, retain)
            assert (entry >> 3, entry & QOS_MASK, bool(entry & RETAIN_FLAG)) == (2**60, qos, retain)
            assert entry < 2**64
