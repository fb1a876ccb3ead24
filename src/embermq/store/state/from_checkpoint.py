"""A state made from the records of a checkpoint (docs/log-format.md, "Checkpoints").

Owns: applying such records, of which each has an offset of its own, to an empty state.
Never: reading a checkpoint, or what follows it in the log.
"""

from struct import Struct
from typing import Final, final

from embermq.store.budgets import NOT_RETAINED
from embermq.store.log.checkpoint import END_KIND, CheckpointGroup
from embermq.store.log.records import Group, Kind
from embermq.store.state.retained import BUDGET, TOTALS, RetainedState
from embermq.store.state.retained_keys import EXPIRY, INSTANT, RETAINED, SEPARATOR, history_key, key_topic
from embermq.store.state.retained_values import EXPIRING, REFERENCE, packed_record
from embermq.store.state.sessions import SessionState
from embermq.store.state.wills import WillState
from embermq.store.state.write_buffer import Batch

_TOTALS: Final = Struct("<QQ")
_WITH_OFFSETS: Final = frozenset((int(Kind.SESSION_OPENED), int(Kind.SUBSCRIBED), int(Kind.SHARED_QUEUE_OPENED)))


@final
class Restoration:
    """Fills an empty state: `stage` and, once that is written, `count` for each group; `finish` adds the totals."""

    __slots__ = ("_account", "_count", "_retained", "_sessions", "_size_bytes", "_wills")

    def __init__(self, retained: RetainedState, sessions: SessionState, wills: WillState) -> None:
        self._retained: Final = retained
        self._sessions: Final = sessions
        self._wills: Final = wills
        self._account: Final = retained.account()
        self._count = 0
        self._size_bytes = 0

    def stage(self, batch: Batch, found: CheckpointGroup) -> None:
        """Put in the batch what these records say."""
        group = found.group
        others = Group(1)
        for row, kind in enumerate(group.kinds):
            if kind == Kind.PUBLISH:
                self._stage_retained(batch, group, row, found.offsets[row])
            elif kind == Kind.WILL_SET:
                self._wills.stage(batch, group, [row])
            elif kind in _WITH_OFFSETS:
                # What is made of these depends on their offsets, so each is the only record of a group.
                alone = Group(found.offsets[row])
                alone.append_row(group, row)
                self._sessions.stage(batch, alone, [0])
            elif kind != END_KIND:
                others.append_row(group, row)
        if others.topics:
            self._sessions.stage(batch, others, list(range(len(others))))

    def _stage_retained(self, batch: Batch, group: Group, row: int, offset: int) -> None:
        key = group.topics[row].replace(b"/", SEPARATOR)
        topic_name = key_topic(key)
        timestamp_us = group.timestamps_us[row]
        change = REFERENCE
        expires_us = self._account.expires_us(topic_name, group.properties[row], timestamp_us)
        if expires_us:
            batch.put(EXPIRY + INSTANT.pack(expires_us) + key, b"")
            change = EXPIRING + expires_us.to_bytes(8, "little")
        batch.put(RETAINED + key, packed_record(group, row, expires_us, offset))
        batch.put(history_key(key, timestamp_us, offset), change)

    def count(self, found: CheckpointGroup) -> None:
        """Count the retained messages of a group."""
        group = found.group
        for row, kind in enumerate(group.kinds):
            if kind == Kind.PUBLISH:
                size_bytes = len(group.topics[row]) + len(group.payloads[row])
                self._account.change(group.topics[row].decode(), NOT_RETAINED, size_bytes)
                self._count += 1
                self._size_bytes += size_bytes

    def finish(self, batch: Batch) -> None:
        """Put the totals in the batch; `RetainedState.load` takes them from there."""
        batch.put(TOTALS, _TOTALS.pack(self._count, self._size_bytes))
        for topic_filter, count, size_bytes in self._account.totals():
            batch.put(BUDGET + topic_filter.encode(), _TOTALS.pack(count, size_bytes))
