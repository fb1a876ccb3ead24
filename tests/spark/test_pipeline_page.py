"""docs/pipeline.md: what its Python examples import exists."""

import re
from importlib import import_module
from pathlib import Path

import pytest

PAGE = Path(__file__).parent.parent.parent / "docs" / "pipeline.md"
IMPORTS = re.findall(r"^from (embermq[\w.]*) import ([\w, ]+)$", PAGE.read_text(), re.MULTILINE)


@pytest.mark.parametrize(("module", "names"), IMPORTS)
def test_what_the_page_imports_exists(module: str, names: str) -> None:
    for name in names.split(", "):
        assert hasattr(import_module(module), name)
