"""Bridges between real servers, over lines that are cut: what passes, what comes back, and what an operator sees."""

import json
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from embermq import Broker
from embermq.bridge import bridge
from embermq.bridge.facts import BridgeFacts
from embermq.bridge.plan import BridgePlan, Rule
from embermq.certificates import Authority
from embermq.client.address import ServerAddress
from embermq.http.client import HttpClient
from embermq.store.log.readers import registered_readers
from support.bridged import logged, numbered, publish_all, wait_until
from support.cut_line import CutLine
from support.ember_command import ember
from support.ports import free_port
from support.server_process import ServerProcess
from support.wire import Wire

MESSAGES = 2_000
UP = Rule("up/#", "", "", 2)
DOWN = Rule("down/#", "", "", 2)
BOTH = Rule("both/#", "", "", 2)


def plan(port: int, name: str = "b", **options: object) -> BridgePlan:
    return BridgePlan(name=name, address=ServerAddress("127.0.0.1", port), **options)  # type: ignore[arg-type]


@contextmanager
def running(data: Path, *bridges: BridgePlan, **options: object) -> Iterator[Broker]:
    with Broker.in_thread(port=0, data=data, bridges=bridges, **options) as broker:  # type: ignore[arg-type]
        yield broker


def port_of(broker: Broker) -> int:
    assert broker.port is not None
    return broker.port


def only(broker: Broker) -> BridgeFacts:
    (facts,) = broker.bridge_facts()
    return facts


def wait_for_state(broker: Broker, state: str = "connected") -> None:
    wait_until(lambda: only(broker).state == state, f"state {state}")


def on_loop(broker: Broker, call: Callable[[], object]) -> None:
    done = threading.Event()

    def run() -> None:
        call()
        done.set()

    broker.server.loop.call_soon_threadsafe(run)
    assert done.wait(60)


def joined(port: int, client_id: str, *filters: str) -> Wire:
    wire = Wire(("127.0.0.1", port))
    assert wire.connect(client_id).return_code == 0
    for each in filters:
        wire.subscribe((each, 2))
    return wire


def retained(port: int, topic_filter: str = "#") -> dict[str, bytes]:
    with closing(joined(port, "onlooker", topic_filter)) as wire:
        return {message.topic_name: message.payload for message in wire.take_messages()}


@pytest.mark.parametrize("is_mqtt5", [True, False])
def test_both_directions_with_prefixes_and_retained_messages_and_nothing_comes_back(
    tmp_path: Path, is_mqtt5: bool
) -> None:
    outgoing = (Rule("plant/#", "", "site7/", 2), BOTH)
    incoming = (Rule("orders/#", "from/", "", 1), BOTH)
    with running(tmp_path / "there") as there:
        with closing(joined(port_of(there), "before")) as wire:
            wire.publish("orders/1", b"waits", qos=1, retain=True)
            wire.publish("both/x", b"of there", qos=1, retain=True)
        with running(tmp_path / "here") as here, closing(joined(port_of(here), "before")) as wire:
            wire.publish("plant/1", b"on", qos=1, retain=True)
            wire.publish("both/x", b"of here", qos=1, retain=True)
        both_ways = plan(port_of(there), outgoing=outgoing, incoming=incoming, is_mqtt5=is_mqtt5)
        with running(tmp_path / "here", both_ways) as here:
            wait_until(lambda: "from/orders/1" in retained(port_of(here)), "the retained message of there")
            # What both have: that of the bridge's own side stays.
            wait_until(lambda: retained(port_of(there), "both/x") == {"both/x": b"of here"}, "the one of here")
            assert retained(port_of(here)) == {
                "from/orders/1": b"waits",
                "plant/1": b"on",
                "both/x": b"of here",
            }
            with (
                closing(joined(port_of(here), "hears", "#")) as near,
                closing(joined(port_of(there), "hears", "#")) as far,
            ):
                near.take_messages()
                far.take_messages()
                near.publish("both/y", b"near", qos=2, retain=True)
                assert far.receive_message()[:2] == ("both/y", b"near")
                far.publish("both/y", b"far", qos=2, retain=True)
                far.publish("orders/1", b"", qos=1, retain=True)
                near_messages = [near.receive_message()[:2] for _ in range(3)]
                assert near_messages == [("both/y", b"near"), ("both/y", b"far"), ("from/orders/1", b"")]
                assert [far.receive_message()[:2] for _ in range(2)] == [("both/y", b"far"), ("orders/1", b"")]
                near.assert_silent()
                far.assert_silent()
            assert retained(port_of(here), "both/y") == retained(port_of(there), "both/y") == {"both/y": b"far"}
            assert "from/orders/1" not in retained(port_of(here))
            facts = only(here)
            assert (facts.state, facts.error, facts.counters.refused) == ("connected", "", 0)


def test_a_line_that_is_cut_at_any_byte_loses_and_repeats_nothing_in_either_direction(tmp_path: Path) -> None:
    expected = [payload for _, payload in numbered("", MESSAGES)]
    with (
        running(tmp_path / "there") as there,
        CutLine(lambda: port_of(there)) as line,
        running(tmp_path / "here", plan(line.port, outgoing=(UP,), incoming=(DOWN,))) as here,
    ):
        wait_for_state(here)
        wait_until(lambda: len(there.server.core.sessions()) == 1, "the session")
        wait_until(lambda: there.server.core.subscription_count() == 1, "the subscription")
        line.cut_after(random.Random(7), 40_000, 12)
        threads = [
            threading.Thread(target=publish_all, args=(port_of(here), numbered("up/a", MESSAGES))),
            threading.Thread(target=publish_all, args=(port_of(there), numbered("down/a", MESSAGES))),
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        wait_until(lambda: len(logged(tmp_path / "there", "up/")) >= MESSAGES, "all up")
        wait_until(lambda: len(logged(tmp_path / "here", "down/")) >= MESSAGES, "all down")
        wait_until(lambda: only(here).in_flight == 0, "the last handshake")
        assert line.cuts >= 8
    assert logged(tmp_path / "there", "up/") == expected
    assert logged(tmp_path / "here", "down/") == expected


def test_what_came_while_the_line_was_cut_and_the_server_stopped_arrives_in_order(tmp_path: Path) -> None:
    with running(tmp_path / "there") as there, CutLine(lambda: port_of(there)) as line:
        line.cut()
        to_there = plan(line.port, outgoing=(Rule("up/#", "", "", 1),))
        for start in (0, 300, 600):
            with running(tmp_path / "here", to_there) as here:
                publish_all(port_of(here), numbered("up/a", 300, start))
                assert only(here).lag >= 300
                assert [(each.name) for each in registered_readers(tmp_path / "here")] == ["bridge b"]
        line.mend()
        with running(tmp_path / "here", to_there) as here:
            wait_until(lambda: len(logged(tmp_path / "there", "up/")) >= 900, "all")
            wait_until(lambda: only(here).lag == 0, "no lag")
    assert logged(tmp_path / "there", "up/") == [b"%d" % number for number in range(900)]


def test_a_ring_of_bridges_ends_by_the_mark(tmp_path: Path) -> None:
    ports = {name: free_port() for name in "abc"}
    rule = (Rule("r/#", "", "", 1),)
    with (
        Broker.in_thread(port=ports["a"], data=tmp_path / "a", bridges=[plan(ports["b"], outgoing=rule)]) as a,
        Broker.in_thread(port=ports["b"], data=tmp_path / "b", bridges=[plan(ports["c"], outgoing=rule)]) as b,
        Broker.in_thread(port=ports["c"], data=tmp_path / "c", bridges=[plan(ports["a"], outgoing=rule)]) as c,
    ):
        for broker in (a, b, c):
            wait_for_state(broker)
        publish_all(ports["a"], [("r/1", b"round")], qos=1)
        # The first server has it twice: to it, the last one is a client like others. It does not send it again.
        wait_until(lambda: only(a).counters.loops == 1, "the end of the circle")
        assert [len(logged(tmp_path / name, "r/")) for name in "abc"] == [2, 1, 1]


def test_two_servers_that_bridge_to_each_other_have_each_message_once(tmp_path: Path) -> None:
    port = free_port()
    with running(tmp_path / "a", plan(port, outgoing=(BOTH,), incoming=(BOTH,))) as a:
        other = plan(port_of(a), outgoing=(BOTH,), incoming=(BOTH,))
        with Broker.in_thread(port=port, data=tmp_path / "b", bridges=[other]) as b:
            wait_for_state(a)
            wait_for_state(b)
            wait_until(lambda: a.server.core.subscription_count() + b.server.core.subscription_count() == 2, "both")
            publish_all(port_of(a), numbered("both/a", 50), qos=1)
            publish_all(port, numbered("both/b", 50), qos=1)
            for name in "ab":
                for topic_name in ("both/a", "both/b"):
                    wait_until(lambda n=name, t=topic_name: len(logged(tmp_path / n, t)) >= 50, topic_name)  # type: ignore[misc]
            for broker in (a, b):
                wait_until(lambda each=broker: only(each).lag == 0, "the end")  # type: ignore[misc]
    first = set(logged(tmp_path / "a", "both/a"))
    assert len(first) == 50 == len(set(logged(tmp_path / "b", "both/b")))


@pytest.mark.parametrize("is_mqtt5", [True, False])
def test_a_bridge_to_its_own_server_is_a_sentence_and_leaves_no_session(tmp_path: Path, is_mqtt5: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    to_itself = plan(port, outgoing=(BOTH,), incoming=(BOTH,), is_mqtt5=is_mqtt5)
    with Broker.in_thread(port=port, data=tmp_path / "a", bridges=[to_itself]) as broker:
        said = f"mqtt://127.0.0.1:{port} is this server itself: a bridge leads to another broker"
        wait_until(lambda: only(broker).error == said and only(broker).counters.failures >= 2, "the refusals")
        publish_all(port, [("both/1", b"once")])
        wait_until(lambda: broker.server.core.session_count() == 0, "the end of its session")
    assert logged(tmp_path / "a", "both/") == [b"once"]


@pytest.mark.parametrize("missing", ["b.json", "b.position"])
def test_a_lost_position_is_a_warning_and_a_first_start_is_not(
    tmp_path: Path, missing: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "here" / "bridges" / missing
    with running(tmp_path / "there") as there:
        bridge = plan(port_of(there), outgoing=(UP,))
        for _ in range(2):
            with running(tmp_path / "here", bridge) as here:
                wait_for_state(here)
        assert "is missing" not in caplog.text
        path.unlink()
        with running(tmp_path / "here", bridge) as here:
            wait_for_state(here)
    (said,) = [record.getMessage() for record in caplog.records if "is missing" in record.getMessage()]
    assert said == (
        f"bridge b: {path} is missing or damaged, so it begins at the end of the log: what was published since it"
        " last sent is not sent"
    )


def test_a_broker_that_refuses_is_a_sentence_and_harms_no_other_bridge(tmp_path: Path) -> None:
    users = tmp_path / "users"
    users.write_text("")
    with running(tmp_path / "there") as there, socket.create_server(("127.0.0.1", 0)) as silent:
        threading.Thread(target=answer_nonsense, args=(silent,)).start()
        nobody = free_port()
        bridges = (
            plan(port_of(there), "good", outgoing=(UP,)),
            plan(nobody, "nobody", outgoing=(UP,)),
            plan(silent.getsockname()[1], "nonsense", outgoing=(UP,)),
            plan(port_of(there), "secret", outgoing=(UP,), user_name="u", password_file=tmp_path / "none"),
        )
        with running(tmp_path / "here", *bridges) as here:
            wait_until(lambda: all(each.counters.failures for each in here.bridge_facts()[1:]), "the failures")
            publish_all(port_of(here), [("up/a", b"passes")])
            wait_until(lambda: logged(tmp_path / "there", "up/") == [b"passes"], "the message")
            good, refused, nonsense, secret = here.bridge_facts()
            assert (good.state, good.error) == ("connected", "")
            assert refused.error == f"cannot connect to mqtt://127.0.0.1:{nobody}: Connection refused"
            assert "does not answer as an MQTT server" in nonsense.error
            assert "cannot read password_file" in secret.error
            assert [each.lag >= 1 for each in (refused, nonsense, secret)] == [True] * 3
        silent.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts


def answer_nonsense(listener: socket.socket) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        with connection:
            connection.recv(1_000)
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def test_a_certificate_that_is_not_of_the_authority_ends_the_bridge_until_it_is_right_again(tmp_path: Path) -> None:
    (tmp_path / "good").mkdir()
    (tmp_path / "bad").mkdir()
    good, bad = Authority(tmp_path / "good"), Authority(tmp_path / "bad")
    right, wrong = good.sign("127.0.0.1"), bad.sign("127.0.0.1")
    certificate, key = tmp_path / "server.crt", tmp_path / "server.key"

    def use(pair: object) -> None:
        certificate.write_bytes(Path(pair[0]).read_bytes())  # type: ignore[index]
        key.write_bytes(Path(pair[1]).read_bytes())  # type: ignore[index]

    use(right)
    with running(tmp_path / "there", tls_port=0, certificate=certificate, key=key) as there:
        assert there.tls_port is not None
        address = ServerAddress("127.0.0.1", there.tls_port, True, ca=good.certificate)
        with running(tmp_path / "here", BridgePlan(name="b", address=address, outgoing=(UP,))) as here:
            wait_for_state(here)
            use(wrong)
            on_loop(there, there.reload)
            session = there.server.core.sessions()[0]
            on_loop(there, lambda: there.server.core.disconnect(session))
            wait_until(
                lambda: (
                    "self-signed certificate in certificate chain" in only(here).error
                    or "unable to get local issuer" in only(here).error
                ),
                "the refusal",
            )
            publish_all(port_of(here), numbered("up/a", 20))
            use(right)
            on_loop(there, there.reload)
            wait_until(lambda: len(logged(tmp_path / "there", "up/")) == 20, "what has waited")


def test_a_broker_that_floods_is_read_as_fast_as_the_server_takes_it_and_clients_are_served(tmp_path: Path) -> None:
    with (
        running(tmp_path / "there") as there,
        running(tmp_path / "here", plan(port_of(there), incoming=(DOWN,))) as here,
    ):
        wait_until(lambda: there.server.core.subscription_count() == 1, "the subscription")
        flood = threading.Thread(target=publish_all, args=(port_of(there), numbered("down/a", 5_000), 0))
        flood.start()
        with closing(joined(port_of(here), "client", "mine")) as client:
            for number in range(20):
                client.publish("mine", b"%d" % number, qos=1)
                assert client.receive_message().payload == b"%d" % number
        flood.join()
        publish_all(port_of(there), [("down/end", b"")], 1)
        wait_until(lambda: bool(logged(tmp_path / "here", "down/end")), "the end")


def test_a_rate_is_kept(tmp_path: Path) -> None:
    with (
        running(tmp_path / "there") as there,
        running(tmp_path / "here", plan(port_of(there), outgoing=(UP,), rate_max=100)) as here,
    ):
        wait_for_state(here)
        begun_s = time.monotonic()
        publish_all(port_of(here), numbered("up/a", 250))
        wait_until(lambda: len(logged(tmp_path / "there", "up/")) == 250, "all")
        assert time.monotonic() - begun_s >= 1.4  # 250 messages, of which a second's worth is free


def test_no_client_can_take_the_session_of_a_bridge(tmp_path: Path) -> None:
    with (
        running(tmp_path / "there") as there,
        running(tmp_path / "here", plan(port_of(there), incoming=(DOWN,))) as here,
    ):
        wait_until(lambda: here.server.core.session("$bridge/b") is not None, "the session")
        wire = Wire(("127.0.0.1", port_of(here)))
        assert wire.connect("$bridge/b").return_code == 2
        wire.close()
        wait_for_state(here)


def test_what_may_not_be_stored_here_is_refused_and_the_rest_goes_on(tmp_path: Path) -> None:
    into = (Rule("#", "", "", 1),)
    with (
        running(tmp_path / "there") as there,
        running(tmp_path / "here", plan(port_of(there), incoming=into)) as here,
    ):
        wait_until(lambda: there.server.core.subscription_count() == 1, "the subscription")
        deep = "/".join(["x"] * 100)
        publish_all(port_of(there), [(deep, b"deep"), ("a", b"next")], 1)
        wait_until(lambda: logged(tmp_path / "here", "a") == [b"next"], "the next")
        assert only(here).state == "connected"


def test_a_reload_starts_changes_and_ends_bridges_and_leaves_others_alone(tmp_path: Path) -> None:
    config = tmp_path / "ember.toml"

    def write(**remote_prefixes: str) -> None:
        config.write_text(
            "".join(
                f'[[bridges]]\nname = "{name}"\nurl = "mqtt://127.0.0.1:{port_of(there)}"\n'
                f'out = [{{ filter = "up/#", remote = "{prefix}" }}]\nin = [{{ filter = "down/#" }}]\n'
                for name, prefix in remote_prefixes.items()
            )
        )

    with running(tmp_path / "there") as there:
        write(kept="kept/", changed="before/")
        server = ServerProcess(tmp_path / "here", tmp_path / "here.log", config=config)
        with server:
            publish_all(server.port, [("up/a", b"1")])
            for prefix in ("kept/", "before/"):
                wait_until(lambda each=prefix: logged(tmp_path / "there", each) == [b"1"], prefix)  # type: ignore[misc]
            write(kept="kept/", changed="after/", new="new/")
            found = reloaded(tmp_path)
            assert found["changed"] == ["bridge changed", "bridge new"]
            assert (found["needs_restart"], found["settings_problem"]) == ([], "")
            wait_until(lambda: states(tmp_path) == {"kept": "connected", "changed": "connected", "new": "connected"})
            publish_all(server.port, [("up/a", b"2")])
            for prefix in ("after/", "new/"):
                wait_until(lambda each=prefix: logged(tmp_path / "there", each) == [b"2"], prefix)  # type: ignore[misc]
            wait_until(lambda: logged(tmp_path / "there", "kept/") == [b"1", b"2"], "the one that was kept")
            write(kept="kept/")
            assert reloaded(tmp_path)["changed"] == [
                "bridge changed",
                "bridge new",
            ]
            wait_until(lambda: sorted(each.name for each in registered_readers(tmp_path / "here")) == ["bridge kept"])
            # The other broker has forgotten the sessions of those that are gone.
            wait_until(lambda: len(there.server.core.sessions()) == 1, "the end of the sessions")
            said = ember("sessions", "--data", tmp_path / "here", "--json").lines
            assert [line for line in said if "$bridge/new" in line or "$bridge/changed" in line] == []
            write(kept="kept/", wrong="+/")
            assert "without wildcards" in reloaded(tmp_path)["settings_problem"]
            assert states(tmp_path) == {"kept": "connected"}
        (_,) = [line for line in server.log().splitlines() if "bridge kept: connected" in line]


def reloaded(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(ember("reload", "--data", folder / "here", "--json").text)
    return found


def states(folder: Path) -> dict[str, str]:
    done = ember("bridges", "--data", folder / "here", "--json")
    found = [json.loads(line) for line in done.lines]
    return {each["name"]: each["state"] for each in found}


def test_an_operator_sees_a_bridge_in_the_command_the_metrics_and_the_topics(tmp_path: Path) -> None:
    with running(tmp_path / "there") as there:
        to_office = plan(port_of(there), "office", outgoing=(UP,), incoming=(DOWN,))
        with running(tmp_path / "here", to_office, sys_interval_s=1) as here:
            wait_for_state(here)
            publish_all(port_of(here), numbered("up/a", 3))
            wait_until(lambda: only(here).counters.acknowledged == 3, "the acknowledgements")
            wait_until(lambda: only(here).lag == 0, "no lag")
            shown = ember("bridges", "--data", tmp_path / "here")
            assert shown.lines[0].split() == [
                *("BRIDGE", "TO", "STATE", "FOR", "LAG", "SENT", "RECEIVED", "REFUSED", "LOOPS", "LOST", "ERROR")
            ]
            assert shown.lines[1].split()[:3] == ["office", f"mqtt://127.0.0.1:{port_of(there)}", "connected"]
            with HttpClient(tmp_path / "here" / "control.sock") as server:
                (found,) = server.get("/api/v1/bridges")["items"]
                assert (found["sent"], found["in_flight"], found["error"]) == (3, 0, "")
                metrics = server.text("/metrics")
            assert 'embermq_bridge_connected{bridge="office"} 1.0' in metrics
            assert 'embermq_bridge_messages_total{bridge="office",outcome="acknowledged"} 3.0' in metrics
            topic_name = "$SYS/broker/bridges/office/connected"
            wait_until(lambda: retained(port_of(here), topic_name) == {topic_name: b"1"}, "the topic")


def test_what_comes_in_keeps_the_rate_too(tmp_path: Path) -> None:
    with (
        running(tmp_path / "there") as there,
        running(tmp_path / "here", plan(port_of(there), incoming=(DOWN,), rate_max=100)) as here,
    ):
        wait_until(lambda: there.server.core.subscription_count() == 1, "the subscription")
        begun_s = time.monotonic()
        publish_all(port_of(there), numbered("down/a", 300), 1)  # what one read brings passes at once
        wait_until(lambda: only(here).counters.received >= 300, "the first")
        publish_all(port_of(there), [("down/late", b"")], 1)
        wait_until(lambda: bool(logged(tmp_path / "here", "down/late")), "the last")
        assert time.monotonic() - begun_s >= 1.9  # 301 messages, of which a second's worth is free


def test_the_server_ends_while_a_bridge_waits_for_an_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bridge, "ANSWER_TIMEOUT_S", 600.0)  # neither of them has to be over
    monkeypatch.setattr(bridge, "LEAVE_S", 600.0)
    with (
        socket.create_server(("127.0.0.1", 0)) as mute,  # it accepts, and never says a word
        running(tmp_path / "here", plan(mute.getsockname()[1], outgoing=(UP,))) as here,
    ):
        wait_for_state(here, "connecting")
        publish_all(port_of(here), numbered("up/a", 5))
