"""The operator's messages: no access rule binds them, limits do, and their answer waits for the disk."""

from embermq.broker.access import OPERATOR, Identity
from embermq.broker.operator import retained_message, retained_pieces
from embermq.broker.retained_streams import PIECE_BYTES, PIECE_MESSAGES
from embermq.protocol.packets import Publish
from embermq.protocol.reasons import ReasonCode
from embermq.store.budgets import RetainedBudget
from embermq.store.engines.memory import MemoryStore
from support.core import Bench, ScriptedAccess
from support.stores import ScriptedStore


def test_no_rule_binds_the_operator() -> None:
    bench = Bench(access=ScriptedAccess("nothing"))
    message = Publish("a", b"1", 1, True)
    assert bench.core.publish_sessionless(message, Identity("", "$operator")) == ReasonCode.NOT_AUTHORIZED
    assert bench.core.publish_sessionless(message, OPERATOR) is None
    bench.turn()
    kept = bench.store.retained.get("a")
    assert kept is not None and (kept.payload, kept.client_id) == (b"1", "$operator")


def test_what_is_not_taken_has_a_reason() -> None:
    bench = Bench(MemoryStore([RetainedBudget("a/#", count_max=1)]))
    publish = bench.core.publish_sessionless
    assert publish(Publish("a/1", b"1", 0, True), OPERATOR) is None
    assert publish(Publish("a/2", b"1", 0, True), OPERATOR) == ReasonCode.QUOTA_EXCEEDED
    assert publish(Publish("$SYS/broker/version", b"1", 0, True), OPERATOR) == ReasonCode.TOPIC_NAME_INVALID
    assert publish(Publish("/".join("x" * 200), b"1", 0, True), OPERATOR) == ReasonCode.TOPIC_NAME_INVALID
    assert bench.store.retained.totals()[0] == 1


def test_the_answer_waits_for_the_disk() -> None:
    store = ScriptedStore()
    bench = Bench(store)
    answers: list[str] = []
    bench.core.publish_sessionless(Publish("a", b"1", 0, True), OPERATOR)
    bench.core.when_durable(lambda: answers.append("first"))
    bench.core.end_turn()
    bench.core.publish_sessionless(Publish("a", b"2", 0, True), OPERATOR)
    bench.core.when_durable(lambda: answers.append("second"))
    bench.core.end_turn()
    assert answers == []
    store.finish()
    assert answers == ["first"]  # the second is in the group that has not been written yet
    bench.core.end_turn()
    store.finish()
    assert answers == ["first", "second"]


def test_the_servers_own_topics_stay_its_own_after_it_has_published_them() -> None:
    bench = Bench()
    bench.core.report()
    message = Publish("$SYS/broker/version", b"1", 0, True)
    assert bench.core.publish_sessionless(message, OPERATOR) == ReasonCode.TOPIC_NAME_INVALID
    assert bench.core.publish_sessionless(message, Identity("", "c")) == ReasonCode.TOPIC_NAME_INVALID
    assert bench.store.retained.totals()[0] == 0


def test_pieces_are_bounded_and_miss_nothing() -> None:
    store = MemoryStore()
    for number in range(2 * PIECE_MESSAGES):
        store.append_publish(Publish(f"a/{number:04}", b"1", 0, True), "c")
    for number in range(5):
        store.append_publish(Publish(f"b/{number}", bytes(PIECE_BYTES // 2), 0, True), "c")
    for number in range(2):
        store.append_publish(Publish(f"c/{number}", bytes(2 * PIECE_BYTES), 0, True), "c")
    pieces = list(retained_pieces(store, "#"))
    assert sum(map(len, pieces)) == 2 * PIECE_MESSAGES + 7
    assert len({kept.topic_name for piece in pieces for kept in piece}) == 2 * PIECE_MESSAGES + 7
    assert [len(piece) for piece in pieces] == [PIECE_MESSAGES, PIECE_MESSAGES, 2, 2, 2, 1, 0]
    assert [[kept.topic_name for kept in piece] for piece in retained_pieces(store, "b/3")] == [["b/3"]]
    assert list(retained_pieces(store, "b/9")) == [[]]
    assert retained_message(store, "b/9") is None
