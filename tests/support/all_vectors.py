"""One list of vectors for all levels: those of 3.1 and 3.1.1, and those of 5.0 with their plain data as packets.

GOOD is read and written, TOLERATED is only read, BAD is rejected. Of 5.0 the bytes are only read where the packet does
not say all that they say: a property at its default, user properties that nobody uses, another order than ours.
"""

from collections.abc import Mapping
from typing import Final, cast

from embermq.protocol.mqtt import properties as codec
from embermq.protocol.mqtt.readers_v5 import WirePublish
from embermq.protocol.packets import (
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    SubscriptionRequest,
    Unsuback,
    Unsubscribe,
    Will,
)
from embermq.protocol.reasons import ReasonCode
from support import rejected, rejected_v5, vectors, vectors_v5
from support.properties_v5 import Properties, Value
from support.rejected import Rejected
from support.vectors import V5, Vector
from support.vectors_v5 import DEFAULTS, Request
from support.vectors_v5 import Will as PlainWill

_ACKNOWLEDGEMENTS: Final = {"PUBACK": Puback, "PUBREC": Pubrec, "PUBREL": Pubrel, "PUBCOMP": Pubcomp}


def canonical(properties: Properties) -> bytes:
    """The properties that belong to a message, as bytes."""
    kept = [pair for pair in properties if pair[0] not in (0x0B, 0x18, 0x23)]
    kept.sort(key=lambda pair: pair[0] != 0x02)
    named = [(codec.PROPERTIES[identifier].name, value) for identifier, value in kept]
    return codec.write_properties(named)


def packet_of(vector: vectors_v5.Vector) -> Packet:
    """What the codec reads from a vector."""
    kind = str(vector.packet["type"])
    fields: Mapping[str, object] = {**DEFAULTS[kind], **vector.packet}
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
        return Suback(packet_id, cast(list[int], fields["reasons"]))
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
    plain = cast(PlainWill | None, fields["will"])
    will = None
    if plain is not None:
        delay_s = _number(dict(plain.properties), 0x18, 0)
        will = Will(plain.topic_name, plain.payload, plain.qos, plain.retain, delay_s, canonical(plain.properties))
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


_ONLY_READ: Final = (
    *[f"{kind}-all-properties" for kind in ("connack", "puback", "pubrec", "pubrel", "pubcomp")],
    *[f"{kind}-all-properties" for kind in ("subscribe", "suback", "unsubscribe", "unsuback", "auth")],
    *[f"{kind}-with-reason-string" for kind in ("puback", "pubrec", "pubrel", "pubcomp", "suback", "unsuback")],
    *[f"{kind}-with-user-property" for kind in ("puback", "pubrec", "pubrel", "pubcomp", "connack", "disconnect")],
    *[f"{kind}-with-user-property" for kind in ("subscribe", "suback", "unsubscribe", "unsuback", "auth")],
    "connect-will-all-properties",
    "connect-everything",
    "publish-all-properties-of-a-client",
    "publish-all-properties-of-a-server",
    "disconnect-all-properties-of-a-client",
    "disconnect-all-properties-of-a-server",
    "connack-with-maximum-qos",
    "connack-maximum-qos-0",
    "connack-with-retain-available",
    "connack-with-wildcard-subscription-available",
    "connack-with-subscription-identifiers-available",
    "connect-session-expiry-0",
    "connect-receive-maximum-65535",
    "connect-topic-alias-maximum-0",
    "connect-request-problem-information-1",
    "connect-request-response-information-0",
    "connect-will-delay-0",
)


def _adapted(vector: vectors_v5.Vector) -> Vector:
    return Vector(f"v5-{vector.name}", V5, vector.senders, vector.hex, packet_of(vector), vector.proves)


def _adapted_rejected(case: rejected_v5.Rejected) -> Rejected:
    reason = ReasonCode(case.reason) if case.reason else None
    return Rejected(f"v5-{case.name}", case.senders, case.hex, case.error, case.clause, case.proves, reason, V5)


GOOD: Final = [
    *vectors.VECTORS,
    *[_adapted(vector) for vector in vectors_v5.VECTORS if vector.name not in _ONLY_READ],
]
TOLERATED: Final = [
    *vectors.TOLERATED,
    *[_adapted(vector) for vector in vectors_v5.VECTORS if vector.name in _ONLY_READ],
]
BAD: Final = [*rejected.REJECTED, *[_adapted_rejected(case) for case in rejected_v5.ALL_REJECTED]]
