"""Share groups: one member gets each message, one queue for all, nothing lost when members come and go."""

from pathlib import Path

import pytest

from embermq.broker.access import Identity
from embermq.broker.limits import Limits
from embermq.broker.route_group import GROUPS_OF_MESSAGE_MAX
from embermq.protocol.packets import (
    Connect,
    Delivery,
    Disconnect,
    Publish,
    Suback,
    Subscribe,
    SubscriptionRequest,
    Unsubscribe,
)
from embermq.protocol.reasons import ReasonCode
from embermq.store.records import SharedQueueEnded
from support.acknowledgements import is_pubrel, puback, pubcomp, pubrec, pubrel
from support.clauses import v5
from support.core import Bench, DiskBench, ScriptedAccess, ScriptedLink
from support.store_calls import open_shared_queue
from support.stores import ScriptedStore

GROUP = "$share/g/t/+"
NAME = "t/a"


def members(bench: Bench, count: int, qos: int = 1, *, clean: bool = True, window: int = 65_535) -> list[ScriptedLink]:
    found = []
    for number in range(count):
        link = bench.join(f"m{number}", clean=clean, receive_maximum=window)
        bench.subscribed(link, GROUP, qos)
        found.append(link)
    return found


def publish(bench: Bench, count: int, qos: int = 1, *, first: int = 0) -> list[bytes]:
    payloads = [b"%d" % number for number in range(first, first + count)]
    for payload in payloads:
        bench.publish(NAME, payload, qos)
    bench.commit()
    return payloads


def answer(bench: Bench, link: ScriptedLink) -> list[bytes]:
    """Acknowledge everything that a client gets, until nothing more comes."""
    got: list[bytes] = []
    while packets := link.take():
        for packet in packets:
            if isinstance(packet, Publish):
                got.append(packet.payload)
                if packet.qos == 1:
                    bench.send(link, puback(packet.packet_id))
                elif packet.qos == 2:
                    bench.send(link, pubrec(packet.packet_id))
            elif is_pubrel(packet):
                bench.send(link, pubcomp(packet.packet_id))
            bench.commit()
    return got


STORES = {
    "memory": lambda: ScriptedStore(late=False, queues=False),
    "queues": lambda: ScriptedStore(late=False),
    "late": lambda: ScriptedStore(),
}


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("kind", STORES)
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_each_message_goes_to_one_member_and_four_equal_ones_get_the_same(qos: int, kind: str, clean: bool) -> None:
    bench = Bench(STORES[kind]())
    group = members(bench, 4, 2, clean=clean)
    plain = bench.join("plain")
    bench.subscribed(plain, "t/#", 2)
    sent = publish(bench, 400, qos)
    got = [answer(bench, link) for link in group]
    assert sorted(payload for each in got for payload in each) == sorted(sent)
    assert [len(each) for each in got] == [100] * 4
    assert answer(bench, plain) == sent


def test_a_session_is_a_member_of_its_groups_in_their_order_and_no_other_is() -> None:
    bench = Bench()
    one, other = bench.join("one"), bench.join("other")
    filters = [f"$share/{name}/t" for name in "cab"]
    for share_filter in filters:
        bench.subscribed(one, share_filter, 1)

    def groups_of(link: ScriptedLink) -> list[str]:
        return [group.share_filter for group in bench.core.share_groups() if link.session in group.members]

    assert groups_of(one) == filters and groups_of(other) == []
    bench.send(one, Unsubscribe(9, [filters[0]]))
    bench.subscribed(other, filters[0], 1)
    assert groups_of(one) == filters[1:]
    assert groups_of(other) == filters[:1]


@v5("MQTT-4.8.2-3")
def test_each_member_gets_messages_at_its_own_qos_and_with_its_own_identifier() -> None:
    bench = Bench()
    links = []
    for number, qos in enumerate((0, 1, 2)):
        link = bench.join(f"m{number}")
        bench.subscribe(link, GROUP, qos, number=number + 1)
        link.take()
        links.append(link)
    publish(bench, 3, 2)
    assert sorted(link.take_messages()[0].qos for link in links) == [0, 1, 2]
    assert [link.take_ids() for link in links] == [[(1,)], [(2,)], [(3,)]]


def test_a_client_gets_a_copy_for_its_own_subscription_and_one_of_each_group() -> None:
    bench = Bench()
    client = bench.join("c")
    for topic_filter in (GROUP, "$share/other/t/+", "$share/g/t/#", "t/+"):
        bench.subscribed(client, topic_filter, 1)
    publish(bench, 1)
    assert client.payloads() == [b"0"] * 4


def test_a_member_without_a_place_in_its_window_is_passed_over_and_messages_wait_in_one_queue() -> None:
    bench = Bench()
    slow, quick = members(bench, 2, window=2)
    sent = publish(bench, 10)
    assert len(slow.take_messages()) == 2
    assert answer(bench, quick) == [b"1", b"3", *sent[4:]]
    assert bench.core.counters.dropped_queue_full == 0


def test_a_member_that_does_not_read_is_passed_over() -> None:
    bench = Bench()
    slow, quick = members(bench, 2)
    slow.room = 0
    sent = publish(bench, 5)
    assert answer(bench, quick) == sent
    quick.room = 0
    waiting = publish(bench, 5, first=5)
    assert slow.take() == []
    slow.room = 100
    bench.core.writable(slow)
    bench.turn()
    assert answer(bench, slow) == waiting


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("kind", STORES)
def test_what_a_lost_member_did_not_acknowledge_goes_to_another(kind: str, clean: bool) -> None:
    bench = Bench(STORES[kind]())
    dying, other = members(bench, 2, clean=clean)
    sent = publish(bench, 10)
    first = dying.take_messages()
    assert len(first) == 5
    bench.send(dying, puback(first[0].packet_id))
    bench.lose(dying)
    bench.commit()
    assert sorted(answer(bench, other)) == sorted(set(sent) - {first[0].payload})


def test_what_no_member_acknowledged_waits_for_the_next_one() -> None:
    bench = Bench(ScriptedStore(late=False))
    (only,) = members(bench, 1, clean=False)
    sent = publish(bench, 3)
    bench.lose(only)
    more = publish(bench, 2, first=3)
    again = bench.join("m0", clean=False)
    assert answer(bench, again) == sent + more


@v5("MQTT-4.8.2-4")
@pytest.mark.parametrize("is_released", [False, True])
def test_a_qos_2_message_stays_with_the_member_that_it_was_sent_to(is_released: bool) -> None:
    bench = Bench(ScriptedStore(late=False))
    first, second = members(bench, 2, 2, clean=False)
    publish(bench, 2, 2)
    (message,) = first.take_messages()
    answer(bench, second)
    if is_released:
        bench.send(first, pubrec(message.packet_id))
    bench.lose(first)
    bench.pass_s(60)
    assert second.take() == []
    again = bench.join("m0", clean=False)
    expected = (
        pubrel(message.packet_id)
        if is_released
        else Publish(NAME, message.payload, 2, dup=True, packet_id=message.packet_id)
    )
    assert again.got == [expected]


@v5("MQTT-4.8.2-5")
def test_a_qos_2_message_of_a_member_whose_session_ends_goes_to_no_other() -> None:
    bench = Bench(ScriptedStore(late=False))
    first, second = members(bench, 2, 2)
    publish(bench, 2, 2)
    answer(bench, second)
    bench.lose(first)
    bench.commit()
    assert second.take() == []


@v5("MQTT-4.8.2-6")
@pytest.mark.parametrize("qos", [1, 2])
def test_a_message_that_a_member_refuses_goes_to_no_other(qos: int) -> None:
    bench = Bench(ScriptedStore(late=False))
    first, second = members(bench, 2, 2)
    publish(bench, 2, qos)
    (message,) = first.take_messages()
    answer(bench, second)
    refusal = puback(message.packet_id, 0x80) if qos == 1 else pubrec(message.packet_id, 0x80)
    bench.send(first, refusal)
    bench.lose(first)
    bench.commit()
    assert second.take() == []


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_live_message_keeps_its_retain_flag_only_if_the_member_asks(qos: int, keep: bool) -> None:
    bench = Bench()
    client = bench.join("c")
    bench.subscribe(client, GROUP, 2, retain_as_published=keep)
    client.take()
    bench.publish(NAME, b"x", qos, retain=True)
    assert [message.retain for message in client.take_messages()] == [keep]


def test_qos_0_without_a_connected_member_is_no_drop_and_with_slow_ones_it_is() -> None:
    bench = Bench()
    (link,) = members(bench, 1, clean=False)
    link.room = 0
    publish(bench, 1, 0)
    assert bench.core.counters.dropped_output_full == 1
    bench.lose(link)
    publish(bench, 1, 0)
    assert bench.core.counters.dropped_output_full == 1


def test_a_group_gets_no_retained_messages_when_it_is_subscribed_to() -> None:
    bench = Bench()
    bench.publish(NAME, b"retained", 1, retain=True)
    client = bench.join("c")
    bench.subscribed(client, GROUP, 1)
    assert client.payloads() == []
    bench.publish(NAME, b"live", 1, retain=True)
    assert [(m.payload, m.retain) for m in client.take_messages()] == [(b"live", False)]


@v5("MQTT-3.8.3-4")
def test_no_local_on_a_shared_subscription_is_a_protocol_error() -> None:
    bench = Bench()
    client = bench.join("c")
    bench.subscribe(client, GROUP, 1, no_local=True)
    assert client.closed == ReasonCode.PROTOCOL_ERROR


@v5("MQTT-4.8.2-1", "MQTT-4.8.2-2")
@pytest.mark.parametrize("bad", ["$share/g", "$share//t", "$share/g/", "$share/+/t", "$share/#", "$share/g/a/#/b"])
def test_a_filter_that_names_no_group_is_refused_and_those_beside_it_are_granted(bad: str) -> None:
    bench = Bench()
    client = bench.join("c")
    bench.send(client, Subscribe(1, [SubscriptionRequest(bad, 1), SubscriptionRequest(GROUP, 1)]))
    assert client.take() == [Suback(1, [ReasonCode.TOPIC_FILTER_INVALID, 1], "not $share/name/filter")]


def test_rights_and_levels_are_judged_by_the_filter_behind_the_share_name() -> None:
    bench = Bench(access=ScriptedAccess("open"), limits=Limits(topic_levels_max=2))
    client = bench.join("c")
    asked = ["$share/g/open/a", "$share/g/closed", "$share/open/closed", "$share/g/open/a/b"]
    bench.send(client, Subscribe(1, [SubscriptionRequest(each, 1) for each in asked]))
    refused = ReasonCode.NOT_AUTHORIZED
    why = "no right to read all that it can match; more levels than limits.topic_levels_max"
    assert client.take() == [Suback(1, [1, refused, refused, ReasonCode.TOPIC_FILTER_INVALID], why)]


def test_a_group_ends_with_its_last_member_and_leaves_nothing() -> None:
    store = ScriptedStore(late=False)
    bench = Bench(store)
    first, second = members(bench, 2, clean=False)
    publish(bench, 2)
    bench.send(first, Unsubscribe(9, [GROUP]))
    assert bench.core._routes.count == 1
    bench.send(second, Disconnect(session_expiry_s=0))
    assert bench.core._routes.count == 0
    assert bench.core._routes._root.children == {}
    assert sum(isinstance(record, SharedQueueEnded) for _, record in store.records) == 1
    bench.send(first, puback(first.take_messages()[0].packet_id))
    publish(bench, 1)
    assert first.take() == []


def test_a_member_that_leaves_completes_what_it_has() -> None:
    bench = Bench()
    leaving, other = members(bench, 2)
    publish(bench, 2)
    bench.send(leaving, Unsubscribe(9, [GROUP]))
    leaving.take()
    publish(bench, 2, first=2)
    assert leaving.take() == []
    bench.lose(leaving)
    assert sorted(answer(bench, other)) == [b"0", b"1", b"2", b"3"]


def test_the_queue_of_a_group_is_bounded() -> None:
    for store in (ScriptedStore(late=False), ScriptedStore(late=False, queues=False)):
        bench = Bench(store, Limits(queue_messages_max=5, inflight_max=2))
        (link,) = members(bench, 1, clean=False)
        publish(bench, 20)
        assert bench.core.counters.dropped_queue_full >= 13
        assert len(answer(bench, link)) <= 7


def test_own_and_shared_messages_keep_to_one_window_and_to_different_packet_identifiers() -> None:
    bench = Bench(ScriptedStore(late=False))
    client = bench.join("c", clean=False, receive_maximum=4)
    bench.subscribed(client, GROUP, 1)
    bench.subscribed(client, "t/#", 1)
    publish(bench, 20)
    messages = client.take_messages()
    assert len(messages) == 4
    assert len({message.packet_id for message in messages}) == 4
    for message in messages:
        bench.send(client, puback(message.packet_id))
    got = [*(message.payload for message in messages), *answer(bench, client)]
    assert sorted(got) == sorted([b"%d" % number for number in range(20)] * 2)
    assert bench.core.sessions()[0].outbound.memory_bytes == 0
    assert bench.core.counters.acks_unknown == 0


def test_a_publisher_is_told_that_a_group_has_subscribed() -> None:
    bench = Bench()
    writer = bench.join("w")
    bench.send(writer, Publish(NAME, b"x", 1, packet_id=1))
    assert writer.take() == [puback(1, ReasonCode.NO_MATCHING_SUBSCRIBERS)]
    members(bench, 1)
    bench.send(writer, Publish(NAME, b"x", 1, packet_id=2))
    assert writer.take() == [puback(2)]


@pytest.mark.parametrize("how", ["crashed", "restarted"])
def test_a_group_with_stored_members_survives_the_server(tmp_path: Path, how: str) -> None:
    bench = DiskBench(tmp_path / "data", Limits(inflight_max=2))
    first, second = members(bench, 2, clean=False)
    sent = publish(bench, 10)
    done = [message.payload for message in first.take_messages()]
    for packet_id in list(bench.core.sessions()[0].outbound.shared):
        bench.send(first, puback(packet_id))
    bench.lose(second)
    bench.commit()
    more = publish(bench, 5, first=10)
    bench = bench.crashed() if how == "crashed" else bench.restarted()
    again = bench.join("m1", clean=False)
    got = answer(bench, again)
    assert set(got) | set(done) | {m.payload for m in first.take_messages()} >= set(sent + more)
    assert len(got) >= 15 - 4
    bench = bench.restarted()
    again = bench.join("m0", clean=False)
    assert again.take() == []
    bench.journal.close()


@v5("MQTT-4.8.2-4", "MQTT-4.8.2-5")
def test_a_qos_2_message_in_flight_at_a_crash_is_sent_to_its_member_only(tmp_path: Path) -> None:
    bench = DiskBench(tmp_path / "data")
    first, second = members(bench, 2, 2, clean=False)
    publish(bench, 2, 2)
    bench.commit()  # the group's queue, then the members'
    (to_first,) = first.take_messages()
    (to_second,) = second.take_messages()
    bench = bench.crashed()
    for client_id, sent in (("m1", to_second), ("m0", to_first)):
        again = bench.join(client_id, clean=False)
        got = [(message.payload, message.dup, message.packet_id) for message in again.take_messages()]
        assert got == [(sent.payload, True, sent.packet_id)]
    bench.journal.close()


def test_a_stored_queue_whose_members_are_gone_is_forgotten_at_start(tmp_path: Path) -> None:
    bench = DiskBench(tmp_path / "data")
    queue_id, _ = open_shared_queue(bench.journal, "$share/nobody/t")
    assert queue_id
    bench.commit()
    bench = bench.restarted()
    bench.commit()
    bench = bench.restarted()
    assert bench.journal.sessions.shared_queues() == []
    bench.journal.close()


class SmallLink(ScriptedLink):
    """A client with a Maximum Packet Size."""

    def fits(self, delivery: Delivery) -> bool:
        return len(delivery.messages[0].payload) < 10


def test_a_large_message_waits_for_the_member_that_can_take_it() -> None:
    bench = Bench()
    large = bench.join("large", receive_maximum=1)
    bench.subscribed(large, GROUP, 1)
    small = SmallLink()
    connect = Connect("small", maximum_packet_size=50, protocol_level=5)
    bench.core.connect(small, connect, Identity("", "small"), "MQTT 5", "test")
    bench.turn()
    bench.subscribe(small, GROUP, 1)
    bench.commit()
    small.take()
    bench.publish(NAME, bytes(20), 1)
    bench.publish(NAME, bytes(30), 1)
    bench.commit()
    (first,) = large.take_messages()
    assert (len(first.payload), small.take()) == (20, [])
    bench.send(large, puback(first.packet_id))
    assert [len(message.payload) for message in large.take_messages()] == [30]
    assert small.take() == []


def test_members_that_are_away_are_not_looked_at() -> None:
    bench = Bench(ScriptedStore(late=False))
    links = members(bench, 4, clean=False)
    for link in links[1:]:
        bench.lose(link)
    (group,) = bench.core.share_groups()
    assert [member.session.client_id for member in group._connected()] == ["m0"]
    assert answer(bench, links[0]) == []
    payloads = publish(bench, 3)
    assert answer(bench, links[0]) == payloads
    back = bench.join("m2", clean=False)
    assert [member.session.client_id for member in group._connected()] == ["m0", "m2"]
    payloads = publish(bench, 4)
    assert sorted(answer(bench, links[0]) + answer(bench, back)) == payloads
    bench.send(links[0], Unsubscribe(1, [GROUP]))
    assert [member.session.client_id for member in group._connected()] == ["m2"]


def test_a_client_is_a_member_of_a_bounded_number_of_groups() -> None:
    refused: list[str] = []
    bench = Bench(limits=Limits(share_groups_max=2), report_refusal=lambda refusal: refused.append(refusal.detail))
    client, other = bench.join("client"), bench.join("other")
    requests = [SubscriptionRequest(f"$share/{name}/t", 1) for name in ("a", "b", "c", "a")]
    bench.send(client, Subscribe(1, [*requests, SubscriptionRequest("t", 1)]))
    quota = int(ReasonCode.QUOTA_EXCEEDED)
    assert client.take() == [Suback(1, [1, 1, quota, 1, 1], "limits.share_groups_max is reached")]
    assert refused == ["limits.share_groups_max is reached"]
    assert bench.core.counters.subscriptions_refused == 1
    bench.send(client, Unsubscribe(2, ["$share/a/t"]), Subscribe(3, [requests[2]]))
    assert client.take()[-1] == Suback(3, [1])
    # Joining the groups of others counts as well as founding them.
    bench.send(other, Subscribe(1, requests[:3]))
    assert other.take() == [Suback(1, [1, 1, quota], "limits.share_groups_max is reached")]


def test_the_queues_of_all_groups_of_a_client_have_the_limits_of_one_together() -> None:
    bench = Bench(limits=Limits(queue_messages_max=30))
    client, other = bench.join("client", room=0), bench.join("other", room=0)
    bench.send(client, Subscribe(1, [SubscriptionRequest(f"$share/{number}/t", 1) for number in range(5)]))
    bench.send(other, Subscribe(1, [SubscriptionRequest("$share/other/t", 1)]))
    for number in range(20):
        bench.publish("t", b"%d" % number, 1)
    owed = {group.share_filter: group.owed() for group in bench.core.share_groups()}
    assert owed.pop("$share/other/t") == 20
    assert sum(owed.values()) == 30
    assert bench.core.counters.dropped_queue_full == 5 * 20 - 30


def test_a_message_that_waits_in_many_groups_of_a_client_counts_once_in_bytes() -> None:
    bench = Bench(limits=Limits(queue_bytes_max=10_000))
    client = bench.join("client", room=0)
    bench.send(client, Subscribe(1, [SubscriptionRequest(f"$share/{number}/t", 1) for number in range(50)]))
    for _ in range(20):
        bench.publish("t", bytes(999), 1)
    session = bench.core.sessions()[0]
    assert [group.owed() for group in bench.core.share_groups()] == [10] * 50
    assert session.shared_bytes == 10_000
    bench.send(client, Unsubscribe(2, [f"$share/{number}/t" for number in range(49)]))
    assert session.shared_bytes == 10_000
    client.room = 1_000_000
    bench.core.writable(client)
    bench.turn()
    assert len(client.take_messages()) == 10
    assert session.shared_bytes == 0


def test_what_waits_is_charged_to_the_next_member_when_the_oldest_leaves() -> None:
    bench = Bench(limits=Limits(queue_messages_max=30))
    first, second = bench.join("first", room=0), bench.join("second", room=0)
    bench.subscribed(first, "$share/a/t", 1)
    bench.subscribed(second, "$share/b/t", 1)
    bench.subscribed(second, "$share/a/t", 1)
    for number in range(20):
        bench.publish("t", b"%d" % number, 1)
    bench.lose(first)
    assert {group.share_filter: group.owed() for group in bench.core.share_groups()} == {
        "$share/a/t": 10,
        "$share/b/t": 20,
    }
    second.room = 1_000_000
    bench.core.writable(second)
    bench.turn()
    assert len(second.take_messages()) == 30
    assert bench.core.counters.dropped_queue_full == 10


def test_a_message_goes_to_a_bounded_number_of_groups_first_to_those_of_clients_with_few() -> None:
    bench = Bench(limits=Limits(share_groups_max=10_000))
    greedy, modest = bench.join("greedy"), bench.join("modest")
    requests = [SubscriptionRequest(f"$share/{number}/#", 0) for number in range(GROUPS_OF_MESSAGE_MAX + 10)]
    bench.send(greedy, Subscribe(1, requests))
    bench.subscribed(modest, "$share/modest/t", 0)
    greedy.take()
    bench.publish("t", b"x")
    assert len(modest.payloads()) == 1
    assert len(greedy.payloads()) == GROUPS_OF_MESSAGE_MAX - 1
    assert bench.core.counters.dropped_queue_full == 11


def test_a_stored_group_whose_members_are_away_keeps_nothing_in_memory() -> None:
    bench = Bench(ScriptedStore(late=False))
    client = bench.join("client", clean=False)
    bench.subscribed(client, GROUP, 1)
    bench.lose(client)
    payloads = publish(bench, 600)
    session = bench.core.sessions()[0]
    assert session.shared_bytes == 0
    again = bench.join("client", clean=False)
    assert answer(bench, again) == payloads


@pytest.mark.parametrize("kind", ["memory", "queues"])
def test_a_ready_member_gets_messages_although_another_group_of_its_founder_is_full(kind: str) -> None:
    bench = Bench(STORES[kind](), Limits(queue_messages_max=300, share_groups_max=15))
    founder, helper = bench.join("founder", clean=False, room=0), bench.join("helper", clean=False)
    for name in ("a", "b"):
        bench.subscribed(founder, f"$share/{name}/{name}", 1)
    bench.subscribed(helper, "$share/b/b", 1)
    for _ in range(300):
        bench.publish("a", b"x", 1)
    for number in range(20):
        bench.publish("b", b"%d" % number, 1)
    assert answer(bench, helper) == [b"%d" % number for number in range(20)]


def test_stored_queues_of_all_groups_of_a_client_have_the_length_of_one_together() -> None:
    bench = Bench(ScriptedStore(late=False), Limits(queue_messages_max=30))
    client = bench.join("client", clean=False)
    bench.send(client, Subscribe(1, [SubscriptionRequest(f"$share/{number}/t", 1) for number in range(4)]))
    client.take()
    bench.lose(client)
    publish_to_t = 20
    for number in range(publish_to_t):
        bench.publish("t", b"%d" % number, 1)
    assert sum(group.owed() for group in bench.core.share_groups()) == 30
    assert bench.core.counters.dropped_queue_full == 4 * publish_to_t - 30
    # What is acknowledged, and what belongs to a group that ends, makes place.
    again = bench.join("client", clean=False)
    assert len(answer(bench, again)) == 30
    bench.lose(again)
    for number in range(5):
        bench.publish("t", b"%d" % number, 1)
    again = bench.join("client", clean=False)
    bench.send(again, Unsubscribe(2, ["$share/0/t", "$share/1/t"]))
    bench.lose(again)
    for number in range(5):
        bench.publish("t", b"%d" % number, 1)
    assert [group.owed() for group in bench.core.share_groups()] == [10, 10]
    assert bench.core.counters.dropped_queue_full == 4 * publish_to_t - 30


@v5("MQTT-4.8.2-4")
@pytest.mark.parametrize("kind", ["queues", "late"])
def test_a_qos_2_message_waits_while_the_stored_queue_of_the_only_member_is_full(kind: str) -> None:
    """Handed over, it would be in no queue: the group would take it for delivered, and the member would not get it."""
    bench = Bench(STORES[kind](), Limits(queue_messages_max=10))
    (member,) = members(bench, 1, 2, clean=False)
    bench.subscribed(member, "own", 1)
    for number in range(10):
        bench.publish("own", b"own %d" % number, 1)
    bench.commit()
    payloads = publish(bench, 3, 2)
    counters = bench.core.counters
    assert (counters.dropped_queue_full, counters.publish_sent_2) == (0, 0)
    assert [group.owed() for group in bench.core.share_groups()] == [3]
    assert sorted(answer(bench, member)) == sorted([*(b"own %d" % number for number in range(10)), *payloads])
    assert [group.owed() for group in bench.core.share_groups()] == [0]


def test_a_qos_2_message_goes_to_a_member_whose_stored_queue_has_a_place() -> None:
    bench = Bench(ScriptedStore(late=False), Limits(queue_messages_max=10))
    full, other = members(bench, 2, 2, clean=False)
    bench.subscribed(full, "own", 1)
    for _ in range(10):
        bench.publish("own", b"own", 1)
    payloads = publish(bench, 4, 2)
    assert answer(bench, other) == payloads
    assert set(full.payloads()) == {b"own"}
