"""Fields: the types that requests and answers of several resources share.

Owns: how a filter, an instant or a number is read from a request, and what the OpenAPI document says about it.
An answer is written in ASCII: other characters, which a client may have chosen to confuse a terminal, are escaped.
"""

import json
import re
import time
from typing import Annotated, Any, Final, Generic, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from embermq.broker.operator import wrong_topic_filter, wrong_topic_name
from embermq.http.refusal import HttpRefusal
from embermq.instants import EXPECTED, instant_us, utc_text

PAGE_ITEMS: Final = 100
PAGE_ITEMS_MAX: Final = 1_000
OFFSET_MAX: Final = (1 << 63) - 1
NDJSON: Final = "application/x-ndjson"

_LEVEL: Final = "[^+#/\\u0000]*"
_TOPIC_FILTER: Final = rf"^(#|({_LEVEL}|\+)(/({_LEVEL}|\+))*(/#)?)$"
_TOPIC_NAME: Final = r"^[^+#\u0000]+$"
_TOPIC_PREFIX: Final = r"^[^+#\u0000]*$"
_BASE64: Final = "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"
_INSTANT: Final = (
    r"^(now|[0-9]{1,10}(\.[0-9]{1,6})?|[0-9]{1,6}[smhd]"
    r"|[0-9]{4}-[0-9]{2}-[0-9]{2}(T[0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?(Z|[+-][0-9]{2}:[0-9]{2})?)?)$"
)

T = TypeVar("T")


def _topic_filter(text: str) -> str:
    wrong = wrong_topic_filter(text)
    if wrong:
        raise ValueError(f"expected a topic filter: {wrong}")
    return text


def _topic_name(text: str) -> str:
    wrong = wrong_topic_name(text)
    if wrong:
        raise ValueError(f"expected a topic name: {wrong}")
    return text


def _topic_prefix(text: str) -> str:
    """A topic name, or the empty level that a topic name may begin with."""
    return _topic_name(text) if text else text


def _instant(text: str) -> str:
    if not re.fullmatch(_INSTANT, text):
        raise ValueError(f"expected {EXPECTED}")
    return text


def digits(value: object) -> object:
    """Numbers in a query are digits; pydantic alone would take ' 1', '1_0' and '1.0' as well."""
    if isinstance(value, str) and not (value.isascii() and value.isdigit()):
        raise ValueError("expected a number that is not negative")
    return value


def whole_number(value: object) -> object:
    """JSON has one kind of number: 1.0 is 1."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _base64(text: str) -> str:
    if not re.fullmatch(_BASE64, text):
        raise ValueError("expected base64")
    return text


def between(lowest: int, highest: int, description: str, example: int) -> Any:
    """The bounds of a number; pydantic leaves them out of the schema of a type with a validator."""
    bounds: Any = {"minimum": lowest, "maximum": highest, "examples": [example]}
    return Field(ge=lowest, le=highest, description=description, json_schema_extra=bounds)


TopicFilter = Annotated[
    str,
    AfterValidator(_topic_filter),
    Field(
        description="Topic filter, such as home/+/temperature or home/#.",
        json_schema_extra={"minLength": 1, "pattern": _TOPIC_FILTER, "examples": ["plant/+/temperature"]},
    ),
]
TopicName = Annotated[
    str,
    AfterValidator(_topic_name),
    Field(
        description="Topic name, without wildcards.",
        json_schema_extra={"minLength": 1, "pattern": _TOPIC_NAME, "examples": ["plant/7/temperature"]},
    ),
]
TopicPrefix = Annotated[
    str,
    AfterValidator(_topic_prefix),
    Field(
        description="The first levels of a topic name; an empty text is the empty first level of topics such as /a.",
        json_schema_extra={"pattern": _TOPIC_PREFIX, "examples": ["plant/7"]},
    ),
]
Instant = Annotated[
    str,
    AfterValidator(_instant),
    Field(
        description=f"{EXPECTED[0].upper()}{EXPECTED[1:]}.",
        json_schema_extra={"pattern": _INSTANT, "examples": ["15m", "2026-01-31T14:03:07Z"]},
    ),
]
Base64 = Annotated[
    str,
    AfterValidator(_base64),
    Field(
        description="Bytes, as base64.",
        json_schema_extra={"contentEncoding": "base64", "pattern": _BASE64, "examples": ["/wA="]},
    ),
]
Limit = Annotated[int, BeforeValidator(digits), between(1, PAGE_ITEMS_MAX, "How many items a page has at most.", 100)]
Offset = Annotated[int, BeforeValidator(digits), between(0, OFFSET_MAX, "An offset of the log.", 1)]
Size = Annotated[int, BeforeValidator(digits), between(0, OFFSET_MAX, "A number of bytes.", 200)]
ClientId = Annotated[str, Field(min_length=1, description="Client identifier.", examples=["pump-7"])]
Cursor = Annotated[str, Field(description="The `next` of the page before; empty for the first.", examples=[""])]
Timestamp = Annotated[str, Field(description="UTC, with microseconds.")]


class Model(BaseModel):
    """A request or an answer."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Nothing(Model):
    """A request without parameters, or without a body."""


class Page(Model, Generic[T]):
    """A part of a list. `next` is the cursor of the next page; without it this page is the last."""

    items: list[T]
    next: str | None = None


class Problem(Model):
    """Why a request is refused, in one sentence."""

    error: str


def past_us(name: str, text: str | None) -> int | None:
    """The instant that a parameter names; refused if the calendar has none of it, or it is not between 1970 and now."""
    if text is None:
        return None
    try:
        asked_us = instant_us(text)
    except ValueError:
        asked_us = -1
    if not 0 <= asked_us <= now_us():
        raise HttpRefusal(422, f"{name}: expected an instant between 1970 and now")
    return asked_us


def now_us() -> int:
    return time.time_ns() // 1000


def shown_instant(instant_us: int) -> str | None:
    """An instant in an answer; None for 0, which stands for none."""
    return utc_text(instant_us) if instant_us else None


def json_text(value: Any) -> str:
    """JSON in ASCII, without spaces."""
    return json.dumps(value, separators=(",", ":"))
