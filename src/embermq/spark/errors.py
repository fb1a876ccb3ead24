"""The errors that only Spark's side has. Each is one sentence for the user, who sees no stack trace."""

import re
from typing import Final

from embermq.lake.errors import PipelineError

_REASON: Final = re.compile(r"^(?:Caused by: )?([\w.$]+): (.+)$", re.MULTILINE)


class JavaMissing(PipelineError):
    """No Java that Spark can run on was found."""


class JavaNotStarted(PipelineError):
    """Spark's Java process ended while it started."""


class SparkMissing(PipelineError):
    """The Spark packages are not installed."""


class OptionError(PipelineError, ValueError):
    """An option of the source or the sink is wrong."""


def bad_option(option: str, value: object, expected: str) -> OptionError:
    """The error that names the option, its value and what was expected."""
    return OptionError(f"option {option!r} is {value!r}: expected {expected}")


def whole_text(failure: Exception) -> str:
    """All that Spark says of a failure: the last of the causes is often the useful one."""
    return f"{failure}\n{getattr(failure, '_stackTrace', '')}\n{getattr(failure, 'java_exception', '')}"


def failure_reason(text: str) -> str:
    """The one useful sentence in what Spark says of a failure; its stack traces are in Spark's own log."""
    reasons: list[tuple[str, str]] = _REASON.findall(text)
    ours = [(kind, said) for kind, said in reasons if kind.startswith("embermq.")]
    if ours:
        return ours[-1][1].strip()
    outside = [(kind, said) for kind, said in reasons if "py4j" not in kind and "SparkException" not in kind]
    if outside:
        kind, said = outside[-1]
        return f"{said.strip()} ({kind.rsplit('.', 1)[-1]})"
    return text.strip().splitlines()[0] if text.strip() else "unknown"
