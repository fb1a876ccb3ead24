"""What the pages and the code refer to exists: pages, headings, files, dotted names."""

import re
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), ROOT / "bench" / "README.md", *(ROOT / "docs").rglob("*.md")])
CODE = sorted(path for folder in ("src", "tests", "bench", "examples") for path in (ROOT / folder).rglob("*.py"))

LINK = re.compile(r"\[[^\]]+\]\(([^)\s]+)\)")
CITED_PAGE = re.compile(r"\bdocs/([\w/-]+\.md)(?:,\s+\"([^\"\n]+)\")?")
CITED_FILE = re.compile(r"`((?:src|tests|bench|examples|deploy|docs|tools)/[\w./-]+)`")
CITED_TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
DOTTED_NAME = re.compile(r"`(embermq(?:\.\w+)+)`")
NOT_IN_THE_REPOSITORY = re.compile(r"\b(?:digest(?: section)?|decisions?|style,? section|review,? section) \d", re.I)


def ids(path: Path) -> str:
    return str(path.relative_to(ROOT))


def headings(page: Path) -> list[str]:
    return [line.lstrip("#").strip() for line in page.read_text().splitlines() if line.startswith("#")]


def anchor(heading: str) -> str:
    """The fragment by which a heading is linked to, as the usual viewers make it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


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


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text()):
        if "://" in target:
            continue
        file, _, fragment = target.partition("#")
        linked = (page.parent / file).resolve() if file else page
        assert linked.exists(), target
        assert not fragment or fragment in [anchor(heading) for heading in headings(linked)], target


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_files_that_a_page_names_exist(page: Path) -> None:
    for name in CITED_FILE.findall(page.read_text()):
        assert (ROOT / name).exists(), name


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_tests_that_a_page_names_exist(page: Path) -> None:
    for name, test in CITED_TEST.findall(page.read_text()):
        assert re.search(rf"def {test}\(", (ROOT / name).read_text()), f"{name} has no {test}"


def test_every_line_of_the_security_page_names_a_test() -> None:
    rows = [line for line in (ROOT / "docs" / "security.md").read_text().splitlines() if line.startswith("| ")]
    claims = [row for row in rows if row != "| it | shown by |"]
    assert len(claims) > 20
    assert [row for row in claims if not CITED_TEST.search(row)] == []


@pytest.mark.parametrize("path", [*PAGES, *CODE], ids=ids)
def test_cited_pages_and_headings_exist(path: Path) -> None:
    for name, heading in CITED_PAGE.findall(path.read_text()):
        page = ROOT / "docs" / name
        assert page.exists(), name
        assert not heading or heading in headings(page), f"{name} has no heading {heading!r}"


@pytest.mark.parametrize("path", CODE, ids=ids)
def test_nothing_is_cited_that_a_reader_cannot_follow(path: Path) -> None:
    if path != Path(__file__):
        assert NOT_IN_THE_REPOSITORY.findall(path.read_text()) == []


def names_on(page: str) -> list[str]:
    return sorted(set(DOTTED_NAME.findall((ROOT / "docs" / page).read_text())))


def test_the_architecture_page_names_whole_paths() -> None:
    assert len(names_on("architecture.md")) > 40


@pytest.mark.parametrize("name", sorted({name for page in PAGES for name in DOTTED_NAME.findall(page.read_text())}))
def test_every_name_on_a_page_is_real(name: str) -> None:
    assert resolve(name) is not None
