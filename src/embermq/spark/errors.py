"""What the pipeline refuses, in one sentence each: a person reads these, not a trace."""


class PipelineError(Exception):
    """The pipeline cannot go on; nothing is lost and nothing is there twice."""


class JavaMissing(PipelineError):
    """No Java that Spark can run on was found."""


class JavaNotStarted(PipelineError):
    """Spark's Java process ended before it was there."""


class SparkMissing(PipelineError):
    """The Spark packages are not installed."""


class LakeError(PipelineError):
    """The lake is not one that this version may write to, or another pipeline holds it."""


class OptionError(PipelineError, ValueError):
    """An option of the source or the sink is wrong."""


def bad_option(option: str, value: object, expected: str) -> OptionError:
    """The error that names the option, its value and what was expected."""
    return OptionError(f"option {option!r} is {value!r}: expected {expected}")
