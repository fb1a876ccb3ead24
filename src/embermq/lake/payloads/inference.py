"""A typed table proposed from a sample of messages: its format, its columns, and the levels of the topics.

Owns: which format the payloads have, and which type fits the values of a field.
Never: a value of a payload in what it proposes, except the levels of topics that the filter names.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from embermq.history.source import ReadableLog
from embermq.lake.errors import LakeError
from embermq.lake.payloads.reader import payload_reader
from embermq.lake.payloads.self_describing import cbor_documents, msgpack_documents
from embermq.lake.payloads.strict_json import json_documents, number_document
from embermq.lake.payloads.values import Misfit, converter
from embermq.lake.rows import rows
from embermq.lake.schema import LOG, TIMESTAMP, TYPED_KEYS
from embermq.lake.typed_tables import TypedTable, reserved_names
from embermq.store.rows import Kind

SAMPLE_MAX: Final = 1_000
"""The most messages that a table is proposed from."""
COLUMNS_MAX: Final = 500
DEPTH_MAX: Final = 8
_LEVEL: Final = re.compile(r"[^a-z0-9_]+")
_NAME: Final = re.compile(r"\w+", re.ASCII)
_NOT_ALLOWED: Final = re.compile(r"[ ,;{}()\n\t=`]")

_STEP_RECORDS: Final = 50_000
_RECORDS_MAX: Final = 1_000_000
"""How far the log is read back for a sample."""

Message = tuple[str, bytes]


@dataclass(frozen=True)
class Proposal:
    """The settings of a table, and what is to be known of them."""

    settings: Mapping[str, Any]
    remarks: Sequence[str]

    def toml(self) -> str:
        """The block for the settings file."""
        import json

        lines = [f"{key} = {_toml(value, json.dumps)}" for key, value in self.settings.items()]
        return "\n".join([*(f"# {remark}" for remark in self.remarks), "[[pipeline.tables]]", *lines])


def _toml(value: Any, quoted: Callable[[str], str]) -> str:
    if isinstance(value, dict):
        pairs = (f"{quoted(key)} = {_toml(each, quoted)}" for key, each in value.items())
        return "{ " + ", ".join(pairs) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(_toml(each, quoted) for each in value) + "]"
    return quoted(value)


def propose(topic_filter: str, messages: Sequence[Message], name: str | None = None) -> Proposal:
    """A table for these messages of a filter. LakeError if no format is found."""
    payloads = [payload for _, payload in messages if payload]
    if not payloads:
        raise LakeError(f"there is no message with a payload for {topic_filter}: publish some, or name another filter")
    found, fitting = _format_of([topic for topic, _ in messages], payloads)
    settings: dict[str, Any] = {"name": name or _table_name(topic_filter), "filter": topic_filter, "format": found}
    remarks: list[str] = []
    levels = _levels(topic_filter)
    taken = {column.name for column in TYPED_KEYS} | {level for level in levels if level}
    if found in ("json", "cbor", "msgpack"):
        shape = _Shape()
        for document in fitting:
            shape.see(document, 0)
        columns, aliases = shape.columns(taken, remarks)
        if not columns:
            raise LakeError(f"the payloads of {topic_filter} are {found} without a field that could be a column")
        settings["schema"] = ", ".join(columns)
        if aliases:
            settings["aliases"] = aliases
    if any(levels) and found != "sparkplug":
        settings["levels"] = levels
    table = TypedTable.model_validate(settings)
    if found != "sparkplug":
        read = payload_reader(table).read_array(pa.array(payloads, pa.binary()))
        rejected = len(payloads) - read.field("reason").null_count
        remarks.insert(0, f"From {len(payloads)} messages, of which {rejected} would be rejected.")
    return Proposal(settings, remarks)


def sample(log: ReadableLog, topic_filter: str) -> list[Message]:
    """The newest messages of a filter that have a payload, among the newest records of the log."""
    first, end = log.bounds()
    least = max(first, end - _RECORDS_MAX)
    found: list[Message] = []
    while end > least and len(found) < SAMPLE_MAX:
        start = max(least, end - _STEP_RECORDS)
        piece: list[Message] = []
        for batch in rows(log, LOG.arrow("topic", "payload"), start, end, (Kind.PUBLISH,), topic_filter):
            piece += zip(batch["topic"].to_pylist(), batch["payload"].to_pylist(), strict=True)
            piece = [message for message in piece if message[1]][-SAMPLE_MAX:]
        found = [*piece, *found][-SAMPLE_MAX:]
        end = start
    return found


def _format_of(topics: Iterable[str], payloads: Sequence[bytes]) -> tuple[str, list[Any]]:
    """The format that most of the payloads have, at least half of them, and their documents."""
    if all(topic.startswith("spBv1.0/") for topic in topics):
        return "sparkplug", []
    decoders: list[tuple[str, Callable[[bytes], Any]]] = [("number", number_document), ("json", json_documents(True))]
    for name, make in (("cbor", cbor_documents), ("msgpack", msgpack_documents)):
        try:
            decoders.append((name, make()))
        except ModuleNotFoundError:
            continue
    best: tuple[str, list[Any]] = ("", [])
    for name, decode in decoders:
        documents = [found for payload in payloads if type(found := _decoded(decode, payload)) is dict]
        if len(documents) > len(best[1]):
            best = name, documents
    if 2 * len(best[1]) >= len(payloads):
        return best
    if sum(_is_text(payload) for payload in payloads) * 2 >= len(payloads):
        return "text", []
    raise LakeError(
        "the payloads are not numbers, text, or objects of JSON, CBOR or MessagePack; avro and protobuf need a "
        "schema_file, which cannot be guessed"
    )


def _decoded(decode: Callable[[bytes], Any], payload: bytes) -> Any:
    try:
        return decode(payload)
    except Misfit:
        return None


def _is_text(payload: bytes) -> bool:
    try:
        payload.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _table_name(topic_filter: str) -> str:
    """The first level that has a name."""
    for level in topic_filter.split("/"):
        name = _LEVEL.sub("_", level.lower()).strip("_")
        if name and name[0].isalpha() and name not in reserved_names():
            return name[:60]
    return "payloads"


def _levels(topic_filter: str) -> list[str]:
    """A column for each level that a filter leaves open."""
    levels = topic_filter.split("/")
    found = [f"level_{number}" if level == "+" else "" for number, level in enumerate(levels, 1)]
    while found and not found[-1]:
        found.pop()
    return found


@dataclass
class _Shape:
    """What has been seen in one place of the documents."""

    kinds: set[str] = field(default_factory=set)
    fields: dict[str, "_Shape"] = field(default_factory=dict)
    element: "_Shape | None" = None

    def see(self, value: Any, depth: int) -> None:
        """Take a value into account."""
        if value is None:
            return
        kind = _kind(value)
        if depth > DEPTH_MAX:
            kind = "something nested too deeply"
        self.kinds.add(kind)
        if kind == "struct":
            for name, each in value.items():
                if name in self.fields or len(self.fields) < COLUMNS_MAX:
                    self.fields.setdefault(name, _Shape()).see(each, depth + 1)
        elif kind == "array":
            self.element = self.element or _Shape()
            for each in value:
                self.element.see(each, depth + 1)

    def columns(self, taken: set[str], remarks: list[str]) -> tuple[list[str], dict[str, list[str]]]:
        """The columns of the outermost fields, and the aliases of those whose name is used already."""
        columns, aliases = [], {}
        used = {name.lower() for name in taken}
        for name, shape in self.fields.items():
            kind = shape.type_name()
            if not isinstance(name, str) or not name or _NOT_ALLOWED.search(name):
                remarks.append(f"The field {_printable(name)} is left out: it cannot be the name of a column.")
                continue
            if kind is None:
                remarks.append(f"The field {_printable(name)} is left out: it has {shape.seen()}.")
                continue
            column = name
            if column.lower() in used:
                column = f"payload_{name}"
                aliases[column] = [name]
            if column.lower() in used:
                remarks.append(f"The field {_printable(name)} is left out: there is one of this name.")
                del aliases[column]
                continue
            used.add(column.lower())
            columns.append(f"{_quoted(column)} {kind}")
        if len(self.fields) >= COLUMNS_MAX:
            remarks.append(f"There may be more fields: at most {COLUMNS_MAX} are proposed.")
        return columns, aliases

    def type_name(self) -> str | None:
        """The type of a column for all that was seen; None if there is no such type."""
        kinds = self.kinds
        if kinds == {"struct"}:
            inside = [(name, shape.type_name()) for name, shape in self.fields.items() if isinstance(name, str)]
            named = [
                f"{_quoted(name)}: {kind}" for name, kind in inside if kind and name and not _NOT_ALLOWED.search(name)
            ]
            lower = [name.lower() for name, _ in inside]
            return f"struct<{', '.join(named)}>" if named and len({*lower}) == len(lower) else None
        if kinds == {"array"}:
            of_element = self.element.type_name() if self.element is not None else None
            return f"array<{of_element}>" if of_element else None
        if kinds and kinds <= {"long", "double"}:
            return "double" if "double" in kinds else "long"
        if kinds and kinds <= {"timestamp as text", "date as text", "string"}:
            return next(iter(kinds)).removesuffix(" as text") if len(kinds) == 1 else "string"
        if kinds and (kinds <= {"timestamp", "timestamp as text"} or kinds <= {"date", "date as text"}):
            return next(iter(kinds)).removesuffix(" as text")
        return next(iter(kinds)) if len(kinds) == 1 and kinds <= {"boolean", "binary"} else None

    def seen(self) -> str:
        """What was seen, in words."""
        if len(self.kinds) > 1:
            return "values of several types: " + ", ".join(sorted(self.kinds))
        return "no value" if not self.kinds else f"no type for {next(iter(self.kinds))}"


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "long" if -(1 << 63) <= value < 1 << 63 else "double"
    if isinstance(value, str):
        return _kind_of_text(value)
    for python, kind in _KINDS.items():
        if isinstance(value, python):
            return kind
    return type(value).__name__


_KINDS: Final[dict[type, str]] = {
    float: "double",
    Decimal: "double",
    bytes: "binary",
    datetime: "timestamp",
    date: "date",
    dict: "struct",
    list: "array",
}


def _kind_of_text(value: str) -> str:
    for kind, type_name in ((TIMESTAMP, "timestamp"), (pa.date32(), "date")):
        try:
            converter(kind)(value)
        except Misfit:
            continue
        return f"{type_name} as text"
    return "string"


def _quoted(name: str) -> str:
    return name if _NAME.fullmatch(name) else f"`{name}`"


def _printable(name: object) -> str:
    return ascii(name)[:80]
