"""Which connection is at which address: takeovers, bounds, aliases of sessions."""

from embermq.protocol import packets as core
from embermq.protocol.sn.connection import VirtualConnection
from embermq.protocol.sn.events import ConnectRequest
from embermq.protocol.sn.wire.codec import decode, encode
from embermq.protocol.sn.wire.layouts import Profile
from embermq.protocol.sn.wire.profiles import V12, A, B
from support import sn_packets as sn
from support.sn_harness import (
    ELSEWHERE,
    HOST,
    TWO,
    Harness,
    fall_asleep,
    one,
    ping_of,
)


@TWO
def test_a_client_id_that_connects_elsewhere_takes_over_and_the_old_address_is_told(profile: Profile) -> None:
    harness = Harness()
    harness.connect(profile, packet_id=1)
    harness.connect(profile, packet_id=1, address=ELSEWHERE)
    assert (HOST, encode(sn.disconnect(0x8E), profile)) in harness.sent
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
    events = harness.engine.receive(encode(sn.connect("second", packet_id=1), B), HOST, harness.now_ms)
    second = events[0]
    assert isinstance(second, ConnectRequest)
    second.connection.send(core.Connack(False, 0x86))
    second.connection.close(0x86)
    assert [decode(data, B) for data in harness.settle()] == [sn.connack(0x86, 1)]
    assert harness.ask(first, sn.pingreq(5)) == [sn.pingresp(5)]
    assert harness.engine.counters.clients == 1


def prove(harness: Harness, connection: VirtualConnection) -> None:
    """The client answers the REGISTER that it is sent."""
    connection.ask_for_proof(harness.now_ms)
    answer_registers(harness, connection, harness.settle())


def answer_registers(harness: Harness, connection: VirtualConnection, sent: list[bytes]) -> None:
    for data in sent:
        register = decode(data, connection.peer.profile)
        if register.kind == sn.REGISTER:
            harness.ask(connection, sn.regack(register.packet_id, register.topic_alias))


def forge(harness: Harness, client_id: str, address: tuple[str, int]) -> None:
    """Two datagrams from a forged address: a client that sleeps for 18 hours."""
    harness.feed(encode(sn.connect(client_id, keep_alive_s=65_535, clean_start=False, version=1), V12), address)
    harness.feed(encode(sn.disconnect(session_expiry_s=65_535), V12), address)


def test_a_connect_from_another_host_leaves_a_proven_client_that_answers() -> None:
    harness = Harness()
    connection = harness.connect(V12, "dev", keep_alive_s=0)
    prove(harness, connection)
    connect = encode(sn.connect("dev", keep_alive_s=0, version=1), V12)
    for _ in range(3):
        harness.now_ms += 60_000
        [register] = harness.feed(connect, ELSEWHERE)
        assert harness.sent[-1] == (HOST, register)
        harness.now_ms += 1
        answer_registers(harness, connection, [register])
    assert len(harness.ask(connection, sn.pingreq())) == 1
    # It is gone: the client that asks again has its id.
    harness.now_ms += 60_000
    harness.feed(connect, ELSEWHERE)
    harness.now_ms += 10_000
    assert harness.feed(connect, ELSEWHERE)[-1] == bytes.fromhex("03 05 00")
    assert harness.engine.counters.clients == 1


def test_a_connect_from_another_host_leaves_a_proven_client_that_sleeps_unless_it_may_move() -> None:
    for rebind, is_taken in (("same-host", False), ("any", True)):
        harness = Harness(rebind=rebind)
        connection = harness.connect(V12, "dev", keep_alive_s=0)
        prove(harness, connection)
        harness.ask(connection, sn.disconnect(session_expiry_s=1_000))
        harness.now_ms += 60_000
        answer = harness.feed(encode(sn.connect("dev", keep_alive_s=0, version=1), V12), ELSEWHERE)
        assert (bytes.fromhex("03 05 00") in answer) is is_taken


def test_a_restarted_client_at_another_port_of_its_host_is_let_in_at_once() -> None:
    harness = Harness()
    prove(harness, harness.connect(V12, "dev", keep_alive_s=0))
    answer = harness.feed(encode(sn.connect("dev", keep_alive_s=0, version=1), V12), (HOST[0], HOST[1] + 1))
    assert bytes.fromhex("03 05 00") in answer


def test_clients_are_bounded() -> None:
    harness = Harness(clients_max=2)
    for number in range(2):
        prove(harness, harness.connect(V12, f"dev{number}", ("192.0.2.1", number)))
    assert harness.feed(encode(sn.connect("dev9", version=1), V12), ELSEWHERE) == [bytes.fromhex("03 05 01")]
    answer = harness.feed(encode(sn.connect("dev9", packet_id=3), B), ELSEWHERE)
    assert answer == [encode(sn.connack(0xF1, 3), B)]
    assert harness.engine.counters.clients == 2


def test_when_all_places_are_taken_the_oldest_client_at_an_unproven_address_loses_its_own() -> None:
    harness = Harness(clients_max=3)
    proven = harness.connect(V12, "proven", ("192.0.2.1", 1), keep_alive_s=0)
    prove(harness, proven)
    for number in (2, 3):
        speaks = harness.connect(V12, f"unproven{number}", ("192.0.2.1", number), keep_alive_s=0)
        harness.ask(speaks, sn.pingreq())  # a second datagram proves nothing
    connect = encode(sn.connect("comes", keep_alive_s=0, version=1), V12)
    assert bytes.fromhex("03 05 00") in harness.feed(connect, ELSEWHERE)
    assert harness.lost() == ["its address was not proven, and another client needed its place"]
    assert harness.engine.counters.clients_unproven_dropped == 1
    assert harness.engine.counters.clients == 3
    assert len(harness.ask(proven, sn.pingreq())) == 1


def test_forged_addresses_keep_nobody_out() -> None:
    harness = Harness(clients_max=400)
    proven = harness.connect(V12, "proven", ("192.0.2.1", 1), keep_alive_s=0)
    prove(harness, proven)
    for number in range(1_000):
        forge(harness, f"forged{number}", (f"198.51.100.{number}", 1))
    assert harness.engine.counters.clients == 1 + 100  # a fourth of the places
    # The sessions that began with the forged CONNECTs ended with them.
    ended = [packet for packet in harness.received() if isinstance(packet, core.Disconnect)]
    assert [packet.session_expiry_s for packet in ended] == [0] * 900
    # A new client is asked to prove its address at once, and then none of them can take its place.
    before = len(harness.sent)
    comes = harness.connect(V12, "comes", ELSEWHERE, keep_alive_s=0)
    answer_registers(harness, comes, [data for address, data in harness.sent[before:] if address == ELSEWHERE])
    for number in range(1_000):
        forge(harness, f"again{number}", (f"203.0.113.{number}", 1))
    for connection in (proven, comes):
        assert len(harness.ask(connection, sn.pingreq())) == 1


def test_unproven_addresses_of_one_host_take_the_places_of_each_other() -> None:
    harness = Harness(clients_max=400)
    other = harness.connect(V12, "other", ELSEWHERE, keep_alive_s=0)
    for number in range(1_000):
        forge(harness, f"forged{number}", ("198.51.100.1", number))
    assert harness.engine.counters.clients == 1 + 64
    assert len(harness.ask(other, sn.pingreq())) >= 1


def test_clients_at_forged_addresses_end_when_they_do_not_answer_while_many_are_unproven() -> None:
    harness = Harness(clients_max=64)
    for number in range(64):
        harness.connect(V12, f"forged{number}", (f"198.51.100.{number}", 1), keep_alive_s=65_535)
    assert harness.engine.counters.clients == 64
    harness.pass_ms(60_000)
    assert harness.engine.counters.clients <= 32


def test_a_client_that_slept_proves_its_address_when_it_wakes_while_many_are_unproven() -> None:
    harness = Harness(clients_max=64)
    sleeper = harness.connect(V12, "sleeper", ("192.0.2.1", 1))
    fall_asleep(harness, sleeper)
    for number in range(40):
        harness.connect(V12, f"forged{number}", (f"198.51.100.{number}", 1))
    harness.settle()
    asked = [packet for packet in harness.ask(sleeper, ping_of(sleeper)) if packet.kind == sn.REGISTER]
    assert asked
    harness.ask(sleeper, sn.regack(asked[0].packet_id, asked[0].topic_alias))
    assert sleeper.peer.is_proven


def test_numbers_that_are_guessed_prove_nothing() -> None:
    harness = Harness()
    connection = harness.connect(V12)
    connection.ask_for_proof(harness.now_ms)
    [register] = [decode(data, V12) for data in harness.settle()]
    assert register.kind == sn.REGISTER
    for guess in (1, 2, 3):
        harness.ask(connection, sn.regack(register.packet_id + guess, register.topic_alias))
    harness.ask(connection, sn.regack(register.packet_id, register.topic_alias))
    assert not connection.peer.is_proven


def test_of_many_aliases_one_is_guessed_and_proves_nothing() -> None:
    harness = Harness()
    for names, is_proven in ((8, True), (9, False)):
        connection = harness.connect(V12, f"dev{names}", ("192.0.2.1", names))
        for number in range(1, names):
            harness.ask(connection, sn.register(number, f"t/{number}"))
        regack = one(harness.ask(connection, sn.register(names, "t")))
        assert regack.kind == sn.REGACK
        harness.ask(connection, sn.publish(sn.session_alias(regack.topic_alias), b"x"))
        assert connection.peer.is_proven is is_proven


def test_an_alias_proves_nothing_after_a_wrong_one() -> None:
    harness = Harness()
    connection = harness.connect(V12)
    regack = one(harness.ask(connection, sn.register(1, "t")))
    assert regack.kind == sn.REGACK
    for topic_alias in (regack.topic_alias ^ 1, regack.topic_alias):
        harness.ask(connection, sn.publish(sn.session_alias(topic_alias), b"x"))
    assert not connection.peer.is_proven


@TWO
def test_aliases_of_a_session_survive_its_connection(profile: Profile) -> None:
    harness = Harness()
    connection = harness.connect(profile, session_expiry_s=100)
    regack = one(harness.ask(connection, sn.register(1, "a/b")))
    assert regack.kind == sn.REGACK
    harness.ask(connection, sn.disconnect())
    harness.session_present = True
    harness.connect(profile, "other", ELSEWHERE, session_expiry_s=100)
    connection = harness.connect(profile, clean_start=False, session_expiry_s=100, packet_id=2)
    harness.ask(connection, sn.publish(sn.session_alias(regack.topic_alias), b"x", 1, packet_id=3))
    assert harness.received()[-1] == core.Publish("a/b", b"x", 1, packet_id=3)
    harness.ask(connection, sn.disconnect())
    harness.session_present = False
    connection = harness.connect(profile, session_expiry_s=100, packet_id=4)
    answer = harness.ask(connection, sn.publish(sn.session_alias(regack.topic_alias), b"x", 1, packet_id=5))
    assert answer == [sn.acknowledgement(sn.PUBACK, 5, 0xF0)]
