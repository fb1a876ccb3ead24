"""Which connection is at which address: takeovers, bounds, aliases of sessions."""

from embermq.protocol import packets as core
from embermq.protocol.sn.events import ConnectRequest
from embermq.protocol.sn.wire import packets as sn
from embermq.protocol.sn.wire.decode import decode
from embermq.protocol.sn.wire.encode import encode
from embermq.protocol.sn.wire.layouts import Profile
from embermq.protocol.sn.wire.profiles import V12, A, B
from support.sn_harness import (
    ELSEWHERE,
    HOST,
    TWO,
    Harness,
    one,
)


@TWO
def test_a_client_id_that_connects_elsewhere_takes_over_and_the_old_address_is_told(profile: Profile) -> None:
    harness = Harness()
    harness.connect(profile, packet_id=1)
    harness.connect(profile, packet_id=1, address=ELSEWHERE)
    assert (HOST, encode(sn.Disconnect(0x8E), profile)) in harness.sent
    assert harness.engine.counters.clients == 1
    # From the same address there is no other client to tell.
    harness.now_ms += 5_000
    before = len(harness.sent)
    harness.connect(profile, packet_id=2, address=ELSEWHERE)
    assert len(harness.sent) == before + 1


def test_another_client_at_the_same_address_ends_the_first() -> None:
    harness = Harness()
    harness.connect(V12, "first")
    harness.connect(B, "second")
    assert harness.lost() == ["its address belongs to another client now"]
    assert harness.engine.counters.clients == 1
    # Nothing was said to the first: it would have reached the second.
    assert len(harness.sent) == 2


def test_a_refused_connect_leaves_the_connection_that_was_there_before() -> None:
    harness = Harness()
    first = harness.connect(A, "first")
    events = harness.engine.receive(encode(sn.Connect("second", packet_id=1), B), HOST, harness.now_ms)
    second = events[0]
    assert isinstance(second, ConnectRequest)
    second.connection.send(core.Connack(False, 0x86), harness.now_ms)
    second.connection.close(0x86, harness.now_ms)
    assert [decode(data, B) for data in harness.settle()] == [sn.Connack(0x86, 1)]
    assert harness.ask(first, sn.Pingreq(5)) == [sn.Pingresp(5)]
    assert harness.engine.counters.clients == 1


def test_clients_are_bounded() -> None:
    harness = Harness(clients_max=2)
    for number in range(2):
        harness.connect(V12, f"dev{number}", ("192.0.2.1", number))
    assert harness.feed(encode(sn.Connect("dev9", version=1), V12), ELSEWHERE) == [bytes.fromhex("03 05 01")]
    answer = harness.feed(encode(sn.Connect("dev9", packet_id=3), B), ELSEWHERE)
    assert answer == [encode(sn.Connack(0xF1, 3), B)]
    assert harness.engine.counters.clients == 2


def test_a_client_that_said_nothing_after_its_connect_loses_its_place_when_all_are_taken() -> None:
    harness = Harness(clients_max=3)
    speaks = harness.connect(V12, "speaks", ("192.0.2.1", 1), keep_alive_s=0)
    harness.ask(speaks, sn.Pingreq())
    for number in (2, 3):
        harness.connect(V12, f"forged{number}", ("192.0.2.1", number), keep_alive_s=0)
    connect = encode(sn.Connect("comes", keep_alive_s=0, version=1), V12)
    assert harness.feed(connect, ELSEWHERE) == [bytes.fromhex("03 05 01")]
    harness.pass_ms(5_000)
    assert harness.feed(connect, ELSEWHERE)[-1] == bytes.fromhex("03 05 00")
    harness.ask(harness.connection(), sn.Pingreq())
    harness.pass_ms(60_000)
    assert harness.feed(encode(sn.Connect("too", keep_alive_s=0, version=1), V12), HOST)[-1] == bytes.fromhex(
        "03 05 00"
    )
    harness.ask(harness.connection(), sn.Pingreq())
    harness.pass_ms(60_000)
    assert harness.feed(encode(sn.Connect("no", version=1), V12), ("198.51.100.9", 5)) == [bytes.fromhex("03 05 01")]
    assert len(harness.lost()) == 2
    assert harness.engine.counters.clients == 3
    assert len(harness.ask(speaks, sn.Pingreq())) == 1


@TWO
def test_aliases_of_a_session_survive_its_connection(profile: Profile) -> None:
    harness = Harness()
    connection = harness.connect(profile, session_expiry_s=100)
    regack = one(harness.ask(connection, sn.Register(1, "a/b")))
    assert isinstance(regack, sn.Regack)
    harness.ask(connection, sn.Disconnect())
    harness.session_present = True
    harness.connect(profile, "other", ELSEWHERE, session_expiry_s=100)
    connection = harness.connect(profile, clean_start=False, session_expiry_s=100, packet_id=2)
    harness.ask(connection, sn.Publish(sn.session_alias(regack.topic_alias), b"x", 1, packet_id=3))
    assert harness.received()[-1] == core.Publish("a/b", b"x", 1, packet_id=3)
    harness.ask(connection, sn.Disconnect())
    harness.session_present = False
    connection = harness.connect(profile, session_expiry_s=100, packet_id=4)
    answer = harness.ask(connection, sn.Publish(sn.session_alias(regack.topic_alias), b"x", 1, packet_id=5))
    assert answer == [sn.Puback(5, 0xF0)]
