"""Rollups: a value of a typed table, counted and measured for each topic and each minute, hour or day.

    [[pipeline.rollups]]
    name = "air_hours"
    table = "air"                    # a typed table
    value = "value"                  # a column with numbers, or a field of one: "load.cpu"
    every = "hour"                   # minute, hour or day, in UTC
    time = "measured"                # a column with the devices' own time; otherwise the server's counts
    gap_s = "10m"                    # a longer silence is a gap; otherwise a tenth of `every`

Owns: these settings, and the sentence for a wrong one. What the rows of a table are is in `spark.jobs.rollups`.
Importing this module imports no pyarrow: the server reads its settings without it.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Final, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, field_validator

from embermq.lake.lake import Lake
from embermq.lake.made_from import Definition, check_definition
from embermq.lake.typed_tables import TypedTable, is_number, table_name, typed_table_of
from embermq.units import without_unit

if TYPE_CHECKING:
    from embermq.lake.schema import Table

ROLLUPS_MAX: Final = 32
"""The most rollups of a lake: each costs a MERGE a batch."""
GAPS_MAX: Final = 100
"""The most gaps of one row: a gap is longer than this part of the window."""
_WINDOW_S: Final = {"minute": 60, "hour": 3_600, "day": 86_400}


def _seconds(value: object) -> object:
    return without_unit("gap_s", value) if isinstance(value, str) else value


class Rollup(BaseModel):
    """One table of a rollup."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    name: Annotated[str, AfterValidator(table_name)]
    typed_name: Annotated[str, Field(alias="table")]
    """The typed table whose payloads have the values."""
    every: Literal["minute", "hour", "day"]
    value: str = "value"
    time: str = ""
    """The column that says when a value was measured; empty: when the server received it."""
    gap_s: Annotated[float | None, BeforeValidator(_seconds), Field(allow_inf_nan=False)] = None

    @field_validator("gap_s")
    @classmethod
    def _check_gap(cls, gap_s: float | None, info: ValidationInfo) -> float | None:
        if gap_s is not None and "every" in info.data:
            window_s = _WINDOW_S[info.data["every"]]
            if not window_s / GAPS_MAX <= gap_s <= window_s:
                raise ValueError(f"expected {window_s / GAPS_MAX:g} to {window_s} seconds")
        return gap_s

    @property
    def gap_us(self) -> int:
        """A silence that is longer is a gap."""
        return int((self.gap_s or _WINDOW_S[self.every] / 10) * 1_000_000)

    def source(self, tables: Iterable[TypedTable]) -> TypedTable:
        """The typed table that has the values. ValueError if none of these has them."""
        from embermq.lake.schema import TIMESTAMP

        table = typed_table_of(self.typed_name, tables)
        kind = table.type_at(self.value)
        if kind is None or not is_number(kind):
            raise ValueError(f"value: {self.value}: expected a column of {table.name} with numbers, or a field of one")
        if self.time and table.type_at(self.time) != TIMESTAMP:
            raise ValueError(f"time: {self.time}: expected a column of {table.name} with the type timestamp")
        return table

    def definition(self, source: TypedTable) -> Definition:
        """The settings that decide what the rows are, each in one form."""
        made = source.definition()
        return {
            "table": self.typed_name,
            "value": self.value,
            "time": self.time or None,
            "every": self.every,
            "gap_s": self.gap_us / 1_000_000,
            **{key: made[key] for key in ("filter", "format", "message", "explode")},
        }

    def check(self, lake: Lake, source: TypedTable) -> None:
        """LakeError if a lake has the table, made from other settings."""
        check_definition(lake, self.name, self.definition(source))

    def table(self) -> "Table":
        """The table."""
        from embermq.lake.schema import rollup_table

        return rollup_table(self.name)
