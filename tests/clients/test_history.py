"""`$replay` and `$asof` from clients that do not know them: mosquitto_sub and paho."""

import queue
import shutil
import subprocess
from collections.abc import Iterator

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from embermq import Broker

MESSAGES = 3_000
TIMEOUT_S = 60


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker.in_thread(port=0, data=tmp_path_factory.mktemp("history") / "data") as broker:
        client = paho.Client(CallbackAPIVersion.VERSION2, "filler")
        client.max_inflight_messages_set(500)
        client.connect(broker.host, broker.port or 0)
        client.loop_start()
        sent = [client.publish(f"plant/{number % 10}", str(number), 1, number < 10) for number in range(MESSAGES)]
        for each in sent:
            each.wait_for_publish(TIMEOUT_S)
        client.disconnect()
        client.loop_stop()
        yield broker


class Reader:
    """A paho client that keeps what it gets."""

    def __init__(self, broker: Broker, client_id: str, protocol: MQTTProtocolVersion) -> None:
        self.messages: queue.Queue[paho.MQTTMessage] = queue.Queue()
        self.subacks: queue.Queue[tuple[list[ReasonCode], Properties | None]] = queue.Queue()
        self.paho = paho.Client(CallbackAPIVersion.VERSION2, client_id, protocol=protocol)
        self.paho.on_message = lambda client, data, message: self.messages.put(message)
        self.paho.on_subscribe = lambda client, data, mid, reasons, properties: self.subacks.put((reasons, properties))
        self.paho.connect(broker.host, broker.port or 0)
        self.paho.loop_start()

    def subscribe(self, topic_filter: str) -> tuple[list[ReasonCode], Properties | None]:
        self.paho.subscribe(topic_filter, 1)
        return self.subacks.get(timeout=TIMEOUT_S)

    def take(self, count: int) -> list[paho.MQTTMessage]:
        return [self.messages.get(timeout=TIMEOUT_S) for _ in range(count)]

    def close(self) -> None:
        self.paho.disconnect()
        self.paho.loop_stop()


@pytest.mark.parametrize("protocol", [MQTTProtocolVersion.MQTTv31, MQTTProtocolVersion.MQTTv311])
def test_paho_replays_everything_in_order_and_then_gets_live_messages(
    broker: Broker, protocol: MQTTProtocolVersion
) -> None:
    reader = Reader(broker, f"replay{protocol.value}", protocol)
    reader.subscribe("$replay/-1h/plant/#")
    assert [int(each.payload) for each in reader.take(MESSAGES)] == list(range(MESSAGES))
    reader.subscribe("elsewhere")
    live = b"live %d" % protocol.value
    reader.paho.publish("plant/other", live, 1)
    while reader.take(1)[0].payload != live:
        pass  # the log may also have the live messages of other tests
    reader.close()
    assert reader.messages.empty()


def test_paho_with_mqtt_5_sees_offsets_and_reasons(broker: Broker) -> None:
    reader = Reader(broker, "five", MQTTProtocolVersion.MQTTv5)
    reasons, properties = reader.subscribe("$asof/yesterday/plant/#")
    assert [reason.value for reason in reasons] == [0x8F]
    assert properties is not None and "'yesterday' is not an instant" in vars(properties)["ReasonString"]
    reader.subscribe("$replay/-1h/now/plant/+")
    stamps = [
        dict(vars(each.properties)["UserProperty"]) for each in reader.take(MESSAGES) if each.properties is not None
    ]
    offsets = [int(stamp["ember-offset"]) for stamp in stamps]
    assert len(offsets) == MESSAGES and offsets == sorted(set(offsets))
    assert all(stamp["ember-time"].endswith("Z") for stamp in stamps)
    reader.close()


@pytest.mark.skipif(shutil.which("mosquitto_sub") is None, reason="mosquitto_sub is not installed (mosquitto-clients)")
@pytest.mark.parametrize("version", ["311", "5"])
def test_mosquitto_sub_gets_both(broker: Broker, version: str) -> None:
    def run(topic_filter: str, count: int) -> list[str]:
        command = ["mosquitto_sub", "-h", broker.host, "-p", str(broker.port), "-V", version, "-q", "1"]
        command += ["-t", topic_filter, "-C", str(count), "-W", str(TIMEOUT_S), "-F", "%r %t %p"]
        return subprocess.run(command, capture_output=True, text=True, timeout=2 * TIMEOUT_S).stdout.splitlines()

    lines = run("$replay/-1h/plant/+", MESSAGES)
    assert lines == [f"0 plant/{number % 10} {number}" for number in range(MESSAGES)]
    assert run("$asof/now/plant/#", 10) == [f"1 plant/{number} {number}" for number in range(10)]
