"""The errors of the pipeline. Each is one sentence for the user, who sees no stack trace."""

import re
from datetime import datetime
from typing import Final

# `Path` makes one slash of two. A drive of Windows has one letter.
_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
_REASON: Final = re.compile(r"^(?:Caused by: )?([\w.$]+): (.+)$", re.MULTILINE)


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


class LeaseLost(LakeError):
    """Another pipeline has taken over the lake while this one ran: this one can commit nothing any more, and ends."""


REMOVED: Final = "removed by the retention of the lake"
"""Why there is a gap in the table `gaps` that the pipeline has made itself."""


class NotKnown(PipelineError):
    """The retained set at an instant is not known: the lake does not reach back, or has not come that far."""


class InGap(NotKnown):
    """It lies in a gap: records were trimmed before the pipeline had read them, or rows were removed from the lake."""

    def __init__(self, instant: datetime, from_offset: int, to_offset: int, known_from: datetime, why: str) -> None:
        reason = REMOVED if why == REMOVED else "trimmed before the pipeline had read them"
        super().__init__(
            f"the retained set at {instant.isoformat()} is not known: offsets {from_offset} to {to_offset} were "
            f"{reason}; it is known again from {known_from.isoformat()} on"
        )


class OptionError(PipelineError, ValueError):
    """An option of the source or the sink is wrong."""


def bad_option(option: str, value: object, expected: str) -> OptionError:
    """The error that names the option, its value and what was expected."""
    return OptionError(f"option {option!r} is {value!r}: expected {expected}")


def is_url(place: str) -> bool:
    """Whether a text is a URL (s3a://..., hdfs://..., file://...) where a directory is expected."""
    return _URL.match(place) is not None


class ServerUnreachable(PipelineError):
    """The server that has the log does not answer."""


class ServerRefused(PipelineError):
    """The server that has the log has refused a request; `sentence` is what it says."""

    def __init__(self, status: int, url: str, sentence: str) -> None:
        super().__init__(status, url, sentence)
        self.status = status
        self.sentence = sentence
        self.url = url

    def __str__(self) -> str:
        return f"{self.url} refuses: {self.sentence}"


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
