"""Payloads of every format, good and hostile, and what is right for each: rows, or the field and the reason.

The tables that read them are in TABLES; their files are made by `write_files`.
"""

import json
import struct
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import cbor2
import fastavro
import msgpack
from google.protobuf import descriptor_pb2, timestamp_pb2

from embermq.lake.typed_tables import TypedTable

SCHEMA = (
    "s string, n long, d double, raw binary, at timestamp, tags array<string>, t map<string,int>, in struct<x: int>"
)
ALIASES = {"at_device": ["timestamp", "ts"], "n": ["count"]}
FLAT = "s string, n long, d double, m decimal(5,2), ok boolean, at timestamp"
AT = datetime(2026, 3, 1, 14, 3, tzinfo=UTC)
WHOLE = {"s": "ä", "n": 7, "d": 1.5, "raw": b"\x00\xff", "at": AT, "tags": ["a", "b"], "t": {"k": 1}, "in": {"x": 3}}
Row = dict[str, Any]
_OF_LIBRARY = Path(__file__).parent.parent / "lake" / "payloads" / "sparkplug.jsonl"
SPARKPLUG = [(one["topic"], bytes.fromhex(one["hex"])) for one in map(json.loads, _OF_LIBRARY.read_text().splitlines())]
"""Messages of Sparkplug B, as pysparkplug 0.6.1 writes them."""

RECORD = {
    "type": "record",
    "name": "Reading",
    "namespace": "plant",
    "fields": [
        {"name": "s", "type": ["null", "string"]},
        {"name": "n", "type": "long"},
        {"name": "d", "type": "double"},
        {"name": "raw", "type": "bytes"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "t", "type": {"type": "map", "values": "int"}},
        {"name": "in", "type": {"type": "record", "name": "Inner", "fields": [{"name": "x", "type": "int"}]}},
        {"name": "ignored", "type": "Inner"},
        {"name": "mode", "type": {"type": "enum", "name": "Mode", "symbols": ["off", "on"]}},
    ],
}
SECOND = {"type": "record", "name": "Reading", "fields": [{"name": "n", "type": "int"}]}


class Case(NamedTuple):
    """A payload for a table, and what it gives."""

    table: str
    payload: bytes
    rows: Sequence[Row] | None = None
    field: str | None = None
    reason: str = ""


def descriptors() -> bytes:
    """A descriptor set, as protoc writes it."""
    reading = descriptor_pb2.FileDescriptorProto(name="plant.proto", package="plant", syntax="proto3")
    reading.dependency.append("google/protobuf/timestamp.proto")
    inner = reading.message_type.add(name="Inner")
    inner.field.add(name="x", number=1, type=5, label=1)
    inner.field.add(name="inner", number=2, type=11, label=1, type_name=".plant.Inner")
    message = reading.message_type.add(name="Reading")
    for number, (name, kind, label, of) in enumerate(
        [
            ("s", 9, 1, ""),
            ("n", 3, 1, ""),
            ("d", 1, 1, ""),
            ("raw", 12, 1, ""),
            ("at", 11, 1, ".google.protobuf.Timestamp"),
            ("tags", 9, 3, ""),
            ("t", 11, 3, ".plant.Reading.TEntry"),
            ("in", 11, 1, ".plant.Inner"),
            ("mode", 14, 1, ".plant.Mode"),
        ],
        1,
    ):
        message.field.add(name=name, number=number, type=kind, label=label, type_name=of or None)
    entry = message.nested_type.add(name="TEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=9, label=1)
    entry.field.add(name="value", number=2, type=5, label=1)
    mode = reading.enum_type.add(name="Mode")
    mode.value.add(name="OFF", number=0)
    mode.value.add(name="ON", number=1)
    instant = descriptor_pb2.FileDescriptorProto.FromString(timestamp_pb2.DESCRIPTOR.serialized_pb)
    return bytes(descriptor_pb2.FileDescriptorSet(file=[instant, reading]).SerializeToString())


def write_files(place: Path) -> None:
    """The files that the tables name."""
    (place / "reading.avsc").write_text(json.dumps(RECORD))
    (place / "schemas").mkdir()
    (place / "schemas" / "7.avsc").write_text(json.dumps(RECORD))
    (place / "schemas" / "8.avsc").write_text(json.dumps(SECOND))
    (place / "plant.desc").write_bytes(descriptors())


def tables(place: Path) -> dict[str, TypedTable]:
    """A table of each format, by its name, which is also the topic of its payloads."""
    elements = "id string, x int, e struct<x: int>"
    of_file = {"schema_file": str(place / "plant.desc"), "message": "plant.Reading"}
    described: list[dict[str, Any]] = [
        {"name": "cbor", "schema": SCHEMA},
        {"name": "msgpack", "schema": SCHEMA},
        {"name": "avro", "schema": SCHEMA + ", mode string", "schema_file": str(place / "reading.avsc")},
        {"name": "registry", "format": "avro", "schema": SCHEMA, "schema_file": str(place / "schemas")},
        {"name": "protobuf", "schema": SCHEMA + ", mode string", **of_file},
        {"name": "csv", "schema": FLAT},
        {"name": "words", "format": "text"},
        {"name": "elements", "format": "json", "schema": elements, "explode": "e"},
        {"name": "renamed", "format": "json", "schema": "at_device string, n int", "aliases": ALIASES},
        {"name": "top", "format": "msgpack", "schema": "value int, x int", "explode": "."},
    ]
    return {
        one["name"]: TypedTable.model_validate({"format": one["name"], "filter": one["name"], **one})
        for one in described
    }


def settings_of(table: TypedTable) -> str:
    """A table as the settings file has it."""
    given = table.model_dump(by_alias=True, exclude_defaults=True)
    lines = [f"{key} = {json.dumps(value)}" for key, value in given.items()]
    return "\n".join(["[[pipeline.tables]]", *lines, ""])


def avro(record: Row, schema: Any = RECORD) -> bytes:
    """A record as Avro."""
    from io import BytesIO

    stream = BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), record)
    return stream.getvalue()


def varint(number: int) -> bytes:
    """A number as Protobuf writes it."""
    written = b""
    while number > 127:
        written += bytes([number & 127 | 128])
        number >>= 7
    return written + bytes([number])


def _nested(depth: int) -> bytes:
    """Messages within each other."""
    found = b""
    for _ in range(depth):
        found = b"\x12" + varint(len(found)) + found
    return b"\x42" + varint(len(found)) + found


_AVRO = avro({**WHOLE, "ignored": {"x": 1}, "mode": "on"})
_IN_PROTOBUF = (
    b"\x0a\x02\xc3\xa4\x10\x07\x19" + struct.pack("<d", 1.5) + b"\x22\x02\x00\xff"
    b"\x2a\x06\x08" + varint(int(AT.timestamp())) + b"\x32\x01a\x32\x01b"
    b"\x3a\x05\x0a\x01k\x10\x01\x42\x02\x08\x03\x48\x01"
)
_NULLS: Row = dict.fromkeys(WHOLE)
_NO_FIELDS = {**_NULLS, "s": "", "n": 0, "d": 0.0, "raw": b"", "tags": [], "t": [], "mode": "OFF"}

CASES = (
    Case("cbor", cbor2.dumps(WHOLE), [WHOLE]),
    Case("cbor", cbor2.dumps({"n": 7, "other": [1]}), [{**_NULLS, "n": 7}]),
    Case("cbor", b"\xd9\xd9\xf7" + cbor2.dumps({"tags": ["a"]}), [{**_NULLS, "tags": ["a"]}]),
    Case("cbor", bytes.fromhex("bf616e07ff"), [{**_NULLS, "n": 7}]),
    Case("cbor", cbor2.dumps({"n": 7.0}), field="n", reason="expected a whole number, found a number"),
    Case("cbor", cbor2.dumps({"n": 2**63}), field="n", reason="a number that is too large for bigint"),
    Case("cbor", cbor2.dumps({"n": 2**70}), field="n", reason="a number that is too large for bigint"),
    Case("cbor", cbor2.dumps({"d": float("nan")}), field="d", reason="not a number"),
    Case("cbor", cbor2.dumps({"d": float("inf")}), field="d", reason="a number that is too large for double"),
    Case("cbor", bytes.fromhex("a1616dc4821a7fffffff01"), [_NULLS]),
    Case("cbor", bytes.fromhex("a16164c4821a7fffffff01"), field="d", reason="a number that is too large"),
    Case("cbor", cbor2.dumps({"tags": ["a", 1]}), field="tags[1]", reason="expected a string, found a number"),
    Case("cbor", cbor2.dumps({"s": b"a"}), field="s", reason="expected a string, found bytes"),
    Case("cbor", bytes.fromhex("a16173f7"), field="s", reason="expected a string, found"),
    Case("cbor", b"", reason="not CBOR"),
    Case("cbor", b"\x01\x01", reason="not CBOR: bytes after"),
    Case("cbor", b"\x01", reason="expected an object, found a number"),
    Case("cbor", b"\x81" * 100_000 + b"\x01", reason="not CBOR: maximum container nesting depth"),
    Case("cbor", bytes.fromhex("5b7fffffffffffffff00"), reason="not CBOR"),
    Case("cbor", bytes.fromhex("9b00ffffffffffffff00"), reason="not CBOR"),
    Case("cbor", bytes.fromhex("a2616e01616e02"), reason="not CBOR"),
    Case("cbor", bytes.fromhex("a16173d8236128"), reason="a tag that is not read"),
    Case("cbor", bytes.fromhex("d81c81d81d00"), reason="a tag that is not read"),
    Case("cbor", bytes.fromhex("d9ffff01"), reason="a tag that is not read"),
    Case("cbor", bytes.fromhex("a1617362ffff"), reason="not UTF-8"),
    Case("cbor", bytes.fromhex("a1810101"), reason="not CBOR"),
    Case("cbor", bytes.fromhex("c11b7fffffffffffffff"), reason="not CBOR"),
    Case("cbor", b"\xff", reason="not CBOR"),
    Case("msgpack", msgpack.packb(WHOLE, datetime=True), [WHOLE]),
    Case("msgpack", msgpack.packb({"n": None, "other": 1}), [_NULLS]),
    Case("msgpack", msgpack.packb({"n": True}), field="n", reason="expected a whole number, found true or false"),
    Case("msgpack", msgpack.packb({"n": 2**63}), field="n", reason="a number that is too large for bigint"),
    Case("msgpack", msgpack.packb({"t": {"k": "1"}}), field="t.k", reason="expected a whole number, found a string"),
    Case("msgpack", msgpack.packb({"in": {"x": 2**31}}), field="in.x", reason="a number that is too large for int"),
    Case("msgpack", b"", reason="not MessagePack"),
    Case("msgpack", b"\xc1", reason="not MessagePack"),
    Case("msgpack", b"\x01\x01", reason="not MessagePack"),
    Case("msgpack", b"\x91" * 100_000 + b"\x01", reason="nested too deeply"),
    Case("msgpack", bytes.fromhex("ddffffffff"), reason="not MessagePack"),
    Case("msgpack", bytes.fromhex("c6ffffffff00"), reason="not MessagePack"),
    Case("msgpack", bytes.fromhex("dfffffffff00"), reason="not MessagePack"),
    Case("msgpack", bytes.fromhex("82a16e01a16e02"), field="n", reason="a name that is there twice"),
    Case("msgpack", bytes.fromhex("82c4016e01c4016e02"), field="b'n'", reason="a name that is there twice"),
    Case("msgpack", bytes.fromhex("d4050a"), reason="the extension type 5 is not read"),
    Case("msgpack", bytes.fromhex("c70cff" + "ff" * 12), reason="not MessagePack"),
    Case("msgpack", bytes.fromhex("a2ffff"), reason="not UTF-8"),
    Case("msgpack", bytes.fromhex("81810101"), reason="not MessagePack"),
    Case("avro", _AVRO, [{**WHOLE, "mode": "on"}]),
    Case("avro", b"\x02\x02\xff" + _AVRO[4:], reason="not UTF-8"),
    Case("avro", _AVRO[:-1], reason="not a record of the schema"),
    Case("avro", _AVRO + b"\x00", reason="bytes after the record"),
    Case("avro", b"", reason="not a record of the schema"),
    Case("avro", b"\x0e", reason="not a record of the schema"),
    Case("avro", b"\x02\x09abc", reason="not a record of the schema"),
    Case("avro", b"\x02" + b"\xfe\xff\xff\xff\xff\xff\xff\x7f" + b"a", reason="not a record of the schema"),
    Case("avro", b"\xff" * 1000, reason="not a record of the schema"),
    Case("avro", _AVRO[:-1] + b"\x7e", reason="not a record of the schema"),
    Case("registry", b"\x00\x00\x00\x00\x07" + _AVRO, [WHOLE]),
    Case("registry", b"\x00\x00\x00\x00\x08" + avro({"n": 9}, SECOND), [{**_NULLS, "n": 9}]),
    Case("registry", b"\x00\x00\x00\x00\x09" + _AVRO, reason="the schema 9 is not known"),
    Case("registry", b"\x00\x00\x00", reason="no header of a registry"),
    Case("registry", b"\x01\x00\x00\x00\x07" + _AVRO, reason="no header of a registry"),
    Case("protobuf", _IN_PROTOBUF, [{**WHOLE, "mode": "ON"}]),
    Case("protobuf", b"\x98\x06\x01", [_NO_FIELDS]),
    Case("protobuf", b"\x48\x63", [{**_NO_FIELDS, "mode": "99"}]),
    Case("protobuf", b'{"s": 1}', reason="not a message plant.Reading"),
    Case("protobuf", b"\x0a\x02\xff\xff", reason="not a message plant.Reading (String field had bad UTF-8)"),
    Case("protobuf", b"\x0a\xff\xff\xff\xff\x07", reason="not a message plant.Reading"),
    Case("protobuf", _nested(98), [{**_NO_FIELDS, "in": {"x": 0}}]),
    Case("protobuf", _nested(5000), reason="not a message plant.Reading"),
    Case("protobuf", b"\x0b" * 10_000, reason="not a message plant.Reading"),
    Case("protobuf", b"\x2a\x0a\x08" + varint(2**62), reason="a timestamp outside the years 1 to 9999"),
    Case("protobuf", b"\x19" + struct.pack("<d", float("nan")), field="d", reason="not a number"),
    Case(
        "csv",
        b'a,7,1.5,1.25,true,2026-03-01T14:03:00Z\r\n"b ""c"", d",-1,2e3,,false,\n',
        [
            {"s": "a", "n": 7, "d": 1.5, "m": "1.25", "ok": True, "at": AT},
            {"s": 'b "c", d', "n": -1, "d": 2000.0, "m": None, "ok": False, "at": None},
        ],
    ),
    Case("csv", b"a,7,1,1,true", field="line 1", reason="expected 6 values, found 5"),
    Case("csv", b"a,1,1,1,true,\na,1.0,1,1,true,", field="n", reason="expected a whole number, found a string"),
    Case("csv", b"a,1,1,1,yes,", field="ok", reason="expected true or false, found a string"),
    Case("csv", b"a,1,NaN,1,true,", field="d", reason="expected a number, found a string"),
    Case("csv", b"a,1,1e999,1,true,", field="d", reason="a number that is too large for double"),
    Case("csv", b"a,1,1,1.001,true,", field="m", reason="a number with more digits than decimal(5,2)"),
    Case("csv", b"a,1,1,1e999999999,true,", field="m", reason="a number with more digits than decimal(5,2)"),
    Case("csv", b"a,99999999999999999999,1,1,true,", field="n", reason="a number that is too large for bigint"),
    Case("csv", b'"a,1,1,1,true,', field="line 1", reason="not CSV"),
    Case("csv", b"a" * 200_000 + b",1,1,1,true,", field="line 1", reason="not CSV: field larger than"),
    Case("csv", b"a,1,1,1,true,\n" * 10_001, reason="10001 rows, of which at most 10000 are read"),
    Case("csv", b"\n\n", reason="no line"),
    Case("csv", b"\xff", reason="not UTF-8"),
    Case("words", "äö\n".encode(), [{"value": "äö\n"}]),
    Case("words", b"\x00", [{"value": "\x00"}]),
    Case("words", b"\xc3", reason="not UTF-8"),
    Case(
        "elements",
        b'{"id": "p", "x": 9, "e": [{"x": 1}, {"id": "q"}, {}]}',
        [
            {"id": "p", "x": 1, "e": {"x": 1}},
            {"id": "q", "x": 9, "e": {"x": None}},
            {"id": "p", "x": 9, "e": {"x": None}},
        ],
    ),
    Case("elements", b'{"id": "p", "e": []}', []),
    Case("elements", b'{"id": "p"}', field="e", reason="expected an array, found null"),
    Case("elements", b'{"e": [{}, {"x": "1"}]}', field="e[1].x", reason="expected a whole number, found a string"),
    Case("elements", b'{"e": [' + b"{}," * 10_000 + b"{}]}", reason="10001 rows"),
    Case("elements", b"[{}]", reason="expected an object, found an array"),
    Case("renamed", b'{"timestamp": "a", "n": 1, "count": 2}', [{"at_device": "a", "n": 1}]),
    Case("renamed", b'{"ts": "b", "timestamp": null, "count": 2}', [{"at_device": "b", "n": 2}]),
    Case("renamed", b'{"at_device": "c", "ts": "b"}', [{"at_device": "c", "n": None}]),
    Case("renamed", b'{"count": "2"}', field="n", reason="expected a whole number, found a string"),
    Case("renamed", b"[]", reason="expected an object, found an array"),
    Case("top", msgpack.packb([{"x": 2}, 3]), [{"value": None, "x": 2}, {"value": 3, "x": None}]),
    Case("top", msgpack.packb({"x": 2}), reason="expected an array, found an object"),
    Case("top", msgpack.packb([1, "2"]), field="[1].value", reason="expected a whole number, found a string"),
)


def plain(value: Any) -> Any:
    """A value as the cases have it: a map is a dict."""
    if isinstance(value, list) and value and isinstance(value[0], tuple):
        return dict(value)
    return str(value) if isinstance(value, Decimal) else value


def check_case(case: Case, rows: list[dict[str, Any]], field: str | None, reason: str | None) -> None:
    """Fails unless these are the rows of a case, or its field and its reason."""
    if case.rows is None:
        assert field == case.field, (case, rows, field, reason)
        assert reason is not None and reason.startswith(case.reason), (case, reason)
    else:
        assert reason is None, (case, field, reason)
        assert [{name: plain(value) for name, value in row.items()} for row in rows] == case.rows
