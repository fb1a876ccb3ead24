"""What a wire profile is made of: layouts (type code and fields of a packet) and the traits that a session asks for.

Owns: the shape of the tables in `profiles`, and the mapping of 1.2's return codes to reason codes and back.
Never: the reading and the writing of a packet (`decode`, `encode`).
"""

from dataclasses import dataclass
from dataclasses import field as dataclass_field
from typing import Final, final

from embermq.protocol.sn.wire import fields as f
from embermq.protocol.sn.wire import packets as sn

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


# How the field of a step is written.
FLAGS: Final = 0  # one byte, spread over flag bits
U8: Final = 1
U16: Final = 2
U32: Final = 3
REST: Final = 4  # a text or a blob up to the end of the packet
SIZED: Final = 5  # a text or a blob whose length stands before it
LEN8: Final = 6  # a text or a blob after its own one-byte length
LEN16: Final = 7  # a text or a blob after its own two-byte length
LENGTH: Final = 8  # the length of a SIZED blob, two bytes
TOPIC: Final = 9  # the topic of a message, two bytes: an alias, a short name, or the length of a full name
TOPIC_REST: Final = 10  # a subscription's topic: two bytes of alias or short name, or a filter up to the end
RETURN_CODE: Final = 11  # one byte of 1.2's four return codes, mapped to reason codes
ERROR_CODE: Final = 12  # one byte, 0 for every success; the granted QoS is in the flags

_BYTES: Final = {FLAGS: 1, U8: 1, U16: 2, U32: 4, LEN8: 1, LEN16: 2, LENGTH: 2, TOPIC: 2, RETURN_CODE: 1, ERROR_CODE: 1}


@final
@dataclass
class Bits:
    """One flag: the field it sets, how far it is shifted, and how many bits it has."""

    field: int
    shift: int
    width: int = 1
    values: tuple[int, ...] = ()  # of the field, in the order of the bits, -1 for reserved; empty: the bits themselves
    announces: bool = False  # the bit only says whether the field is in the packet
    mask: int = dataclass_field(init=False)  # after the shift
    _bits: list[int] = dataclass_field(init=False)  # of each value, -1 where the wire has none

    def __post_init__(self) -> None:
        self.mask = (1 << self.width) - 1
        self._bits = [self.values.index(value) if value in self.values else -1 for value in range(self.mask + 1)]

    def bits_of(self, value: int) -> int:
        """The bits of a value of the field, not shifted."""
        if not self.values:
            return value & self.mask
        bits = self._bits[value]
        if bits < 0:
            raise ValueError("a topic type that this packet cannot have on this wire")
        return bits


@final
@dataclass
class Step:
    """One field of a layout, and when it is there."""

    kind: int
    field: int
    when: int = -1  # only if that flag is not 0
    when_full: int = -1  # only if that topic type is a full name
    announced: bool = False  # if a bit of the flags says so
    optional: bool = False  # only if the packet has not ended
    pair: int = -1  # of SIZED, the number field that holds its length; of LENGTH, the field whose length it is
    bits: tuple[Bits, ...] = ()
    reserved: int = 0  # bits of the flags that must be 0
    is_certain: bool = dataclass_field(init=False)  # there is no such condition

    def __post_init__(self) -> None:
        self.is_certain = self.when < 0 and self.when_full < 0 and not self.announced and not self.optional

    def bytes_min(self) -> int:
        """The bytes that the step has in every packet."""
        return _BYTES.get(self.kind, 0) if self.is_certain else 0


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

    `bytes_min`: the bytes of its body that are always there. `sessionless`: the layout if the QoS bits are 3, since 1.2
    has no type code of its own for a message without a session.
    """

    def __init__(self, kind: int, code: int, steps: tuple[Step, ...] = (), sessionless: "Layout | None" = None) -> None:
        self.kind: Final = kind
        self.code: Final = code
        self.steps: Final = steps
        self.bytes_min: Final = sum(step.bytes_min() for step in steps)
        self.sessionless: Final = sessionless

    def of(self, body: bytes) -> "Layout":
        """The layout of this body: this one, or the one without a session."""
        if self.sessionless is not None and body and (body[0] >> 5) & 3 == 3:
            return self.sessionless
        return self

    def has(self, field: int) -> bool:
        """Whether the packet has a field on this wire, as a step or as a flag."""
        return any(step.field == field or any(bit.field == field for bit in step.bits) for step in self.steps)

    def may_have(self, field: int, value: int) -> bool:
        """Whether a flag of the packet can have a value."""
        return any(bit.field == field and value in bit.values for step in self.steps for bit in step.bits)

    def number(self, body: bytes, wanted: int) -> int:
        """One number of a body, by its place; -1 if a text, a blob or the end of the body comes before it.

        Of a text or a blob that has a length of its own, that is the length.
        """
        at = 0
        set_flags = 0  # fields, as bits
        for step in self.steps:
            if step.when >= 0 and not (set_flags >> step.when) & 1:
                continue
            size = _BYTES.get(step.kind, 0)
            if size == 0 or at + size > len(body):
                return -1
            if step.field == wanted:
                return int.from_bytes(body[at : at + size], "big")
            for bit in step.bits:
                if (body[at] >> bit.shift) & bit.mask:
                    set_flags |= 1 << bit.field
            at += size
        return -1


@final
@dataclass(kw_only=True)
class Rules:
    """What a profile lays down besides its layouts."""

    strict: bool  # an error of a client ends its connection (2.0); else the packet is dropped (1.2 and W)
    long_keep_alive_percent: int  # how long silence may last, in percent of a keep alive of more than a minute
    backs_off: bool  # the pauses between retransmissions grow
    aliases_belong_to_session: bool  # they outlive the connection, but no sleep, unless the client keeps them
    connect_repeated: bool = True  # a client sends its CONNECT again until it is answered
    disconnect_answered: bool = True  # a DISCONNECT of a client is answered by another
    dup_at_qos_1: bool = True  # a QoS 1 PUBLISH that is sent again has DUP 1
    sleep_is_session_expiry: bool = False  # the length of a sleep is the session expiry as well
    tells_lost_connection: bool = False  # a PINGREQ without a connection is answered by DISCONNECT
    alias_0_malformed: bool = False
    unknown_predefined_fatal: bool = False  # a PUBLISH with a predefined alias that is not defined ends the connection
    has_alias_exists: bool = False  # REGACK has a reason code for a name that has a predefined alias
    has_connection_encapsulation: bool = False
    packet_bytes_max_least: int = 0


@final
class Profile:
    """One wire profile: its layouts by code and by kind, its rules, and traits that can be read off its layouts.

    `versions`: what its CONNECT may have as the protocol version; the first is the standard's.
    docs/mqtt-sn.md, "Wire profiles", tells the profiles and their letters.
    """

    def __init__(
        self, name: str, protocol_level: int, versions: tuple[int, ...], layouts: tuple[Layout, ...], rules: Rules
    ) -> None:
        self.name: Final = name
        self.protocol_level: Final = protocol_level
        self.version: Final = versions[0]
        self.versions: Final = versions
        self.rules: Final = rules
        self.by_code: Final[list[Layout | None]] = [None] * CODES
        self.by_kind: Final[list[Layout | None]] = [None] * len(sn.NAMES)
        for layout in layouts:
            self.by_code[layout.code] = layout
            self.by_kind[layout.kind] = layout
            if layout.sessionless is not None:
                self.by_kind[layout.sessionless.kind] = layout.sessionless
        self.short_names: Final = self.layout(sn.PUBLISH).may_have(f.TOPIC_TYPE, f.SHORT_NAME)
        self.full_names: Final = self.layout(sn.PUBLISH).may_have(f.TOPIC_TYPE, f.FULL_NAME)
        self.will_dialogue: Final = self.by_kind[sn.WILLTOPICREQ] is not None
        self.sleeps_by_disconnect: Final = self.by_kind[sn.SLEEPREQ] is None
        self.has_session_expiry: Final = self.layout(sn.CONNECT).has(f.SESSION_EXPIRY)
        self.assigns_client_ids: Final = self.layout(sn.CONNACK).has(f.CLIENT_ID)
        # 1.2 refuses a message of any QoS by a PUBACK, which names the alias.
        self.refuses_by_puback: Final = self.layout(sn.PUBACK).has(f.TOPIC_ALIAS)
        self.subscribe_has_dup: Final = self.layout(sn.SUBSCRIBE).has(f.DUP)
        self.unsuback_has_reason: Final = self.layout(sn.UNSUBACK).has(f.REASON)
        self.regack_has_topic_type: Final = self.layout(sn.REGACK).has(f.TOPIC_TYPE)
        # B's SUBACK and REGACK have an alias only where the server gives one out.
        self.acks_omit_alias: Final = any(step.announced for step in self.layout(sn.SUBACK).steps)

    def layout(self, kind: int) -> Layout:
        """The layout of a kind that the profile has."""
        layout = self.by_kind[kind]
        if layout is None:
            raise ValueError(f"{self.name} has no {sn.NAMES[kind]}")
        return layout

    def __repr__(self) -> str:
        return f"Profile({self.name!r})"
