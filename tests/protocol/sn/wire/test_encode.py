"""Encoding: the vectors again, what a wire cannot express, and any packet there and back."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embermq.protocol.sn.wire.codec import decode, encode
from embermq.protocol.sn.wire.layouts import Profile
from embermq.protocol.sn.wire.profiles import V12, A, B
from support import sn_packets as sn
from support.sn_harness import TWO
from support.sn_vectors import VECTORS, Vector, vector_id

names = st.text(st.characters(blacklist_characters="\0+#", blacklist_categories=["Cs"]), min_size=1, max_size=40)
texts = st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"]), max_size=40)
ids = st.integers(1, 0xFFFF)
payloads = st.binary(max_size=600)
aliases = st.integers(1, 0xFFFF)
reasons = st.integers(0x80, 0xFF)


@pytest.mark.parametrize("vector", [v for v in VECTORS if v.canonical], ids=vector_id)
def test_encodes(vector: Vector) -> None:
    assert encode(vector.packet, vector.profile).hex() == vector.hex.replace(" ", "")


def test_the_length_grows_by_two_past_255() -> None:
    short = encode(sn.will_message(bytes(253)), V12)
    assert (len(short), short[:2]) == (255, b"\xff\x09")
    long = encode(sn.will_message(bytes(254)), V12)
    assert (len(long), long[:4]) == (258, b"\x01\x01\x02\x09")
    assert decode(long, V12) == sn.will_message(bytes(254))


def test_a_packet_of_64_kib_is_read_and_a_longer_one_cannot_be_written() -> None:
    largest = encode(sn.will_message(bytes(65_531)), V12)
    assert len(largest) == 65_535
    assert decode(largest, V12) == sn.will_message(bytes(65_531))
    with pytest.raises(ValueError, match="65,535"):
        encode(sn.will_message(bytes(65_532)), V12)


def test_what_a_wire_cannot_say_is_not_written() -> None:
    with pytest.raises(ValueError, match="has no"):
        encode(sn.wakeup(), V12)
    with pytest.raises(ValueError, match="topic type"):
        encode(sn.publish(sn.full_name("a/b"), b""), V12)
    with pytest.raises(ValueError, match="topic type"):
        encode(sn.publish(sn.short_name("ab"), b""), B)
    with pytest.raises(ValueError, match="two bytes"):
        encode(sn.publish(sn.short_name("abc"), b""), A)


def references(profile: Profile, sessionless: bool = False) -> st.SearchStrategy[sn.TopicReference]:
    kinds_of = [st.builds(sn.predefined_alias, aliases)]
    if not sessionless:
        kinds_of.append(st.builds(sn.session_alias, aliases))
    if profile.full_names:
        kinds_of.append(st.builds(sn.full_name, names))
    if profile.short_names:
        kinds_of.append(st.just(sn.short_name("xy")))
    return st.one_of(kinds_of)


def packets(profile: Profile) -> st.SearchStrategy[sn.SnPacket]:
    flag = st.booleans()
    will = st.none() | st.builds(sn.ConnectWill, references(profile), payloads, st.integers(0, 2), flag)
    connect = st.builds(
        sn.connect,
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
    publish_0 = st.builds(sn.publish, references(profile), payloads, st.just(0), flag)
    publish = st.builds(sn.publish, references(profile), payloads, st.integers(1, 2), flag, flag, ids)
    return st.one_of(
        connect,
        publish_0,
        publish,
        st.builds(sn.pubwos, references(profile, True), payloads, flag),
        st.builds(sn.subscribe, ids, references(profile), st.integers(0, 2), flag, flag, st.integers(0, 2)),
        st.builds(sn.suback, ids, reasons | st.integers(0, 2), aliases),
        st.builds(sn.unsubscribe, ids, references(profile)),
        st.builds(sn.register, ids, names, aliases),
        st.builds(sn.regack, ids, aliases, reasons),
        st.builds(sn.acknowledgement, st.just(sn.PUBACK), ids, reasons),
        st.builds(sn.pingresp, ids, st.integers(-1, 255)),
        st.builds(sn.auth, ids, reasons, texts, payloads),
        st.builds(sn.disconnect, reasons, st.integers(-1, 0xFFFF_FFFF), texts),
        st.builds(sn.connack, reasons, ids, flag, st.integers(0, 0xFFFF_FFFF), client_id=texts),
    )


@TWO
@settings(deadline=None)
@given(data=st.data())
def test_any_packet_of_2_0_survives_the_wire(profile: Profile, data: st.DataObject) -> None:
    packet = data.draw(packets(profile))
    assert decode(encode(packet, profile), profile) == packet
