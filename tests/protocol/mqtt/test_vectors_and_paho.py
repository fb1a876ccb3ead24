"""The vectors of MQTT 5.0 against another implementation: paho's properties and reason codes.

A vector is data until the codec reads it, so the data itself is tested: `read` takes a packet apart as the standard
describes it, and leaves every property section to paho.
"""

from typing import Final

import pytest
from paho.mqtt import MQTTException
from paho.mqtt import properties as paho
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.reasoncodes import ReasonCode

from embermq.protocol.errors import MalformedPacket, ProtocolError
from support.properties_v5 import CLIENT_DISCONNECT_CODES, PLACES, PROPERTIES, REASON_CODES, Properties, framed
from support.vectors.plain_v5 import DEFAULTS, Request, Will
from support.vectors.rejected_v5 import ALL_REJECTED, MISPLACED, REPEATED, UNKNOWN
from support.vectors.v5 import VECTORS
from support.vectors.vector import Rejected, Vector

TYPES: Final = {
    1: "CONNECT",
    2: "CONNACK",
    3: "PUBLISH",
    4: "PUBACK",
    5: "PUBREC",
    6: "PUBREL",
    7: "PUBCOMP",
    8: "SUBSCRIBE",
    9: "SUBACK",
    10: "UNSUBSCRIBE",
    11: "UNSUBACK",
    12: "PINGREQ",
    13: "PINGRESP",
    14: "DISCONNECT",
    15: "AUTH",
}
PAHO_TYPES: Final = {name: number for number, name in TYPES.items()} | {"WILL": PacketTypes.WILLMESSAGE}


def paho_properties(place: str) -> paho.Properties:
    return paho.Properties(PAHO_TYPES[place])  # type: ignore[no-untyped-call]  # paho has no types here


def paho_unpack(place: str, section: bytes) -> tuple[paho.Properties, int]:
    """What paho reads from a property section, its length included, and how many bytes it took."""
    found = paho_properties(place)
    _, size = found.unpack(section)  # type: ignore[no-untyped-call]
    return found, size


class Reader:
    """The fields of one packet, from front to back."""

    def __init__(self, wire: bytes) -> None:
        self.first = wire[0]
        length, size = paho.VariableByteIntegers.decode(wire[1:])  # type: ignore[no-untyped-call]
        self.data = wire[1 + size :]
        assert length == len(self.data)
        assert paho.VariableByteIntegers.encode(length) == wire[1 : 1 + size]  # type: ignore[no-untyped-call]
        self.sections: list[tuple[str, bytes, Properties]] = []

    def take(self, count: int) -> bytes:
        assert count <= len(self.data)
        taken, self.data = self.data[:count], self.data[count:]
        return taken

    def integer(self, count: int = 2) -> int:
        return int.from_bytes(self.take(count), "big")

    def binary(self) -> bytes:
        return self.take(self.integer())

    def text(self) -> str:
        return self.binary().decode()

    def properties(self, place: str, expected: Properties) -> Properties:
        """The expected ones, if paho finds these and no others: it keeps no order among different properties."""
        found, size = paho_unpack(place, self.data)
        section = self.take(size)
        self.sections.append((place, section, expected))
        wanted: dict[str, object] = {}
        for identifier, value in expected:
            name = found.getNameFromIdent(identifier).replace(" ", "")  # type: ignore[no-untyped-call]
            if found.allowsMultiple(name):  # type: ignore[no-untyped-call]
                several = wanted.setdefault(name, [])
                assert isinstance(several, list)
                several.append(value)
            else:
                assert name not in wanted
                wanted[name] = value
        assert {name: value for name, value in vars(found).items() if name[0].isupper()} == wanted
        return expected


def read(wire: bytes, expected: Vector) -> tuple[dict[str, object], Reader]:
    """A packet as a dict with every field. Its properties are the expected ones, where paho says that they are."""
    fields = Reader(wire)
    kind = TYPES[fields.first >> 4]
    packet: dict[str, object] = {"type": kind}
    properties = expected.plain.get("properties", [])
    assert isinstance(properties, list)
    if kind == "CONNECT":
        _read_connect(fields, packet, expected, properties)
    elif kind == "PUBLISH":
        packet |= {"dup": bool(fields.first & 8), "qos": fields.first >> 1 & 3, "retain": bool(fields.first & 1)}
        packet["topic_name"] = fields.text()
        packet["packet_id"] = fields.integer() if packet["qos"] else 0
        packet["properties"] = fields.properties(kind, properties)
        packet["payload"] = fields.take(len(fields.data))
    elif kind == "CONNACK":
        packet |= {"session_present": fields.integer(1) == 1, "reason": fields.integer(1)}
        packet["properties"] = fields.properties(kind, properties)
    elif kind in ("PUBACK", "PUBREC", "PUBREL", "PUBCOMP"):
        packet["packet_id"] = fields.integer()
        _read_reason(fields, packet, properties)
    elif kind in ("DISCONNECT", "AUTH"):
        _read_reason(fields, packet, properties)
    elif kind not in ("PINGREQ", "PINGRESP"):
        packet["packet_id"] = fields.integer()
        packet["properties"] = fields.properties(kind, properties)
        _read_list(fields, packet)
    assert fields.data == b""
    return packet, fields


def _read_connect(fields: Reader, packet: dict[str, object], expected: Vector, properties: Properties) -> None:
    assert fields.take(7) == b"\x00\x04MQTT\x05"
    flags = fields.integer(1)
    packet |= {"clean_start": bool(flags & 2), "keep_alive_s": fields.integer()}
    packet["properties"] = fields.properties("CONNECT", properties)
    packet["client_id"] = fields.text()
    packet["will"] = None
    if flags & 4:
        will = expected.plain["will"]
        assert isinstance(will, Will)
        will_properties = fields.properties("WILL", will.properties)
        packet["will"] = Will(fields.text(), fields.binary(), flags >> 3 & 3, bool(flags & 0x20), will_properties)
    packet["user_name"] = fields.text() if flags & 0x80 else None
    packet["password"] = fields.binary() if flags & 0x40 else None


def _read_reason(fields: Reader, packet: dict[str, object], properties: Properties) -> None:
    packet["reason"] = fields.integer(1) if fields.data else 0
    packet["properties"] = fields.properties(str(packet["type"]), properties) if fields.data else []


def _read_list(fields: Reader, packet: dict[str, object]) -> None:
    if packet["type"] == "SUBSCRIBE":
        requests: list[Request] = []
        while fields.data:
            topic_filter, options = fields.text(), fields.integer(1)
            requests.append(Request(topic_filter, options & 3, bool(options & 4), bool(options & 8), options >> 4))
        packet["requests"] = requests
    elif packet["type"] == "UNSUBSCRIBE":
        topic_filters: list[str] = []
        while fields.data:
            topic_filters.append(fields.text())
        packet["topic_filters"] = topic_filters
    else:
        packet["reasons"] = list(fields.take(len(fields.data)))


def section_of(case: Rejected) -> tuple[str, bytes]:
    """Place and property section of a packet that `framed` made."""
    place = next(place for place in PLACES if case.name.startswith(f"{place.lower()}-"))
    empty = bytes.fromhex(framed(place, ""))
    before = next(at for at in range(2, len(case.wire)) if at >= len(empty) or case.wire[at] != empty[at])
    return place, case.wire[before:]


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector.name)
def test_a_vector_reads_as_it_says(vector: Vector) -> None:
    packet, _ = read(vector.wire, vector)
    kind = str(vector.plain["type"])
    assert packet == {**DEFAULTS[kind], **vector.plain}


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector.name)
def test_paho_writes_the_same_properties(vector: Vector) -> None:
    _, fields = read(vector.wire, vector)
    for place, section, expected in fields.sections:
        identifiers = [identifier for identifier, _ in expected]
        written = paho_properties(place)
        for identifier, value in expected:
            setattr(written, written.getNameFromIdent(identifier), value)  # type: ignore[no-untyped-call]
        packed = bytes(written.pack())  # type: ignore[no-untyped-call]
        assert len(packed) == len(section)
        if identifiers == sorted(identifiers):  # the order in which paho writes
            assert packed == section


def test_there_are_vectors_for_every_packet_and_every_property_in_every_place() -> None:
    seen = {(place, identifier) for vector in VECTORS for place, identifier in _properties_in(vector)}
    assert seen == {(place, number) for number, found in PROPERTIES.items() for place in found.places}
    assert {vector.plain["type"] for vector in VECTORS} == set(TYPES.values())


def _properties_in(vector: Vector) -> list[tuple[str, int]]:
    _, fields = read(vector.wire, vector)
    return [(place, identifier) for place, _, expected in fields.sections for identifier, _ in expected]


@pytest.mark.parametrize("case", ALL_REJECTED, ids=lambda case: case.name)
def test_a_rejected_packet_is_whole_and_is_answered_with_a_code_that_exists(case: Rejected) -> None:
    answer = "CONNACK" if case.wire[0] >> 4 == 1 else "DISCONNECT"
    assert case.reason_code in REASON_CODES[answer]
    assert case.error in (MalformedPacket, ProtocolError)
    if case.name.startswith("remaining-length-") and case.clause == "MQTT-4.13.1-1":
        return
    # Its remaining length is right, so what is rejected is what its name says.
    length, size = paho.VariableByteIntegers.decode(case.wire[1:])  # type: ignore[no-untyped-call]
    assert 1 + size + length == len(case.wire)


@pytest.mark.parametrize("case", UNKNOWN, ids=lambda case: case.name)
def test_paho_does_not_know_the_property(case: Rejected) -> None:
    with pytest.raises((KeyError, MQTTException)):
        paho_unpack(*section_of(case))


@pytest.mark.parametrize(
    "case",
    # Paho takes a second Subscription Identifier in a SUBSCRIBE; the standard does not (3.8.2.1.2).
    [case for case in (*MISPLACED, *REPEATED) if case.name != "subscribe-subscription-identifier-twice"],
    ids=lambda case: case.name,
)
def test_paho_rejects_the_property(case: Rejected) -> None:
    place, section = section_of(case)
    # Paho has no name for the will in the text of its error.
    with pytest.raises(IndexError if place == "WILL" and case in MISPLACED else MQTTException):
        paho_unpack(place, section)


def test_the_properties_are_those_of_paho() -> None:
    theirs = paho_properties("CONNECT")
    packets = {number: name for name, number in PAHO_TYPES.items()}
    places = {number: {packets[packet] for packet in found[1]} for number, found in theirs.properties.items()}
    assert places == {number: set(found.places) for number, found in PROPERTIES.items()}
    names = {number: name for name, number in theirs.names.items()}
    # The standard says Identifiers in 3.2.2.3.12 and Identifier in table 2-4.
    names[0x29] = "Subscription Identifiers Available"
    assert names == {number: found.name for number, found in PROPERTIES.items()}


def test_the_reason_codes_are_those_of_paho() -> None:
    theirs: dict[str, set[int]] = {}
    for code, names in ReasonCode.names.items():
        for packets in names.values():
            for packet in packets:
                theirs.setdefault(TYPES[packet], set()).add(code)
    theirs["CONNACK"].add(0x99)  # 3.2.2.2 has Payload format invalid; paho left it out
    assert theirs == {packet: set(codes) for packet, codes in REASON_CODES.items()}
    assert set(CLIENT_DISCONNECT_CODES) < set(REASON_CODES["DISCONNECT"])
