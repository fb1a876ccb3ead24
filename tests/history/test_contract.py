"""Every way to ask what was gives the same answer, which a model in plain Python gives too.

Messages by filter and time, and those of a topic newest first: from a log that was never trimmed, from a server that
has it, from its archive, and from a trimmed log with its archive. The retained set as of an instant: of the directory
of a stopped server, over HTTP, by `$asof`, by `ember retained ls --as-of` and in SQL.
"""

import json
import pickle
import queue
import shutil
from base64 import b64decode
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

import embermq
from embermq.commands.server_access.target import open_target
from embermq.config import load
from embermq.embed import Broker, BrokerThread
from embermq.history.archived_blocks import ArchivedBlocks
from embermq.history.joined import JoinedLog
from embermq.history.location import LogLocation
from embermq.history.opening import open_log
from embermq.http.client import HttpClient
from embermq.instants import EPOCH, instant_us, microseconds, utc_text
from embermq.protocol.topics import matches
from embermq.store.log.message_filter import MessageFilter
from embermq.store.rows import Kind
from support.archived_history import ROUNDS, START_US, Written
from support.ember_command import ember
from support.log_server import TOKEN, LogServer
from support.trimmed_log import STEP_US

INSTANTS: Final = 50
TIMEOUT_S: Final = 60
END_US: Final = START_US + (ROUNDS + 2) * STEP_US
KEPT: Final = "retention_age_s = 10000000000\n"  # nothing more is trimmed, although it is of 2023
DATA: Final = {"whole": "kept", "trimmed": "data"}


class Row(NamedTuple):
    """A message of the log."""

    offset: int
    timestamp_us: int
    topic: str
    payload: bytes


class Question(NamedTuple):
    """Which messages: those that a filter matches, from an instant on and before another."""

    topic_filter: str
    since_us: int = START_US
    until_us: int = END_US


def at(round: int) -> int:
    return START_US + round * STEP_US


QUESTIONS: Final = (
    Question("#"),
    Question("t/+", at(40), at(120)),
    Question("t/1"),
    Question("u/#", at(30) + 1, at(90) + 1),
    Question("once"),
    Question("none"),
    Question("#", at(70), at(70)),
)


class Places:
    """The log in both forms, each with a server, and a copy of it whose server is stopped."""

    def __init__(self, root: Path, opened: ExitStack) -> None:
        self.root = root
        self.archive = str(root / "archive")
        self.written: list[Written] = pickle.loads((root / "written").read_bytes())
        self.archived_end = open_log(LogLocation(path=self.archive)).bounds()[1]
        self.brokers: dict[str, Broker] = {}
        self.files: dict[str, LogLocation] = {}  # of a server of the log's files
        for name in DATA:
            shutil.copytree(self.data(name), root / f"stopped-{name}")
            for file, data in ((self.settings(name), self.data(name)), (self.stopped(name), root / f"stopped-{name}")):
                archive = f'archive = "{self.archive}"\n' if name == "trimmed" else ""
                file.write_text(f'[store]\ndirectory = "{data}"\n{KEPT}{archive}[listeners]\nport = 0\n')
            server = opened.enter_context(LogServer(self.data(name)))
            self.files[name] = LogLocation(server=server.url, token=TOKEN)
            self.brokers[name] = opened.enter_context(BrokerThread(Broker.from_settings(load(self.settings(name)))))

    def data(self, name: str) -> Path:
        return self.root / DATA[name]

    def settings(self, name: str) -> Path:
        return self.root / f"{name}.toml"

    def stopped(self, name: str) -> Path:
        return self.root / f"stopped-{name}.toml"

    def http(self, name: str) -> HttpClient:
        return HttpClient(self.data(name) / "control.sock")

    def messages(self, question: Question) -> list[Row]:
        """The model."""
        return [
            Row(each.offset, each.timestamp_us, each.topic, each.payload)
            for each in self.written
            if each.payload is not None
            and matches(question.topic_filter, each.topic)
            and question.since_us <= each.timestamp_us < question.until_us
        ]

    def retained(self, instant_us: int, topic_filter: str = "#") -> dict[str, bytes]:
        """The model."""
        found: dict[str, bytes] = {}
        for each in self.written:
            if each.timestamp_us <= instant_us and each.retain and matches(topic_filter, each.topic):
                found.pop(each.topic, None)
                if each.payload:
                    found[each.topic] = each.payload
        return found


@pytest.fixture(scope="module")
def places(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Places]:
    root = tmp_path_factory.mktemp("contract")
    shutil.copytree(made, root, dirs_exist_ok=True)
    with ExitStack() as opened:
        yield Places(root, opened)


def payload_of(shown: dict[str, Any]) -> bytes:
    return b64decode(shown["payload_base64"]) if "payload_base64" in shown else shown["payload"].encode()


class Reader:
    """A client of another make, which keeps what it gets."""

    def __init__(self, broker: Broker, client_id: str) -> None:
        self._messages: queue.Queue[paho.MQTTMessage] = queue.Queue()
        self._client = paho.Client(CallbackAPIVersion.VERSION2, client_id, protocol=MQTTProtocolVersion.MQTTv5)
        self._client.on_message = lambda client, data, message: self._messages.put(message)
        self._client.connect(broker.host, broker.port or 0)
        self._client.loop_start()

    def ask(self, topic_filter: str, count: int) -> list[paho.MQTTMessage]:
        """So many messages; what comes beyond them would be found among those of the next question."""
        self._client.subscribe(topic_filter, 1)
        return [self._messages.get(timeout=TIMEOUT_S) for _ in range(count)]

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()
        assert self._messages.empty()


# -- messages ----------------------------------------------------------------------------------------------------------


def of_readable_log(places: Places, location: LogLocation, question: Question) -> list[Row]:
    """What the pipeline reads: Arrow batches between two offsets that instants lead to."""
    log = open_log(location)
    end = places.archived_end if location.path == places.archive and location.server is None else log.bounds()[1]
    start, end = log.offset_at(question.since_us), min(end, log.offset_at(question.until_us))
    columns = ("offset", "timestamp", "kind", "topic", "payload")
    return [
        row_of(row)
        for batch in (log.batches(start, end, 37, columns) if start < end else ())
        for row in batch.to_pylist()
        if row["kind"] == Kind.PUBLISH and matches(question.topic_filter, row["topic"])
    ]


def of_open_log(name: str, places: Places, question: Question) -> list[Row]:
    """What a program reads."""
    since, until = (EPOCH + timedelta(microseconds=us) for us in (question.since_us, question.until_us))
    log = embermq.open_log(places.data(name), places.archive if name == "trimmed" else None)
    return [row_of(row) for batch in log.batches(question.topic_filter, since, until) for row in batch.to_pylist()]


def of_sql_messages(name: str, places: Places, question: Question) -> list[Row]:
    query = f"""select "offset", timestamp, topic, hex(payload) as p from messages
        where mqtt_matches('{question.topic_filter}', topic) and timestamp >= '{utc_text(question.since_us)}'
        and timestamp < '{utc_text(question.until_us)}' order by "offset\""""
    return [
        Row(row["offset"], instant_us(row["timestamp"]), row["topic"], bytes.fromhex(row["p"]))
        for row in in_sql(places, name, query)
    ]


def in_sql(places: Places, name: str, query: str) -> list[dict[str, Any]]:
    done = ember("sql", query, "--json", "--config", places.settings(name), "--lake", places.root / "none")
    assert done.code == 0, done
    return [json.loads(line) for line in done.lines]


def row_of(row: dict[str, Any]) -> Row:
    return Row(row["offset"], microseconds(row["timestamp"]), row["topic"], row["payload"])


def of_records(name: str, places: Places, question: Question) -> list[Row]:
    """What the server itself reads."""
    directory = places.data(name) / "log"
    log = JoinedLog(directory, ArchivedBlocks(places.archive, directory) if name == "trimmed" else None)
    start, end = log.offset_at(question.since_us), log.offset_at(question.until_us)
    found = MessageFilter(question.topic_filter)
    return [
        Row(row.offset, row.timestamp_us, row.topic.decode(), row.payload)
        for read in log.runs(start, end, 50, 1 << 14)
        for row in found.messages(read)
    ]


def of_http(name: str, places: Places, question: Question) -> list[Row]:
    since, until = utc_text(question.since_us), utc_text(question.until_us)
    with places.http(name) as client:
        found = client.lines("/api/v1/messages", filter=question.topic_filter, since=since, until=until)
        return [shown_row(each) for each in found]


def shown_row(shown: dict[str, Any]) -> Row:
    return Row(shown["offset"], instant_us(shown["timestamp"]), shown["topic"], payload_of(shown))


def of_replay(name: str, places: Places, question: Question) -> list[Row]:
    reader = Reader(places.brokers[name], "replay")
    since, until = utc_text(question.since_us), utc_text(question.until_us)
    rows: list[Row] = []
    for each in reader.ask(f"$replay/{since}/{until}/{question.topic_filter}", len(places.messages(question))):
        assert each.properties is not None
        stamp = dict(vars(each.properties)["UserProperty"])
        at_us = instant_us(stamp["ember-time"])
        rows.append(Row(int(stamp["ember-offset"]), at_us, each.topic, bytes(each.payload)))
    reader.close()
    return rows


Source = Callable[[Places, Question], list[Row]]
SOURCES: Final[dict[str, Source]] = {
    "directory": lambda places, question: of_readable_log(
        places, LogLocation(path=str(places.data("whole"))), question
    ),
    "server": lambda places, question: of_readable_log(places, places.files["whole"], question),
    "archive": lambda places, question: of_readable_log(places, LogLocation(path=places.archive), question),
    "archive and server": lambda places, question: of_readable_log(
        places, replace(places.files["trimmed"], path=places.archive), question
    ),
}
SOURCES.update(
    (f"{way}, {name}", partial(read, name))
    for name in DATA
    for way, read in {
        "open_log": of_open_log,
        "SQL": of_sql_messages,
        "records": of_records,
        "HTTP": of_http,
        "$replay": of_replay,
    }.items()
)


@pytest.mark.parametrize("source", SOURCES)
def test_messages_by_filter_and_time(places: Places, source: str) -> None:
    for question in QUESTIONS:
        expected = places.messages(question)
        if source == "archive":
            expected = [row for row in expected if row.offset < places.archived_end]
        assert SOURCES[source](places, question) == expected, question
    assert len(places.messages(QUESTIONS[0])) > 700 > places.archived_end - 200 > 300


@pytest.mark.parametrize("name", DATA)
def test_messages_of_a_topic_newest_first(places: Places, name: str) -> None:
    with places.http(name) as client:
        for topic, since_us in (("t/1", START_US), ("t/2", at(100)), ("once", START_US), ("none", START_US)):
            found: list[Row] = []
            query: dict[str, Any] = {"topic": topic, "since": utc_text(since_us), "limit": 7, "payload_bytes": 1_000}
            while query.get("cursor", True):
                page = client.get("/api/v1/topic/values", **query)
                found += map(shown_row, page["items"])
                query["cursor"] = page.get("next")
            assert found == places.messages(Question(topic, since_us))[::-1]


# -- the retained set as of an instant ---------------------------------------------------------------------------------


def instants() -> list[int]:
    """Of changes, just before them, and in between; the first is before all of them."""
    random = Random(9)
    chosen = [
        at(random.randrange(1, ROUNDS + 1)) + random.choice((-1, 0, 0, STEP_US // 2)) for _ in range(INSTANTS - 1)
    ]
    return [START_US, *sorted(chosen)]


Set = dict[str, bytes]


def of_stopped(places: Places, name: str, instants_us: list[int]) -> list[Set]:
    with open_target(None, places.stopped(name)) as server:
        return [{one.topic_name: one.payload for one, _ in server.messages("#", each)} for each in instants_us]


def as_of_http(places: Places, name: str, instants_us: list[int]) -> list[Set]:
    with places.http(name) as client:
        return [
            {one["topic"]: payload_of(one) for one in client.lines("/api/v1/retained", as_of=utc_text(each))}
            for each in instants_us
        ]


def of_subscription(places: Places, name: str, instants_us: list[int]) -> list[Set]:
    reader = Reader(places.brokers[name], "as-of")
    found: list[Set] = []
    for each in instants_us:
        messages = reader.ask(f"$asof/{utc_text(each)}/#", len(places.retained(each)))
        assert all(message.retain for message in messages)
        found.append({message.topic: bytes(message.payload) for message in messages})
    reader.close()
    return found


def of_command(places: Places, name: str, instants_us: list[int]) -> list[Set]:
    found: list[Set] = []
    for each in instants_us:
        done = ember("retained", "ls", "--as-of", utc_text(each), "--json", "--config", places.settings(name))
        assert done.code == 0, done
        found.append({one["topic"]: payload_of(one) for one in map(json.loads, done.lines)})
    return found


def of_sql(places: Places, name: str, instants_us: list[int]) -> list[Set]:
    found: list[Set] = [{} for _ in instants_us]
    query = " union all ".join(
        f"select {number} as n, topic, hex(payload) as p from retained_as_of('{utc_text(each)}')"
        for number, each in enumerate(instants_us)
    )
    for row in in_sql(places, name, query):
        assert row["topic"] not in found[row["n"]]
        found[row["n"]][row["topic"]] = bytes.fromhex(row["p"])
    return found


DOORS: Final = {
    "library": of_stopped,
    "HTTP": as_of_http,
    "$asof": of_subscription,
    "ember retained": of_command,
    "SQL": of_sql,
}


@pytest.mark.parametrize("name", DATA)
@pytest.mark.parametrize("door", DOORS)
def test_the_retained_set_as_of_fifty_instants(places: Places, door: str, name: str) -> None:
    asked = instants()
    expected = [places.retained(each) for each in asked]
    assert expected[0] == {} and len(expected) == INSTANTS and len({len(each) for each in expected}) > 3
    assert DOORS[door](places, name, asked) == expected
