"""Spark looks for modules named `pyspark_*` and registers their `DefaultSource`: this one is the format "embermq"."""

from embermq.spark.data_source import EmberDataSource as DefaultSource

__all__ = ["DefaultSource"]
