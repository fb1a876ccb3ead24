"""How clients come and go: keep alive, expiry, takeover. A day passes in a millisecond."""

from pathlib import Path

import pytest

from embermq.broker.access import READ, Grant, Identity
from embermq.broker.connections import EXPIRED_A_TICK
from embermq.broker.limits import Limits
from embermq.protocol.packets import (
    SESSION_NEVER_EXPIRES,
    Connack,
    Connect,
    Disconnect,
    Pingreq,
    Will,
)
from embermq.protocol.reasons import ReasonCode
from support.clauses import v5, v311
from support.core import Bench, DiskBench, ScriptedAccess, ScriptedLink
from support.stores import ScriptedStore


@v311("MQTT-3.1.2-24")
def test_a_silent_client_is_lost_at_one_and_a_half_times_its_keep_alive() -> None:
    bench = Bench()
    client = bench.join("c", keep_alive_s=10)
    bench.pass_s(14.9)
    assert client.closed is None
    bench.pass_s(0.2)
    assert client.closed == ReasonCode.KEEP_ALIVE_TIMEOUT


def test_the_core_leaves_a_client_alone_whose_transport_supervises_the_keep_alive() -> None:
    bench = Bench(limits=Limits(keep_alive_max_s=60))
    link = ScriptedLink(supervises_keep_alive=True)
    bench.core.connect(link, Connect("c", keep_alive_s=10), Identity("", "c"), "MQTT-SN 1.2", "test")
    bench.pass_s(1_000)
    assert link.closed is None


def test_any_packet_puts_the_deadline_off_and_a_day_of_pings_keeps_a_client() -> None:
    bench = Bench()
    client = bench.join("c", keep_alive_s=10)
    for _ in range(24 * 360):
        bench.pass_s(10)
        bench.send(client, Pingreq())
    assert client.closed is None
    bench.pass_s(15.1)
    assert client.closed == ReasonCode.KEEP_ALIVE_TIMEOUT


def test_without_a_keep_alive_silence_lasts_and_a_cap_ends_it() -> None:
    bench = Bench()
    client = bench.join("c")
    bench.pass_s(1_000_000)
    assert client.closed is None
    capped = Bench(limits=Limits(keep_alive_max_s=60))
    client = capped.join("c")
    capped.pass_s(91)
    assert client.closed == ReasonCode.KEEP_ALIVE_TIMEOUT


def test_a_session_expires_after_its_interval_without_a_connection() -> None:
    bench = Bench()
    client = bench.join("c", clean=False, expiry_s=60)
    bench.lose(client)
    bench.pass_s(59)
    again = bench.connect("c", clean=False, expiry_s=60)
    assert again.take() == [Connack(True)]
    bench.lose(again)
    bench.pass_s(61)
    assert bench.core.sessions() == []
    assert bench.connect("c", clean=False, expiry_s=60).take() == [Connack(False)]


def test_a_connected_session_does_not_expire() -> None:
    bench = Bench()
    client = bench.join("c", clean=False, expiry_s=60)
    bench.lose(client)
    bench.pass_s(30)
    bench.join("c", clean=False, expiry_s=60)
    bench.pass_s(3600)
    assert [session.client_id for session in bench.core.sessions()] == ["c"]


def test_a_clean_start_forgets_the_subscriptions_and_what_was_owed() -> None:
    bench = Bench()
    client = bench.join("c", clean=False)
    bench.subscribed(client, "t", 1)
    bench.lose(client)
    bench.publish("t", b"x", qos=1)
    client = bench.join("c")
    assert client.take() == []
    bench.publish("t", b"y", qos=1)
    assert client.take() == []


def test_no_connack_denies_a_session_whose_end_is_not_durable() -> None:
    """The first clean start has ended it and got no answer; a crash now would bring it back."""
    store = ScriptedStore()
    bench = Bench(store)
    bench.lose(bench.join("c", clean=False))
    bench.commit()
    bench.connect("c", turn=False)
    second = bench.connect("c")
    assert second.take() == []
    bench.commit()
    assert [packet.session_present for packet in second.take() if isinstance(packet, Connack)] == [False]


@v311("MQTT-3.1.3-8")
def test_an_empty_client_id_needs_a_clean_session() -> None:
    bench = Bench()
    assert bench.connect("", clean=False, expiry_s=SESSION_NEVER_EXPIRES).take() == [
        Connack(False, ReasonCode.CLIENT_IDENTIFIER_NOT_VALID)
    ]
    first, second = bench.join(""), bench.join("")
    assert first.closed is None
    assert second.closed is None
    assert len({session.client_id for session in bench.core.sessions()}) == 2


def test_a_user_cannot_take_the_session_of_another() -> None:
    bench = Bench(access=ScriptedAccess())
    owner = bench.join("c", clean=False, user="owner")
    bench.subscribed(owner, "t", 1)
    thief = bench.connect("c", clean=False, user="thief")
    assert thief.take() == [Connack(False, ReasonCode.CLIENT_IDENTIFIER_NOT_VALID)]
    assert owner.closed is None
    bench.lose(owner)
    bench.publish("t", b"secret", qos=1)
    thief = bench.connect("c", clean=True, user="thief")
    assert thief.take() == [Connack(False, ReasonCode.CLIENT_IDENTIFIER_NOT_VALID)]
    assert bench.join("c", clean=False, user="owner").payloads() == [b"secret"]


def connack(bench: Bench, connect: Connect) -> Connack:
    link = ScriptedLink(is_v5=True)
    bench.core.connect(link, connect, Identity("", connect.client_id), "MQTT 5", "test")
    bench.turn()
    bench.commit()
    packet = link.take()[0]
    assert isinstance(packet, Connack)
    return packet


@v5("MQTT-3.1.3-6", "MQTT-3.1.3-7", "MQTT-3.2.2-16")
@pytest.mark.parametrize("expiry_s", [0, 60, SESSION_NEVER_EXPIRES])
@pytest.mark.parametrize("clean_start", [True, False])
def test_a_client_without_an_identifier_is_told_the_one_it_gets(clean_start: bool, expiry_s: int) -> None:
    bench = Bench()
    connect = Connect("", clean_start, session_expiry_s=expiry_s, protocol_level=5)
    answers = [connack(bench, connect) for _ in range(2)]
    assert {answer.assigned_client_id for answer in answers} == {session.client_id for session in bench.core.sessions()}
    assert len(bench.core.sessions()) == 2
    assert connack(bench, Connect("named")).assigned_client_id == ""


def test_an_identifier_that_a_session_has_is_not_assigned() -> None:
    bench = Bench()
    bench.join("auto-seed-1")
    assert connack(bench, Connect("")).assigned_client_id == "auto-seed-2"


@v5("MQTT-3.2.2-22")
@pytest.mark.parametrize(("asked_s", "told_s"), [(0, 60), (30, -1), (60, -1), (61, 60)])
def test_a_client_is_told_of_a_keep_alive_that_is_not_the_one_it_asked_for(asked_s: int, told_s: int) -> None:
    bench = Bench(limits=Limits(keep_alive_max_s=60))
    assert connack(bench, Connect("c", keep_alive_s=asked_s)).server_keep_alive_s == told_s


@pytest.mark.parametrize(("asked_s", "told_s"), [(0, -1), (60, -1), (61, 60), (SESSION_NEVER_EXPIRES, 60)])
def test_a_client_is_told_of_an_expiry_that_is_not_the_one_it_asked_for(asked_s: int, told_s: int) -> None:
    bench = Bench(limits=Limits(session_expiry_max_s=60))
    assert connack(bench, Connect("c", session_expiry_s=asked_s)).session_expiry_s == told_s


@v5("MQTT-3.1.4-3", "MQTT-3.1.2-4", "MQTT-3.1.2-5", "MQTT-3.1.2-6", "MQTT-3.2.2-2", "MQTT-3.2.2-3")
@pytest.mark.parametrize("clean", [False, True])
def test_a_takeover_tells_the_older_connection_and_resumes_unless_clean_start_says_no(clean: bool) -> None:
    bench = Bench()
    first = bench.join("c", clean=False)
    answer = connack(bench, Connect("c", clean, session_expiry_s=60))
    assert first.closed == ReasonCode.SESSION_TAKEN_OVER
    assert answer.session_present is not clean


def test_disconnect_changes_the_expiry_of_the_session_and_the_change_is_there_after_a_crash(tmp_path: Path) -> None:
    bench = DiskBench(tmp_path / "data")
    client = bench.join("c", clean=False, expiry_s=1_000)
    bench.send(client, Disconnect(session_expiry_s=10))
    bench.commit()
    bench = bench.crashed(after_s=5)
    assert len(bench.core.sessions()) == 1
    bench.pass_s(5)
    assert bench.core.sessions() == []
    bench.journal.close()


def test_an_expiry_of_disconnect_is_capped() -> None:
    bench = Bench(ScriptedStore(late=False), Limits(session_expiry_max_s=60))
    client = bench.join("c", clean=False, expiry_s=10)
    bench.send(client, Disconnect(session_expiry_s=1_000))
    bench.pass_s(59)
    assert len(bench.core.sessions()) == 1
    bench.pass_s(2)
    assert bench.core.sessions() == []


def test_disconnect_with_expiry_0_ends_the_session() -> None:
    bench = Bench()
    bench.send(bench.join("c", clean=False), Disconnect(session_expiry_s=0))
    assert bench.core.sessions() == []


@v5("MQTT-4.13.1-1")
def test_disconnect_gives_no_expiry_to_a_session_that_had_none() -> None:
    bench = Bench()
    watch = bench.join("watcher")
    bench.subscribed(watch, "will")
    client = bench.join("c", will=Will("will", b"gone"))
    bench.send(client, Disconnect(session_expiry_s=10))
    assert client.closed == ReasonCode.PROTOCOL_ERROR
    assert watch.payloads() == [b"gone"]
    assert len(bench.core.sessions()) == 1


@pytest.mark.parametrize("connect", [Connect("c", session_expiry_s=1), Connect("c", will=Will("t", b""))])
def test_a_failing_store_keeps_no_session_and_no_will(connect: Connect) -> None:
    store = ScriptedStore()
    bench = Bench(store)
    store.trouble = "no space left"
    assert connack(bench, connect).reason == ReasonCode.SERVER_UNAVAILABLE


@pytest.mark.parametrize(("allowed", "told"), [("responses/", "responses/c"), ("t/", "")])
def test_response_information_is_told_only_to_a_client_that_may_read_there(allowed: str, told: str) -> None:
    grant = Grant(READ, ["responses/", ""], ["c"])
    bench = Bench(access=ScriptedAccess(allowed), response_information=grant)
    asked = Connect("c", protocol_level=5, request_response_information=True)
    assert connack(bench, asked).response_information == told


def test_sessions_are_bounded_and_those_that_exist_are_resumed() -> None:
    bench = Bench(limits=Limits(sessions_max=2))
    for name in ("a", "b"):
        bench.lose(bench.join(name, clean=False))
    refused = bench.connect("c", clean=False)
    assert refused.take() == [Connack(False, ReasonCode.QUOTA_EXCEEDED)]
    bench.join("a", clean=False)
    bench.join("c")
    bench.core.end_session(bench.core.connections.sessions["b"])
    bench.turn()
    bench.lose(bench.join("a"))
    bench.join("d", clean=False)


def test_sessions_that_expire_together_end_in_several_ticks() -> None:
    bench = Bench()
    for number in range(EXPIRED_A_TICK + 1):
        bench.lose(bench.join(f"{number}", clean=False, expiry_s=10))
    bench.pass_s(11)
    assert len(bench.core.sessions()) == 1
    due_ms = bench.core.next_deadline_ms()
    assert due_ms is not None and due_ms <= bench.now_ms
    bench.pass_s(0)
    assert bench.core.sessions() == []
