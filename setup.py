"""The build: what `pyproject.toml` says, and the hot modules compiled with mypyc where a C compiler is.

`EMBERMQ_PURE=1` leaves the compiling out. The compiled modules go into the folder `_compiled` of the package, with a
manifest of their sources; `embermq.compiled` uses them only as long as these are unchanged.
"""

import ast
import json
import os
import runpy
import shutil
import sys
import tempfile
from collections.abc import Iterator
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import CCompilerError

PACKAGE = Path("src/embermq")
COMPILED = runpy.run_path(str(PACKAGE / "compiled.py"))  # not imported, since that would import the package
FOLDER: str = COMPILED["FOLDER"]

HOT = (
    "protocol",
    "broker",
    "store",
    "http/messages_json.py",
    "transport",
)
# Parts of them that run at the start or for commands only, and errors: those cross processes, and what mypyc compiles
# cannot be pickled.
INTERPRETED = (
    "broker/limits.py",
    "store/engines/checkpointer.py",
    "store/engines/directory.py",
    "store/errors.py",
    "store/log/arrow.py",
    "store/log/by_topic/index_file.py",
    "store/log/by_topic/indexer.py",
    "store/log/checkpoint.py",
    "store/log/errors.py",
    "store/log/identity.py",
    "store/log/recovery.py",
    "store/log/verify.py",
    "store/engines/opening.py",
    "store/engines/repair.py",
    "store/engines/replay.py",
    "store/engines/survey.py",
    "transport/listeners.py",
    "transport/sockets/loop.py",
    "transport/tls.py",
)

# Settings of mypy apart from those in pyproject.toml: with `num_workers`, mypyc builds empty modules without an error.
# Without the packages of this environment, types and so the compiled code are the same in every build.
MYPY_OPTIONS = ("--config-file=", "--no-site-packages", "--ignore-missing-imports", "--follow-imports=silent")
LIBRARY = "embermq"
C_FILES = "build/mypyc"


def hot_sources() -> list[Path]:
    found = {path for name in HOT for path in (PACKAGE / name, *(PACKAGE / name).rglob("*.py"))}
    cold = {PACKAGE / name for name in INTERPRETED}
    return sorted(path for path in found - cold if path.suffix == ".py" and path.name != "__init__.py")


def module_of(source: Path) -> str:
    return ".".join(source.relative_to(PACKAGE.parent).with_suffix("").parts)


def imported_sources(source: Path) -> Iterator[Path]:
    """Our modules that a source imports: the compiler copies constants out of them."""
    for node in ast.walk(ast.parse(source.read_bytes())):
        if isinstance(node, ast.ImportFrom) and node.module is not None and node.module.startswith("embermq."):
            path = PACKAGE.parent / (node.module.replace(".", os.sep) + ".py")
            if path.exists():
                yield path


def manifest_of(sources: list[Path]) -> dict[str, Any]:
    known = sorted({*sources, *(path for source in sources for path in imported_sources(source))})
    return {
        "suffix": COMPILED["EXTENSION_SUFFIXES"][0],
        "modules": [f"{LIBRARY}__mypyc", *map(module_of, sources)],
        "sources": {path.relative_to(PACKAGE).as_posix(): COMPILED["hash_of"](path) for path in known},
    }


def can_compile() -> bool:
    """Whether there is a C compiler, and the headers of this Python."""
    from distutils.ccompiler import new_compiler
    from distutils.sysconfig import customize_compiler, get_python_inc

    with tempfile.TemporaryDirectory() as directory:
        source = Path(directory, "empty.c")
        source.write_text("#include <Python.h>\n")
        compiler = new_compiler()
        customize_compiler(compiler)
        try:
            compiler.compile([str(source)], output_dir=directory, include_dirs=[get_python_inc()])
        except (CCompilerError, OSError):
            return False
    return True


class BuildCompiled(build_ext):
    """Compiles the hot modules, and writes the manifest when all of them are there."""

    def run(self) -> None:
        if self.inplace or getattr(self, "editable_mode", False):
            shutil.rmtree(PACKAGE / FOLDER, ignore_errors=True)
        if not self.extensions:
            return
        sources = hot_sources()
        manifest = manifest_of(sources)  # before the compiler reads them: an edit in between must show
        self.distribution.ext_modules = self._extensions(sources)
        self.swig_opts = None  # what the next call has made of it, it does not accept
        self.finalize_options()
        self.parallel = os.cpu_count()
        if self.inplace:
            for extension in self.extensions:
                Path(PACKAGE.parent, *extension.name.split(".")[:-1]).mkdir(parents=True, exist_ok=True)
        super().run()
        target = PACKAGE if self.inplace else Path(self.build_lib, "embermq")
        Path(target, FOLDER, COMPILED["MANIFEST"]).write_text(json.dumps(manifest, indent=1))

    def _extensions(self, sources: list[Path]) -> list[Extension]:
        from mypyc.build import mypycify

        made: list[Extension] = mypycify(
            [*MYPY_OPTIONS, *map(str, sources)],
            group_name=LIBRARY,
            multi_file=True,  # in one C file, they would be compiled on one core
            opt_level="2",
            debug_level="0",
            target_dir=C_FILES,
        )
        for extension in made:
            extension.name = f"embermq.{FOLDER}.{extension.name}"
            if sys.platform != "win32":
                extension.extra_compile_args += ["-Wno-error", "-fvisibility=hidden"]
        return made

    def build_extensions(self) -> None:
        """As usual, but the C files of one library on all cores, and only those that have changed."""
        compile_all = self.compiler.compile
        headers = [path.stat().st_mtime for path in Path(C_FILES).rglob("*.h")]

        def compile_changed(sources: list[str], output_dir: str | None = None, **options: Any) -> list[str]:
            def compile_one(source: str) -> list[str]:
                (expected,) = self.compiler.object_filenames([source], output_dir=output_dir)
                made = Path(expected)
                if made.exists() and made.stat().st_mtime > max(*headers, Path(source).stat().st_mtime):
                    return [expected]
                objects: list[str] = compile_all([source], output_dir=output_dir, **options)
                return objects

            with ThreadPool(os.cpu_count()) as pool:
                return [made for objects in pool.map(compile_one, sources) for made in objects]

        self.compiler.compile = compile_changed
        super().build_extensions()


if COMPILED["is_wanted_pure"]():
    extensions = []
elif can_compile():
    # A stand-in that marks the wheel as one for this platform; the build puts the real ones in its place.
    extensions = [Extension(f"embermq.{FOLDER}.{LIBRARY}__mypyc", sources=[])]
else:
    print("embermq: no C compiler with Python's headers was found, so the package is built to run interpreted")
    extensions = []

setup(ext_modules=extensions, cmdclass={"build_ext": BuildCompiled})
