"""MQTT packets (3.1.1, and 5 without properties) for a load generator: built once, in bulk, as bytes of one fixed size.

Owns: the shape of a benchmark message and the arrays made of it.
Never: a parser. Every frame of a stream has a size known beforehand (with 3.1.1 a multiple of four), and its packet id
sits on a fixed place; so a received buffer is counted and acknowledged by array arithmetic, without Python per message.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]

TOPIC_BYTES: Final = 18  # 2 + 2 + 18 + 2 (packet id) ends on a word boundary
PAYLOAD_BYTES: Final = 64
KEEP_ALIVE_S: Final = 600  # longer than any run; not 0, which rumqttd refuses
PUBACK: Final = 0x40
PUBREC: Final = 0x50
PUBREL: Final = 0x62
PUBCOMP: Final = 0x70
PINGREQ: Final = b"\xc0\x00"
PINGRESP: Final = b"\xd0\x00"
DISCONNECT: Final = b"\xe0\x00"


@dataclass(frozen=True, slots=True)
class Shape:
    """The layout of a PUBLISH whose topic name has `TOPIC_BYTES` bytes. With level 5, QoS is 0 or 1."""

    qos: int
    payload_bytes: int = PAYLOAD_BYTES
    level: int = 4

    @property
    def id_at(self) -> int:
        return 4 + TOPIC_BYTES

    @property
    def payload_at(self) -> int:
        """With level 5 there is a byte more: the length of the properties, 0."""
        return self.id_at + (2 if self.qos else 0) + (1 if self.level == 5 else 0)

    @property
    def size(self) -> int:
        return self.payload_at + self.payload_bytes

    def first_byte(self, retain: bool = False) -> int:
        return 0x30 | self.qos << 1 | int(retain)

    def frames(self, topic_names: Sequence[str] | NDArray[np.bytes_], retain: bool = False) -> Bytes:
        """One frame a topic name, packet ids 1, 2, 3 ... (wrapped at 65,535), payload of spaces, as rows."""
        topics = np.asarray(topic_names, dtype=f"S{TOPIC_BYTES}")
        count = len(topics)
        rows = np.full((count, self.size), 0x20, dtype=np.uint8)
        remaining = self.size - 2
        if remaining > 127:
            raise ValueError("the remaining length of a benchmark frame has one byte")
        rows[:, 0] = self.first_byte(retain)
        rows[:, 1] = remaining
        rows[:, 2] = 0
        rows[:, 3] = TOPIC_BYTES
        rows[:, 4 : self.id_at] = topics.view(np.uint8).reshape(count, TOPIC_BYTES)
        if self.qos:
            ids = (np.arange(count) % 65_535 + 1).astype(">u2")
            rows[:, self.id_at : self.id_at + 2] = ids.view(np.uint8).reshape(count, 2)
        if self.level == 5:
            rows[:, self.payload_at - 1] = 0
        return rows

    def number(self, rows: Bytes, numbers: NDArray[np.int64]) -> None:
        """Write a 64-bit number into the start of each payload; `numbers_of` reads it back."""
        at = self.payload_at
        rows[:, at : at + 8] = np.ascontiguousarray(numbers, dtype="<i8").view(np.uint8).reshape(len(rows), 8)

    def numbers_of(self, rows: Bytes) -> NDArray[np.int64]:
        at = self.payload_at
        return np.ascontiguousarray(rows[:, at : at + 8]).view("<i8").reshape(len(rows)).astype(np.int64)


def acks(rows_or_ids: Bytes, first_byte: int) -> bytes:
    """Four-byte acknowledgements for a column of two-byte packet ids."""
    out = np.empty((len(rows_or_ids), 4), dtype=np.uint8)
    out[:, 0] = first_byte
    out[:, 1] = 2
    out[:, 2:] = rows_or_ids
    return out.tobytes()


def topic_name(index: int) -> str:
    """Topic name number `index` of a million, each `TOPIC_BYTES` long."""
    return f"plant/{index // 1000:03d}/unit/{index % 1000:03d}"


def topic_names(count: int) -> NDArray[np.bytes_]:
    if count > 1_000_000:
        raise ValueError("there are a million topic names")
    return np.array([topic_name(index).encode() for index in range(count)], dtype=f"S{TOPIC_BYTES}")


def _text(value: str) -> bytes:
    raw = value.encode()
    return len(raw).to_bytes(2, "big") + raw


def _packet(first_byte: int, body: bytes) -> bytes:
    length = len(body)
    head = bytearray([first_byte])
    while True:
        length, digit = divmod(length, 128)
        head.append(digit | (0x80 if length else 0))
        if not length:
            return bytes(head) + body


def connect(client_id: str, clean_session: bool = True, keep_alive_s: int = KEEP_ALIVE_S, level: int = 4) -> bytes:
    flags = 0x02 if clean_session else 0x00
    head = b"\x00\x04MQTT" + bytes([level, flags]) + keep_alive_s.to_bytes(2, "big")
    return _packet(0x10, head + _no_properties(level) + _text(client_id))


def subscribe(topic_filters: Sequence[str], qos: int, packet_id: int = 1, level: int = 4) -> bytes:
    body = b"".join(_text(topic_filter) + bytes([qos]) for topic_filter in topic_filters)
    return _packet(0x82, packet_id.to_bytes(2, "big") + _no_properties(level) + body)


def publish_to(topic_name: str, payload: bytes, qos: int, packet_id: int = 1, retain: bool = False) -> bytes:
    """One PUBLISH of MQTT 3.1.1."""
    identifier = packet_id.to_bytes(2) if qos else b""
    return _packet(0x30 | qos << 1 | int(retain), _text(topic_name) + identifier + payload)


def _no_properties(level: int) -> bytes:
    return b"\x00" if level == 5 else b""
