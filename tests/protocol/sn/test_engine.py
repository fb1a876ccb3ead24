"""The engine: forwarders, clients that move, malformed packets, noise."""

import pytest

from embermq.protocol.sn.wire.codec import decode, encode
from embermq.protocol.sn.wire.layouts import Profile
from embermq.protocol.sn.wire.profiles import V12, A, B, W
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
from support.sn_packets import wrap_connection


@pytest.mark.parametrize("profile", [V12, A], ids=lambda profile: profile.name)
def test_clients_behind_one_forwarder_are_told_apart_and_answered_through_it(profile: Profile) -> None:
    harness = Harness()

    def wrapped(node: bytes, packet: sn.SnPacket) -> bytes:
        return bytes([3 + len(node), 0xFE, 0]) + node + encode(packet, profile)

    for node in (b"n1", b"n2"):
        harness.feed(wrapped(node, sn.connect(node.decode(), packet_id=1, version=profile.version)))
    assert harness.engine.counters.clients == 2
    assert [data[:5] for _, data in harness.sent] == [b"\x05\xfe\x00n1", b"\x05\xfe\x00n2"]
    assert harness.feed(wrapped(b"n2", sn.pingreq(3))) == [wrapped(b"n2", sn.pingresp(3))]


def test_bs_forwarder_frame_is_answered_alike() -> None:
    harness = Harness()
    connect = encode(sn.connect("dev1", packet_id=1), B)
    wrapped = bytes([5 + len(connect), 0xFC, 2, 1, 2]) + connect
    answer = harness.feed(wrapped)
    assert answer == [bytes([11, 0xFC, 2, 1, 2]) + encode(sn.connack(0, 1), B)]


def test_connection_encapsulation_moves_a_client_that_allowed_it() -> None:
    harness = Harness(rebind="any")
    connection = harness.connect(B, address_change=True)
    harness.connect(B, "fixed", ("192.0.2.1", 2))
    answer = harness.feed(wrap_connection("dev1", encode(sn.pingreq(5), B)), ELSEWHERE)
    assert answer == [encode(sn.pingresp(5), B)]
    assert connection.peer.address() == ELSEWHERE
    assert harness.feed(wrap_connection("fixed", encode(sn.pingreq(5), B)), ELSEWHERE) == []
    assert harness.feed(wrap_connection("nobody", encode(sn.pingreq(5), B)), ELSEWHERE) == []
    assert harness.feed(wrap_connection("dev1", encode(sn.acknowledgement(sn.PUBACK, 5), B)), ELSEWHERE) == []
    assert harness.engine.counters.rebinds_refused == 2
    assert harness.lost() == []


@pytest.mark.parametrize(
    ("rebind", "port_may", "host_may"), [("never", False, False), ("same-host", True, False), ("any", True, True)]
)
def test_where_connection_encapsulation_moves_a_client_to_is_a_setting(
    rebind: str,
    port_may: bool,
    host_may: bool,
) -> None:
    harness = Harness(rebind=rebind)
    connection = harness.connect(B, address_change=True)
    ping = wrap_connection("dev1", encode(sn.pingreq(5), B))
    assert len(harness.feed(ping, HOST)) == 1
    assert len(harness.feed(ping, (HOST[0], 4_444))) == port_may
    assert len(harness.feed(ping, ELSEWHERE)) == host_may
    assert (connection.peer.address() == ELSEWHERE) == host_may
    assert harness.engine.counters.rebinds_refused == 2 - port_may - host_may


def test_an_advertisement_says_it_on_every_wire() -> None:
    harness = Harness(advertise_s=900, gateway_id=7)
    assert harness.engine.advertisement() == [bytes.fromhex(f"05 {code} 07 03 84") for code in ("00", "01", "16")]


def test_noise_without_a_connection_is_counted_and_nothing_is_kept() -> None:
    harness = Harness()
    for data in ("07 0d 00 05 00 07 00", "04 10 00 08", "08 12 20 00 02 61 2f 2b", "02 18", "07 0b 00 05 00 01 00"):
        assert harness.feed(bytes.fromhex(data)) == []
    assert harness.engine.counters.without_connection == 5
    for data in ("", "00", "01", "03 16", "02 fd 00"):
        assert harness.feed(bytes.fromhex(data)) == []
    assert harness.engine.counters.malformed == 5
    assert harness.engine.counters.clients == 0
    assert harness.events == []


@pytest.mark.parametrize("profile", [V12, W, A], ids=lambda profile: profile.name)
def test_a_sleeper_may_wake_behind_another_port_but_not_another_host(profile: Profile) -> None:
    harness = Harness()
    connection = harness.connect(profile)
    fall_asleep(harness, connection)
    harness.deliver(connection, "ab", b"1")
    ping = encode(ping_of(connection), profile)
    assert harness.feed(ping, ELSEWHERE) == []
    assert harness.engine.counters.rebinds_refused == 1
    moved = (HOST[0], 4321)
    assert len(harness.feed(ping, moved)) == 1
    assert connection.peer.address() == moved
    assert not connection.peer.is_proven
    anywhere = Harness(rebind="any")
    sleeper = anywhere.connect(profile)
    fall_asleep(anywhere, sleeper)
    anywhere.feed(ping, ELSEWHERE)
    assert sleeper.peer.address() == ELSEWHERE
    never = Harness(rebind="never")
    sleeper = never.connect(profile)
    fall_asleep(never, sleeper)
    never.feed(ping, moved)
    assert sleeper.peer.address() == HOST


@pytest.mark.parametrize("profile", [V12, A], ids=lambda profile: profile.name)
def test_an_active_client_is_not_moved_by_a_ping_from_elsewhere(profile: Profile) -> None:
    harness = Harness(rebind="any")
    connection = harness.connect(profile)
    harness.feed(encode(ping_of(connection), profile), ELSEWHERE)
    assert connection.peer.address() == HOST


@TWO
def test_a_malformed_packet_ends_a_connection_of_2_0(profile: Profile) -> None:
    harness = Harness()
    harness.connect(profile)
    answer = harness.feed(bytes.fromhex("03 fd 00"))
    assert [decode(data, profile) for data in answer] == [sn.disconnect(0x81)]
    assert harness.engine.counters.clients == 0


@pytest.mark.parametrize("profile", [V12, W], ids=lambda profile: profile.name)
def test_a_malformed_packet_of_1_2_is_dropped(profile: Profile) -> None:
    harness = Harness()
    connection = harness.connect(profile)
    assert harness.feed(bytes.fromhex("03 fd 00")) == []
    assert harness.feed(bytes.fromhex("00")) == []
    assert harness.engine.counters.protocol_errors == 2
    assert one(harness.ask(connection, sn.pingreq())).kind == sn.PINGRESP
