"""What a client of MQTT 5 is told when it may not do something: the reason codes, as libraries show them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from embermq import Broker
from embermq.access.file_access import FileAccess
from support.client_paths import Ways
from support.v5_clients.client import WEBSOCKET, Client
from support.v5_clients.mqtt_js_client import MqttJsClient
from support.v5_clients.paho_client import PahoClient

NOT_AUTHORIZED = 0x87
NO_SUBSCRIBERS = 0x10


@pytest.fixture(scope="module")
def restricted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ways]:
    directory: Path = tmp_path_factory.mktemp("restricted")
    (directory / "acl").write_text("all\nread,write open/#\n")
    access = FileAccess(acl_file=directory / "acl", allow_anonymous=True)
    with Broker.in_thread(access=access, port=0, ws_port=0) as broker:
        assert broker.port and broker.ws_port
        yield Ways(broker.host, broker.port, 0, broker.ws_port, 0, "", directory)


@pytest.fixture(params=[("paho", "tcp"), ("paho", WEBSOCKET), ("MQTT.js", "tcp"), ("MQTT.js", WEBSOCKET)], ids="-".join)
def client(request: pytest.FixtureRequest, restricted: Ways, space: str) -> Iterator[Client]:
    """Of the libraries that show the reason code of a PUBACK."""
    kind, way = request.param
    if kind == "paho":
        made: Client = PahoClient(restricted, way, space)
    else:
        made = MqttJsClient(request.getfixturevalue("mqtt_js"), restricted, way, space)
    made.connect()
    yield made
    made.close()


def test_rights_are_refused_and_the_connection_goes_on(client: Client) -> None:
    assert client.publish("closed/a", b"") == NOT_AUTHORIZED
    assert client.publish("open/a", b"kept", True) == NOT_AUTHORIZED  # the right to retain is one of its own
    assert client.subscribe("closed/a") == NOT_AUTHORIZED
    assert client.publish("open/a", b"") == NO_SUBSCRIBERS
    assert client.subscribe("open/#") == 1
    assert client.publish("open/a", b"in") == 0
    assert client.receive().payload == b"in"
