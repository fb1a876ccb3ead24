"""Streams of retained messages under clients that ask for many, leave early, or ask while the disk is slow."""

import pytest

from embermq.broker import retained_delivery as retained
from embermq.broker.retained_delivery import PIECE_BYTES
from embermq.protocol.packets import (
    Pingreq,
    Pingresp,
    Puback,
    Publish,
    Suback,
    Subscribe,
    SubscriptionRequest,
    Unsubscribe,
)
from embermq.store.interface import Retained, RetainedPiece
from embermq.store.memory import MemoryStore
from support.core import Bench, ScriptedLink, SlowStore


class CountingStore(MemoryStore):
    """Counts the scans, and the bytes that they bring."""

    scans = 0
    scanned_bytes = 0

    def retained_piece(
        self, topic_filter: str, after_topic_name: str, limit: int, bytes_max: int, seeks_max: int
    ) -> RetainedPiece:
        self.scans += 1
        piece = super().retained_piece(topic_filter, after_topic_name, limit, bytes_max, seeks_max)
        self.scanned_bytes += piece.payload_bytes
        return piece


class ShowsDurable(SlowStore):
    """A slow store that shows a retained message only once it is durable, as one on a disk does."""

    def __init__(self) -> None:
        super().__init__()
        self._gathering: list[str] = []
        self._writing: list[str] = []

    def append_publish(self, message: Publish, client_id: str, qos2_session_id: int = 0) -> int:
        self._gathering.append(message.topic_name)
        return super().append_publish(message, client_id, qos2_session_id)

    def commit(self, done: object) -> bool:
        self._gathering, self._writing = [], self._gathering
        return super().commit(done)  # type: ignore[arg-type]

    def finish(self) -> None:
        self._writing = []
        super().finish()

    def retained_get(self, topic_name: str) -> Retained | None:
        hidden = topic_name in self._gathering or topic_name in self._writing
        return None if hidden else super().retained_get(topic_name)


def requests(count: int, pattern: str = "f/{}/#", qos: int = 0) -> list[SubscriptionRequest]:
    return [SubscriptionRequest(pattern.format(n), qos) for n in range(count)]


def test_a_subscribe_sees_what_was_retained_before_it_although_an_earlier_suback_leaves_first() -> None:
    store = ShowsDurable()
    bench = Bench(store)
    client, writer = bench.join("c"), bench.join("w")
    bench.send(client, Subscribe(1, [SubscriptionRequest("other", 0)]))
    bench.send(writer, Publish("t", b"retained", 0, True))
    bench.send(client, Subscribe(2, [SubscriptionRequest("t", 0)]))
    store.finish()
    bench.turn()
    assert client.take() == [Suback(1, [0])]
    store.finish()
    bench.turn()
    assert client.take() == [Suback(2, [0]), Publish("t", b"retained", 0, True)]


def test_a_client_that_leaves_before_its_suback_is_forgotten() -> None:
    store = SlowStore()
    bench = Bench(store)
    for n in range(5):
        client = bench.join(f"c{n}")
        bench.send(client, Subscribe(1, requests(10)))
        bench.lose(client)
        store.finish()
        bench.turn()
    assert not bench.core.retained._pending_subacks


def test_thousands_of_filters_take_many_short_turns() -> None:
    store = CountingStore()
    bench = Bench(store)
    for n in range(3_000):
        bench.publish(f"f/{n}/x", b"x", retain=True)
    client = bench.join("c", room=1_000_000)
    bench.send(client, Subscribe(1, requests(3_000)), turn=False)
    turns = [store.scans]
    while bench.core.end_turn():
        turns.append(store.scans)
    assert max(after - before for before, after in zip([0, *turns], turns, strict=False)) <= (
        retained.FIRST_PIECES_A_TURN + retained.PIECES_A_TURN
    )
    assert sorted(m.topic_name for m in client.take_messages()) == sorted(f"f/{n}/x" for n in range(3_000))


def blocked(count: int) -> tuple[Bench, ScriptedLink]:
    """A client that acknowledges nothing, with many streams behind the one that waits for that."""
    bench = Bench()
    for n in range(20):
        bench.publish(f"first/{n}", b"x", 1, True)
    client = bench.join("c", receive_maximum=5)
    bench.subscribed(client, "first/#", 1)
    assert len(client.take_messages()) == 5
    bench.send(client, Subscribe(1, requests(count, qos=1)))
    client.take()
    return bench, client


def test_streams_of_many_filters_are_dropped_one_by_one_and_all_at_once() -> None:
    bench, client = blocked(10_000)
    [session] = bench.core.sessions()
    assert len(session.streams) == 10_001
    bench.send(client, Unsubscribe(2, [request.topic_filter for request in requests(9_999)]))
    client.take()
    assert len(session.streams) == 2
    bench.send(client, Unsubscribe(3, ["first/#"]), *[Puback(n) for n in range(1, 6)])
    assert client.take_messages() == []
    assert len(session.streams) == 0


def test_a_ping_does_not_start_anything_over() -> None:
    store = SlowStore()
    bench = Bench(store)
    bench.core.report()
    client = bench.join("c")
    for n in range(20):
        bench.publish(f"first/{n}", b"x", retain=True)
        store.finish()
        bench.turn()
    bench.send(client, Subscribe(1, [SubscriptionRequest("first/#", 0), SubscriptionRequest("$SYS/#", 0)]))
    client.room = 10
    store.finish()
    bench.turn()
    client.take()
    client.room = 1_000_000
    bench.send(client, Publish("t", b"x", 1, packet_id=1), Pingreq(), Pingreq())
    store.finish()
    bench.turn()
    assert client.take() == [Puback(1), Pingresp(), Pingresp()]


@pytest.mark.parametrize(("comparisons_max", "kept"), [(1_000, 20), (55, 5)])
def test_beyond_a_number_of_comparisons_a_pending_subscription_gets_only_what_is_new(
    comparisons_max: int, kept: int
) -> None:
    store = ShowsDurable()
    bench = Bench(store, comparisons_max=comparisons_max)
    client, writer = bench.join("c"), bench.join("w")
    for n in range(20):
        bench.send(writer, Publish(f"t/{n}", b"old", 0, True))
        store.finish()
        bench.turn()
    # Each retained message is compared with 10 filters, of which the first matches.
    bench.send(client, Subscribe(1, [SubscriptionRequest("t/#"), *requests(9)]), turn=False)
    bench.send(client, *[Publish(f"t/{n}", b"new", 0, True) for n in range(20)])
    store.finish()
    bench.turn()
    assert isinstance(client.got[0], Suback)
    got = client.take_messages()
    assert [m.payload for m in got if m.retain] == [b"old"] * kept
    assert [m.payload for m in got if not m.retain] == [b"new"] * 20


def test_large_messages_are_read_from_the_store_a_few_at_a_time() -> None:
    store = CountingStore()
    bench = Bench(store)
    for n in range(12):
        bench.publish(f"f/{n:02}", bytes(PIECE_BYTES // 2), retain=True)
    client = bench.join("c", room=3)
    bench.subscribed(client, "f/#")
    assert len(client.take_messages()) == 3
    assert store.scanned_bytes <= 2 * 3 * PIECE_BYTES
    client.room = 100
    bench.core.writable(client)
    bench.turn()
    assert [message.topic_name for message in client.take_messages()] == [f"f/{n:02}" for n in range(3, 12)]
    assert store.scanned_bytes <= 2 * 12 * PIECE_BYTES


def test_a_turn_reads_only_so_many_bytes_for_all_clients_together() -> None:
    store = CountingStore()
    bench = Bench(store)
    for n in range(4):
        bench.publish(f"f/{n}", bytes(2 * PIECE_BYTES), retain=True)
    clients = [bench.join(f"c{n}") for n in range(10)]
    for client in clients:
        bench.send(client, Subscribe(1, [SubscriptionRequest("f/#", 0)]), turn=False)
    more, most, before = True, 0, 0
    while more:
        more = bench.core.end_turn()
        most, before = max(most, store.scanned_bytes - before), store.scanned_bytes
    # What is left of the budget may be used once with the SUBACKs and once at the end of the turn.
    assert most <= 2 * (retained.BYTES_A_TURN + 2 * PIECE_BYTES)
    assert [len(client.take_messages()) for client in clients] == [4] * 10


def test_a_filter_that_matches_little_of_much_lets_others_have_their_turn() -> None:
    store = CountingStore()
    bench = Bench(store)
    for n in range(20_000):
        bench.publish(f"{n:05}/miss", b"x", retain=True)
    bench.publish("99999/hit", b"found", retain=True)
    client = bench.join("c")
    bench.send(client, Subscribe(1, [SubscriptionRequest("+/hit", 0)]), turn=False)
    turns = 0
    while bench.core.end_turn():
        turns += 1
    assert turns >= 18
    assert client.take() == [Suback(1, [0]), Publish("99999/hit", b"found", 0, True)]
