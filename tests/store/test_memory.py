"""The engine in memory behaves as every engine."""

from collections.abc import Callable, Iterator

import pytest

from embermq.store.budgets import RetainedBudget
from embermq.store.interface import Store
from embermq.store.memory import MemoryStore
from store.contract import Engine, StoreContract


def open_memory(call_soon: Callable[[Callable[[], None]], None], budgets: tuple[RetainedBudget, ...]) -> Store:
    return MemoryStore(budgets, queues=True)


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
        assert list(engine.store.sessions()) == []

    def test_a_session_needs_no_queue_of_the_store(self) -> None:
        assert MemoryStore().open_session("device", "", 10).queue is None
