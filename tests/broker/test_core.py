"""Commit groups that no effect waits for: they are written when they are large or old, not sooner."""

from collections.abc import Callable, Iterator
from pathlib import Path
from queue import SimpleQueue

import pytest

from embermq.broker.core import LAZY_GROUP_AGE_MS, LAZY_GROUP_BYTES
from embermq.protocol.packets import Publish, Subscribe, SubscriptionRequest
from embermq.store.engines.disk import DiskStore
from embermq.store.log.entries import INDEX_ENTRY
from support.core import Bench, ScriptedLink

PAYLOAD = bytes(100)


class Load:
    """A core on a journal. Every commit that was begun is finished, and reported, before the next packet comes."""

    def __init__(self, directory: Path) -> None:
        self.calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._log = directory / "log"
        self.journal = DiskStore(directory, self.calls.put)
        self.bench = Bench(self.journal)
        self.reader, self.writer = self.bench.join("reader"), self.bench.join("writer")
        self.bench.send(self.reader, Subscribe(1, [SubscriptionRequest("t", 0)]))
        self.reader.take()

    def blocks(self) -> int:
        return sum(path.stat().st_size // INDEX_ENTRY.size for path in self._log.glob("*.idx"))

    def publish(self, count: int, link: ScriptedLink) -> None:
        for _ in range(count):
            before = self.journal.group_bytes()
            self.bench.send(link, Publish("t", PAYLOAD))
            if self.journal.group_bytes() < before:
                self.finish()

    def finish(self) -> None:
        self.calls.get(timeout=60)()


@pytest.fixture
def load(tmp_path: Path) -> Iterator[Load]:
    load = Load(tmp_path / "data")
    yield load
    load.journal.close()


def test_qos_0_is_written_once_in_a_while_whatever_was_written_before(load: Load) -> None:
    for _ in range(4):
        load.publish(1_000, load.writer)
        assert load.reader.payloads() == [PAYLOAD] * 1_000
        load.bench.pass_s(1)
        load.bench.send(load.writer, Publish("t", PAYLOAD))  # it gathers while the group before it is written
        load.reader.take()
        load.finish()
    assert load.blocks() == 4
    assert load.journal.group_bytes() > 0


def test_a_large_group_is_written_before_it_is_old(load: Load) -> None:
    count = 3 * LAZY_GROUP_BYTES // len(PAYLOAD)
    load.publish(count, load.writer)
    assert 3 <= load.blocks() <= 6


def test_ticks_that_follow_one_another_closely_do_not_write_a_group_each(load: Load) -> None:
    load.bench.pass_s(1)
    load.finish()
    blocks = load.blocks()
    for _ in range(LAZY_GROUP_AGE_MS // 50 - 1):
        load.publish(10, load.writer)
        load.bench.pass_s(0.05)
    assert load.blocks() == blocks
    load.bench.pass_s(0.05)
    load.finish()
    assert load.blocks() == blocks + 1


def test_a_turn_ends_while_a_large_group_waits_for_the_one_before_it(load: Load) -> None:
    load.publish(10, load.writer)
    load.bench.pass_s(1)
    for _ in range(2 * LAZY_GROUP_BYTES // len(PAYLOAD)):
        load.bench.send(load.writer, Publish("t", PAYLOAD))
    assert load.journal.group_bytes() > LAZY_GROUP_BYTES
    load.finish()
    load.bench.send(load.writer, Publish("t", PAYLOAD))
    load.finish()
    assert load.blocks() == 2
    assert load.journal.group_bytes() == 0
