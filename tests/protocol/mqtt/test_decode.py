"""The stream decoder: every vector whole, cut, joined and byte by byte; every bad one with its error; its bounds."""

import tracemalloc
from typing import Final

import pytest

from embermq.protocol.errors import MalformedPacket, PeerError, ProtocolError
from embermq.protocol.mqtt import decode
from embermq.protocol.mqtt.decode import CONNECT_BYTES_MAX, Decoder
from embermq.protocol.mqtt.encode import encode
from embermq.protocol.mqtt.fields import VARIABLE_BYTE_INTEGER_MAX
from embermq.protocol.packets import Connect, Packet, Pingreq, Pingresp, Puback, Publish, Subscribe, Will
from embermq.protocol.reasons import ReasonCode
from support.clauses import v311
from support.rejected import REJECTED, Rejected
from support.vectors import CLIENT, EITHER, TOLERATED, V31, VECTORS, Vector

PACKET_BYTES_MAX: Final = 4_000_000
CONNECT_31: Final = bytes.fromhex("10 0f 0006 4d5149736470 03 02 0000 0001 63")
PING: Final = {"client": (b"\xc0\x00", Pingreq()), "server": (b"\xd0\x00", Pingresp())}


def decoder_for(sender: str, level: int = 4) -> Decoder:
    """The decoder of that sender's peer, as it is after the CONNECT of an old client if `level` says so."""
    decoder = Decoder(PACKET_BYTES_MAX, server=sender == "client")
    if level == V31 and sender == "client":
        decoder.feed(CONNECT_31)
    return decoder


def good(vectors: list[Vector]) -> list[object]:
    return [
        pytest.param(vector, sender, id=f"{vector.name}-from-{sender}", marks=[v311(*vector.proves)])
        for vector in vectors
        for sender in vector.senders
    ]


def bad(rejected: list[Rejected]) -> list[object]:
    return [
        pytest.param(case, sender, id=f"{case.name}-from-{sender}", marks=[v311(case.clause, *case.proves)])
        for case in rejected
        for sender in case.senders
    ]


def cuts(wire: bytes) -> list[int]:
    """Every place to cut a short packet; for a long one those around its header and its end."""
    if len(wire) <= 200:
        return list(range(1, len(wire)))
    return [*range(1, 16), len(wire) // 2, len(wire) - 2, len(wire) - 1]


def assert_ended_by(case: Rejected, error: PeerError | None) -> None:
    assert type(error) is case.error
    assert error.clause == case.clause
    expected = ReasonCode.MALFORMED_PACKET if case.error is MalformedPacket else ReasonCode.PROTOCOL_ERROR
    assert error.reason == (case.reason if case.reason is not None else expected)
    assert error.detail


@pytest.mark.parametrize(("vector", "sender"), good(VECTORS + TOLERATED))
def test_bytes_become_the_packet(vector: Vector, sender: str) -> None:
    decoder = decoder_for(sender, vector.level)
    assert decoder.feed(vector.wire) == [vector.packet]
    assert decoder.error is None


@pytest.mark.parametrize(("vector", "sender"), good(VECTORS + TOLERATED))
def test_a_packet_cut_anywhere_is_waited_for(vector: Vector, sender: str) -> None:
    for cut in cuts(vector.wire):
        decoder = decoder_for(sender, vector.level)
        assert decoder.feed(vector.wire[:cut]) == []
        assert decoder.error is None
        assert decoder.feed(vector.wire[cut:]) == [vector.packet]


@pytest.mark.parametrize(
    ("vector", "sender"), good([vector for vector in VECTORS + TOLERATED if len(vector.wire) < 100_000])
)
def test_a_packet_may_come_byte_by_byte(vector: Vector, sender: str) -> None:
    decoder = decoder_for(sender, vector.level)
    wire = vector.wire
    early = [packet for at in range(len(wire) - 1) for packet in decoder.feed(wire[at : at + 1])]
    assert early == []
    assert decoder.feed(wire[-1:]) == [vector.packet]


@pytest.mark.parametrize(("vector", "sender"), good(VECTORS + TOLERATED))
def test_packets_may_stand_in_a_row(vector: Vector, sender: str) -> None:
    decoder = decoder_for(sender, vector.level)
    ping_wire, ping = PING[sender]
    stream = ping_wire + vector.wire + vector.wire + ping_wire
    assert decoder.feed(stream + vector.wire[:-1]) == [ping, vector.packet, vector.packet, ping]
    assert decoder.feed(vector.wire[-1:] + ping_wire) == [vector.packet, ping]
    assert decoder.feed(ping_wire) == [ping]
    assert decoder.error is None


@pytest.mark.parametrize(("case", "sender"), bad(REJECTED))
def test_a_bad_packet_ends_the_stream(case: Rejected, sender: str) -> None:
    decoder = decoder_for(sender)
    ping_wire, ping = PING[sender]
    assert decoder.feed(ping_wire + case.wire + ping_wire) == [ping]
    assert_ended_by(case, decoder.error)
    ended_by = decoder.error
    assert decoder.feed(ping_wire) == []
    assert decoder.error is ended_by


@pytest.mark.parametrize(("case", "sender"), bad(REJECTED))
def test_a_bad_packet_byte_by_byte_ends_the_stream(case: Rejected, sender: str) -> None:
    decoder = decoder_for(sender)
    for value in case.wire:
        assert decoder.feed(bytes((value,))) == []
    assert_ended_by(case, decoder.error)


@v311("MQTT-2.2.2-1", "MQTT-2.2.2-2")
@pytest.mark.parametrize("sender", EITHER)
def test_every_first_byte_has_one_verdict(sender: str) -> None:
    taken = {vector.wire[0] for vector in VECTORS if sender in vector.senders}
    publish = {0x30 | flags for flags in range(16) if flags & 6 != 6}
    accepted = set()
    for first in range(256):
        decoder = decoder_for(sender)
        decoder.feed(bytes((first,)))
        if decoder.error is None and first & 0xF6 != 0x36:
            accepted.add(first)
    assert accepted == taken | publish


# A vector, and how many bytes of its body a packet of that kind cannot do without.
NEEDED: Final = [
    ("connect-everything", 31),
    ("connect-31", 17),
    ("connack", 2),
    ("publish-qos0", 5),
    ("publish-qos1", 7),
    ("puback", 2),
    ("pubrec", 2),
    ("pubrel", 2),
    ("pubcomp", 2),
    ("subscribe", 8),
    ("suback", 3),
    ("unsubscribe", 7),
    ("unsuback", 2),
]


@v311("MQTT-4.8.0-1")
@pytest.mark.parametrize(("name", "body_bytes"), NEEDED)
def test_a_field_cut_at_any_byte_ends_the_stream(name: str, body_bytes: int) -> None:
    vector = next(vector for vector in VECTORS if vector.name == name)
    body = vector.wire[2:]
    for sender in vector.senders:
        for kept in range(body_bytes):
            decoder = decoder_for(sender)
            assert decoder.feed(bytes((vector.wire[0], kept)) + body[:kept]) == [], kept
            assert isinstance(decoder.error, PeerError), kept


@pytest.mark.parametrize("server", [True, False])
def test_a_packet_above_the_limit_is_refused_by_its_header(server: bool) -> None:
    at_limit = bytes.fromhex("30 8001 0003612f62") + bytes(123)
    decoder = Decoder(128, server)
    assert decoder.feed(at_limit) == [Publish("a/b", bytes(123))]
    assert decoder.feed(bytes.fromhex("30 8101")) == []
    assert type(decoder.error) is ProtocolError
    assert decoder.error.reason == ReasonCode.PACKET_TOO_LARGE


def test_the_limit_may_be_below_a_length_of_one_byte() -> None:
    decoder = Decoder(10)
    assert decoder.feed(bytes.fromhex("30 0a 0003612f62 3132333435")) == [Publish("a/b", b"12345")]
    decoder.feed(bytes.fromhex("30 0b"))
    assert decoder.error is not None
    assert decoder.error.reason == ReasonCode.PACKET_TOO_LARGE


def test_an_announced_length_allocates_nothing() -> None:
    decoder = Decoder(VARIABLE_BYTE_INTEGER_MAX)
    tracemalloc.start()
    try:
        assert decoder.feed(b"\x30\xff\xff\xff\x7f") == []
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert decoder.error is None
    assert peak_bytes < 10_000


def test_a_long_packet_in_many_reads_is_gathered_in_place() -> None:
    # Joining the rest anew for each read would be quadratic.
    payload = bytes(100_000)
    wire = b"\x30\xa5\x8d\x06\x00\x03a/b" + payload
    decoder = Decoder(200_000)
    assert decoder.feed(wire[:7]) == []
    rest = decoder._rest
    for at in range(7, len(wire) - 1):
        assert decoder.feed(wire[at : at + 1]) == []
    assert decoder._rest is rest
    assert len(rest) == len(wire) - 1
    assert decoder.feed(wire[-1:]) == [Publish("a/b", payload)]
    assert len(decoder._rest) == 0


def test_the_level_is_known_once_connect_was_decoded() -> None:
    decoder = Decoder(1000)
    assert decoder.protocol_level == 0
    connect = bytes.fromhex("10 0c 0004 4d515454 04 02 0000 0000")
    decoder.feed(connect[:-1])
    assert decoder.protocol_level == 0
    decoder.feed(connect[-1:])
    assert decoder.protocol_level == 4
    old = Decoder(1000)
    old.feed(CONNECT_31)
    assert old.protocol_level == 3


def test_another_level_is_refused_with_the_one_that_is_spoken() -> None:
    decoder = Decoder(1000)
    assert decoder.feed(bytes.fromhex("10 0d 0004 4d515454 05 02 0000 00 0000")) == []
    assert "protocol MQTT level 5 is not spoken here, level 4 is" in str(decoder.error)


def test_the_order_of_packets_is_not_the_decoders_business() -> None:
    decoder = Decoder(1000)
    packets = decoder.feed(b"\xc0\x00" + CONNECT_31 + CONNECT_31)
    assert [type(packet) for packet in packets] == [Pingreq, Connect, Connect]
    assert decoder.error is None


def test_an_empty_read_changes_nothing() -> None:
    decoder = Decoder(1000)
    assert decoder.feed(b"") == []
    assert decoder.feed(b"\xc0") == []
    assert decoder.feed(b"") == []
    assert decoder.feed(b"\x00") == [Pingreq()]


def test_a_read_of_many_packets_gives_them_in_order() -> None:
    wire = b"".join(b"\x40\x02" + packet_id.to_bytes(2, "big") for packet_id in range(1, 501))
    packets = Decoder(1000).feed(wire)
    assert packets == [Puback(packet_id) for packet_id in range(1, 501)]


def test_decoders_do_not_share_their_rests() -> None:
    one, other = Decoder(1000), Decoder(1000)
    one.feed(b"\x40\x02\x00")
    other.feed(b"\x62\x02\x01")
    assert one.feed(b"\x07") == [Puback(7)]
    rest: list[Packet] = other.feed(b"\x00")
    assert [getattr(packet, "packet_id", 0) for packet in rest] == [256]


def test_the_topic_cache_is_bounded() -> None:
    cache = decode._topic_names
    decoder = Decoder(1000)
    for number in range(decode.TOPIC_CACHE_MAX + 10):
        name = f"bounded/{number:05}"
        assert decoder.feed(b"\x30\x0f\x00\x0d" + name.encode()) == [Publish(name, b"")]
        assert len(cache) <= decode.TOPIC_CACHE_MAX
    assert decoder.feed(b"\x30\x0f\x00\x0dbounded/00000") == [Publish("bounded/00000", b"")]
    assert cache[b"bounded/00000"] == "bounded/00000"
    long_name = "x" * (decode.TOPIC_CACHE_BYTES_MAX + 1)
    body = len(long_name).to_bytes(2, "big") + long_name.encode()
    assert decoder.feed(b"\x30\x83\x02" + body) == [Publish(long_name, b"")]
    assert long_name.encode() not in cache


def test_a_bad_topic_name_is_bad_each_time() -> None:
    for _ in range(2):
        decoder = decoder_for("client")
        assert decoder.feed(bytes.fromhex("30 05 0003612f23")) == []
        assert decoder.error is not None


@v311("MQTT-4.7.3-3")
def test_the_longest_topic_filter_is_taken() -> None:
    topic_filter = "/" * 65_534 + "#"
    wire = bytes.fromhex("82 84 80 04 0001 ffff") + topic_filter.encode() + b"\x01"
    (packet,) = decoder_for(CLIENT[0]).feed(wire)
    assert isinstance(packet, Subscribe)
    assert packet.requests[0].topic_filter == topic_filter


def test_before_connect_no_more_is_gathered_than_the_largest_connect_needs() -> None:
    will = Will("t" * 65_535, b"w" * 65_535, 0, False)
    largest = Connect("c" * 65_535, True, 0, will, "u" * 65_535, b"p" * 65_535)
    wire = encode(largest)
    decoder = Decoder(VARIABLE_BYTE_INTEGER_MAX, first_bytes_max=CONNECT_BYTES_MAX)
    large = encode(Publish("t", bytes(2 * CONNECT_BYTES_MAX)))
    assert [type(packet) for packet in decoder.feed(wire + large)] == [Connect, Publish]
    assert decoder.error is None
    stranger = Decoder(VARIABLE_BYTE_INTEGER_MAX, first_bytes_max=CONNECT_BYTES_MAX)
    assert stranger.feed(large[:10]) == []
    assert stranger.error is not None and stranger.error.reason == ReasonCode.PACKET_TOO_LARGE


@pytest.mark.parametrize(
    ("wire", "kept"),
    [
        ("30 04 0001 61 78", "30 04 0001 61 78"),
        ("31 04 0001 61 78", ""),  # RETAIN is for the store, not for those who are subscribed already
        ("38 04 0001 61 78", ""),  # DUP means nothing at QoS 0, and is dropped
        ("30 84 00 0001 61 78", ""),  # a length in more bytes than it needs
        ("32 06 0001 61 0001 78", "32 06 0001 61"),  # the receiver's packet id is another one
        ("34 06 0001 61 0001 78", "34 06 0001 61"),
        ("33 06 0001 61 0001 78", ""),
        ("3a 06 0001 61 0001 78", ""),  # sent again by this client says nothing about others
        ("3c 06 0001 61 0001 78", ""),
        ("32 86 00 0001 61 0001 78", ""),
    ],
)
def test_only_what_every_receiver_may_get_is_kept_as_it_came(wire: str, kept: str) -> None:
    frame = bytes.fromhex(wire)
    for before, after in ((b"", b""), (b"\xc0\x00", b"\xc0\x00")):  # alone in a read, and between others
        packets = Decoder(PACKET_BYTES_MAX).feed(before + frame + after)
        (message,) = [packet for packet in packets if isinstance(packet, Publish)]
        assert message.frame == bytes.fromhex(kept)
        assert encode(message).startswith(message.frame)


def test_a_puback_alone_is_told_from_bytes_that_only_look_like_one() -> None:
    puback = b"\x40\x02\x12\x34"
    decoder = Decoder(PACKET_BYTES_MAX)
    assert decoder.puback_alone(puback) == 0x1234
    for other in (b"\x40\x02\0\0", b"\x41\x02\x12\x34", b"\x40\x03\x12\x34", b"\x50\x02\x12\x34", puback * 2):
        assert decoder.puback_alone(other) == 0
    assert decoder.feed(b"\x30\x07\0\1a") == []
    assert decoder.puback_alone(puback) == 0, "it is the rest of a PUBLISH"
    assert decoder.feed(puback) == [Publish("a", puback)]
    assert decoder.puback_alone(puback) == 0x1234
    assert decoder.feed(b"\xf0\0") == []
    assert decoder.puback_alone(puback) == 0, "nothing counts after an error"
