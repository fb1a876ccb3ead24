"""The stream decoder: every vector cut, joined and byte by byte; its bounds. `test_vectors.py` has them whole."""

import tracemalloc
from typing import Final

import pytest

from embermq.protocol.errors import ProtocolError
from embermq.protocol.mqtt.decode import CONNECT_BYTES_MAX, Decoder, remaining_length_max
from embermq.protocol.mqtt.dialect import MQTT_5, MQTT_31, MQTT_311
from embermq.protocol.mqtt.encode import encode
from embermq.protocol.mqtt.fields import FILTERS_MAX, VARIABLE_BYTE_INTEGER_MAX, variable_byte_integer
from embermq.protocol.packets import (
    Connect,
    Packet,
    Pingreq,
    Pingresp,
    Publish,
    Subscribe,
    SubscriptionRequest,
    Unsubscribe,
    Will,
)
from embermq.protocol.reasons import ReasonCode
from support.acknowledgements import puback, singles
from support.clauses import v5, v311
from support.vectors.catalog import VECTORS
from support.vectors.decoders import decoder_for
from support.vectors.vector import EITHER, V5, V311, Vector

CONNECT_31: Final = bytes.fromhex("10 0f 0006 4d5149736470 03 02 0000 0001 63")
CONNECT_5: Final = bytes.fromhex("10 0d 00044d515454 05 02 0000 00 0000")
PING: Final = {"client": (b"\xc0\x00", Pingreq()), "server": (b"\xd0\x00", Pingresp())}


def sent(vectors: list[Vector]) -> list[object]:
    """Each vector with each of its senders."""
    return [
        pytest.param(vector, sender, id=f"{vector.id}-from-{sender}") for vector in vectors for sender in vector.senders
    ]


def cuts(wire: bytes) -> list[int]:
    """Every place to cut a short packet; for a long one those around its header and its end."""
    if len(wire) <= 200:
        return list(range(1, len(wire)))
    return [*range(1, 16), len(wire) // 2, len(wire) - 2, len(wire) - 1]


@pytest.mark.parametrize(("vector", "sender"), sent(VECTORS))
def test_a_packet_cut_anywhere_is_waited_for(vector: Vector, sender: str) -> None:
    for cut in cuts(vector.wire):
        decoder = decoder_for(sender, vector.level)
        assert decoder.feed(vector.wire[:cut]) == []
        assert decoder.error is None
        assert decoder.feed(vector.wire[cut:]) == [vector.packet]


@pytest.mark.parametrize(("vector", "sender"), sent([vector for vector in VECTORS if len(vector.wire) < 100_000]))
def test_a_packet_may_come_byte_by_byte(vector: Vector, sender: str) -> None:
    decoder = decoder_for(sender, vector.level)
    wire = vector.wire
    early = [packet for at in range(len(wire) - 1) for packet in decoder.feed(wire[at : at + 1])]
    assert early == []
    assert decoder.feed(wire[-1:]) == [vector.packet]


@pytest.mark.parametrize(("vector", "sender"), sent(VECTORS))
def test_packets_may_stand_in_a_row(vector: Vector, sender: str) -> None:
    decoder = decoder_for(sender, vector.level)
    ping_wire, ping = PING[sender]
    stream = ping_wire + vector.wire + vector.wire + ping_wire
    assert decoder.feed(stream + vector.wire[:-1]) == [ping, vector.packet, vector.packet, ping]
    assert decoder.feed(vector.wire[-1:] + ping_wire) == [vector.packet, ping]
    assert decoder.feed(ping_wire) == [ping]
    assert decoder.error is None


@v311("MQTT-2.2.2-1", "MQTT-2.2.2-2")
@v5("MQTT-2.1.3-1")
@pytest.mark.parametrize("level", [V311, V5])
@pytest.mark.parametrize("sender", EITHER)
def test_every_first_byte_has_one_verdict(sender: str, level: int) -> None:
    taken = {
        vector.wire[0]
        for vector in VECTORS
        if vector.is_written and sender in vector.senders and (vector.level == V5) == (level == V5)
    }
    publish = {0x30 | flags for flags in range(16) if flags & 6 != 6}
    accepted = set()
    for first in range(256):
        decoder = decoder_for(sender, level)
        decoder.feed(bytes((first,)))
        if decoder.error is None and first & 0xF6 != 0x36:
            accepted.add(first)
    assert accepted == taken | publish


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
    # Joining the rest again for each read would be quadratic.
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


def test_connect_decides_the_dialect() -> None:
    decoder = Decoder(1000)
    decoder.feed(CONNECT_31[:-1])
    assert decoder.dialect is MQTT_311
    decoder.feed(CONNECT_31[-1:])
    assert decoder.dialect is MQTT_31
    decoder.feed(bytes.fromhex("10 0c 0004 4d515454 04 02 0000 0000"))
    assert decoder.dialect is MQTT_311


def test_level_5_is_read_only_where_it_is_allowed() -> None:
    decoder = Decoder(1000)
    assert decoder.feed(CONNECT_5) == []
    assert decoder.error is not None and decoder.error.reason == ReasonCode.UNSUPPORTED_PROTOCOL_VERSION
    assert decoder.dialect is MQTT_311
    decoder = Decoder(1000, levels=(3, 4, 5))
    assert decoder.feed(CONNECT_5) == [Connect("", protocol_level=5)]
    assert decoder.dialect is MQTT_5


def test_the_level_counts_for_the_answer_to_a_bad_connect() -> None:
    decoder = Decoder(1000, levels=(3, 4, 5))
    assert decoder.feed(bytes.fromhex("10 0e 00044d515454 05 03 0000 00 000163")) == []
    assert decoder.error is not None and decoder.error.clause == "MQTT-3.1.2-3"
    assert decoder.dialect is MQTT_5


@v5("MQTT-1.5.5-1")
def test_the_length_of_connect_itself_may_have_idle_bytes() -> None:
    # Its level is known only behind its length.
    decoder = Decoder(1000, levels=(3, 4, 5))
    assert decoder.feed(bytes.fromhex("10 8d00") + CONNECT_5[2:]) == [Connect("", protocol_level=5)]
    assert decoder.feed(b"\xc0\x80\x00") == []
    assert decoder.error is not None and decoder.error.clause == "MQTT-1.5.5-1"


@v5("MQTT-3.2.2-15")
@pytest.mark.parametrize("shortcuts", [True, False])
@pytest.mark.parametrize("limit", [20, 128, 129, 130, 131, 132, 1_000, 16_386, 16_387, 16_388, 16_389, 20_000])
def test_in_5_the_whole_packet_is_measured(limit: int, shortcuts: bool) -> None:
    largest = remaining_length_max(limit)
    for length, is_taken in ((largest, True), (largest + 1, False)):
        decoder = Decoder(limit, shortcuts=shortcuts, levels=(5,))
        assert decoder.feed(CONNECT_5) != []
        wire = b"\x30" + variable_byte_integer(length) + b"\x00\x01a\x00"
        wire += bytes(1 + len(variable_byte_integer(length)) + length - len(wire))
        assert (len(wire) <= limit) == is_taken
        assert len(decoder.feed(wire)) == is_taken
        assert (decoder.error is None) == is_taken


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
    packets = Decoder(1000, shortcuts=False).feed(wire)
    assert packets == [puback(packet_id) for packet_id in range(1, 501)] == singles(Decoder(1000).feed(wire))


def test_decoders_do_not_share_their_rests() -> None:
    one, other = Decoder(1000), Decoder(1000)
    one.feed(b"\x40\x02\x00")
    other.feed(b"\x62\x02\x01")
    assert one.feed(b"\x07") == [puback(7)]
    rest: list[Packet] = other.feed(b"\x00")
    assert [getattr(packet, "packet_id", 0) for packet in rest] == [256]


def test_a_bad_topic_name_is_bad_each_time() -> None:
    for _ in range(2):
        decoder = decoder_for("client")
        assert decoder.feed(bytes.fromhex("30 05 0003612f23")) == []
        assert decoder.error is not None


def test_before_connect_no_more_is_gathered_than_the_largest_connect_needs() -> None:
    will = Will("t" * 65_535, b"w" * 65_535, 0, False)
    largest = Connect("c" * 65_535, True, 0, will, "u" * 65_535, b"p" * 65_535)
    wire = encode(largest)
    decoder = Decoder(VARIABLE_BYTE_INTEGER_MAX, first_bytes_max=CONNECT_BYTES_MAX)
    large = encode(Publish("t", bytes(2 * CONNECT_BYTES_MAX)))
    assert [type(packet) for packet in decoder.feed(wire + large)] == [Connect, Publish]
    assert decoder.error is None
    unauthenticated = Decoder(VARIABLE_BYTE_INTEGER_MAX, first_bytes_max=CONNECT_BYTES_MAX)
    assert unauthenticated.feed(large[:10]) == []
    assert unauthenticated.error is not None and unauthenticated.error.reason == ReasonCode.PACKET_TOO_LARGE


@pytest.mark.parametrize("level", [V311, V5])
@pytest.mark.parametrize("packet_type", [Subscribe, Unsubscribe])
def test_a_packet_with_too_many_topic_filters_is_refused(
    packet_type: type[Subscribe] | type[Unsubscribe], level: int
) -> None:
    dialect = MQTT_5 if level == V5 else MQTT_311

    def fed(count: int) -> Decoder:
        packet: Packet = Unsubscribe(1, ["a"] * count)
        if packet_type is Subscribe:
            packet = Subscribe(1, [SubscriptionRequest("a")] * count)
        decoder = decoder_for("client", level)
        decoder.feed(encode(packet, dialect))
        return decoder

    assert fed(FILTERS_MAX).error is None
    error = fed(FILTERS_MAX + 1).error
    assert error is not None
    assert error.reason == ReasonCode.QUOTA_EXCEEDED
