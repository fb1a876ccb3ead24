"""Rights over HTTP: a user of the password file sees and changes what the access list grants, and nothing else."""

import http.client
import json
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

import pytest
from aiohttp.test_utils import make_mocked_request

from embermq.access.file_access import FileAccess
from embermq.access.passwords import write_password
from embermq.broker.access import Identity
from embermq.config import load
from embermq.embed import Broker, BrokerThread
from embermq.http.catalog import OPERATIONS
from embermq.http.fields import NDJSON, Nothing
from embermq.http.login import Actor
from embermq.http.operation import VIEWER, Answer, Call, Operation
from embermq.http.refusal import HttpRefusal
from embermq.http.resources.facts import Health
from embermq.http.resources.users import NO_ACCESS_CHANGES
from embermq.http.view import NO_PUBLISHING, NO_RETAINING, NOT_ALL, NOT_THIS_TOPIC
from support.ember_command import ember
from support.http_place import Place, run
from support.wire import Wire

B: Final = "b-secret"
"""In every topic name, filter, payload, client identifier and name that belongs to the topics below `b-secret/`."""

ACCESS_LIST: Final = """
user ann
read a/#

user olive
read,write,retain a/#

user carl
read a/x
read +/part/+

user root
see all
read,write,retain #
"""
SETTINGS: Final = f"""
[listeners]
port = 0
[store]
directory = "data"
[[store.budgets]]
topic_filter = "{B}/#"
count_max = 1000
[access]
password_file = "passwords"
acl_file = "acl"
[http]
port = 0
viewers = ["ann", "carl"]
operators = ["olive", "root"]
lake = "lake"
"""
USERS: Final = ("ann", "olive", "carl", "root")

Query = dict[str, Any]
TOPIC_NAMES: Final = ("a/x", "a", f"{B}/x", B, "$SYS/broker/uptime", "nothing")
FILTERS: Final = ("#", "a/#", f"{B}/#", "+/x", "+/+/+", f"{B}/x", "$SYS/#", "/#")
MOMENTS: Final[list[Query]] = [{}, {"as_of": "0s"}, {"compare_with": "1h"}, {"as_of": "0s", "compare_with": "0s"}]


def each(name: str, values: tuple[Any, ...], **more: Any) -> list[Query]:
    return [{name: value, **more} for value in values]


MESSAGES_OF: Final[list[Query]] = [
    {},
    {"limit": 1},
    {"limit": 2, "cursor": 2},
    {"from_offset": 1, "payload_bytes": 1},
    {"since": "1h", "until": "0s"},
    *each("filter", FILTERS),
]
PAGES: Final[list[Query]] = [{}, {"limit": 1}, {"cursor": "a"}, {"cursor": B[:3]}]
CLIENT_IDS: Final[list[Query]] = [*PAGES, *each("client_id", (f"{B}-client", f"{B}-away", "nobody"))]

ASKED: Final[dict[str, list[Query]]] = {
    "/healthz": [{}],
    "/readyz": [{}],
    "/openapi.json": [{}],
    "/metrics": [{}],
    "/api/v1/whoami": [{}],
    "/api/v1/statistics": [{}],
    "/api/v1/statistics/history": [{}, {"minutes": 1}],
    "/api/v1/alerts": [{}],
    "/api/v1/bridges": [{}],
    "/api/v1/settings": [{}],
    "/api/v1/clients": CLIENT_IDS,
    "/api/v1/sessions": CLIENT_IDS,
    "/api/v1/subscriptions": [*CLIENT_IDS, *each("filter", FILTERS), *each("topic", TOPIC_NAMES)],
    "/api/v1/share-groups": PAGES,
    "/api/v1/retained": [
        *PAGES,
        *each("filter", FILTERS),
        *each("filter", FILTERS, as_of="0s", limit=1),
        *each("payload_bytes", (0, 3)),
        {"as_of": "1h"},
    ],
    "/api/v1/retained/message": [*each("topic", TOPIC_NAMES), *each("topic", TOPIC_NAMES, as_of="0s")],
    "/api/v1/retained/history": [*each("topic", TOPIC_NAMES), *each("topic", TOPIC_NAMES, since="1h", limit=1)],
    "/api/v1/tree": [
        {"below": below, **moments, **page}
        for below in ("a", B, f"{B}/part", "", "nothing", None)
        for moments in MOMENTS
        for page in PAGES
    ],
    "/api/v1/tree/count": [
        {"below": below, **moments} for below in ("a", B, None, "a/x", f"{B}/x") for moments in MOMENTS
    ],
    "/api/v1/tree/search": [
        *each("word", ("x", "a", "b", B, "S", "/", "secret")),
        *each("word", ("x", B, "/"), limit=1),
        *each("word", ("x", B, "/"), as_of="0s", cursor="a/x"),
        *each("filter", FILTERS),
        *each("filter", FILTERS, as_of="0s", limit=1),
    ],
    "/api/v1/messages": MESSAGES_OF,
    "/api/v1/messages/rate": [{}, {"since": "1h", "buckets": 3}],
    "/api/v1/topic/values": [*each("topic", TOPIC_NAMES), *each("topic", TOPIC_NAMES, since="1h", limit=1)],
    "/api/v1/messages/tail": [*each("filter", FILTERS), *each("filter", FILTERS, from_offset=1)],
    "/api/v1/access": [{"user": "ann", "topic": f"{B}/x"}, {"user": "olive", "verb": "retain", "topic": "a/x"}],
    "/api/v1/users": [{}],
    "/api/v1/access/rules": [{}],
    "/api/v1/messages/latest": each("filter", FILTERS, every_ms=100),
    "/api/v1/log": [{}],
    "/api/v1/log/segments": [{}, {"limit": 1}],
    "/api/v1/log/offset": [{"at": "1h"}, {"at": "0s"}],
    "/api/v1/log/blocks": [{"from_offset": 1, "to_offset": 1000}],
    "/api/v1/log/checkpoint": [{"offset": 1}, {"offset": 1, "position": 3}],
    "/api/v1/pipeline": [{}],
    "/api/v1/nodes": [{}],
}
"""The questions of each GET, as query parameters."""

CHANGES: Final[dict[str, list[Query]]] = {
    "/api/v1/reload": [{}],
    "/api/v1/clients/disconnect": [{"client_ids": [f"{B}-client"]}],
    "/api/v1/sessions/end": [{"client_ids": [f"{B}-away", f"{B}-client"]}],
    "/api/v1/retained/set": [
        {"messages": [{"topic": f"{B}/x", "payload": "changed"}, {"topic": f"{B}/new", "payload": "new"}]},
        {"messages": [{"topic": "a/new", "payload": "1"}, {"topic": f"{B}/new", "payload": "new"}]},
    ],
    "/api/v1/retained/clear": [
        {"filter": topic_filter, "dry_run": dry_run} for dry_run in (True, False) for topic_filter in FILTERS
    ],
    "/api/v1/messages/publish": [
        {"messages": [{"topic": topic, "payload": "new", "retain": retain} for topic in (f"{B}/x", f"{B}/new")]}
        for retain in (True, False)
    ],
    "/api/v1/sql": [{"sql": "select 1"}],
    "/api/v1/retained/restore": [
        {"filter": topic_filter, "as_of": as_of, "dry_run": dry_run}
        for dry_run in (True, False)
        for as_of in ("0s", "1h")
        for topic_filter in FILTERS
    ],
    "/api/v1/users/set": [{"user": "olive", "password": "changed"}, {"user": "new", "password": "new"}],
    "/api/v1/users/delete": [{"user": "root"}],
    "/api/v1/access/rules/replace": [{"text": "user olive\nsee all\n"}],
    "/api/v1/access/rules/add": [{"section": "user olive", "rule": "see all"}],
    "/api/v1/access/rules/remove": [{"section": "user root"}],
    "/api/v1/pipeline/pause": [{}],
    "/api/v1/pipeline/go-on": [{}],
    "/api/v1/log/readers": [{"name": "reader", "next_offset": 0}],
}
"""The bodies of each POST."""
STREAMS: Final = ("/api/v1/messages/tail", "/api/v1/messages/latest")


class Served(NamedTuple):
    """A broker, and its files."""

    broker: Broker
    place: Path

    def connection(self) -> http.client.HTTPConnection:
        assert self.broker.http_port is not None
        return http.client.HTTPConnection("127.0.0.1", self.broker.http_port, timeout=60)

    def ask(
        self, who: str, path: str, query: Query | None = None, body: Query | None = None, *, accept: str = "*/*"
    ) -> tuple[int, bytes]:
        """The status, and all bytes of the answer."""
        connection = self.connection()
        try:
            response = _asked(connection, who, path, query, body, accept)
            return response.status, str(response.headers).encode() + response.read()
        finally:
            connection.close()

    def json(self, who: str, path: str, query: Query | None = None, body: Query | None = None) -> Any:
        connection = self.connection()
        try:
            return json.loads(_asked(connection, who, path, query, body).read())
        finally:
            connection.close()

    def client(self, client_id: str, *, clean: bool = True) -> Wire:
        assert self.broker.port is not None
        wire = Wire((self.broker.host, self.broker.port))
        assert wire.connect(client_id, clean=clean, user_name="root", password=b"root").return_code == 0
        return wire


def _asked(
    connection: http.client.HTTPConnection,
    who: str,
    path: str,
    query: Query | None,
    body: Query | None = None,
    accept: str = "*/*",
) -> http.client.HTTPResponse:
    given = {name: value for name, value in (query or {}).items() if value is not None}
    headers = {"Authorization": "Basic " + b64encode(f"{who}:{who}".encode()).decode(), "Accept": accept}
    data = None
    if body is not None:
        data = json.dumps(body)
        headers["Content-Type"] = "application/json"
    connection.request("POST" if body is not None else "GET", f"{path}?{urlencode(given)}", data, headers)
    return connection.getresponse()


@pytest.fixture(scope="module")
def password_file(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("users") / "passwords"
    for name in USERS:
        write_password(path, name, name.encode())
    return path.read_bytes()


@pytest.fixture
def served(tmp_path: Path, password_file: bytes, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ember.toml").write_text(SETTINGS)
    (tmp_path / "acl").write_text(ACCESS_LIST)
    (tmp_path / "passwords").write_bytes(password_file)
    (tmp_path / "passwords").chmod(0o600)
    (tmp_path / "lake" / "_embermq").mkdir(parents=True)
    progress = {"state": "running", "jobs": {f"{B}-table": {"offset": 3, "records": 2, "rate": 1.0}}}
    (tmp_path / "lake" / "_embermq" / "progress.json").write_text(json.dumps(progress))
    with BrokerThread(Broker.from_settings(load(tmp_path / "ember.toml"))) as broker:
        yield Served(broker, tmp_path)


def fill(served: Served, number: int) -> None:
    """Publish below `b-secret/`, and have sessions and subscriptions there."""
    with served.client(f"{B}-client") as client:
        for topic in (f"{B}/x", B, f"{B}/x/y", f"{B}/part/{number}/deep", f"{B}/{B}/{number}"):
            client.publish(topic, f"{B} {number}".encode(), qos=1, retain=True)
            client.publish(topic, f"{B} live {number}".encode(), qos=1)
        client.publish(f"{B}/x", b"", qos=1, retain=True)
        client.publish(f"{B}/x", f"{B} again {number}".encode(), qos=1, retain=True)
    with served.client(f"{B}-away", clean=False) as away:
        assert away.subscribe(f"{B}/{number}/#", f"$share/{B}/{B}/#") == [2, 2]


@pytest.fixture
def filled(served: Served) -> Served:
    """What `ann` may read was published by a client whose name it may not see."""
    with served.client(f"{B}-publisher") as publisher:
        publisher.publish("a/x", b"1", qos=1, retain=True)
        publisher.publish("a/x", b"2", qos=1, retain=True)
        publisher.publish("a/part/y", b"3", qos=1, retain=True)
        publisher.publish("a/live", b"4", qos=1)
    fill(served, 1)
    return served


def test_the_questions_and_changes_are_those_of_the_catalog() -> None:
    """An operation that is added needs its questions here."""
    assert {each.path for each in OPERATIONS if each.method == "GET"} == ASKED.keys()
    assert {each.path for each in OPERATIONS if each.method == "POST"} == CHANGES.keys()
    assert {each.method for each in OPERATIONS} == {"GET", "POST"}
    assert {each.path for each in OPERATIONS if each.media == "text/event-stream"} == set(STREAMS)


def without_date(answer: bytes) -> bytes:
    return b"\n".join(line for line in answer.split(b"\n") if not line.startswith(b"Date:"))


def answers(served: Served, who: str) -> dict[str, tuple[int, bytes]]:
    """To all questions that end, also as lines."""
    found: dict[str, tuple[int, bytes]] = {}
    for operation in OPERATIONS:
        for query in ASKED.get(operation.path, []) if operation.path not in STREAMS else []:
            found[f"{operation.path} {query}"] = served.ask(who, operation.path, query)
            if operation.lines is not None:
                found[f"{operation.path} {query} as lines"] = served.ask(who, operation.path, query, accept=NDJSON)
    return found


@pytest.mark.parametrize("who", ["ann", "carl"])
def test_no_answer_has_anything_of_topics_without_a_right(filled: Served, who: str) -> None:
    """Nothing of their names, payloads and clients; and with more of them every byte is the same."""
    before = answers(filled, who)
    for question, (status, answer) in before.items():
        assert B.encode() not in answer.lower(), question
        assert status in (200, 403, 404, 410), (question, status)
    for number in range(2, 5):
        fill(filled, number)
    with filled.client("more") as client:
        client.publish("new-branch/x", b"1", qos=1, retain=True)
    for question, (status, answer) in answers(filled, who).items():
        assert (status, without_date(answer)) == (before[question][0], without_date(before[question][1])), question


def test_what_is_granted_is_seen(filled: Served) -> None:
    def names(path: str, **query: Any) -> list[str]:
        return [each["topic"] for each in filled.json("ann", path, query)["items"]]

    assert names("/api/v1/retained") == ["a/part/y", "a/x"]
    assert names("/api/v1/tree") == ["a"]
    assert names("/api/v1/tree", below="a") == ["a/part", "a/x"]
    assert names("/api/v1/tree/search", word="X") == ["a/x"]
    assert names("/api/v1/messages") == ["a/x", "a/x", "a/part/y", "a/live"]
    assert names("/api/v1/topic/values", topic="a/live") == ["a/live"]
    assert filled.json("ann", "/api/v1/tree/count") == {"topics": 2}
    assert filled.json("ann", "/api/v1/tree", {"limit": 1})["items"][0]["topics"] == 2
    assert filled.json("ann", "/api/v1/retained/message", {"topic": "a/x"})["payload"] == "2"
    history = filled.json("ann", "/api/v1/retained/history", {"topic": "a/x"})["items"]
    assert [each["message"]["payload"] for each in history] == ["1", "2"]
    assert {each["client_id"] for each in filled.json("ann", "/api/v1/messages")["items"]} == {""}
    assert filled.json("ann", "/api/v1/whoami")["sees_all"] is False


def test_a_refusal_says_why_in_one_sentence(filled: Served) -> None:
    for operation in OPERATIONS:
        if operation.role == VIEWER and not operation.is_narrowed:
            query = ASKED[operation.path][0]
            assert filled.json("ann", operation.path, query) == {"error": NOT_ALL}, operation.path
    for topic in (f"{B}/x", "nothing/at/all"):
        for path in ("/api/v1/retained/message", "/api/v1/retained/history", "/api/v1/topic/values"):
            assert filled.json("ann", path, {"topic": topic}) == {"error": NOT_THIS_TOPIC}


def test_the_right_to_see_all_shows_everything(filled: Served) -> None:
    for question, (status, _) in answers(filled, "root").items():
        assert status in (200, 404, 410), question
    assert len(filled.json("root", "/api/v1/tree")["items"]) == 2
    assert filled.json("root", "/api/v1/whoami")["sees_all"] is True
    assert {each["client_id"] for each in filled.json("root", "/api/v1/messages")["items"]} > {f"{B}-client"}


def events(response: http.client.HTTPResponse, until: bytes) -> bytes:
    """What a stream sends until a text is in it."""
    found = b""
    deadline_s = monotonic() + 60
    while until not in found:
        assert monotonic() < deadline_s
        found += response.readline()
    return found


@pytest.mark.parametrize("path", STREAMS)
def test_no_stream_has_anything_of_topics_without_a_right(filled: Served, path: str) -> None:
    streams: list[tuple[http.client.HTTPConnection, http.client.HTTPResponse]] = []
    for query in ASKED[path]:
        connection = filled.connection()
        response = _asked(connection, "ann", path, query)
        assert response.status == 200
        response.readline()  # it has begun
        streams.append((connection, response))
    fill(filled, 7)
    with filled.client("live") as client:
        client.publish("a/x", b"the end")
        client.publish(f"{B}/x", f"{B} after it".encode())
    for query, (connection, response) in zip(ASKED[path], streams, strict=True):
        if query["filter"] in ("#", "a/#", "+/x"):
            found = events(response, b"the end")
            assert B.encode() not in found
            if path.endswith("latest"):
                assert json.loads(found.split(b"data: ")[-1])["total"] == 1
        assert B.encode() not in response.read1(1_000_000) if query["filter"] == "a/#" else True
        connection.close()


@pytest.mark.parametrize("path", STREAMS)
def test_a_stream_has_the_rights_of_now(filled: Served, path: str) -> None:
    """A reload takes rights away and gives others while streams are open; also the right to see all."""
    opened = [filled.connection() for _ in range(2)]
    responses = [
        _asked(connection, who, path, {"filter": "#"}) for connection, who in zip(opened, ("ann", "root"), strict=True)
    ]
    for response in responses:
        response.readline()
    with filled.client("live") as client:
        client.publish("a/x", b"at first")
        for response in responses:
            assert b'"at first"' in events(response, b"at first")
        changed = ACCESS_LIST.replace("see all", "read c/#").replace("user ann\nread a/#", "user ann\nread c/#")
        (filled.place / "acl").write_text(changed.replace("read,write,retain #", "write,retain #"))
        assert filled.ask("root", "/api/v1/reload", body={})[0] == 200
        assert filled.ask("root", "/api/v1/reload", body={})[0] == 403
        client.publish("a/x", b"not any more")
        client.publish(f"{B}/x", B.encode())
        client.publish("c/x", b"now")
    for connection, response in zip(opened, responses, strict=True):
        found = events(response, b'"now"')
        assert b"not any more" not in found and B.encode() not in found
        connection.close()


def everything(served: Served) -> list[Any]:
    """What root sees below `b-secret/`."""
    below = {"filter": f"{B}/#"}
    return [
        served.json("root", "/api/v1/retained", below)["items"],
        served.json("root", "/api/v1/messages", below)["items"],
        [each["client_id"] for each in served.json("root", "/api/v1/sessions")["items"]],
        served.json("root", "/api/v1/subscriptions", below)["items"],
        served.json("root", "/api/v1/log")["readers"],
    ]


def test_an_operator_changes_nothing_without_a_right(filled: Served) -> None:
    with filled.client(f"{B}-client", clean=False) as client:
        client.subscribe(f"{B}/mine")
        before = everything(filled)
        for operation in OPERATIONS:
            for body in CHANGES.get(operation.path, []):
                for accept in ("*/*", NDJSON) if operation.lines is not None else ("*/*",):
                    status, answer = filled.ask("olive", operation.path, body=body, accept=accept)
                    assert B.encode() not in answer, (operation.path, body)
                    assert status == (200 if operation.is_narrowed else 403), (operation.path, body)
        assert everything(filled) == before
        client.ping()  # still connected
    assert filled.json("olive", "/api/v1/retained")["items"] == [], "its own topics were cleared"


def test_an_operator_changes_what_it_has_a_right_to(filled: Served) -> None:
    new = [{"topic": topic, "payload": "1"} for topic in ("a/new", f"{B}/new", "c")]
    answer = filled.json("olive", "/api/v1/retained/set", body={"messages": new})
    undo_as_of = answer.pop("undo_as_of")
    assert answer == {"retained": 1, "refused": [{"place": place, "error": NO_RETAINING} for place in (1, 2)]}
    for dry_run in (True, False):
        cleared = filled.json("olive", "/api/v1/retained/clear", body={"filter": "#", "dry_run": dry_run})
        assert (cleared["cleared"], cleared["is_done"]) == (3, not dry_run)
    for dry_run in (True, False):
        body = {"filter": "#", "as_of": undo_as_of, "dry_run": dry_run}
        restored = filled.json("olive", "/api/v1/retained/restore", body=body)
        assert [restored[name] for name in ("set", "cleared", "refused")] == [2, 0, 0]
    assert [each["topic"] for each in filled.json("olive", "/api/v1/retained")["items"]] == ["a/part/y", "a/x"]
    live = [{"topic": topic, "payload": "1"} for topic in ("a/new", f"{B}/new")]
    answer = filled.json("olive", "/api/v1/messages/publish", body={"messages": live})
    assert answer == {"published": 1, "refused": [{"place": 1, "error": NO_PUBLISHING}]}


@pytest.mark.parametrize(
    "rights", ["see all\nread,write,retain a/#", "see all\nread,write,retain #\ndeny write a", "read,write,retain #"]
)
def test_users_and_rights_are_changed_by_those_who_have_every_right(served: Served, rights: str) -> None:
    (served.place / "acl").write_text(f"user root\n{rights}\n")
    assert served.ask("root", "/api/v1/reload", body={})[0] in (200, 403)
    with served.client("reload") as client:  # an operator of the machine
        ember("reload", "--data", served.place / "data")
        before = {name: (served.place / name).read_bytes() for name in ("acl", "passwords")}
        for path in (path for path in CHANGES if "/users/" in path or "/rules/" in path):
            for body in CHANGES[path]:
                assert served.ask("root", path, body=body)[0] == 403, path
        assert {name: (served.place / name).read_bytes() for name in before} == before
        client.ping()
    wanted = NO_ACCESS_CHANGES if "see all" in rights else NOT_ALL
    assert served.json("root", "/api/v1/users/delete", body={"user": "ann"}) == {"error": wanted}


def test_a_restore_counts_what_may_be_read_and_not_be_changed(filled: Served) -> None:
    new = [{"topic": topic, "payload": "9"} for topic in ("a/x", "a/part/y")]
    undo_as_of = filled.json("olive", "/api/v1/retained/set", body={"messages": new})["undo_as_of"]
    changed = ACCESS_LIST.replace("read,write,retain a/#", "read a/#\nwrite,retain a/part/#")
    (filled.place / "acl").write_text(changed)
    assert filled.ask("root", "/api/v1/reload", body={})[0] == 200
    for dry_run in (True, False):
        body = {"filter": "#", "as_of": undo_as_of, "dry_run": dry_run}
        answer = filled.json("olive", "/api/v1/retained/restore", body=body)
        assert (answer["set"], answer["refusals"]) == (1, [{"topic": "a/x", "error": NO_RETAINING}])
    assert {each["payload"] for each in filled.json("olive", "/api/v1/retained")["items"]} == {"9", "3"}


def test_the_right_to_see_all_is_none_to_change_something(filled: Served) -> None:
    (filled.place / "acl").write_text("user root\nsee all\nwrite,retain a/#\n")
    assert filled.ask("root", "/api/v1/reload", body={})[0] == 200
    count = len(filled.json("root", "/api/v1/retained")["items"])
    assert filled.json("root", "/api/v1/retained/clear", body={"filter": "#"})["cleared"] == 2
    assert len(filled.json("root", "/api/v1/retained")["items"]) == count - 2
    set_b = {"messages": [{"topic": f"{B}/x", "payload": "changed"}]}
    assert filled.json("root", "/api/v1/retained/set", body=set_b)["refused"] == [{"place": 0, "error": NO_RETAINING}]


def test_an_operation_that_forgets_the_rights_refuses_a_user(tmp_path: Path) -> None:
    """An operation is for callers who see all unless it says otherwise; if it says so, the whole service is refused."""

    async def forgetful(call: Call[Nothing, Nothing]) -> Answer:
        return Health(status=str(call.service.server.store.retained.totals()))

    (tmp_path / "acl").write_text(ACCESS_LIST)

    async def test(place: Place) -> None:
        for is_narrowed in (False, True):
            operation = Operation(
                method="GET",
                path="/forgetful",
                role=VIEWER,
                summary="",
                handle=forgetful,
                query=Nothing,
                body=Nothing,
                is_narrowed=is_narrowed,
            )
            request = make_mocked_request("GET", "/forgetful")
            for name in ("ann", "olive"):
                with pytest.raises(HttpRefusal, match="see all"):
                    await operation.run(place.service, request, Actor(name, VIEWER, "", Identity(name, "")))
            for actor in (Actor("root", VIEWER, "", Identity("root", "")), Actor("token", VIEWER, "")):
                assert await operation.run(place.service, request, actor) == Health(status="(0, 0)")

    run(tmp_path, test, access=FileAccess(acl_file=tmp_path / "acl"))
