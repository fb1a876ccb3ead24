"""Wills: published when a client is gone without DISCONNECT, once, and not when it is back in time."""

from pathlib import Path

import pytest

from embermq.broker.access import AllowAll, Identity
from embermq.broker.clock import Clock
from embermq.broker.context import Context
from embermq.broker.limits import Limits
from embermq.broker.wills import WILLS_A_TICK, Wills
from embermq.protocol.packets import Disconnect, Publish, Suback, Will
from embermq.protocol.reasons import ReasonCode
from embermq.store.interface import SavedWill
from embermq.store.records import Published, WillCleared, WillSet
from support.clauses import v5, v311
from support.core import Bench, DiskBench, ScriptedLink
from support.stores import ScriptedStore

WILL = Will("will", b"gone", 1, True)
DELAYED = Will("will", b"gone", delay_s=30)
CLIENT = Identity("", "device-7")


def watcher(bench: Bench) -> ScriptedLink:
    link = bench.join("watcher")
    bench.subscribed(link, "will", 1)
    return link


def wills_of(bench: Bench) -> tuple[Wills, Clock]:
    context = Context(bench.store, AllowAll(), Limits(), lambda: None)
    return Wills(context, bench.core.delivery), context.clock


@pytest.mark.parametrize("how", ["lost", "takeover", "protocol error", "keep-alive"])
@v311("MQTT-3.1.2-8")
@v5("MQTT-3.1.2-8", "MQTT-3.1.2-14")
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
@v5("MQTT-3.14.4-3", "MQTT-3.1.2-10")
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
    wills, clock = wills_of(bench)
    clock.move(1_000)
    wills.schedule("device-7", DELAYED, CLIENT)
    assert wills.next_deadline_ms() == 31_000
    clock.move(30_999)
    wills.publish_due()
    bench.turn()
    assert watch.payloads() == []
    for now_ms in (31_000, 99_000):
        clock.move(now_ms)
        wills.publish_due()
    bench.turn()
    assert watch.payloads() == [b"gone"]
    assert wills.next_deadline_ms() is None


@v5("MQTT-3.1.3-9")
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


@v5("MQTT-3.1.2-8", "MQTT-3.1.2-10")
@pytest.mark.parametrize("how", ["expired", "clean start", "ends with its connection"])
def test_the_end_of_a_session_ends_the_delay_of_its_will(how: str) -> None:
    bench = Bench()
    watch = watcher(bench)
    client = bench.join("device-7", expiry_s=0 if how == "ends with its connection" else 10, will=DELAYED)
    bench.lose(client)
    if how == "expired":
        bench.pass_s(11)
    elif how == "clean start":
        bench.join("device-7")
    assert watch.payloads() == [b"gone"]


def test_a_refused_will_harms_nothing_and_is_counted() -> None:
    bench = Bench()
    wills_of(bench)[0].schedule("device-7", Will("$SYS/x", b"x"), CLIENT)
    assert bench.core.counters.dropped_topic_refused == 1


@v5("MQTT-3.1.2-8")
@pytest.mark.parametrize("reason", [0x04, 0x80, 0x81, 0x93])
def test_disconnect_with_any_reason_but_success_publishes_the_will(reason: int) -> None:
    bench = Bench()
    watch = watcher(bench)
    client = bench.join("c", will=WILL)
    bench.send(client, Disconnect(reason))
    assert watch.payloads() == [b"gone"]


def test_a_takeover_without_clean_start_deletes_a_will_whose_delay_runs() -> None:
    bench = Bench()
    watch = watcher(bench)
    bench.join("c", clean=False, will=DELAYED)
    bench.join("c", clean=False)
    bench.pass_s(60)
    assert watch.payloads() == []


@v5("MQTT-3.1.2-7")
@pytest.mark.parametrize("clean", [True, False])
def test_connack_waits_until_the_will_is_durable(clean: bool) -> None:
    store = ScriptedStore()
    bench = Bench(store)
    client = bench.connect("c", clean=clean, will=WILL)
    assert client.got == []
    assert any(isinstance(record, WillSet) for _, record in store.records)
    bench.commit()
    assert len(client.got) == 1


def test_a_will_and_the_record_that_it_is_gone_are_in_one_group_and_leave_together() -> None:
    store = ScriptedStore()
    bench = Bench(store)
    watch = watcher(bench)
    bench.lose(bench.join("c", will=Will("will", b"gone", 0)))
    kinds = [type(record) for _, record in store.records]
    assert kinds.index(WillCleared) == kinds.index(Published) + 1
    assert watch.payloads() == []
    bench.commit()
    assert watch.payloads() == [b"gone"]


def test_a_will_that_a_failing_store_does_not_take_is_published_when_it_works() -> None:
    store = ScriptedStore()
    bench = Bench(store)
    watch = watcher(bench)
    client = bench.join("c", will=WILL)
    store.trouble = "no space left"
    bench.lose(client)
    bench.pass_s(2)
    store.trouble = ""
    bench.commit()
    assert watch.payloads() == []
    bench.pass_s(2)
    bench.commit()
    assert watch.payloads() == [b"gone"]
    bench.pass_s(60)
    bench.commit()
    assert watch.payloads() == []


GRACE = Limits(will_grace_s=20)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize(("will", "due_s"), [(WILL, 20), (DELAYED, 30)])
def test_after_a_crash_the_will_of_a_client_that_does_not_come_back_is_published_once(
    tmp_path: Path, clean: bool, will: Will, due_s: int
) -> None:
    bench = DiskBench(tmp_path / "data")
    bench.join("c", clean=clean, will=will)
    bench = bench.crashed(GRACE)
    watch = watcher(bench)
    bench.pass_s(due_s - 1)
    bench.commit()
    assert watch.payloads() == []
    bench.pass_s(1)
    bench.commit()
    assert watch.payloads() == [b"gone"]
    bench = bench.crashed(GRACE)
    watch = watcher(bench)
    watch.take()
    bench.pass_s(100)
    bench.commit()
    assert watch.payloads() == []
    bench.journal.close()


@v5("MQTT-3.1.3-9")
@pytest.mark.parametrize("clean", [True, False])
def test_after_a_crash_a_client_that_comes_back_in_time_has_its_will_not_published(tmp_path: Path, clean: bool) -> None:
    bench = DiskBench(tmp_path / "data")
    bench.join("c", clean=clean, will=WILL)
    bench = bench.crashed(GRACE)
    watch = watcher(bench)
    bench.pass_s(10)
    client = bench.join("c", clean=clean)
    bench.pass_s(100)
    bench.send(client, Disconnect())
    bench.commit()
    assert watch.payloads() == []
    bench.journal.close()


@pytest.mark.parametrize("how", ["disconnect", "published"])
def test_a_will_that_is_over_is_not_there_after_a_crash(tmp_path: Path, how: str) -> None:
    bench = DiskBench(tmp_path / "data")
    client = bench.join("c", clean=False, will=Will("will", b"gone"))
    if how == "disconnect":
        bench.send(client, Disconnect())
    else:
        bench.lose(client)
    bench.commit()
    bench = bench.crashed(GRACE)
    watch = watcher(bench)
    bench.pass_s(100)
    bench.commit()
    assert watch.payloads() == []
    bench.journal.close()


def test_a_delay_that_runs_goes_on_after_a_restart(tmp_path: Path) -> None:
    bench = DiskBench(tmp_path / "data")
    bench.join("c", clean=False, will=DELAYED)
    bench = bench.restarted(Limits(will_grace_s=1), after_s=10)
    watch = watcher(bench)
    bench.pass_s(19)
    bench.commit()
    assert watch.payloads() == []
    bench.pass_s(2)
    bench.commit()
    assert watch.payloads() == [b"gone"]
    bench.journal.close()


def test_the_wills_of_many_clients_are_published_over_several_ticks() -> None:
    bench = Bench(
        ScriptedStore(
            late=False,
            saved_wills=[
                SavedWill(f"c{number}", "", 0, Will("will", b"gone"), 0) for number in range(WILLS_A_TICK + 1)
            ],
        ),
        Limits(will_grace_s=5),
    )
    watch = watcher(bench)
    bench.pass_s(5)
    assert len(watch.payloads()) == WILLS_A_TICK
    deadline_ms = bench.core.next_deadline_ms()
    assert deadline_ms is not None and deadline_ms <= bench.now_ms
    bench.pass_s(0)
    assert len(watch.payloads()) == 1


def test_clients_that_come_and_go_leave_no_entries_behind() -> None:
    bench = Bench()
    wills, clock = wills_of(bench)
    for number in range(10_000):
        clock.move(number)
        wills.schedule("device-7", DELAYED, CLIENT)
        wills.set("device-7", 0, "", None, None)
    assert len(wills._deadlines) < 2_000
