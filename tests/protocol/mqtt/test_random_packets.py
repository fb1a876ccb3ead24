"""The codec against random packets and random bytes: what is written is read, and nothing a peer sends raises."""

from itertools import pairwise
from typing import Final

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from embermq.protocol.errors import MalformedPacket, ProtocolError
from embermq.protocol.mqtt.decode import Decoder
from embermq.protocol.mqtt.dialect import MQTT_5, MQTT_311, Dialect
from embermq.protocol.mqtt.encode import encode
from embermq.protocol.packets import Packet
from support.acknowledgements import singles
from support.clauses import v5, v311
from support.packet_strategies import from_client, from_server, wire_of
from support.packet_strategies_v5 import from_client_v5, from_server_v5
from support.vectors.mutations import WIRES, mutated

PACKET_BYTES_MAX: Final = 100_000
# Where random bytes would hardly ever get past: real beginnings.
STARTS: Final = st.sampled_from([b"", *sorted({wire[:4] for wire in WIRES})])


def split(wire: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(wire) + 1) for place in places), len(wire)]
    return [wire[start:stop] for start, stop in pairwise(edges)]


def assert_survives(packets: list[Packet], places: list[int], server: bool) -> None:
    wire = b"".join(wire_of(packet) for packet in packets)
    decoder = Decoder(PACKET_BYTES_MAX, server)
    read = [packet for piece in split(wire, places) for packet in decoder.feed(piece)]
    assert decoder.error is None
    assert singles(read) == packets  # acknowledgements that count up are read as one


places: Final = st.lists(st.integers(0, 100_000), max_size=8)


@settings(deadline=None)
@given(st.lists(from_client, min_size=1, max_size=5), places)
def test_what_a_client_writes_survives_any_split(packets: list[Packet], places: list[int]) -> None:
    assert_survives(packets, places, server=True)


@settings(deadline=None)
@given(st.lists(from_server, min_size=1, max_size=5), places)
def test_what_a_server_writes_survives_any_split(packets: list[Packet], places: list[int]) -> None:
    assert_survives(packets, places, server=False)


def decoder_for(server: bool, dialect: Dialect) -> Decoder:
    return Decoder(PACKET_BYTES_MAX, server, levels=(3, 4, dialect.level), dialect=dialect)


def assert_ends_well(pieces: list[bytes], server: bool, dialect: Dialect) -> None:
    """Only packets come out, whatever goes in, and nothing after an error; how it is split makes no difference."""
    decoder = decoder_for(server, dialect)
    read: list[Packet] = []
    for piece in pieces:
        packets = decoder.feed(piece)
        assert all(isinstance(packet, Packet) for packet in packets)
        read += packets
    whole = decoder_for(server, dialect)
    assert whole.feed(b"".join(pieces)) == read
    if whole.error is None:
        assert decoder.error is None
    else:
        assert decoder.error is not None
        assert type(decoder.error) is type(whole.error)
        assert type(whole.error) in (MalformedPacket, ProtocolError)
        assert decoder.error.clause == whole.error.clause
        assert whole.feed(b"\xc0\x00\xd0\x00") == []


@v311("MQTT-4.8.0-1")
@v5("MQTT-4.13.1-1")
@pytest.mark.parametrize("dialect", [MQTT_311, MQTT_5], ids=["3.1.1", "5.0"])
@pytest.mark.parametrize("server", [True, False])
def test_random_bytes_never_raise(server: bool, dialect: Dialect) -> None:
    @settings(deadline=None, max_examples=300)
    @given(STARTS, st.binary(max_size=60), places)
    @example(b"", b"\x30", [])
    def check(start: bytes, data: bytes, places: list[int]) -> None:
        assert_ends_well(split(start + data, places), server, dialect)

    check()


@v311("MQTT-4.8.0-1")
@v5("MQTT-4.13.1-1")
@pytest.mark.parametrize("dialect", [MQTT_311, MQTT_5], ids=["3.1.1", "5.0"])
@pytest.mark.parametrize("server", [True, False])
def test_mutated_packets_never_raise(server: bool, dialect: Dialect) -> None:
    @settings(deadline=None, max_examples=300)
    @given(mutated(), places)
    def check(wire: bytes, places: list[int]) -> None:
        assert_ends_well(split(wire, places), server, dialect)

    check()


@settings(deadline=None)
@given(from_client)
def test_what_is_decoded_encodes_to_the_same_bytes(packet: Packet) -> None:
    wire = wire_of(packet)
    (read,) = Decoder(PACKET_BYTES_MAX).feed(wire)
    assert wire_of(read) == wire


@settings(deadline=None)
@given(st.lists(from_client_v5, min_size=1, max_size=4), places)
def test_what_a_client_of_5_writes_survives_any_split(packets: list[Packet], places: list[int]) -> None:
    assert_survives_v5(packets, places, server=True)


@settings(deadline=None)
@given(st.lists(from_server_v5, min_size=1, max_size=4), places)
def test_what_a_server_of_5_writes_survives_any_split(packets: list[Packet], places: list[int]) -> None:
    assert_survives_v5(packets, places, server=False)


def assert_survives_v5(packets: list[Packet], places: list[int], server: bool) -> None:
    wire = b"".join(encode(packet, MQTT_5) for packet in packets)
    decoder = decoder_for(server, MQTT_5)
    read = [packet for piece in split(wire, places) for packet in decoder.feed(piece)]
    assert decoder.error is None
    assert read == packets
