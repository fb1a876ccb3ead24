"""What the operator asks of the core: who is connected, which share groups there are, ending clients and sessions."""

from embermq.protocol.packets import Publish, Will
from embermq.protocol.reasons import ReasonCode
from support.core import Bench


def test_a_session_knows_its_connection() -> None:
    bench = Bench()
    bench.join("c")
    (session,) = bench.core.sessions()
    assert session.protocol and session.address and session.connected_ms == bench.now_ms


def test_a_client_that_the_operator_disconnects_keeps_its_session() -> None:
    bench = Bench()
    link = bench.join("c", expiry_s=100, will=Will("will", b"gone"))
    watcher = bench.join("watcher")
    bench.subscribed(watcher, "will")
    session = bench.core.connections.sessions["c"]
    bench.core.disconnect(session)
    bench.turn()
    assert link.closed == ReasonCode.ADMINISTRATIVE_ACTION
    assert watcher.payloads() == [b"gone"]
    assert bench.core.connections.sessions["c"] is session and not session.has_ended
    bench.core.disconnect(session)  # nothing is left to end


def test_a_session_that_the_operator_ends_is_gone() -> None:
    bench = Bench()
    link = bench.join("c", expiry_s=100)
    bench.core.end_session(bench.core.connections.sessions["c"])
    assert link.closed == ReasonCode.ADMINISTRATIVE_ACTION
    assert bench.core.sessions() == []
    bench.join("d")
    bench.core.end_session(bench.core.connections.sessions["d"])  # it ends with its connection
    assert bench.core.sessions() == []


def test_share_groups_and_subscriptions_are_counted() -> None:
    bench = Bench()
    link = bench.join("c")
    bench.subscribed(link, "$share/g/a", qos=1)
    bench.subscribed(link, "b")
    (group,) = bench.core.share_groups()
    assert (group.share_filter, group.owed(), group.oldest_owed_offset()) == ("$share/g/a", 0, 0)
    assert bench.core.subscription_count() == 2
    link.room = 0
    publisher = bench.join("p")
    bench.send(publisher, Publish("a", b"1", 1, packet_id=1))
    assert group.owed() == 1
