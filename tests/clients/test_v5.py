"""What only MQTT 5 can say, end to end, with clients that were not written here: each scene runs with each of them."""

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from support.clauses import v5
from support.client_paths import Ways
from support.v5_clients.aiomqtt_client import AiomqttClient
from support.v5_clients.client import WEBSOCKET, Client, Message, Will
from support.v5_clients.gmqtt_client import GmqttClient
from support.v5_clients.mqtt_js_client import MqttJsClient
from support.v5_clients.paho_client import PahoClient

TCP = "tcp"
KINDS = [
    ("paho", TCP),
    ("paho", WEBSOCKET),
    ("aiomqtt", TCP),
    ("aiomqtt", WEBSOCKET),
    ("gmqtt", TCP),  # it has no WebSocket
    ("MQTT.js", TCP),
    ("MQTT.js", WEBSOCKET),
]
MEMBERS = 4
SHARED_MESSAGES = 40

New = Callable[[str], Client]


@pytest.fixture(params=KINDS, ids=lambda kind: "-".join(kind))
def new(request: pytest.FixtureRequest, ways: Ways, space: str) -> Iterator[New]:
    """Makes clients of one library on one transport; they are ended after the test."""
    kind, way = request.param
    clients: list[Client] = []
    makers: dict[str, Callable[[str], Client]] = {
        "paho": partial(PahoClient, ways, way),
        "aiomqtt": partial(AiomqttClient, ways, way),
        "gmqtt": partial(GmqttClient, ways, way),
    }
    if kind == "MQTT.js":
        makers[kind] = partial(MqttJsClient, request.getfixturevalue("mqtt_js"), ways, way)

    def make(name: str) -> Client:
        clients.append(makers[kind](f"{space}{name}"))
        return clients[-1]

    yield make
    for client in clients:
        client.close()


def user_properties(client: Client, message: Message) -> list[tuple[str, str]]:
    """In the order in which the library shows them."""
    found = [(name, value) for name, value in message.properties["user_property"]]
    return found if client.keeps_user_properties_in_order else sorted(found)


@v5("MQTT-3.3.2-15", "MQTT-3.3.2-16", "MQTT-3.3.2-17", "MQTT-3.3.2-18", "MQTT-3.3.2-20", "MQTT-3.3.4-3")
def test_every_property_of_a_message_reaches_live_and_new_subscribers(new: New, space: str) -> None:
    publisher, live, late = new("p"), new("l"), new("n")
    for client in (publisher, live, late):
        client.connect()
    assert live.subscribe(f"{space}/#", 7, retain_as_published=1) == 1
    said = {
        "payload_format_indicator": 1,
        "message_expiry_interval": 600,
        "content_type": "text/plain",
        "response_topic": f"{space}/answers",
        "correlation_data": b"\x00\x01",
        "user_property": [("k", "1"), ("a", ""), ("k", "2")],
    }
    publisher.publish(f"{space}/state", b"on", True, **said)
    assert late.subscribe(f"{space}/#", 9) == 1
    order = said["user_property"] if publisher.keeps_user_properties_in_order else [("a", ""), ("k", "1"), ("k", "2")]
    for client, subscription_id in ((live, 7), (late, 9)):
        message = client.receive()
        assert (message.topic_name, message.payload, message.qos, message.retain) == (f"{space}/state", b"on", 1, True)
        got = message.properties
        assert got["subscription_identifier"] == [subscription_id]
        assert 590 <= got["message_expiry_interval"] <= 600
        assert user_properties(client, message) == order
        for name in ("payload_format_indicator", "content_type", "response_topic", "correlation_data"):
            assert got[name] == said[name], name


@v5("MQTT-3.3.2-15", "MQTT-3.3.2-16", "MQTT-3.3.4-4")
def test_a_request_gets_its_response(new: New, space: str) -> None:
    requester, responder = new("q"), new("a")
    requester.connect()
    responder.connect()
    requester.subscribe(f"{space}/answers/q", 3)
    requester.subscribe(f"{space}/answers/#", 4)
    responder.subscribe(f"{space}/requests")
    for number in (b"1", b"2"):
        requester.publish(
            f"{space}/requests", number, response_topic=f"{space}/answers/q", correlation_data=b"\xff" + number
        )
    for _ in range(2):
        request = responder.receive()
        responder.publish(
            request.properties["response_topic"],
            b"answer to " + request.payload,
            correlation_data=request.properties["correlation_data"],
        )
    for number in (b"1", b"2"):
        response = requester.receive()
        assert response.payload == b"answer to " + number
        assert response.properties["correlation_data"] == b"\xff" + number
        assert sorted(response.properties["subscription_identifier"]) == [3, 4]


@v5("MQTT-4.8.2-3")
def test_a_shared_group_gets_each_message_once(new: New, space: str) -> None:
    publisher = new("p")
    members = [new(f"m{number}") for number in range(MEMBERS)]
    for client in (publisher, *members):
        client.connect()
    for member in members:
        assert member.subscribe(f"$share/{space}/{space}/#") == 1
    for number in range(SHARED_MESSAGES):
        publisher.publish(f"{space}/a", b"%d" % number)
    # Each member gets one message more, behind its part of the others.
    for number, member in enumerate(members):
        member.subscribe(f"{space}end/{number}")
        publisher.publish(f"{space}end/{number}", b"end")
    counts: Counter[int] = Counter()
    payloads = []
    for number, member in enumerate(members):
        while (message := member.receive()).payload != b"end":
            counts[number] += 1
            payloads.append(message.payload)
    assert sorted(payloads) == sorted(b"%d" % number for number in range(SHARED_MESSAGES))
    assert len(counts) == MEMBERS
    assert max(counts.values()) - min(counts.values()) <= 2


@v5("MQTT-3.1.2-23", "MQTT-3.1.3-9", "MQTT-3.1.2-8", "MQTT-3.3.2-5", "MQTT-3.3.2-6")
def test_what_waits_for_a_session_expires_and_a_will_comes_after_its_delay(new: New, space: str) -> None:
    publisher, watcher, away = new("p"), new("w"), new("r")
    publisher.connect()
    watcher.connect()
    watcher.subscribe(f"{space}/will")
    away.connect(session_expiry_interval=60)
    away.subscribe(f"{space}/#", 5)
    away.disconnect()
    publisher.publish(f"{space}/short", b"gone", message_expiry_interval=1)
    publisher.publish(f"{space}/long", b"there", message_expiry_interval=600)
    # The will comes a second after its client is gone, so the first message has expired by then.
    device = new("d")
    will = Will(f"{space}/will", b"left", {"will_delay_interval": 1, "user_property": [("left", "behind")]})
    device.connect(will=will, session_expiry_interval=60)
    device.vanish()
    publisher.publish(f"{space}/after", b"now")
    left = watcher.receive()
    assert (left.payload, user_properties(watcher, left)) == (b"left", [("left", "behind")])
    back = new("r")
    assert back.connect(clean_start=False, session_expiry_interval=60).session_present
    found = [back.receive() for _ in range(3)]
    assert [message.payload for message in found] == [b"there", b"now", b"left"]
    assert [message.properties["subscription_identifier"] for message in found] == [[5]] * 3
    assert 580 <= found[0].properties["message_expiry_interval"] < 600


@v5("MQTT-3.1.3-9", "MQTT-3.14.4-3")
def test_a_client_that_is_back_in_time_leaves_no_will(new: New, space: str) -> None:
    watcher, other = new("w"), new("o")
    watcher.connect()
    other.connect()
    watcher.subscribe(f"{space}/#")
    will = Will(f"{space}/delayed", b"must not come", {"will_delay_interval": 60})
    first = new("d")
    first.connect(will=will, session_expiry_interval=120)
    first.vanish()
    again = new("d")
    assert again.connect(clean_start=False, session_expiry_interval=120).session_present
    again.disconnect()
    polite = new("e")
    polite.connect(will=Will(f"{space}/polite", b"must not come"))
    polite.disconnect()
    # DISCONNECT 0x04 asks for the will.
    asks = new("f")
    asks.connect(will=Will(f"{space}/asked", b"comes"))
    asks.disconnect(0x04)
    assert watcher.receive().payload == b"comes"
    other.publish(f"{space}/last", b"last")
    assert watcher.receive().payload == b"last"


@v5("MQTT-3.1.2-4", "MQTT-3.1.2-5")
def test_a_session_ends_when_disconnect_says_so(new: New, space: str) -> None:
    client = new("c")
    assert not client.connect(session_expiry_interval=60).session_present
    client.disconnect()
    client = new("c")
    assert client.connect(clean_start=False, session_expiry_interval=60).session_present
    client.disconnect(session_expiry_interval=0)
    client = new("c")
    assert not client.connect(clean_start=False, session_expiry_interval=60).session_present


@v5("MQTT-3.3.2-12", "MQTT-3.3.2-7", "MQTT-3.1.2-26")
def test_a_topic_alias_stands_for_its_topic_name(new: New, space: str) -> None:
    publisher, subscriber = new("p"), new("s")
    assert publisher.connect().properties["topic_alias_maximum"] > 0
    subscriber.connect(topic_alias_maximum=4 if subscriber.resolves_topic_aliases else 0)
    subscriber.subscribe(f"{space}/#")
    publisher.publish(f"{space}/a/long/topic/name", b"1", topic_alias=1)
    publisher.publish("", b"2", topic_alias=1)
    publisher.publish(f"{space}/another/topic/name", b"3", topic_alias=1)
    publisher.publish("", b"4", topic_alias=1)
    names = [f"{space}/a/long/topic/name"] * 2 + [f"{space}/another/topic/name"] * 2
    received = [subscriber.receive() for _ in names]
    assert [message.payload for message in received] == [b"1", b"2", b"3", b"4"]
    assert [message.topic_name for message in received] == names


@v5("MQTT-3.8.3-3", "MQTT-3.3.1-10", "MQTT-3.3.1-11")
def test_the_options_of_a_subscription(new: New, space: str) -> None:
    client, other = new("c"), new("o")
    client.connect()
    other.connect()
    other.publish(f"{space}/kept", b"kept", True)
    assert client.subscribe(f"{space}/own", no_local=1) == 1
    assert client.subscribe(f"{space}/kept", retain_handling=2) == 1
    assert other.subscribe(f"{space}/kept", retain_handling=1) == 1
    assert other.subscribe(f"{space}/kept", retain_handling=1) == 1
    client.publish(f"{space}/own", b"own")
    other.publish(f"{space}/own", b"other")
    assert client.receive().payload == b"other"
    other.publish(f"{space}/kept", b"live")
    assert client.receive().payload == b"live"
    assert [other.receive().payload for _ in range(2)] == [b"kept", b"live"]


@v5("MQTT-3.1.4-3")
def test_reason_codes(new: New, space: str) -> None:
    first, second = new("same"), new("same")
    first.connect(session_expiry_interval=60)
    assert second.connect(clean_start=False, session_expiry_interval=60).session_present
    assert first.server_reason() == 0x8E  # taken over
    if second.shows_publish_reason:
        assert second.publish(f"{space}/nobody", b"") == 0x10  # no matching subscribers
        assert second.subscribe(f"{space}/a", qos=2) == 2
        assert second.unsubscribe(f"{space}/a") == 0x00
        assert second.unsubscribe(f"{space}/a") == 0x11  # no subscription existed


@v5("MQTT-3.2.2-16", "MQTT-3.1.3-7")
def test_a_client_without_an_id_is_told_the_one_it_got(ways: Ways) -> None:
    clients = [PahoClient(ways, TCP, "") for _ in range(2)]
    first, second = (client.connect().properties["assigned_client_identifier"] for client in clients)
    assert first and second and first != second
    for client in clients:
        client.close()
