"""Groups to apply to a state, and databases that are slow, full or watched."""

from pathlib import Path

from rocksdict import Rdict, WriteBatch, WriteOptions

from embermq.store.rows import RETAIN_FLAG, Group, Kind
from embermq.store.state.changes import OFFSET_MAX, Change
from embermq.store.state.rocks import open_database
from embermq.store.state.state import State


def retained(group: Group, topic: bytes, payload: bytes, timestamp_us: int = 1_000) -> int:
    """Append a retained publish; returns its offset."""
    return group.append(timestamp_us, Kind.PUBLISH, 1 | RETAIN_FLAG, topic, payload, b"publisher")


def write(state: State, *messages: tuple[bytes, bytes]) -> None:
    """Apply a group of retained publishes."""
    group = Group(state.applied_offset() + 1)
    for topic, payload in messages:
        retained(group, topic, payload, 1_000 + group.first_offset)
    state.apply(group)


def changes_as_of(state: State, topic_filter: str, limit: int, instant_us: int) -> list[Change]:
    """The changes of all messages that were retained at an instant, found `limit` topics at a time."""
    found: list[Change] = []
    after_key, is_done = b"", False
    while not is_done:
        made = state.history.changes_as_of(topic_filter, after_key, instant_us, OFFSET_MAX, limit)
        found += made.changes
        after_key, is_done = made.after_key, made.is_done
    return found


class WrappedDatabase:
    """A real database behind this one; `open` takes the place of `open_database`."""

    def __init__(self) -> None:
        self._real: Rdict | None = None

    def open(self, directory: Path) -> Rdict:
        self._real = open_database(directory)
        return self  # type: ignore[return-value]  # it has what `Rocks` uses of it

    @property
    def real(self) -> Rdict:
        assert self._real is not None
        return self._real

    def __getattr__(self, name: str) -> object:
        return getattr(self.real, name)


class StallingDatabase(WrappedDatabase):
    """Wants a write to wait `stalls` times."""

    def __init__(self, stalls: int) -> None:
        super().__init__()
        self.stalls = stalls

    def write(self, batch: WriteBatch, options: WriteOptions) -> None:
        if self.stalls:
            self.stalls -= 1
            raise Exception("Result incomplete: Write stall")
        self.real.write(batch, options)


class BreakableDatabase(WrappedDatabase):
    """Once broken, as after a failed flush: it can be read and closed, and takes nothing until it is opened again."""

    def __init__(self) -> None:
        super().__init__()
        self.broken = False

    def open(self, directory: Path) -> Rdict:
        self.broken = False
        return super().open(directory)

    def write(self, batch: WriteBatch, options: WriteOptions) -> None:
        if self.broken:
            raise Exception("IO error: No space left on device")
        self.real.write(batch, options)


class WatchedDatabase(WrappedDatabase):
    """Keeps the keys that were read together with others."""

    def __init__(self) -> None:
        super().__init__()
        self.read: list[bytes] = []

    def get(self, key: bytes | list[bytes]) -> object:
        if isinstance(key, list):
            self.read += key
        return self.real.get(key)  # type: ignore[arg-type]  # a list for a list
