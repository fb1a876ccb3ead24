"""The packages, the direction of imports between them, and functions that fit on a screen (docs/architecture.md)."""

import ast
import re
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "embermq"
MODULES = sorted(SOURCE.rglob("*.py"))

FUNCTION_LINES_MAX = 60

# What MQTT and MQTT-SN share: packets in the words of MQTT 5, and none of the two.
PROTOCOL = ("protocol.errors", "protocol.message_expiry", "protocol.packets", "protocol.reasons", "protocol.topics")
# package -> what of ours it may import, by module prefix; the longest package name that fits a module decides
MAY_IMPORT: dict[str, tuple[str, ...]] = {
    "protocol": PROTOCOL,
    "protocol.mqtt": (*PROTOCOL, "protocol.mqtt"),
    "protocol.sn.wire": (*PROTOCOL, "protocol.sn.wire"),
    "protocol.sn": (*PROTOCOL, "protocol.sn"),
    "store.log": ("protocol", "store.errors", "store.rows", "store.segment", "store.log", "named_thread"),
    # The words between the broker and an engine know no engine.
    "store.interface": (
        "protocol",
        "store.errors",
        "store.history.pieces",
        "store.history.retained_messages",
        "store.segment",
        "store.records",
        "store.topic_tree",
    ),
    "store.history.pieces": (
        "protocol",
        "store.errors",
        "store.history.lanes",
        "store.history.retained_messages",
        "store.history.trimmed",
        "store.topic_tree",
    ),
    "store.history.lanes": ("named_thread",),
    "store.history.retained_messages": (),
    "store.topic_tree": (),
    "store.records": ("protocol", "store.rows"),
    "store.rows": (),
    "store.segment": (),
    "store.state": (
        "protocol",
        "store.rows",
        "store.records",
        "store.interface",
        "store.errors",
        "store.budgets",
        "store.retained_expiry",
        "store.log",
        "store.state",
        "store.topic_tree",
    ),
    "store": ("protocol", "store", "named_thread"),
    "cluster": ("store", "errors", "named_thread", "cluster"),
    "client": ("protocol.reasons", "transport.sockets", "errors", "client"),
    "bridge": (
        "protocol",
        "store.errors",
        "store.interface",
        "store.log",
        "store.rows",
        "broker",
        "transport",
        "client",
        "errors",
        "named_thread",
        "bridge",
    ),
    "archive": ("protocol", "store", "errors", "extras", "instants", "named_thread", "archive"),
    "broker": ("protocol", "store.interface", "store.records", "broker"),
    "broker.history": ("protocol", "store.interface", "store.records", "store.history.pieces", "broker", "instants"),
    "access": ("protocol", "broker.access", "errors", "access"),
    "mosquitto": ("protocol", "store.interface", "store.records", "access.passwords", "errors", "mosquitto"),
    "transport.sockets": ("transport.sockets",),
    "transport": ("protocol", "store.interface", "broker", "transport"),
    "http": (
        "protocol",
        "store.interface",
        "store.errors",
        "store.rows",
        "store.log",
        "store.topic_tree",
        "archive.errors",
        "history",
        "broker",
        "access.tokens",
        "access.access_files",
        "transport",
        "errors",
        "instants",
        "named_thread",
        "lake",
        "units",
        "store.history.lanes",
        "store.history.pieces",
        "bridge.facts",
        "http",
    ),
    "history": ("protocol", "store", "archive", "errors", "instants", "history"),
    "lake": (
        "protocol",
        "history",
        "store.rows",
        "store.log",
        "store.engines.retention",
        "errors",
        "instants",
        "units",
        "lake",
    ),
    "spark.source": (
        "protocol",
        "store.rows",
        "store.log",
        "history",
        "lake",
        "spark.errors",
        "spark.options",
        "spark.source",
    ),
    "spark.sink": ("protocol", "lake.errors", "spark.errors", "spark.options", "spark.sink"),
    "spark.lake": ("store.rows", "store.log", "instants", "lake", "spark.errors", "spark.lake"),
    "spark.jobs": (
        "protocol",
        "store.rows",
        "store.log",
        "lake",
        "store.records",
        "spark.errors",
        "spark.lake",
        "spark.jobs",
    ),
    "spark": (
        "protocol",
        "archive.address",
        "archive.errors",
        "history",
        "store.errors",
        "store.rows",
        "store.log",
        "instants",
        "lake",
        "spark",
    ),
    "sql": (
        "history",
        "protocol",
        "store.rows",
        "store.log",
        "store.records",
        "instants",
        "lake",
        "sql",
    ),
}
# third-party parts that only certain packages may know; "" is the top and the commands
ONLY_IN: dict[str, tuple[str, ...]] = {
    "pyspark": ("spark",),
    "delta": ("spark",),
    "rocksdict": ("store.state",),
    "aiohttp": ("transport", "http"),
    "confluent_kafka": ("cluster",),
    "prometheus_client": ("http",),
    "asyncio": ("transport", "http", "bridge", ""),
    "uvloop": ("",),
    "jwt": ("access.sources",),
    "socket": ("transport", "access.sources", "bridge", "client", "http", "history", "mosquitto", "spark", ""),
    "time": (
        *(
            "transport",
            "access.sources",
            "bridge",
            "http",
            "store",
            "archive",
            "cluster",
            "history",
            "lake",
            "spark",
            "sql",
            "",
        ),
    ),
    "random": ("transport", "bridge", ""),
}


# Folders of one package are layers: of two, one imports the other, for types too. These pairs still do both; the list
# may only become shorter.
BOTH_WAYS: set[tuple[str, str]] = {
    ("broker", "broker.history"),
    ("store", "store.history"),
}
LAYERED = ("protocol", "broker", "store", "archive", "history", "access", "transport")
# Packages in which no module imports another that imports it, directly or not, for types too.
WITHOUT_CYCLES = ("broker", "transport", "access", "store")


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


def imported_modules(package: str) -> Iterator[tuple[str, str]]:
    """The imports within a package: a module, and one that it imports."""
    modules = {module_of(path): path for path in MODULES if within(module_of(path), package)}
    for module, path in modules.items():
        for name in imports_of(path):
            ours = name.removeprefix("embermq.")
            imported = ours if ours in modules else ours.rpartition(".")[0]
            if imported in modules and imported != module:
                yield module, imported


def folder_of(module: str) -> str:
    return module if (SOURCE / module.replace(".", "/")).is_dir() else module.rpartition(".")[0]


def test_of_two_folders_of_a_package_one_imports_the_other() -> None:
    pairs = {
        (folder_of(module), folder_of(imported))
        for package in LAYERED
        for module, imported in imported_modules(package)
        if folder_of(module) != folder_of(imported)
    }
    assert {pair for pair in pairs if pair[::-1] in pairs and pair[0] < pair[1]} == BOTH_WAYS


@pytest.mark.parametrize("package", WITHOUT_CYCLES)
def test_no_module_imports_one_that_imports_it(package: str) -> None:
    imported: dict[str, set[str]] = {}
    for module, other in imported_modules(package):
        imported.setdefault(module, set()).add(other)
    assert len(list(TopologicalSorter(imported).static_order())) > 1  # raises CycleError, which names the modules


SHELLS = [path for path in MODULES if module_of(path).split(".")[0] in ("transport", "http")]


@pytest.mark.parametrize("path", SHELLS, ids=ids)
def test_a_shell_calls_the_core_and_not_its_parts(path: Path) -> None:
    assert parts_of_the_core(path.read_text()) == set()


def parts_of_the_core(source: str) -> set[str]:
    """The parts of a `Core` that a source reaches into; its counters are for everybody."""
    return set(re.findall(r"\bcore\.(\w+)\.\w", source)) - {"counters"}


def test_a_part_of_the_core_is_seen() -> None:
    assert parts_of_the_core("self._server.core.effects.add(core.session(core.counters.dropped))") == {"effects"}
