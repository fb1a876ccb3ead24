"""What a user may do, and which line of the access list decides; it is what the broker does."""

from pathlib import Path

from embermq.access.file_access import FileAccess
from support.http_place import Place, run

LIST = """all
read public/#
user ann
read,write a/%c/#
retain a/+/kept
anonymous
read -
user root
see all
"""


async def asked(place: Place, **query: str) -> tuple[bool, list[str], str]:
    answer = await place.get("/api/v1/access", **query)
    assert answer.status == 200, answer.json
    rules = [rule.partition(": ")[2] for rule in answer.json["rules"]]
    return answer.json["allowed"], rules, answer.json["why"]


def test_each_answer_names_the_lines_that_decide(tmp_path: Path) -> None:
    (tmp_path / "acl").write_text(LIST)

    async def test(place: Place) -> None:
        granted = "allowed by the access list"
        assert await asked(place, user="ann", topic="public/x") == (True, ["read public/#"], granted)
        mine = {"user": "ann", "client_id": "c1"}
        assert await asked(place, **mine, topic="a/c1/#") == (True, ["read,write a/%c/#"], granted)
        assert await asked(place, **mine, topic="a/#") == (
            False, [], "no line of the access list lets the user 'ann' read 'a/#'",
        )  # fmt: skip
        both = ["read,write a/%c/#", "retain a/+/kept"]
        assert await asked(place, **mine, verb="retain", topic="a/c1/kept") == (True, both, granted)
        assert (await asked(place, **mine, verb="retain", topic="a/c1/x"))[0] is False
        assert (await asked(place, **mine, verb="write", topic="a/c2/x"))[0] is False
        assert await asked(place, user="root", verb="see-all", topic="#") == (True, ["see all"], granted)
        assert (await asked(place, topic="x"))[2] == "no line of the access list lets an anonymous client read 'x'"
        line = (await place.get("/api/v1/access", user="ann", topic="public/x")).json["rules"][0]
        assert line == f"{tmp_path / 'acl'}, line 2: read public/#"
        refused = await place.get("/api/v1/access", verb="write", topic="a/#")
        assert (refused.status, refused.error.startswith("topic: ")) == (422, True)

    run(tmp_path, test, access=FileAccess(acl_file=tmp_path / "acl", allow_anonymous=True))


def test_without_an_access_list_everything_is_allowed(tmp_path: Path) -> None:
    async def test(place: Place) -> None:
        assert await asked(place, verb="retain", topic="x") == (
            True, [], "there is no access list: every client may do everything",
        )  # fmt: skip

    run(tmp_path, test)
