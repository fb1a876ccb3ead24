"""Groups that nobody waits for: the store is asked to commit a large one, and takes its time."""

from collections.abc import Callable

from embermq.protocol.packets import Publish, Subscribe, SubscriptionRequest
from embermq.store.interface import StoreError
from embermq.store.memory import MemoryStore
from support.core import Bench


class Unhurried(MemoryStore):
    """Its open group is large and stays so while the one before it is written; nobody waits for either."""

    def __init__(self) -> None:
        super().__init__()
        self.commits = 0

    def group_bytes(self) -> int:
        return 1 << 30

    def commit(self, done: Callable[[StoreError | None], None]) -> bool:
        self.commits += 1
        return True


def test_a_turn_ends_although_the_store_lets_a_large_group_wait() -> None:
    store = Unhurried()
    bench = Bench(store)
    reader, writer = bench.join("r"), bench.join("w")
    bench.send(reader, Subscribe(1, [SubscriptionRequest("t", 0)]))
    reader.take()
    before = store.commits
    bench.send(writer, Publish("t", b"x"))
    assert reader.payloads() == [b"x"]
    assert store.commits == before + 1
