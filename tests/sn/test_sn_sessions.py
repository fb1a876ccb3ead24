"""MQTT-SN sessions over real UDP, in every profile: connecting, messages, wills, sleepers, ends."""

from collections.abc import Callable

import pytest

from embermq import Broker
from support.sn_client import PROFILES, TWO, V12, A, B, Message, SnClient, Will, pubwos
from support.wire import Wire

Sn = Callable[..., SnClient]
Mqtt = Callable[..., Wire]

ALL = pytest.mark.parametrize("profile", PROFILES)


@ALL
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("granted", [0, 1, 2])
def test_a_message_arrives_at_the_lower_of_both_qos(sn: Sn, profile: str, qos: int, granted: int) -> None:
    publisher, subscriber = sn(profile), sn(profile)
    assert subscriber.subscribe("a/b", granted).reason == granted
    publisher.publish("a/b", b"hi", qos)
    publisher.ping()
    assert subscriber.drain() == [Message("a/b", b"hi", min(qos, granted))]


@ALL
def test_a_wildcard_brings_topics_the_client_never_named(sn: Sn, profile: str) -> None:
    publisher, subscriber = sn(profile), sn(profile)
    assert subscriber.subscribe("a/#", 1).alias == 0
    for number in range(20):
        publisher.publish(f"a/{number}", b"%d" % number, 1)
    assert subscriber.drain() == [Message(f"a/{n}", b"%d" % n, 1) for n in range(20)]


@ALL
def test_predefined_and_short_names(sn: Sn, profile: str) -> None:
    publisher, subscriber = sn(profile), sn(profile)
    subscriber.subscribe(7, 1)
    publisher.publish(7, b"x", 1)
    assert subscriber.drain() == [Message("predefined/seven", b"x", 1)]
    if profile != B:
        subscriber.subscribe("ab", 1, how="short")
        publisher.publish("ab", b"y", 1, how="short")
        assert subscriber.drain() == [Message("ab", b"y", 1)]


@ALL
def test_unsubscribing_stops_the_messages(sn: Sn, profile: str) -> None:
    publisher, subscriber = sn(profile), sn(profile)
    subscriber.subscribe("a/b", 1)
    assert subscriber.unsubscribe("a/b") == 0
    publisher.publish("a/b", b"x", 1)
    assert subscriber.drain() == []
    assert subscriber.unsubscribe("a/b") == (0 if profile == V12 else 0x11)


@ALL
def test_a_large_message_goes_both_ways(sn: Sn, profile: str) -> None:
    publisher, subscriber = sn(profile), sn(profile)
    subscriber.subscribe("a/b", 1)
    payload = bytes(range(256)) * 200
    assert publisher.publish("a/b", payload, 1) == 0
    assert subscriber.await_messages(1) == [Message("a/b", payload, 1)]


@ALL
def test_a_session_that_is_kept_gets_what_it_missed(sn: Sn, profile: str) -> None:
    subscriber = sn(profile, "keeper", clean=False, expiry=600)
    subscriber.subscribe("a/b", 2)
    subscriber.disconnect()
    publisher = sn(profile)
    for qos in (0, 1, 2):
        publisher.publish("a/b", b"%d" % qos, qos)
    publisher.ping()
    connack = subscriber.connect(clean=False, expiry=600)
    assert connack.session_present == (profile != V12)
    assert subscriber.drain() == [Message("a/b", b"1", 1), Message("a/b", b"2", 2)]


@ALL
def test_a_clean_session_forgets(sn: Sn, profile: str) -> None:
    subscriber = sn(profile, "keeper", clean=False, expiry=600)
    subscriber.subscribe("a/b", 2)
    subscriber.disconnect()
    assert not subscriber.connect(clean=True).session_present
    sn(profile).publish("a/b", b"x", 1)
    assert subscriber.drain() == []


@ALL
def test_an_unacknowledged_message_comes_again_after_a_reconnect(sn: Sn, profile: str) -> None:
    subscriber = sn(profile, "keeper", clean=False, expiry=600)
    subscriber.subscribe("a/b", 2)
    subscriber.acknowledging = False
    publisher = sn(profile)
    publisher.publish("a/b", b"one", 2)
    publisher.publish("a/b", b"two", 1)
    assert subscriber.await_messages(1) == [Message("a/b", b"one", 2)]
    subscriber.acknowledging = True
    subscriber._half.clear()
    subscriber.move()
    subscriber.connect(clean=False, expiry=600)
    assert subscriber.drain() == [Message("a/b", b"one", 2), Message("a/b", b"two", 1)]


@pytest.mark.parametrize("profile", TWO)
def test_the_server_assigns_client_ids(sn: Sn, profile: str) -> None:
    first, second = sn(profile), sn(profile)
    assert first.client_id and second.client_id and first.client_id != second.client_id


# -- wills -----------------------------------------------------------------------------------------------------------


@ALL
@pytest.mark.parametrize("sn_options", [{"retry_ms": 100, "retries_max": 1}])
def test_a_client_that_stops_acknowledging_is_lost_and_its_will_published(
    sn: Sn, mqtt: Mqtt, profile: str, sn_options: dict[str, int]
) -> None:
    watcher = mqtt()
    watcher.subscribe("will/#")
    client = sn(profile, "doomed", will=Will("will/doomed", b"gone", 1, True))
    client.subscribe("a/b", 1)
    client.acknowledging = False
    watcher.publish("a/b", b"x", qos=1)
    message = watcher.receive_message()
    assert (message.topic_name, message.payload, message.qos) == ("will/doomed", b"gone", 1)
    later = mqtt()
    later.subscribe("will/doomed")
    assert later.receive_message().retain


@ALL
def test_a_client_that_disconnects_leaves_no_will(sn: Sn, mqtt: Mqtt, profile: str) -> None:
    watcher = mqtt()
    watcher.subscribe("will/#")
    client = sn(profile, "polite", will=Will("will/polite", b"gone", 1))
    client.disconnect()
    sn(profile, "other")
    watcher.assert_silent()


@pytest.mark.parametrize("profile", TWO)
def test_disconnect_with_will_publishes_it(sn: Sn, mqtt: Mqtt, profile: str) -> None:
    watcher = mqtt()
    watcher.subscribe("will/#")
    sn(profile, "asks", will=Will("will/asks", b"gone", 2)).disconnect(0x04)
    assert watcher.receive_message().payload == b"gone"


@pytest.mark.parametrize("profile", TWO)
def test_a_protocol_error_publishes_the_will(sn: Sn, mqtt: Mqtt, profile: str) -> None:
    watcher = mqtt()
    watcher.subscribe("will/#")
    client = sn(profile, "breaks", will=Will("will/breaks", b"gone"))
    client.send_bytes(bytes.fromhex("02 fd"))
    assert client.expect("DISCONNECT").body[-1] == 0x81
    assert watcher.receive_message().payload == b"gone"


@ALL
def test_a_keep_alive_that_runs_out_publishes_the_will(sn: Sn, mqtt: Mqtt, profile: str) -> None:
    watcher = mqtt()
    watcher.subscribe("will/#")
    sn(profile, "silent", keep_alive=1, will=Will("will/silent", b"gone"))
    assert watcher.receive_message().payload == b"gone"


@ALL
def test_a_take_over_publishes_the_will_of_the_older_connection(sn: Sn, mqtt: Mqtt, profile: str) -> None:
    watcher = mqtt()
    watcher.subscribe("will/#")
    older = sn(profile, "twice", will=Will("will/twice", b"gone"))
    newer = sn(profile, "twice")
    disconnect = older.expect("DISCONNECT")
    if profile != V12:
        assert disconnect.body[-1] == 0x8E
    assert watcher.receive_message().payload == b"gone"
    newer.ping()


def test_1_2_replaces_its_will_while_connected(sn: Sn, mqtt: Mqtt) -> None:
    watcher = mqtt()
    watcher.subscribe("will/#")
    client = sn(V12, "changes", keep_alive=1, will=Will("will/first", b"first"))
    client.ask("WILLTOPICUPD", b"\x20will/second", "WILLTOPICRESP")
    client.ask("WILLMSGUPD", b"second", "WILLMSGRESP")
    message = watcher.receive_message()
    assert (message.topic_name, message.payload, message.qos) == ("will/second", b"second", 1)


def test_1_2_deletes_its_will_by_an_empty_topic(sn: Sn, mqtt: Mqtt) -> None:
    watcher = mqtt()
    watcher.subscribe("will/#")
    client = sn(V12, "deletes", connect=False)
    client.connect(will=Will("will/x", b"gone"), clean=False)
    client.ask("WILLTOPICUPD", b"", "WILLTOPICRESP")
    sn(V12, "deletes")
    client.expect("DISCONNECT")
    watcher.assert_silent()


def test_1_2_keeps_its_will_for_a_session_that_is_kept(sn: Sn, mqtt: Mqtt) -> None:
    watcher = mqtt()
    watcher.subscribe("will/#")
    client = sn(V12, "keeps", connect=False)
    client.connect(will=Will("will/kept", b"gone"), clean=False)
    client.disconnect()
    client.connect(clean=False)
    sn(V12, "keeps")
    client.expect("DISCONNECT")
    assert watcher.receive_message().payload == b"gone"


# -- sleepers --------------------------------------------------------------------------------------------------------


@ALL
def test_a_sleeper_gets_what_came_while_it_slept(sn: Sn, mqtt: Mqtt, profile: str) -> None:
    sleeper, publisher = sn(profile, "sleeper"), mqtt()
    sleeper.subscribe("a/#", 2)
    sleeper.sleep(60)
    for qos in (0, 1, 2, 1):
        publisher.publish(f"a/{qos}", b"%d" % qos, qos=qos)
    messages, left = sleeper.wake()
    assert sorted(messages) == sorted(Message(f"a/{qos}", b"%d" % qos, qos) for qos in (0, 1, 2, 1))
    assert left in (0, -1)
    assert sleeper.wake() == ([], left)
    publisher.publish("a/1", b"later", qos=1)
    assert sleeper.wake()[0] == [Message("a/1", b"later", 1)]


@pytest.mark.parametrize("profile", TWO)
def test_a_sleeper_may_fetch_a_few_at_a_time(sn: Sn, mqtt: Mqtt, profile: str) -> None:
    sleeper, publisher = sn(profile, "sleeper", awake=3), mqtt()
    sleeper.subscribe("a/b", 1)
    sleeper.sleep(60)
    for number in range(7):
        publisher.publish("a/b", b"%d" % number, qos=1)
    got: list[bytes] = []
    lefts = []
    for _ in range(3):
        messages, left = sleeper.wake()
        got += [message.payload for message in messages]
        lefts.append(left)
    assert got == [b"%d" % number for number in range(7)]
    assert lefts == [4, 1, 0]


@pytest.mark.parametrize("sn_options", [{"sleeping_messages_max": 5}])
@ALL
def test_qos_0_for_a_sleeper_is_bounded_and_qos_1_is_not_lost(
    sn: Sn, mqtt: Mqtt, profile: str, sn_options: dict[str, int]
) -> None:
    sleeper, publisher = sn(profile, "sleeper"), mqtt()
    sleeper.subscribe("a/#", 1)
    sleeper.sleep(60)
    for number in range(20):
        publisher.publish("a/0", b"%d" % number)
        publisher.publish("a/1", b"%d" % number, qos=1)
    messages, _ = sleeper.wake()
    assert [message.payload for message in messages if message.qos == 0] == [b"%d" % number for number in range(5)]
    assert [message.payload for message in messages if message.qos == 1] == [b"%d" % number for number in range(20)]


@pytest.mark.parametrize("profile", [V12, A])
def test_a_sleeper_wakes_behind_another_port(sn: Sn, mqtt: Mqtt, profile: str) -> None:
    sleeper, publisher = sn(profile, "sleeper"), mqtt()
    sleeper.subscribe("a/b", 1)
    sleeper.sleep(60)
    publisher.publish("a/b", b"x", qos=1)
    sleeper.move()
    assert sleeper.wake()[0] == [Message("a/b", b"x", 1)]


@ALL
def test_a_sleeper_that_connects_is_active_and_keeps_its_subscriptions(sn: Sn, mqtt: Mqtt, profile: str) -> None:
    watcher = mqtt()
    watcher.subscribe("will/#")
    sleeper = sn(profile, "sleeper", will=Will("will/sleeper", b"gone"))
    sleeper.subscribe("a/b", 1)
    sleeper.sleep(60)
    watcher.publish("a/b", b"missed", qos=1)
    connack = sleeper.connect(clean=False)
    assert connack.reason == 0
    watcher.publish("a/b", b"live", qos=1)
    assert [message.payload for message in sleeper.drain()] == [b"missed", b"live"]
    watcher.assert_silent()


@ALL
def test_a_sleeper_that_oversleeps_is_lost(sn: Sn, mqtt: Mqtt, profile: str) -> None:
    watcher = mqtt()
    watcher.subscribe("will/#")
    sleeper = sn(profile, "sleeper", will=Will("will/sleeper", b"gone"))
    sleeper.sleep(1)
    assert watcher.receive_message().payload == b"gone"


@ALL
def test_a_client_that_forgot_its_aliases_is_told_again(sn: Sn, mqtt: Mqtt, profile: str) -> None:
    client, publisher = sn(profile), mqtt()
    client.subscribe("a/b", 1)
    client.knows_aliases = False
    publisher.publish("a/b", b"x", qos=1)
    client.knows_aliases = False
    assert client.await_messages(1) == [Message("a/b", b"x", 1)]


# -- ends ------------------------------------------------------------------------------------------------------------


@ALL
def test_a_server_that_stops_says_so(profile: str) -> None:
    with Broker.in_thread(sn_port=0) as broker:
        assert broker.sn_port is not None
        client = SnClient(profile, ("127.0.0.1", broker.sn_port), "left")
        client.connect()
    with client:
        disconnect = client.expect("DISCONNECT")
        if profile != V12:
            assert disconnect.body[-1] == 0x8B


@ALL
def test_a_disconnected_client_is_answered_no_more(sn: Sn, profile: str) -> None:
    client, other = sn(profile), sn(profile)
    client.disconnect()
    other.subscribe("a/b", 1)
    client.send("PUBLISH", client.publish_bytes((1, b"\0\1", b""), b"x", 1, False, 9))
    other.ping()
    assert other.drain() == []


@ALL
def test_a_forwarder_carries_two_clients_behind_one_address(sn: Sn, mqtt: Mqtt, profile: str) -> None:
    forwarder = sn(profile, "one", connect=False)
    publisher = mqtt()

    def wrapped(node: bytes, data: bytes) -> bytes:
        if profile == B:
            return bytes([3 + len(node) + len(data), 0xFC, len(node)]) + node + data
        return bytes([3 + len(node), 0xFE, 0]) + node + data

    def answer() -> tuple[bytes, bytes]:
        forwarder.socket.settimeout(60)
        data = forwarder.socket.recv(65_535)
        if profile == B:
            return data[3:5], data[5:]
        return data[3 : data[0]], data[data[0] :]

    for node in (b"n1", b"n2"):
        forwarder.client_id = node.decode()
        body = forwarder.connect_bytes()
        code = {V12: 0x04, A: 0x05, B: 0x01}[profile]
        forwarder.send_bytes(wrapped(node, bytes([len(body) + 2, code]) + body))
        assert answer()[0] == node
    code = {V12: 0x12, A: 0x12, B: 0x08}[profile]
    kind = 0 if profile == V12 else 3
    forwarder.send_bytes(wrapped(b"n2", bytes([8, code, kind, 0, 9]) + b"a/b"))
    assert answer()[0] == b"n2"
    publisher.publish("a/b", b"through")
    node, data = answer()
    assert (node, data[-7:]) == (b"n2", b"through")


def test_connection_encapsulation_follows_a_client_that_moved(sn: Sn, mqtt: Mqtt) -> None:
    client, publisher = sn(B, "roams", address_change=True), mqtt()
    client.subscribe("a/b", 1)
    client.move()
    inner = bytes([4, 0x0C, 0x12, 0x34])
    client.send_bytes(bytes([4 + 5 + len(inner), 0xFE, 0, 5]) + b"roams" + inner)
    client.expect("PINGRESP")
    publisher.publish("a/b", b"found", qos=1)
    assert client.drain() == [Message("a/b", b"found", 1)]


@pytest.mark.parametrize("sn_options", [{"answer_search": True, "gateway_id": 9}])
@ALL
def test_a_search_finds_the_server(sn: Sn, profile: str, sn_options: dict[str, object]) -> None:
    client = sn(profile, "seeks", connect=False)
    client.send("SEARCHGW", b"" if profile == B else b"\1")
    assert client.expect("GWINFO").body == b"\x09"


@pytest.mark.parametrize("sn_options", [{"profile": "2.0-b"}])
def test_a_pinned_listener_refuses_other_versions(sn: Sn, sn_options: dict[str, object]) -> None:
    assert sn(V12, "old", connect=False).connect().reason == 3
    assert sn(A, connect=False).connect().reason == 0x84
    assert sn(B, connect=False).connect().reason == 0
    sender, subscriber = sn(B, connect=False), sn(B)
    subscriber.subscribe("a/b")
    sender.send_bytes(pubwos(B, "a/b", b"x"))
    assert subscriber.await_messages(1) == [Message("a/b", b"x")]
