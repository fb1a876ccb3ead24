"""Publishers and subscribers of a crash test that speak MQTT 5.

Owns: what MQTT 5 adds to them: a Session Expiry Interval, a user property on every message, Subscription Identifiers,
topic aliases of the server. Whatever a crash changes about these is a violation.
"""

from support import wire, wire_v5
from support.crash_checker import KEPT, LIVE
from support.crash_clients import Publisher, Subscriber
from support.wire_v5 import ALIAS, ALIAS_MAXIMUM, RECEIVE_MAXIMUM, SUBSCRIPTION_ID, USER_PROPERTY

SESSION_EXPIRY_S = 86_400
ALIASES = 8
WINDOW = 20
PUBLISHER = "0"
"""The second level of the streams whose publisher speaks MQTT 5."""

# Topic filter and identifier; one SUBSCRIBE each. The last one overlaps with the first.
FILTERS = {f"{LIVE}/#": 1, f"{KEPT}/#": 200, f"{LIVE}/{PUBLISHER}/#": 300_000}


class PublisherV5(Publisher):
    """Says with every message which topic it is for."""

    def connect_packet(self) -> bytes:
        return wire_v5.connect(self.client_id, clean=False, keep_alive=0, expiry=SESSION_EXPIRY_S)

    def publish_packet(
        self, packet_id: int, topic_name: str, payload: bytes, qos: int, retain: bool, dup: bool
    ) -> bytes:
        return wire_v5.publish(
            topic_name,
            payload,
            qos=qos,
            retain=retain,
            dup=dup,
            packet_id=packet_id,
            properties=[(USER_PROPERTY, ("for", topic_name))],
        )


class SubscriberV5(Subscriber):
    """Checks the properties of each message, which must be the same live, queued and after a crash."""

    def connect_packet(self) -> bytes:
        self._aliases: dict[int, str] = {}
        return wire_v5.connect(
            self.client_id,
            clean=False,
            keep_alive=0,
            expiry=SESSION_EXPIRY_S,
            properties=[(ALIAS_MAXIMUM, ALIASES), (RECEIVE_MAXIMUM, WINDOW)],
        )

    def subscribe_packets(self) -> bytes:
        return b"".join(
            wire_v5.subscribe(number, (topic_filter, self.qos), properties=[(SUBSCRIPTION_ID, identifier)])
            for number, (topic_filter, identifier) in enumerate(FILTERS.items(), 1)
        )

    def is_last_suback(self, packet_id: int) -> bool:
        return packet_id == len(FILTERS)

    def granted(self, body: bytes) -> bytes:
        return bytes(wire_v5.answer_of(wire.Packet(wire.SUBACK, 0, body)).reasons)

    def message_of(self, received: wire.Packet) -> wire.Message:
        message = wire_v5.message_of(received)
        topic_name = message.topic_name
        for alias in message.valued(ALIAS):
            assert isinstance(alias, int)
            topic_name = topic_name or self._aliases.get(alias, "")
            self._aliases[alias] = topic_name
        self._check_properties(topic_name, message)
        return wire.Message(topic_name, message.payload, message.qos, message.retain, message.dup, message.packet_id)

    def expected_identifiers(self, topic_name: str) -> list[int]:
        """Of all subscriptions that match a stream."""
        first, publisher, *_ = topic_name.split("/")
        found = [FILTERS[f"{first}/#"]]
        if (first, publisher) == (LIVE, PUBLISHER):
            found.append(FILTERS[f"{LIVE}/{PUBLISHER}/#"])
        return found

    def _check_properties(self, topic_name: str, message: wire_v5.Message) -> None:
        parts = topic_name.split("/")
        if len(parts) < 3:
            self.checker.wrong(f"{self.client_id}: a message for {topic_name!r}")
            return
        found = message.valued(SUBSCRIPTION_ID)
        if len(found) != len(set(found)) or set(found) != set(self.expected_identifiers(topic_name)):
            self.checker.wrong(f"{self.client_id}: {topic_name} came with the subscription identifiers {found}")
        expected = [("for", topic_name)] if parts[1] == PUBLISHER else []
        if message.valued(USER_PROPERTY) != expected:
            found = message.valued(USER_PROPERTY)
            self.checker.wrong(f"{self.client_id}: {topic_name} came with the user properties {found}")
