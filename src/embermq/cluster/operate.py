"""What an operator does with a shared log: begin it, see its nodes, put one of them out.

Owns: the blocks that no running node writes: the first ones, and EXPEL.
Never: Kafka; the engine is given.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Final

from embermq.cluster.blocks import Kind, SharedBlock
from embermq.cluster.member import Member
from embermq.cluster.place import enter, write_place
from embermq.cluster.rules import Rules
from embermq.cluster.sequencer import Sequencer, SequencerError
from embermq.store.engines.directory import DataDirectory
from embermq.store.engines.opening import JournalSettings, open_log
from embermq.store.engines.shared_log import PLACE
from embermq.store.interface import NodeStatus
from embermq.store.log.blocks import block_of
from embermq.store.log.segments import FIRST_OFFSET
from embermq.store.log.writer import Log

APPEND_TIMEOUT_S: Final = 60
READ_TIMEOUT_S: Final = 60
SIGHTINGS_S: Final = 2.5
"""How long `status` waits for nodes to say that they are there: more than twice as long as they take by default."""


@dataclass(frozen=True, slots=True)
class Begun:
    """A new shared log. `records` were copied from the directory; `is_complete`: with them it has all of its log."""

    log_id: str
    records: int
    is_complete: bool


def begin(directory: Path, sequencer: Sequencer, node: int, instance: int, settings: JournalSettings) -> Begun:
    """Begin a shared log in an empty topic from a data directory, which belongs to it from then on.

    What its log has is copied, so that the other nodes need nothing but the shared log; if it was trimmed, they need a
    copy of the directory.
    """
    if sequencer.end() > sequencer.first():
        raise SequencerError(
            "the topic is not empty: a shared log begins in a new one, name it in cluster.topic; to go on with this"
            " log, start the nodes"
        )
    data = DataDirectory(directory)
    try:
        log = open_log(data, settings)
        try:
            rules = Rules(position=sequencer.first())
            is_complete = log.first_offset == FIRST_OFFSET and not log.identity.lost
            first_offset = FIRST_OFFSET if is_complete else log.next_offset
            log_id = log.identity.log_id
            _write(sequencer, rules, SharedBlock(Kind.GENESIS, 0, number=first_offset, body=log_id.encode()))
            if rules.next_offset < log.next_offset:
                for block in _copied(log, node, instance):
                    _write(sequencer, rules, block)
            write_place(directory, sequencer.identity, rules)
            return Begun(log_id, log.next_offset - first_offset, is_complete)
        finally:
            log.close()
    finally:
        data.close()


def _copied(log: Log, node: int, instance: int) -> Iterator[SharedBlock]:
    """The log as blocks that count: the node joins, leads, and leaves."""
    yield SharedBlock(Kind.JOIN, node, instance)
    yield SharedBlock(Kind.FENCE, node, instance, epoch=1)
    for sequence, group in enumerate(log.groups_from(log.first_offset), 1):
        body = bytes(block_of(group.with_columns()))
        yield SharedBlock(Kind.RECORDS, node, instance, epoch=1, sequence=sequence, number=log.first_offset, body=body)
    yield SharedBlock(Kind.LEAVE, node, instance)


def _write(sequencer: Sequencer, rules: Rules, block: SharedBlock) -> None:
    """Append a block and read it back: nobody else may write yet."""
    data = block.encoded()
    _append(sequencer, data)
    until_s = time.monotonic() + READ_TIMEOUT_S
    while time.monotonic() < until_s:
        for position, found in sequencer.read(rules.position, 1.0):
            if found != data or not rules.take(position, block):
                raise SequencerError("another server writes to the topic: begin one shared log, on one machine, once")
            return
    raise SequencerError("the shared log does not give back what was written: see what slows Kafka down")


def _append(sequencer: Sequencer, data: bytes) -> None:
    reported = Event()
    errors: list[SequencerError] = []

    def done(error: SequencerError | None) -> None:
        if error is not None:
            errors.append(error)
        reported.set()

    sequencer.append(data, done)
    if not reported.wait(APPEND_TIMEOUT_S):
        raise SequencerError("Kafka does not say whether it has stored a block: see what slows it down")
    if errors:
        raise errors[0]


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


def _at_the_end(directory: Path, sequencer: Sequencer) -> Member:
    """An onlooker that has read all of the shared log, from the place of a node's directory on if there is one."""
    rules = enter(directory, sequencer) if (directory / PLACE).exists() else Rules(position=sequencer.first())
    onlooker = Member(0, 0, rules, READ_TIMEOUT_S * 1000, _now_ms())
    end = sequencer.end()
    until_s = time.monotonic() + READ_TIMEOUT_S
    while rules.position < end:
        blocks = sequencer.read(rules.position, 1.0)
        for position, data in blocks:
            onlooker.take(position, data, _now_ms())
        if blocks:
            until_s = time.monotonic() + READ_TIMEOUT_S
        elif time.monotonic() > until_s:
            raise SequencerError("the shared log does not give its blocks: see what slows Kafka down")
    if not rules.log_id:
        raise SequencerError("the shared log is empty: begin it with `ember cluster init`, once, on one machine")
    return onlooker


def status(directory: Path, sequencer: Sequencer, wait_s: float = SIGHTINGS_S) -> tuple[Rules, list[NodeStatus]]:
    """Every node that there was, and whether it says now that it is there. One that was expelled is not waited for."""
    onlooker = _at_the_end(directory, sequencer)
    rules = onlooker.rules
    onlooker.sightings.clear()
    until_s = time.monotonic() + wait_s

    def all_are_seen() -> bool:
        return all(facts.is_expelled or node in onlooker.sightings for node, facts in rules.nodes.items())

    while not all_are_seen() and time.monotonic() < until_s:
        for position, data in sequencer.read(rules.position, 0.2):
            onlooker.take(position, data, _now_ms())
    return rules, onlooker.nodes(_now_ms())


def expel(directory: Path, sequencer: Sequencer, node: int) -> None:
    """Have a node stop: what it writes does not count any more, until it is started again and joins."""
    rules = _at_the_end(directory, sequencer).rules
    facts = rules.nodes.get(node)
    if facts is None:
        known = ", ".join(map(str, sorted(rules.nodes)))
        raise SequencerError(f"there is no node {node}: expected one of {known or 'none, since none has joined'}")
    _append(sequencer, SharedBlock(Kind.EXPEL, node, facts.instance).encoded())
