"""Fields: the types that requests and answers of several resources share.

Owns: how a filter, an instant or a number is read from a request, and what the OpenAPI document says about it.
An answer is written in ASCII: other characters, which a client may have chosen to confuse a terminal, are escaped.
"""

import json
import time
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from typing import Annotated, Any, Final, Generic, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from embermq.broker.operator import wrong_topic_filter, wrong_topic_name
from embermq.instants import EXPECTED, instant_us, utc_text

PAGE_ITEMS: Final = 100
PAGE_ITEMS_MAX: Final = 1_000
OFFSET_MAX: Final = (1 << 63) - 1
TEXT_MAX: Final = 65_535
NDJSON: Final = "application/x-ndjson"

_LEVEL: Final = "[^+#/\\u0000]*"
_TOPIC_FILTER: Final = rf"^(#|({_LEVEL}|\+)(/({_LEVEL}|\+))*(/#)?)$"
_TOPIC_NAME: Final = r"^[^+#\u0000]+$"
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


def _instant(text: str) -> str:
    try:
        instant_us(text)
    except ValueError:
        raise ValueError(f"expected {EXPECTED}") from None
    return text


def _number(value: object) -> object:
    """Numbers in a query are digits; pydantic alone would take ' 1', '1_0' and '1.0' as well."""
    if isinstance(value, str) and not (value.isascii() and value.isdigit()):
        raise ValueError("expected a number that is not negative")
    return value


def _base64(text: str) -> str:
    try:
        b64decode(text, validate=True)
    except (Base64Error, ValueError):
        raise ValueError("expected base64") from None
    return text


TopicFilter = Annotated[
    str,
    AfterValidator(_topic_filter),
    Field(
        description="Topic filter, such as home/+/temperature or home/#.",
        json_schema_extra={"minLength": 1, "pattern": _TOPIC_FILTER, "maxLength": TEXT_MAX // 4},
    ),
]
TopicName = Annotated[
    str,
    AfterValidator(_topic_name),
    Field(
        description="Topic name, without wildcards.",
        json_schema_extra={"minLength": 1, "pattern": _TOPIC_NAME, "maxLength": TEXT_MAX // 4},
    ),
]
Instant = Annotated[
    str,
    AfterValidator(_instant),
    Field(description=f"{EXPECTED[0].upper()}{EXPECTED[1:]}.", json_schema_extra={"pattern": _INSTANT}),
]
Base64 = Annotated[str, AfterValidator(_base64), Field(json_schema_extra={"contentEncoding": "base64"})]
Limit = Annotated[
    int, BeforeValidator(_number), Field(ge=1, le=PAGE_ITEMS_MAX, description="How many items a page has at most.")
]
Offset = Annotated[int, BeforeValidator(_number), Field(ge=0, le=OFFSET_MAX, description="An offset of the log.")]
Size = Annotated[int, BeforeValidator(_number), Field(ge=0, le=OFFSET_MAX)]
ClientId = Annotated[str, Field(min_length=1, max_length=TEXT_MAX)]
Cursor = Annotated[
    str, Field(max_length=2 * TEXT_MAX, description="The `next` of the page before; empty for the first.")
]
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


def past_us(text: str | None) -> int | None:
    """The instant that a request names. In the future: the last microsecond, since nothing is known of later ones."""
    return None if text is None else instant_us(text)


def now_us() -> int:
    return time.time_ns() // 1000


def shown_instant(instant_us: int) -> str | None:
    """An instant in an answer; None for 0, which stands for none."""
    return utc_text(instant_us) if instant_us else None


def shown_bytes(name: str, value: bytes) -> dict[str, str]:
    """Bytes as text if they are UTF-8, otherwise as base64 under a name that says so."""
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": b64encode(value).decode()}


def json_text(value: Any) -> str:
    """JSON in ASCII, without spaces."""
    return json.dumps(value, separators=(",", ":"))
