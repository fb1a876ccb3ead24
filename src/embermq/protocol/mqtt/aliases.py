"""Topic aliases of one MQTT 5 connection, one table for each direction (5.0, 3.3.2.3.4).

Owns: which alias stands for which topic name, and how many aliases and bytes one client may make the server keep.
Never: anything across connections (5.0, MQTT-3.3.2-7).
"""

from collections.abc import Callable
from typing import Final, final

from embermq.protocol.errors import ProtocolError
from embermq.protocol.message_expiry import message_expires_us
from embermq.protocol.mqtt.fields import VIOLATION
from embermq.protocol.mqtt.readers import WirePublish
from embermq.protocol.packets import Packet, Publish, RefusedPublish
from embermq.protocol.reasons import ReasonCode

OUTGOING_NAME_CHARACTERS_MIN: Final = 9
"""A shorter topic name is sent as it is: an alias takes three bytes."""


@final
class IncomingAliases:
    """Makes the PUBLISH of a client independent of its connection: its topic name in place of the alias, its expiry.

    `now_us` is the instant of the turn.
    """

    def __init__(self, maximum: int, now_us: Callable[[], int], bytes_max: int) -> None:
        self._maximum: Final = maximum
        self._bytes_max: Final = bytes_max
        self._now_us: Final = now_us
        self._names: Final[dict[int, str]] = {}
        self._bytes = 0

    def resolved(self, packet: WirePublish) -> Packet:
        """The message as the core takes it, or as it refuses it: an alias counts in either case."""
        message = packet.message
        topic_name = message.topic_name
        alias = packet.topic_alias
        if alias:
            if alias > self._maximum:
                raise ProtocolError(f"topic alias {alias}", "MQTT-3.3.2-9", ReasonCode.TOPIC_ALIAS_INVALID)
            if topic_name:
                self._set(alias, topic_name)
            else:
                topic_name = self._names.get(alias, "")
                if not topic_name:
                    raise ProtocolError(f"topic alias {alias} stands for no topic name", VIOLATION)
        if packet.has_wrong_payload:
            return _wrong_payload(topic_name, message)
        properties = message.properties
        expires_us = message_expires_us(properties, self._now_us()) if properties else 0
        return Publish(
            topic_name,
            message.payload,
            message.qos,
            message.retain,
            message.dup,
            message.packet_id,
            properties,
            expires_us,
        )

    def _set(self, alias: int, topic_name: str) -> None:
        self._bytes += len(topic_name.encode()) - len(self._names.get(alias, "").encode())
        if self._bytes > self._bytes_max:
            raise ProtocolError("too many bytes of topic aliases", VIOLATION, ReasonCode.QUOTA_EXCEEDED)
        self._names[alias] = topic_name


def _wrong_payload(topic_name: str, message: Publish) -> RefusedPublish:
    """QoS 0 has no acknowledgement that could say it, so the connection ends (5.0, 3.3.2.3.2)."""
    detail = "the payload is not UTF-8 as the Payload Format Indicator says"
    reason = ReasonCode.PAYLOAD_FORMAT_INVALID
    if message.qos == 0:
        raise ProtocolError(detail, "", reason)
    return RefusedPublish(topic_name, len(message.payload), message.qos, message.packet_id, reason, detail)


@final
class OutgoingAliases:
    """The aliases that a client was sent: first come, and then the least recently used name gives way."""

    def __init__(self, maximum: int) -> None:
        self._maximum: Final = maximum
        self._aliases: Final[dict[str, int]] = {}  # the least recently used first

    def known(self, topic_name: str) -> int:
        """The alias that stands for a topic name; 0: none."""
        return self._aliases.get(topic_name, 0)

    def proposed(self, topic_name: str) -> int:
        """The alias that a topic name would get; 0: it gets none."""
        if len(topic_name) < OUTGOING_NAME_CHARACTERS_MIN:
            return 0
        if len(self._aliases) < self._maximum:
            return len(self._aliases) + 1
        return self._aliases[next(iter(self._aliases))]

    def sent(self, topic_name: str, alias: int) -> None:
        """A PUBLISH with this alias is part of the output: it stands for the name from now on."""
        aliases = self._aliases
        if topic_name in aliases:
            del aliases[topic_name]
        elif len(aliases) >= self._maximum:
            del aliases[next(iter(aliases))]
        aliases[topic_name] = alias
