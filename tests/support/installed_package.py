"""A package with entry points, as if pip had installed it."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def installed_package(directory: Path, name: str, code: str, entry_points: str) -> Iterator[None]:
    """`name` is that of its only module, and `entry_points` the text of its entry_points.txt."""
    facts = directory / f"{name}-1.0.dist-info"
    facts.mkdir(parents=True)
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: x\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text(entry_points)
    (directory / f"{name}.py").write_text(code)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(directory))
        yield
    sys.modules.pop(name, None)
