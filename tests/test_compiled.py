"""The choice between compiled modules and their sources: a source that has changed is never hidden by an old binary."""

import ast
import json
import os
import shutil
import subprocess
import sys
from collections import defaultdict
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

import embermq
from embermq.compiled import FOLDER, MANIFEST, OUT_OF_DATE, PURE_VARIABLE, form, hash_of, is_compiled, read_manifest

PACKAGE = Path(embermq.__file__).parent
REPORT = "import embermq.broker.core as core; from embermq.compiled import form; print(form(), core.__file__)"


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package with two sources, both in the manifest and one of them compiled."""
    for name in ("hot.py", "constants.py"):
        (tmp_path / name).write_text("x = 1\n")
    write_manifest(tmp_path, EXTENSION_SUFFIXES[0])
    return tmp_path


def write_manifest(package: Path, suffix: str) -> None:
    sources = {path.name: hash_of(path) for path in package.glob("*.py")}
    (package / FOLDER).mkdir(exist_ok=True)
    manifest = {"suffix": suffix, "modules": ["embermq.hot"], "sources": sources}
    (package / FOLDER / MANIFEST).write_text(json.dumps(manifest))


def test_modules_are_compiled_while_their_sources_are_unchanged(package: Path) -> None:
    binary = package / FOLDER / "embermq" / f"hot{EXTENSION_SUFFIXES[0]}"
    assert read_manifest(package) == ({"embermq.hot": str(binary)}, True)
    os.utime(package / "hot.py", (0, 0))  # what counts is the content
    assert read_manifest(package) == ({"embermq.hot": str(binary)}, True)


@pytest.mark.parametrize("name", ["hot.py", "constants.py"])
def test_no_module_is_compiled_when_one_source_has_changed(package: Path, name: str) -> None:
    (package / name).write_text("x = 2\n")
    assert read_manifest(package) == ({}, False)


def test_no_module_is_compiled_when_one_source_is_gone(package: Path) -> None:
    (package / "hot.py").unlink()
    assert read_manifest(package) == ({}, False)


def test_a_manifest_that_cannot_be_read_is_out_of_date(package: Path) -> None:
    (package / FOLDER / MANIFEST).write_text("{")
    assert read_manifest(package) == ({}, False)


def test_without_compiled_modules_there_is_nothing_to_tell(package: Path) -> None:
    write_manifest(package, ".cpython-30-other.so")
    assert read_manifest(package) == ({}, True)
    shutil.rmtree(package / FOLDER)
    assert read_manifest(package) == ({}, True)


def report(source: Path, **environment: str) -> tuple[str, str, str]:
    """The form that a new process with the packages of a folder says, the file that it runs, and its errors."""
    clean = {name: value for name, value in os.environ.items() if name not in (PURE_VARIABLE, "PYTHONPATH")}
    done = subprocess.run(
        [sys.executable, "-c", REPORT],
        env=clean | {"PYTHONPATH": str(source)} | environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    said, file = done.stdout.split()
    return said, Path(file).suffix, done.stderr


def test_what_this_process_says_is_what_it_runs() -> None:
    from embermq.broker import core

    assert core.__file__.endswith(".py") is not is_compiled()
    assert form() == ("compiled" if is_compiled() else "interpreted")


def test_an_edit_runs_interpreted_with_one_sentence_until_the_next_build(tmp_path: Path) -> None:
    if not read_manifest(PACKAGE)[0]:
        pytest.skip("the hot modules are not compiled here, or out of date")
    shutil.copytree(PACKAGE, tmp_path / "embermq", ignore=shutil.ignore_patterns("__pycache__"))
    assert report(tmp_path) == ("compiled", ".so", "")
    assert report(tmp_path, **{PURE_VARIABLE: "1"}) == ("interpreted", ".py", "")
    edited = tmp_path / "embermq" / "protocol" / "topics.py"  # not the module that the report names: all go back
    edited.write_text(edited.read_text() + "\n")
    assert report(tmp_path) == ("interpreted", ".py", OUT_OF_DATE + "\n")


def test_a_name_of_an_exception_has_one_type_in_a_function() -> None:
    """mypyc gives the name of a second `except ... as name` the type of the first, and fails when it is raised."""
    mixed: list[str] = []
    for package in ("protocol", "broker", "store", "transport"):
        for path in (PACKAGE / package).rglob("*.py"):
            for function in ast.walk(ast.parse(path.read_text())):
                if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                    types = defaultdict[str, set[str]](set)
                    for node in ast.walk(function):
                        if isinstance(node, ast.ExceptHandler) and node.name and node.type is not None:
                            types[node.name].add(ast.unparse(node.type))
                    mixed += [f"{path}: {function.name}: {name}" for name, found in types.items() if len(found) > 1]
    assert mixed == []


TAKES_ALL = {"all", "any", "fromkeys", "frozenset", "join", "list", "max", "min", "set", "sorted", "sum", "tuple"}


def takes_all(parent: ast.AST) -> bool:
    """Whether what contains a generator expression takes all of it."""
    if isinstance(parent, ast.Call):
        return ast.unparse(parent.func).split(".")[-1] in TAKES_ALL
    return isinstance(parent, ast.Starred) or (
        isinstance(parent, ast.Assign) and isinstance(parent.targets[0], ast.Tuple)
    )


def test_a_generator_expression_stands_only_where_all_of_it_is_taken() -> None:
    """mypyc makes a list of it. A piece of the retained set so took as long as the whole set."""
    interpreted = ("log/identity.py", "engines/repair.py")  # setup.py
    lazy = [
        f"{path}:{node.lineno}"
        for package in ("protocol", "broker", "store", "transport")
        for path in (PACKAGE / package).rglob("*.py")
        for parent in ast.walk(ast.parse(path.read_text()))
        for node in ast.iter_child_nodes(parent)
        if isinstance(node, ast.GeneratorExp) and not takes_all(parent) and not path.as_posix().endswith(interpreted)
    ]
    assert not lazy, "\n".join(lazy)
