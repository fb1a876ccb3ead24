"""Messages of the log that a topic filter matches, in order, in pieces.

Owns: going through the blocks of the log.
Never: writing, or what is not durable. For one thread, which is not the one that appends.

A piece is bounded in messages, in bytes, and in the bytes of the log that are read for it: a filter may match nothing
in gigabytes of log, and others want their pieces too. What the log no longer has comes as a stretch that was fetched
before: here nothing waits for an archive.
"""

from bisect import bisect_left
from collections import deque
from typing import Final, final

from embermq.protocol.message_expiry import message_expires_us
from embermq.protocol.packets import Publish
from embermq.protocol.topics import matches
from embermq.store.history.pieces import HistoryPiece, LogMessage, LogSpan
from embermq.store.history.trimmed import Fetched
from embermq.store.log.blocks import Block
from embermq.store.log.errors import LogTrimmed
from embermq.store.log.lookup import Lookup, Records, Stretch
from embermq.store.log.segments import Index, index_path
from embermq.store.log.writer import Log
from embermq.store.rows import QOS_MASK, RETAIN_FLAG, Kind, LogRow
from embermq.store.segment import Segment

CACHE_BYTES: Final = 16 * 1024 * 1024
SCAN_BYTES: Final = 512 * 1024
"""About how many bytes of the log are read for one piece."""
SCAN_RECORDS: Final = 4_000
"""How many records are looked at for one piece."""
DECODED_MAX: Final = 8
"""How many blocks of the archive are kept decoded: pieces of as many replays may end within one."""
TOPICS_MAX: Final = 20_000
"""For how many topics it is remembered whether a filter matches them."""
FILTERS_MAX: Final = 64

_PUBLISH: Final = int(Kind.PUBLISH)


@final
class LogScan(Records):
    """The log, read on a thread of its own."""

    def __init__(self, log: Log, scan_bytes: int = SCAN_BYTES, scan_records: int = SCAN_RECORDS) -> None:
        self._log: Final = log
        self._lookup: Final = Lookup(log.directory, CACHE_BYTES)
        self._decoded: Final[deque[Block]] = deque(maxlen=DECODED_MAX)  # of the archive
        self._matching: Final[dict[str, dict[bytes, bool]]] = {}  # by filter, which topics it matches
        self._scan_bytes: Final = scan_bytes
        self._scan_records: Final = scan_records

    def read(self, offset: int) -> LogRow | None:
        segment = self._log.segment_of(offset)
        block = None if segment is None else self._lookup.block(offset, segment)
        return None if block is None else block.record(offset)

    def piece(self, span: LogSpan, fetched: Fetched | None = None) -> HistoryPiece:
        """The next messages of a span. LogTrimmed if the log no longer has what comes next.

        `fetched` has where to begin and, of what the log no longer has, the first blocks: the piece ends with them.
        """
        log = self._log
        durable = log.next_offset
        end = min(durable, span.before_offset) if span.before_offset else durable
        stretch = None if fetched is None else fetched.stretch
        if fetched is not None:
            offset = fetched.offset
        else:
            offset = span.offset if span.offset else self.offset_at(span.from_us)
        if stretch is not None:
            end = min(end, stretch.next_offset)
        found = _Found(span, self._topics(span.topic_filter))
        records = log_bytes = 0
        while offset < end and not found.is_full and log_bytes < self._scan_bytes and records < self._scan_records:
            block = self._kept_block(offset) if stretch is None else self._archived_block(stretch, offset)
            if block is None:
                offset = log.next_kept(offset)  # a machine was lost with what was there
                continue
            first = offset
            offset = found.take(block, offset, min(end, block.next_offset, offset + self._scan_records - records))
            records += offset - first
            log_bytes += block.size_bytes * (offset - first) // len(block)
        is_done = found.is_past or bool(span.before_offset and offset >= span.before_offset)
        return HistoryPiece(
            found.messages,
            [],
            offset,
            "",
            offset >= durable,
            is_done,
            stretch is not None and offset < log.first_offset,
        )

    def offset_at(self, instant_us: int) -> int:
        """The offset of the first record that is not older than an instant, 0 for the log's beginning."""
        log = self._log
        if not instant_us:
            return log.first_offset
        if instant_us < log.begins_us():
            raise LogTrimmed(log.first_offset - 1, log.first_offset)
        segment = log.segment_at(instant_us)
        if segment is None:
            return log.first_offset
        index = Index.open(index_path(log.directory, segment.first_offset))
        number = min(index.blocks_before(instant_us), segment.blocks) - 1
        if number < 0:  # the index is damaged: the records say which of them are older
            return segment.first_offset
        block = self._block(index.entry(number).first_offset)
        return block.first_offset + bisect_left(block.timestamps_us, instant_us)

    def _block(self, offset: int) -> Block:
        block = self._kept_block(offset)
        if block is None:
            raise LogTrimmed(offset, self._log.first_offset)
        return block

    def _kept_block(self, offset: int) -> Block | None:
        """The block with an offset; None if it is in a gap of the log."""
        log = self._log
        segment: Segment | None = log.segment_of(offset)
        block = None if segment is None else self._lookup.block(offset, segment)
        if block is None and (offset < log.first_offset or log.next_kept(offset) == offset):
            raise LogTrimmed(offset, log.first_offset)
        return block

    def _archived_block(self, stretch: Stretch, offset: int) -> Block:
        for block in self._decoded:
            if block.first_offset <= offset < block.next_offset:
                return block
        block = stretch.decoded(offset)
        self._decoded.append(block)
        return block

    def _topics(self, topic_filter: str) -> dict[bytes, bool]:
        matching = self._matching.get(topic_filter)
        if matching is None:
            if len(self._matching) >= FILTERS_MAX:
                self._matching.clear()
            matching = self._matching[topic_filter] = {}
        elif len(matching) > TOPICS_MAX:
            matching.clear()
        return matching


@final
class _Found:
    """The messages of a piece, while it is made."""

    def __init__(self, span: LogSpan, matching: dict[bytes, bool]) -> None:
        self.messages: Final[list[LogMessage]] = []
        self.is_full = False
        self.is_past = False  # a record has shown that the rest of the log is past the end of the span
        self._span: Final = span
        self._matching: Final = matching
        self._size_bytes = 0

    def take(self, block: Block, offset: int, end: int) -> int:
        """Take what is wanted of a block from an offset on; returns the offset to go on at."""
        span = self._span
        matching = self._matching
        first_offset = block.first_offset
        timestamps_us = block.timestamps_us
        while offset < end and not self.is_full:
            timestamp_us = timestamps_us[offset - first_offset]
            if span.before_us and timestamp_us >= span.before_us:
                self.is_past = self.is_full = True
                return offset
            if timestamp_us >= span.from_us and block.kind(offset) == _PUBLISH:
                topic = block.topic(offset)
                is_wanted = matching.get(topic)
                if is_wanted is None:
                    is_wanted = matching[topic] = matches(span.topic_filter, topic.decode())
                if is_wanted:
                    self._add(block.record(offset))
            offset += 1
        return offset

    def _add(self, record: LogRow) -> None:
        properties = record.properties
        message = Publish(
            record.topic.decode(),
            record.payload,
            record.flags & QOS_MASK,
            bool(record.flags & RETAIN_FLAG),
            False,
            0,
            properties,
            message_expires_us(properties, record.timestamp_us) if properties else 0,
        )
        self.messages.append(LogMessage(record.offset, record.timestamp_us, record.client_id.decode(), message))
        self._size_bytes += len(record.topic) + len(record.payload) + len(properties)
        self.is_full = len(self.messages) >= self._span.limit or self._size_bytes >= self._span.bytes_max
