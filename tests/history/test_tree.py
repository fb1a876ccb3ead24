"""The topic tree of instants that only the archive has, over HTTP: as in a log that was never trimmed."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from embermq.archive.archive import open_archive
from embermq.instants import utc_text
from support.archived_history import ROUNDS, START_US, served
from support.archives import writer_of
from support.http_place import Place
from support.trimmed_log import STEP_US

EARLY, LATER, LATE, NEW = (utc_text(START_US + (number + 1) * STEP_US) for number in (7, 40, 90, ROUNDS - 3))
QUESTIONS: list[tuple[str, dict[str, Any]]] = [
    ("tree", {"as_of": EARLY}),
    ("tree", {"as_of": LATE, "below": "t", "limit": 2}),
    ("tree", {"as_of": LATE, "below": "u/a"}),
    ("tree", {"as_of": LATE, "below": "t", "compare_with": EARLY}),
    ("tree", {"as_of": LATER, "below": "t", "compare_with": utc_text(START_US + 41 * STEP_US - 1)}),
    ("tree", {"as_of": NEW, "below": "t", "compare_with": LATE}),
    ("tree", {"below": "t", "compare_with": LATER}),
    ("tree", {"as_of": EARLY, "compare_with": NEW}),
    ("tree/count", {"as_of": LATE}),
    ("tree/count", {"as_of": LATE, "below": "t", "compare_with": EARLY}),
    ("tree/count", {"below": "u", "compare_with": EARLY}),
    ("tree/count", {"below": "nothing", "as_of": EARLY}),
    ("tree/search", {"as_of": LATE, "word": "T/"}),
    ("tree/search", {"as_of": LATE, "word": "u", "limit": 1}),
    ("tree/search", {"as_of": LATER, "filter": "t/+", "limit": 2}),
    ("retained", {"as_of": LATER, "limit": 3}),
]


async def pages(place: Place, name: str, query: dict[str, Any]) -> list[Any]:
    """The answers until the last page, without how far back the history reaches."""
    found: list[Any] = []
    while True:
        answer = await place.get(f"/api/v1/{name}", **query)
        assert answer.status == 200, answer.json
        found.append({key: value for key, value in answer.json.items() if key not in ("begins", "next")})
        if "next" not in answer.json:
            return found
        query = {**query, "cursor": answer.json["next"]}


def items(found: list[Any]) -> list[Any]:
    return [item for page in found for item in page.get("items", [page])]


def test_every_question_is_answered_as_if_nothing_was_trimmed(place_of_all: Path) -> None:
    expected: list[list[Any]] = []

    async def ask(place: Place) -> None:
        for name, query in QUESTIONS:
            expected.append(items(await pages(place, name, query)))

    async def compare(place: Place) -> None:
        for (name, query), known in zip(QUESTIONS, expected, strict=True):
            assert items(await pages(place, name, query)) == known, (name, query)
        answer = (await place.get("/api/v1/tree", as_of=EARLY)).json
        assert answer["begins"] == utc_text(START_US + STEP_US), "the first record"

    served(place_of_all / "kept", ask)
    assert sum(len(each) for each in expected) > 50
    assert any(item["change"]["changed"] for item in expected[3]) and any(item["sign"] == "~" for item in expected[5])
    served(place_of_all / "data", compare, str(place_of_all / "archive"))


@pytest.mark.parametrize("path", ["tree", "tree/count", "tree/search?word=t&", "tree/search?filter=%23&"])
def test_what_cannot_be_known_is_said(place_of_all: Path, path: str) -> None:
    query = path + ("" if "?" in path else "?") + f"as_of={EARLY}"
    away = place_of_all / "away"

    async def unreachable(place: Place) -> None:
        (place_of_all / "archive").rename(away)
        answer = await place.get(f"/api/v1/{query}")
        assert answer.status == 503
        assert answer.error == f"{place_of_all}/archive is not an archive: no server has written to it"
        assert (await place.get("/api/v1/tree", as_of=NEW)).status == 200, "the log has it"
        away.rename(place_of_all / "archive")
        assert (await place.get(f"/api/v1/{query}")).status == 200

    async def gone(place: Place) -> None:
        answer = await place.get(f"/api/v1/{query}")
        assert answer.status == 410 and "the history is kept from" in answer.error

    archive = str(place_of_all / "archive")
    served(place_of_all / "data", unreachable, archive)
    writer = writer_of(archive, place_of_all / "data" / "log")
    writer.delete(open_archive(archive).segments()[0])
    served(place_of_all / "data", gone, archive)
    shutil.rmtree(place_of_all / "archive")
    served(place_of_all / "data", gone)
