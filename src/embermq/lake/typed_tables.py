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

Owns: these settings, the sentence for a wrong one, and the columns that such a table has.
Importing this module imports no pyarrow: the server reads its settings without it.
"""

import re
from typing import TYPE_CHECKING, Annotated, Final, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator, model_validator

from embermq.lake.definitions import Definition, check_definition
from embermq.lake.lake import STATE_DIRECTORY, Lake

if TYPE_CHECKING:
    import pyarrow as pa

    from embermq.lake.schema import Table

_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,62}")


def reserved_names() -> tuple[str, ...]:
    """The names that are something else in a lake."""
    from embermq.lake.schema import AS_OF_FUNCTION, HISTORY_VIEW, KNOWN_VIEW, LOG, TABLES

    return (*TABLES, HISTORY_VIEW, KNOWN_VIEW, AS_OF_FUNCTION, STATE_DIRECTORY, LOG.name)


def _table_name(name: str) -> str:
    if not _NAME.fullmatch(name) or name in reserved_names():
        raise ValueError(f"expected small letters, digits and _, and none of {', '.join(reserved_names())}")
    return name


def _filter(text: str) -> str:
    from embermq.lake.topic_masks import filter_problem

    problem = filter_problem(text)
    if problem is not None:
        raise ValueError(f"expected an MQTT topic filter ({problem})")
    return text


class TypedTable(BaseModel):
    """One table of typed payloads."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    name: Annotated[str, AfterValidator(_table_name)]
    topic_filter: Annotated[str, AfterValidator(_filter), Field(alias="filter")]
    format: Literal["json", "number"]
    columns: Annotated[str, Field(alias="schema")] = ""
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
        if (self.format == "json") != bool(self.columns):
            raise ValueError("schema: expected columns as in 'a double, b string', for json only")
        names = [name.lower() for name in self.table().names]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"levels: the column {name!r} is used twice")
        return self

    def values(self) -> "pa.Schema":
        """The columns that come from the payload."""
        import pyarrow as pa

        from embermq.lake.typed_schema import parse_schema

        return parse_schema(self.columns) if self.format == "json" else pa.schema([("value", pa.float64())])

    def definition(self) -> Definition:
        """The settings that decide what the rows are, each in one form."""
        import pyarrow as pa

        from embermq.lake.schema import spark_sql

        levels = list(self.levels)
        while levels and not levels[-1]:
            levels.pop()
        schema = spark_sql(pa.struct(self.values()))
        return {"filter": self.topic_filter, "format": self.format, "schema": schema, "levels": levels}

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
