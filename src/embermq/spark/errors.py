"""The errors of the pipeline. Each is one sentence for the user, who sees no stack trace."""

import re
from typing import Final

# `Path` makes one slash of two. A drive of Windows has one letter.
_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")


class PipelineError(Exception):
    """The pipeline cannot go on. The tables have lost nothing and have no row twice."""


class JavaMissing(PipelineError):
    """No Java that Spark can run on was found."""


class JavaNotStarted(PipelineError):
    """Spark's Java process ended while it started."""


class SparkMissing(PipelineError):
    """The Spark packages are not installed."""


class SqlMissing(PipelineError):
    """The packages for queries without Spark are not installed."""


class LakeError(PipelineError):
    """This version may not write to the lake, or another pipeline writes to it."""


class OptionError(PipelineError, ValueError):
    """An option of the source or the sink is wrong."""


def bad_option(option: str, value: object, expected: str) -> OptionError:
    """The error that names the option, its value and what was expected."""
    return OptionError(f"option {option!r} is {value!r}: expected {expected}")


def is_url(place: str) -> bool:
    """Whether a text is a URL (s3a://..., hdfs://..., file://...) where a directory is expected."""
    return _URL.match(place) is not None
