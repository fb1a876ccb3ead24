"""Decoding: vectors, both length forms, every cut, and bytes that are no packet."""

import contextlib
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embermq.protocol.errors import MalformedPacket, ProtocolError
from embermq.protocol.sn.wire.codec import decode, encode
from embermq.protocol.sn.wire.framing import open_envelope
from embermq.protocol.sn.wire.layouts import Profile
from embermq.protocol.sn.wire.profiles import PROFILES
from support import sn_packets as sn
from support.sn_vectors import REJECTED, VECTORS, Rejected, Vector, vector_id


@pytest.mark.parametrize("vector", VECTORS, ids=vector_id)
def test_decodes(vector: Vector) -> None:
    assert decode(bytes.fromhex(vector.hex), vector.profile) == vector.packet


@pytest.mark.parametrize("vector", VECTORS, ids=vector_id)
def test_long_length_form_is_the_same_packet(vector: Vector) -> None:
    data = bytes.fromhex(vector.hex)
    long_form = bytes((1, 0, len(data) + 2)) + data[1:]
    assert decode(long_form, vector.profile) == vector.packet


@pytest.mark.parametrize("vector", VECTORS, ids=vector_id)
def test_cut_anywhere_is_refused(vector: Vector) -> None:
    data = bytes.fromhex(vector.hex)
    for size in range(len(data)):
        with pytest.raises(MalformedPacket):
            decode(data[:size], vector.profile)


@pytest.mark.parametrize("vector", VECTORS, ids=vector_id)
def test_cut_with_a_fitting_length_never_raises_anything_else(vector: Vector) -> None:
    data = bytes.fromhex(vector.hex)
    for size in range(2, len(data)):
        try:
            packet = decode(bytes((size,)) + data[1:size], vector.profile)
        except (MalformedPacket, ProtocolError):
            continue
        assert decode(encode(packet, vector.profile), vector.profile) == packet


@pytest.mark.parametrize("vector", REJECTED, ids=vector_id)
def test_bytes_that_are_no_packet_are_refused(vector: Rejected) -> None:
    with pytest.raises(vector.error):
        decode(bytes.fromhex(vector.hex), vector.profile)


@pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.name)
def test_every_code_without_a_layout_is_refused(profile: Profile) -> None:
    for code in range(256):
        if profile.by_code[code] is None:
            with pytest.raises(MalformedPacket):
                decode(bytes((2, code)), profile)


@settings(deadline=None)
@given(st.binary(max_size=80), st.sampled_from(PROFILES))
def test_random_bytes_raise_only_peer_errors(data: bytes, profile: Profile) -> None:
    for candidate in (data, bytes((len(data) + 1,)) + data):
        try:
            packet = decode(candidate, profile)
        except (MalformedPacket, ProtocolError):
            continue
        assert isinstance(packet, sn.SnPacket)
    with contextlib.suppress(MalformedPacket):
        open_envelope(data)


def test_mutated_vectors_raise_only_peer_errors() -> None:
    random = Random(20_240_815)
    read = 0
    for vector in VECTORS:
        data = bytes.fromhex(vector.hex)
        for _ in range(40):
            mutated = bytearray(data)
            for _ in range(random.randint(1, 3)):
                mutated[random.randrange(len(mutated))] = random.randrange(256)
            profile = random.choice(PROFILES)
            try:
                packet = decode(bytes(mutated), profile)
            except (MalformedPacket, ProtocolError):
                continue
            read += 1
            assert isinstance(packet, sn.SnPacket)
    assert read > 0
