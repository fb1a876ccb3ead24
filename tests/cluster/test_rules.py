"""Random histories of several nodes on one shared log, and what must hold whatever happened.

Each script has nodes that publish, die, restart on their directory, pause, are cut off and expelled, and a log that
delays blocks, reorders those of different writers, stores them twice, loses reports and reports failures of blocks
that it has stored. A node here is the real `Member` and `Rules`; its directory is a list of the groups it has applied.
Checked after each script (numbers as in the design of the cluster):
I1 every acknowledged group is in the log of every node, once; I2 logs are equal up to the shorter; I8 no node has
acknowledged a group after a FENCE of another; when the faults end, one node is active and acknowledges again.
I3 (retained sets) and I7 (wills) follow from I2, since a state is a function of its log.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

import pytest

from embermq.cluster.blocks import Kind, SharedBlock, UnreadableBlock, decode
from embermq.cluster.member import Member, NodeStopped
from embermq.cluster.rules import _RULES, NodeFacts, Rules
from embermq.cluster.sequencer import SequencerError
from embermq.store.log.blocks import block_of, read_header
from embermq.store.rows import Group
from embermq.store.rows import Kind as RecordKind
from support.memory_sequencer import MemoryLog, MemorySequencer

TIMEOUT_MS: Final = 600
SCRIPTS: Final = 2_000


def group(first_offset: int, payloads: list[bytes]) -> bytes:
    made = Group(first_offset)
    for payload in payloads:
        made.append(1_000, RecordKind.PUBLISH, 1, b"t", payload, b"c")
    return bytes(block_of(made))


def genesis(next_offset: int = 1) -> bytes:
    return SharedBlock(Kind.GENESIS, 0, number=next_offset, body=b"the-log").encoded()


@dataclass
class Directory:
    """What outlives a process: the groups that were applied, and what was known when it was last saved."""

    groups: list[bytes] = field(default_factory=list)
    saved: Rules = field(default_factory=Rules)

    def apply(self, block: bytes, first_offset: int) -> None:
        """Add a group, unless it is there since before a restart: then it must be the same."""
        header = read_header(block)
        assert header is not None
        assert header.first_offset == first_offset, "records are applied twice, or left out"
        for known in self.groups:
            other = read_header(known)
            assert other is not None
            if other.first_offset == first_offset:
                assert known == block, "the log has other records at an offset"
                return
        self.groups.append(block)


class Server:
    """A process: writes groups while it is active, one at a time, and applies what counts."""

    def __init__(self, node: int, instance: int, log: MemoryLog, directory: Directory, now_ms: int) -> None:
        self.log = log
        self.sequencer = MemorySequencer(log)
        self.sequencer.holds = True
        self.directory = directory
        self.counted: dict[int, SharedBlock] = {}
        self.member = Member(node, instance, directory.saved.copy(), TIMEOUT_MS, now_ms)
        self.applied = directory.saved.next_offset if directory.saved.log_id else 1  # the next offset
        self.has_asked = False  # to join
        self.pending: tuple[int, int, bytes] | None = None  # epoch, sequence, group
        self.reported: list[SequencerError | None] = []

    def read(self, count: int, now_ms: int) -> list[tuple[int, bytes]]:
        """Take blocks as they come; returns the acknowledged groups with their positions."""
        acknowledged: list[tuple[int, bytes]] = []
        if self.sequencer.is_cut_off:
            return acknowledged
        rules = self.member.rules
        for position, data in self.sequencer.read(rules.position, 0)[:count]:
            block = self.member.take(position, data, now_ms)
            if block is not None and block.kind is Kind.RECORDS:
                self.directory.apply(block.body, self.applied)
                self.applied = rules.next_offset
                self.counted[position] = block
                pending, is_own = self.pending, self.pending is not None and self.pending[2] == block.body
                if pending is not None and is_own and self.member.is_active and rules.epoch == pending[0]:
                    acknowledged.append((position, block.body))
                    self.pending = None
            if self.pending is not None and not self.is_writer():
                self.pending = None  # never acknowledged
            if position % 7 == 0:
                self.directory.saved = rules.copy()
        if not self.has_asked and rules.log_id and rules.position >= self.sequencer.end():
            self.has_asked = True
            self.sequencer.append(self.member.join(now_ms), self.reported.append)
        return acknowledged

    def is_writer(self) -> bool:
        return self.member.is_active and self.pending is not None and self.member.rules.epoch == self.pending[0]

    def tick(self, now_ms: int) -> None:
        for block in self.member.tick(now_ms, self.member.rules.next_offset, 0):
            self.sequencer.append(block, self.reported.append)

    def publish(self, payloads: list[bytes]) -> None:
        """A group goes to the shared log; the one that waits goes there again, as after a report that it failed."""
        rules = self.member.rules
        if self.pending is None and self.member.is_active:
            sequence, data = self.member.records(group(rules.next_offset, payloads), 1)
            self.pending = (rules.epoch, sequence, decode(0, data).body)
            self.sequencer.append(data, self.reported.append)
        elif self.pending is not None and self.is_writer() and rules.sequence < self.pending[1]:
            self.sequencer.append(self.member.records(self.pending[2], 1)[1], self.reported.append)


class World:
    """All nodes of one script. The faults and their order come from the seed alone."""

    def __init__(self, seed: int, nodes: int = 3) -> None:
        self.random = random.Random(seed)
        self.log = MemoryLog()
        self.log.store(genesis())
        self.now_ms = 0
        self.instances = 100
        self.directories = {node: Directory() for node in range(1, nodes + 1)}
        self.servers: dict[int, Server] = {}
        self.paused: set[int] = set()
        self.acknowledged: list[tuple[int, int, int, bytes]] = []  # position, node, instance, group
        self.counted: dict[int, SharedBlock] = {}  # the RECORDS that counted, by position
        self.ghosts: list[MemorySequencer] = []  # of processes that are gone: what they have written may come late
        self.payloads = 0
        for node in self.directories:
            self.start(node)

    def start(self, node: int) -> None:
        self.instances += 1
        self.servers[node] = Server(node, self.instances, self.log, self.directories[node], self.now_ms)
        self.paused.discard(node)

    def read(self, server: Server, count: int) -> None:
        try:
            for position, block in server.read(count, self.now_ms):
                self.acknowledged.append((position, server.member.node, server.member.instance, block))
        except NodeStopped as stopped:
            assert "expelled" in str(stopped) or "just now" in str(stopped), "stopped by the process before it"
            self.end(server)
        self.counted |= server.counted

    def end(self, server: Server) -> None:
        """kill -9."""
        self.ghosts.append(server.sequencer)
        del self.servers[server.member.node]

    def step(self) -> None:
        """One thing happens, to one node."""
        choice = self.random
        self.now_ms += choice.randrange(0, 60)
        node = choice.choice(list(self.directories))
        server = self.servers.get(node)
        what = choice.random()
        if server is None:
            if what < 0.3:
                self.start(node)
            return
        if what < 0.005:
            self.end(server)
        elif what < 0.02:
            self.paused ^= {node}
        elif what < 0.027:
            server.sequencer.is_cut_off = not server.sequencer.is_cut_off
        elif what < 0.03:
            expelled = SharedBlock(Kind.EXPEL, node, instance=server.member.instance)
            self.log.store(expelled.encoded())
        elif what < 0.032:
            self.log.store(genesis(choice.randrange(1, 100)))  # `ember cluster init` again
        elif what < 0.034 and self.ghosts:
            choice.choice(self.ghosts).store_held(choice.randrange(3))
        elif node in self.paused:
            server.sequencer.store_held()  # what a stopped process has handed over still goes out
        elif what < 0.38:
            self.read(server, choice.randrange(1, 12))
        elif what < 0.52:
            server.tick(self.now_ms)
        elif what < 0.7:
            self.payloads += 1
            server.publish([b"%d-%d" % (self.payloads, number) for number in range(choice.randrange(1, 4))])
        elif not server.sequencer.is_cut_off:
            server.sequencer.loses_reports = choice.random() < 0.2
            if choice.random() < 0.1:
                server.sequencer.fail_held(stored=choice.random() < 0.5)
            else:
                server.sequencer.store_held(choice.randrange(1, 6), twice=choice.random() < 0.1)

    def heal(self) -> None:
        """The faults end: all nodes run and reach the log."""
        for node in self.directories:
            if node not in self.servers:
                self.start(node)
        self.paused.clear()
        for server in self.servers.values():
            server.sequencer.is_cut_off = False
        deadline_ms = self.now_ms + 20 * TIMEOUT_MS
        before = len(self.acknowledged)
        while self.now_ms < deadline_ms:
            self.now_ms += 40
            for server in list(self.servers.values()):
                server.tick(self.now_ms)
                server.sequencer.store_held(100)
                if len(self.acknowledged) == before:
                    self.payloads += 1
                    server.publish([b"%d" % self.payloads])
                self.read(server, 1_000)
            for node in self.directories:
                if node not in self.servers:
                    self.start(node)
            if len(self.acknowledged) > before and self.are_equal():
                return
        raise AssertionError("no node became active")

    def are_equal(self) -> bool:
        logs = [directory.groups for directory in self.directories.values()]
        return all(log == logs[0] for log in logs)

    def check(self) -> None:
        groups = [directory.groups for directory in self.directories.values()]
        for one, other in pairwise(groups):  # I2
            shorter = min(len(one), len(other))
            assert one[:shorter] == other[:shorter], "logs differ"
        for log in groups:
            offset = 1
            for block in log:
                header = read_header(block)
                assert header is not None and header.first_offset == offset, "offsets have a gap"
                offset += header.records
        active_at = self.owners()
        for position, node, instance, block in self.acknowledged:
            for log in groups:
                assert log.count(block) == 1, "an acknowledged group is lost or doubled"  # I1
            assert active_at[position][:2] == (node, instance), "acknowledged after a fence"  # I8
        for position, counted in self.counted.items():
            writer = (counted.node, counted.instance, counted.epoch)
            assert active_at[position] == writer, "records of a node count that was not the active one"

    def owners(self) -> list[tuple[int, int, int]]:
        """Which process was the active one at each position, told apart from `Rules`: by FENCE, LEAVE and EXPEL."""
        current: dict[int, int] = {}
        expelled: set[int] = set()
        epoch, owner = 0, (0, 0, 0)
        owners: list[tuple[int, int, int]] = []
        for data in self.log.blocks:
            block = decode(0, data)
            if block.kind is Kind.JOIN and current.get(block.node, 0) == block.number:
                current[block.node] = block.instance
            elif block.kind is Kind.EXPEL and current.get(block.node) == block.instance:
                expelled.add(block.instance)
                owner = (0, 0, 0) if owner[1] == block.instance else owner
            is_node = current.get(block.node) == block.instance and block.instance not in expelled
            if block.kind is Kind.FENCE and is_node and block.epoch == epoch + 1:
                epoch, owner = block.epoch, (block.node, block.instance, block.epoch)
            owners.append(owner)
        return owners


def run(seed: int) -> World:
    world = World(seed)
    if seed % 2:
        world.heal()  # one node is active before the first fault
    for _ in range(world.random.randrange(100, 500)):
        world.step()
    world.heal()
    world.check()
    return world


@pytest.mark.parametrize("begin", range(0, SCRIPTS, 500))
def test_whatever_happens_nothing_acknowledged_is_lost_and_all_logs_are_equal(begin: int) -> None:
    epochs = voids = acknowledged = 0
    for seed in range(begin, begin + 500):
        world = run(seed)
        epochs += next(iter(world.servers.values())).member.rules.epoch
        voids += max(server.member.void_blocks for server in world.servers.values())
        acknowledged += len(world.acknowledged)
    assert epochs > 750 and voids > 300 and acknowledged > 1_000  # the scripts reach what they are about


def second_genesis(rules: Rules, position: int, block: SharedBlock) -> bool:
    rules.log_id, rules.next_offset = block.body.decode(), block.number
    return True


def any_fence(rules: Rules, position: int, block: SharedBlock) -> bool:
    rules.epoch, rules.active, rules.instance, rules.sequence = block.epoch, block.node, block.instance, 0
    return True


def any_join(rules: Rules, position: int, block: SharedBlock) -> bool:
    rules.nodes[block.node] = NodeFacts(block.instance)
    return True


def records(rules: Rules, block: SharedBlock, *, instance: bool = True, sequence: bool = True) -> bool:
    """RECORDS as the rules take them, but for what is left out; what does not follow is given the next offset."""
    if instance and not rules.is_active(block.node, block.instance):
        return False
    if block.epoch != rules.epoch or (sequence and block.sequence != rules.sequence + 1):
        return False
    header = read_header(block.body)
    assert header is not None
    rules.sequence, rules.next_offset = block.sequence, header.first_offset + header.records
    return True


FAULTS: Final[dict[str, tuple[Kind, Callable[[Rules, int, SharedBlock], bool]]]] = {
    "a join counts whoever was the node": (Kind.JOIN, any_join),
    "every fence counts": (Kind.FENCE, any_fence),
    "records of another process count": (Kind.RECORDS, lambda rules, _, block: records(rules, block, instance=False)),
    "records that were stored twice count": (
        Kind.RECORDS,
        lambda rules, _, block: records(rules, block, sequence=False),
    ),
    "an expelled node stays active": (Kind.EXPEL, lambda rules, position, block: True),
    "a second genesis counts": (Kind.GENESIS, second_genesis),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_a_rule_is_found(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, rule = FAULTS[fault]
    monkeypatch.setitem(_RULES, kind, rule)
    with pytest.raises((AssertionError, UnreadableBlock)):
        for seed in range(500):
            run(seed)
