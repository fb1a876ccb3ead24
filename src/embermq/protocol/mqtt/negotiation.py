"""What the two sides of one MQTT 5 connection have told each other in CONNECT and CONNACK, and what follows from it.

Owns: the limits of both sides, the aliases sent, the messages of the client that wait for their acknowledgement, and
how much of a failure is told. A connection of an older level has no such object.
Never: output. `Connection` gathers the bytes that are made here.
"""

from collections.abc import Iterable
from typing import Final, final

from embermq.protocol.errors import PeerError, ProtocolError
from embermq.protocol.message_expiry import with_remaining_expiry
from embermq.protocol.mqtt.aliases import OutgoingAliases
from embermq.protocol.mqtt.dialect import MQTT_5
from embermq.protocol.mqtt.encode import encode
from embermq.protocol.mqtt.reason_codes import FAILURE, REASON_STRINGS, sendable
from embermq.protocol.mqtt.settings import RECEIVE_MAXIMUM, Mqtt5Settings
from embermq.protocol.mqtt.writers import acknowledgement, publish_section, publish_start
from embermq.protocol.packets import (
    CONNACK,
    DISCONNECT,
    PUBACK,
    PUBCOMP,
    PUBREC,
    SUBACK,
    UNSUBACK,
    Connack,
    Connect,
    Delivery,
    Disconnect,
    Packet,
    Publish,
    RefusedPublish,
    Suback,
    Unsuback,
)
from embermq.protocol.reasons import ReasonCode

TOO_LARGE_ANSWER: Final = ProtocolError(
    "an answer is larger than the client takes", "MQTT-3.1.2-24", ReasonCode.PACKET_TOO_LARGE
)


MINUTE_US: Final = 60_000_000

# Why a server cannot serve a client for now: if there is another, the client is told where (5.0, 4.11).
_ELSEWHERE: Final = frozenset((ReasonCode.SERVER_SHUTTING_DOWN, ReasonCode.SERVER_UNAVAILABLE, ReasonCode.SERVER_BUSY))


def refusal(reason: int, has_problem_information: bool = True, server_reference: str = "") -> bytes:
    """CONNACK for a CONNECT that is refused, or that cannot be read."""
    sent = sendable(CONNACK, reason)
    reason_string = REASON_STRINGS.get(sent, "") if has_problem_information else ""
    return encode(Connack(False, sent, server_reference=server_reference, reason_string=reason_string), MQTT_5)


@final
class Negotiation:
    """The MQTT 5 part of one connection.

    `method` is the Authentication Method of CONNECT, and `final_data` the Authentication Data for CONNACK.
    `has_connack`: CONNACK has been sent. `counts_messages`: the client may have fewer messages without acknowledgement
    than there are packet identifiers. `is_limited`: a PUBLISH may depend on this client (its aliases, its maximum).
    """

    def __init__(self, connect: Connect, packet_bytes_max: int, settings: Mqtt5Settings) -> None:
        self.method: Final = connect.authentication_method
        self.final_data: bytes | None = None
        self.has_connack = False
        self.is_open = False  # CONNACK said success: a DISCONNECT may follow
        self.maximum_packet_size: Final = connect.maximum_packet_size or 1 << 32
        self._has_problem_information: Final = connect.request_problem_information
        self._packet_bytes_max: Final = packet_bytes_max
        self._settings: Final = settings
        self._receive_maximum: Final = settings.receive_maximum
        self.counts_messages: Final = settings.receive_maximum < RECEIVE_MAXIMUM
        maximum = min(connect.topic_alias_maximum, settings.outgoing_aliases_max)
        self._aliases: Final = OutgoingAliases(maximum) if maximum else None
        self._open_ids: Final[dict[int, None]] = {}  # not a set, which takes 216 bytes when it is empty
        self._reauthentications = 0  # since `_minute_began_us`
        self._minute_began_us = 0
        self.is_limited: Final = maximum > 0 or connect.maximum_packet_size > 0

    def authenticated(self, final_data: bytes | None) -> None:
        """The exchange of AUTH packets is over: the last data of the server is for CONNACK (5.0, 4.12)."""
        self.final_data = final_data

    # -- in ----------------------------------------------------------------------------------------------------------

    def resumed(self, received_ids: Iterable[int]) -> None:
        """QoS 2 messages of the session that are not complete count as well (5.0, 4.9)."""
        self._open_ids.update(dict.fromkeys(received_ids))

    def exceeded(self, packets: list[Packet]) -> PeerError | None:
        """Count the client's messages; the packets from the one on that is too many are removed (5.0, 3.3.4)."""
        if not self.counts_messages:
            return None
        open_ids = self._open_ids
        for place, packet in enumerate(packets):
            if isinstance(packet, (Publish, RefusedPublish)) and packet.qos:
                open_ids[packet.packet_id] = None
                if len(open_ids) > self._receive_maximum:
                    del packets[place:]
                    return ProtocolError(
                        f"more than {self._receive_maximum} messages without acknowledgement",
                        "MQTT-3.3.4-7",
                        ReasonCode.RECEIVE_MAXIMUM_EXCEEDED,
                    )
        return None

    def reauthentication_refusal(self, now_us: int) -> PeerError | None:
        """Count a re-authentication that begins; an error if the client has begun too many within a minute."""
        if now_us - self._minute_began_us >= MINUTE_US:
            self._minute_began_us = now_us
            self._reauthentications = 0
        self._reauthentications += 1
        if self._reauthentications <= self._settings.reauthentications_max:
            return None
        return ProtocolError("re-authenticates too often", "", ReasonCode.QUOTA_EXCEEDED)

    # -- out ---------------------------------------------------------------------------------------------------------

    def encoded(self, packet: Packet) -> bytes:
        """A packet that is neither PUBLISH nor its acknowledgement; b"" if it is larger than the client takes."""
        if isinstance(packet, Connack):
            return self._connack(packet)
        if isinstance(packet, Suback):
            reasons = [sendable(SUBACK, reason) for reason in packet.reasons]
            if packet.reason_string and self._has_problem_information:
                frame = encode(Suback(packet.packet_id, reasons, packet.reason_string), MQTT_5)
                if len(frame) <= self.maximum_packet_size:
                    return frame
            packet = Suback(packet.packet_id, reasons)
        elif isinstance(packet, Unsuback):
            packet = Unsuback(packet.packet_id, [sendable(UNSUBACK, reason) for reason in packet.reasons])
        frame = encode(packet, MQTT_5)
        return frame if len(frame) <= self.maximum_packet_size else b""

    def _connack(self, packet: Connack) -> bytes:
        self.has_connack = True
        if packet.reason:
            return self._refusal(packet.reason, packet.server_reference)
        frame = encode(
            Connack(
                packet.session_present,
                0,
                packet.assigned_client_id,
                packet.session_expiry_s,
                packet.server_keep_alive_s,
                packet.response_information,
                "",
                packet.reason_string,
                packet.has_shared_subscriptions,
                self._receive_maximum,
                self._packet_bytes_max,
                self._settings.topic_alias_maximum,
                self.method,
                self.final_data,
            ),
            MQTT_5,
        )
        self.is_open = len(frame) <= self.maximum_packet_size
        return frame if self.is_open else b""

    def _refusal(self, reason: int, reference: str = "") -> bytes:
        """The largest CONNACK with this reason that the client takes. `reference`: another server, if not the usual."""
        reference = reference or self._settings.server_reference
        if reference and reason in _ELSEWHERE:
            reason = ReasonCode.USE_ANOTHER_SERVER
            for has_string in (self._has_problem_information, False):
                frame = refusal(reason, has_string, reference)
                if len(frame) <= self.maximum_packet_size:
                    return frame
        frame = refusal(reason, self._has_problem_information)
        if len(frame) > self.maximum_packet_size:
            frame = refusal(reason, False)
        return frame if len(frame) <= self.maximum_packet_size else b""

    def farewell(self, reason: int) -> bytes:
        """What the server says when it ends the connection: CONNACK or DISCONNECT, or nothing (5.0, 4.13)."""
        if reason < FAILURE:
            return b""
        if not self.has_connack:
            return self._connack(Connack(False, reason))
        if not self.is_open:
            return b""
        reference = ""
        if self._settings.server_reference and reason in _ELSEWHERE:
            reference = self._settings.server_reference
            reason = ReasonCode.USE_ANOTHER_SERVER
        sent = sendable(DISCONNECT, reason)
        frame = encode(Disconnect(sent, -1, REASON_STRINGS[sent], reference), MQTT_5)
        if self._has_problem_information and len(frame) <= self.maximum_packet_size:
            return frame
        frame = encode(Disconnect(sent, server_reference=reference), MQTT_5)
        return frame if len(frame) <= self.maximum_packet_size else encode(Disconnect(sent), MQTT_5)

    def acknowledgement(self, packet_type: int, packet_id: int, reason: int) -> bytes:
        """PUBACK, PUBREC, PUBREL or PUBCOMP."""
        if packet_type in (PUBACK, PUBCOMP) or (packet_type == PUBREC and reason >= FAILURE):
            self._open_ids.pop(packet_id, None)
        if not reason:
            return acknowledgement(packet_type, packet_id, 0)
        sent = sendable(packet_type, reason)
        if sent >= FAILURE and self._has_problem_information:
            frame = acknowledgement(packet_type, packet_id, sent, REASON_STRINGS[sent])
            if len(frame) <= self.maximum_packet_size:
                return frame
        return acknowledgement(packet_type, packet_id, sent)

    def fits(self, delivery: Delivery) -> bool:
        """Whether the PUBLISH of a lone message is not larger than the client takes."""
        message = delivery.messages[0]
        alias = 0 if self._aliases is None else self._aliases.known(message.topic_name)
        return self._parts(delivery, "" if alias else message.topic_name, alias, message.properties) is not None

    def publish_parts(self, delivery: Delivery, now_us: int) -> tuple[bytes, bytes] | None:
        """The PUBLISH of a lone message as what precedes the payload, and the payload; None: the client takes less.

        The caller makes it part of the output: an alias in it counts from then on (5.0, 3.3.2.3.4).
        """
        message = delivery.messages[0]
        topic_name = message.topic_name
        canonical = message.properties
        if message.expires_us:
            canonical = with_remaining_expiry(canonical, message.expires_us, now_us)
        aliases = self._aliases
        if aliases is None:
            return self._parts(delivery, topic_name, 0, canonical)
        alias = aliases.known(topic_name)
        if alias:
            parts = self._parts(delivery, "", alias, canonical)
        else:
            alias = aliases.proposed(topic_name)
            parts = self._parts(delivery, topic_name, alias, canonical)
            if parts is None and alias:
                return self._parts(delivery, topic_name, 0, canonical)
        if parts is not None and alias:
            aliases.sent(topic_name, alias)
        return parts

    def _parts(
        self, delivery: Delivery, topic_name: str, topic_alias: int, canonical: bytes
    ) -> tuple[bytes, bytes] | None:
        payload = delivery.messages[0].payload
        section = publish_section(topic_alias, delivery.subscription_ids, canonical)
        start = publish_start(delivery, topic_name, payload, section)
        return (start, payload) if len(start) + len(payload) <= self.maximum_packet_size else None
