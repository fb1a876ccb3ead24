"""Which form of the hot modules runs: compiled with mypyc, or the same sources interpreted.

Owns: the choice, made once, when the package is imported. The build (`setup.py`) puts the compiled modules into the
folder `_compiled`, away from the sources, with a manifest of the sources that they came from. They are used only if all
of these sources are unchanged: an edit is in effect at the next start, interpreted, until the next build.
Never: an import of another module of ours.
"""

import importlib.util
import json
import os
import sys
from collections.abc import Sequence
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Final, final

PURE_VARIABLE: Final = "EMBERMQ_PURE"
"""Set to anything but 0, it chooses the interpreted form: of a build, and of a start."""
FOLDER: Final = "_compiled"
MANIFEST: Final = "manifest.json"
OUT_OF_DATE: Final = "the compiled modules are out of date, so the sources run interpreted; `make setup` compiles them"


@final
class CompiledModules:
    """A meta path finder: it finds the compiled modules before Python's own finder finds their sources."""

    def __init__(self, files: dict[str, str]) -> None:
        self._files: Final = files  # by module name

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        file = self._files.get(fullname)
        if file is None:
            return None
        return importlib.util.spec_from_file_location(fullname, file, loader=ExtensionFileLoader(fullname, file))


def is_wanted_pure() -> bool:
    """Whether the environment asks for the interpreted form."""
    return os.environ.get(PURE_VARIABLE, "0") not in ("", "0")


def hash_of(source: Path) -> str:
    return importlib.util.source_hash(source.read_bytes()).hex()


def read_manifest(package: Path) -> tuple[dict[str, str], bool]:
    """The compiled modules of a package's folder by name, none if they are of no use, and if they are up to date."""
    folder = package / FOLDER
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
        suffix: str = manifest["suffix"]
        if suffix not in EXTENSION_SUFFIXES:  # built for another version of Python
            return {}, True
        sources: dict[str, str] = manifest["sources"]
        files = {name: str(folder / (name.replace(".", os.sep) + suffix)) for name in manifest["modules"]}
    except FileNotFoundError:
        return {}, True
    except (OSError, ValueError, KeyError, TypeError):
        return {}, False
    try:
        is_fresh = all(hash_of(package / source) == expected for source, expected in sources.items())
    except OSError:  # a source was removed
        is_fresh = False
    return (files, True) if is_fresh else ({}, False)


def choose() -> None:
    """Make imports find the compiled modules if there are any, up to date, and nobody asked for the sources."""
    if is_wanted_pure():
        return
    files, is_fresh = read_manifest(Path(__file__).parent)
    if files:
        sys.meta_path.insert(0, CompiledModules(files))
    elif not is_fresh:
        import logging

        logging.getLogger("embermq").warning(OUT_OF_DATE)


def is_compiled() -> bool:
    """Whether this process runs the compiled form."""
    return any(isinstance(finder, CompiledModules) for finder in sys.meta_path)


def form() -> str:
    """The form in use, as `ember --version` and the start-up lines name it."""
    return "compiled" if is_compiled() else "interpreted"
