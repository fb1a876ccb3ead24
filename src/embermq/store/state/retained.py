"""Retained messages in the state: by topic, counted, with their expiries and their history.

Owns: what a group's retained publishes and clears change, and every question about what is retained now. What was
retained at an instant is a question to `history`.
"""

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Final, final

from embermq.store.budgets import NOT_RETAINED, RetainedAccount, RetainedBudget
from embermq.store.interface import Retained, RetainedPiece
from embermq.store.retained_expiry import RetainedExpiry
from embermq.store.rows import Kind, LogRow
from embermq.store.state.changed_topics import ChangedTopic
from embermq.store.state.retained_keys import (
    EXPIRY,
    INSTANT,
    RETAINED,
    RETAINED_END,
    SEPARATOR,
    BoundedSeeks,
    KeyCursor,
    history_key,
    key_topic,
    piece_of,
    ranges,
    topic_key,
    topic_keys,
    walk,
)
from embermq.store.state.retained_sizes import ABSENT, SIZE_BITS, SIZE_MASK, Sizes
from embermq.store.state.retained_values import (
    COPY,
    HEAD,
    PackedMessages,
    PackedPiece,
    unpack_retained,
    value_expires_us,
    value_size,
)
from embermq.store.state.rocks import Rocks
from embermq.store.state.write_buffer import Batch, StateIterator, WriteBuffer

TOTALS: Final = b"\x00totals"
BUDGET: Final = b"\x00budget/"
BUDGET_END: Final = b"\x00budget0"
_TOTALS: Final = Struct("<QQ")  # count, bytes
_PUBLISH: Final = int(Kind.PUBLISH)


@final
class RetainedCursor(KeyCursor):
    """A place among the retained messages."""

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
class RetainedState:
    """The retained part of the state. `history_floor`: offsets below are trimmed or about to be."""

    def __init__(self, rocks: Rocks, budgets: Sequence[RetainedBudget], sizes: Sizes) -> None:
        self._rocks: Final = rocks
        self._sizes: Final = sizes
        self._budgets: Final = tuple(budgets)
        self.expiry: Final = RetainedExpiry(budgets)
        self.history_floor = 0
        self.load()

    def load(self) -> None:
        """Take the totals from the database."""
        totals = self._rocks.get(TOTALS)
        self._totals: tuple[int, int] = _TOTALS.unpack(totals) if totals else (0, 0)
        self._account = self._load_account()
        self._sizes.forget(is_all_absent=not self._rocks.keys_from(RETAINED, RETAINED_END, 1))

    # -- applying ------------------------------------------------------------------------------------------------

    def stage(self, buffer: WriteBuffer, batch: Batch, rows: list[LogRow]) -> None:
        """Change the topics of these records, retained publishes and removals; put in the batch what goes with them."""
        changed = buffer.topics
        new = [row.topic for row in rows if row.topic not in changed]
        if new:
            self._add_topics(buffer, list(dict.fromkeys(new)))
        count, size_bytes = self._totals
        account = self._account.copy()
        expiry = self.expiry
        has_budgets, may_expire = len(account) > 0, expiry.has_budgets
        for row in rows:
            topic = changed[row.topic]
            old_bytes, new_bytes = topic.size_bytes, NOT_RETAINED
            expires_us = 0
            if row.payload and row.kind == _PUBLISH:
                if may_expire or row.properties:
                    expires_us = expiry.expires_us(key_topic(topic.key), row.properties, row.timestamp_us)
                new_bytes = len(topic.key) + len(row.payload)
                count += 1
                size_bytes += new_bytes
                added_bytes = topic.retain(row, expires_us, new_bytes)
            else:
                added_bytes = topic.clear(row, new_bytes)
            buffer.grow(added_bytes, expires_us != 0)
            if old_bytes != NOT_RETAINED:
                count -= 1
                size_bytes -= old_bytes
            if has_budgets:
                account.change(key_topic(topic.key), old_bytes, new_bytes)
        self._totals = count, size_bytes
        self._account = account
        put_totals(batch, count, size_bytes, account)

    def _add_topics(self, buffer: WriteBuffer, topics: list[bytes]) -> None:
        """These topics have no change in the buffer yet: find out what is retained there."""
        keys = topic_keys(topics)
        remembered = self._sizes.look_up(keys)
        read = self._read_unknown(keys, remembered)
        replaced = Batch()
        for topic, key, known_size in zip(topics, keys, remembered, strict=True):
            old_bytes = NOT_RETAINED
            is_stored = True  # even if `Sizes` says absent, of another topic with its hash, unless the database said so
            if key in read:
                old = read[key]
                is_stored = old is not None
                if old is not None:
                    old_bytes = self._replace(replaced, key, old)
            elif known_size != ABSENT:
                old_bytes = known_size & SIZE_MASK
            buffer.add_topic(topic, ChangedTopic(key, old_bytes, is_stored))
        buffer.add(replaced)

    def _read_unknown(self, keys: list[bytes], remembered: list[int]) -> dict[bytes, bytes | None]:
        """The messages that have to be read before they are replaced, None where there is none.

        Those are the ones not remembered, as all that expire, and those whose record is trimmed: see `_replace`.
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

    def _replace(self, batch: Batch, key: bytes, old: bytes) -> int:
        """Delete the expiry of a replaced or cleared message, copy it to the history if needed; returns its size."""
        offset, timestamp_us, expires_us, _, _, _ = HEAD.unpack_from(old)
        if expires_us:
            batch.delete(EXPIRY + INSTANT.pack(expires_us) + key)
        if offset < self.history_floor:
            # Its record is trimmed or about to be: from now on the history has the only copy.
            batch.put(history_key(key, timestamp_us, offset), COPY + old)
        return value_size(key, old)

    def raise_history_floor(self, offset: int) -> None:
        """Records below are trimmed or about to be: messages that are replaced from now on are copied.

        A message that is buffered as an object would not be, so the buffer is written.
        """
        self._rocks.write_buffered()
        self.history_floor = max(self.history_floor, offset)

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

    def piece(
        self, topic_filter: str, after_topic_name: str, limit: int, bytes_max: int, seeks_max: int, now_us: int = 0
    ) -> RetainedPiece:
        """Some of the messages that a filter matches: see `RetainedMessages.piece`."""
        after_key = topic_key(after_topic_name)
        if "+" not in topic_filter and "#" not in topic_filter:
            return self._piece_of_topic(topic_filter, after_key, now_us)
        spans = ranges(topic_filter)
        if spans is not None:
            return self._piece_of_spans(spans, after_key, limit, bytes_max, now_us)
        cursor = RetainedCursor(self._rocks.iterator(RETAINED_END))
        seeks = BoundedSeeks(cursor, seeks_max)
        matching = _unpacked(_walked(topic_filter, after_key, seeks, cursor))
        return piece_of(matching, seeks, after_topic_name, limit, bytes_max, now_us)

    def _piece_of_topic(self, topic_name: str, after_key: bytes, now_us: int) -> RetainedPiece:
        """By its key, which is quicker than a range: what is written to the state meanwhile need not be sorted."""
        retained = self.get(topic_name, now_us) if topic_key(topic_name) > after_key else None
        if retained is None:
            return RetainedPiece([], key_topic(after_key), True, 0, 0)
        return RetainedPiece([retained], topic_name, True, len(retained.topic) + len(retained.payload), 0)

    def _piece_of_spans(
        self, spans: list[tuple[bytes, bytes]], after_key: bytes, limit: int, bytes_max: int, now_us: int
    ) -> RetainedPiece:
        """Without an object for each message: most of the time is spent here when a client asks for everything."""
        packed = PackedMessages()
        expired = 0
        for low, high in spans:
            low, high = _bounds(low, high, after_key)
            if low >= high:
                continue
            for pairs in self._rocks.item_lists(low, high):
                for state_key, value in pairs:
                    if 0 < value_expires_us(value) <= now_us:
                        expired += 1  # takes as long as one that is given
                    else:
                        packed.add(state_key, value)
                    if len(packed.topics) + expired >= limit or packed.size_bytes >= bytes_max:
                        return PackedPiece(packed, key_topic(state_key[1:]), False)
        return PackedPiece(packed, key_topic(after_key), True)

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
        for key, _ in self._rocks.items(EXPIRY, EXPIRY + INSTANT.pack(now_us + 1)):
            found.append(key_topic(key[1 + INSTANT.size :]))
            if len(found) == limit:
                break
        return found

    def _load_account(self) -> RetainedAccount:
        """New budgets are counted once; the totals of budgets that no longer exist are dropped."""
        wanted = {budget.topic_filter for budget in self._budgets}
        stored = {key[len(BUDGET) :].decode(): value for key, value in self._rocks.items(BUDGET, BUDGET_END)}
        new_totals: dict[str, bytes] = {}
        for topic_filter in wanted - stored.keys():
            sizes = [value_size(key, value) for key, value in self._covered(topic_filter)]
            new_totals[topic_filter] = _TOTALS.pack(len(sizes), sum(sizes))

        batch = Batch()
        for topic_filter, value in new_totals.items():
            batch.put(BUDGET + topic_filter.encode(), value)
        for topic_filter in stored.keys() - wanted:
            batch.delete(BUDGET + topic_filter.encode())
        if batch.entries:
            self._rocks.write(batch)
        account = RetainedAccount(self._budgets)
        for topic_filter, value in (stored | new_totals).items():
            account.load(topic_filter, *_TOTALS.unpack(value))
        return account

    def _covered(self, topic_filter: str) -> Iterator[tuple[bytes, bytes]]:
        """The messages that a budget covers: `#` covers topics that begin with `$`, too."""
        spans = [(b"", b"")] if topic_filter == "#" else ranges(topic_filter)
        if spans is None:
            cursor = RetainedCursor(self._rocks.iterator(RETAINED_END))
            yield from _walked(topic_filter, b"", cursor, cursor)
            return
        for low, high in spans:
            for full_key, value in self._rocks.items(*_bounds(low, high, b"")):
                yield full_key[1:], value


def put_totals(batch: Batch, count: int, size_bytes: int, account: RetainedAccount) -> None:
    """Put in a batch how many messages are retained, and their bytes: of all, and of each budget."""
    batch.put(TOTALS, _TOTALS.pack(count, size_bytes))
    for topic_filter, budget_count, budget_bytes in account.totals():
        batch.put(BUDGET + topic_filter.encode(), _TOTALS.pack(budget_count, budget_bytes))


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
