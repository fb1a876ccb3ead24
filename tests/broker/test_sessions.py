"""Sessions in time: keep-alives, expiries, wills, limits. A day passes in a millisecond."""

import pytest

from embermq.broker.access import Identity
from embermq.broker.limits import Limits
from embermq.protocol.packets import (
    Connack,
    Connect,
    Disconnect,
    Pingreq,
    Puback,
    Publish,
    Suback,
    Subscribe,
    SubscriptionRequest,
    Will,
)
from embermq.protocol.reasons import ReasonCode
from support.clauses import v311
from support.core import Bench, NamedUsers, ScriptedLink

WILL = Will("will", b"gone", 1, True)


def watcher(bench: Bench) -> object:
    link = bench.join("watcher")
    bench.subscribed(link, "will", 1)
    return link


@v311("MQTT-3.1.2-24")
def test_a_silent_client_is_lost_at_one_and_a_half_times_its_keep_alive() -> None:
    bench = Bench()
    watch = watcher(bench)
    client = bench.join("c", keep_alive_s=10, will=WILL)
    bench.pass_s(14.9)
    assert client.closed is None
    bench.pass_s(0.2)
    assert client.closed == ReasonCode.KEEP_ALIVE_TIMEOUT
    assert watch.payloads() == [b"gone"]


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


@v311("MQTT-3.1.3-8")
def test_an_empty_client_id_needs_a_clean_session() -> None:
    bench = Bench()
    assert bench.connect("", clean=False).take() == [Connack(False, ReasonCode.CLIENT_IDENTIFIER_NOT_VALID)]
    first, second = bench.join(""), bench.join("")
    assert first.closed is None
    assert second.closed is None
    assert len({session.client_id for session in bench.core.sessions()}) == 2


def test_limits_bite_at_their_number_and_not_before() -> None:
    bench = Bench(limits=Limits(subscriptions_max=2, topic_levels_max=3))
    client = bench.join("c")
    asked = [SubscriptionRequest(f) for f in ("a/b/c", "b", "a/b/c/d", "c", "b")]
    bench.send(client, Subscribe(1, asked))
    assert client.take() == [Suback(1, [0, 0, ReasonCode.QUOTA_EXCEEDED, ReasonCode.QUOTA_EXCEEDED, 0])]
    bench.send(client, Publish("a/b/c/d", b"", 1, packet_id=1), Publish("a/b/c", b"", 1, packet_id=2))
    assert client.take()[:2] == [Puback(1, ReasonCode.TOPIC_NAME_INVALID), Publish("a/b/c", b"")]


def test_a_topic_of_slashes_overflows_nothing() -> None:
    bench = Bench(limits=Limits(topic_levels_max=100_000))
    client = bench.join("c")
    slashes = "/" * 65_535
    bench.send(client, Subscribe(1, [SubscriptionRequest(slashes), SubscriptionRequest("+" + slashes[1:])]))
    client.take()
    bench.publish(slashes, b"deep", retain=True)
    assert client.payloads() == [b"deep"]
    bench.subscribe(client, "#")
    assert client.payloads() == [b"deep"]
    bench.lose(client)
    assert bench.core.sessions() == []


def test_no_local_spares_the_publisher_its_own_messages() -> None:
    bench = Bench()
    client = bench.join("c")
    bench.subscribe(client, "t", 1, no_local=True)
    client.take()
    bench.send(client, Publish("t", b"mine", 1, packet_id=1))
    bench.publish("t", b"theirs", qos=1)
    assert client.payloads() == [b"theirs"]


def test_a_user_cannot_take_the_session_of_another() -> None:
    bench = Bench(access=NamedUsers())
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
