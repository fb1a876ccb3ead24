"""The mount point of a listener: a prefix of every topic of its clients, which they do not see.

Owns: adding it to what a client sends (topic names, filters, will, Response Topic), and taking it from what it is sent.
Never: a connection. The core, the log and the access rules know whole topics only.
"""

from typing import Final, final

from embermq.broker.history.history_filter import is_history, plain_filter
from embermq.protocol.errors import Refused
from embermq.protocol.mqtt.message_fields import message_fields, message_properties
from embermq.protocol.packets import (
    Connect,
    Delivery,
    Packet,
    Publish,
    RefusedPublish,
    Subscribe,
    SubscriptionRequest,
    Unsubscribe,
    Will,
)
from embermq.protocol.reasons import ReasonCode
from embermq.protocol.topics import TOPIC_BYTES_MAX, filter_of_share, is_shared

_RESPONSE_TOPIC: Final = "response_topic"
_RESPONSE_TOPIC_ID: Final = 0x08


@final
class MountPoint:
    """One prefix, for all clients of a listener."""

    __slots__ = ("_message", "_prefix", "_sent")

    def __init__(self, prefix: str) -> None:
        self._prefix: Final = prefix
        self._message: Publish | None = None  # the last one that was sent, and how: many clients may get the same one
        self._sent: Publish | None = None

    # -- what a client sends; `Refused` if a topic is too long with the prefix -----------------------------------

    def connect(self, packet: Connect) -> Connect:
        will = packet.will
        if will is None:
            return packet
        return Connect(
            packet.client_id,
            packet.clean_start,
            packet.keep_alive_s,
            Will(
                self._added(will.topic_name),
                will.payload,
                will.qos,
                will.retain,
                will.delay_s,
                self._properties(will.properties, True),
            ),
            packet.user_name,
            packet.password,
            packet.session_expiry_s,
            packet.receive_maximum,
            packet.protocol_level,
            packet.maximum_packet_size,
            packet.topic_alias_maximum,
            packet.request_problem_information,
            packet.request_response_information,
            packet.authentication_method,
            packet.authentication_data,
            packet.user_properties,
        )

    def received(self, packets: list[Packet]) -> list[Packet]:
        return [self._received(packet) for packet in packets]

    def _received(self, packet: Packet) -> Packet:
        if isinstance(packet, Publish):
            return self._moved(packet, self._added(packet.topic_name), True)
        if isinstance(packet, Subscribe):
            return Subscribe(packet.packet_id, [self._request(request) for request in packet.requests])
        if isinstance(packet, Unsubscribe):
            return Unsubscribe(packet.packet_id, [self._filter(each) for each in packet.topic_filters])
        if isinstance(packet, RefusedPublish):
            topic_name = self._added(packet.topic_name)
            return RefusedPublish(
                topic_name, packet.payload_bytes, packet.qos, packet.packet_id, packet.reason, packet.detail
            )
        return packet

    def _request(self, request: SubscriptionRequest) -> SubscriptionRequest:
        return SubscriptionRequest(
            self._filter(request.topic_filter),
            request.qos,
            request.no_local,
            request.retain_as_published,
            request.retain_handling,
            request.subscription_id,
        )

    def _filter(self, topic_filter: str) -> str:
        """The prefix stands before the plain filter in a shared or a history subscription. A wrong one stays so."""
        plain = topic_filter
        if is_shared(topic_filter):
            plain = filter_of_share(topic_filter)
        elif is_history(topic_filter):
            try:
                plain = plain_filter(topic_filter)
            except ValueError:
                plain = ""
        return topic_filter[: -len(plain)] + self._added(plain) if plain else topic_filter

    def _added(self, topic: str) -> str:
        found = self._prefix + topic
        if len(found) * 4 > TOPIC_BYTES_MAX and len(found.encode()) > TOPIC_BYTES_MAX:
            raise Refused("a topic is too long behind the mount point", ReasonCode.TOPIC_NAME_INVALID)
        return found

    # -- what it is sent ---------------------------------------------------------------------------------------------

    def sent(self, delivery: Delivery) -> Delivery:
        return Delivery(
            [self._stripped(message) for message in delivery.unpacked()],
            delivery.qos,
            delivery.retain,
            delivery.dup,
            delivery.packet_id,
            delivery.subscription_ids,
        )

    def _stripped(self, message: Publish) -> Publish:
        """One that is not below the prefix keeps its name: `#` matches the level above, and a session may have been
        begun at another listener.
        """
        if message is self._message and self._sent is not None:
            return self._sent
        stripped = self._moved(message, message.topic_name.removeprefix(self._prefix), False)
        self._message, self._sent = message, stripped
        return stripped

    def _moved(self, message: Publish, topic_name: str, is_received: bool) -> Publish:
        return Publish(
            topic_name,
            message.payload,
            message.qos,
            message.retain,
            message.dup,
            message.packet_id,
            self._properties(message.properties, is_received),
            message.expires_us,
        )

    def _properties(self, properties: bytes, is_received: bool) -> bytes:
        """With another Response Topic, if there is one."""
        if _RESPONSE_TOPIC_ID not in properties:
            return properties
        fields = message_fields(properties)
        topic_name = fields.get(_RESPONSE_TOPIC)
        if not isinstance(topic_name, str) or not topic_name:
            return properties
        fields[_RESPONSE_TOPIC] = self._added(topic_name) if is_received else topic_name.removeprefix(self._prefix)
        return message_properties(fields)
