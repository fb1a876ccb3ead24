"""Requests of a client: PUBLISH, REGISTER, SUBSCRIBE, UNSUBSCRIBE, and the answers to them.

Owns: how a request becomes the core's packet, the refusals that need no core, and the form of the answers.
A request becomes at most one packet for the core; None means that it was answered here.
A network that loses datagrams brings a packet twice or late, or makes its sender repeat it. A repeated SUBSCRIBE is
answered again without being carried out again, and a QoS 2 message whose exchange is over is not published again,
although its packet identifier is free.
"""

from typing import Final, final

from embermq.protocol import packets as core
from embermq.protocol.errors import ProtocolError
from embermq.protocol.reasons import ReasonCode
from embermq.protocol.sn.aliases import topic_name_of
from embermq.protocol.sn.counters import SnCounters
from embermq.protocol.sn.outgoing import Outgoing
from embermq.protocol.sn.peer import Peer
from embermq.protocol.sn.settings import SnSettings
from embermq.protocol.sn.wire import packets as sn
from embermq.protocol.sn.wire.codec import encode
from embermq.protocol.sn.wire.fields import FULL_NAME, PREDEFINED_ALIAS, SESSION_ALIAS
from embermq.protocol.sn.wire.layouts import CONGESTION, UNKNOWN_ALIAS, UNSPECIFIED
from embermq.protocol.topics import check_topic_filter, check_topic_name, has_wildcard

UNANSWERED_MAX: Final = 64
"""How many requests of a client may wait for the core; 2.0 allows one, 1.2 lays down no penalty for more."""
PROOF_ALIASES_MAX: Final = 8
"""With more aliases than this, the use of one does not prove the address: there are 32,767 numbers to guess from."""
UNPROVEN_NAMES_BYTES_MAX: Final = 8 * 1024
"""Of the names that a client registers before its address is proven; a forged address must not take much memory."""
ALIAS_EXISTS: Final = 0x1A
PUBLISHES_MAX: Final = 16
PACKET_IDS_MAX: Final = 64


@final
class Duplicates:
    """The recent requests of one client; `window_ms` is how long an equal request counts as a duplicate."""

    def __init__(self, window_ms: int) -> None:
        self._window_ms: Final = window_ms
        self._request = b""
        self._answer: bytes | None = None
        self._request_ms = 0
        self._open_id = 0  # the packet identifier of the one request that is unanswered; 0 for none
        self._recent_ids: dict[int, None] = {}
        self._publishes: dict[int, tuple[int, int]] = {}  # QoS 2, by packet identifier: hash of the content, end

    # -- SUBSCRIBE, UNSUBSCRIBE ------------------------------------------------------------------------------------

    def is_last_request(self, request: bytes, now_ms: int) -> bool:
        """Whether the last request had the same bytes, within the window."""
        return request == self._request and now_ms - self._request_ms < self._window_ms

    def remember_request(self, request: bytes, now_ms: int) -> None:
        """A new request; it replaces the one before it."""
        self._request = request
        self._request_ms = now_ms
        self._answer = None

    def remember_answer(self, answer: bytes) -> None:
        """The last request was answered."""
        if self._request:
            self._answer = answer

    def last_answer(self) -> bytes | None:
        """What answered the last request; None while that is pending in the core."""
        return self._answer

    # -- one request at a time -------------------------------------------------------------------------------------

    def begin(self, packet_id: int) -> bool:
        """A request begins. False: another one is unanswered, which breaks the rule of MQTT-SN-4.9-1.

        A packet identifier that was used lately is most likely a late copy: it breaks no rule and begins nothing.
        """
        if packet_id in self._recent_ids:
            return True
        if self._open_id:
            return False
        self._open_id = packet_id
        self._recent_ids[packet_id] = None
        if len(self._recent_ids) > PACKET_IDS_MAX:
            del self._recent_ids[next(iter(self._recent_ids))]
        return True

    def end(self, packet_id: int) -> None:
        """A request has its final answer."""
        if self._open_id == packet_id:
            self._open_id = 0

    # -- QoS 2 -------------------------------------------------------------------------------------------------------

    def begin_publish(self, packet_id: int, content: bytes) -> None:
        """A QoS 2 message was handed to the core."""
        self._publishes.pop(packet_id, None)
        self._publishes[packet_id] = (hash(content), 0)
        if len(self._publishes) > PUBLISHES_MAX:
            del self._publishes[next(iter(self._publishes))]

    def end_publish(self, packet_id: int, now_ms: int) -> None:
        """The PUBREL of a QoS 2 message has come: its packet identifier is free."""
        entry = self._publishes.get(packet_id)
        if entry is not None:
            self._publishes[packet_id] = (entry[0], now_ms)

    def is_late_publish(self, packet_id: int, content: bytes, now_ms: int) -> bool:
        """Whether a QoS 2 PUBLISH is a copy of one whose exchange ended within the window."""
        entry = self._publishes.get(packet_id)
        if entry is None or entry[1] == 0:
            return False
        return entry[0] == hash(content) and now_ms - entry[1] < self._window_ms


def _without_dup(content: bytes) -> bytes:
    return bytes((content[0] & 0x7F,)) + content[1:]


@final
class Requests:
    """The requests of one client."""

    def __init__(self, peer: Peer, outgoing: Outgoing, settings: SnSettings, counters: SnCounters) -> None:
        self._peer: Final = peer
        self._outgoing: Final = outgoing
        self._settings: Final = settings
        self._counters: Final = counters
        self._duplicates: Final = Duplicates(settings.repeat_ms)
        self._subscriptions: dict[int, tuple[sn.TopicReference, str]] = {}  # by packet identifier, until answered
        self._aliases: dict[int, int] = {}  # by packet identifier, the alias that 1.2's PUBACK repeats

    def _begin(self, packet_id: int) -> None:
        """One unanswered request at a time (MQTT-SN-4.9-1); 1.2 has the rule but no penalty."""
        if self._peer.profile.rules.strict and not self._duplicates.begin(packet_id):
            raise ProtocolError(
                "a second request before the first was answered",
                "MQTT-SN-4.9-1",
                ReasonCode.RECEIVE_MAXIMUM_EXCEEDED,
            )

    def _topic_name_of(self, reference: sn.TopicReference) -> str | None:
        name = topic_name_of(reference, self._outgoing.aliases, self._settings)
        if name is None:
            self._counters.unknown_aliases += 1
            self._peer.wrong_alias()
        elif reference.topic_type == SESSION_ALIAS:
            # An alias is a random number: a client that uses it has received it at this address.
            if len(self._outgoing.aliases) <= PROOF_ALIASES_MAX:
                self._peer.prove_by_alias()
        elif reference.topic_type == PREDEFINED_ALIAS:
            self._outgoing.use_predefined(name, reference.topic_alias)
        return name

    # -- PUBLISH -----------------------------------------------------------------------------------------------------

    def publish(self, packet: sn.SnPacket, content: bytes, now_ms: int) -> core.Packet | None:
        """A message; `content` is the packet's body, by which a late copy is known."""
        packet_id = packet.packet_id
        if packet.qos:
            self._begin(packet_id)
        topic_name = self._topic_name_of(packet.reference)
        if topic_name is None:
            self._refuse_alias(packet)
            return None
        if packet.qos == 2:
            content = _without_dup(content)
            if self._duplicates.is_late_publish(packet_id, content, now_ms):
                self._counters.repeats += 1
                self._peer.send(sn.acknowledgement(sn.PUBREC, packet_id))
                self._duplicates.end(packet_id)
                return None
            self._duplicates.begin_publish(packet_id, content)
        if packet.qos and self._peer.profile.refuses_by_puback:
            self._aliases[packet_id] = packet.reference.topic_alias
            if len(self._aliases) > UNANSWERED_MAX:
                del self._aliases[next(iter(self._aliases))]
        return core.Publish(topic_name, packet.payload, packet.qos, packet.retain, packet.dup, packet_id)

    def _refuse_alias(self, packet: sn.SnPacket) -> None:
        profile = self._peer.profile
        if profile.rules.unknown_predefined_fatal and packet.reference.topic_type == PREDEFINED_ALIAS:
            raise ProtocolError("an unknown predefined alias")  # a REGISTER cannot mend it
        if profile.refuses_by_puback:
            self._peer.send(sn.acknowledgement(sn.PUBACK, packet.packet_id, UNKNOWN_ALIAS, packet.topic_alias))
        elif packet.qos == 1:
            self._peer.send(sn.acknowledgement(sn.PUBACK, packet.packet_id, UNKNOWN_ALIAS))
        elif packet.qos == 2:
            self._peer.send(sn.acknowledgement(sn.PUBREC, packet.packet_id, UNKNOWN_ALIAS))
        self._duplicates.end(packet.packet_id)

    def pubrel(self, packet: sn.SnPacket, now_ms: int) -> core.Packet:
        """QoS 2: the client releases the packet identifier."""
        self._duplicates.end_publish(packet.packet_id, now_ms)
        return core.Acknowledgement(core.PUBREL, packet.packet_id)

    def acknowledge(self, packet_type: int, packet_id: int, reason: int) -> None:
        """The core's answer to a message: PUBACK, PUBREC or PUBCOMP."""
        if reason < UNSPECIFIED:
            reason = 0  # MQTT-SN has no code for a message without subscribers
        by_puback = self._peer.profile.refuses_by_puback
        topic_alias = self._aliases.pop(packet_id, 0) if by_puback and packet_type != core.PUBCOMP else 0
        if packet_type == core.PUBACK or (packet_type == core.PUBREC and by_puback and reason >= UNSPECIFIED):
            self._peer.send(sn.acknowledgement(sn.PUBACK, packet_id, reason, topic_alias))
        elif packet_type == core.PUBREC:
            self._peer.send(sn.acknowledgement(sn.PUBREC, packet_id, reason))
            if reason < UNSPECIFIED:
                return  # the exchange ends with PUBCOMP
        else:
            self._peer.send(sn.acknowledgement(sn.PUBCOMP, packet_id, reason))
        self._duplicates.end(packet_id)

    # -- REGISTER ----------------------------------------------------------------------------------------------------

    def register(self, packet: sn.SnPacket, now_ms: int) -> None:
        """A client asks for an alias; the answer needs no core."""
        self._begin(packet.packet_id)
        self._duplicates.end(packet.packet_id)
        self._peer.send(self._regack(packet, now_ms))

    def _regack(self, packet: sn.SnPacket, now_ms: int) -> sn.SnPacket:
        name = packet.topic_name
        profile = self._peer.profile
        if check_topic_name(name) is not None:
            return sn.regack(packet.packet_id, 0, ReasonCode.TOPIC_NAME_INVALID)
        predefined = self._settings.predefined_aliases.get(name)
        if predefined is not None and profile.regack_has_topic_type:
            self._outgoing.use_predefined(name, predefined)
            reason = ALIAS_EXISTS if profile.rules.has_alias_exists else 0
            return sn.regack(packet.packet_id, predefined, reason, PREDEFINED_ALIAS)
        self._outgoing.allow(name)
        aliases = self._outgoing.aliases
        if not self._peer.is_proven and aliases.names_bytes() + len(name) > UNPROVEN_NAMES_BYTES_MAX:
            self._outgoing.ask_for_proof(now_ms)
            return sn.regack(packet.packet_id, 0, CONGESTION)
        topic_alias = aliases.request(name)
        return sn.regack(packet.packet_id, topic_alias, 0 if topic_alias else ReasonCode.QUOTA_EXCEEDED)

    # -- SUBSCRIBE, UNSUBSCRIBE --------------------------------------------------------------------------------------

    def _repeat_answer(self, content: bytes, may_be_duplicate: bool, now_ms: int) -> bool:
        """Whether a request is a duplicate of the last one: then its answer is repeated, if the core has given one."""
        if not may_be_duplicate or not self._duplicates.is_last_request(content, now_ms):
            self._duplicates.remember_request(content, now_ms)
            return False
        self._counters.repeats += 1
        answer = self._duplicates.last_answer()
        if answer is not None:
            self._peer.send_bytes(answer)
        return True

    def subscribe(self, packet: sn.SnPacket, content: bytes, now_ms: int) -> core.Packet | None:
        """A subscription, for the core to grant."""
        packet_id = packet.packet_id
        may_be_duplicate = True
        if self._peer.profile.subscribe_has_dup:
            # A client of 1.2 sets DUP when it repeats; without DUP it may use one packet identifier for all requests.
            may_be_duplicate = packet.dup
            content = _without_dup(content)
        if self._repeat_answer(content, may_be_duplicate, now_ms):
            return None
        self._begin(packet_id)
        topic_filter = self._topic_name_of(packet.reference)
        reason = 0
        if topic_filter is None:
            reason = UNKNOWN_ALIAS
        elif check_topic_filter(topic_filter) is not None:
            reason = ReasonCode.TOPIC_FILTER_INVALID
        if topic_filter is None or reason:
            self._answer(packet_id, sn.suback(packet_id, reason))
            return None
        self._subscriptions[packet_id] = (packet.reference, topic_filter)
        if len(self._subscriptions) > UNANSWERED_MAX:
            del self._subscriptions[next(iter(self._subscriptions))]
        request = core.SubscriptionRequest(
            topic_filter, packet.qos, packet.no_local, packet.retain_as_published, packet.retain_handling
        )
        return core.Subscribe(packet_id, [request])

    def unsubscribe(self, packet: sn.SnPacket, content: bytes, now_ms: int) -> core.Packet | None:
        """The end of a subscription, for the core to confirm."""
        # Without a reason in the answer (1.2) it does no harm to ask the core again.
        if self._repeat_answer(content, self._peer.profile.unsuback_has_reason, now_ms):
            return None
        self._begin(packet.packet_id)
        topic_filter = self._topic_name_of(packet.reference)
        if topic_filter is None:
            self._answer(packet.packet_id, sn.acknowledgement(sn.UNSUBACK, packet.packet_id, UNKNOWN_ALIAS))
            return None
        return core.Unsubscribe(packet.packet_id, [topic_filter])

    def suback(self, packet: core.Suback) -> None:
        """The core's answer to a subscription; an exact topic name gets its alias with it."""
        packet_id = packet.packet_id
        reason = packet.reasons[0]
        reference, topic_filter = self._subscriptions.pop(packet_id, (sn.full_name(""), ""))
        topic_alias = 0
        topic_type = SESSION_ALIAS
        profile = self._peer.profile
        if reason < UNSPECIFIED:
            self._outgoing.allow(topic_filter)
            if reference.topic_type == PREDEFINED_ALIAS and not profile.acks_omit_alias:
                topic_alias, topic_type = reference.topic_alias, PREDEFINED_ALIAS
            elif reference.topic_type == SESSION_ALIAS:
                topic_alias = reference.topic_alias
            elif reference.topic_type == FULL_NAME and topic_filter and not has_wildcard(topic_filter):
                topic_alias = self._outgoing.aliases.request(topic_filter)
        if not topic_alias and profile.acks_omit_alias:
            topic_type = PREDEFINED_ALIAS  # B has this type where no alias follows
        self._answer(packet_id, sn.suback(packet_id, reason, topic_alias, topic_type))

    def unsuback(self, packet: core.Unsuback) -> None:
        """The core's answer to the end of a subscription."""
        reason = packet.reasons[0] if packet.reasons else 0
        self._answer(packet.packet_id, sn.acknowledgement(sn.UNSUBACK, packet.packet_id, reason))

    def _answer(self, packet_id: int, packet: sn.SnPacket) -> None:
        data = encode(packet, self._peer.profile)
        self._duplicates.remember_answer(data)
        self._duplicates.end(packet_id)
        self._peer.send_bytes(data)
