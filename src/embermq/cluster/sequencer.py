"""The shared log as the nodes see it: one ordered, bounded past of opaque blocks.

Owns: the interface of an engine, what it needs to know to open one, and its one error.
Never: what is in a block. `cluster.blocks` encodes them, `cluster.rules` says which of them count.

An engine keeps the order of the blocks, and copies of them. It may store a block twice, store it although `append` has
reported a failure, or lose the report: the rules allow for all three. It never changes the order of what has been read.
The engine is `cluster.kafka` (`KafkaSequencer(options)`; `create_topic(options)` makes the topic that `ember cluster
init` finds missing); tests have one in memory.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from embermq.store.errors import StoreError

BLOCK_BYTES_MAX: Final = 64 * 1024 * 1024
"""No block is larger: twice the most that a commit group may have, `store.group_bytes_max`, as it is by default."""
READ_BYTES_MAX: Final = 16 * 1024 * 1024
"""About how much one `read` returns: when it has this much, it returns what it has, at least one block."""


class SequencerError(StoreError):
    """The shared log cannot take or give blocks now, or must not be used. A sentence for the operator, picklable."""


class SharedLogLost(SequencerError):
    """The shared log is not the one it was, or no longer has what a node needs: trying again is of no use."""


@dataclass(frozen=True, slots=True)
class KafkaOptions:
    """How Kafka is reached, and which topic has the log: the settings of `[cluster]` with these names."""

    bootstrap_servers: tuple[str, ...]
    topic: str = "ember.log"
    durability: Literal["os", "sync"] = "os"
    tls: bool = False
    tls_ca: Path | None = None
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    sasl_mechanism: Literal["", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = ""
    sasl_user: str = ""
    sasl_password_file: Path | None = None


class Sequencer(ABC):
    """An engine. Its methods may be called from several threads at a time, `read` from one."""

    identity: str
    """Which shared log this is (of Kafka: the ids of cluster and topic). A node refuses to run on another one than its
    directory was made with, so a topic that was deleted and made again has another."""

    @abstractmethod
    def append(self, block: bytes, done: Callable[[SequencerError | None], None]) -> None:
        """Hand over a block; returns at once. `done` is called from another thread: stored, or failed.

        The report may be lost, and a block whose report is a failure may be stored: reading it back is what counts.
        """

    @abstractmethod
    def read(self, position: int, wait_s: float) -> list[tuple[int, bytes]]:
        """Blocks from a position on, each with its position; possibly none after `wait_s`.

        Positions rise and may have gaps. `SequencerError`: not now. `SharedLogLost`: never again, such as when the
        position is not kept any more.
        """

    @abstractmethod
    def first(self) -> int:
        """The oldest position that is still kept. Raises as `read`."""

    @abstractmethod
    def end(self) -> int:
        """The position after the newest. Raises as `read`."""

    @abstractmethod
    def close(self) -> None:
        """Stop; blocks whose `done` was not called may or may not be stored."""
