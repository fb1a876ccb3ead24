"""What a packet of MQTT 5.0 says, as plain data, and what the codec makes of it.

A packet is a dict: its `type` and its fields; a field that is not named has the value in `DEFAULTS`. Properties are
pairs of identifier and value in the order of the wire: int, str, bytes, or a pair of str for a user property.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple, cast

from embermq.protocol.mqtt import properties as codec
from embermq.protocol.mqtt.readers import WirePublish
from embermq.protocol.packets import (
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Publish,
    Suback,
    Subscribe,
    SubscriptionRequest,
    Unsuback,
    Unsubscribe,
)
from embermq.protocol.packets import Will as PacketWill
from support.acknowledgements import puback, pubcomp, pubrec, pubrel
from support.properties_v5 import Properties, Value


class Will(NamedTuple):
    """The will of a CONNECT."""

    topic_name: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    properties: Properties = []


class Request(NamedTuple):
    """One topic filter of a SUBSCRIBE with its options."""

    topic_filter: str
    qos: int = 0
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: int = 0


_NO_REASON: Final[Mapping[str, object]] = {"reason": 0, "properties": []}
DEFAULTS: Final[Mapping[str, Mapping[str, object]]] = {
    "CONNECT": {
        "clean_start": True,
        "keep_alive_s": 0,
        "will": None,
        "user_name": None,
        "password": None,
        "properties": [],
    },
    "CONNACK": {"session_present": False, "reason": 0, "properties": []},
    "PUBLISH": {"payload": b"", "qos": 0, "retain": False, "dup": False, "packet_id": 0, "properties": []},
    "PUBACK": _NO_REASON,
    "PUBREC": _NO_REASON,
    "PUBREL": _NO_REASON,
    "PUBCOMP": _NO_REASON,
    "SUBSCRIBE": {"properties": []},
    "SUBACK": {"properties": []},
    "UNSUBSCRIBE": {"properties": []},
    "UNSUBACK": {"properties": []},
    "PINGREQ": {},
    "PINGRESP": {},
    "DISCONNECT": _NO_REASON,
    "AUTH": _NO_REASON,
}

_ACKNOWLEDGEMENTS: Final = {"PUBACK": puback, "PUBREC": pubrec, "PUBREL": pubrel, "PUBCOMP": pubcomp}


def canonical(properties: Properties) -> bytes:
    """The properties that belong to a message, as bytes."""
    kept = [pair for pair in properties if pair[0] not in (0x0B, 0x18, 0x23)]
    kept.sort(key=lambda pair: pair[0] != 0x02)
    named = [(codec.PROPERTIES[identifier].name, value) for identifier, value in kept]
    return codec.write_properties(named)


def packet_of(plain: Mapping[str, object]) -> Packet:
    """What the codec reads."""
    kind = str(plain["type"])
    fields: Mapping[str, object] = {**DEFAULTS[kind], **plain}
    pairs = cast(Properties, fields.get("properties", []))
    found = dict(pairs)
    reason = cast(int, fields.get("reason", 0))
    packet_id = cast(int, fields.get("packet_id", 0))
    if kind == "CONNECT":
        return _connect(fields, pairs)
    if kind == "CONNACK":
        return _connack(fields, found)
    if kind == "PUBLISH":
        return _publish(fields, pairs)
    if kind in _ACKNOWLEDGEMENTS:
        return _ACKNOWLEDGEMENTS[kind](packet_id, reason)
    if kind == "SUBSCRIBE":
        subscription_id = _number(found, 0x0B, 0)
        requests = cast(list[Request], fields["requests"])
        return Subscribe(packet_id, [SubscriptionRequest(*request, subscription_id) for request in requests])
    if kind == "UNSUBSCRIBE":
        return Unsubscribe(packet_id, cast(list[str], fields["topic_filters"]))
    if kind == "SUBACK":
        return Suback(packet_id, cast(list[int], fields["reasons"]), _text(found, 0x1F))
    if kind == "UNSUBACK":
        return Unsuback(packet_id, cast(list[int], fields["reasons"]))
    if kind == "DISCONNECT":
        return Disconnect(reason, _number(found, 0x11, -1), _text(found, 0x1F), _text(found, 0x1C))
    if kind == "AUTH":
        return Auth(reason, _text(found, 0x15), cast(bytes | None, found.get(0x16)), _text(found, 0x1F))
    return Pingreq() if kind == "PINGREQ" else Pingresp()


def _number(found: Mapping[int, Value], identifier: int, default: int) -> int:
    return cast(int, found.get(identifier, default))


def _text(found: Mapping[int, Value], identifier: int) -> str:
    return cast(str, found.get(identifier, ""))


def _connect(fields: Mapping[str, object], pairs: Properties) -> Connect:
    found = dict(pairs)
    plain = cast(Will | None, fields["will"])
    will = None
    if plain is not None:
        delay_s = _number(dict(plain.properties), 0x18, 0)
        will = PacketWill(
            plain.topic_name, plain.payload, plain.qos, plain.retain, delay_s, canonical(plain.properties)
        )
    return Connect(
        cast(str, fields["client_id"]),
        cast(bool, fields["clean_start"]),
        cast(int, fields["keep_alive_s"]),
        will,
        cast(str | None, fields["user_name"]),
        cast(bytes | None, fields["password"]),
        _number(found, 0x11, 0),
        _number(found, 0x21, 65_535),
        5,
        _number(found, 0x27, 0),
        _number(found, 0x22, 0),
        _number(found, 0x17, 1) == 1,
        _number(found, 0x19, 0) == 1,
        cast(str | None, found.get(0x15)),
        cast(bytes | None, found.get(0x16)),
        tuple([cast(tuple[str, str], value) for identifier, value in pairs if identifier == 0x26]),
    )


def _connack(fields: Mapping[str, object], found: Mapping[int, Value]) -> Connack:
    return Connack(
        cast(bool, fields["session_present"]),
        cast(int, fields["reason"]),
        _text(found, 0x12),
        _number(found, 0x11, -1),
        _number(found, 0x13, -1),
        _text(found, 0x1A),
        _text(found, 0x1C),
        _text(found, 0x1F),
        _number(found, 0x2A, 1) == 1,
        _number(found, 0x21, 65_535),
        _number(found, 0x27, 0),
        _number(found, 0x22, 0),
        cast(str | None, found.get(0x15)),
        cast(bytes | None, found.get(0x16)),
    )


def _publish(fields: Mapping[str, object], pairs: Properties) -> Packet:
    message = Publish(
        cast(str, fields["topic_name"]),
        cast(bytes, fields["payload"]),
        cast(int, fields["qos"]),
        cast(bool, fields["retain"]),
        cast(bool, fields["dup"]),
        cast(int, fields["packet_id"]),
        canonical(pairs),
    )
    alias = _number(dict(pairs), 0x23, 0)
    ids = tuple([cast(int, value) for identifier, value in pairs if identifier == 0x0B])
    if alias or ids or 0x02 in dict(pairs):
        return WirePublish(message, alias, ids)
    return message
