"""Only a class writes its own fields.

A function that takes an object and changes its fields is a method in the wrong place: the rules of the class are then
kept in several files. `WRITTEN` lists the modules of the core that still do so, with how often. It may only become
shorter: a module with fewer such assignments than its number fails too, until the number is lowered.
"""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "embermq"
CORE = ("protocol", "broker", "store", "transport", "archive", "history")
# Counters are numbers that the code beside an event counts up; a method for each would say nothing more.
COUNTERS = "counters"

WRITTEN: dict[str, int] = {
    "broker/history/delivery.py": 18,
    "broker/history/tail.py": 2,
    "broker/retained_streams.py": 2,
    "store/log/by_topic/chosen_blocks.py": 6,
    "store/log/recovery.py": 5,
    "store/state/rocks.py": 4,  # of the options of RocksDB
    "history/rebuilt.py": 1,
}


def targets_of(node: ast.AST) -> list[ast.expr]:
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, ast.AugAssign | ast.AnnAssign):
        targets = [node.target]
    else:
        return []
    return [each for target in targets for each in (target.elts if isinstance(target, ast.Tuple) else [target])]


def is_own(owner: ast.expr) -> bool:
    """Whether fields of this may be written here: `self`, the class, or counters."""
    return ast.unparse(owner) in {"self", "cls"} or ast.unparse(owner).endswith(COUNTERS)


def written_fields(source: str) -> list[str]:
    """Assignments to fields of other objects, as they stand in the source."""
    return [
        f"{target.lineno}: {ast.unparse(target)}"
        for node in ast.walk(ast.parse(source))
        for target in targets_of(node)
        if isinstance(target, ast.Attribute) and not is_own(target.value)
    ]


MODULES = [path.relative_to(SOURCE).as_posix() for package in CORE for path in sorted((SOURCE / package).rglob("*.py"))]


@pytest.mark.parametrize("module", MODULES)
def test_a_module_writes_no_fields_of_other_objects_beyond_those_listed(module: str) -> None:
    found = written_fields((SOURCE / module).read_text())
    assert len(found) == WRITTEN.get(module, 0), found


def test_the_list_names_modules_that_exist() -> None:
    assert set(WRITTEN) <= set(MODULES)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("self.count = 1", []),
        ("self._counters.dropped += 1", []),
        ("session.pending += 1", ["1: session.pending"]),
        ("a, self.queue.length = 1, 2", ["1: self.queue.length"]),
    ],
)
def test_an_assignment_to_a_field_of_another_object_is_seen(source: str, expected: list[str]) -> None:
    assert written_fields(source) == expected
