"""Users and rights as clients meet them: refusals at CONNECT, SUBSCRIBE, PUBLISH and for wills."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from embermq import Broker
from embermq.access.file_access import FileAccess
from embermq.access.passwords import write_password
from support import wire
from support.clauses import v311
from support.wire import Connack, Will, Wire

LIST = """
all
read public/#
user writer
write public/#
retain public/kept/#
read $SYS/#
user device
read,write home/%u/%c
"""


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    directory: Path = tmp_path_factory.mktemp("access")
    passwords, acl = directory / "passwords", directory / "acl"
    for user_name in ("writer", "device"):
        write_password(passwords, user_name, b"secret")
    acl.write_text(LIST)
    access = FileAccess(password_file=passwords, acl_file=acl, allow_anonymous=True)
    with Broker.in_thread(access=access) as broker:
        yield broker


def joined(broker: Broker, client_id: str, user_name: str | None = None, **options: object) -> Wire:
    assert broker.port is not None
    client = Wire((broker.host, broker.port))
    password = b"secret" if user_name is not None else None
    assert client.connect(client_id, user_name=user_name, password=password, **options) == Connack(0, 0)
    return client


@v311("MQTT-3.2.2-5", "MQTT-3.1.4-5")
@pytest.mark.parametrize(("user_name", "password"), [("writer", b"guess"), ("nobody", b"secret"), ("writer", None)])
def test_a_client_that_cannot_prove_its_name_is_refused(
    guarded: Broker, user_name: str, password: bytes | None
) -> None:
    assert guarded.port is not None
    with joined(guarded, "reader") as reader, Wire((guarded.host, guarded.port)) as client:
        reader.subscribe(("public/#", 0))
        client.send(
            wire.connect("c1", user_name=user_name, password=password), wire.publish("public/x", b"behind a refusal")
        )
        assert client.expect(wire.CONNACK).body == bytes([0, 4])
        client.assert_closed()
        reader.assert_silent()


def test_packets_behind_a_connect_wait_for_the_password_and_are_taken(guarded: Broker) -> None:
    assert guarded.port is not None
    with Wire((guarded.host, guarded.port)) as client:
        client.send(
            wire.connect("c1", user_name="writer", password=b"secret"),
            wire.subscribe(1, ("public/a", 0)),
            wire.publish("public/a", b"x"),
        )
        client.expect(wire.CONNACK)
        client.expect(wire.SUBACK, 1)
        assert client.receive_message().payload == b"x"


def test_only_filters_that_are_covered_are_granted(guarded: Broker) -> None:
    with joined(guarded, "reader") as reader:
        asked = ("public/a", "public/#", "#", "+/a", "$SYS/#", "private")
        assert reader.subscribe(*((topic_filter, 1) for topic_filter in asked)) == [1, 1, 0x80, 0x80, 0x80, 0x80]
    with joined(guarded, "w", "writer") as writer:
        assert writer.subscribe(("$SYS/broker/uptime", 0)) == [0]


@v311("MQTT-3.3.5-2")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_refused_message_is_acknowledged_and_reaches_no_client(guarded: Broker, qos: int) -> None:
    assert guarded._server is not None
    counters = guarded._server.core.counters
    with joined(guarded, "reader") as reader, joined(guarded, "w", "writer") as writer:
        reader.subscribe(("public/#", 0))
        before = counters.dropped_not_authorized
        reader.publish("public/x", b"may not write", qos=qos)
        writer.publish("public/x", b"may not retain", qos=qos, retain=True)
        writer.publish("private", b"may not write there", qos=qos)
        assert counters.dropped_not_authorized == before + 3
        writer.publish("public/x", b"may", qos=qos)
        assert [message.payload for message in reader.take_messages()] == [b"may"]
    with joined(guarded, "late") as late:
        late.subscribe(("public/#", 0))
        late.assert_silent()


def test_retaining_where_it_is_granted(guarded: Broker) -> None:
    with joined(guarded, "w", "writer") as writer, joined(guarded, "late") as late:
        writer.publish("public/kept/x", b"kept", qos=1, retain=True)
        late.subscribe(("public/kept/#", 0))
        message = late.receive_message()
        assert (message.payload, message.retain) == (b"kept", True)
        writer.publish("public/kept/x", b"", qos=1, retain=True)


def test_a_will_has_the_rights_of_its_client(guarded: Broker) -> None:
    with joined(guarded, "reader") as reader:
        reader.subscribe(("public/#", 0))
        anonymous = joined(guarded, "c1", will=Will("public/gone", b"of the anonymous"))
        writer = joined(guarded, "c2", "writer", will=Will("public/gone", b"of the writer"))
        anonymous.drop()
        writer.drop()
        assert reader.receive_message().payload == b"of the writer"
        reader.assert_silent()


def test_names_in_filters_are_the_clients_own(guarded: Broker) -> None:
    with joined(guarded, "d1", "device") as device:
        assert device.subscribe(("home/device/d1", 0), ("home/device/d2", 0)) == [0, 0x80]
        device.publish("home/device/d2", b"x")
        device.publish("home/device/d1", b"y")
        assert [message.payload for message in device.take_messages()] == [b"y"]
    with joined(guarded, "+", "device") as device:
        assert device.subscribe(("home/device/+", 0), ("home/device/d1", 0)) == [0x80, 0x80]
