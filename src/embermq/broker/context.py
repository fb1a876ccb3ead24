"""What every part of the core works with."""

from collections.abc import Callable
from typing import Final, final

from embermq.broker.access import Access
from embermq.broker.clock import Clock
from embermq.broker.counters import Counters
from embermq.broker.limits import Limits
from embermq.broker.routes import Routes
from embermq.store.interface import Store


@final
class Context:
    """What a shell hands to the core, and what all parts of the core share. `wake` asks the shell for a turn."""

    def __init__(self, store: Store, access: Access, limits: Limits, wake: Callable[[], None]) -> None:
        self.store: Final = store
        self.access: Final = access
        self.limits: Final = limits
        self.wake: Final = wake
        self.counters: Final = Counters()
        self.clock: Final = Clock()
        self.routes: Final = Routes(access)
