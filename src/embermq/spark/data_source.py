"""The format "embermq": `spark.read`, `spark.readStream`, `df.write` and `df.writeStream` with `.format("embermq")`.

It reads the server's log (`source`) and publishes rows to a server (`sink`). Options to read (see `options`):
    path                  the server's data directory, or an archive (s3://, gs://, abfs://, hdfs://, a directory)
    server                http(s)://HOST:PORT of the server's HTTP interface, where its disk is not there; with an
                          archive as `path`, only what the archive does not have is read from the server
    token, tokenFile      for the server, with the role viewer; EMBERMQ_TOKEN of the environment without them
    caFile                the authority of the server's certificate, if it is one of your own
    timeoutSeconds        how long a server that does not answer is asked again (60)
    filter                an MQTT topic filter, applied while reading; only messages have topics, so only they remain
    kinds                 the kinds of records to read, for example "publish,retained_removed"; all of them by default
    startingOffsets       "earliest" (default), "latest" or an offset
    startingTimestamp     an instant, instead of startingOffsets
    endingOffsets         "latest" (default) or the offset after the last one to read
    maxRecordsPerTrigger  the most records of one micro-batch
    minPartitions         how many tasks share a large read, at least
    failOnDataLoss        "false": records that were trimmed are skipped, and the gap is logged

A schema given with `.schema(...)` names the columns to read: Spark does not tell a Python source which ones a query
uses. Options and columns to write are in `sink.writer`.

Owns: the class that Spark asks for readers and writers.
"""

from importlib.util import find_spec

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from embermq.lake.errors import PipelineError
from embermq.spark.errors import bad_option
from embermq.spark.options import parse_sink_options, parse_source_options
from embermq.spark.sink.writer import EmberStreamWriter, EmberWriter, check_sink_schema
from embermq.spark.source.columns import source_schema
from embermq.spark.source.reader import EmberReader, wanted_columns


class EmberDataSource(DataSource):
    """The format "embermq": the server's log to read, the server itself to write to."""

    @classmethod
    def name(cls) -> str:
        return "embermq"

    def schema(self) -> StructType:
        return source_schema(parse_source_options(self.options).kinds)

    def reader(self, schema: StructType) -> DataSourceReader:
        options = parse_source_options(self.options)
        return EmberReader(options, wanted_columns(schema, options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        if find_spec("pyspark.sql.streaming.datasource") is None:  # with which Spark says where a batch begins
            raise PipelineError("a stream of the log needs Spark 4.2 or newer: read it as a batch, or use the pipeline")
        from embermq.spark.source.stream_reader import EmberStreamReader

        options = parse_source_options(self.options)
        return EmberStreamReader(options, wanted_columns(schema, options))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        if overwrite:
            raise bad_option("mode", "overwrite", "append: what is published cannot be taken back")
        options = parse_sink_options(self.options)
        return EmberWriter(options, check_sink_schema(schema, options.order_by))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        options = parse_sink_options(self.options)
        return EmberStreamWriter(options, check_sink_schema(schema, options.order_by))
