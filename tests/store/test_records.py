"""Records: each kind is read back from the log, and from the state, as it was appended."""

from pathlib import Path

import pytest

from embermq.protocol.packets import Publish, SubscriptionRequest, Will
from embermq.store.records import (
    SESSION_EXPIRY,
    Acknowledged,
    Connected,
    Disconnected,
    PositionMoved,
    Published,
    PubrelReceived,
    Queued,
    Received,
    Record,
    Released,
    RetainedCopy,
    RetainedPosition,
    RetainedRemoved,
    SessionEnded,
    SessionExpiryChanged,
    SessionOpened,
    SessionResumed,
    SharedQueueEnded,
    SharedQueueOpened,
    Subscribed,
    Unsubscribed,
    WillCleared,
    WillSet,
    queue_entry,
    unpack,
)
from embermq.store.rows import QOS_MASK, RETAIN_FLAG, Group, Kind, LogRow
from embermq.store.state.state import State

ID = 2**40 + 7
ENTRIES = b"".join(queue_entry(offset, 1, False).to_bytes(8, "little") for offset in (5, 6, 7))
RECORDS: dict[Kind, Record] = {
    Kind.PUBLISH: Published(Publish("a/ü", b"\x00\xff", 2, True, properties=b"\x01\x01"), "device"),
    Kind.RETAINED_REMOVED: RetainedRemoved("a/b", "expired"),
    Kind.CONNECTED: Connected("device", "a name\nof two lines", True, "MQTT 5.0", "192.0.2.1:50000"),
    Kind.DISCONNECTED: Disconnected("device", ID, "", 9),
    Kind.SESSION_OPENED: SessionOpened(ID, "device", "usér", 3_600),
    Kind.SESSION_RESUMED: SessionResumed(ID, "device", 60),
    Kind.SESSION_ENDED: SessionEnded(ID, "device"),
    Kind.SUBSCRIBED: Subscribed("device", ID, SubscriptionRequest("a/+", 2, True, True, 2, 268_435_455), False),
    Kind.UNSUBSCRIBED: Unsubscribed("device", ID, "a/+"),
    Kind.QUEUED: Queued(ID, 8, ENTRIES, b""),
    Kind.RETAINED_COPY: RetainedCopy(Publish("a", b"x", 1, True)),
    Kind.RELEASED: Released(ID, 9),
    Kind.ACKNOWLEDGED: Acknowledged(ID, 7),
    Kind.RECEIVED: Received(ID, "device", 65_535),
    Kind.PUBREL: PubrelReceived(ID, "device", 255),
    Kind.POSITION: PositionMoved(ID, "device", RetainedPosition("a/+", 1, 77, "a/b"), False),
    Kind.WILL_SET: WillSet("device", ID, "usér", Will("w", b"gone", 1, True, 30, b"\x01\x00")),
    Kind.WILL_CLEARED: WillCleared("device"),
    Kind.SESSION_EXPIRY_CHANGED: SessionExpiryChanged(ID, "device", 0),
    Kind.SHARED_QUEUE_OPENED: SharedQueueOpened(ID + 1, "$share/g/a"),
    Kind.SHARED_QUEUE_ENDED: SharedQueueEnded(ID + 1, "$share/g/a"),
}


def packed(*records: Record) -> Group:
    group = Group(100)
    for record in records:
        group.add(record.row(group.next_offset, 1))
    return group


@pytest.mark.parametrize("kind", list(Kind), ids=lambda kind: kind.name)
def test_a_record_of_each_kind_is_unpacked_as_it_was_packed(kind: Kind) -> None:
    group = packed(RECORDS[kind])
    (row,) = group.rows
    assert row.kind == kind
    found = unpack(row)
    assert found is not None and type(found) is type(RECORDS[kind])
    assert found == RECORDS[kind]
    assert sum(found == other for other in RECORDS.values()) == 1


def test_a_kind_of_a_newer_server_is_none() -> None:
    assert unpack(LogRow(1, 1, max(Kind) + 1, 0, b"", b"", b"")) is None


@pytest.mark.parametrize("kind", [Kind.SESSION_OPENED, Kind.QUEUED, Kind.RECEIVED, Kind.PUBREL, Kind.WILL_SET])
def test_a_payload_that_is_too_short_is_an_error(kind: Kind) -> None:
    with pytest.raises(ValueError, match="too short"):
        unpack(LogRow(1, 1, kind, 0, b"", b"\x01", b""))


def test_in_older_records_the_id_is_the_offset() -> None:
    opened = LogRow(100, 1, Kind.SESSION_OPENED, 0, b"", SESSION_EXPIRY.pack(0, 60) + b"user", b"device")
    shared = LogRow(101, 1, Kind.SHARED_QUEUE_OPENED, 0, b"$share/g/a", b"", b"")
    assert unpack(opened) == SessionOpened(100, "device", "user", 60)
    assert unpack(shared) == SharedQueueOpened(101, "$share/g/a")


def test_the_state_gives_back_the_records_that_it_is_made_of(tmp_path: Path) -> None:
    kept = [
        Kind.SHARED_QUEUE_OPENED,
        Kind.PUBLISH,
        Kind.SESSION_OPENED,
        Kind.DISCONNECTED,
        Kind.SUBSCRIBED,
        Kind.POSITION,
        Kind.RECEIVED,
        Kind.ACKNOWLEDGED,
        Kind.RELEASED,
        Kind.QUEUED,
        Kind.WILL_SET,
    ]
    state = State(tmp_path)
    state.apply(packed(*(RECORDS[kind] for kind in kept)))
    found = list(state.view().records())
    assert [logged.record for logged in found] == [RECORDS[kind] for kind in kept]
    assert {type(logged.record): logged.offset for logged in found if logged.offset} == {
        Published: 101,
        Subscribed: 104,
    }
    state.close()


def test_an_entry_holds_offset_qos_and_retain() -> None:
    for qos in (1, 2):
        for retain in (False, True):
            entry = queue_entry(2**60, qos, retain)
            assert (entry >> 3, entry & QOS_MASK, bool(entry & RETAIN_FLAG)) == (2**60, qos, retain)
            assert entry < 2**64
