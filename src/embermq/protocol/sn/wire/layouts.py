"""What a wire profile is made of: layouts (type code and steps of a packet) and the traits a session asks for.

Owns: the shape of the tables in `profiles`, and the two mappings of values that a table can name.
"""

from typing import Final, final

from embermq.protocol.sn.wire import kinds
from embermq.protocol.sn.wire.fields import FLAGS, SHORT_NAME, Bits, Step

CODES: Final = 256

# 1.2's return codes and the reason codes they mean (digest section 21); a code it reserves is an unspecified error.
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
    return Step(FLAGS, optional_with, optional=optional_with >= 0, bits=bits, reserved=reserved)


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


def _inverse(topic_types: tuple[int, ...]) -> tuple[int, ...]:
    """The bits of each topic type; -1 where the wire has none."""
    if not topic_types:
        return ()
    return tuple(topic_types.index(kind) if kind in topic_types else -1 for kind in range(4))


@final
class Profile:
    """One wire profile: its layouts by code and by kind, and what differs for a session besides the bytes."""

    __slots__ = (
        "name",
        "protocol_level",
        "version",
        "by_code",
        "by_kind",
        "strict",
        "will_dialogue",
        "full_names",
        "short_names",
        "sleeps_by_disconnect",
        "disconnect_answered",
        "connect_repeated",
        "dup_at_qos_1",
        "aliases_outlive_connection",
        "alias_0_malformed",
        "packet_bytes_max_least",
    )

    def __init__(
        self,
        name: str,
        protocol_level: int,
        version: int,
        layouts: tuple[Layout, ...],
        *,
        strict: bool,
        will_dialogue: bool,
        full_names: bool,
        sleeps_by_disconnect: bool,
        disconnect_answered: bool,
        connect_repeated: bool,
        dup_at_qos_1: bool,
        aliases_outlive_connection: bool,
        alias_0_malformed: bool = False,
        packet_bytes_max_least: int = 0,
    ) -> None:
        by_code: list[Layout | None] = [None] * CODES
        by_kind: list[Layout | None] = [None] * kinds.KINDS
        for layout in layouts:
            by_code[layout.code] = layout
            by_kind[layout.kind] = layout
            if layout.sessionless is not None:
                by_kind[layout.sessionless.kind] = layout.sessionless
        publish = by_kind[kinds.PUBLISH]
        assert publish is not None
        self.name: Final = name
        self.protocol_level: Final = protocol_level
        self.version: Final = version
        self.by_code: Final = by_code
        self.by_kind: Final = by_kind
        self.strict: Final = strict
        self.will_dialogue: Final = will_dialogue
        self.full_names: Final = full_names
        self.short_names: Final = SHORT_NAME in publish.topic_types
        self.sleeps_by_disconnect: Final = sleeps_by_disconnect
        self.disconnect_answered: Final = disconnect_answered
        self.connect_repeated: Final = connect_repeated
        self.dup_at_qos_1: Final = dup_at_qos_1
        self.aliases_outlive_connection: Final = aliases_outlive_connection
        self.alias_0_malformed: Final = alias_0_malformed
        self.packet_bytes_max_least: Final = packet_bytes_max_least

    def __repr__(self) -> str:
        return f"Profile({self.name!r})"
