"""A log written as the server writes it, and what must be true of it, in plain Python."""

from pathlib import Path

from embermq.store.log.writer import Log
from embermq.store.rows import RETAIN_FLAG, Group, Kind

START_US = 1_700_000_000_000_000


class Recorder:
    """Appends records in groups, and remembers them."""

    def __init__(self, data: Path, segment_bytes: int = 1 << 30, group_records: int = 10) -> None:
        self.data = data
        self.log = Log(data / "log", segment_bytes=segment_bytes, segment_age_s=10**9, sync=False)
        self.now_us = max(START_US, self.log.last_timestamp_us)
        self.group_records = group_records
        self.group = Group(self.log.next_offset)
        self.whole: list[Group] = []  # all groups that were written
        self.published: list[tuple[int, int, str, bytes, int, bool, str]] = []
        self.retained_events: list[tuple[int, int, str, bytes | None, int]] = []  # offset, us, topic, payload, qos

    def publish(
        self,
        topic: str,
        payload: bytes,
        qos: int = 0,
        retain: bool = False,
        client_id: str = "c",
        step_us: int = 1000,
        properties: bytes = b"",
    ) -> int:
        flags = qos | (RETAIN_FLAG if retain else 0)
        offset = self.record(Kind.PUBLISH, flags, topic, payload, client_id, properties, step_us)
        self.published.append((offset, self.now_us, topic, payload, qos, retain, client_id))
        if retain:
            self.retained_events.append((offset, self.now_us, topic, payload or None, qos))
        return offset

    def remove_retained(self, topic: str) -> int:
        offset = self.record(Kind.RETAINED_REMOVED, 0, topic, b"expired", "")
        self.retained_events.append((offset, self.now_us, topic, None, 0))
        return offset

    def record(
        self,
        kind: Kind,
        flags: int,
        topic: str,
        payload: bytes,
        client_id: str,
        properties: bytes = b"",
        step_us: int = 1000,
    ) -> int:
        self.now_us += step_us
        offset = self.group.append(self.now_us, kind, flags, topic.encode(), payload, client_id.encode(), properties)
        if len(self.group) >= self.group_records:
            self.flush()
        return offset

    def flush(self) -> "Recorder":
        if len(self.group):
            self.log.append(self.group, self.now_us)
            self.whole.append(self.group)
            self.group = Group(self.log.next_offset)
        return self

    def close(self) -> None:
        self.flush()
        self.log.close()

    def retained(self, at_us: int | None = None, before: int | None = None) -> dict[str, tuple[bytes, int, int]]:
        """The retained set at an instant, or before an offset: topic -> payload, qos, offset."""
        state: dict[str, tuple[bytes, int, int]] = {}
        for offset, moment_us, topic, payload, qos in self.retained_events:
            if (at_us is not None and moment_us > at_us) or (before is not None and offset >= before):
                break
            if payload is None:
                state.pop(topic, None)
            else:
                state[topic] = (payload, qos, offset)
        return state
