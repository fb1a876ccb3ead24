"""The rooms and the direction of imports between them (docs/architecture.md)."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "embermq"

# room -> what of ours it may import, by module prefix
MAY_IMPORT: dict[str, tuple[str, ...]] = {
    "protocol": ("embermq.protocol",),
    "store": ("embermq.protocol", "embermq.store"),
    "broker": ("embermq.protocol", "embermq.store.interface", "embermq.broker"),
    "transport": ("embermq.protocol", "embermq.store.interface", "embermq.broker", "embermq.transport"),
    "spark": (
        "embermq.protocol",
        "embermq.store.reader",
        "embermq.store.records",
        "embermq.store.blocks",
        "embermq.store.segments",
        "embermq.store.errors",
        "embermq.store.instants",
        "embermq.spark",
    ),
}
# third-party parts that only certain rooms may know
ONLY_IN: dict[str, tuple[str, ...]] = {
    "pyspark": ("spark",),
    "delta": ("spark",),
    "rocksdict": ("store",),
    "aiohttp": ("transport", "http"),
    "asyncio": ("transport", "http", ""),
    "uvloop": ("",),
    "socket": ("transport", "http", "spark", ""),
    "time": ("transport", "store", "spark", "http", ""),
    "random": ("transport", ""),
}


def modules() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def room_of(path: Path) -> str:
    parts = path.relative_to(SOURCE).parts
    return parts[0] if len(parts) > 1 and parts[0] != "commands" else ""


def imports_of(path: Path) -> list[str]:
    found: list[str] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide where a room reaches"
            assert node.module is not None
            found += [f"{node.module}.{alias.name}" for alias in node.names]
    return found


def within(name: str, prefix: str) -> bool:
    return name == prefix or name.startswith(prefix + ".")


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_down(path: Path) -> None:
    room = room_of(path)
    for name in imports_of(path):
        if within(name, "embermq") and room in MAY_IMPORT and name != "embermq.__version__":
            assert any(within(name, allowed) for allowed in MAY_IMPORT[room]), f"{room} imports {name}"
        for part, rooms in ONLY_IN.items():
            if within(name, part) and name != "random.Random":  # a seeded one is handed in, and must have a type
                assert room in rooms, f"{part} is imported in {room or 'the top'}"


def test_every_room_says_what_it_is() -> None:
    for path in modules():
        assert ast.get_docstring(ast.parse(path.read_text())), f"{path} has no docstring"
