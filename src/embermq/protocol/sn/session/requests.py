"""What a client asks for: PUBLISH, REGISTER, SUBSCRIBE, UNSUBSCRIBE, and the answers to them.

Owns: the way from a request to the core's packet, the refusals that need no core, and the answers' form.
A request becomes at most one packet for the core; None means that it was answered here.
"""

from typing import Final, final

from embermq.protocol import packets as core
from embermq.protocol.errors import ProtocolError
from embermq.protocol.reasons import ReasonCode
from embermq.protocol.sn.session.counters import SnCounters
from embermq.protocol.sn.session.handshake import name_of
from embermq.protocol.sn.session.outgoing import Outgoing
from embermq.protocol.sn.session.peer import Wire
from embermq.protocol.sn.session.repeats import Repeats
from embermq.protocol.sn.settings import SnSettings
from embermq.protocol.sn.wire import packets as sn
from embermq.protocol.sn.wire.encode import encode
from embermq.protocol.sn.wire.fields import FULL_NAME, PREDEFINED_ALIAS, SESSION_ALIAS
from embermq.protocol.sn.wire.layouts import UNKNOWN_ALIAS, UNSPECIFIED
from embermq.protocol.topics import check_topic_filter, check_topic_name, has_wildcard

# MQTT's own numbers for the acknowledgements, by which the core names them.
PUBACK: Final = 4
PUBREC: Final = 5
PUBREL: Final = 6
PUBCOMP: Final = 7

ANSWERS_MAX: Final = 64
"""How many requests of a client may wait for the core; 2.0 allows one, 1.2 sets no penalty on more."""
ALIAS_EXISTS: Final = 0x1A


def _without_dup(content: bytes) -> bytes:
    return bytes((content[0] & 0x7F,)) + content[1:]


@final
class Requests:
    """The requests of one client."""

    __slots__ = ("_wire", "_outgoing", "_settings", "_counters", "_repeats", "_subscribing", "_answering")

    def __init__(self, wire: Wire, outgoing: Outgoing, settings: SnSettings, counters: SnCounters) -> None:
        self._wire: Final = wire
        self._outgoing: Final = outgoing
        self._settings: Final = settings
        self._counters: Final = counters
        self._repeats: Final = Repeats(settings.repeat_ms)
        self._subscribing: dict[int, tuple[sn.TopicReference, str]] = {}
        self._answering: dict[int, int] = {}  # the alias that 1.2's PUBACK repeats, by packet id

    def _begin(self, packet_id: int) -> None:
        """4.9-1: one unanswered request at a time; 1.2 knows the rule but no penalty."""
        if self._wire.profile.strict and not self._repeats.begins(packet_id):
            raise ProtocolError(
                "a second request before the first was answered",
                "MQTT-SN-4.9-1",
                ReasonCode.RECEIVE_MAXIMUM_EXCEEDED,
            )

    def _name_of(self, reference: sn.TopicReference) -> str | None:
        name = name_of(reference, self._outgoing.aliases, self._settings)
        if name is None:
            self._counters.unknown_aliases += 1
        elif reference.topic_type == SESSION_ALIAS:
            # An alias is drawn at random: whoever uses it has received it at this address.
            self._wire.proven = True
        elif reference.topic_type == PREDEFINED_ALIAS:
            self._outgoing.use_predefined(name, reference.topic_alias)
        return name

    # -- PUBLISH -----------------------------------------------------------------------------------------------------

    def publish(self, packet: sn.Publish, content: bytes, now_ms: int) -> core.Packet | None:
        """A message; `content` is the packet's body, by which a late copy is known."""
        packet_id = packet.packet_id
        if packet.qos:
            self._begin(packet_id)
        topic_name = self._name_of(packet.reference)
        if topic_name is None:
            self._refuse_alias(packet)
            return None
        if packet.qos == 2:
            content = _without_dup(content)
            if self._repeats.late(packet_id, content, now_ms):
                self._counters.repeats += 1
                self._wire.send(sn.Pubrec(packet_id))
                self._repeats.ends(packet_id)
                return None
            self._repeats.began(packet_id, content)
        if packet.qos and self._wire.profile.version == 1:
            self._answering[packet_id] = packet.reference.topic_alias
            if len(self._answering) > ANSWERS_MAX:
                del self._answering[next(iter(self._answering))]
        return core.Publish(topic_name, packet.payload, packet.qos, packet.retain, packet.dup, packet_id)

    def _refuse_alias(self, packet: sn.Publish) -> None:
        profile = self._wire.profile
        if profile.alias_0_malformed and packet.reference.topic_type == PREDEFINED_ALIAS:
            raise ProtocolError("an unknown predefined alias")  # B: registering cannot put that right
        if profile.version == 1:
            self._wire.send(sn.Puback(packet.packet_id, UNKNOWN_ALIAS, packet.reference.topic_alias))
        elif packet.qos == 1:
            self._wire.send(sn.Puback(packet.packet_id, UNKNOWN_ALIAS))
        elif packet.qos == 2:
            self._wire.send(sn.Pubrec(packet.packet_id, UNKNOWN_ALIAS))
        self._repeats.ends(packet.packet_id)

    def pubrel(self, packet: sn.Pubrel, now_ms: int) -> core.Packet:
        """QoS 2: the client lets go of the packet id."""
        self._repeats.finished(packet.packet_id, now_ms)
        return core.Pubrel(packet.packet_id)

    def acknowledge(self, packet_type: int, packet_id: int, reason: int) -> None:
        """The core's answer to a message: PUBACK, PUBREC or PUBCOMP."""
        version_1 = self._wire.profile.version == 1
        topic_alias = self._answering.pop(packet_id, 0) if version_1 and packet_type != PUBCOMP else 0
        if packet_type == PUBACK or (packet_type == PUBREC and version_1 and reason >= UNSPECIFIED):
            # 1.2's PUBREC has no return code: a QoS 2 message is refused by PUBACK as well.
            self._wire.send(sn.Puback(packet_id, reason, topic_alias))
        elif packet_type == PUBREC:
            self._wire.send(sn.Pubrec(packet_id, reason))
            if reason < UNSPECIFIED:
                return  # the exchange goes on until PUBCOMP
        else:
            self._wire.send(sn.Pubcomp(packet_id, reason))
        self._repeats.ends(packet_id)

    # -- REGISTER ----------------------------------------------------------------------------------------------------

    def register(self, packet: sn.Register) -> None:
        """A client asks for an alias; the answer needs no core."""
        self._begin(packet.packet_id)
        self._repeats.ends(packet.packet_id)
        self._wire.send(self._regack(packet))

    def _regack(self, packet: sn.Register) -> sn.Regack:
        name = packet.topic_name
        profile = self._wire.profile
        if check_topic_name(name) is not None:
            return sn.Regack(packet.packet_id, 0, ReasonCode.TOPIC_NAME_INVALID)
        predefined = self._settings.predefined_of.get(name)
        if predefined is not None and profile.version > 1:
            self._outgoing.use_predefined(name, predefined)
            reason = ALIAS_EXISTS if profile.alias_0_malformed else 0  # only B has a code for it
            return sn.Regack(packet.packet_id, predefined, reason, PREDEFINED_ALIAS)
        self._outgoing.wants(name)
        topic_alias = self._outgoing.aliases.ask(name)
        return sn.Regack(packet.packet_id, topic_alias, 0 if topic_alias else ReasonCode.QUOTA_EXCEEDED)

    # -- SUBSCRIBE, UNSUBSCRIBE --------------------------------------------------------------------------------------

    def _answered_before(self, content: bytes, marked: bool, now_ms: int) -> bool:
        """Whether a request is the last one again: then only its answer is repeated, if it has one yet."""
        if not marked or not self._repeats.again(content, now_ms):
            self._repeats.asked(content, now_ms)
            return False
        self._counters.repeats += 1
        answer = self._repeats.answer()
        if answer is not None:
            self._wire.send_bytes(answer)
        return True

    def subscribe(self, packet: sn.Subscribe, content: bytes, now_ms: int) -> core.Packet | None:
        """A subscription, for the core to grant."""
        packet_id = packet.packet_id
        marked = True
        if self._wire.profile.version == 1:
            # A client of 1.2 marks a repetition by DUP; without the mark it may well use one packet id for ever.
            marked = packet.dup
            content = _without_dup(content)
        if self._answered_before(content, marked, now_ms):
            return None
        self._begin(packet_id)
        topic_filter = self._name_of(packet.reference)
        reason = 0
        if topic_filter is None:
            reason = UNKNOWN_ALIAS
        elif check_topic_filter(topic_filter) is not None:
            reason = ReasonCode.TOPIC_FILTER_INVALID
        if topic_filter is None or reason:
            self._answer(packet_id, sn.Suback(packet_id, reason))
            return None
        self._subscribing[packet_id] = (packet.reference, topic_filter)
        if len(self._subscribing) > ANSWERS_MAX:
            del self._subscribing[next(iter(self._subscribing))]
        request = core.SubscriptionRequest(
            topic_filter, packet.qos, packet.no_local, packet.retain_as_published, packet.retain_handling
        )
        return core.Subscribe(packet_id, [request])

    def unsubscribe(self, packet: sn.Unsubscribe, content: bytes, now_ms: int) -> core.Packet | None:
        """The end of a subscription, for the core to confirm."""
        # 1.2's answer has no reason, so to ask the core again does no harm and needs no mark.
        if self._answered_before(content, self._wire.profile.version > 1, now_ms):
            return None
        self._begin(packet.packet_id)
        topic_filter = self._name_of(packet.reference)
        if topic_filter is None:
            self._answer(packet.packet_id, sn.Unsuback(packet.packet_id, UNKNOWN_ALIAS))
            return None
        return core.Unsubscribe(packet.packet_id, [topic_filter])

    def suback(self, packet: core.Suback) -> None:
        """The core's answer to a subscription; an exact topic name gets its alias with it."""
        packet_id = packet.packet_id
        reason = packet.reasons[0]
        reference, topic_filter = self._subscribing.pop(packet_id, (sn.full_name(""), ""))
        topic_alias = 0
        topic_type = SESSION_ALIAS
        profile = self._wire.profile
        if reason < UNSPECIFIED:
            self._outgoing.wants(topic_filter)
            if reference.topic_type == PREDEFINED_ALIAS and not profile.alias_0_malformed:
                topic_alias, topic_type = reference.topic_alias, PREDEFINED_ALIAS
            elif reference.topic_type == SESSION_ALIAS:
                topic_alias = reference.topic_alias
            elif reference.topic_type == FULL_NAME and topic_filter and not has_wildcard(topic_filter):
                topic_alias = self._outgoing.aliases.ask(topic_filter)
        if not topic_alias and profile.alias_0_malformed:
            topic_type = PREDEFINED_ALIAS  # B writes that type where no alias follows
        self._answer(packet_id, sn.Suback(packet_id, reason, topic_alias, topic_type))

    def unsuback(self, packet: core.Unsuback) -> None:
        """The core's answer to the end of a subscription."""
        reason = packet.reasons[0] if packet.reasons else 0
        self._answer(packet.packet_id, sn.Unsuback(packet.packet_id, reason))

    def _answer(self, packet_id: int, packet: sn.SnPacket) -> None:
        data = encode(packet, self._wire.profile)
        self._repeats.answered(data)
        self._repeats.ends(packet_id)
        self._wire.send_bytes(data)
