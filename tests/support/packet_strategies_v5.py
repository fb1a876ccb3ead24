"""Random packets of MQTT 5 for property tests: everything that the dialect can write, from either side."""

from typing import Final

from hypothesis import strategies as st

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
    Will,
)
from support.acknowledgements import puback, pubcomp, pubrec, pubrel
from support.packet_strategies import packet_ids, payloads, qos_levels, texts, topic_filters, topic_names
from support.properties_v5 import CLIENT_DISCONNECT_CODES, REASON_CODES

_pairs: Final = st.lists(st.tuples(texts, texts), max_size=3)
_u16: Final = st.integers(0, 65_535)
_u32: Final = st.integers(0, 0xFFFF_FFFF)
_data: Final = st.none() | st.binary(max_size=40)


@st.composite
def message_properties(draw: st.DrawFn, is_text: bool = False) -> bytes:
    """Canonical properties: the expiry first. Only with `is_text` they say that the payload is UTF-8."""
    found: codec.Properties = []
    if draw(st.booleans()):
        found.append(("message_expiry_interval", draw(_u32)))
    if is_text or draw(st.booleans()):
        found.append(("payload_format_indicator", int(is_text)))
    if draw(st.booleans()):
        found.append(("content_type", draw(texts)))
    if draw(st.booleans()):
        found.append(("response_topic", draw(topic_names)))
    if draw(st.booleans()):
        found.append(("correlation_data", draw(st.binary(max_size=20))))
    found += [("user_property", pair) for pair in draw(_pairs)]
    return codec.write_properties(found)


@st.composite
def _publishes(draw: st.DrawFn, ids_max: int) -> Packet:
    qos = draw(qos_levels)
    alias = draw(st.just(0) | st.integers(1, 65_535))
    ids = tuple(draw(st.lists(st.integers(1, 268_435_455), max_size=ids_max)))
    is_text = draw(st.booleans())
    properties = draw(message_properties(True)) if is_text else draw(st.just(b"") | message_properties())
    message = Publish(
        "" if alias and draw(st.booleans()) else draw(topic_names),
        draw(texts).encode() if is_text else draw(payloads),
        qos,
        draw(st.booleans()),
        draw(st.booleans()) if qos else False,
        draw(packet_ids) if qos else 0,
        properties,
    )
    return WirePublish(message, alias, ids) if alias or ids or properties[:1] == b"\x02" else message


@st.composite
def _wills(draw: st.DrawFn) -> Will:
    is_text = draw(st.booleans())
    payload = draw(texts).encode() if is_text else draw(st.binary(max_size=60))
    properties = draw(message_properties(is_text))
    return Will(draw(topic_names), payload, draw(qos_levels), draw(st.booleans()), draw(_u32), properties)


@st.composite
def _connects(draw: st.DrawFn) -> Connect:
    method = draw(st.none() | texts)
    return Connect(
        draw(texts),
        draw(st.booleans()),
        draw(_u16),
        draw(st.none() | _wills()),
        draw(st.none() | texts),
        draw(_data),
        draw(_u32),
        draw(st.integers(1, 65_535)),
        5,
        draw(_u32),
        draw(_u16),
        draw(st.booleans()),
        draw(st.booleans()),
        method,
        None if method is None else draw(_data),
        tuple(draw(_pairs)),
    )


_acks: Final = [
    st.builds(ack, packet_ids, st.sampled_from(REASON_CODES[name]))
    for ack, name in ((puback, "PUBACK"), (pubrec, "PUBREC"), (pubrel, "PUBREL"), (pubcomp, "PUBCOMP"))
]


@st.composite
def _subscribes(draw: st.DrawFn) -> Subscribe:
    subscription_id = draw(st.integers(0, 268_435_455))
    requests = st.builds(
        SubscriptionRequest,
        topic_filters,
        qos_levels,
        st.booleans(),
        st.booleans(),
        st.integers(0, 2),
        st.just(subscription_id),
    )
    return Subscribe(draw(packet_ids), draw(st.lists(requests, min_size=1, max_size=4)))


from_client_v5: Final[st.SearchStrategy[Packet]] = st.one_of(
    _publishes(0),
    _connects(),
    *_acks,
    _subscribes(),
    st.builds(Unsubscribe, packet_ids, st.lists(topic_filters, min_size=1, max_size=4)),
    st.builds(Pingreq),
    st.builds(Disconnect, st.sampled_from(CLIENT_DISCONNECT_CODES), st.integers(-1, 0xFFFF_FFFF), texts),
    st.builds(Auth, st.sampled_from([0x18, 0x19]), texts, _data, texts),
)
from_server_v5: Final[st.SearchStrategy[Packet]] = st.one_of(
    _publishes(3),
    *_acks,
    st.builds(
        Connack,
        st.booleans(),
        st.just(0),
        texts,
        st.integers(-1, 0xFFFF_FFFF),
        st.integers(-1, 65_535),
        texts,
        texts,
        texts,
        st.booleans(),
        st.integers(1, 65_535),
        _u32,
        _u16,
    ),
    st.builds(Connack, st.just(False), st.sampled_from(REASON_CODES["CONNACK"]), reason_string=texts),
    st.builds(Suback, packet_ids, st.lists(st.sampled_from(REASON_CODES["SUBACK"]), min_size=1, max_size=4)),
    st.builds(Unsuback, packet_ids, st.lists(st.sampled_from(REASON_CODES["UNSUBACK"]), min_size=1, max_size=4)),
    st.builds(Pingresp),
    st.builds(Disconnect, st.sampled_from([0x00, 0x81, 0x8E, 0x9D]), st.just(-1), texts, texts),
    st.builds(Auth, st.sampled_from([0x00, 0x18]), texts, _data, texts),
)
