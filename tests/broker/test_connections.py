"""How clients come and go: keep alive, expiry, takeover. A day passes in a millisecond."""

from embermq.broker.access import Identity
from embermq.broker.limits import Limits
from embermq.protocol.packets import (
    Connack,
    Connect,
    Pingreq,
)
from embermq.protocol.reasons import ReasonCode
from support.clauses import v311
from support.core import Bench, ScriptedAccess, ScriptedLink


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


@v311("MQTT-3.1.3-8")
def test_an_empty_client_id_needs_a_clean_session() -> None:
    bench = Bench()
    assert bench.connect("", clean=False).take() == [Connack(False, ReasonCode.CLIENT_IDENTIFIER_NOT_VALID)]
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
