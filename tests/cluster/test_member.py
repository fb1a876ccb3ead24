"""When a node takes over, steps down and stops, and what it says of blocks that it cannot read."""

import json
from collections.abc import Callable

import pytest

from embermq.cluster.blocks import FORMAT, HEADER, Kind, SharedBlock, UnreadableBlock, decode
from embermq.cluster.member import Member, NodeStopped
from embermq.cluster.rules import Rules, loaded
from embermq.cluster.sequencer import SharedLogLost
from embermq.store.log.blocks import block_of
from embermq.store.rows import Group
from embermq.store.rows import Kind as RecordKind

GENESIS = SharedBlock(Kind.GENESIS, 0, number=1, body=b"the-log").encoded()


class Cluster:
    """Members on one log, in which everything is taken by all at once."""

    def __init__(self) -> None:
        self.log = [GENESIS]
        self.members: dict[int, Member] = {}

    def start(self, node: int, instance: int, now_ms: int) -> Member:
        member = Member(node, instance, Rules(), 6_000, now_ms, f"mqtt{node}")
        for position, data in enumerate(self.log):
            member.take(position, data, now_ms)
        self.members[node] = member
        self.write([member.join(now_ms)], now_ms)
        return member

    def write(self, blocks: list[bytes], now_ms: int) -> None:
        for data in blocks:
            self.log.append(data)
            for member in self.members.values():
                member.take(len(self.log) - 1, data, now_ms)

    def tick(self, now_ms: int, *nodes: int) -> None:
        for node in nodes:
            self.write(self.members[node].tick(now_ms, 1, 0), now_ms)

    def active(self) -> list[int]:
        return [node for node, member in self.members.items() if member.is_active]


def two_nodes() -> Cluster:
    cluster = Cluster()
    cluster.start(1, 11, 0)
    cluster.tick(0, 1)
    cluster.start(2, 21, 0)
    cluster.tick(0, 2)
    assert cluster.active() == [1]
    return cluster


def test_a_standby_takes_over_when_the_active_node_has_been_silent_for_the_timeout() -> None:
    cluster = two_nodes()
    for now_ms in range(1_000, 6_001, 1_000):
        cluster.tick(now_ms, 2)
    assert cluster.active() == [1]
    cluster.tick(7_000, 2)
    cluster.tick(8_000, 2)
    assert cluster.active() == [2]


def test_a_standby_that_reads_nothing_does_not_take_over() -> None:
    cluster = two_nodes()
    member = cluster.members[2]
    kinds = {decode(0, data).kind for now_ms in range(0, 60_000, 500) for data in member.tick(now_ms, 1, 0)}
    assert kinds == {Kind.PRESENT}


def test_an_active_node_that_reads_nothing_of_its_own_steps_down() -> None:
    cluster = two_nodes()
    member = cluster.members[1]
    member.tick(12_000, 1, 0)
    assert member.is_active
    member.tick(12_001, 1, 0)
    assert not member.is_active


def test_a_node_that_leaves_is_followed_at_once_and_one_that_restarts_is_active_at_once() -> None:
    cluster = two_nodes()
    cluster.write([cluster.members.pop(1).leave()], 100)
    cluster.tick(1_000, 2)
    assert cluster.active() == [2]
    cluster.start(2, 22, 1_100)  # after kill -9
    cluster.tick(2_200, 2)
    assert cluster.active() == [2]


def test_an_expelled_node_stops_and_another_takes_over() -> None:
    cluster = two_nodes()
    with pytest.raises(NodeStopped, match="start it again"):
        cluster.write([SharedBlock(Kind.EXPEL, 1, instance=11).encoded()], 100)
    expelled = cluster.members.pop(1)
    assert not expelled.is_active
    cluster.members[2].take(len(cluster.log) - 1, cluster.log[-1], 100)
    cluster.tick(1_000, 2)
    assert cluster.active() == [2]


def test_of_two_servers_with_one_number_the_older_stops() -> None:
    cluster = two_nodes()
    with pytest.raises(NodeStopped, match="of its own"):
        older, cluster.members = cluster.members, {}
        data = cluster.start(1, 12, 100) and cluster.log[-1]
        older[1].take(len(cluster.log) - 1, data, 100)


def test_records_of_an_older_epoch_of_the_same_process_are_void() -> None:
    cluster = two_nodes()
    member = cluster.members[1]
    late = member.records(block(1), 1)[1]
    cluster.write([SharedBlock(Kind.FENCE, 1, 11, epoch=member.rules.epoch + 1).encoded()], 100)
    cluster.write([late], 100)
    assert member.rules.next_offset == 1
    cluster.write([member.records(block(1), 1)[1]], 100)
    assert member.rules.next_offset == 2


def test_nodes_are_as_they_were_last_heard_of() -> None:
    cluster = two_nodes()
    cluster.tick(2_000, 1, 2)
    cluster.write([cluster.members[1].records(block(1), 1)[1]], 2_000)
    cluster.tick(3_500, 2)  # it says that its log goes on at offset 1, after a record
    (first, second), (_, of_itself) = (member.nodes(4_000) for member in cluster.members.values())
    assert (first.state, first.is_this, first.reachable_at, first.heard_ms) == ("active", True, "mqtt1", 2_000)
    assert (second.state, second.is_this, second.next_offset, second.lag) == ("standby", False, 1, 1)
    assert (of_itself.is_this, of_itself.lag, of_itself.heard_ms) == (True, 1, 500)
    assert [each.state for each in cluster.members[2].nodes(8_000)] == ["gone", "standby"]
    cluster.write([cluster.members[1].leave()], 8_000)
    assert cluster.members[2].nodes(8_000)[0].next_offset == -1


def test_what_is_saved_is_loaded() -> None:
    cluster = two_nodes()
    rules = cluster.members[1].rules
    assert loaded(json.loads(json.dumps(rules.saved()))) == rules


def block(first_offset: int) -> bytes:
    group = Group(first_offset)
    group.append(1_000, RecordKind.PUBLISH, 1, b"t", b"hi", b"c")
    return bytes(block_of(group))


def damaged(data: bytes) -> bytes:
    return data[:10] + bytes([data[10] ^ 1]) + data[11:]


UNREADABLE: dict[str, tuple[Callable[[], bytes], str]] = {
    "nothing": (lambda: b"", "did not write"),
    "of another program": (lambda: b"x" * 100, "did not write"),
    "of a newer format": (lambda: GENESIS[:4] + bytes([FORMAT + 1]) + GENESIS[5:], "the same version on all nodes"),
    "damaged": (lambda: damaged(GENESIS), "is damaged"),
    "cut": (lambda: GENESIS[: HEADER.size - 1], "did not write"),
}


@pytest.mark.parametrize("what", UNREADABLE)
def test_a_block_that_cannot_be_read_is_refused_with_what_to_do(what: str) -> None:
    data, sentence = UNREADABLE[what]
    with pytest.raises(UnreadableBlock, match=sentence):
        decode(7, data())


def test_records_that_do_not_follow_the_ones_before_stop_a_node() -> None:
    cluster = two_nodes()
    with pytest.raises(UnreadableBlock, match="do not follow"):
        cluster.write([cluster.members[1].records(block(5), 1)[1]], 100)


def test_a_log_without_its_beginning_is_refused() -> None:
    member = Member(1, 1, Rules(), 6_000, 0)
    with pytest.raises(SharedLogLost, match="copy of that of another node"):
        member.take(9, SharedBlock(Kind.LEAVE, 2).encoded(), 0)
