"""The indexer: writes the topic index of each segment once it is closed, so that the first query need not.

Owns: the thread that does it, and how much of the time that works.
Never: anything that the log depends on. A segment without an index gets one from the first query that needs it.
"""

import logging
from threading import Event
from time import monotonic
from typing import Final, final

from embermq.named_thread import NamedThread
from embermq.store.log.by_topic.topic_index import (
    TopicIndexBuilder,
    read_topic_index,
    topic_index_path,
    write_topic_index,
)
from embermq.store.log.errors import LogError
from embermq.store.log.reader import LogReader
from embermq.store.log.writer import Log
from embermq.store.segment import Segment

BATCH_RECORDS: Final = 10_000
"""How many records are read at once: some milliseconds."""
WORK_SHARE: Final = 0.25
"""How much of the time the thread works; the rest it leaves the interpreter to the other threads."""

_logger: Final = logging.getLogger("embermq.store")


@final
class TopicIndexer:
    """All methods are called on the committer's thread, `close` after that has ended."""

    def __init__(self, log: Log) -> None:
        self._log: Final = log
        self._next_offset = log.newest_segment  # older segments were closed before, and may have an index
        self._stop: Final = Event()
        self._worker: NamedThread | None = None

    def segment_begins(self) -> None:
        """A segment has begun, so the one before it is closed."""
        if self._worker is not None and self._worker.is_alive():
            return  # the next one takes those that this one has not seen
        worker = NamedThread(self._run, "ember-indexer")
        try:
            worker.start()
        except RuntimeError:  # no more threads
            return
        self._worker = worker

    def wait(self) -> None:
        """Wait for what was begun."""
        if self._worker is not None:
            self._worker.join()

    def close(self) -> None:
        """Give up what is being made."""
        self._stop.set()
        self.wait()

    def _run(self) -> None:
        for segment in self._log.segments()[:-1]:
            if segment.first_offset < self._next_offset or not segment.blocks:
                continue
            try:
                self._index(segment)
            except (OSError, LogError) as error:  # such as trimmed meanwhile
                _logger.info("no topic index for %s: %s", segment.path, error)
            if self._stop.is_set():
                return
            self._next_offset = segment.next_offset

    def _index(self, segment: Segment) -> None:
        directory = self._log.directory
        path = topic_index_path(directory, segment.first_offset)
        if read_topic_index(path, segment.next_offset) is not None:
            return
        reader = LogReader(directory, verify=False)
        builder = TopicIndexBuilder()
        began_s = monotonic()
        for run in reader.runs(segment.first_offset, segment.next_offset, rows=BATCH_RECORDS):
            for block in run.blocks():
                builder.add(block)
            if self._stop.wait((monotonic() - began_s) * (1 / WORK_SHARE - 1)):
                return
            began_s = monotonic()
        write_topic_index(path, builder.index(), segment.next_offset)
