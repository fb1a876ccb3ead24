"""Which blocks of the shared log count: a deterministic function of the log's order, the same on every node.

Owns: the rules, and the few facts that they need of what came before.
Never: a clock, a setting, a thread. What a block that counts does to a directory is not decided here.

1. The first block is the genesis; another one is void.
2. A JOIN counts if it names the instance that was the node before. From then on only its instance is the node.
3. A FENCE counts if its epoch follows the newest one, and its instance is its node and was not expelled. It makes its
   node the active one: of two nodes that want to be, the first in the log is.
4. RECORDS count if their node is the active one with this epoch and instance, and their sequence number is the next.
   A paused or cut-off node can write late: its blocks are void, for every reader, for ever. A block that was stored
   twice counts once.
5. A LEAVE or an EXPEL of the active instance ends its epoch: nobody is active until the next FENCE.
6. Offsets follow without a gap over the RECORDS that count. So the logs of all nodes are equal, record by record.
"""

from dataclasses import dataclass, field, replace
from typing import Any, Final, final

from embermq.cluster.blocks import Kind, SharedBlock, UnreadableBlock
from embermq.cluster.sequencer import SharedLogLost
from embermq.store.log.blocks import read_header


@dataclass(slots=True)
class NodeFacts:
    """What the log says of a node: which process it is, and whether that one was expelled."""

    instance: int
    is_expelled: bool = False


@final
@dataclass(slots=True)
class Rules:
    """What follows from the blocks before `position`."""

    log_id: str = ""
    position: int = 0  # the next one that is taken
    epoch: int = 0
    active: int = 0  # the node that is active; 0: none is
    instance: int = 0  # of the active node
    sequence: int = 0  # of the newest RECORDS that count in this epoch
    next_offset: int = 0
    floor: int = 0  # no RECORDS from here on refer to a record before this offset
    nodes: dict[int, NodeFacts] = field(default_factory=dict)  # by node, at most as many as a node number may be

    def take(self, position: int, block: SharedBlock) -> bool:
        """Whether the block at a position counts. UnreadableBlock: this node cannot go on."""
        if not self.log_id and block.kind is not Kind.GENESIS:
            raise SharedLogLost(
                f"the shared log begins at position {position} without its beginning, which its retention removed: make"
                " this node's data directory a copy of that of another node, which must be stopped meanwhile"
            )
        counts = _RULES[block.kind](self, position, block)
        self.position = position + 1
        return counts

    def is_active(self, node: int, instance: int) -> bool:
        return self.active == node and self.instance == instance

    def copy(self) -> "Rules":
        """As it is now."""
        return replace(self, nodes={node: replace(facts) for node, facts in self.nodes.items()})

    def _genesis(self, position: int, block: SharedBlock) -> bool:
        if self.log_id:
            return False
        self.log_id = block.body.decode("ascii", "replace")
        self.next_offset = self.floor = block.number
        return True

    def _join(self, position: int, block: SharedBlock) -> bool:
        facts = self.nodes.get(block.node)
        if block.number != (0 if facts is None else facts.instance):
            return False
        self.nodes[block.node] = NodeFacts(block.instance)
        return True

    def _is_present(self, position: int, block: SharedBlock) -> bool:
        facts = self.nodes.get(block.node)
        return facts is not None and facts.instance == block.instance and not facts.is_expelled

    def _fence(self, position: int, block: SharedBlock) -> bool:
        if block.epoch != self.epoch + 1 or not self._is_present(position, block):
            return False
        self.epoch = block.epoch
        self.active, self.instance, self.sequence = block.node, block.instance, 0
        return True

    def _records(self, position: int, block: SharedBlock) -> bool:
        is_writer = self.is_active(block.node, block.instance) and block.epoch == self.epoch
        if not is_writer or block.sequence != self.sequence + 1:
            return False
        header = read_header(block.body)
        if header is None or header.first_offset != self.next_offset or header.total_bytes != len(block.body):
            raise UnreadableBlock(
                f"the records at position {position} of the shared log do not follow the ones before (offset"
                f" {self.next_offset}): stop all nodes, and begin another log from the newest data directory with"
                " `ember cluster init`"
            )
        self.sequence = block.sequence
        self.next_offset += header.records
        self.floor = max(self.floor, block.number)
        return True

    def _leave(self, position: int, block: SharedBlock) -> bool:
        facts = self.nodes.get(block.node)
        if facts is None or facts.instance != block.instance:
            return False
        if block.kind is Kind.EXPEL:
            facts.is_expelled = True
        if self.is_active(block.node, block.instance):
            self.active = self.instance = 0
        return True

    def saved(self) -> dict[str, Any]:
        """As JSON takes it."""
        nodes = {str(node): [facts.instance, facts.is_expelled] for node, facts in self.nodes.items()}
        return {
            "log_id": self.log_id,
            "position": self.position,
            "epoch": self.epoch,
            "active": self.active,
            "instance": self.instance,
            "sequence": self.sequence,
            "next_offset": self.next_offset,
            "floor": self.floor,
            "nodes": nodes,
        }


def loaded(saved: dict[str, Any]) -> Rules:
    """What `saved` has made. KeyError, TypeError, ValueError: it was not made by it."""
    nodes = {int(node): NodeFacts(int(instance), bool(out)) for node, (instance, out) in saved["nodes"].items()}
    names = ("position", "epoch", "active", "instance", "sequence", "next_offset", "floor")
    numbers = {name: int(saved[name]) for name in names}
    return Rules(str(saved["log_id"]), nodes=nodes, **numbers)


_RULES: Final = {
    Kind.GENESIS: Rules._genesis,
    Kind.JOIN: Rules._join,
    Kind.PRESENT: Rules._is_present,
    Kind.FENCE: Rules._fence,
    Kind.RECORDS: Rules._records,
    Kind.LEAVE: Rules._leave,
    Kind.EXPEL: Rules._leave,
}
