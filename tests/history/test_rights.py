"""What a user with rights on some topics sees of the past: as if the others had never been, also in the archive."""

from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from embermq.access.file_access import FileAccess
from embermq.broker.access import Identity
from embermq.http.login import Actor, Login
from embermq.http.operation import OPERATOR
from embermq.instants import utc_text
from embermq.protocol.topics import matches
from support.archived_history import ROUNDS, START_US, served
from support.http_place import Place
from support.trimmed_log import STEP_US

EARLY, LATE, NEW = (utc_text(START_US + (number + 1) * STEP_US) for number in (7, 90, ROUNDS - 3))
INSTANTS = [{}, {"as_of": EARLY}, {"as_of": LATE}, {"as_of": NEW}]
RIGHTS: tuple[list[str], ...] = (
    ["t/#"],
    ["t/1", "t/3", "u/#"],
    ["+/a/#", "once"],
    ["+/2"],
    ["#"],
    ["u/+/b", "u/a/+", "t"],
    ["nothing"],
    [],
)


class Chosen(Login):
    """Everybody is the user that the test chooses; None sees all."""

    identity: Identity | None = None

    async def actor(self, request: web.Request) -> Actor:
        return Actor("chosen", OPERATOR, "", self.identity)


async def listed(place: Place, path: str, **query: Any) -> list[Any]:
    """The items of all pages, the clients that published them left out."""
    found: list[Any] = []
    while True:
        answer = await place.get(f"/api/v1/{path}", **query)
        assert answer.status == 200, answer.json
        found += [{**item, "client_id": ""} for item in answer.json["items"]]
        if "next" not in answer.json:
            return found
        query["cursor"] = answer.json["next"]


def tree_of(now: list[Any], then: list[Any] | None, below: str | None) -> list[Any]:
    """The levels below a topic, worked out from the retained messages."""
    levels: dict[str, Any] = {}
    prefix = "" if below is None else f"{below}/"
    new, old = ({each["topic"]: each for each in found or []} for found in (now, then))
    for topic in new.keys() | old.keys():
        if not topic.startswith(prefix):
            continue
        level, _, _ = topic.removeprefix(prefix).partition("/")
        each = levels.setdefault(
            level,
            {
                "level": level,
                "has_children": False,
                "topics": 0,
                "message": None,
                "other": None,
                "change": {"appeared": 0, "changed": 0, "vanished": 0},
            },
        )
        each["topics"] += topic in new
        if topic not in old:
            each["change"]["appeared"] += 1
        elif topic not in new:
            each["change"]["vanished"] += 1
        elif new[topic]["offset"] != old[topic]["offset"]:
            each["change"]["changed"] += 1
        if topic == prefix + level:
            each["message"], each["other"] = new.get(topic), old.get(topic)
        else:
            each["has_children"] = True
    found = [levels[level] for level in sorted(levels)]
    return found if then is not None else [{**each, "change": None, "other": None} for each in found]


@pytest.mark.parametrize("limit", [1, 100])
def test_a_user_sees_what_it_would_if_there_were_nothing_else(place_of_all: Path, limit: int) -> None:
    lines = [f"user {number}\n" + "".join(f"read {each}\n" for each in read) for number, read in enumerate(RIGHTS)]
    (place_of_all / "acl").write_text("".join(lines))
    login = Chosen()

    async def compare(place: Place) -> None:
        whole = [await listed(place, "retained", **instant) for instant in INSTANTS]
        for number, read in enumerate(RIGHTS):
            login.identity = Identity(str(number), "")
            seen = [[each for each in found if any(matches(f, each["topic"]) for f in read)] for found in whole]
            for instant, expected in zip(INSTANTS, seen, strict=True):
                assert await listed(place, "retained", limit=limit, **instant) == expected
                for word in ("T/", "a", "once"):
                    found = await listed(place, "tree/search", word=word, limit=limit, payload_bytes=1000, **instant)
                    assert found == [each for each in expected if word.lower() in each["topic"]]
            for now, then in ((0, None), (1, None), (2, None), (2, 1), (0, 2), (3, 1), (1, 3)):
                query: dict[str, Any] = {**INSTANTS[now], "payload_bytes": 1000}
                if then is not None:
                    query["compare_with"] = INSTANTS[then]["as_of"]
                for below in (None, "t", "u", "u/a"):
                    if below is not None:
                        query["below"] = below
                    found = await listed(place, "tree", limit=limit, **query)
                    expected = tree_of(seen[now], None if then is None else seen[then], below)
                    assert [{name: each.get(name) for name in expected[0]} for each in found] == expected, (read, query)
            login.identity = None

    access = FileAccess(acl_file=place_of_all / "acl")
    served(place_of_all / "data", compare, str(place_of_all / "archive"), login=login, access=access)
