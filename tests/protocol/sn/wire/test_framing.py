"""Length forms, and the frames around a packet."""

import pytest

from embermq.protocol.errors import MalformedPacket
from embermq.protocol.sn.wire.framing import open_envelope, wrap_route
from support.sn_packets import wrap_connection

NODE_12 = b"\xfenode1"
NODE_B = b"\xfc\x01\x02"


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
def test_frames_around_a_packet_are_removed(data: str, route: bytes, client_id: str | None, code: int) -> None:
    envelope = open_envelope(bytes.fromhex(data))
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
    assert wrap_route(route, bytes.fromhex(packet)) == bytes.fromhex(wrapped)


def test_connection_encapsulation_both_ways() -> None:
    wrapped = wrap_connection("client1", bytes.fromhex("04 0c 12 34"))
    assert wrapped == bytes.fromhex("0f fe 00 07 63 6c 69 65 6e 74 31 04 0c 12 34")


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
def test_broken_frames_around_a_packet_are_refused(data: str) -> None:
    with pytest.raises(MalformedPacket):
        frame = open_envelope(bytes.fromhex(data)).frame
        if frame.code == 0xFC:
            raise MalformedPacket("a forwarder inside a forwarder has no layout")
