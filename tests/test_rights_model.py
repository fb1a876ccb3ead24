"""Narrowed and refused wildcards against a model: random rights, filters and topics.

What a client gets live, retained, by a shared subscription, from history, and over HTTP is compared with what a regular
expression for each line of the access list says. The rights change while the server runs and clients are connected.
"""

import json
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from random import Random
from threading import Event
from typing import Final, final
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import pytest

from embermq.access.passwords import write_password
from embermq.broker.access import OPERATOR
from embermq.config import load
from embermq.embed import Broker, BrokerThread
from embermq.protocol.packets import Publish
from support.topic_filters import expression
from support.wire import Connack, Message, Wire

USERS: Final = ("ann", "bob")
TOPICS: Final = ("$x/a", *("/".join(levels) for depth in (1, 2, 3) for levels in product("ab", repeat=depth)))
WAIT_S: Final = 60


def random_filter(random: Random) -> str:
    levels = [random.choice("aabb+") for _ in range(random.randint(1, 3))]
    if random.random() < 0.4:
        levels[-1] = "#"
    return "/".join(levels)


@final
class Model:
    """An access list, as text and as what it means for reading."""

    def __init__(self, random: Random) -> None:
        self.lines: dict[str, list[tuple[bool, str]]] = {}
        for section in ("all", "user ann", "user bob", "group both", "group bobs"):
            count = random.randint(0, 2)
            self.lines[section] = [(random.random() < 0.3, random_filter(random)) for _ in range(count)]

    def text(self) -> str:
        made = ["all", "read $done"]
        for section, lines in self.lines.items():
            made.append(section)
            made += ["member ann", "member bob"] if section == "group both" else []
            made += ["member bob"] if section == "group bobs" else []
            made += [("deny " if denies else "") + f"read {topic_filter}" for denies, topic_filter in lines]
        return "\n".join(made) + "\n"

    def may_read(self, user: str, topic: str) -> bool:
        sections = ["all", f"user {user}", "group both", *(["group bobs"] if user == "bob" else [])]
        found = [
            denies
            for section in sections
            for denies, topic_filter in self.lines[section]
            if expression(topic_filter).fullmatch(topic)
        ]
        return bool(found) and not any(found)

    def readable(self, user: str, topic_filter: str) -> set[str]:
        matching = expression(topic_filter)
        return {topic for topic in TOPICS if matching.fullmatch(topic) and self.may_read(user, topic)}


@final
class Served:
    """A server with an access list that changes."""

    def __init__(self, broker: Broker, thread: BrokerThread, rights: Path) -> None:
        self.broker: Final = broker
        self.thread: Final = thread
        self.rights: Final = rights

    def use(self, model: Model) -> None:
        self.rights.write_text(model.text())
        self.thread.call(self.broker.reload)

    def publish(self, payload: str, retain: bool = False, topics: tuple[str, ...] = TOPICS) -> None:
        durable = Event()

        def publish() -> None:
            server = self.broker.server
            server.begin_turn()
            for topic in topics:
                refused = server.core.publish_sessionless(Publish(topic, payload.encode(), 1, retain), OPERATOR)
                assert refused is None
            server.core.when_durable(durable.set)

        self.thread.call(publish)
        assert durable.wait(WAIT_S)

    def client(self, user: str, client_id: str) -> Wire:
        assert self.broker.port is not None
        client = Wire((self.broker.host, self.broker.port))
        assert client.connect(client_id, user_name=user, password=b"secret") == Connack(0, 0)
        return client

    def retained_over_http(self, user: str, topic_filter: str) -> set[str]:
        url = f"http://127.0.0.1:{self.broker.http_port}/api/v1/retained?" + urlencode({"filter": topic_filter})
        login = b64encode(f"{user}:secret".encode()).decode()
        with urlopen(Request(url, headers={"Authorization": f"Basic {login}"}), timeout=WAIT_S) as response:
            return {each["topic"] for each in json.load(response)["items"]}


def messages(client: Wire, wanted: int) -> list[Message]:
    """At least so many, and all that has come when a ping is answered."""
    found = [client.receive_message() for _ in range(wanted)]
    return found + client.take_messages()


def topics_of(found: list[Message], payload: str) -> Counter[str]:
    return Counter(each.topic_name for each in found if each.payload == payload.encode())


@pytest.fixture(scope="module", params=["narrow", "refuse"])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, bool]]:
    directory = tmp_path_factory.mktemp("rights")
    for user in USERS:
        write_password(directory / "passwords", user, b"secret", with_scram=False)
    rights = directory / "access.list"
    rights.write_text("")
    path = directory / "ember.toml"
    path.write_text(
        f'[listeners]\nport = 0\n[store]\ndirectory = "{directory / "data"}"\ndurability = "none"\n'
        f'[access]\npassword_file = "{directory / "passwords"}"\nacl_file = "{rights}"\n'
        f'wildcards = "{request.param}"\n[http]\nport = 0\nviewers = ["ann", "bob"]\n'
    )
    broker = Broker.from_settings(load(path))
    thread = BrokerThread(broker)
    with thread:
        yield Served(broker, thread, rights), request.param == "narrow"


@pytest.mark.parametrize("seed", range(12))
def test_a_client_gets_what_it_may_read_and_nothing_else(served: tuple[Served, bool], seed: int) -> None:
    place, is_narrowing = served
    random = Random(seed)
    before, model = Model(random), Model(random)
    place.use(before)
    filters = {user: random_filter(random) for user in USERS}
    with place.client("ann", "ann") as ann, place.client("bob", "bob") as bob:
        clients = {"ann": ann, "bob": bob}
        # Subscribed under other rights: those of now decide about each message.
        granted = {user: clients[user].subscribe((filters[user], 1), ("$done", 1))[0] < 0x80 for user in USERS}
        for user in USERS:
            readable = before.readable(user, filters[user])
            matching = {topic for topic in TOPICS if expression(filters[user]).fullmatch(topic)}
            if is_narrowing:
                assert granted[user] or not readable
            else:
                assert not granted[user] or readable == matching
            clients[user].take_messages()
        for payload, rights in (("first", Model(random)), ("live", model)):
            place.use(rights)
            started = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
            place.publish("retained", retain=True)
            place.publish(payload)
            place.publish("", topics=("$done",))
            for user in USERS:
                expected = rights.readable(user, filters[user]) if granted[user] else set()
                found = messages(clients[user], 2 * len(expected) + 1)
                assert topics_of(found, payload) == Counter(expected)
                assert topics_of(found, "retained") == Counter(expected)
    for user in USERS:
        _check_the_past(place, model, user, random_filter(random), started)
    _check_shared(place, model, random_filter(random))


def _check_the_past(place: Served, model: Model, user: str, topic_filter: str, started: str) -> None:
    """Retained messages for a new subscription, as of an instant and over HTTP, and a replay until it is live."""
    expected = model.readable(user, topic_filter)
    assert place.retained_over_http(user, topic_filter) == expected
    for asked in (topic_filter, f"$asof/now/{topic_filter}"):
        with place.client(user, f"{user}-past") as client:
            if client.subscribe((asked, 1))[0] < 0x80:
                found = messages(client, len(expected))
                assert Counter(each.topic_name for each in found) == Counter(expected)
                assert {each.payload for each in found} <= {b"retained"}
    with place.client(user, f"{user}-replay") as client:
        if client.subscribe((f"$replay/{started}/{topic_filter}", 1))[0] < 0x80:
            found = messages(client, 2 * len(expected))
            place.publish(f"more for {user}")
            while sum(topics_of(found, f"more for {user}").values()) < len(expected):
                found.append(client.receive_message())
            found += client.take_messages()
            assert {each.topic_name for each in found} == expected
            for payload in ("retained", "live", f"more for {user}"):
                assert topics_of(found, payload) == Counter(expected)


def _check_shared(place: Served, model: Model, topic_filter: str) -> None:
    """Each message goes to one member that may read it."""
    with place.client("ann", "ann-shared") as ann, place.client("bob", "bob-shared") as bob:
        clients = {"ann": ann, "bob": bob}
        members = []
        for user in USERS:
            if clients[user].subscribe((f"$share/g/{topic_filter}", 1), ("$done", 1))[0] < 0x80:
                members.append(user)
        place.publish("shared")
        place.publish("", topics=("$done",))
        got: Counter[str] = Counter()
        for user in USERS:
            found: list[Message] = []
            while not any(each.topic_name == "$done" for each in found):
                found.append(clients[user].receive_message())
            found += clients[user].take_messages()
            mine = topics_of(found, "shared")
            assert mine.keys() <= model.readable(user, topic_filter)
            got += mine
        assert got == Counter({topic for user in members for topic in model.readable(user, topic_filter)})


def test_a_share_group_does_not_wait_for_a_member_that_may_not_read(served: tuple[Served, bool]) -> None:
    place, _ = served
    place.rights.write_text("user ann\nread a\nread b\nuser bob\nread a\nread b\n")
    place.thread.call(place.broker.reload)
    with place.client("bob", "bob-away") as bob, place.client("ann", "ann-here") as ann:
        assert bob.subscribe(("$share/h/+", 1))[0] == ann.subscribe(("$share/h/+", 1))[0]
        for client in (bob, ann):
            assert client.subscribe(("$share/h/a", 1), ("$share/i/b", 1)) == [1, 1]
        place.rights.write_text("user ann\nread b\nuser bob\nread a\nread b\n")
        place.thread.call(place.broker.reload)
        dropped = place.broker.server.core.counters.dropped_not_authorized
        place.publish("x", topics=("a", "b"))
        found = {each.topic_name for each in [*ann.take_messages(), *bob.take_messages()]}
        assert found == {"a", "b"}
        bob.disconnect()
        place.rights.write_text("user ann\nread b\n")
        place.thread.call(place.broker.reload)
        place.publish("y", topics=("a", "b"))
        assert {each.topic_name for each in ann.take_messages()} == {"b"}
        assert place.broker.server.core.counters.dropped_not_authorized > dropped
