"""A core that is given the records of another one has the same sessions, subscriptions, queues, wills and messages."""

from pathlib import Path

from embermq.broker.core import Core
from embermq.protocol.packets import Publish, Unsubscribe, Will
from embermq.store.log.writer import Log
from embermq.store.records import unpack
from support.acknowledgements import puback, pubrec, pubrel
from support.core import DiskBench
from support.trimmed_log import everything


def work(bench: DiskBench) -> None:
    """Something of everything that a core records."""
    for number in range(5):
        bench.publish(f"plant/{number}", b"%d" % number, 1, True)
    bench.publish("plant/1", b"", 1, True)
    bench.publish("plant/soon", b"expires", 1, True, expiry_s=5)
    away = bench.join("away", clean=False, user="u")
    bench.subscribe(away, "a/#", 2, number=7)
    bench.subscribe(away, "left", 1)
    bench.send(away, Unsubscribe(3, ["left"]))
    bench.commit()
    bench.publish("a/0", b"taken", 1)
    bench.publish("a/0", b"received", 2)
    bench.commit()
    for message in away.take_messages():
        bench.send(away, puback(message.packet_id) if message.qos == 1 else pubrec(message.packet_id))
    bench.commit()
    publisher = bench.join("publisher", clean=False)
    for packet_id in (5, 6):
        bench.send(publisher, Publish("a/once", b"exactly once", 2, packet_id=packet_id))
    bench.send(publisher, pubrel(5))
    members = [bench.join(name, clean=False) for name in ("m1", "m2")]
    for member in members:
        bench.subscribed(member, "$share/g/s/#", 1)
    bench.subscribed(members[0], "$share/ends/s/#", 1)
    bench.send(members[0], Unsubscribe(4, ["$share/ends/s/#"]))
    ended = bench.join("ended", clean=False)
    bench.subscribed(ended, "$share/alone/s", 1)
    bench.lose(ended)
    bench.join("ended", clean=True)
    for link in (away, *members):
        bench.lose(link)
    bench.lose(bench.join("m1", clean=False))
    bench.commit()
    for number in range(4):
        bench.publish(f"a/{number}", b"queued", 1 + number % 2)
        bench.publish("s/1", b"shared", 1)
    bench.pass_s(10)
    bench.join("with will", will=Will("will/1", b"gone", 1))
    bench.lose(bench.join("delayed", clean=False, will=Will("will/2", b"gone", 1, True, 600)))
    bench.commit()


def shape(core: Core) -> object:
    """What the core has in memory for its routes: persistent sessions, subscriptions and share groups."""
    sessions = {
        session.client_id: (
            session.session_id,
            session.identity.user_name,
            sorted(
                (
                    topic_filter,
                    each.qos,
                    each.no_local,
                    each.retain_as_published,
                    session.subscription_ids(topic_filter),
                )
                for topic_filter, each in session.subscriptions.items()
            ),
        )
        for session in core.connections.sessions.values()
        if session.session_id
    }
    groups = {group.share_filter: sorted(member.client_id for member in group.members) for group in core.share_groups()}
    return sessions, groups, core.subscription_count()


def test_a_core_follows_the_records_of_another(tmp_path: Path) -> None:
    first = DiskBench(tmp_path / "first")
    work(first)
    seen = shape(first.core)
    first.journal.close()
    log = Log(tmp_path / "first" / "log", segment_bytes=1 << 30, segment_age_s=1 << 30, sync=False)
    groups = list(log.groups_from(1))
    log.close()

    second = DiskBench(tmp_path / "second")
    for group in groups:
        for row in group.rows:
            second.store.begin_turn(row.timestamp_us)
            record = unpack(row)
            assert record is not None
            assert second.store.next_offset() == row.offset
            second.core.apply(record)
        second.commit()
    assert len({row.kind for group in groups for row in group.rows}) >= 18
    assert shape(second.core) == seen
    assert second.store.sessions.new_id() > max(
        session.session_id for session in second.core.connections.sessions.values()
    )
    second.journal.close()
    assert everything(tmp_path / "second") == everything(tmp_path / "first")

    # What the first core owed, a server on the second directory delivers.
    again = DiskBench(tmp_path / "second", now_ms=2_000_000)
    away = again.join("away", clean=False)
    assert away.payloads() == [b"exactly once", b"exactly once", b"queued", b"queued", b"queued", b"queued"]
    again.journal.close()
