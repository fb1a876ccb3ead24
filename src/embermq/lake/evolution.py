"""How a typed table may change without being built again: columns added, made wider, renamed by an alias.

Owns: the rule. All other changes need the payloads, which only the log has.
Types are texts as the SQL of Spark has them, which is how a lake keeps them.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

_WIDER: Final[dict[str, tuple[str, ...]]] = {
    "tinyint": ("smallint", "int", "bigint", "double"),
    "smallint": ("int", "bigint", "double"),
    "int": ("bigint", "double"),
    "float": ("double",),
}
"""For a type, those that have all of its values."""
_DECIMAL: Final = re.compile(r"decimal\((\d+),(\d+)\)")

Columns = Mapping[str, str]
"""The type of each column, by its name."""


def origins(before: Columns, after: Columns, aliases: Mapping[str, Sequence[str]]) -> dict[str, str | None] | None:
    """For each column the one that it was, None for a new one. None if the rule does not allow the change."""
    found: dict[str, str | None] = {}
    for name, kind in after.items():
        old = [one for one in (name, *aliases.get(name, ())) if one in before and (one == name or one not in after)]
        found[name] = old[0] if old else None
        if old and not _holds(kind, before[old[0]]):
            return None
    kept = [old for old in found.values() if old is not None]
    return found if sorted(kept) == sorted(before) else None


def may_become(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Whether a table may go from one definition to another. It is already known that no other key has changed."""
    aliases, aliases_before = after.get("aliases") or {}, before.get("aliases") or {}
    if any(not {*names} <= {*aliases.get(column, ())} for column, names in aliases_before.items()):
        return False
    columns = [columns_of(one.get("schema")) for one in (before, after)]
    return all(columns) and origins(columns[0], columns[1], aliases) is not None


def columns_of(text: object) -> dict[str, str]:
    """The columns of a text such as `struct<a:int,b:array<int>>`; none if it is not such a text."""
    if not isinstance(text, str) or not (text.startswith("struct<") and text.endswith(">")):
        return {}
    found: dict[str, str] = {}
    depth = 0
    piece = ""
    for sign in text[len("struct<") : -1] + ",":
        depth += (sign in "<(") - (sign in ">)")
        if sign == "," and depth == 0:
            name, _, kind = piece.partition(":")
            found[name] = kind
            piece = ""
        else:
            piece += sign
    return found


def _holds(kind: str, before: str) -> bool:
    """Whether a type has all values of another one."""
    if kind == before or kind in _WIDER.get(before, ()):
        return True
    new, old = _DECIMAL.fullmatch(kind), _DECIMAL.fullmatch(before)
    if new is None or old is None:
        return False
    digits, places = (int(new[at]) - int(old[at]) for at in (1, 2))
    return places >= 0 and digits >= places
