"""Telling the profiles apart: by a CONNECT, and for what comes without a connection."""

import pytest

from embermq.protocol.sn.wire.detect import detect_connect, read_without_connection
from embermq.protocol.sn.wire.framing import read_frame
from embermq.protocol.sn.wire.layouts import Profile
from embermq.protocol.sn.wire.profiles import PROFILES, V12, A, B, W
from support import sn_packets as sn
from support.sn_vectors import VECTORS, Vector, vector_id


@pytest.mark.parametrize("vector", VECTORS, ids=vector_id)
def test_the_connect_says_which_profile(vector: Vector) -> None:
    found = detect_connect(read_frame(bytes.fromhex(vector.hex)), None)
    if vector.packet.kind == sn.CONNECT:
        assert found is not None
        assert (found.profile, found.is_supported) == (vector.profile, True)
    elif vector.profile is A and vector.packet.kind == sn.AUTH:
        # Without a session of A, its AUTH looks like a CONNECT of 1.2 with an unknown version.
        assert found is not None
        assert not found.is_supported
    else:
        assert found is None


@pytest.mark.parametrize("vector", [v for v in VECTORS if v.profile in (A, B)], ids=lambda v: v.name)
def test_inside_a_session_of_2_0_only_a_connect_is_a_connect(vector: Vector) -> None:
    found = detect_connect(read_frame(bytes.fromhex(vector.hex)), vector.profile)
    assert (found is not None) == (vector.packet.kind == sn.CONNECT)


@pytest.mark.parametrize(
    ("data", "is_auth"),
    [
        ("08 04 00 03 18 02 50 4c", True),
        ("08 04 00 03 18 02 ff ff", True),  # malformed, but not by its form: the session answers that
        ("08 04 00 03 18 09 50 4c", False),  # the method would end behind the packet
        ("08 04 00 03 00 02 50 4c", False),  # only a server sends this reason
        ("07 04 00 03 18 02 50", False),
    ],
)
def test_an_auth_in_a_session_of_a_is_no_connect_of_1_2(data: str, is_auth: bool) -> None:
    assert (detect_connect(read_frame(bytes.fromhex(data)), A) is None) == is_auth


@pytest.mark.parametrize(
    ("data", "profile", "supported"),
    [
        ("0a 04 04 00 00 3c 64 65 76 31", V12, True),
        ("0a 04 04 07 00 3c 64 65 76 31", V12, False),
        ("12 05 01 00 01 03 00 3c 00 00 00 00 00 00 64 65 76 31", A, False),
        ("0e 01 01 00 01 09 00 3c 00 00 64 65 76 31", B, False),
        ("14 04 01 02 00 3c 00 00 a8 c0 05 dc 73 6a 63 6c 69 65 6e 74", W, True),
        ("01 00 0c 04 04 01 00 3c 64 65 76 31", V12, True),
    ],
)
def test_unknown_versions_are_told_apart_from_other_packets(data: str, profile: Profile, supported: bool) -> None:
    found = detect_connect(read_frame(bytes.fromhex(data)))
    assert found is not None
    assert (found.profile, found.is_supported) == (profile, supported)


def readings(data: str, *profiles: Profile, pubwos_profile: Profile = A) -> list[tuple[Profile, sn.SnPacket]]:
    return read_without_connection(read_frame(bytes.fromhex(data)), profiles or PROFILES, pubwos_profile)


def test_a_pingreq_may_be_one_of_several_profiles() -> None:
    assert readings("06 16 64 65 76 31") == [
        (V12, sn.pingreq(0, "dev1")),
        (W, sn.pingreq(0, "ev1", 0x64)),
        (A, sn.pingreq(0x6465, "v1")),
    ]


def test_a_message_without_a_session_has_one_reading_only() -> None:
    publish = sn.pubwos(sn.full_name("a/b"), b"hi", True)
    assert readings("0a 11 13 00 03 61 2f 62 68 69") == [(A, publish)]
    assert readings("0a 12 13 00 03 61 2f 62 68 69") == []
    assert readings("0a 12 13 00 03 61 2f 62 68 69", pubwos_profile=B) == [(B, publish)]
    assert readings("09 0c 61 00 01 00 00 68 69") == [(V12, sn.pubwos(sn.predefined_alias(1), b"hi"))]
    assert readings("09 0c 61 00 01 00 00 68 69", A, B) == []


def test_a_search_is_read_by_each_profile_that_writes_it_so() -> None:
    assert readings("03 01 01") == [(V12, sn.searchgw(1)), (W, sn.searchgw(1))]
    assert readings("03 01 01", W) == [(W, sn.searchgw(1))]


@pytest.mark.parametrize("data", ["09 0c 20 00 05 00 07 68 69", "08 12 20 00 02 61 2f 2b", "02 18", "02 fd"])
def test_other_frames_mean_nothing_without_a_connection(data: str) -> None:
    assert readings(data) == []
