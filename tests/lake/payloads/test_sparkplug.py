"""Sparkplug B: messages of a public client library (pysparkplug), and hostile ones."""

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from embermq.lake.payloads.sparkplug import METRICS_MAX, Certificates, EdgeNode, read_messages
from embermq.lake.payloads.values import Misfit
from support.payloads import SPARKPLUG, varint

AT = datetime(2026, 3, 1, 14, 3, tzinfo=UTC)
NODE = "spBv1.0/plant/NBIRTH/edge1"
DATA = "spBv1.0/plant/NDATA/edge1"


def answers(messages: list[tuple[str, bytes]]) -> list[Any]:
    return list(read_messages((topic, payload, False) for topic, payload in messages))


def values(rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {row["metric"]: next((row[key] for key in row if key.startswith("value_")), None) for row in rows}


def metric(*fields: bytes) -> bytes:
    """A payload of one metric with these fields."""
    inside = b"".join(fields)
    return b"\x12" + varint(len(inside)) + inside


def test_births_name_the_metrics_and_deaths_end_them() -> None:
    nbirth, dbirth, ddata, ndata, ddeath, after, old, ndeath, late = answers(SPARKPLUG)
    assert values(nbirth[0]) == {"bdSeq": 4, "Node Control/Rebirth": False, "cpu": 0.25, "serial": "ä-7"}
    assert nbirth[1] and dbirth[1] and ddeath[1] and ndeath[1] and not ddata[1] and not old[1]
    assert values(dbirth[0]) == {
        "temperature": 21.5,
        "count": -3,
        "total": 2**40,
        "low": -5,
        "small": -300,
        "since": int(AT.timestamp() * 1000),
        "raw": b"\x00\xff",
        "gone": None,
        "text": "long",
        "id": "5ca1ab1e-0000-4000-8000-000000000000",
        "three": b"\x01\x00\x00\x00\xfe\xff\xff\xff\x03\x00\x00\x00",
        "n32": -70000,
        "u32": 4_000_000_000,
    }
    assert values(ddata[0]) == {"temperature": 22.0, "count": -128}
    first, second = ddata[0]
    assert (first["device_id"], first["alias"], first["datatype"], first["seq"]) == ("press", 10, "Float", 2)
    assert first["measured"] == AT + timedelta(milliseconds=900) and not first["is_historical"]
    assert second["is_historical"] and second["message_type"] == "DDATA"
    assert [(row["metric"], row["alias"], row["value_double"]) for row in ndata[0]] == [
        ("cpu", 1, 0.5),
        ("cpu", 1, 0.75),
    ]
    assert {row["metric"] for row in ddeath[0]} == set(values(dbirth[0]))
    assert all(row["is_stale"] and row["device_id"] == "press" and "value_long" not in row for row in ddeath[0])
    assert after[2].reason == "the alias 10 without a birth"
    assert [(row["metric"], row["is_stale"]) for row in old[0]] == [("bdSeq", False)]  # of an earlier connection
    ended = [(row["metric"], row["is_stale"]) for row in ndeath[0]]
    assert ended == [("bdSeq", False), ("Node Control/Rebirth", True), ("cpu", True), ("serial", True)]
    assert late[2].reason == "the alias 1 without a birth"


def test_messages_are_read_alike_wherever_a_batch_is_cut() -> None:
    """What came before is known from the newest certificate of each topic, and a batch may be read in any pieces."""
    numbered = [(offset, *message) for offset, message in enumerate(SPARKPLUG)]
    whole = Certificates({}).read_array(*columns_of(numbered)).to_pylist()
    assert sum(bool(read["parsed"]) for read in whole) == 7
    for cut in range(len(numbered) + 1):
        known = Certificates.among(numbered[:cut]).newest()
        certificates = Certificates.among([*known, *numbered[cut:]])
        assert certificates.read_array(*columns_of(numbered[cut:])).to_pylist() == whole[cut:], cut
        for one in range(cut, len(numbered)):
            assert certificates.read_array(*columns_of([numbered[one]])).to_pylist() == [whole[one]], (cut, one)


def columns_of(messages: list[tuple[int, str, bytes]]) -> list[pa.Array]:
    types = (pa.int64(), pa.string(), pa.binary())
    return [pa.array([message[at] for message in messages], kind) for at, kind in enumerate(types)]


@pytest.mark.parametrize(
    ("topic", "payload", "field", "reason"),
    [
        ("spBv1.0/plant/NDATA/edge1/device", b"", "", "not a topic of"),
        ("spBv1.0/plant/DDATA/edge1", b"", "", "not a topic of"),
        ("spBv1.0/STATE/host", b"{}", "", "not a topic of"),
        (DATA, b"{", "", "not a payload of Sparkplug B"),
        (DATA, b"\x12\xff\xff\xff\xff\x07", "", "not a payload of Sparkplug B"),
        (DATA, metric(), "", "a metric without a name and an alias"),
        (DATA, metric(b"\x10\x09"), "", "the alias 9 without a birth"),
        (DATA, metric(b"\x0a\x01x"), "x", "no data type, and no birth that has it"),
        (DATA, metric(b"\x0a\x01x\x20\x63"), "x", "the data type 99 is not known"),
        (DATA, metric(b"\x0a\x01x\x20\x03\x7a\x01a"), "x", "a string_value for the data type Int32"),
        (DATA, metric(b"\x0a\x01x\x20\x11\x50\x01"), "x", "a int_value for the data type Bytes"),
        (DATA, metric(b"\x0a\x01x\x20\x08\x58" + varint(2**63)), "x", "a number that is too large for bigint"),
        (DATA, metric(b"\x10" + varint(2**64 - 1)), "", "a number that is too large for bigint"),
        (DATA, b"\x08" + varint(2**60), "", "a timestamp after the year 9999"),
        (DATA, metric(b"\x0a\x01x\x20\x03\x18" + varint(2**60)), "x", "a timestamp after the year 9999"),
        (DATA, b"\x12\x00" * (METRICS_MAX + 1), "", "10001 metrics"),
        (NODE, metric(b"\x10\x01\x20\x03"), "", "a metric without a name in a birth certificate"),
        (NODE, metric(b"\x0a\x01x\x20\x03") * 2, "x", "a name that is there twice"),
        (
            NODE,
            metric(b"\x0a\x01x\x10\x05\x20\x03") + metric(b"\x0a\x01y\x10\x05\x20\x03"),
            "y",
            "the alias 5 is there",
        ),
    ],
)
def test_a_message_that_does_not_fit_is_refused_with_its_reason(
    topic: str, payload: bytes, field: str, reason: str
) -> None:
    with pytest.raises(Misfit) as caught:
        EdgeNode().read(topic, payload)
    assert caught.value.field == field and caught.value.reason.startswith(reason)


def test_a_birth_that_is_refused_leaves_what_was_known() -> None:
    birth = metric(b"\x0a\x01x\x10\x05\x20\x03")
    found = answers([(NODE, birth), (NODE, birth * 2), (DATA, metric(b"\x10\x05\x50\x07"))])
    assert found[1][2].reason == "a name that is there twice" and values(found[2][0]) == {"x": 7}


def test_bytes_that_are_cut_or_changed_are_never_a_failure() -> None:
    chosen = random.Random(7)
    for topic, payload in SPARKPLUG:
        for _ in range(200):
            one = bytearray(payload[: chosen.randint(1, len(payload))])
            one[chosen.randrange(len(one))] = chosen.randrange(256)
            answers([*SPARKPLUG[:2], (topic, bytes(one)), *SPARKPLUG[2:]])
