"""The MQTT-SN codec: vectors both ways, both length forms, every cut, and bytes nobody meant."""

import contextlib
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embermq.protocol.errors import MalformedPacket, ProtocolError
from embermq.protocol.sn.wire import fields, kinds
from embermq.protocol.sn.wire import packets as sn
from embermq.protocol.sn.wire.decode import decode
from embermq.protocol.sn.wire.encode import encode
from embermq.protocol.sn.wire.framing import open_envelope
from embermq.protocol.sn.wire.profiles import PROFILES, V12, A, B, W
from support.sn_vectors import REJECTED, VECTORS, Rejected, Vector


def _id(vector: Vector | Rejected) -> str:
    return f"{vector.profile.name}-{vector.name}"


@pytest.mark.parametrize("vector", VECTORS, ids=_id)
def test_decodes(vector: Vector) -> None:
    assert decode(bytes.fromhex(vector.hex), vector.profile) == vector.packet


@pytest.mark.parametrize("vector", [v for v in VECTORS if v.canonical], ids=_id)
def test_encodes(vector: Vector) -> None:
    assert encode(vector.packet, vector.profile).hex() == vector.hex.replace(" ", "")


@pytest.mark.parametrize("vector", VECTORS, ids=_id)
def test_long_length_form_is_the_same_packet(vector: Vector) -> None:
    data = bytes.fromhex(vector.hex)
    long_form = bytes((1, 0, len(data) + 2)) + data[1:]
    assert decode(long_form, vector.profile) == vector.packet


@pytest.mark.parametrize("vector", VECTORS, ids=_id)
def test_cut_anywhere_is_refused(vector: Vector) -> None:
    data = bytes.fromhex(vector.hex)
    for size in range(len(data)):
        with pytest.raises(MalformedPacket):
            decode(data[:size], vector.profile)


@pytest.mark.parametrize("vector", VECTORS, ids=_id)
def test_cut_with_a_fitting_length_never_raises_anything_else(vector: Vector) -> None:
    data = bytes.fromhex(vector.hex)
    for size in range(2, len(data)):
        try:
            packet = decode(bytes((size,)) + data[1:size], vector.profile)
        except (MalformedPacket, ProtocolError):
            continue
        assert decode(encode(packet, vector.profile), vector.profile) == packet


@pytest.mark.parametrize("vector", REJECTED, ids=_id)
def test_refuses(vector: Rejected) -> None:
    with pytest.raises(vector.error):
        decode(bytes.fromhex(vector.hex), vector.profile)


@pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.name)
def test_every_layout_has_a_vector(profile) -> None:
    covered = {vector.packet.kind() for vector in VECTORS if vector.profile is profile}
    wanted = {kind for kind in range(kinds.KINDS) if profile.by_kind[kind] is not None}
    if profile is W:
        # W's other layouts are 1.2's or A's own table rows.
        wanted &= {layout.kind for layout in W.by_code if layout is not None and layout.kind in covered}
    assert covered >= wanted


@pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.name)
def test_every_code_without_a_layout_is_refused(profile) -> None:
    for code in range(256):
        if profile.by_code[code] is None:
            with pytest.raises(MalformedPacket):
                decode(bytes((2, code)), profile)


def test_the_length_grows_by_two_past_255() -> None:
    short = encode(sn.WillMsg(bytes(253)), V12)
    assert (len(short), short[:2]) == (255, b"\xff\x09")
    long = encode(sn.WillMsg(bytes(254)), V12)
    assert (len(long), long[:4]) == (258, b"\x01\x01\x02\x09")
    assert decode(long, V12) == sn.WillMsg(bytes(254))


def test_a_packet_of_64_kib_is_read_and_a_longer_one_cannot_be_written() -> None:
    largest = encode(sn.WillMsg(bytes(65_531)), V12)
    assert len(largest) == 65_535
    assert decode(largest, V12) == sn.WillMsg(bytes(65_531))
    with pytest.raises(ValueError, match="65,535"):
        encode(sn.WillMsg(bytes(65_532)), V12)


def test_what_a_wire_cannot_say_is_not_written() -> None:
    with pytest.raises(ValueError, match="has no"):
        encode(sn.Wakeup(), V12)
    with pytest.raises(ValueError, match="topic type"):
        encode(sn.Publish(sn.full_name("a/b"), b""), V12)
    with pytest.raises(ValueError, match="topic type"):
        encode(sn.Publish(sn.short_name("ab"), b""), B)
    with pytest.raises(ValueError, match="two bytes"):
        encode(sn.Publish(sn.short_name("abc"), b""), A)


def test_a_connect_keeps_its_authentication_data_out_of_its_repr() -> None:
    assert "secret" not in repr(sn.Connect("dev1", auth_method="MQTT-BASIC", auth_data=b"secret"))


names = st.text(st.characters(blacklist_characters="\0+#", blacklist_categories=["Cs"]), min_size=1, max_size=40)
texts = st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"]), max_size=40)
ids = st.integers(1, 0xFFFF)
payloads = st.binary(max_size=600)
aliases = st.integers(1, 0xFFFF)
reasons = st.integers(0x80, 0xFF)


def references(profile, sessionless: bool = False):
    kinds_of = [st.builds(sn.predefined_alias, aliases)]
    if not sessionless:
        kinds_of.append(st.builds(sn.session_alias, aliases))
    if profile.full_names:
        kinds_of.append(st.builds(sn.full_name, names))
    if profile.short_names:
        kinds_of.append(st.just(sn.short_name("xy")))
    return st.one_of(kinds_of)


@st.composite
def profile_and_packet(draw):
    profile = draw(st.sampled_from([A, B]))
    flag = st.booleans()
    will = st.none() | st.builds(sn.ConnectWill, references(profile), payloads, st.integers(0, 2), flag)
    connect = st.builds(
        sn.Connect,
        texts,
        flag,
        st.integers(1, 0xFFFF),
        ids,
        st.just(False),
        will,
        st.integers(0, 0xFFFF_FFFF),
        st.integers(10, 0xFFFF),
        st.integers(0, 15),
        st.none() | texts,
    )
    publish_0 = st.builds(sn.Publish, references(profile), payloads, st.just(0), flag)
    publish = st.builds(sn.Publish, references(profile), payloads, st.integers(1, 2), flag, flag, ids)
    options = [
        connect,
        publish_0,
        publish,
        st.builds(sn.Pubwos, references(profile, True), payloads, flag),
        st.builds(sn.Subscribe, ids, references(profile), st.integers(0, 2), flag, flag, st.integers(0, 2)),
        st.builds(sn.Suback, ids, reasons | st.integers(0, 2), aliases),
        st.builds(sn.Unsubscribe, ids, references(profile)),
        st.builds(sn.Register, ids, names, aliases),
        st.builds(sn.Regack, ids, aliases, reasons),
        st.builds(sn.Puback, ids, reasons),
        st.builds(sn.Pingresp, ids, st.integers(-1, 255)),
        st.builds(sn.Auth, ids, reasons, texts, payloads),
        st.builds(sn.Disconnect, reasons, st.integers(-1, 0xFFFF_FFFF), texts),
        st.builds(sn.Connack, reasons, ids, flag, st.integers(0, 0xFFFF_FFFF), assigned_client_id=texts),
    ]
    return profile, draw(st.one_of(options))


@settings(deadline=None)
@given(profile_and_packet())
def test_any_packet_of_2_0_survives_the_wire(case) -> None:
    profile, packet = case
    assert decode(encode(packet, profile), profile) == packet


@settings(deadline=None)
@given(st.binary(max_size=80), st.sampled_from(PROFILES))
def test_random_bytes_raise_only_peer_errors(data: bytes, profile) -> None:
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


def test_strings_are_strict_utf8_and_keep_a_bom() -> None:
    bom = "\ufeffdev"
    assert decode(encode(sn.Pingreq(1, bom), A), A) == sn.Pingreq(1, bom)
    with pytest.raises(MalformedPacket):
        fields.text_of(b"a\x00b")
