"""Typed tables: a topic filter and a schema give a table of typed columns, and one of rejects.

    [[pipeline.tables]]
    name = "air"
    filter = "air/+/+"
    format = "number"                # the payload is a number as text: one column, `value`
    levels = ["", "station", "measure"]

    [[pipeline.tables]]
    name = "status"
    filter = "plant/+/status"
    format = "json"
    schema = "state string, load double, tags array<string>"

    [[pipeline.tables]]
    name = "readings"
    filter = "line/+/readings"
    format = "protobuf"
    schema_file = "plant.desc"       # written by protoc
    message = "plant.Readings"
    explode = "samples"              # a row for each element
    schema = "machine string, at timestamp, value double"

Owns: these settings, the sentence for a wrong one, and the columns that such a table has.
Importing this module imports no pyarrow: the server reads its settings without it.
"""

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Final, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator, model_validator

from embermq.lake.lake import STATE_DIRECTORY, Lake
from embermq.lake.made_from import Definition, check_definition

if TYPE_CHECKING:
    import pyarrow as pa

    from embermq.lake.schema import Table

Format = Literal["json", "cbor", "msgpack", "avro", "protobuf", "csv", "text", "number", "sparkplug"]
WHOLE_DOCUMENT: Final = "."
"""As `explode`: the payload itself is the array."""
_DOCUMENTS: Final = ("json", "cbor", "msgpack", "avro", "protobuf")
"""Formats of documents, from which a schema takes fields by their names."""
_WITHOUT_BYTES: Final = ("json", "csv")
_NEEDED_BY: Final = {
    "columns": (*_DOCUMENTS, "csv"),
    "schema_file": ("avro", "protobuf"),
    "message": ("protobuf",),
}
"""The settings that some formats need, and the others do not have."""
_EXPECTED: Final = {
    "columns": "columns as in 'a double, b string'",
    "schema_file": "a file (Avro: also a directory of NUMBER.avsc)",
    "message": "the name of a message with its package, as in 'plant.Reading'",
}
_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,62}")


def reserved_names() -> tuple[str, ...]:
    """The names that are something else in a lake."""
    from embermq.lake.schema import AS_OF_FUNCTION, HISTORY_VIEW, KNOWN_VIEW, LOG, TABLES

    return (*TABLES, HISTORY_VIEW, KNOWN_VIEW, AS_OF_FUNCTION, STATE_DIRECTORY, LOG.name)


def table_name(name: str) -> str:
    """A name for a table. ValueError if it cannot be one."""
    if not _NAME.fullmatch(name) or name in reserved_names():
        raise ValueError(f"expected small letters, digits and _, and none of {', '.join(reserved_names())}")
    return name


def _filter(text: str) -> str:
    from embermq.lake.topic_masks import filter_problem

    problem = filter_problem(text)
    if problem is not None:
        raise ValueError(f"expected an MQTT topic filter ({problem})")
    return text


def _listed(formats: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(formats[:-1]), formats[-1])))


class TypedTable(BaseModel):
    """One table of typed payloads."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    name: Annotated[str, AfterValidator(table_name)]
    topic_filter: Annotated[str, AfterValidator(_filter), Field(alias="filter")]
    format: Format
    columns: Annotated[str, Field(alias="schema")] = ""
    schema_file: str = ""
    """Avro: a schema, or a directory of NUMBER.avsc for payloads with the header of a registry. Protobuf: a descriptor
    set."""
    message: str = ""
    """The message of Protobuf, with its package."""
    explode: str = ""
    """The field that is an array with a row for each element; WHOLE_DOCUMENT if the payload is that array."""
    aliases: dict[str, tuple[str, ...]] = {}
    """For a column, the fields that it is read from where a payload lacks the one of its own name."""
    levels: tuple[str, ...] = ()
    """The names of columns for levels of the topic; empty for one that is not wanted."""

    @field_validator("columns")
    @classmethod
    def _check_columns(cls, text: str) -> str:
        from embermq.lake.typed_schema import parse_schema

        if text:
            parse_schema(text)
        return text

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        for key, formats in _NEEDED_BY.items():
            if (self.format in formats) != bool(getattr(self, key)):
                name = "schema" if key == "columns" else key
                raise ValueError(f"{name}: expected {_EXPECTED[key]}, for {_listed(formats)} only")
        if self.explode and self.format not in _DOCUMENTS:
            raise ValueError(f"explode: expected none, since only {_listed(_DOCUMENTS)} have arrays")
        self._check_types()
        for column in self.aliases:
            if self.format not in _DOCUMENTS or column not in self.values().names:
                raise ValueError(f"aliases: {column}: expected a column of schema, of {_listed(_DOCUMENTS)}")
        names = [name.lower() for name in self.table().names]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"levels: the column {name!r} is used twice")
        return self

    def _check_types(self) -> None:
        """ValueError if the format has no values for a type."""
        from embermq.lake.schema import spark_sql

        types = [(field.name, spark_sql(field.type)) for field in self.values()]
        for name, kind in types:
            if self.format in _WITHOUT_BYTES and "binary" in kind:
                raise ValueError(f"schema: the column {name!r} is binary, and {self.format} has no bytes")
            if self.format == "csv" and "<" in kind:
                raise ValueError(f"schema: the column {name!r} is {kind}, and a value of csv is one text")

    @property
    def has_many_rows(self) -> bool:
        """Whether a payload may give several rows, or none."""
        return bool(self.explode) or self.format in ("csv", "sparkplug")

    def values(self) -> "pa.Schema":
        """The columns that come from the payload."""
        import pyarrow as pa

        from embermq.lake.typed_schema import parse_schema

        if self.columns:
            return parse_schema(self.columns)
        if self.format == "sparkplug":
            from embermq.lake.payloads.sparkplug import COLUMNS

            return COLUMNS
        return pa.schema([("value", pa.float64() if self.format == "number" else pa.string())])

    def type_at(self, path: str) -> "pa.DataType | None":
        """The type of a column, or of a field of one: "load.cpu"; None if there is none."""
        import pyarrow as pa

        kind: pa.DataType = pa.struct(self.values())
        for name in path.split("."):
            if not pa.types.is_struct(kind) or kind.get_field_index(name) < 0:
                return None
            kind = kind.field(name).type
        return kind

    def definition(self) -> Definition:
        """The settings that decide what the rows are, each in one form."""
        import pyarrow as pa

        from embermq.lake.schema import spark_sql

        levels = list(self.levels)
        while levels and not levels[-1]:
            levels.pop()
        schema = spark_sql(pa.struct(self.values()))
        return {
            "filter": self.topic_filter,
            "format": self.format,
            "schema": schema,
            "levels": levels,
            "message": self.message or None,
            "explode": self.explode or None,
            "aliases": {column: list(names) for column, names in sorted(self.aliases.items())} or None,
        }

    def check(self, lake: Lake) -> None:
        """LakeError if a lake has the table, made from other settings."""
        check_definition(lake, self.name, self.definition())

    def table(self) -> "Table":
        """The table of payloads that fit."""
        from embermq.lake.schema import STRING, typed_table

        levels = [(name, STRING) for name in self.levels if name]
        return typed_table(self.name, [*levels, *((field.name, field.type) for field in self.values())])

    def rejects(self) -> "Table":
        """The table of those that do not."""
        from embermq.lake.schema import rejects_of

        return rejects_of(self.name)

    def tables(self) -> "tuple[Table, ...]":
        """All of its tables: those of payloads and of rejects, and what is known of the nodes of Sparkplug B."""
        from embermq.lake.schema import births_of

        births = (births_of(self.name),) if self.format == "sparkplug" else ()
        return (self.table(), self.rejects(), *births)


def typed_table_of(name: str, tables: Iterable[TypedTable]) -> TypedTable:
    """The one of these tables whose values are to be taken. ValueError if there is none."""
    named = {table.name: table for table in tables if table.format != "sparkplug"}
    if name not in named:
        known = ", ".join(named) or "there is none"
        raise ValueError(f"table: expected a typed table, of another format than sparkplug ({known})")
    return named[name]


def is_number(kind: "pa.DataType") -> bool:
    """Whether a type has numbers."""
    import pyarrow as pa

    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))
