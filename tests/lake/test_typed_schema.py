"""Schemas of typed tables are parsed without Spark; `tests/spark/jobs/test_types.py` compares with Spark."""

import pytest

from embermq.lake.typed_schema import DEPTH_MAX, SchemaError, parse_schema


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "expected the name of a column, found the end"),
        ("a", r"expected a type \(string, boolean, .*\), found the end"),
        ("a nosuch", "found 'nosuch'"),
        ("a blob", "found 'blob'"),
        ("a int,", "expected the name of a column, found the end"),
        ("a int b int", "expected a comma or the end of the schema, found 'b'"),
        ("a int not null", "expected a comma or the end of the schema, found 'not'"),
        ("a array<int", "expected '>', found the end"),
        ("a array<int>>", "found '>'"),
        ("a map<int, int>", "expected string: the names in a JSON object are strings, found 'int'"),
        ("a decimal(39,2)", "expected 1 to 38 digits"),
        ("a decimal(3,4)", "no more places than digits"),
        ("a decimal(x)", "expected a whole number, found 'x'"),
        ("a int, A string", "the column 'A' is there twice"),
        ("`a b` int", "expected a name without spaces"),
        ("a-b int", "'-' is in no schema"),
        ("a struct<>", "expected the name of a column, found '>'"),
        ("a " + "array<" * DEPTH_MAX + "int" + ">" * DEPTH_MAX, "more than 32 types within each other"),
    ],
)
def test_a_text_that_is_no_schema_is_refused(text: str, said: str) -> None:
    with pytest.raises(SchemaError, match=said):
        parse_schema(text)
