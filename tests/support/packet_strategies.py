"""Random packets for property tests: everything that 3.1.1 can write, from either side."""

from typing import Final

from hypothesis import strategies as st

from embermq.protocol.mqtt.dialect import MQTT_31, MQTT_311
from embermq.protocol.mqtt.encode import encode
from embermq.protocol.packets import (
    SESSION_NEVER_EXPIRES,
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
from embermq.protocol.reasons import ReasonCode
from support.acknowledgements import puback, pubcomp, pubrec, pubrel

texts: Final = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=40)
# Few letters, so that names and filters meet; the empty level and the level of a `$` topic are among them.
levels: Final = st.sampled_from(["", "a", "b", "$S", "é", "a b"])
short_names: Final = st.lists(levels, min_size=1, max_size=4).map("/".join).filter(bool)
wide_names: Final = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0+#"), min_size=1, max_size=200
)
topic_names: Final = st.one_of(short_names, wide_names)


@st.composite
def _filters(draw: st.DrawFn) -> str:
    filter_levels = draw(st.lists(st.one_of(levels, st.just("+")), max_size=4))
    if not filter_levels or draw(st.booleans()):
        filter_levels.append(draw(st.sampled_from(["#", "+", "a"])))
    return "/".join(filter_levels)


topic_filters: Final = _filters().filter(bool)
packet_ids: Final = st.integers(1, 65_535)
qos_levels: Final = st.integers(0, 2)
payloads: Final = st.one_of(st.binary(max_size=200), st.sampled_from([b"x" * 127, b"x" * 16_384]))


@st.composite
def publishes(draw: st.DrawFn) -> Publish:
    qos = draw(qos_levels)
    return Publish(
        draw(topic_names),
        draw(payloads),
        qos,
        draw(st.booleans()),
        draw(st.booleans()) if qos else False,
        draw(packet_ids) if qos else 0,
    )


@st.composite
def connects(draw: st.DrawFn) -> Connect:
    will = st.builds(Will, topic_names, st.binary(max_size=60), qos_levels, st.booleans())
    clean = draw(st.booleans())
    user_name = draw(st.none() | texts)
    return Connect(
        draw(texts),
        clean,
        draw(st.integers(0, 65_535)),
        draw(st.none() | will),
        user_name,
        None if user_name is None else draw(st.none() | st.binary(max_size=40)),
        0 if clean else SESSION_NEVER_EXPIRES,
        protocol_level=draw(st.sampled_from([3, 4])),
    )


_acks: Final = [st.builds(ack, packet_ids) for ack in (puback, pubrec, pubrel, pubcomp)]
_requests: Final = st.builds(SubscriptionRequest, topic_filters, qos_levels)
_refusals: Final = [
    ReasonCode.UNSUPPORTED_PROTOCOL_VERSION,
    ReasonCode.CLIENT_IDENTIFIER_NOT_VALID,
    ReasonCode.SERVER_UNAVAILABLE,
    ReasonCode.BAD_USER_NAME_OR_PASSWORD,
    ReasonCode.NOT_AUTHORIZED,
]

from_client: Final[st.SearchStrategy[Packet]] = st.one_of(
    publishes(),
    connects(),
    *_acks,
    st.builds(Subscribe, packet_ids, st.lists(_requests, min_size=1, max_size=5)),
    st.builds(Unsubscribe, packet_ids, st.lists(topic_filters, min_size=1, max_size=5)),
    st.builds(Pingreq),
    st.builds(Disconnect),
)
from_server: Final[st.SearchStrategy[Packet]] = st.one_of(
    publishes(),
    *_acks,
    st.builds(Connack, st.booleans()),
    st.builds(Connack, st.just(False), st.sampled_from(_refusals)),
    st.builds(Suback, packet_ids, st.lists(st.sampled_from([0, 1, 2, 0x80]), min_size=1, max_size=5)),
    st.builds(Unsuback, packet_ids),
    st.builds(Pingresp),
)


def wire_of(packet: Packet) -> bytes:
    """A packet as bytes of 3.1.1, or a CONNECT as its own level asks."""
    is_31 = isinstance(packet, Connect) and packet.protocol_level == MQTT_31.level
    return encode(packet, MQTT_31 if is_31 else MQTT_311)
