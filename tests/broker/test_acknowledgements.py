"""Acknowledgements from a client, in and out of order. Random scripts, with runs, are in test_runs.py."""

from embermq.protocol.packets import PUBACK, PUBCOMP, PUBREC, PUBREL, Packet, Publish
from embermq.protocol.reasons import ReasonCode
from support.acknowledgements import acknowledgements, pubcomp, pubrec, pubrel
from support.core import Bench, ScriptedLink
from support.stores import ScriptedStore


def receiver_of(bench: Bench, count: int, qos: int, clean: bool = True) -> ScriptedLink:
    """A client that was sent messages with the packet identifiers from 1 on."""
    reader = bench.join("r", clean=clean)
    bench.subscribed(reader, "t", qos)
    for number in range(count):
        bench.publish("t", b"%d" % number, qos=qos)
    bench.commit()
    assert len(reader.payloads()) == count
    return reader


def test_a_run_of_pubacks_frees_the_window() -> None:
    bench = Bench()
    reader = receiver_of(bench, 4, 1)
    outbound = bench.core.sessions()[0].outbound
    received = bench.core.counters.messages_received
    bench.send(reader, *acknowledgements(PUBACK, [1, 3, 2, 9, 4, 4]))
    assert (outbound.inflight.ids(), outbound.memory_bytes) == ([], 0)
    assert bench.core.counters.acks_unknown == 2
    assert bench.core.counters.messages_received == received + 6


def test_runs_of_pubrecs_and_pubcomps_complete_exchanges_and_answer_what_is_unknown() -> None:
    bench = Bench()
    reader = receiver_of(bench, 3, 2)
    bench.send(reader, *acknowledgements(PUBCOMP, [1]))
    assert len(bench.core.sessions()[0].outbound.inflight) == 3, "PUBREC must come first"
    bench.send(reader, *acknowledgements(PUBREC, [2, 7, 1]))
    unknown = ReasonCode.PACKET_IDENTIFIER_NOT_FOUND
    assert reader.take() == [pubrel(2), pubrel(7, unknown), pubrel(1)]
    bench.send(reader, *acknowledgements(PUBCOMP, [2, 1, 3]))
    assert bench.core.sessions()[0].outbound.inflight.ids() == [3]


def test_a_run_of_pubrels_is_answered_in_its_order() -> None:
    bench = Bench()
    writer = bench.join("w")
    bench.subscribed(bench.join("r"), "t", 0)
    publishes: list[Packet] = [Publish("t", b"x", 2, packet_id=number) for number in (1, 2, 3)]
    bench.send(writer, *publishes)
    assert writer.take() == [pubrec(1), pubrec(2), pubrec(3)]
    bench.send(writer, *acknowledgements(PUBREL, [1, 3, 8, 2]))
    unknown = ReasonCode.PACKET_IDENTIFIER_NOT_FOUND
    assert writer.take() == [pubcomp(1), pubcomp(3), pubcomp(8, unknown), pubcomp(2)]


def test_runs_of_a_persistent_session_are_answered_after_the_commit() -> None:
    store = ScriptedStore()
    bench = Bench(store)
    reader = receiver_of(bench, 3, 2, clean=False)
    bench.send(reader, *acknowledgements(PUBREC, [1, 2, 3]))
    assert reader.take() == []
    bench.commit()
    assert reader.take() == [pubrel(1), pubrel(2), pubrel(3)]
    bench.send(reader, Publish("t", b"x", 2, packet_id=5), Publish("t", b"x", 2, packet_id=6))
    bench.commit()
    reader.take()
    bench.send(reader, *acknowledgements(PUBREL, [5, 6]))
    assert reader.take() == []
    bench.commit()
    assert reader.take() == [pubcomp(5), pubcomp(6)]


def test_pubrels_that_come_too_early_are_answered_behind_their_pubrecs() -> None:
    store = ScriptedStore()
    bench = Bench(store)
    writer = bench.join("w")
    bench.subscribed(bench.join("r"), "t", 0)
    bench.send(writer, Publish("t", b"x", 2, packet_id=1))
    bench.commit()
    assert writer.take() == [pubrec(1)]
    bench.send(writer, Publish("t", b"x", 2, packet_id=2), *acknowledgements(PUBREL, [1, 2]))
    assert writer.take() == [pubcomp(1)]
    bench.commit()
    assert writer.take() == [pubrec(2), pubcomp(2)]
