"""The broker that tests get: what they see of it and do with it, with clients that we did not write."""

import asyncio
import ssl
from pathlib import Path

import aiomqtt
import pytest
from paho.mqtt import publish as paho_publish
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion

from embermq.testing import BrokerFactory
from embermq.testing.broker import AsyncTestedBroker, TestedBroker
from support.wire import Wire

pytest_plugins = ("pytester",)


def connected(broker: TestedBroker, client_id: str) -> Wire:
    wire = Wire((broker.host, broker.port))
    assert wire.connect(client_id).return_code == 0
    return wire


def test_messages_of_clients_are_seen_in_their_order(mqtt_broker: TestedBroker) -> None:
    for number in range(3):
        paho_publish.single("a/b", str(number), qos=1, hostname=mqtt_broker.host, port=mqtt_broker.port)
    paho_publish.single("other", "x", qos=1, hostname=mqtt_broker.host, port=mqtt_broker.port)
    assert [message.payload for message in mqtt_broker.messages("a/+")] == [b"0", b"1", b"2"]
    assert mqtt_broker.messages()[-1].topic_name == "other"
    assert (mqtt_broker.messages("other")[0].qos, mqtt_broker.messages("other")[0].retain) == (1, False)


def test_a_message_is_waited_for(mqtt_broker: TestedBroker) -> None:
    client = Client(CallbackAPIVersion.VERSION2)
    client.on_connect = lambda client, *_: client.publish("late", "now")
    client.connect(mqtt_broker.host, mqtt_broker.port)
    client.loop_start()
    try:
        assert mqtt_broker.wait_for("late", 60).payload == b"now"
    finally:
        client.disconnect()
        client.loop_stop()


def test_what_came_instead_is_said_when_nothing_comes(mqtt_broker: TestedBroker) -> None:
    mqtt_broker.publish("a/b", b"x")
    with pytest.raises(TimeoutError, match=r"0 of 1 messages for b/# in 0.01 s; came: \['a/b'\]"):
        mqtt_broker.wait_for("b/#", timeout_s=0.01)
    with pytest.raises(TimeoutError, match="1 of 2 messages for a/#"):
        mqtt_broker.wait_for_all("a/#", 2, timeout_s=0.01)


def test_publish_returns_when_subscribers_have_been_served(mqtt_broker: TestedBroker) -> None:
    with connected(mqtt_broker, "c") as client:
        client.subscribe(("a/#", 1))
        mqtt_broker.publish("a/b", "x", qos=1)
        assert client.receive_message().payload == b"x"


def test_a_message_that_is_refused_is_an_error(mqtt_broker: TestedBroker) -> None:
    with pytest.raises(ValueError, match=r"refused a message to '\$SYS/x'"):
        mqtt_broker.publish("$SYS/x", "1", retain=True)


def test_retained_messages_by_topic(mqtt_broker: TestedBroker) -> None:
    mqtt_broker.publish("a/1", "x", retain=True)
    mqtt_broker.publish("a/2", "y", retain=True)
    mqtt_broker.publish("b", "z", retain=True)
    assert mqtt_broker.retained("a/#") == {"a/1": b"x", "a/2": b"y"}
    mqtt_broker.publish("a/1", "", retain=True)
    assert mqtt_broker.retained() == {"a/2": b"y", "b": b"z"}


def test_clients_are_listed_and_disconnected(mqtt_broker: TestedBroker) -> None:
    with connected(mqtt_broker, "one") as one, connected(mqtt_broker, "two"):
        assert mqtt_broker.clients() == ["one", "two"]
        mqtt_broker.disconnect("one")
        one.assert_closed()
        assert mqtt_broker.clients() == ["two"]
    with pytest.raises(ValueError, match="no client 'three' is connected"):
        mqtt_broker.disconnect("three")


def test_a_restart_keeps_the_port_and_what_is_on_disk(mqtt_broker_factory: BrokerFactory, tmp_path: Path) -> None:
    broker = mqtt_broker_factory(data=tmp_path / "data")
    broker.publish("a", "x", retain=True)
    with connected(broker, "c") as client:
        port = broker.port
        broker.restart()
        client.assert_closed()
    assert (broker.port, broker.url) == (port, f"mqtt://127.0.0.1:{port}")
    assert broker.retained() == {"a": b"x"}
    broker.publish("b", "y")
    assert [message.topic_name for message in broker.messages()] == ["a", "b"]


def test_a_restart_in_memory_begins_empty(mqtt_broker: TestedBroker) -> None:
    mqtt_broker.publish("a", "x", retain=True)
    mqtt_broker.restart()
    assert mqtt_broker.retained() == {}


def test_users_and_rights(mqtt_broker_factory: BrokerFactory) -> None:
    broker = mqtt_broker_factory(users={"alice": "secret"}, access_list="user alice\nread a/#\nwrite a/#\n")
    with Wire((broker.host, broker.port)) as wire:
        assert wire.connect("c", user_name="alice", password=b"wrong").return_code != 0
    with Wire((broker.host, broker.port)) as wire:
        assert wire.connect("c", user_name="alice", password=b"secret").return_code == 0
        assert wire.subscribe("b/#") == [0x80]
        assert wire.subscribe("a/#") == [2]


def test_a_client_with_tls_trusts_the_authority(mqtt_broker_factory: BrokerFactory) -> None:
    broker = mqtt_broker_factory(tls=True)
    strict = ssl.create_default_context(cafile=str(broker.ca))
    strict.verify_flags |= ssl.VERIFY_X509_STRICT  # the default from Python 3.13 on
    client = Client(CallbackAPIVersion.VERSION2)
    client.tls_set_context(strict)
    client.on_connect = lambda client, *_: client.publish("tls", "x")
    client.connect("localhost", broker.tls_port)
    client.loop_start()
    try:
        assert broker.wait_for("tls", 60).payload == b"x"
    finally:
        client.disconnect()
        client.loop_stop()


def test_in_an_event_loop(async_mqtt_broker: AsyncTestedBroker) -> None:
    broker = async_mqtt_broker

    async def main() -> None:
        async with aiomqtt.Client(broker.host, broker.port, identifier="c") as client:
            await client.subscribe("a")
            await broker.publish("a", "x", retain=True)
            assert (await anext(client.messages)).payload == b"x"
            await client.publish("b", "y")
            assert (await broker.wait_for("b", 60)).payload == b"y"
            assert len(await broker.wait_for_all("#", 2, 60)) == len(await broker.messages()) == 2
            assert await broker.clients() == ["c"]
            assert await broker.retained() == {"a": b"x"}
        await broker.restart()
        assert await broker.retained() == {}

    asyncio.run(main())


def test_the_fixtures_come_with_the_package(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        def test_two(mqtt_broker, mqtt_broker_factory):
            assert mqtt_broker.port != mqtt_broker_factory().port
        """
    )
    pytester.runpytest_subprocess().assert_outcomes(passed=1)


def test_a_broker_of_a_session_is_one_for_all_tests(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.fixture(scope="session")
        def plant(mqtt_broker_session_factory):
            return mqtt_broker_session_factory()

        def test_one(plant):
            plant.publish("a", "x", retain=True)

        def test_two(plant):
            assert plant.retained() == {"a": b"x"}
        """
    )
    pytester.runpytest_subprocess().assert_outcomes(passed=2)
