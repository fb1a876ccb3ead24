"""Which changes of a typed table need no rebuild."""

import pytest

from embermq.lake.evolution import columns_of, may_become, origins


@pytest.mark.parametrize(
    ("before", "after", "aliases", "expected"),
    [
        ("a:int", "a:int,b:string", {}, {"a": "a", "b": None}),
        ("a:int,b:string", "b:string,a:int", {}, {"a": "a", "b": "b"}),
        ("a:tinyint,b:float,c:int", "a:bigint,b:double,c:double", {}, {"a": "a", "b": "b", "c": "c"}),
        ("a:decimal(5,2)", "a:decimal(7,3)", {}, {"a": "a"}),
        ("a:int", "speed:bigint", {"speed": ["a"]}, {"speed": "a"}),
        ("a:int", "a:int,b:int", {"b": ["a"]}, {"a": "a", "b": None}),
        ("a:struct<x:int,y:array<int>>", "a:struct<x:int,y:array<int>>,b:int", {}, {"a": "a", "b": None}),
        ("a:int,b:int", "a:int", {}, None),
        ("a:bigint", "a:int", {}, None),
        ("a:bigint", "a:double", {}, None),
        ("a:int", "a:float", {}, None),
        ("a:int", "a:string", {}, None),
        ("a:decimal(5,2)", "a:decimal(6,4)", {}, None),
        ("a:decimal(5,2)", "a:decimal(5,1)", {}, None),
        ("a:int", "speed:int", {}, None),
        ("a:int,b:int", "speed:int", {"speed": ["a", "b"]}, None),
        ("a:int", "x:int,y:int", {"x": ["a"], "y": ["a"]}, None),
        ("a:struct<x:int>", "a:struct<x:bigint>", {}, None),
    ],
)
def test_columns_are_added_made_wider_or_renamed(
    before: str, after: str, aliases: dict[str, list[str]], expected: dict[str, str | None] | None
) -> None:
    texts = [f"struct<{columns}>" for columns in (before, after)]
    assert origins(columns_of(texts[0]), columns_of(texts[1]), aliases) == expected
    one, other = ({"schema": texts[0]}, {"schema": texts[1], "aliases": aliases or None})
    assert may_become(one, other) == (expected is not None)


def test_an_alias_may_come_and_not_go() -> None:
    without, with_alias = {"schema": "struct<a:int>"}, {"schema": "struct<a:int>", "aliases": {"a": ["b"]}}
    assert may_become(without, with_alias) and not may_become(with_alias, without)


@pytest.mark.parametrize("text", [None, 3, "", "a int", "struct<", "struct<>"])
def test_what_is_not_a_schema_allows_nothing(text: object) -> None:
    assert not may_become({"schema": text}, {"schema": "struct<a:int>"})
    assert not may_become({"schema": "struct<a:int>"}, {"schema": text})
