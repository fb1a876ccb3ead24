"""Wrapper frames, and telling the profiles apart by their CONNECT."""

import pytest

from embermq.protocol.errors import MalformedPacket
from embermq.protocol.sn.wire import kinds
from embermq.protocol.sn.wire.detect import detect_connect
from embermq.protocol.sn.wire.framing import open_envelope, read_frame, wrap_connection, wrap_route
from embermq.protocol.sn.wire.profiles import V12, A, B, W
from support.sn_vectors import VECTORS

NODE_12 = b"\xfenode1"
NODE_B = b"\xfc\x01\x02"


def _bytes(text: str) -> bytes:
    return bytes.fromhex(text)


@pytest.mark.parametrize(
    ("data", "route", "client_id", "code"),
    [
        ("08 fe 00 6e 6f 64 65 31 02 16", NODE_12, None, 0x16),
        ("08 fe 00 6e 6f 64 65 31 04 16 00 13", NODE_12, None, 0x16),
        ("09 fc 02 01 02 04 0c 12 34", NODE_B, None, 0x0C),
        ("0f fe 00 07 63 6c 69 65 6e 74 31 04 0c 12 34", b"", "client1", 0x0C),
        ("02 16", b"", None, 0x16),
        ("03 fe 00 02 16", b"\xfe", None, 0x16),
        ("14 fc 02 01 02 0f fe 00 07 63 6c 69 65 6e 74 31 04 0c 12 34", NODE_B, "client1", 0x0C),
    ],
)
def test_wrappers_come_off(data: str, route: bytes, client_id: str | None, code: int) -> None:
    envelope = open_envelope(_bytes(data))
    assert (envelope.route, envelope.client_id, envelope.frame.code) == (route, client_id, code)


@pytest.mark.parametrize(
    ("route", "packet", "wrapped"),
    [
        (b"", "02 16", "02 16"),
        (NODE_12, "02 17", "08 fe 00 6e 6f 64 65 31 02 17"),
        (NODE_B, "04 0c 12 34", "09 fc 02 01 02 04 0c 12 34"),
    ],
)
def test_an_answer_goes_back_the_way_the_question_came(route: bytes, packet: str, wrapped: str) -> None:
    assert wrap_route(route, _bytes(packet)) == _bytes(wrapped)


def test_connection_encapsulation_both_ways() -> None:
    wrapped = wrap_connection("client1", _bytes("04 0c 12 34"))
    assert wrapped == _bytes("0f fe 00 07 63 6c 69 65 6e 74 31 04 0c 12 34")


@pytest.mark.parametrize(
    "data",
    [
        "02 fe 02 16",  # a forwarder without its control byte
        "08 fe 00 6e 6f 64 65 31",  # read as B's encapsulation: a ClientID of 110 bytes
        "02 fe",
        "03 fe 00",
        "06 fe 00 07 63 6c",
        "02 fc",
        "03 fc 05",
        "04 fc 01 07",  # nothing inside
        "03 fe 00 03 fe 00 02 16",  # a forwarder inside a forwarder
        "0a fc 01 07 06 fc 01 07 02 16",
        "0a fe 00 01 61 06 fe 00 00 16",
    ],
)
def test_broken_wrappers_are_refused(data: str) -> None:
    with pytest.raises(MalformedPacket):
        frame = open_envelope(_bytes(data)).frame
        if frame.code == 0xFC:
            raise MalformedPacket("a forwarder inside a forwarder has no layout")


@pytest.mark.parametrize("vector", VECTORS, ids=lambda v: f"{v.profile.name}-{v.name}")
def test_the_connect_says_which_profile(vector) -> None:
    found = detect_connect(read_frame(_bytes(vector.hex)), None)
    if vector.packet.kind() == kinds.CONNECT:
        assert found is not None
        assert (found.profile, found.is_supported) == (vector.profile, True)
    elif vector.profile is A and vector.packet.kind() == kinds.AUTH:
        # Without a session of A, its AUTH looks like a CONNECT of 1.2 with an unknown version.
        assert found is not None
        assert not found.is_supported
    else:
        assert found is None


@pytest.mark.parametrize("vector", [v for v in VECTORS if v.profile in (A, B)], ids=lambda v: v.name)
def test_inside_a_session_of_2_0_only_a_connect_is_a_connect(vector) -> None:
    found = detect_connect(read_frame(_bytes(vector.hex)), vector.profile)
    assert (found is not None) == (vector.packet.kind() == kinds.CONNECT)


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
def test_versions_that_nobody_knows(data: str, profile, supported: bool) -> None:
    found = detect_connect(read_frame(_bytes(data)))
    assert found is not None
    assert (found.profile, found.is_supported) == (profile, supported)
