"""Several nodes on one shared log in memory, over real data directories: what they have after random faults.

Blocks are late, in another order, stored twice, or lost with their report; nodes are killed, paused, and cut off. What
counts is computed from the shared log alone, and every node must have just that.
"""

import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Final

import pytest

from embermq.cluster.blocks import Kind, decode
from embermq.cluster.node import Node
from embermq.cluster.operate import begin, expel, status
from embermq.cluster.place import enter, read_place
from embermq.cluster.rules import Rules
from embermq.cluster.sequencer import SequencerError, SharedLogLost
from embermq.engines import open_store
from embermq.protocol.packets import Publish
from embermq.settings import StoreSettings
from embermq.store.engines.disk import DiskStore
from embermq.store.engines.opening import JournalSettings
from embermq.store.engines.shared_log import PLACE
from embermq.store.errors import Fenced, StoreError
from embermq.store.log.blocks import Block
from embermq.store.log.writer import Log
from embermq.store.records import RetainedCopy
from support.ember_command import ember, sentence
from support.memory_sequencer import MemoryLog, MemorySequencer

NODE_TIMEOUT_MS: Final = 300
PATIENT_MS: Final = 20_000
"""Where a node must lead until the test ends that: a busy machine may stop a thread for longer than 300 ms."""
DEADLINE_S: Final = 60
STEPS: Final = 60
SETTINGS: Final = JournalSettings(durability="os")
INSTANCES: Final = iter(range(1, 1_000_000))
Row = tuple[int, int, int, int, bytes, bytes, bytes]


class Machine:
    """One node: its directory is there also while it does not run. Its broker's thread is the test's."""

    def __init__(self, number: int, directory: Path, log: MemoryLog, node_timeout_ms: int = PATIENT_MS) -> None:
        self.number = number
        self.node_timeout_ms = node_timeout_ms
        self.directory = directory / f"node{number}"
        self.log = log
        self.settings = SETTINGS
        self.acknowledged: list[bytes] = []
        self.stopped: StoreError | None = None
        self.store: DiskStore | None = None
        self.sequencer = MemorySequencer(log)
        self._calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self.is_committing = False

    def start(self) -> None:
        self.sequencer = MemorySequencer(self.log)
        self._calls = SimpleQueue()
        self.stopped, self.is_committing = None, False
        rules = enter(self.directory, self.sequencer)
        node = Node(self.sequencer, rules, self.number, next(INSTANCES), self.node_timeout_ms, f"mqtt{self.number}")
        store = DiskStore(self.directory, self._calls.put, self.settings, shared=node)
        store.when_stopped(self._stop)
        node.begin(store)
        self.store = store

    def _stop(self, error: StoreError) -> None:
        self.stopped = error

    def pump(self) -> bool:
        """Call what is to be called on the broker's thread. A node that was fenced starts again, as a server does."""
        is_called = False
        while True:
            try:
                self._calls.get_nowait()()
                is_called = True
            except Empty:
                break
        if isinstance(self.stopped, Fenced) and self.store is not None:
            self.close()
            self.start()
        return is_called

    def close(self) -> None:
        if self.store is not None:
            self.store.close()
            self.store = None

    def kill(self) -> None:
        """What nobody has heard of yet is lost, and the place that was written last is the one there is."""
        if self.store is None:
            return
        place = self.directory / PLACE
        before = place.read_bytes() if place.exists() else None
        self.sequencer.is_cut_off = self.sequencer.fails = True
        while self.sequencer.held:
            self.sequencer.fail_held()
        self.close()
        place.unlink(missing_ok=True)
        if before is not None:
            place.write_bytes(before)

    def is_active(self) -> bool:
        return self.store is not None and self.store.is_active() and self.stopped is None

    def publish(self, payloads: list[bytes], topics: int = 5) -> None:
        store = self.store
        if store is None or not self.is_active() or self.is_committing:
            return
        store.begin_turn(time.time_ns() // 1000)
        for payload in payloads:
            store.append_publish(Publish(f"t/{int(payload) % topics}", payload, 1, int(payload) % 2 == 0), "client")

        def done(error: StoreError | None) -> None:
            if error is None:
                self.is_committing = False
                self.acknowledged.extend(payloads)

        self.is_committing = True
        store.commit(done)

    def rows(self) -> list[Row]:
        log = Log(self.directory / "log", segment_bytes=1 << 27, segment_age_s=3600, sync=False)
        try:
            groups = log.groups_from(log.first_offset) if log.next_offset > log.first_offset else iter(())
            return [row_of(row) for group in groups for row in group.rows]
        finally:
            log.close()


def row_of(row: object) -> Row:
    names = ("offset", "timestamp_us", "kind", "flags", "topic", "payload", "client_id")
    found: Row = tuple(getattr(row, name) for name in names)
    return found


def truth_of(log: MemoryLog) -> list[Row]:
    """The records that count, by the shared log alone."""
    rules, rows = Rules(), list[Row]()
    for position, data in enumerate(log.blocks):
        block = decode(position, data)
        if rules.take(position, block) and block.kind is Kind.RECORDS:
            rows += map(row_of, Block(block.body).group().rows)
    return rows


class Cluster:
    """Three machines, and what is done to them."""

    def __init__(self, directory: Path) -> None:
        self.log = MemoryLog()
        self.machines = [Machine(number, directory, self.log, NODE_TIMEOUT_MS) for number in (1, 2, 3)]
        begin(self.machines[0].directory, MemorySequencer(self.log), 1, next(INSTANCES), SETTINGS)
        self.published = 0
        for machine in self.machines:
            machine.start()

    def pump(self, for_s: float = 0.0) -> None:
        until_s = time.monotonic() + for_s
        while True:
            called = [machine.pump() for machine in self.machines]
            assert all(machine.stopped is None or isinstance(machine.stopped, Fenced) for machine in self.machines)
            if not any(called) and time.monotonic() >= until_s:
                return
            time.sleep(0.001)

    def until(self, condition: Callable[[], bool], what: str) -> None:
        until_s = time.monotonic() + DEADLINE_S
        while not condition():
            assert time.monotonic() < until_s, f"not within {DEADLINE_S} s: {what}"
            self.pump()
            time.sleep(0.002)

    def publish(self, count: int) -> None:
        for machine in self.machines:
            payloads = [b"%d" % number for number in range(self.published, self.published + count)]
            self.published += count
            machine.publish(payloads)

    def act(self, chance: random.Random) -> None:
        """One fault, or the end of one."""
        machine = chance.choice(self.machines)
        sequencer = machine.sequencer
        action = chance.randrange(11)
        if action == 0:
            machine.kill()
        elif action == 1 and machine.store is None:
            machine.start()
        elif action == 2:
            sequencer.holds = not sequencer.holds
        elif action in (3, 4, 5):
            sequencer.store_held(chance.randint(1, 3), twice=chance.random() < 0.3)
        elif action == 6:
            sequencer.fail_held(stored=chance.random() < 0.5)
        elif action == 7:
            sequencer.loses_reports = not sequencer.loses_reports
        elif action == 8:
            sequencer.is_cut_off = not sequencer.is_cut_off
        elif action == 9 and machine.store is not None and not (sequencer.holds or sequencer.is_cut_off):
            machine.close()  # as SIGTERM does it: another node leads at once
            machine.start()
        elif action == 10:
            self.pump(chance.choice((0.0, 0.05, 1.5 * NODE_TIMEOUT_MS / 1000)))

    def heal(self) -> None:
        """End all faults; wait until every node has all that counts, and one of them takes more."""
        for machine in self.machines:
            if machine.store is None:
                machine.start()
            sequencer = machine.sequencer
            sequencer.is_cut_off = sequencer.holds = sequencer.loses_reports = False
            sequencer.store_held(len(sequencer.held))
        acknowledged = sum(len(machine.acknowledged) for machine in self.machines)

        def takes_more() -> bool:
            self.publish(1)
            return sum(len(machine.acknowledged) for machine in self.machines) > acknowledged

        self.until(takes_more, "a node takes messages")
        self.until(self._is_equal, "all nodes have applied all")

    def _is_equal(self) -> bool:
        end = len(truth_of(self.log)) + 1
        if any(machine.is_committing for machine in self.machines):
            return False
        return all(machine.store is not None and machine.store.log_end() == end for machine in self.machines)

    def assert_right(self) -> None:
        for machine in self.machines:
            machine.kill()
        truth = truth_of(self.log)
        payloads = {row[5] for row in truth}
        for machine in self.machines:
            assert machine.rows() == truth, machine.number
            assert set(machine.acknowledged) <= payloads, machine.number
        retained = {row[4].decode(): row[5] for row in truth if row[3] & 4}
        for machine in self.machines:
            alone = DiskStore(machine.directory, lambda call: call(), SETTINGS)
            try:
                piece = alone.retained.piece("#", "", 1_000, 1 << 20, 1_000)
                assert {found.topic.decode(): found.payload for found in piece.found()} == retained
            finally:
                alone.close()


@pytest.mark.parametrize("seed", range(6))
def test_nothing_acknowledged_is_lost_and_all_nodes_have_the_same(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    cluster = Cluster(tmp_path)
    cluster.until(lambda: any(machine.is_active() for machine in cluster.machines), "a node is active")
    try:
        for _ in range(STEPS):
            cluster.publish(chance.randint(1, 3))
            cluster.act(chance)
            cluster.pump(0.003)
        cluster.heal()
    finally:
        for machine in cluster.machines:
            machine.kill()
    assert sum(len(machine.acknowledged) for machine in cluster.machines) > 0
    cluster.assert_right()


def two_machines(directory: Path) -> tuple[MemoryLog, Machine, Machine]:
    """A node that leads, and one that is not started."""
    log = MemoryLog()
    first, second = Machine(1, directory, log), Machine(2, directory, log)
    begin(first.directory, MemorySequencer(log), 1, next(INSTANCES), SETTINGS)
    first.start()
    pumped_until(first.is_active, first)
    return log, first, second


def pumped_until(condition: Callable[[], object], *machines: Machine) -> None:
    until_s = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < until_s
        for machine in machines:
            machine.pump()
        time.sleep(0.002)


def published(machine: Machine, *payloads: bytes) -> None:
    machine.publish(list(payloads))
    pumped_until(lambda: payloads[-1] in machine.acknowledged, machine)


def test_a_second_server_with_the_number_of_a_node_takes_its_place(tmp_path: Path) -> None:
    log, first, _ = two_machines(tmp_path)
    other = Machine(1, tmp_path / "elsewhere", log)
    other.start()
    pumped_until(lambda: first.stopped is not None, first, other)
    assert str(first.stopped) == "another server has joined as node 1: give each server a cluster.node of its own"
    pumped_until(other.is_active, other)
    first.close()
    other.close()


def test_an_expelled_node_stops_and_acknowledges_nothing(tmp_path: Path) -> None:
    log, first, second = two_machines(tmp_path)
    second.start()
    expel(first.directory, MemorySequencer(log), 1)
    pumped_until(lambda: first.stopped is not None, first, second)
    assert str(first.stopped) == "node 1 was expelled: start it again to have it join as a standby"
    pumped_until(second.is_active, second)
    errors: list[StoreError | None] = []
    assert first.store is not None
    first.store.append_publish(Publish("t/1", b"late", 1), "client")
    first.store.commit(errors.append)
    pumped_until(lambda: errors, first, second)
    assert str(errors[0]) == str(first.stopped)
    states = {each.node: each.state for each in status(tmp_path / "node2", MemorySequencer(log), DEADLINE_S)[1]}
    assert states == {1: "expelled", 2: "active"}
    with pytest.raises(SequencerError, match="there is no node 7: expected one of 1, 2"):
        expel(tmp_path / "node2", MemorySequencer(log), 7)
    first.close()
    second.close()


def test_a_node_goes_on_in_a_copy_of_another_nodes_directory_when_the_beginning_was_removed(tmp_path: Path) -> None:
    log, first, second = two_machines(tmp_path)
    published(first, b"1", b"2", b"3")
    first.close()
    place = read_place(first.directory)
    assert place is not None
    log.trim(place[1].position)
    with pytest.raises(SharedLogLost, match="make this node's data directory a copy of that of another node"):
        second.start()
    shutil.copytree(first.directory, second.directory, dirs_exist_ok=True)
    second.start()
    pumped_until(second.is_active, second)
    published(second, b"4")
    second.close()
    assert [row[5] for row in second.rows()] == [b"1", b"2", b"3", b"4"]


def test_a_node_whose_directory_a_single_server_has_written_to_does_not_join(tmp_path: Path) -> None:
    log, first, second = two_machines(tmp_path)
    published(first, b"1")
    first.close()
    alone = DiskStore(first.directory, lambda call: call(), SETTINGS)
    alone.begin_turn(time.time_ns() // 1000)
    alone.append_publish(Publish("t/1", b"alone", 1), "client")
    alone.commit(lambda error: None)
    alone.close()
    second.start()
    pumped_until(second.is_active, second)
    published(second, b"2")
    blocks = len(log.blocks)
    first.start()
    pumped_until(lambda: first.stopped is not None, first, second)
    assert "differs from the shared log at offset 2" in str(first.stopped)
    joins = [decode(0, data) for data in log.blocks[blocks:]]
    assert [block.node for block in joins if block.kind is Kind.JOIN] == []
    first.close()
    second.close()


def test_the_directory_of_a_stopped_node_is_read_but_not_written(tmp_path: Path) -> None:
    _, first, _ = two_machines(tmp_path)
    published(first, b"0")
    first.close()
    assert ember("retained", "ls", "--data", first.directory).text.endswith("t/0    0\n")
    said = sentence(ember("retained", "set", "t/0", "1", "--data", first.directory))
    assert said.startswith("this is the data directory of a node of a cluster: change retained messages while it runs")
    single = open_store(StoreSettings(directory=first.directory), lambda call: call())
    single.close()
    assert ember("retained", "set", "t/0", "1", "--data", first.directory).code == 0


def test_a_directory_and_a_shared_log_that_do_not_belong_together_are_refused(tmp_path: Path) -> None:
    log, first, _ = two_machines(tmp_path)
    published(first, b"1")
    first.close()
    with pytest.raises(SharedLogLost, match="the shared log is empty: begin it with `ember cluster init`"):
        Machine(3, tmp_path, MemoryLog("empty")).start()
    other = MemoryLog("another")
    begin(tmp_path / "other", MemorySequencer(other), 1, next(INSTANCES), SETTINGS)
    with pytest.raises(SharedLogLost, match="belongs to another shared log than the one that is there now"):
        Machine(1, tmp_path, other).start()
    (first.directory / PLACE).unlink()
    with pytest.raises(SharedLogLost, match="has a log that is not of this cluster"):
        Machine(1, tmp_path, other).start()
    with pytest.raises(SequencerError, match="the topic is not empty"):
        begin(tmp_path / "other", MemorySequencer(log), 1, next(INSTANCES), SETTINGS)
    first.log = log  # without its place it reads all again, and goes on
    first.start()
    pumped_until(first.is_active, first)
    published(first, b"2")
    first.close()
    assert [row[5] for row in first.rows()] == [b"1", b"2"]


def test_a_standby_trims_its_log_up_to_what_the_active_node_has_trimmed(tmp_path: Path) -> None:
    _, first, second = two_machines(tmp_path)
    first.close()
    for machine in (first, second):
        machine.settings = JournalSettings(durability="os", segment_bytes=1 << 18, retention_bytes=1 << 20)
        machine.start()
        pumped_until(first.is_active, first, second)
    sent = 0

    def have_trimmed() -> bool:
        nonlocal sent
        if first.acknowledged[-1:] == ([b"%d" % sent] if sent else []):
            sent += 1
            store = first.store
            assert store is not None
            store.append(RetainedCopy(Publish("t/filling", bytes(60_000))))
            first.publish([b"%d" % sent])
        begins = [machine.store.log_begin() for machine in (first, second) if machine.store is not None]
        assert begins[1] <= begins[0]
        return begins[1] > 1

    pumped_until(have_trimmed, first, second)
    pumped_until(lambda: not first.is_committing, first, second)
    second.close()
    first.close()
    rows = first.rows()
    assert second.rows()[-len(rows) :] == rows


def test_a_log_that_was_trimmed_begins_a_shared_log_that_needs_copies(tmp_path: Path) -> None:
    log = MemoryLog()
    first, second = Machine(1, tmp_path, log), Machine(2, tmp_path, log)
    small = JournalSettings(durability="os", segment_bytes=1 << 16)
    for number in range(3):
        single = DiskStore(first.directory, lambda call: call(), small)
        single.begin_turn(time.time_ns() // 1000)
        single.append_publish(Publish("t/1", bytes(50_000), 1, True), f"client{number}")
        single.close()
    whole = Log(first.directory / "log", segment_bytes=1 << 16, segment_age_s=3600, sync=False)
    assert whole.trim(3) != []
    whole.close()
    begun = begin(first.directory, MemorySequencer(log), 1, next(INSTANCES), SETTINGS)
    assert (begun.records, begun.is_complete) == (0, False)
    second.start()
    pumped_until(lambda: second.stopped is not None, second)
    assert "begins with offset 4, since the log it was made from was trimmed" in str(second.stopped)
    second.close()
    first.start()
    pumped_until(first.is_active, first)
    published(first, b"4")
    first.close()
    assert [row[0] for row in first.rows()] == [3, 4]
