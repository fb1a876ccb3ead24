"""Reading the payloads of a typed table: each gives rows, or the field that does not fit and the reason.

Owns: which decoder a format has, how the rows of a payload are an Arrow value, and how many a payload may give.
Never: an exception because of a payload.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from embermq.lake.errors import LakeError
from embermq.lake.payloads.avro import avro_documents, read_schemas
from embermq.lake.payloads.csv_lines import csv_documents
from embermq.lake.payloads.protobuf import protobuf_documents, read_descriptors
from embermq.lake.payloads.self_describing import cbor_documents, msgpack_documents
from embermq.lake.payloads.strict_json import json_documents, number_document
from embermq.lake.payloads.values import NOT_UTF8, Convert, Misfit, converter, row_of, wrong_type
from embermq.lake.schema import STRING, spark_sql
from embermq.lake.typed_tables import WHOLE_DOCUMENT, TypedTable

ROWS_MAX: Final = 10_000
"""The most rows of one payload."""
REASON_CHARS_MAX: Final = 300
_PIECE_ROWS: Final = 50_000
"""Rows that are Python objects at a time: as Arrow values they need a tenth of the memory."""
MISFIT_FIELDS: Final = (pa.field("field", STRING), pa.field("reason", STRING))
_LIBRARIES: Final = {
    "cbor": "cbor2",
    "msgpack": "msgpack",
    "avro": "fastavro",
    "protobuf": "google.protobuf",
    "sparkplug": "google.protobuf",
}

Fields = Sequence[tuple[str, Convert]]
Decoder = Callable[[bytes], Any]
"""Gives what a payload is: one document, or a list of them where a payload has several rows. Raises Misfit."""


@dataclass(frozen=True)
class PayloadReader:
    """Reads payloads as rows of one schema. Spark pickles it for its workers."""

    schema: pa.Schema
    decoder: Callable[[], Decoder]
    """Makes the decoder, which a worker cannot be sent."""
    has_many_rows: bool = False
    explode: str = ""
    """The field whose elements are rows."""
    aliases: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """For a column, the fields that it is read from where a document lacks its own."""

    @property
    def result(self) -> pa.Schema:
        """The fields of what `read_array` returns for each payload."""
        values = pa.struct(self.schema)
        parsed = pa.list_(pa.field("element", values)) if self.has_many_rows else values
        return pa.schema([pa.field("parsed", parsed), *MISFIT_FIELDS])

    def read_array(self, payloads: pa.Array) -> pa.Array:
        """The values, or the field and the reason, of each payload."""
        fields = [(one.name, converter(one.type)) for one in self.schema]
        parsed, misfits = (self._read_many if self.has_many_rows else self._read_one)(payloads.to_pylist(), fields)
        named = [None if misfit is None else misfit.field or None for misfit in misfits]
        reasons = [None if misfit is None else misfit.reason[:REASON_CHARS_MAX] for misfit in misfits]
        texts = [pa.array(column, STRING) for column in (named, reasons)]
        return pa.StructArray.from_arrays([parsed, *texts], fields=list(self.result))

    def _read_one(self, payloads: Sequence[bytes], fields: Fields) -> tuple[pa.Array, list[Misfit | None]]:
        """The row of each payload, and why it has none."""
        decode = self.decoder()
        empty = [None] * len(fields)
        rows: list[Sequence[Any]] = []
        misfits: list[Misfit | None] = []
        for payload in payloads:
            try:
                document = decode(payload)
                rows.append(row_of(self._named(document) if self.aliases else document, fields))
            except Misfit as misfit:
                rows.append(empty)
                misfits.append(misfit)
            else:
                misfits.append(None)
        return self._values(rows), misfits

    def _read_many(self, payloads: Sequence[bytes], fields: Fields) -> tuple[pa.Array, list[Misfit | None]]:
        """The list of the rows of each payload, and why it has none."""
        decode = self.decoder()
        pieces: list[pa.Array] = []
        rows: list[Sequence[Any]] = []
        ends = [0]
        misfits: list[Misfit | None] = []
        for payload in payloads:
            found: list[Sequence[Any]] = []
            misfit = None
            try:
                found = self._rows(decode(payload), fields)
            except Misfit as caught:
                misfit = caught
            rows += found
            ends.append(ends[-1] + len(found))
            misfits.append(misfit)
            if len(rows) >= _PIECE_ROWS:
                pieces.append(self._values(rows))
                rows = []
        values = pa.concat_arrays([*pieces, self._values(rows)])
        kind = self.result.field("parsed").type
        return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), values, type=kind), misfits

    def _values(self, rows: Sequence[Sequence[Any]]) -> pa.Array:
        columns = zip(*rows, strict=True) if rows else ([] for _ in self.schema)
        arrays = [pa.array(list(column), one.type) for column, one in zip(columns, self.schema, strict=True)]
        return pa.StructArray.from_arrays(arrays, fields=list(self.schema))

    def _rows(self, found: Any, fields: Fields) -> list[Sequence[Any]]:
        """The rows of what a payload is."""
        if not self.explode:
            _check_rows(found)
            return [row_of(document, fields) for document in found]
        rows: list[Sequence[Any]] = []
        wanted = {*self.schema.names, *(name for names in self.aliases.values() for name in names)}
        for place, document in _exploded(found, self.explode, wanted):
            try:
                rows.append(row_of(self._named(document) if self.aliases else document, fields))
            except Misfit as misfit:
                raise misfit.within(place) from None
        return rows

    def _named(self, document: Any) -> Any:
        """A document with the fields that the columns have other names for."""
        if type(document) is not dict:
            return document
        lacking = [column for column in self.aliases if document.get(column) is None]
        others = {
            column: next((document[name] for name in self.aliases[column] if document.get(name) is not None), None)
            for column in lacking
        }
        return {**document, **others}


def _exploded(document: Any, name: str, wanted: Collection[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """For each element of an array its place, and a document of its fields with the wanted ones around the array.

    The array's own name is the element, which without a name is `value` unless it is an object.
    """
    around: dict[str, Any] = {}
    elements, place, own = document, "", "value"
    if name != WHOLE_DOCUMENT:
        if type(document) is not dict:
            raise wrong_type("an object", document)
        around = {key: document[key] for key in wanted if key in document}
        elements, place, own = document.get(name), name, name
    if type(elements) is not list:
        raise wrong_type("an array", elements).within(place)
    _check_rows(elements)
    for number, element in enumerate(elements):
        is_object = type(element) is dict
        named = {own: element} if place or not is_object else {}
        yield f"{place}[{number}]", {**around, **named, **(element if is_object else {})}


def _check_rows(found: Sequence[Any]) -> None:
    if len(found) > ROWS_MAX:
        raise Misfit(f"{len(found)} rows, of which at most {ROWS_MAX} are read from one payload")


def text_document(payload: bytes) -> dict[str, str]:
    """A payload that is text."""
    try:
        return {"value": payload.decode("utf-8")}
    except UnicodeDecodeError:
        raise Misfit(NOT_UTF8) from None


def check_reader(table: TypedTable) -> None:
    """LakeError if the files of a table cannot be used, or a package is missing."""
    if table.format == "sparkplug":
        need_library(table)
    else:
        payload_reader(table)


def payload_reader(table: TypedTable) -> PayloadReader:
    """The reader of a table's payloads, each of which is read by itself. LakeError as `check_reader`."""
    need_library(table)
    schema = table.values()
    try:
        decoder = _decoder(table, schema)
    except LakeError as error:
        raise LakeError(f"the table {table.name}: {error}") from None
    return PayloadReader(schema, decoder, table.has_many_rows, table.explode, table.aliases)


def _decoder(table: TypedTable, schema: pa.Schema) -> Callable[[], Decoder]:
    match table.format:
        case "json":
            return partial(json_documents, "decimal" in spark_sql(pa.struct(schema)))
        case "cbor":
            return cbor_documents
        case "msgpack":
            return msgpack_documents
        case "avro":
            return partial(avro_documents, read_schemas(Path(table.schema_file)))
        case "protobuf":
            return partial(protobuf_documents, read_descriptors(Path(table.schema_file), table.message), table.message)
        case "csv":
            return partial(csv_documents, schema)
        case "text":
            return lambda: text_document
        case _:
            return lambda: number_document


def need_library(table: TypedTable) -> None:
    """LakeError unless the package that reads the format is installed."""
    package = _LIBRARIES.get(table.format)
    try:
        if package is not None:
            import_module(package)
    except ModuleNotFoundError:
        raise LakeError(
            f"the table {table.name}: the format {table.format} needs {package}, which is not installed: "
            "pip install 'embermq[formats]'"
        ) from None
