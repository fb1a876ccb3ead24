"""Reading the log into Spark as a stream of micro-batches. It needs Spark 4.2 (`data_source` says so).

Owns: the offsets of a stream.
Never: state in `read`. The same range gives the same rows, in any process, at any time.
"""

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from embermq.history.opening import open_log
from embermq.lake.stream_offsets import StreamOffset, check_same_log, stream_offset
from embermq.spark.options import SourceOptions
from embermq.spark.source.reader import (
    OffsetRange,
    behind_lost,
    prepare_worker,
    report_gap,
    source_rows,
    split,
    starting_offset,
)
from embermq.store.log.errors import LogTrimmed
from embermq.store.log.identity import past_lost


class EmberStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Micro-batches of the log. Spark keeps one of these beside the driver; pickled copies of it read in the tasks."""

    def __init__(self, options: SourceOptions, columns: pa.Schema) -> None:
        self.options = options
        self.columns = columns
        self.stop_at: int | None = None  # Trigger.AvailableNow: where the log ended when the query began

    def initialOffset(self) -> StreamOffset:
        log = open_log(self.options.location)
        return stream_offset(log, max(starting_offset(self.options, log), 0))

    def getDefaultReadLimit(self) -> ReadLimit:
        most = self.options.max_records_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def latestOffset(self, start: StreamOffset, limit: ReadLimit) -> StreamOffset:
        log = open_log(self.options.location)
        check_same_log(log, start)
        first, end = log.bounds()
        begin = int(start["offset"])
        if begin < first:
            if self.options.fail_on_data_loss:
                raise LogTrimmed(begin, first)
            report_gap(begin, first)
        behind_lost(log, begin, self.options.fail_on_data_loss)
        if self.stop_at is not None:
            end = min(end, self.stop_at)
        if isinstance(self.options.ending, int):
            end = min(end, self.options.ending)
        if isinstance(limit, ReadMaxRows):
            end = min(end, max(begin, first) + limit.max_rows)
        end = past_lost(log.lost(), end)
        # After a loss of power the index may be short until the server has rebuilt it; a stream must not go back.
        return start if end <= begin else stream_offset(log, end)

    def prepareForTriggerAvailableNow(self) -> None:
        self.stop_at = open_log(self.options.location).bounds()[1]

    def reportLatestOffset(self) -> StreamOffset:
        log = open_log(self.options.location)
        return stream_offset(log, log.bounds()[1])

    def partitions(self, start: StreamOffset, end: StreamOffset) -> Sequence[InputPartition]:
        begin, until = int(start["offset"]), int(end["offset"])
        if begin >= until:
            return []
        log = open_log(self.options.location)
        begin = behind_lost(log, begin, self.options.fail_on_data_loss)
        return split(log.ranges(begin, until), self.options.min_partitions)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, OffsetRange)
        prepare_worker()
        return source_rows(self.options, self.columns, partition)
