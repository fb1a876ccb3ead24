"""The engine that keeps everything in memory: for tests and for brokers that need no durability.

Owns: retained messages, for as long as the process lives. Sessions keep in memory what they are owed.
Never: a file, a thread. Nothing has to be waited for: what is appended is seen at once, and `commit` says so.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from typing import Final, final

from embermq.protocol.packets import Publish
from embermq.store.budgets import NOT_RETAINED, RetainedAccount, RetainedBudget
from embermq.store.interface import (
    History,
    Queue,
    Retained,
    RetainedMessages,
    RetainedPiece,
    SavedSession,
    SavedSharedQueue,
    SavedWill,
    Sessions,
    Store,
    StoreError,
)
from embermq.store.records import Published, Record, RetainedRemoved
from embermq.store.retained_expiry import RetainedExpiry
from embermq.store.state.retained_keys import (
    SEPARATOR,
    BoundedSeeks,
    key_topic,
    piece_of,
    ranges,
    topic_key,
    walk,
)
from embermq.store.state.sorted_keys import ListCursor, ListedTopics, SortedKeys
from embermq.store.state.topic_walks import LevelWalk, WordSearch
from embermq.store.topic_tree import WORK_MAX, Moments, NameSearch, TreeWalk

_STALE_MAX: Final = 1_024  # more entries of cleared topics than this, and than half, and the heap is rebuilt


@final
class Expiries:
    """When retained messages may have expired, in order. A topic is checked again when its message was replaced."""

    __slots__ = ("_earliest_us", "_heap")

    def __init__(self) -> None:
        self._heap: list[tuple[int, bytes]] = []
        self._earliest_us: dict[bytes, int] = {}  # of a topic's entries the one that counts

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, key: bytes, expires_us: int) -> None:
        """The message of a topic expires at an instant."""
        earliest_us = self._earliest_us.get(key)
        if earliest_us is None or expires_us < earliest_us:
            self._earliest_us[key] = expires_us
            heappush(self._heap, (expires_us, key))

    def due(self, retained: dict[bytes, Retained], now_us: int, limit: int) -> list[bytes]:
        """Up to `limit` topics whose message has expired, the longest expired first."""
        found: list[bytes] = []
        heap = self._heap
        while heap and len(found) < limit and heap[0][0] <= now_us:
            checked_us, key = heappop(heap)
            if self._earliest_us.get(key) != checked_us:
                continue
            del self._earliest_us[key]
            message = retained.get(key)
            if message is not None and message.has_expired(now_us):
                found.append(key)
            elif message is not None and message.expires_us:
                self.add(key, message.expires_us)
        for key in found:
            self.add(key, retained[key].expires_us)
        return found

    def compact(self, retained: dict[bytes, Retained]) -> None:
        """Drop entries of messages that are gone, once they are many."""
        if len(self._heap) > 2 * len(retained) + _STALE_MAX:
            self._earliest_us = {key: message.expires_us for key, message in retained.items() if message.expires_us}
            self._heap = [(expires_us, key) for key, expires_us in self._earliest_us.items()]
            heapify(self._heap)


@final
class MemorySessions(Sessions):
    """Sessions end with the process; each keeps what it is owed itself."""

    def __init__(self) -> None:
        self._last_id = 0  # which says "no session"

    def new_id(self) -> int:
        self._last_id += 1
        return self._last_id

    def queue(self, session_id: int) -> Queue | None:
        return None

    def load(self) -> Iterable[SavedSession]:
        return ()

    def wills(self) -> list[SavedWill]:
        return []

    def shared_queues(self) -> list[SavedSharedQueue]:
        return []


@final
class MemoryRetained(RetainedMessages):
    """Retained messages in a dict, and their keys in order."""

    def __init__(self, budgets: Sequence[RetainedBudget]) -> None:
        self._account: Final = RetainedAccount(budgets)
        self._expiry: Final = RetainedExpiry(budgets)
        self._retained: Final[dict[bytes, Retained]] = {}
        self._keys: Final = SortedKeys()
        self._expiries: Final = Expiries()
        self._retained_bytes = 0
        self._now_us = 0

    def begin_turn(self, now_us: int) -> None:
        """What has expired at this instant is not given from now on."""
        if now_us > self._now_us:
            self._now_us = now_us

    def get(self, topic_name: str) -> Retained | None:
        retained = self._retained.get(topic_key(topic_name))
        return None if retained is None or retained.has_expired(self._now_us) else retained

    def piece(
        self, topic_filter: str, after_topic_name: str, limit: int, bytes_max: int, seeks_max: int
    ) -> RetainedPiece:
        seeks: BoundedSeeks | None = None
        spans = ranges(topic_filter)
        if spans is None:
            seeks = BoundedSeeks(ListCursor(self._keys.sorted()), seeks_max)
            matching = self._walked(topic_filter, topic_key(after_topic_name), seeks)
        else:
            matching = iter(self._scan(spans, topic_key(after_topic_name), limit))
        return piece_of(matching, seeks, after_topic_name, limit, bytes_max, self._now_us)

    def _walked(self, topic_filter: str, after_key: bytes, seeks: BoundedSeeks) -> Iterator[Retained]:
        for key in walk(topic_filter, after_key, seeks):
            yield self._retained[key]

    def _scan(self, spans: list[tuple[bytes, bytes]], after_key: bytes, limit: int) -> list[Retained]:
        """Up to `limit` messages after a key, with what has expired and is not removed."""
        found: list[Retained] = []
        keys = self._keys.sorted()
        for low, high in spans:
            if after_key and after_key >= low:
                low = after_key + SEPARATOR
            start = bisect_left(keys, low)
            end = bisect_left(keys, high, start) if high else len(keys)
            found += [self._retained[key] for key in keys[start : min(end, start + limit - len(found))]]
        return found

    def levels(self, below: str | None, position: str, moments: Moments, work_max: int = WORK_MAX) -> TreeWalk:
        return LevelWalk(self._topics(moments), below, position, work_max)

    def with_word(self, word: str, position: str, moments: Moments) -> NameSearch:
        return WordSearch(self._topics(moments), word, position)

    def _topics(self, moments: Moments) -> ListedTopics:
        if moments.as_of_us or moments.compare_us:
            raise StoreError("a store in memory keeps no history")
        return ListedTopics(self._keys)

    def totals(self) -> tuple[int, int]:
        return len(self._retained), self._retained_bytes

    def admits(self, topic_name: str, payload_bytes: int) -> str:
        """Why a budget refuses a retained message of this size; empty if it is allowed."""
        if not len(self._account) or payload_bytes == 0:
            return ""
        key = topic_key(topic_name)
        return self._account.admits(topic_name, self._size(key), len(key) + payload_bytes)

    def budget_totals(self) -> list[tuple[str, int, int]]:
        return self._account.totals()

    def expired(self, now_us: int, limit: int) -> list[str]:
        """Up to `limit` topics whose retained message has outlived its subtree's expiry, the oldest first.

        They stay in the answer until they are removed.
        """
        return [key_topic(key) for key in self._expiries.due(self._retained, now_us, limit)]

    def _size(self, key: bytes) -> int:
        retained = self._retained.get(key)
        return NOT_RETAINED if retained is None else len(key) + len(retained.payload)

    def replace(self, message: Publish, client_id: str, offset: int) -> None:
        key = topic_key(message.topic_name)
        old_bytes = self._size(key)
        new_bytes = len(key) + len(message.payload)
        if old_bytes == NOT_RETAINED:
            self._keys.add(key)
        self._retained_bytes += new_bytes - max(old_bytes, 0)
        account = self._account
        expires_us = 0
        if message.properties or self._expiry.has_budgets:
            expires_us = self._expiry.expires_us(message.topic_name, message.properties, self._now_us)
        self._retained[key] = Retained(
            message.topic_name.encode(),
            message.payload,
            message.qos,
            message.properties,
            offset,
            self._now_us,
            client_id.encode(),
            expires_us,
        )
        if expires_us:
            self._expiries.add(key, expires_us)
            self._expiries.compact(self._retained)
        if len(account):
            account.change(message.topic_name, old_bytes, new_bytes)

    def clear(self, topic_name: str) -> None:
        key = topic_key(topic_name)
        old_bytes = self._size(key)
        if old_bytes == NOT_RETAINED:
            return
        del self._retained[key]
        self._keys.remove(key)
        self._retained_bytes -= old_bytes
        self._account.change(topic_name, old_bytes, NOT_RETAINED)
        self._expiries.compact(self._retained)


@final
class MemoryStore(Store):
    """A store whose content ends with the process."""

    def __init__(self, budgets: Sequence[RetainedBudget] = ()) -> None:
        self._messages: Final = MemoryRetained(budgets)
        super().__init__(MemorySessions(), self._messages, History())
        self._next_offset = 1

    # -- appending -----------------------------------------------------------------------------------------------

    def begin_turn(self, now_us: int) -> None:
        self._messages.begin_turn(now_us)

    def next_offset(self) -> int:
        return self._next_offset

    def append_publish(self, message: Publish, client_id: str, qos2_session_id: int = 0) -> int:
        offset = self._next_offset
        self._next_offset = offset + 1
        if message.retain:
            if message.payload:
                self._messages.replace(message, client_id, offset)
            else:
                self._messages.clear(message.topic_name)
        return offset

    def append(self, record: Record) -> int:
        if isinstance(record, Published):
            return self.append_publish(record.message, record.client_id)
        offset = self._next_offset
        self._next_offset = offset + 1
        if isinstance(record, RetainedRemoved):
            self._messages.clear(record.topic_name)
        return offset

    # -- commit --------------------------------------------------------------------------------------------------

    def at_once(self) -> bool:
        return True

    def must_commit(self) -> bool:
        return False

    def commit(self, done: Callable[[StoreError | None], None]) -> bool:
        return True

    def commit_in_background(self, written: Callable[[], None]) -> None:
        pass

    def group_bytes(self) -> int:
        return 0

    def failing(self) -> str:
        return ""

    def close(self) -> None:
        pass
