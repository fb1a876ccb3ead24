"""A node's part in the cluster: when it joins, that it is alive, and when it takes the place of the active node.

Owns: the blocks that a node writes beside records, and the one question of when to write a FENCE.
Never: a thread, a clock, an engine: time comes in as `now_ms`, blocks go out as return values.

A standby writes a FENCE when nobody is active, or when it has read no block of the active node for `node_timeout_ms`
while the log moved: its own PRESENT came back that it had written after this time. What it then believes does not
matter, its FENCE counts by the rules or not. An active node whose blocks do not come back stops being active by
itself, so that its clients can go to another node.
"""

from dataclasses import dataclass
from typing import Final, final

from embermq.cluster.blocks import NAME_BYTES_MAX, Kind, SharedBlock, decode
from embermq.cluster.rules import NodeFacts, Rules
from embermq.cluster.sequencer import SequencerError
from embermq.store.interface import NodeStatus

PRESENT_SHARE: Final = 6
"""A node says that it is alive this many times in `node_timeout_ms`."""
CUT_OFF_SHARE: Final = 2
"""An active node that has read nothing of its own for this many times `node_timeout_ms` stops being active."""


class NodeStopped(SequencerError):
    """This node must not go on: it was expelled, or another process has become it."""


@final
@dataclass(slots=True)
class Sighting:
    """What a node has last said of itself."""

    name: str
    next_offset: int
    lag: int  # how far the shared log was beyond it
    seen_ms: int


@final
class Member:
    """This process as a node."""

    def __init__(
        self, node: int, instance: int, rules: Rules, node_timeout_ms: int, now_ms: int, name: str = ""
    ) -> None:
        self.node: Final = node
        self.instance: Final = instance
        self.rules: Final = rules
        self.sightings: Final[dict[int, Sighting]] = {}
        self.is_joined = False
        self.is_active = False  # this node is the active one and may acknowledge
        self.void_blocks = 0
        self._name: Final = name.encode()[:NAME_BYTES_MAX]
        self._node_timeout_ms: Final = node_timeout_ms
        self._active_seen_ms = now_ms  # when something of the active node was read last
        self._came_back_ms = now_ms  # the newest of our own stamps that was read back
        self._present_ms = 0  # when the next PRESENT is due
        self._fenced_ms = -node_timeout_ms  # when our last FENCE was written

    def join(self, now_ms: int) -> bytes:
        """The block by which this process becomes the node; to be written once all that there was has been taken."""
        facts = self.rules.nodes.get(self.node)
        self._active_seen_ms = self._came_back_ms = now_ms
        return self._block(Kind.JOIN, number=0 if facts is None else facts.instance)

    def take(self, position: int, data: bytes, now_ms: int) -> SharedBlock | None:
        """The block at a position if it counts. NodeStopped: this node must stop."""
        block = decode(position, data)
        is_ours = block.node == self.node and block.instance == self.instance
        counts = self.rules.take(position, block)
        if not counts:
            self.void_blocks += 1
        self._follow(block, counts, is_ours, now_ms)
        if counts and self.rules.is_active(block.node, block.instance):
            self._active_seen_ms = now_ms
        if counts and block.kind is Kind.PRESENT:
            name = block.body.decode("utf-8", "replace")
            lag = max(0, self.rules.next_offset - block.number)
            self.sightings[block.node] = Sighting(name, block.number, lag, now_ms)
        return block if counts else None

    def _follow(self, block: SharedBlock, counts: bool, is_ours: bool, now_ms: int) -> None:
        """What a block means for this node."""
        if block.kind is Kind.JOIN:
            if is_ours and not counts and not self.is_joined:
                raise NodeStopped(f"another server has joined as node {self.node} just now: {_OWN_NUMBER}")
            if counts and is_ours:
                self.is_joined = True
            elif counts and block.node == self.node and self.is_joined:
                self.is_active = False
                raise NodeStopped(f"another server has joined as node {self.node}: {_OWN_NUMBER}")
        elif not counts:
            return
        elif block.kind is Kind.FENCE:
            self.is_active = is_ours
        elif block.kind is Kind.EXPEL and is_ours:
            self.is_active = False
            raise NodeStopped(f"node {self.node} was expelled: start it again to have it join as a standby")
        elif block.kind is Kind.LEAVE:
            self.sightings.pop(block.node, None)
            if is_ours:
                self.is_active = False
        elif block.kind is Kind.PRESENT and is_ours:
            self._came_back_ms = block.sequence

    def tick(self, now_ms: int, next_offset: int, now_us: int, may_lead: bool = True) -> list[bytes]:
        """The blocks that are due. `may_lead`: this node could take over, its disk works."""
        if not self.is_joined:
            return []
        blocks: list[bytes] = []
        if now_ms >= self._present_ms:
            self._present_ms = now_ms + self._node_timeout_ms // PRESENT_SHARE
            blocks.append(
                self._block(Kind.PRESENT, sequence=now_ms, number=next_offset, moment_us=now_us, body=self._name)
            )
        if self.is_active and now_ms - self._came_back_ms > CUT_OFF_SHARE * self._node_timeout_ms:
            self.is_active = False
        is_due = now_ms - self._fenced_ms > self._node_timeout_ms // PRESENT_SHARE
        if may_lead and not self.is_active and is_due and self._nobody_leads(now_ms):
            self._fenced_ms = now_ms
            blocks.append(self._block(Kind.FENCE, epoch=self.rules.epoch + 1))
        return blocks

    def _nobody_leads(self, now_ms: int) -> bool:
        """Whether the log is known to move without an active node."""
        rules = self.rules
        if now_ms - self._came_back_ms >= self._node_timeout_ms:
            return False
        if rules.active in (0, self.node):  # this node, and yet it is not active: as after a restart
            return True
        return self._came_back_ms - self._active_seen_ms > self._node_timeout_ms

    def records(self, block: bytes, floor: int) -> tuple[int, bytes]:
        """A commit group as a block of the shared log, with its sequence number."""
        sequence = self.rules.sequence + 1
        return sequence, self._block(Kind.RECORDS, epoch=self.rules.epoch, sequence=sequence, number=floor, body=block)

    def nodes(self, now_ms: int) -> list[NodeStatus]:
        """The nodes that there were, in the order of their numbers. From any thread."""
        return [self._status(node, facts, now_ms) for node, facts in sorted(self.rules.nodes.copy().items())]

    def _status(self, node: int, facts: NodeFacts, now_ms: int) -> NodeStatus:
        sighting = self.sightings.get(node)
        is_this = node == self.node
        heard_ms = -1 if sighting is None else max(0, now_ms - sighting.seen_ms)
        if facts.is_expelled:
            state = "expelled"
        elif not 0 <= heard_ms < self._node_timeout_ms:
            state = "gone"
        else:
            state = "active" if self.rules.is_active(node, facts.instance) else "standby"
        if sighting is None:
            return NodeStatus(node, state, "", -1, -1, -1, is_this)
        return NodeStatus(node, state, sighting.name, sighting.next_offset, sighting.lag, heard_ms, is_this)

    def leave(self) -> bytes:
        """The block by which this node stops."""
        return self._block(Kind.LEAVE)

    def _block(
        self, kind: Kind, epoch: int = 0, sequence: int = 0, number: int = 0, moment_us: int = 0, body: bytes = b""
    ) -> bytes:
        return SharedBlock(kind, self.node, self.instance, epoch, sequence, number, moment_us, body).encoded()


_OWN_NUMBER: Final = "give each server a cluster.node of its own"
