"""Wills in the state: those that were set and not cleared, by client id.

Owns: the key space of wills, what records change in it, and loading it.
A client has one connection, so it has one will at most. A will is kept apart from its session: it must outlive a crash
of the server also if the session would have ended with its connection.
"""

from struct import Struct
from typing import Final, final

from embermq.protocol.packets import Will
from embermq.store.interface import SavedWill
from embermq.store.log.records import QOS_MASK, RETAIN_FLAG, WILL, Group, Kind
from embermq.store.state.rocks import Rocks
from embermq.store.state.sessions import SessionState
from embermq.store.state.write_buffer import Batch

WILLS: Final = b"W"  # client id -> head, topic name, properties, the record's payload
WILLS_END: Final = b"X"
WILL_HEAD: Final = Struct("<BHI")  # flags of the record, lengths: topic name, properties


@final
class WillState:
    """The wills' part of the state."""

    __slots__ = ("_rocks", "_sessions")

    def __init__(self, rocks: Rocks, sessions: SessionState) -> None:
        self._rocks: Final = rocks
        self._sessions: Final = sessions

    def stage(self, batch: Batch, group: Group, rows: list[int]) -> None:
        """Put in the batch what these records change."""
        for row in rows:
            key = WILLS + group.client_ids[row]
            if group.kinds[row] == Kind.WILL_CLEARED:
                batch.delete(key)
            else:
                topic, properties = group.topics[row], group.properties[row]
                head = WILL_HEAD.pack(group.flags[row], len(topic), len(properties))
                batch.put(key, head + topic + properties + group.payloads[row])

    def load(self) -> list[SavedWill]:
        """Every will that was set and not cleared."""
        return [self._load_will(key, value) for key, value in self._rocks.items(WILLS, WILLS_END)]

    def _load_will(self, key: bytes, value: bytes) -> SavedWill:
        flags, topic_bytes, property_bytes = WILL_HEAD.unpack_from(value)
        properties_at = WILL_HEAD.size + topic_bytes
        payload_at = properties_at + property_bytes
        session_id, delay_s, user_name_bytes = WILL.unpack_from(value, payload_at)
        user_name_at = payload_at + WILL.size
        message_at = user_name_at + user_name_bytes
        will = Will(
            value[WILL_HEAD.size : properties_at].decode(),
            value[message_at:],
            flags & QOS_MASK,
            bool(flags & RETAIN_FLAG),
            delay_s,
            value[properties_at:payload_at],
        )
        ended_us = self._sessions.ended_us(session_id) if session_id else 0
        user_name = value[user_name_at:message_at].decode()
        return SavedWill(key[len(WILLS) :].decode(), user_name, session_id, will, ended_us)
