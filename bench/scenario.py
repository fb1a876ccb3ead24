"""What a scenario is: a name, what it measures, and a function that measures one broker step by step.

Owns: the shape shared by all scenarios and the sizes they run at.
Never: a broker's name; a scenario treats every server alike.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from bench.figures import Figures, Metric
from bench.servers import Server
from bench.wires import Wire


@dataclass(frozen=True, slots=True)
class Scale:
    """How much of everything; `quick` is for seeing that it works, not for figures."""

    seconds: float = 3.0
    paced_seconds: float = 5.0
    paced_publishers: int = 200
    subscriptions: int = 10_000
    idle: int = 10_000
    clients: int = 1_000
    retained: int = 1_000_000
    queued: int = 50_000
    readers: int = 10
    window: int = 1_000
    window_of_many: int = 100

    def window_for(self, publishers: int, qos: int) -> int:
        """How many messages one publisher keeps under way: one alone fills a pipe, many have less each.

        Mosquitto searches acknowledgements in a list: at QoS 2 with 1,000 in flight to 50 readers it all but stands
        still. A quarter is what suits it best; every broker gets the same.
        """
        window = self.window if publishers == 1 else self.window_of_many
        return window // 4 if qos == 2 else window

    @classmethod
    def quick(cls) -> "Scale":
        return cls(seconds=0.5, paced_seconds=1.0, idle=2_000, retained=20_000, queued=5_000)


Step = Callable[[Server, Scale], Iterator[Figures]]


@dataclass(frozen=True, slots=True)
class Scenario:
    """`run` yields figures after each step; the runner advances the brokers in turn, one step each.

    `store` says which settings the brokers run with: floods against memory, retained scenarios against the disk.
    "sink" puts the sink in their place: what the generator can do when nothing slows it.
    `wire` is what lies below MQTT. `memory_too` measures EmberMQ with `--memory` beside one on the disk. `tuned`:
    Mosquitto has the settings of the floods, with which it drops nothing, also here. `with_peers`: rumqttd and NATS are
    measured, too, where they are installed.
    `fresh` asks for new processes each round, where memory or start-up is measured. `rounds_max` caps long ones.
    """

    name: str
    title: str
    metrics: tuple[Metric, ...]
    run: Step
    store: Literal["memory", "disk", "sink"] = "memory"
    wire: Wire = "tcp"
    memory_too: bool = False
    tuned: bool = False
    with_peers: bool = False
    fresh: bool = False
    rounds_max: int | None = None
