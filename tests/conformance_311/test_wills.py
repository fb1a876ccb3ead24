"""Wills (3.1.2.5 to 3.1.2.7): published at every end but a proper one."""

import pytest

from support import wire
from support.clauses import v311
from support.wire import Join, Message, Will

ENGINES = ("memory", "directory")


@v311("MQTT-3.1.2-8")
@pytest.mark.parametrize("end", ["drop", "reset"])
def test_a_lost_connection_publishes_the_will(join: Join, space: str, end: str) -> None:
    watcher = join()
    watcher.subscribe(f"{space}/will")
    client = join(will=Will(f"{space}/will", b"gone"))
    watcher.assert_silent()
    getattr(client, end)()
    assert watcher.receive_message() == Message(f"{space}/will", b"gone")
    watcher.assert_silent()


@v311("MQTT-3.1.2-8")
def test_a_protocol_error_publishes_the_will(join: Join, space: str) -> None:
    watcher = join()
    watcher.subscribe(f"{space}/will")
    client = join(will=Will(f"{space}/will", b"gone"))
    client.send(wire.publish("a/#", b"no"))
    client.assert_closed()
    assert watcher.receive_message().payload == b"gone"


@v311("MQTT-3.1.2-8", "MQTT-3.1.2-24")
def test_an_expired_keep_alive_publishes_the_will(join: Join, space: str) -> None:
    watcher = join()
    watcher.subscribe(f"{space}/will")
    join(will=Will(f"{space}/will", b"gone"), keep_alive=1)
    assert watcher.receive_message().payload == b"gone"


@v311("MQTT-3.1.2-8", "MQTT-3.1.4-2")
def test_a_takeover_publishes_the_will_of_the_older_connection(join: Join, space: str) -> None:
    watcher = join()
    watcher.subscribe(f"{space}/will")
    older = join("same", will=Will(f"{space}/will", b"older gone"))
    newer = join("same", will=Will(f"{space}/will", b"newer gone"))
    older.assert_closed()
    assert watcher.receive_message().payload == b"older gone"
    watcher.assert_silent()
    newer.drop()
    assert watcher.receive_message().payload == b"newer gone"


@v311("MQTT-3.14.4-3", "MQTT-3.1.2-8", "MQTT-3.1.2-10")
def test_a_disconnect_throws_the_will_away(join: Join, space: str) -> None:
    watcher = join()
    watcher.subscribe(f"{space}/#")
    join("c", clean=False, will=Will(f"{space}/will", b"must not come")).disconnect()
    watcher.assert_silent()
    # Nor does it come up later, when the session ends in another way.
    join("c", clean=False, session_present=1).drop()
    watcher.assert_silent()


@v311("MQTT-3.1.2-10")
def test_a_will_is_published_once_and_does_not_stay_with_the_session(join: Join, space: str) -> None:
    watcher = join()
    watcher.subscribe(f"{space}/#")
    join("c", clean=False, will=Will(f"{space}/will", b"gone")).drop()
    assert watcher.receive_message().payload == b"gone"
    join("c", clean=False, session_present=1).drop()
    watcher.assert_silent()


@v311("MQTT-3.1.2-12")
def test_without_the_flag_nothing_is_published(join: Join, space: str) -> None:
    watcher = join()
    watcher.subscribe("#")
    watcher.take_messages()
    join().drop()
    assert [m for m in watcher.take_messages() if m.topic_name.startswith(space)] == []


@v311("MQTT-3.1.2-8")
def test_a_refused_connect_leaves_no_will(join: Join, dial: wire.Dial, space: str) -> None:
    watcher = join()
    watcher.subscribe(f"{space}/#")
    client = dial()
    assert client.connect("", clean=False, will=Will(f"{space}/will", b"must not come")).return_code == 2
    client.assert_closed()
    watcher.assert_silent()


@v311("MQTT-3.1.2-9")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_the_will_is_published_at_its_qos(join: Join, space: str, qos: int) -> None:
    watcher = join()
    watcher.subscribe((f"{space}/will", 2))
    join(will=Will(f"{space}/will", b"gone", qos)).drop()
    assert watcher.receive_message()._replace(packet_id=0) == Message(f"{space}/will", b"gone", qos)


@v311("MQTT-3.1.2-16", "MQTT-3.1.2-9")
def test_a_will_without_will_retain_is_not_retained(join: Join, space: str) -> None:
    watcher = join()
    watcher.subscribe(f"{space}/will")
    join(will=Will(f"{space}/will", b"gone", 1)).drop()
    assert not watcher.receive_message().retain
    late = join()
    late.subscribe(f"{space}/will")
    late.assert_silent()


@v311("MQTT-3.1.2-17", "MQTT-3.1.2-9")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_will_with_will_retain_is_retained(join: Join, space: str, qos: int) -> None:
    watcher = join()
    watcher.subscribe(f"{space}/will")
    join(will=Will(f"{space}/will", b"gone", qos, retain=True)).drop()
    assert not watcher.receive_message().retain
    late = join()
    late.subscribe(f"{space}/will")
    assert late.receive_message()._replace(packet_id=0) == Message(f"{space}/will", b"gone", qos, retain=True)


@v311("MQTT-3.1.2-17", "MQTT-3.3.1-10")
def test_an_empty_retained_will_clears_its_topic(join: Join, space: str) -> None:
    join().publish(f"{space}/will", b"here", retain=True)
    watcher = join()
    watcher.subscribe(f"{space}/will")
    assert watcher.receive_message().payload == b"here"
    join(will=Will(f"{space}/will", b"", 1, retain=True)).drop()
    assert watcher.receive_message().payload == b""
    late = join()
    late.subscribe(f"{space}/will")
    late.assert_silent()


@v311("MQTT-3.1.2-8")
def test_an_absent_subscriber_gets_the_will_later(join: Join, space: str) -> None:
    sleeper = join("s", clean=False)
    sleeper.subscribe((f"{space}/will", 1))
    sleeper.disconnect()
    join(will=Will(f"{space}/will", b"gone", 1)).drop()
    sleeper = join("s", clean=False, session_present=1)
    assert sleeper.receive_message().payload == b"gone"
