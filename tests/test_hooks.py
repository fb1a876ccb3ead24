"""Hooks: what they are told, and that nothing waits for them."""

import json
import re
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from embermq.config import load
from embermq.embed import Broker, BrokerThread
from embermq.errors import ConfigError
from embermq.hooks import Client, Hook, HookThread, Message
from support.ember_command import wire
from support.installed_package import installed_package
from support.wire import Wire

PAGE = Path(__file__).parent.parent / "docs" / "how-to" / "hooks.md"
ENTRY_POINTS = """[embermq.hooks]
doors = ember_doors:Doors
none = ember_doors:json
missing = ember_doors:Missing
broken = ember_doors:Broken
"""
BROKEN = """

class Broken(Hook):
    def __init__(self):
        raise OSError("no database")
"""
WAIT_S = 60.0


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The package of the docs, as if pip had installed it."""
    code = re.search(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    assert code is not None
    monkeypatch.chdir(tmp_path)
    with installed_package(tmp_path / "site", "ember_doors", code[1] + BROKEN, ENTRY_POINTS):
        yield tmp_path


def broker_with(place: Path, hooks: str) -> Broker:
    (place / "ember.toml").write_text(f"[listeners]\nport = 0\n[store]\nmemory = true\n[server]\nhooks = {hooks}\n")
    return Broker.from_settings(load(place / "ember.toml"))


def test_the_example_of_the_docs_is_told_of_clients_and_messages(installed: Path) -> None:
    with BrokerThread(broker_with(installed, '["doors"]')) as broker:
        with wire(broker, "ann") as ann:
            ann.publish("doors/1", b"open", qos=1)
            ann.publish("other", b"x", qos=1)
        with wire(broker, "bob") as bob:
            bob.publish("doors/2", b"shut", qos=1)
    told = [json.loads(line) for line in (installed / "doors.jsonl").read_text().splitlines()]
    went = [each for each in told if "went" in each]
    assert [each for each in told if "went" not in each] == [
        {"came": "ann", "user": ""},
        {"topic": "doors/1", "payload": "open"},
        {"came": "bob", "user": ""},
        {"topic": "doors/2", "payload": "shut"},
    ]
    assert [each["went"] for each in went] == ["ann", "bob"] and all(each["reason"] for each in went)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("door", r"no installed package has the entry point 'door' .*\(there: broken, doors, missing, none\)"),
        ("broken", "broken cannot be made: OSError: no database"),
        ("none", "ember_doors:json is no subclass of"),
        ("missing", "missing cannot be imported: AttributeError"),
    ],
)
def test_one_that_cannot_be_used_is_one_sentence(installed: Path, name: str, expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        broker_with(installed, f'["{name}"]')


class Stalling(Hook):
    """Does not return from its first call before it may."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.may_go_on = threading.Event()
        self.told: list[bytes] = []

    def message_accepted(self, message: Message) -> None:
        self.entered.set()
        assert self.may_go_on.wait(WAIT_S)
        self.told.append(message.payload)


def test_a_hook_that_stalls_holds_no_client_back_and_another_hook_neither() -> None:
    stalling, other = Stalling(), Stalling()
    other.may_go_on.set()
    with Broker.in_thread(hooks=[stalling, other]) as broker, wire(broker, "c") as client:
        client.publish("a", b"0", qos=1)
        assert stalling.entered.wait(WAIT_S)
        client.subscribe(("a", 0))
        for number in range(1, 50):
            client.publish("a", str(number).encode(), qos=1)
        assert stalling.told == []
        stalling.may_go_on.set()
    assert stalling.told == other.told == [str(number).encode() for number in range(50)]


@pytest.mark.parametrize(("events_max", "bytes_max"), [(2, 1 << 30), (1 << 30, 2 * 356)])
def test_what_a_full_queue_does_not_take_is_dropped_and_counted(events_max: int, bytes_max: int) -> None:
    hook = Stalling()
    thread = HookThread(hook, events_max, bytes_max)
    thread.put(100, partial(hook.message_accepted, Message("t", b"first", 0, False)))
    assert hook.entered.wait(WAIT_S)
    for payload in (b"1", b"2", b"3", b"4"):
        thread.put(100, partial(hook.message_accepted, Message("t", payload, 0, False)))
    assert thread.dropped == 2
    hook.may_go_on.set()
    thread.close()
    assert hook.told == [b"first", b"1", b"2"]


def test_an_event_that_is_larger_than_the_queue_is_told_if_no_other_waits() -> None:
    hook = Stalling()
    hook.may_go_on.set()
    thread = HookThread(hook, bytes_max=10)
    thread.put(1000, partial(hook.message_accepted, Message("t", b"large", 0, False)))
    thread.close()
    assert (hook.told, thread.dropped) == ([b"large"], 0)


class Raising(Hook):
    def __init__(self) -> None:
        self.went = threading.Event()

    def message_accepted(self, message: Message) -> None:
        raise ValueError("no such door")

    def client_went(self, client: Client, reason: str) -> None:
        self.went.set()


def test_an_error_of_a_hook_is_counted_and_logged_at_a_bounded_rate(caplog: pytest.LogCaptureFixture) -> None:
    hook = Raising()
    with Broker.in_thread(hooks=[hook]) as broker:
        with wire(broker, "c") as client:
            for _ in range(20):
                client.publish("a", b"x", qos=1)
        assert hook.went.wait(WAIT_S)
        counts = broker.server.core.counter_values()
    assert (counts["hooks/errors"], counts["hooks/events/dropped"]) == (20, 0)
    lines = [record for record in caplog.records if "the hook Raising raised an error" in record.getMessage()]
    assert 1 <= len(lines) < 20


class OnlyClients(Hook):
    """Does not want messages."""


def test_without_a_hook_for_messages_nothing_subscribes() -> None:
    for hooks, routes in (([], 0), ([OnlyClients()], 0), ([Raising()], 1)):
        with Broker.in_thread(hooks=hooks) as broker:
            assert broker.server.core.subscription_count() == routes


class Clients(Hook):
    def __init__(self) -> None:
        self.told: list[str] = []

    def client_came(self, client: Client) -> None:
        self.told.append(f"{client.client_id} came")

    def client_went(self, client: Client, reason: str) -> None:
        self.told.append(f"{client.client_id} went: {reason}")


def test_each_connection_comes_and_goes_once(tmp_path: Path) -> None:
    hook = Clients()
    with ExitStack() as clients, Broker.in_thread(hooks=[hook], data=tmp_path / "data") as broker:
        first = clients.enter_context(wire(broker, "c", clean=False))
        clients.enter_context(wire(broker, "c", clean=False))
        first.assert_closed()
        assert broker.port is not None
        refused = clients.enter_context(Wire((broker.host, broker.port)))
        assert refused.connect("", clean=False).return_code == 2
    assert hook.told == ["c came", "c went: session taken over", "c came", "c went: the server is shutting down"]


class Ending(Hook):
    def client_came(self, client: Client) -> None:
        sys.exit("a hook cannot end the server")


def test_a_hook_that_exits_is_told_of_the_next_event() -> None:
    with Broker.in_thread(hooks=[Ending()]) as broker:
        for _ in range(2):
            wire(broker, "c").close()
        hooks = broker.server.core.counter_values
        deadline_s = time.monotonic() + WAIT_S
        while hooks()["hooks/errors"] < 2:
            assert time.monotonic() < deadline_s
            time.sleep(0.01)
