"""docs/architecture.md names functions; each of them exists."""

import re
from importlib import import_module
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent / "docs"
NAMES = sorted(set(re.findall(r"`(embermq(?:\.\w+)+)`", (DOCS / "architecture.md").read_text())))


def resolve(name: str) -> object:
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found: object = import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for attribute in parts[cut:]:
            found = getattr(found, attribute)
        return found
    raise LookupError(name)


def test_the_page_names_the_whole_way() -> None:
    assert len(NAMES) > 15


@pytest.mark.parametrize("name", NAMES)
def test_every_name_is_real(name: str) -> None:
    assert resolve(name) is not None
