"""A node: the one thread that reads the shared log, and what it means for this server.

Owns: reading, in order; giving the store what the active node has appended; when this node joins, leads and stops.
Never: which blocks count (`cluster.rules`), when to take over (`cluster.member`), a connection of a client.

1. The node reads all that there is, from its place on, and the store applies it (`DiskStore.follow`).
2. It joins, and says regularly that it is there. It is a standby.
3. Its FENCE counts: when all before it is applied, the store leads. Each commit group is appended to the shared log
   (`share`), and is acknowledged once this thread has read it as counting. One group is on its way at a time.
4. It reads that another node leads, or reads nothing for long: it acknowledges nothing from then on, and stops. The
   server ends its connections and starts again, as a standby.
What may have been stored although its report was a failure is appended again until it is read: it counts once.
"""

import logging
import time
from collections.abc import Callable, Iterator
from functools import partial
from threading import Condition, Event
from typing import Final, final

from embermq.cluster.blocks import Kind, SharedBlock, UnreadableBlock
from embermq.cluster.member import PRESENT_SHARE, Member, NodeStopped
from embermq.cluster.place import write_place
from embermq.cluster.rules import Rules
from embermq.cluster.sequencer import Sequencer, SequencerError, SharedLogLost
from embermq.named_thread import NamedThread
from embermq.store.engines.disk import DiskStore
from embermq.store.engines.shared_log import SharedLog
from embermq.store.errors import Fenced, StoreError
from embermq.store.interface import NodeStatus
from embermq.store.log.blocks import Block, block_of
from embermq.store.log.errors import BadBlock
from embermq.store.rows import Group

READ_WAIT_S: Final = 0.2
RETRY_S: Final = 0.5
SHARE_WAIT_S: Final = 5.0
"""After this long without an answer the store is told that nothing can be made durable; it goes on waiting."""
FOLLOWED_BYTES_MAX: Final = 32 * 1024 * 1024
"""What is given to the store and not applied yet; a larger group alone."""
JOIN_AGAIN_S: Final = 5.0
PLACE_INTERVAL_S: Final = 5.0
LEAVE_WAIT_S: Final = 2.0

_logger: Final = logging.getLogger("embermq.cluster")


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


@final
class Node(SharedLog):
    """This server in its cluster, from `begin` to `close`."""

    def __init__(
        self, sequencer: Sequencer, rules: Rules, node: int, instance: int, node_timeout_ms: int, reachable_at: str = ""
    ) -> None:
        """`rules`: what follows from the blocks before the place of the data directory (`place.enter`)."""
        self._sequencer: Final = sequencer
        self._rules: Final = rules
        self._member: Final = Member(node, instance, rules, node_timeout_ms, _now_ms(), reachable_at)
        self._store: DiskStore | None = None
        self._read_wait_s: Final = min(READ_WAIT_S, node_timeout_ms / 1000 / (2 * PRESENT_SHARE))
        self._stopping: Final = Event()
        self._thread: Final = NamedThread(self._run, "ember-node")
        self._changed: Final = Condition()  # guards what follows
        self._is_leading = False
        self._ended: StoreError | None = None  # why the thread has ended by itself
        self._group: Group | None = None  # the one that is being shared, as a block, with its number
        self._data = b""
        self._sequence = 0
        self._counted = 0  # the number of our newest group that was read as counting
        self._failure: SequencerError | None = None  # what was reported of it
        self._followed_bytes = 0
        # The rest is of the thread alone.
        self._next_offset = 0  # of the next group that the store is given
        self._own: Iterator[Group] | None = None  # what the log had at the start, from the first that is read again
        self._end = -1  # where the shared log ended at the start; -1: not known yet
        self._join_s = 0.0  # when JOIN is due, again
        self._complaint = ""
        self._unsaved: Rules | None = None
        self._saved_position = rules.position
        self._save_s = 0.0
        self._synced_offset = 0

    def begin(self, store: DiskStore) -> None:
        """Start to read, for this store."""
        self._store = store
        self._next_offset = self._synced_offset = store.log_end()
        self._thread.start()

    @property
    def store(self) -> DiskStore:
        assert self._store is not None, "a node reads for a store"
        return self._store

    # -- SharedLog: from the store's threads -----------------------------------------------------------------------

    def share(self, group: Group, floor: int) -> None:
        with self._changed:
            if self._group is not group:
                self._sequence, self._data = self._member.records(bytes(block_of(group)), floor)
                self._group = group
                self._send()
            elif self._failure is not None:
                self._send()
            until_s = time.monotonic() + SHARE_WAIT_S
            while True:
                if not self._is_leading:
                    raise Fenced(str(self._ended or "this server is not the active one of its cluster"))
                if self._counted >= self._sequence:
                    self._group, self._data = None, b""
                    return
                if self._failure is not None:
                    raise self._failure
                wait_s = until_s - time.monotonic()
                if wait_s <= 0 or self._stopping.is_set():
                    raise SequencerError("the shared log does not take what this server appends")
                self._changed.wait(wait_s)

    def _send(self) -> None:
        self._failure = None
        self._sequencer.append(self._data, partial(self._reported, self._sequence))

    def _reported(self, sequence: int, error: SequencerError | None) -> None:
        if error is None:
            return  # what counts is that it was read
        with self._changed:
            if sequence == self._sequence:
                self._failure = error
                self._changed.notify_all()

    def floor(self) -> int:
        return self._rules.floor

    def active_at(self) -> str:
        sighting = self._member.sightings.get(self._rules.active)
        return "" if sighting is None else sighting.name

    def nodes(self) -> list[NodeStatus]:
        return self._member.nodes(_now_ms())

    def counts(self) -> dict[str, int]:
        return {
            "cluster/active": int(self._is_leading),
            "cluster/node": self._member.node,
            "cluster/active-node": self._rules.active,
            "cluster/epoch": self._rules.epoch,
            "cluster/position": self._rules.position,
            "cluster/void-blocks": self._member.void_blocks,
        }

    def stop_following(self) -> None:
        if not self._is_leading:
            self._stop()

    def close(self) -> None:
        self._stop()
        try:
            if self._member.is_joined and not isinstance(self._ended, NodeStopped):
                left = Event()
                self._sequencer.append(self._member.leave(), lambda error: left.set())
                left.wait(LEAVE_WAIT_S)
            if self._ended is None:  # else what was read last may not be what the log has
                self._note_place()
                self._save_place()
        finally:
            self._sequencer.close()

    def _stop(self) -> None:
        self._stopping.set()
        with self._changed:
            self._changed.notify_all()
        self._thread.join()

    # -- the thread ------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._read()
                self._join_at_the_end()
                self._tick()
                if time.monotonic() >= self._save_s:
                    self._save_s = time.monotonic() + PLACE_INTERVAL_S
                    self._note_place()
                self._save_place()
        except StoreError as error:
            self._end_with(error)
        except Exception as error:  # a bug of ours
            _logger.exception("the node stopped")
            self._end_with(NodeStopped(f"this node has stopped reading the shared log: {error!r}"))

    def _end_with(self, error: StoreError) -> None:
        _logger.error("%s", error)
        with self._changed:
            self._is_leading = False
            self._ended = error
            self._changed.notify_all()
        self.store.stop(error)

    def _read(self) -> None:
        """Take what the shared log has next. While it does not answer, say so once, and try again."""
        try:
            if self._end < 0:
                self._end = self._sequencer.end()
                if self._end < self._rules.position:
                    raise SharedLogLost(
                        f"the shared log ends at position {self._end}, and this node has read up to"
                        f" {self._rules.position}: its end was lost; begin another log from the newest data directory"
                        " with `ember cluster init`"
                    )
            blocks = self._sequencer.read(self._rules.position, self._read_wait_s)
        except SharedLogLost:
            raise
        except SequencerError as error:
            if str(error) != self._complaint:
                self._complaint = str(error)
                _logger.error("the shared log cannot be read, this is tried again: %s", error)
            self._stopping.wait(RETRY_S)
            return
        if blocks and self._complaint:
            self._complaint = ""
            _logger.warning("the shared log can be read again")
        for position, data in blocks:
            if self._stopping.is_set():
                return
            self._take(position, data)

    def _take(self, position: int, data: bytes) -> None:
        member = self._member
        was_active = member.is_active
        block = member.take(position, data, _now_ms())
        if block is None:
            return
        if was_active and not member.is_active:
            raise Fenced(f"node {self._rules.active or block.node} has taken the place of this node, {member.node}")
        if block.kind is Kind.RECORDS:
            if self._is_leading:
                with self._changed:
                    self._counted = block.sequence
                    self._changed.notify_all()
            else:
                self._follow(position, block)
        elif block.kind is Kind.GENESIS and block.number > self._next_offset:
            raise SharedLogLost(
                f"the shared log begins with offset {block.number}, since the log it was made from was trimmed: make"
                " this node's data directory a copy of that of another node, which must be stopped meanwhile"
            )
        if member.is_active and not was_active:
            self._lead()

    def _follow(self, position: int, block: SharedBlock) -> None:
        """Give the store a group of the active node; or see that the log has it, after a start."""
        try:
            group = Block(block.body).group().with_columns()
        except BadBlock as error:
            raise UnreadableBlock(
                f"the records at position {position} of the shared log are damaged ({error}): stop all nodes, and begin"
                " another log from the newest data directory with `ember cluster init`"
            ) from None
        if group.first_offset < self._next_offset:
            self._compare(group.first_offset, block.body)
            return
        if group.first_offset > self._next_offset:
            raise SharedLogLost(
                f"the log of this node ends at offset {self._next_offset} and the shared log goes on at"
                f" {group.first_offset}: its end was lost; start the node with an empty directory, or a copy of that of"
                " another node"
            )
        if not self._wait_for(lambda: not self._followed_bytes or self._followed_bytes < FOLLOWED_BYTES_MAX):
            return
        self._own = None
        self._next_offset = group.next_offset
        size_bytes = len(block.body)
        with self._changed:
            self._followed_bytes += size_bytes
        self.store.follow(group, partial(self._applied, size_bytes))

    def _compare(self, offset: int, body: bytes) -> None:
        """The log has this group already, unless it is another log. What was trimmed is not compared."""
        if self._own is None:
            if offset < self.store.log_begin():
                return
            self._own = self.store.log_groups(offset)
        own = next(self._own, None)
        if own is None or bytes(block_of(own.with_columns())) != body:
            raise self._is_another(offset)

    def _is_another(self, offset: int) -> SharedLogLost:
        return SharedLogLost(
            f"the log of this node differs from the shared log at offset {offset}: its directory was used by a server"
            " outside of the cluster; begin another log from it with `ember cluster init`, or start with an empty one"
        )

    def _applied(self, size_bytes: int) -> None:
        """On the broker's thread."""
        with self._changed:
            self._followed_bytes -= size_bytes
            self._changed.notify_all()

    def _wait_for(self, condition: Callable[[], bool]) -> bool:
        """Whether it has become true before the node was stopped."""
        with self._changed:
            self._changed.wait_for(lambda: condition() or self._stopping.is_set())
            return condition()

    def _join_at_the_end(self) -> None:
        """Join once all is read and applied that there was at the start."""
        if self._member.is_joined or self._end < 0 or self._rules.position < self._end:
            return
        if time.monotonic() < self._join_s:
            return
        if self._next_offset > self._rules.next_offset:
            raise self._is_another(self._rules.next_offset)
        if self._wait_for(lambda: not self._followed_bytes):
            self._join_s = time.monotonic() + JOIN_AGAIN_S
            self._sequencer.append(self._member.join(_now_ms()), self._ignore)

    def _lead(self) -> None:
        if not self._wait_for(lambda: not self._followed_bytes):
            return
        with self._changed:
            self._is_leading = True
        _logger.warning("node %d is the active one, with epoch %d", self._member.node, self._rules.epoch)
        self.store.lead()

    def _tick(self) -> None:
        member = self._member
        was_active = member.is_active
        works = self._is_leading or not self.store.failing_disk()
        for block in member.tick(_now_ms(), self.store.log_end(), time.time_ns() // 1000, works):
            self._sequencer.append(block, self._ignore)
        if was_active and not member.is_active:
            raise Fenced(f"node {member.node} has read nothing of its own from the shared log for long")

    def _ignore(self, error: SequencerError | None) -> None:
        """For blocks that are written again when they are due."""

    # -- its place -------------------------------------------------------------------------------------------------

    def _note_place(self) -> None:
        if self._unsaved is None and self._rules.log_id and self._rules.position != self._saved_position:
            self._unsaved = self._rules.copy()

    def _save_place(self) -> None:
        """Write down the noted place once the log has all that is before it."""
        noted, store = self._unsaved, self.store
        if noted is None or store.log_end() < noted.next_offset:
            return
        self._unsaved = None
        try:
            self._synced_offset = store.sync_log(self._synced_offset)
            write_place(store.directory, self._sequencer.identity, noted)
            self._saved_position = noted.position
        except OSError as error:
            _logger.error("the node's place in the shared log could not be written, this is tried again: %s", error)
