"""The engine in memory behaves as every engine."""

from collections.abc import Callable, Iterator

import pytest

from embermq.protocol.packets import Publish
from embermq.store.budgets import RetainedBudget
from embermq.store.engines.memory import MemoryStore
from embermq.store.interface import Store
from support.store_contract import Engine, QueueContract, StoreContract
from support.stores import ScriptedStore


def open_memory(call_soon: Callable[[Callable[[], None]], None], budgets: tuple[RetainedBudget, ...]) -> Store:
    return MemoryStore(budgets)


@pytest.fixture
def engine() -> Iterator[Engine]:
    engine = Engine(open_memory)
    yield engine
    engine.store.close()


class TestMemory(StoreContract):
    def test_nothing_has_to_be_waited_for(self, engine: Engine) -> None:
        engine.turn()
        engine.publish("a")
        assert engine.store.commit(lambda error: pytest.fail("called back"))
        assert engine.store.failing() == ""
        assert list(engine.store.sessions.load()) == []

    def test_expiries_do_not_pile_up(self) -> None:
        store = MemoryStore((RetainedBudget("#", expiry_s=86_400),))
        for number in range(10_000):
            store.begin_turn(number)
            store.append_publish(Publish("same", b"x", 0, True), "c")
            store.append_publish(Publish(f"other/{number}", b"x", 0, True), "c")
            store.append_publish(Publish(f"other/{number}", b"", 0, True), "c")
        assert len(store._messages._expiries) < 2_000
        assert store.retained.expired(86_400_000_000 + 9_998, 10) == []
        assert store.retained.expired(86_400_000_000 + 9_999, 10) == ["same"]

    def test_a_session_needs_no_queue_of_the_store(self) -> None:
        store: Store = MemoryStore()
        assert store.sessions.queue(store.sessions.new_id()) is None


class TestScriptedStore(QueueContract):
    """Tests of the broker use its queues in place of those on a disk."""

    @pytest.fixture
    def engine(self) -> Engine:
        return Engine(lambda call_soon, budgets: ScriptedStore(late=False, budgets=budgets))
