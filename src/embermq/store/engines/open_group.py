"""The open group: what has been appended since the last commit.

Owns: the commit group that is being filled, the queues that are dirty in it, and whether effects wait for it.
Never: a file, a thread. `disk` closes it; the committer makes it durable.
"""

from array import array
from typing import Final, final

from embermq.store.log.queued_ids import RUN_BYTES, IdRun, add_ids, pack_runs
from embermq.store.records import QUEUE_ENTRY_BYTES, Acknowledged, Queued, Record
from embermq.store.rows import RECORD_OVERHEAD_BYTES, Group


@final
class QueueTail:
    """The sequence numbers of one session's queue, and the entries that were pushed since the last commit."""

    __slots__ = ("acknowledged", "durable", "entries", "has_ids", "id_runs", "last", "recorded", "session_id")

    def __init__(self, session_id: int, acknowledged: int, last: int, has_ids: bool = False) -> None:
        self.session_id: Final = session_id
        self.last = last  # the newest that was pushed
        self.durable = last  # the newest that may be read
        self.acknowledged = acknowledged
        self.recorded = acknowledged  # the newest acknowledged number already put in a closed group
        self.entries = array("Q")  # as `queue_entry` makes them
        self.id_runs: list[IdRun] = []  # the Subscription Identifiers of these entries
        self.has_ids = has_ids  # whether any entry may have Subscription Identifiers; if not, none are read

    def push(self, entry: int, subscription_ids: tuple[int, ...]) -> int:
        """Add an entry; returns its sequence number."""
        if subscription_ids:
            self.has_ids = True
            add_ids(self.id_runs, len(self.entries), subscription_ids)
        self.entries.append(entry)
        self.last += 1
        return self.last

    def acknowledge(self, sequence: int) -> None:
        """Everything up to a sequence number is done."""
        self.acknowledged = sequence

    def take_records(self) -> list[Record]:
        """The records of what was pushed and acknowledged since the last commit. It counts as recorded from now on."""
        records: list[Record] = []
        if self.entries:
            first = self.last - len(self.entries) + 1
            records.append(Queued(self.session_id, first, self.entries.tobytes(), pack_runs(self.id_runs)))
            self.entries = array("Q")
            self.id_runs = []
        if self.acknowledged > self.recorded:
            records.append(Acknowledged(self.session_id, self.acknowledged))
            self.recorded = self.acknowledged
        return records

    def applied(self, last: int) -> None:
        """What was pushed up to a sequence number is in the state, and may be read."""
        self.durable = last


@final
class ClosedGroup:
    """A complete group and the queues it has entries or acknowledgements of, each with its newest sequence number."""

    __slots__ = ("group", "tails")

    def __init__(self, group: Group, tails: list[tuple[QueueTail, int]]) -> None:
        self.group: Final = group
        self.tails: Final = tails


@final
class OpenGroup:
    """Records that are appended and not committed yet."""

    __slots__ = (
        "_dirty",
        "_sender",
        "_sender_id",
        "_topic",
        "_topic_name",
        "group",
        "must_be_applied",
        "must_be_durable",
        "now_us",
        "reference_floor",
    )

    def __init__(self, next_offset: int, now_us: int, reference_floor: int = 0) -> None:
        self.group = Group(next_offset)
        self.now_us = now_us
        self.must_be_durable = False  # an effect waits until the group is durable
        self.must_be_applied = False  # an effect waits until the group is applied to the state
        self.reference_floor = reference_floor  # older records may be trimmed: a queue gets copies of them
        self._dirty: dict[int, QueueTail] = {}  # by session id
        self._sender_id = ""  # the client id that `_sender` is the bytes of
        self._sender = b""
        self._topic_name = ""  # the same for the topic name of the last message
        self._topic = b""

    def sender(self, client_id: str) -> bytes:
        """A client id as bytes, remembered: most messages come from the client of the one before."""
        if client_id is not self._sender_id:
            self._sender_id = client_id
            self._sender = client_id.encode()
        return self._sender

    def topic(self, topic_name: str) -> bytes:
        """A topic name as bytes, remembered in the same way."""
        if topic_name is not self._topic_name:
            self._topic_name = topic_name
            self._topic = topic_name.encode()
        return self._topic

    def begin_turn(self, now_us: int) -> None:
        """The instant of all that is appended from now on; never before that of the turn before."""
        if now_us > self.now_us:
            self.now_us = now_us

    def begin_at(self, next_offset: int, now_us: int, reference_floor: int) -> None:
        """Nothing was appended here yet, and the log has grown."""
        self.group = Group(next_offset)
        self.reference_floor = reference_floor
        self.begin_turn(now_us)

    def raise_floor(self, reference_floor: int) -> None:
        """Records before an offset may be trimmed."""
        self.reference_floor = reference_floor

    def wait_durable(self) -> None:
        """An effect waits until the group is durable."""
        self.must_be_durable = True

    def wait_applied(self) -> None:
        """An effect waits until the group is durable and applied."""
        self.must_be_durable = self.must_be_applied = True

    def append(self, record: Record) -> int:
        """Add a record; returns its offset."""
        if record.is_waited_for():
            self.must_be_durable = True
        if record.is_read_back():
            self.must_be_applied = True
        queue_id = record.ended_queue_id()
        if queue_id:  # what its queue has not recorded is of no use
            self._dirty.pop(queue_id, None)
        return self.group.add(record.row(self.group.next_offset, self.now_us))

    def next_offset(self) -> int:
        return self.group.next_offset

    def is_empty(self) -> bool:
        return not len(self.group) and not self._dirty

    def push(self, tail: QueueTail, entry: int, subscription_ids: tuple[int, ...] = ()) -> int:
        """Add an entry to a queue; returns its sequence number."""
        self._dirty[tail.session_id] = tail
        self.must_be_durable = self.must_be_applied = True
        self.group.grow(QUEUE_ENTRY_BYTES + RUN_BYTES if subscription_ids else QUEUE_ENTRY_BYTES)
        return tail.push(entry, subscription_ids)

    def acknowledge(self, tail: QueueTail, sequence: int) -> None:
        """Everything in a queue up to a sequence number is done."""
        tail.acknowledge(sequence)
        if tail.session_id not in self._dirty:
            self._dirty[tail.session_id] = tail
            # Its record is made when the group is closed. Count it now, so that a group of nothing else is not empty.
            self.group.grow(RECORD_OVERHEAD_BYTES)

    def close(self) -> ClosedGroup:
        """Complete the group with the records of its dirty queues, and begin the next."""
        tails: list[tuple[QueueTail, int]] = []
        for tail in self._dirty.values():
            for record in tail.take_records():
                self.append(record)
            tails.append((tail, tail.last))
        closed = ClosedGroup(self.group, tails)
        self.group = Group(self.next_offset())
        self._dirty = {}
        self.must_be_durable = self.must_be_applied = False
        return closed
