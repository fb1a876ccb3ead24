"""Expectations: what the values of a typed table should be. Those that are not give rows in a table of violations.

    [[pipeline.expectations]]
    table = "air"                    # a typed table; violations are in air_violations
    column = "value"                 # a column, or a field of one: "load.cpu"
    min = -40
    max = 60
    rate_max = 5.0                   # the most change in a second between two values of a topic
    not_null = true

    [[pipeline.expectations]]
    table = "status"
    column = "state"
    allowed = ["on", "off"]

Owns: these settings, and the sentence for a wrong one. How they are checked is in `spark.jobs.expectations`.
Importing this module imports no pyarrow: the server reads its settings without it.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Final, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from embermq.lake.made_from import Definition
from embermq.lake.typed_tables import TypedTable, is_number, typed_table_of

if TYPE_CHECKING:
    from embermq.lake.schema import Table

EXPECTATIONS_MAX: Final = 100
ALLOWED_MAX: Final = 1_000
"""The most values that one expectation allows."""
Number = Annotated[float | None, Field(allow_inf_nan=False)]


class Expectation(BaseModel):
    """What is expected of one column."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    typed_name: Annotated[str, Field(alias="table")]
    column: str
    min: Number = None
    max: Number = None
    rate_max: Annotated[float | None, Field(gt=0, allow_inf_nan=False)] = None
    """The most change in a second from one value of a topic to the next."""
    not_null: bool = False
    allowed: Annotated[tuple[str, ...], Field(max_length=ALLOWED_MAX)] = ()

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if not (self.has_numbers or self.not_null or self.allowed):
            raise ValueError("expected one of min, max, rate_max, not_null and allowed")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError("min: expected at most max")
        return self

    @property
    def has_numbers(self) -> bool:
        """Whether it compares numbers."""
        return (self.min, self.max, self.rate_max) != (None, None, None)

    def source(self, tables: Iterable[TypedTable]) -> TypedTable:
        """The typed table that has the column. ValueError if none of these has it with a type that can be compared."""
        from embermq.lake.schema import STRING

        table = typed_table_of(self.typed_name, tables)
        kind = table.type_at(self.column)
        if kind is None:
            raise ValueError(f"column: {self.column}: expected a column of {table.name}, or a field of one")
        if self.has_numbers and not is_number(kind):
            raise ValueError(f"column: {self.column}: expected a column of {table.name} with numbers")
        if self.allowed and kind != STRING:
            raise ValueError(f"column: {self.column}: expected a column of {table.name} of the type string")
        return table


class TableExpectations:
    """All that is expected of one typed table."""

    __slots__ = ("source", "expectations")

    def __init__(self, source: TypedTable, expectations: Sequence[Expectation]) -> None:
        self.source: Final = source
        self.expectations: Final = tuple(expectations)

    @property
    def name(self) -> str:
        """The name of the table of violations."""
        from embermq.lake.schema import VIOLATIONS_SUFFIX

        return self.source.name + VIOLATIONS_SUFFIX

    def tables(self) -> "tuple[Table, ...]":
        """The violations, and the last values of topics if changes are compared."""
        from embermq.lake.schema import last_values_of, violations_of

        has_rates = any(one.rate_max is not None for one in self.expectations)
        return (violations_of(self.source.name), *((last_values_of(self.source.name),) if has_rates else ()))

    def definition(self) -> Definition:
        """The settings that decide what the rows are."""
        made = self.source.definition()
        own = [one.model_dump(mode="json", exclude={"typed_name"}, exclude_defaults=True) for one in self.expectations]
        return {"expectations": own, **{key: made[key] for key in ("filter", "format", "message", "explode")}}


def expected(tables: Iterable[TypedTable], expectations: Iterable[Expectation]) -> list[TableExpectations]:
    """The expectations of each typed table that has some. ValueError if one cannot be checked."""
    found: dict[str, tuple[TypedTable, list[Expectation]]] = {}
    for one in expectations:
        table = one.source(tables)
        of_table = found.setdefault(table.name, (table, []))[1]
        if any(one.column == other.column for other in of_table):
            raise ValueError(f"the column {one.column} of {table.name} is there twice")
        of_table.append(one)
    return [TableExpectations(table, of_table) for table, of_table in found.values()]
