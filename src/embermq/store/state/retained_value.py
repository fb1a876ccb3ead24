"""A retained message as the state keeps it: one value of bytes.

Owns: the packing, and the key space of the retained messages.
"""

from struct import Struct
from typing import Final

from embermq.store.interface import Retained
from embermq.store.state.retained_keys import key_topic

RETAINED: Final = b"R"
RETAINED_END: Final = b"S"
HEAD: Final = Struct("<QQQBHI")  # offset, timestamp (us), expires (us, 0 never), qos, lengths: client id, properties


def pack_retained(
    offset: int, timestamp_us: int, expires_us: int, qos: int, client_id: bytes, properties: bytes, payload: bytes
) -> bytes:
    head = HEAD.pack(offset, timestamp_us, expires_us, qos, len(client_id), len(properties))
    return head + client_id + properties + payload


def unpack_retained(key: bytes, value: bytes) -> Retained:
    """The message of a topic key."""
    offset, timestamp_us, _, qos, client_id_bytes, property_bytes = HEAD.unpack_from(value)
    client_id_end = HEAD.size + client_id_bytes
    payload_at = client_id_end + property_bytes
    return Retained(
        key_topic(key),
        value[payload_at:],
        qos,
        value[client_id_end:payload_at],
        offset,
        timestamp_us,
        value[HEAD.size : client_id_end].decode(),
    )


def value_offset(value: bytes) -> int:
    """Where in the log the message is."""
    return int.from_bytes(value[:8], "little")


def value_size(key: bytes, value: bytes) -> int:
    """Its bytes as totals and budgets count them: topic and payload."""
    _, _, _, _, client_id_bytes, property_bytes = HEAD.unpack_from(value)
    size_bytes: int = len(key) + len(value) - HEAD.size - client_id_bytes - property_bytes
    return size_bytes
