"""What a wire profile is made of: layouts (type code and fields of a packet) and the traits that a session asks for.

Owns: the shape of the tables in `profiles`, and the mapping of 1.2's return codes to reason codes and back.
"""

from typing import Final, final

from embermq.protocol.sn.wire import fields as f
from embermq.protocol.sn.wire import kinds
from embermq.protocol.sn.wire.fields import Bits, Step

CODES: Final = 256

# 1.2's return codes (1.2, section 5.3.10) and the reason codes they mean; a code it reserves is an unspecified error.
CONGESTION: Final = 0xF1
UNKNOWN_ALIAS: Final = 0xF0
NOT_SUPPORTED: Final = 0x83
UNSPECIFIED: Final = 0x80
REASON_OF_RETURN_CODE: Final = (0x00, CONGESTION, UNKNOWN_ALIAS, NOT_SUPPORTED)
_RETURN_CODE_OF: Final = {CONGESTION: 1, 0x89: 1, 0x97: 1, UNKNOWN_ALIAS: 2, 0x90: 2}


def return_code(reason: int) -> int:
    """1.2's return code for a reason."""
    if reason < UNSPECIFIED:
        return 0
    return _RETURN_CODE_OF.get(reason, 3)


def flags(*bits: Bits, strict: bool, optional_with: int = -1) -> Step:
    """The flags byte. `strict`: a bit that is not named must be 0. `optional_with`: absent if that field is empty."""
    reserved = 0
    if strict:
        reserved = 0xFF
        for bit in bits:
            reserved &= ~(bit.mask << bit.shift)
    return Step(f.FLAGS, optional_with, optional=optional_with >= 0, bits=bits, reserved=reserved)


@final
class Layout:
    """One packet on one wire.

    `topic_types`: what the two low bits mean, as the model's topic types, -1 for reserved. `will_topic_types` the same
    for a CONNECT's will. `sessionless`: the layout if the QoS bits are 3 (1.2 has no type code of its own for it).
    """

    __slots__ = (
        "kind",
        "code",
        "steps",
        "topic_types",
        "will_topic_types",
        "topic_bits",
        "will_topic_bits",
        "sessionless",
    )

    def __init__(
        self,
        kind: int,
        code: int,
        steps: tuple[Step, ...] = (),
        topic_types: tuple[int, ...] = (),
        will_topic_types: tuple[int, ...] = (),
        sessionless: "Layout | None" = None,
    ) -> None:
        self.kind: Final = kind
        self.code: Final = code
        self.steps: Final = steps
        self.topic_types: Final = topic_types
        self.will_topic_types: Final = will_topic_types
        self.topic_bits: Final = _inverse(topic_types)
        self.will_topic_bits: Final = _inverse(will_topic_types)
        self.sessionless: Final = sessionless

    def has(self, field: int) -> bool:
        """Whether the packet has a field on this wire, as a step or as a flag."""
        return any(step.field == field or any(bit.field == field for bit in step.bits) for step in self.steps)


def _inverse(topic_types: tuple[int, ...]) -> tuple[int, ...]:
    """The bits of each topic type; -1 where the wire has none."""
    if not topic_types:
        return ()
    return tuple(topic_types.index(kind) if kind in topic_types else -1 for kind in range(4))


@final
class Rules:
    """What a profile lays down besides its layouts.

    `strict`: an error of a client ends its connection (2.0); else the packet is dropped (1.2 and W).
    `long_keep_alive_percent`: how long silence may last, in percent of a keep alive of more than a minute.
    `backs_off`: the pauses between retransmissions grow.
    `aliases_belong_to_session`: topic aliases outlive the connection, but no sleep, unless the client keeps them.
    `connect_repeated`: a client sends its CONNECT again until it is answered.
    `disconnect_answered`: a DISCONNECT of a client is answered by another.
    `dup_at_qos_1`: a QoS 1 PUBLISH that is sent again has DUP 1.
    `sleep_is_session_expiry`: the length of a sleep is the session expiry as well.
    `tells_lost_connection`: a PINGREQ without a connection is answered by DISCONNECT.
    `unknown_predefined_fatal`: a PUBLISH with a predefined alias that is not defined ends the connection.
    `has_alias_exists`: REGACK has a reason code for a name that has a predefined alias.
    """

    __slots__ = (
        "strict",
        "long_keep_alive_percent",
        "backs_off",
        "aliases_belong_to_session",
        "connect_repeated",
        "disconnect_answered",
        "dup_at_qos_1",
        "sleep_is_session_expiry",
        "tells_lost_connection",
        "alias_0_malformed",
        "unknown_predefined_fatal",
        "has_alias_exists",
        "has_connection_encapsulation",
        "packet_bytes_max_least",
    )

    def __init__(
        self,
        *,
        strict: bool,
        long_keep_alive_percent: int,
        backs_off: bool,
        aliases_belong_to_session: bool,
        connect_repeated: bool = True,
        disconnect_answered: bool = True,
        dup_at_qos_1: bool = True,
        sleep_is_session_expiry: bool = False,
        tells_lost_connection: bool = False,
        alias_0_malformed: bool = False,
        unknown_predefined_fatal: bool = False,
        has_alias_exists: bool = False,
        has_connection_encapsulation: bool = False,
        packet_bytes_max_least: int = 0,
    ) -> None:
        self.strict: Final = strict
        self.long_keep_alive_percent: Final = long_keep_alive_percent
        self.backs_off: Final = backs_off
        self.aliases_belong_to_session: Final = aliases_belong_to_session
        self.connect_repeated: Final = connect_repeated
        self.disconnect_answered: Final = disconnect_answered
        self.dup_at_qos_1: Final = dup_at_qos_1
        self.sleep_is_session_expiry: Final = sleep_is_session_expiry
        self.tells_lost_connection: Final = tells_lost_connection
        self.alias_0_malformed: Final = alias_0_malformed
        self.unknown_predefined_fatal: Final = unknown_predefined_fatal
        self.has_alias_exists: Final = has_alias_exists
        self.has_connection_encapsulation: Final = has_connection_encapsulation
        self.packet_bytes_max_least: Final = packet_bytes_max_least


@final
class Profile:
    """One wire profile: its layouts by code and by kind, its rules, and traits that can be read off its layouts.

    docs/mqtt-sn.md, "Wire profiles", tells the profiles and their letters.
    """

    __slots__ = (
        "name",
        "protocol_level",
        "version",
        "rules",
        "by_code",
        "by_kind",
        "short_names",
        "full_names",
        "will_dialogue",
        "sleeps_by_disconnect",
        "connect_has_packet_id",
        "has_session_expiry",
        "assigns_client_ids",
        "refuses_by_puback",
        "subscribe_has_dup",
        "unsuback_has_reason",
        "regack_has_topic_type",
        "acks_omit_alias",
    )

    def __init__(self, name: str, protocol_level: int, version: int, layouts: tuple[Layout, ...], rules: Rules) -> None:
        self.name: Final = name
        self.protocol_level: Final = protocol_level
        self.version: Final = version
        self.rules: Final = rules
        self.by_code: Final[list[Layout | None]] = [None] * CODES
        self.by_kind: Final[list[Layout | None]] = [None] * kinds.KINDS
        for layout in layouts:
            self.by_code[layout.code] = layout
            self.by_kind[layout.kind] = layout
            if layout.sessionless is not None:
                self.by_kind[layout.sessionless.kind] = layout.sessionless
        self.short_names: Final = f.SHORT_NAME in self.layout(kinds.PUBLISH).topic_types
        self.full_names: Final = f.FULL_NAME in self.layout(kinds.PUBLISH).topic_types
        self.will_dialogue: Final = self.by_kind[kinds.WILLTOPICREQ] is not None
        self.sleeps_by_disconnect: Final = self.by_kind[kinds.SLEEPREQ] is None
        self.connect_has_packet_id: Final = self.layout(kinds.CONNECT).has(f.PACKET_ID)
        self.has_session_expiry: Final = self.layout(kinds.CONNECT).has(f.SESSION_EXPIRY)
        self.assigns_client_ids: Final = self.layout(kinds.CONNACK).has(f.CLIENT_ID)
        # 1.2 refuses a message of any QoS by a PUBACK, which names the alias.
        self.refuses_by_puback: Final = self.layout(kinds.PUBACK).has(f.TOPIC_ALIAS)
        self.subscribe_has_dup: Final = self.layout(kinds.SUBSCRIBE).has(f.DUP)
        self.unsuback_has_reason: Final = self.layout(kinds.UNSUBACK).has(f.REASON)
        self.regack_has_topic_type: Final = len(self.layout(kinds.REGACK).topic_types) > 0
        # B's SUBACK and REGACK have an alias only where the server gives one out.
        self.acks_omit_alias: Final = self.layout(kinds.SUBACK).has(f.HAS_ALIAS)

    def layout(self, kind: int) -> Layout:
        """The layout of a kind that the profile has."""
        layout = self.by_kind[kind]
        if layout is None:
            raise ValueError(f"{self.name} has no packet of kind {kind}")
        return layout

    def __repr__(self) -> str:
        return f"Profile({self.name!r})"
