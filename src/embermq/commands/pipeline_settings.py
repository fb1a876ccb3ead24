"""The settings that only the pipeline reads, looked at by those who read the file before it."""

from importlib.util import find_spec
from pathlib import Path

from embermq.errors import ConfigError


def check_pipeline_tables(config: Path) -> None:
    """ConfigError if the pipeline would refuse the typed tables of a file. Without Spark nobody can use them."""
    if find_spec("pyspark") is None:
        return
    from embermq.spark.errors import PipelineError
    from embermq.spark.typed import read_typed_tables

    try:
        read_typed_tables(config)
    except PipelineError as error:
        raise ConfigError(str(error)) from None
