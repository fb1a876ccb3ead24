"""What a start finds in a data directory.

Owns: opening it as the server does, reading all of it, and comparing the state with one that is made from the log.
"""

import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from embermq.store.engines.directory import DataDirectory
from embermq.store.engines.opening import JournalSettings, open_log, open_state
from embermq.store.engines.replay import replay
from embermq.store.log.writer import Log
from embermq.store.records import (
    QUEUE_ENTRY_BYTES,
    Acknowledged,
    LoggedRecord,
    Published,
    Queued,
    Received,
    SessionOpened,
    Subscribed,
)
from embermq.store.rows import Kind
from embermq.store.state.state import State


@dataclass
class Session:
    filters: set[str] = field(default_factory=set)
    owed: list[tuple[str, bytes]] = field(default_factory=list)
    received: set[int] = field(default_factory=set)
    """Packet identifiers in use at QoS 2."""


@dataclass
class Opened:
    first_offset: int
    messages: list[tuple[str, bytes]]
    retained: dict[str, bytes]
    sessions: dict[str, Session]
    is_rebuilt_alike: bool = True

    @property
    def logged(self) -> set[tuple[str, bytes]]:
        return set(self.messages)


def opened(directory: Path, durability: Literal["sync", "os"], is_rebuilt: bool) -> Opened:
    """Open it, as a start does; errors as they come. `is_rebuilt`: also make its state again, and compare."""
    settings = JournalSettings(durability)
    data = DataDirectory(directory)
    try:
        log = open_log(data, settings)
        try:
            state = open_state(data, log, settings, None)
            try:
                rows = [row for group in log.groups_from(log.first_offset) for row in group.rows]
                found = Opened(
                    log.first_offset,
                    [(row.topic.decode(), row.payload) for row in rows if row.kind == Kind.PUBLISH],
                    *_content(log, state.view().records()),
                )
                if is_rebuilt:
                    found.is_rebuilt_alike = _rebuilt(log) == (found.retained, found.sessions)
                return found
            finally:
                state.close()
        finally:
            log.close()
    finally:
        data.close()


def _rebuilt(log: Log) -> tuple[dict[str, bytes], dict[str, Session]]:
    with tempfile.TemporaryDirectory(prefix="rebuilt-", dir=log.directory) as directory:
        state = State(Path(directory))
        try:
            replay(log, state)
            return _content(log, state.view().records())
        finally:
            state.close()


def _content(log: Log, records: Iterable[LoggedRecord]) -> tuple[dict[str, bytes], dict[str, Session]]:
    retained: dict[str, bytes] = {}
    sessions: dict[int, Session] = {}
    names: dict[str, Session] = {}
    acknowledged: dict[int, int] = {}
    queued: list[Queued] = []
    for logged in records:
        record = logged.record
        if isinstance(record, Published):
            retained[record.message.topic_name] = record.message.payload
        elif isinstance(record, SessionOpened):
            names[record.client_id] = sessions.setdefault(record.session_id, Session())
        elif isinstance(record, Subscribed):
            sessions.setdefault(record.session_id, Session()).filters.add(record.request.topic_filter)
        elif isinstance(record, Received):
            sessions.setdefault(record.session_id, Session()).received.add(record.packet_id)
        elif isinstance(record, Acknowledged):
            acknowledged[record.session_id] = record.sequence
        elif isinstance(record, Queued):
            queued.append(record)
    for record in queued:
        session = sessions.setdefault(record.session_id, Session())
        for number, at in enumerate(range(0, len(record.entries), QUEUE_ENTRY_BYTES)):
            if record.first_sequence + number > acknowledged.get(record.session_id, 0):
                offset = int.from_bytes(record.entries[at : at + QUEUE_ENTRY_BYTES], "little") >> 3
                row = log.read(offset)
                session.owed.append(("", b"") if row is None else (row.topic.decode(), row.payload))
    return retained, names
