"""The packages, the direction of imports between them, and functions that fit on a screen (docs/architecture.md)."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "embermq"
MODULES = sorted(SOURCE.rglob("*.py"))

FUNCTION_LINES_MAX = 60

# package -> what of ours it may import, by module prefix; the longest package name that fits a module decides
MAY_IMPORT: dict[str, tuple[str, ...]] = {
    "protocol": ("protocol",),
    "protocol.mqtt": (
        "protocol.acknowledgements",
        "protocol.errors",
        "protocol.message_expiry",
        "protocol.packets",
        "protocol.reasons",
        "protocol.refused_publish",
        "protocol.topics",
        "protocol.mqtt",
    ),
    "protocol.sn.wire": (
        "protocol.errors",
        "protocol.packets",
        "protocol.reasons",
        "protocol.topics",
        "protocol.sn.wire",
    ),
    "protocol.sn": (
        "protocol.errors",
        "protocol.message_expiry",
        "protocol.packets",
        "protocol.reasons",
        "protocol.topics",
        "protocol.sn",
    ),
    "store.log": ("protocol", "store.errors", "store.log", "named_thread"),
    "store.state": (
        "protocol",
        "store.interface",
        "store.errors",
        "store.budgets",
        "store.log",
        "store.state",
        "store.topic_tree",
    ),
    "store": ("protocol", "store", "named_thread"),
    "archive": ("protocol", "store", "errors", "instants", "named_thread", "archive"),
    "broker": ("protocol", "store.interface", "broker"),
    "broker.history": ("protocol", "store.interface", "store.history.pieces", "broker", "instants"),
    "access": ("protocol", "broker.access", "errors", "access"),
    "transport": ("protocol", "store.interface", "broker", "transport"),
    "http": (
        "protocol",
        "store.interface",
        "store.errors",
        "store.log",
        "store.topic_tree",
        "archive",
        "broker",
        "access.tokens",
        "transport",
        "errors",
        "instants",
        "named_thread",
        "http",
    ),
    "spark.source": ("protocol", "archive", "store.log", "instants", "spark.errors", "spark.options", "spark.source"),
    "spark.sink": ("protocol", "spark.errors", "spark.options", "spark.sink"),
    "spark.lake": ("store.log", "instants", "spark.errors", "spark.source", "spark.lake"),
    "spark.jobs": (
        "protocol",
        "store.log",
        "spark.errors",
        "spark.options",
        "spark.source",
        "spark.lake",
        "spark.jobs",
    ),
    "spark": ("protocol", "archive", "store.errors", "store.log", "instants", "spark"),
    "sql": (
        "archive",
        "protocol",
        "store.log",
        "instants",
        "spark.errors",
        "spark.lake",
        "spark.local",
        "spark.source",
        "sql",
    ),
}
# third-party parts that only certain packages may know; "" is the top and the commands
ONLY_IN: dict[str, tuple[str, ...]] = {
    "pyspark": ("spark",),
    "delta": ("spark",),
    "rocksdict": ("store.state",),
    "aiohttp": ("transport", "http"),
    "prometheus_client": ("http",),
    "asyncio": ("transport", "http", ""),
    "uvloop": ("",),
    "socket": ("transport", "http", "spark", ""),
    "time": ("transport", "http", "store", "archive", "spark", "sql", ""),
    "random": ("transport", ""),
}


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")


def within(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")


def imports_of(path: Path) -> list[str]:
    found: list[str] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import hides what a package imports"
            assert node.module is not None
            found += [f"{node.module}.{alias.name}" for alias in node.names]
    return found


def ids(path: Path) -> str:
    return str(path.relative_to(SOURCE))


@pytest.mark.parametrize("path", MODULES, ids=ids)
def test_imports_point_down(path: Path) -> None:
    module = module_of(path)
    package = max((name for name in MAY_IMPORT if within(module, name)), key=len, default="")
    for name in imports_of(path):
        if package and within(name, "embermq") and name != "embermq.__version__":
            ours = name.removeprefix("embermq.")
            assert any(within(ours, allowed) for allowed in MAY_IMPORT[package]), f"{module} imports {name}"
        for part, packages in ONLY_IN.items():
            if within(name, part) and name != "random.Random":  # a seeded one is an argument, and must have a type
                allowed = any(within(module, one) for one in packages if one) or (not package and "" in packages)
                assert allowed, f"{module} imports {part}"


@pytest.mark.parametrize("path", MODULES, ids=ids)
def test_every_module_says_what_it_is_and_its_functions_fit_on_a_screen(path: Path) -> None:
    tree = ast.parse(path.read_text())
    assert ast.get_docstring(tree), "no docstring"
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name != "__init__":  # a list of fields
            assert node.end_lineno is not None
            assert node.end_lineno - node.lineno < FUNCTION_LINES_MAX, f"{node.name} is too long"
