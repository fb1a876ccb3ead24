"""Users and rights over MQTT-SN: the same files, the same refusals, in each profile's own words."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from embermq import Broker
from embermq.access.file_access import FileAccess
from embermq.access.passwords import write_password
from embermq.broker.access import Access, Identity
from embermq.transport.udp import CHECKS_MAX
from support.sn_client import PROFILES, TWO, V12, A, Message, SnClient, pubwos

LIST = """
all
read public/#
anonymous
write public/guests
user writer
write,retain public/#
"""

ALL = pytest.mark.parametrize("profile", PROFILES)
Join = Callable[..., SnClient]


def basic(user_name: str, password: bytes = b"secret") -> tuple[str, bytes]:
    name = user_name.encode()
    return "MQTT-BASIC", len(name).to_bytes(2) + name + len(password).to_bytes(2) + password


@pytest.fixture(params=[True], ids=["anonymous"])
def guarded(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Broker]:
    passwords, acl = tmp_path / "passwords", tmp_path / "acl"
    write_password(passwords, "writer", b"secret")
    acl.write_text(LIST)
    access = FileAccess(password_file=passwords, acl_file=acl, allow_anonymous=request.param)
    with Broker.in_thread(access=access, sn_port=0) as broker:
        yield broker


closed = pytest.mark.parametrize("guarded", [False], indirect=True, ids=["named only"])


@pytest.fixture
def join(guarded: Broker) -> Iterator[Join]:
    with ExitStack() as stack:

        def make(profile: str, client_id: str) -> SnClient:
            assert guarded.sn_port is not None
            return stack.enter_context(SnClient(profile, ("127.0.0.1", guarded.sn_port), client_id))

        yield make


@pytest.mark.parametrize("profile", TWO)
def test_a_user_is_let_in_by_its_password(join: Join, profile: str) -> None:
    writer, reader = join(profile, "w"), join(profile, "r")
    assert writer.connect(auth=basic("writer")).reason == 0
    assert reader.connect().reason == 0
    assert reader.subscribe("public/#", 1).reason == 1
    assert writer.publish("public/a", b"x", 1, retain=True) == 0
    assert reader.await_messages(1) == [Message("public/a", b"x", 1)]


@pytest.mark.parametrize("profile", TWO)
@pytest.mark.parametrize(("user_name", "password"), [("writer", b"guess"), ("nobody", b"secret")])
def test_a_wrong_password_is_refused_and_nothing_is_left(
    join: Join, guarded: Broker, profile: str, user_name: str, password: bytes
) -> None:
    client = join(profile, "w")
    assert client.connect(auth=basic(user_name, password)).reason == 0x86
    assert client.connect(auth=basic("writer")).reason == 0


@closed
@ALL
def test_a_client_without_a_name_is_refused_where_one_is_needed(join: Join, profile: str) -> None:
    assert join(profile, "w").connect().reason == (3 if profile == V12 else 0x87)


@closed
def test_a_message_without_a_session_is_dropped_where_a_name_is_needed(join: Join, guarded: Broker) -> None:
    reader = join(A, "r")
    assert reader.connect(auth=basic("writer")).reason == 0
    reader.subscribe("public/#")
    join(A, "sender").send_bytes(pubwos(A, "public/guests", b"x"))
    assert reader.drain() == []
    assert guarded._server is not None
    assert guarded._server.core.counter_values()["sn/dropped-sessionless"] == 1


@ALL
def test_what_is_not_granted_is_refused(join: Join, profile: str) -> None:
    client, reader = join(profile, "c"), join(profile, "r")
    client.connect()
    reader.connect()
    assert client.subscribe("private/#", 1).reason == (3 if profile == V12 else 0x87)
    assert reader.subscribe("public/#", 1).reason == 1
    for qos in (1, 2):
        assert client.publish("public/other", b"x", qos) == (3 if profile == V12 else 0x87)
    assert client.publish("public/guests", b"kept", 1, retain=True) == (3 if profile == V12 else 0x87)
    assert client.publish("public/guests", b"x", 1) == 0
    assert reader.drain() == [Message("public/guests", b"x", 1)]


def test_a_message_without_a_session_has_the_rights_of_the_anonymous(join: Join) -> None:
    reader, sender = join(A, "r"), join(A, "sender")
    reader.connect()
    reader.subscribe("public/#")
    sender.send_bytes(pubwos(A, "public/other", b"no"))
    sender.send_bytes(pubwos(A, "public/guests", b"no", retain=True))
    sender.send_bytes(pubwos(A, "public/guests", b"yes"))
    assert reader.await_messages(1) == [Message("public/guests", b"yes")]
    assert reader.drain() == []


class Slow(Access):
    """Checks no password before it is told to."""

    def __init__(self) -> None:
        super().__init__(slow=True, unrestricted=True)
        self.go = threading.Event()
        self.asked = 0

    def queue_for(self, user_name: str | None, password: bytes | None, certificate_name: str | None) -> str | None:
        return None if user_name is None else ""

    def authenticate(
        self, client_id: str, user_name: str | None, password: bytes | None, certificate_name: str | None
    ) -> Identity:
        if user_name is None:
            return Identity("", client_id)
        self.asked += 1
        assert self.go.wait(60)
        return Identity(user_name, client_id)

    def may_publish(self, identity: Identity, topic_name: str, retain: bool) -> bool:
        return True

    def may_subscribe(self, identity: Identity, topic_filter: str) -> bool:
        return True


def test_a_flood_of_passwords_is_bounded_and_neither_mqtt_nor_the_end_waits_for_it() -> None:
    access = Slow()
    with ExitStack() as stack:
        with Broker.in_thread(access=access, sn_port=0) as broker:
            assert broker.sn_port is not None
            address = ("127.0.0.1", broker.sn_port)
            one = stack.enter_context(SnClient(A, address, ""))
            for number in range(100):  # from one address: the first is decided before another is looked at
                one.client_id = f"one{number}"
                one.send("CONNECT", one.connect_bytes(auth=basic("u")))
            waiting = [stack.enter_context(SnClient(A, address, f"many{number}")) for number in range(CHECKS_MAX)]
            for client in waiting:
                client.send("CONNECT", client.connect_bytes(auth=basic("u")))
            more = stack.enter_context(SnClient(A, address, "more"))
            assert more.connect(auth=basic("u")).reason == 0x89
            quiet = stack.enter_context(SnClient(A, address, "quiet"))
            assert quiet.connect().reason == 0
            access.go.set()
            for client in waiting:
                assert client._connack(client.expect("CONNACK")).reason == 0
            assert more.connect(auth=basic("u")).reason == 0
            access.go.clear()
            for client in waiting:
                client.send("CONNECT", client.connect_bytes(auth=basic("u"), keep_alive=61))
            quiet.ping()
        # The server has stopped although passwords were still waiting.
        access.go.set()
    assert access.asked <= CHECKS_MAX + 3
