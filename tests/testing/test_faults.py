"""Faults on demand, as a client sees them."""

import asyncio
import time
from collections.abc import Iterator

import aiomqtt
import pytest

from embermq.protocol.reasons import ReasonCode
from embermq.testing.broker import AsyncTestedBroker, TestedBroker
from embermq.testing.faults import AsyncFaultyNetwork, FaultyNetwork
from support.wire import Wire
from support.wire_v5 import WireV5


@pytest.fixture
def network(mqtt_broker: TestedBroker) -> Iterator[FaultyNetwork]:
    with mqtt_broker.faults() as network:
        yield network


@pytest.fixture
def client(network: FaultyNetwork) -> Iterator[Wire]:
    with Wire((network.host, network.port)) as wire:
        assert wire.connect("c").return_code == 0
        yield wire


@pytest.fixture
def client_v5(network: FaultyNetwork) -> Iterator[WireV5]:
    with WireV5((network.host, network.port)) as wire:
        assert wire.connect("c").reason == 0
        yield wire


def test_without_faults_packets_of_every_size_pass(client: Wire) -> None:
    client.subscribe(("a", 2))
    for payload in (b"", b"x" * 100, b"x" * 20_000, b"x" * 3_000_000):
        client.publish("a", payload, qos=2)
        assert client.receive_message().payload == payload


@pytest.mark.parametrize(
    ("reason", "return_code"),
    [(ReasonCode.SERVER_BUSY, 3), (ReasonCode.UNSUPPORTED_PROTOCOL_VERSION, 1), (ReasonCode.NOT_AUTHORIZED, 5)],
)
def test_a_client_is_refused(network: FaultyNetwork, reason: ReasonCode, return_code: int) -> None:
    network.refuse(reason)
    with Wire((network.host, network.port)) as wire:
        assert wire.connect("c").return_code == return_code
        wire.assert_closed()
    with WireV5((network.host, network.port)) as wire:
        assert wire.connect("c").reason == reason
        wire.assert_closed()
    network.heal()
    with Wire((network.host, network.port)) as wire:
        assert wire.connect("c").return_code == 0


def test_connections_are_dropped_and_new_ones_accepted(
    network: FaultyNetwork, client: Wire, mqtt_broker: TestedBroker
) -> None:
    network.drop()
    client.assert_closed()
    with Wire((network.host, network.port)) as wire:
        assert wire.connect("d").return_code == 0
        wire.ping()


def test_packets_are_delayed_in_both_directions(network: FaultyNetwork, client: Wire) -> None:
    network.delay(0.2)
    begun_s = time.monotonic()
    for _ in range(10):
        client.send("c000")
    for _ in range(10):
        client.expect(13)
    assert time.monotonic() - begun_s >= 0.4


def test_messages_come_twice(network: FaultyNetwork, client: Wire, mqtt_broker: TestedBroker) -> None:
    client.subscribe(("a", 1))
    network.duplicate()
    mqtt_broker.publish("a", "x", qos=1)
    first, second = client.receive_message(answer=False), client.receive_message(answer=False)
    assert (first.dup, second.dup, first.packet_id) == (False, True, second.packet_id)
    client.answer(first)
    mqtt_broker.publish("a", "y")
    assert [client.receive_message().dup, client.receive_message().dup] == [False, False]


def test_silence_holds_packets_back_in_both_directions(
    network: FaultyNetwork, client: Wire, mqtt_broker: TestedBroker
) -> None:
    client.subscribe(("a", 0))
    network.silence()
    client.send("c000")
    mqtt_broker.publish("a", "x")
    assert not client.readable_within(0.1)
    assert mqtt_broker.clients() == ["c"]
    network.heal()
    assert client.receive_message().payload == b"x"
    client.expect(13)


def test_answers_get_another_reason(network: FaultyNetwork, client_v5: WireV5) -> None:
    network.answer(ReasonCode.QUOTA_EXCEEDED)
    assert client_v5.publish("a", b"x", qos=1) == ReasonCode.QUOTA_EXCEEDED
    assert client_v5.publish("a", b"x", qos=2) == ReasonCode.QUOTA_EXCEEDED
    assert client_v5.subscribe("a", "b") == [ReasonCode.QUOTA_EXCEEDED] * 2
    network.answer(ReasonCode.NOT_AUTHORIZED)
    assert client_v5.unsubscribe("a") == [ReasonCode.NOT_AUTHORIZED]
    network.heal()
    assert client_v5.publish("a", b"x", qos=1) == 0


def test_before_mqtt_5_only_a_subscription_can_be_refused(network: FaultyNetwork, client: Wire) -> None:
    network.answer(ReasonCode.NOT_AUTHORIZED)
    client.publish("a", b"x", qos=1)
    assert client.subscribe("a", "b") == [0x80, 0x80]


def test_the_network_outlives_a_restart_of_the_broker(network: FaultyNetwork, mqtt_broker: TestedBroker) -> None:
    mqtt_broker.stop()
    with Wire((network.host, network.port)) as wire:
        wire.assert_closed()
    mqtt_broker.start()
    with Wire((network.host, network.port)) as wire:
        assert wire.connect("c").return_code == 0


@pytest.mark.parametrize("delay_s", [0.0, 0.2])
def test_the_last_packets_of_a_client_that_leaves_arrive(
    network: FaultyNetwork, mqtt_broker: TestedBroker, delay_s: float
) -> None:
    network.delay(delay_s)
    with Wire((network.host, network.port)) as wire:
        wire.connect("leaving")
        wire.send("300400016178" + "e000")
    assert mqtt_broker.wait_for("a", 60).payload == b"x"


def test_a_silent_network_can_be_left(mqtt_broker: TestedBroker) -> None:
    with mqtt_broker.faults() as network, Wire((network.host, network.port)) as wire:
        wire.connect("c")
        network.silence()
        wire.send("c000")
    mqtt_broker.publish("a", "x")


def test_faults_in_an_event_loop(async_mqtt_broker: AsyncTestedBroker) -> None:
    async def main() -> None:
        async with async_mqtt_broker.faults() as network:
            await network.refuse(ReasonCode.NOT_AUTHORIZED)
            with pytest.raises(aiomqtt.MqttError, match="Not authorized"):
                async with aiomqtt.Client(network.host, network.port):
                    pass
            await network.heal()
            async with aiomqtt.Client(network.host, network.port) as client:
                await client.subscribe("a")
                await network.duplicate()
                await async_mqtt_broker.publish("a", "x")
                assert [(await anext(client.messages)).payload for _ in range(2)] == [b"x", b"x"]
                await network.drop()
                with pytest.raises(aiomqtt.MqttError):
                    await anext(client.messages)

    asyncio.run(main())


def test_the_network_in_an_event_loop_has_all_faults() -> None:
    def names(of: type) -> set[str]:
        return {name for name in vars(of) if not name.startswith("_")}

    assert names(FaultyNetwork) <= names(AsyncFaultyNetwork)
