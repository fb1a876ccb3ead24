"""Retained messages in the state: by topic, counted, with their expiries and their history.

Owns: a retained message as bytes, what a group's retained publishes and clears change, and every question about what
is retained now. What was retained at an instant is a question to `history`.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from struct import Struct
from typing import Final, final

from librt.strings import BytesWriter, read_i32_le, read_i64_le, write_i32_le, write_i64_le

from embermq.store.budgets import NOT_RETAINED, RetainedAccount, RetainedBudget
from embermq.store.interface import Retained, RetainedPiece
from embermq.store.log.records import QOS_MASK, Group, Kind, write_length
from embermq.store.state.retained_keys import (
    HISTORY,
    SEPARATOR,
    BoundedSeeks,
    KeyCursor,
    history_key,
    history_key_of,
    key_topic,
    piece_of,
    ranges,
    topic_key,
    topic_keys,
    walk,
)
from embermq.store.state.retained_sizes import ABSENT, SIZE_BITS, SIZE_MASK, UNKNOWN, Sizes, known
from embermq.store.state.rocks import Rocks
from embermq.store.state.write_buffer import NEW_VALUE, Batch, StateIterator

RETAINED: Final = b"R"
RETAINED_END: Final = b"S"
HEAD: Final = Struct("<QQQBHI")  # offset, timestamp (us), expires (us, 0 never), qos, lengths: client id, properties;
# as `packed_record` writes them. The same, for `unpack_retained`, where unpacking to objects would be half of the time:
_OFFSET_AT: Final = 0
_TIMESTAMP_AT: Final = 8
_EXPIRES_AT: Final = 16
_QOS_AT: Final = 24
_CLIENT_ID_BYTES_AT: Final = 25
_PROPERTY_BYTES_AT: Final = 27
_HEAD_BYTES: Final = 31
# What a change of a topic made of its retained message, as the first byte of its value.
CLEARED: Final = b"\x00"
REFERENCE: Final = NEW_VALUE  # to the record in the log
COPY: Final = b"\x02"  # then the message, packed
EXPIRING: Final = b"\x03"  # as REFERENCE; then when the message expires
TOTALS: Final = b"\x00totals"
BUDGET: Final = b"\x00budget/"
BUDGET_END: Final = b"\x00budget0"
EXPIRY: Final = b"E"
_TOTALS: Final = Struct("<QQ")  # count, bytes
_INSTANT: Final = Struct(">Q")
_PUBLISH: Final = int(Kind.PUBLISH)


def packed_record(group: Group, row: int, expires_us: int = 0, offset: int = 0) -> bytes:
    """The retained message that a record of a group makes, as the state keeps it.

    `offset` is where it is in the log if its group does not say so.
    """
    client_id, properties = group.client_ids[row], group.properties[row]
    writer = BytesWriter()
    write_i64_le(writer, offset or group.first_offset + row)
    write_i64_le(writer, group.timestamps_us[row])
    write_i64_le(writer, expires_us)
    writer.append(group.flags[row] & QOS_MASK)
    write_length(writer, len(client_id))
    write_i32_le(writer, len(properties))
    writer.write(client_id)
    writer.write(properties)
    writer.write(group.payloads[row])
    return writer.getvalue()


def unpack_retained(key: bytes, value: bytes) -> Retained:
    """The message of a topic key."""
    client_id_end = _HEAD_BYTES + (value[_CLIENT_ID_BYTES_AT] | value[_CLIENT_ID_BYTES_AT + 1] << 8)
    payload_at = client_id_end + read_i32_le(value, _PROPERTY_BYTES_AT)
    return Retained(
        key.replace(SEPARATOR, b"/"),
        value[payload_at:],
        value[_QOS_AT],
        value[client_id_end:payload_at],
        read_i64_le(value, _OFFSET_AT),
        read_i64_le(value, _TIMESTAMP_AT),
        value[_HEAD_BYTES:client_id_end],
        read_i64_le(value, _EXPIRES_AT),
    )


def value_expires_us(value: bytes) -> int:
    """When the message expires; 0: never."""
    return int.from_bytes(value[16:24], "little")


def with_expiry(value: bytes, expires_us: int) -> bytes:
    """The same message, which expires at an instant."""
    return value[:16] + expires_us.to_bytes(8, "little") + value[24:]


def value_offset(value: bytes) -> int:
    """Where in the log the message is."""
    return read_i64_le(value, _OFFSET_AT)


def value_size(key: bytes, value: bytes) -> int:
    """Its bytes as totals and budgets count them: topic and payload."""
    _, _, _, _, client_id_bytes, property_bytes = HEAD.unpack_from(value)
    size_bytes: int = len(key) + len(value) - HEAD.size - client_id_bytes - property_bytes
    return size_bytes


@final
class RetainedCursor(KeyCursor):
    """A place among the retained messages."""

    __slots__ = ("_iterator",)

    def __init__(self, iterator: StateIterator) -> None:
        self._iterator: Final = iterator

    def seek(self, key: bytes) -> bytes | None:
        self._iterator.seek(RETAINED + key)
        return self._key()

    def next(self) -> bytes | None:
        self._iterator.next()
        return self._key()

    def value(self) -> bytes:
        value: bytes = self._iterator.value()
        return value

    def _key(self) -> bytes | None:
        if not self._iterator.valid():
            return None
        key: bytes = self._iterator.key()
        return key[1:]


@final
class RetainedChanges:
    """The totals after a group; valid once its batch is written."""

    __slots__ = ("account", "keys", "sizes", "totals")

    def __init__(
        self, totals: tuple[int, int], account: RetainedAccount, keys: Sequence[bytes], sizes: Sequence[int]
    ) -> None:
        self.totals: Final = totals
        self.account: Final = account
        self.keys: Final = keys
        self.sizes: Final = sizes  # what `Sizes` remembers of each key from now on


@final
class RetainedState:
    """The retained part of the state. `history_floor`: offsets below are trimmed or about to be."""

    __slots__ = (
        "_account",
        "_budgets",
        "_rocks",
        "_make_sizes",
        "_sizes",
        "_totals",
        "history_floor",
    )

    def __init__(
        self, rocks: Rocks, budgets: Sequence[RetainedBudget], make_sizes: Callable[[], Sizes] = Sizes
    ) -> None:
        self._rocks: Final = rocks
        self._make_sizes: Final = make_sizes
        self._budgets: Final = tuple(budgets)
        self.history_floor = 0
        self.load()

    def load(self) -> None:
        """Take the totals from the database."""
        totals = self._rocks.get(TOTALS)
        self._totals: tuple[int, int] = _TOTALS.unpack(totals) if totals else (0, 0)
        self._account = self._load_account()
        self._sizes = self._make_sizes()

    # -- applying ------------------------------------------------------------------------------------------------

    def stage(self, batch: Batch, group: Group, rows: list[int]) -> RetainedChanges:
        """Put in the batch what these records, retained publishes and removals, change.

        Pass the result to `adopt` after the batch is written.
        """
        payloads, kinds, first_offset = group.payloads, group.kinds, group.first_offset
        put, messages = batch.put, batch.space(RETAINED[0]).entries
        newest: dict[bytes, int] = {}
        expiries = self._stage_history(batch, group, rows, newest)
        remembered = self._sizes.look_up(newest)
        read = self._read_unknown(newest, remembered)
        count, size_bytes = self._totals
        account = self._account.copy()
        has_budgets = len(account) > 0
        remember: list[int] = []
        for (key, row), known_size in zip(newest.items(), remembered, strict=True):
            old_bytes = new_bytes = NOT_RETAINED
            if key in read:
                old = read[key]
                if old is not None:
                    old_bytes = self._stage_replaced(batch, key, old)
            elif known_size != ABSENT:
                old_bytes = known_size & SIZE_MASK
            if old_bytes != NOT_RETAINED:
                count -= 1
                size_bytes -= old_bytes
            payload = payloads[row]
            if payload and kinds[row] == _PUBLISH:
                new_bytes = len(key) + len(payload)
                count += 1
                size_bytes += new_bytes
                expires_us = expiries.get(key, 0)
                if expires_us:
                    put(EXPIRY + _INSTANT.pack(expires_us) + key, b"")
                remember.append(UNKNOWN if expires_us else known(first_offset + row, new_bytes))
                value = packed_record(group, row, expires_us)
                messages[RETAINED + key] = value
                batch.size_bytes += len(key) + len(value)
            else:
                remember.append(ABSENT)
                # Delete even if `Sizes` says absent (of another topic with its hash), unless the database said so.
                if key not in read or old_bytes != NOT_RETAINED:
                    batch.delete(RETAINED + key)
            if has_budgets:
                account.change(key_topic(key), old_bytes, new_bytes)
        put(TOTALS, _TOTALS.pack(count, size_bytes))
        for topic_filter, budget_count, budget_bytes in account.totals():
            put(BUDGET + topic_filter.encode(), _TOTALS.pack(budget_count, budget_bytes))
        return RetainedChanges((count, size_bytes), account, list(newest), remember)

    def _stage_history(self, batch: Batch, group: Group, rows: list[int], newest: dict[bytes, int]) -> dict[bytes, int]:
        """Enter each change in the history, and the last row of each topic in `newest`; returns the topics whose last
        message expires, with the instant.
        """
        payloads, kinds, properties = group.payloads, group.kinds, group.properties
        first_offset, timestamps_us = group.first_offset, group.timestamps_us
        account = self._account
        may_expire = account.may_expire
        changes = batch.space(HISTORY[0])
        expiries: dict[bytes, int] = {}
        topics = group.topics if len(rows) == len(group) else [group.topics[row] for row in rows]
        keys, escaped_keys = topic_keys(topics)
        for row, key, escaped in zip(rows, keys, escaped_keys, strict=True):
            newest[key] = row
            change, expires_us = CLEARED, 0
            if payloads[row] and kinds[row] == _PUBLISH:
                change = REFERENCE
                if may_expire or properties[row]:
                    expires_us = account.expires_us(key_topic(key), properties[row], timestamps_us[row])
            if expires_us:
                expiries[key] = expires_us
                change = EXPIRING + expires_us.to_bytes(8, "little")
            elif expiries:
                expiries.pop(key, None)
            changed = history_key_of(escaped, timestamps_us[row], first_offset + row)
            batch.size_bytes += len(changed)
            if change == REFERENCE:
                changes.new.append(changed)
            else:
                changes.entries[changed] = change
        return expiries

    def _read_unknown(self, keys: Iterable[bytes], remembered: list[int]) -> dict[bytes, bytes | None]:
        """The messages that have to be read before they are replaced, None where there is none.

        Those are the ones not remembered, as all that expire, and those whose record is trimmed: see `_stage_replaced`.
        """
        floor = max(self.history_floor, 1)  # above `UNKNOWN` in any case
        unknown = [
            key
            for key, known_size in zip(keys, remembered, strict=True)
            if known_size != ABSENT and known_size >> SIZE_BITS < floor
        ]
        if not unknown:
            return {}
        return dict(zip(unknown, self._rocks.get_many([RETAINED + key for key in unknown]), strict=True))

    def adopt(self, changes: RetainedChanges) -> None:
        """The batch that these changes were staged in is written."""
        self._totals = changes.totals
        self._account = changes.account
        self._sizes.remember(changes.keys, changes.sizes)

    def _stage_replaced(self, batch: Batch, key: bytes, old: bytes) -> int:
        """Delete the expiry of a replaced or cleared message, copy it to the history if needed; returns its size."""
        offset, timestamp_us, expires_us, _, _, _ = HEAD.unpack_from(old)
        if expires_us:
            batch.delete(EXPIRY + _INSTANT.pack(expires_us) + key)
        if offset < self.history_floor:
            # Its record is trimmed or about to be: from now on the history has the only copy.
            batch.put(history_key(key, timestamp_us, offset), COPY + old)
        return value_size(key, old)

    # -- questions -----------------------------------------------------------------------------------------------

    def get(self, topic_name: str, now_us: int = 0) -> Retained | None:
        """The message of a topic, unless it has expired at an instant."""
        key = topic_key(topic_name)
        value = self._rocks.get(RETAINED + key)
        if value is None:
            return None
        retained = unpack_retained(key, value)
        return None if retained.has_expired(now_us) else retained

    def size(self, topic_name: str) -> int:
        """The bytes of a topic's message as budgets count them, or `NOT_RETAINED`."""
        key = topic_key(topic_name)
        value = self._rocks.get(RETAINED + key)
        return NOT_RETAINED if value is None else value_size(key, value)

    def scan(self, topic_filter: str, after_topic_name: str, limit: int, now_us: int = 0) -> list[Retained]:
        found: list[Retained] = []
        if limit <= 0:
            return found
        for key, value in self._matching(topic_filter, topic_key(after_topic_name)):
            retained = unpack_retained(key, value)
            if retained.has_expired(now_us):
                continue
            found.append(retained)
            if len(found) == limit:
                break
        return found

    def piece(
        self, topic_filter: str, after_topic_name: str, limit: int, bytes_max: int, seeks_max: int, now_us: int = 0
    ) -> RetainedPiece:
        """As `scan`, within bounds."""
        after_key = topic_key(after_topic_name)
        spans = ranges(topic_filter)
        if spans is not None:
            return self._piece_of_spans(spans, after_key, limit, bytes_max, now_us)
        cursor = RetainedCursor(self._rocks.iterator(RETAINED_END))
        seeks = BoundedSeeks(cursor, seeks_max)
        matching = _unpacked(_walked(topic_filter, after_key, seeks, cursor))
        return piece_of(matching, seeks, after_topic_name, limit, bytes_max, now_us)

    def _piece_of_spans(
        self, spans: list[tuple[bytes, bytes]], after_key: bytes, limit: int, bytes_max: int, now_us: int
    ) -> RetainedPiece:
        """Without a generator for each step: most of the time is spent here when a client asks for everything."""
        found: list[Retained] = []
        size_bytes = expired = 0
        for low, high in spans:
            low, high = _bounds(low, high, after_key)
            if low >= high:
                continue
            for full_key, value in self._rocks.items(low, high):
                retained = unpack_retained(full_key[1:], value)
                if retained.has_expired(now_us):
                    expired += 1  # takes as long as one that is given
                else:
                    found.append(retained)
                    size_bytes += len(retained.topic) + len(retained.payload)
                if len(found) + expired >= limit or size_bytes >= bytes_max:
                    return RetainedPiece(found, retained.topic_name, False, size_bytes, 0)
        return RetainedPiece(found, key_topic(after_key), True, size_bytes, 0)

    def totals(self) -> tuple[int, int]:
        return self._totals

    def account(self) -> RetainedAccount:
        """A copy of the budgets' totals."""
        return self._account.copy()

    def budget_totals(self) -> list[tuple[str, int, int]]:
        """Filter, count and bytes of each budget."""
        return self._account.totals()

    def expired(self, now_us: int, limit: int) -> list[str]:
        """Topics whose message has outlived its expiry, the longest expired first."""
        found: list[str] = []
        if limit <= 0:
            return found
        for key, _ in self._rocks.items(EXPIRY, EXPIRY + _INSTANT.pack(now_us + 1)):
            found.append(key_topic(key[1 + _INSTANT.size :]))
            if len(found) == limit:
                break
        return found

    def _matching(self, topic_filter: str, after_key: bytes) -> Iterator[tuple[bytes, bytes]]:
        spans = ranges(topic_filter)
        if spans is None:
            cursor = RetainedCursor(self._rocks.iterator(RETAINED_END))
            yield from _walked(topic_filter, after_key, cursor, cursor)
            return
        for low, high in spans:
            low, high = _bounds(low, high, after_key)
            if low < high:
                for full_key, value in self._rocks.items(low, high):
                    yield full_key[1:], value

    def _load_account(self) -> RetainedAccount:
        """New budgets are counted once; the totals of budgets that no longer exist are dropped."""
        wanted = {budget.topic_filter for budget in self._budgets}
        stored = {key[len(BUDGET) :].decode(): value for key, value in self._rocks.items(BUDGET, BUDGET_END)}
        new_totals: dict[str, bytes] = {}
        for topic_filter in wanted - stored.keys():
            sizes = [value_size(key, value) for key, value in self._covered(topic_filter)]
            new_totals[topic_filter] = _TOTALS.pack(len(sizes), sum(sizes))

        def fill(batch: Batch) -> None:
            for topic_filter, value in new_totals.items():
                batch.put(BUDGET + topic_filter.encode(), value)
            for topic_filter in stored.keys() - wanted:
                batch.delete(BUDGET + topic_filter.encode())

        if new_totals or stored.keys() - wanted:
            self._rocks.write(fill)
        account = RetainedAccount(self._budgets)
        for topic_filter, value in (stored | new_totals).items():
            account.load(topic_filter, *_TOTALS.unpack(value))
        return account

    def _covered(self, topic_filter: str) -> Iterator[tuple[bytes, bytes]]:
        """The messages that a budget covers: `#` covers topics that begin with `$`, too."""
        if topic_filter != "#":
            yield from self._matching(topic_filter, b"")
            return
        for full_key, value in self._rocks.items(RETAINED, RETAINED_END):
            yield full_key[1:], value


def _bounds(low: bytes, high: bytes, after_key: bytes) -> tuple[bytes, bytes]:
    """The part of a range of topic keys that lies above a key, as keys of the state."""
    if after_key and after_key >= low:
        low = after_key + SEPARATOR  # the smallest key after it
    return RETAINED + low, RETAINED + high if high else RETAINED_END


# Functions, not generator expressions: of those the compiler makes lists, here of all messages.
def _unpacked(matching: Iterator[tuple[bytes, bytes]]) -> Iterator[Retained]:
    for key, value in matching:
        yield unpack_retained(key, value)


def _walked(
    topic_filter: str, after_key: bytes, seeks: KeyCursor, cursor: RetainedCursor
) -> Iterator[tuple[bytes, bytes]]:
    for key in walk(topic_filter, after_key, seeks):
        yield key, cursor.value()
