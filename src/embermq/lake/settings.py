"""The settings of the pipeline, [pipeline], as one typed object; the server's settings have it as a section.

Owns: every key, its default, and the sentence for a wrong value. Importing this module imports neither Spark nor
pyarrow.
"""

import re
from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated, Any, Final

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

from embermq.history.location import is_url
from embermq.lake.errors import LakeError, PipelineError
from embermq.lake.expectations import EXPECTATIONS_MAX, Expectation, expected
from embermq.lake.lake import Lake
from embermq.lake.made_from import check_definition
from embermq.lake.rollups import ROLLUPS_MAX, Rollup
from embermq.lake.typed_tables import TypedTable
from embermq.units import without_unit

_AGE: Final = re.compile(r"([1-9][0-9]{0,5}) *([hd])")
_UNIT_US: Final = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 604_800_000_000,
}
_LENGTH: Final = re.compile(rf"([0-9]{{1,9}})\s+({'|'.join(_UNIT_US)})s?(?:\s+|$)", re.IGNORECASE)
"""A part of a window's length. Spark knows more forms; these mean the same to it."""


def window_us(length: str) -> int:
    """The length of a window in microseconds. PipelineError if the text is none."""
    total_us, at, text = 0, 0, length.strip()
    while found := _LENGTH.match(text, at):
        total_us, at = total_us + int(found[1]) * _UNIT_US[found[2].lower()], found.end()
    if at < len(text) or total_us == 0:
        raise PipelineError(
            f"--window {length!r}: expected a length such as '5 minutes', '1 hour 30 minutes' or '1 day' (units: "
            f"{', '.join(_UNIT_US)})"
        )
    return total_us


def _window(length: str) -> str:
    try:
        window_us(length)
    except PipelineError:
        raise ValueError("expected a length such as '5 minutes', '1 hour 30 minutes' or '1 day'") from None
    return length


def _age(value: object) -> object:
    found = _AGE.fullmatch(value) if isinstance(value, str) else None
    if found is None and not isinstance(value, timedelta):
        raise ValueError("expected an age such as '90d' or '36h'")
    return value if found is None else timedelta(hours=int(found[1]) * {"h": 1, "d": 24}[found[2]])


def _place(text: str) -> str:
    try:
        return Lake(text).place if text else ""
    except LakeError:
        raise ValueError("expected a directory, or a URL of hdfs or s3a") from None


def _check_unique(names: Sequence[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"the name {name!r} is used twice")


class PipelineSettings(BaseModel):
    """The tables of a lake: where they are, how fresh, and for how long."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    lake: Annotated[str, AfterValidator(_place), Field(min_length=1)] = "ember-lake"
    master: str = "local[*]"
    memory: Annotated[str, Field(pattern="^[1-9][0-9]*[kmgtKMGT]$")] = "1g"
    fresh_s: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 10.0
    records_max: Annotated[int, Field(ge=1)] = 1_000_000
    window: Annotated[str, AfterValidator(_window)] = "5 minutes"
    compact_files: Annotated[int, Field(ge=2)] = 16
    vacuum_hours: Annotated[float, Field(ge=1, lt=1e6)] = 24.0
    tables: tuple[TypedTable, ...] = ()
    rollups: Annotated[tuple[Rollup, ...], Field(max_length=ROLLUPS_MAX)] = ()
    expectations: Annotated[tuple[Expectation, ...], Field(max_length=EXPECTATIONS_MAX)] = ()
    retention: dict[str, Annotated[timedelta, BeforeValidator(_age)]] = {}

    @model_validator(mode="before")
    @classmethod
    def _read_units(cls, values: Any) -> Any:
        if not isinstance(values, dict) or not isinstance(values.get("fresh_s"), str):
            return values
        return {**values, "fresh_s": without_unit("fresh_s", values["fresh_s"])}

    @field_validator("tables")
    @classmethod
    def _check_names(cls, tables: tuple[TypedTable, ...]) -> tuple[TypedTable, ...]:
        _check_unique([one.name for table in tables for one in table.tables()])
        return tables

    @field_validator("rollups")
    @classmethod
    def _check_rollups(cls, rollups: tuple[Rollup, ...], info: ValidationInfo) -> tuple[Rollup, ...]:
        if rollups and "tables" in info.data:
            tables: tuple[TypedTable, ...] = info.data["tables"]
            _check_unique([one.name for table in tables for one in table.tables()] + [one.name for one in rollups])
            for rollup in rollups:
                try:
                    rollup.source(tables)
                except ValueError as error:
                    raise ValueError(f"{rollup.name}: {error}") from None
        return rollups

    @field_validator("expectations")
    @classmethod
    def _check_expectations(cls, found: tuple[Expectation, ...], info: ValidationInfo) -> tuple[Expectation, ...]:
        if found and "tables" in info.data:
            tables: tuple[TypedTable, ...] = info.data["tables"]
            made = [one.name for of_table in expected(tables, found) for one in of_table.tables()]
            names = [one.name for table in tables for one in table.tables()]
            _check_unique([*names, *(rollup.name for rollup in info.data.get("rollups", ())), *made])
        return found

    @field_validator("retention")
    @classmethod
    def _check_retention(cls, retention: dict[str, timedelta], info: ValidationInfo) -> dict[str, timedelta]:
        if retention and "tables" in info.data:
            from embermq.lake.schema import TABLES  # imports pyarrow

            known = [table.name for table in TABLES.values() if table.has_age]
            known += [name for table in info.data["tables"] for name in (table.name, table.rejects().name)]
            known += [rollup.name for rollup in info.data.get("rollups", ())]
            known += [one.name for one in expected(info.data["tables"], info.data.get("expectations", ()))]
            for name in retention:
                if name not in known:
                    raise ValueError(f"{name}: expected one of {', '.join(known)}")
        return retention

    def check_payloads(self) -> None:
        """LakeError if a typed table names a file that cannot be used, or a package for its format is missing."""
        if self.tables:
            from embermq.lake.payloads.reader import check_reader  # imports pyarrow

            for table in self.tables:
                check_reader(table)

    def check_tables(self) -> None:
        """LakeError if the payloads of a typed table cannot be read, or the lake has one made from other settings.

        At a URL the pipeline itself checks the lake.
        """
        self.check_payloads()
        if not is_url(self.lake):
            for table in self.tables:
                table.check(Lake(self.lake))
            for rollup in self.rollups:
                rollup.check(Lake(self.lake), rollup.source(self.tables))
            for one in expected(self.tables, self.expectations):
                check_definition(Lake(self.lake), one.name, one.definition())
