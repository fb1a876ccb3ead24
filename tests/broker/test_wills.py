"""Wills: published when a client is gone without DISCONNECT, once, and not when it is back in time."""

import pytest

from embermq.broker.access import Identity
from embermq.broker.wills import Wills
from embermq.protocol.packets import Disconnect, Publish, Suback, Will
from embermq.protocol.reasons import ReasonCode
from support.clauses import v311
from support.core import Bench, ScriptedLink

WILL = Will("will", b"gone", 1, True)
DELAYED = Will("will", b"gone", delay_s=30)
CLIENT = Identity("", "device-7")


def watcher(bench: Bench) -> ScriptedLink:
    link = bench.join("watcher")
    bench.subscribed(link, "will", 1)
    return link


def wills_of(bench: Bench) -> Wills:
    return Wills(bench.core.delivery, bench.core.counters)


@pytest.mark.parametrize("how", ["lost", "takeover", "protocol error", "keep-alive"])
@v311("MQTT-3.1.2-8")
def test_a_will_is_published_on_every_abnormal_end_and_once(how: str) -> None:
    bench = Bench()
    watch = watcher(bench)
    client = bench.join("c", keep_alive_s=10, will=WILL)
    if how == "lost":
        bench.lose(client)
    elif how == "takeover":
        bench.join("c")
    elif how == "protocol error":
        bench.send(client, Suback(1, [0]))
    else:
        bench.pass_s(16)
    bench.pass_s(3600)
    messages = watch.take_messages()
    assert [(m.payload, m.qos, m.retain) for m in messages] == [(b"gone", 1, False)]


@v311("MQTT-3.14.4-3")
def test_no_will_after_disconnect_and_nothing_behind_it_is_read() -> None:
    bench = Bench()
    watch = watcher(bench)
    client = bench.join("c", will=WILL)
    bench.send(client, Disconnect(), Publish("will", b"late", 1, packet_id=1))
    bench.core.lost(client, "closed", bench.now_ms)
    bench.turn()
    assert watch.take_messages() == []
    assert client.closed == ReasonCode.SUCCESS


def test_a_new_connection_replaces_the_will() -> None:
    bench = Bench()
    watch = watcher(bench)
    client = bench.join("c", clean=False, will=WILL)
    bench.send(client, Disconnect())
    client = bench.join("c", clean=False)
    bench.lose(client)
    assert watch.take_messages() == []


def test_a_will_with_a_delay_falls_due_when_it_has_passed_and_once() -> None:
    bench = Bench()
    watch = watcher(bench)
    wills = wills_of(bench)
    wills.schedule("device-7", DELAYED, CLIENT, now_ms=1_000)
    assert wills.next_deadline_ms() == 31_000
    wills.publish_due(30_999)
    assert watch.payloads() == []
    wills.publish_due(31_000)
    wills.publish_due(99_000)
    assert watch.payloads() == [b"gone"]
    assert wills.next_deadline_ms() is None


def test_a_client_that_is_back_before_the_delay_has_passed_cancels_its_will() -> None:
    bench = Bench()
    watch = watcher(bench)
    client = bench.join("device-7", clean=False, will=DELAYED)
    bench.lose(client)
    deadline_ms = bench.core.next_deadline_ms()
    assert deadline_ms is not None and deadline_ms <= bench.now_ms + 30_000
    bench.join("device-7", clean=False)
    bench.pass_s(60)
    assert watch.payloads() == []


@pytest.mark.parametrize("how", ["expired", "clean start", "ends with its connection"])
def test_the_end_of_a_session_ends_the_delay_of_its_will(how: str) -> None:
    bench = Bench()
    watch = watcher(bench)
    client = bench.join("device-7", clean=how == "ends with its connection", expiry_s=10, will=DELAYED)
    bench.lose(client)
    if how == "expired":
        bench.pass_s(11)
    elif how == "clean start":
        bench.join("device-7")
    assert watch.payloads() == [b"gone"]


def test_a_refused_will_harms_nothing_and_is_counted() -> None:
    bench = Bench()
    wills_of(bench).schedule("device-7", Will("$SYS/x", b"x"), CLIENT, now_ms=0)
    assert bench.core.counters.dropped_topic_refused == 1
