"""Payloads of every format, hostile ones too: rows, or a reject with its reason; never an exception."""

import random
import tracemalloc
from collections.abc import Mapping

import pyarrow as pa
import pytest

from embermq.lake.payloads.reader import PayloadReader, payload_reader
from embermq.lake.typed_tables import TypedTable
from support.payloads import CASES, Case, check_case, tables, write_files


@pytest.fixture(scope="module")
def readers(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, PayloadReader]:
    place = tmp_path_factory.mktemp("schemas")
    write_files(place)
    return {name: payload_reader(table) for name, table in tables(place).items()}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.table)
def test_a_payload_gives_its_rows_or_a_reason(case: Case, readers: Mapping[str, PayloadReader]) -> None:
    reader = readers[case.table]
    (read,) = reader.read_array(pa.array([case.payload], pa.binary())).to_pylist()
    rows = read["parsed"] if reader.has_many_rows else [read["parsed"]]
    check_case(case, rows, read["field"], read["reason"])


def test_bytes_that_are_cut_or_changed_are_never_a_failure(readers: Mapping[str, PayloadReader]) -> None:
    chosen = random.Random(7)
    for case in CASES:
        payload = case.payload[:200]
        changed = [payload[:end] for end in range(len(payload))]
        for _ in range(100):
            one = bytearray(payload or b"\x00")
            for _ in range(chosen.randint(1, 4)):
                one[chosen.randrange(len(one))] = chosen.randrange(256)
            changed.append(bytes(one))
        reader = readers[case.table]
        read = reader.read_array(pa.array(changed, pa.binary()))
        assert len(read) == len(changed)
        read.validate(full=True)


def test_many_rows_from_few_bytes_keep_the_memory_bounded() -> None:
    payload = b"[" + b"{}," * 9_999 + b"{}]"
    table = TypedTable(name="t", topic_filter="t", format="json", columns="x int", explode=".")
    tracemalloc.start()
    try:
        read = payload_reader(table).read_array(pa.array([payload] * 60, pa.binary()))
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert [len(rows) for rows in read.field("parsed")] == [10_000] * 60
    assert peak_bytes < 30 << 20  # with all rows as Python objects at a time it is 96 MB
