"""Bad datagrams over real UDP: dropped or answered, counted, and no other client is harmed."""

import asyncio
from collections.abc import Callable, Iterator
from random import Random

import pytest

from embermq import Broker
from embermq.transport.server import GROUP_BYTES_MAX
from support.sn_client import CODES, PROFILES, TWO, V12, A, B, Message, SnClient, packet, unframe
from support.sn_vectors import REJECTED, VECTORS
from support.stores import ScriptedStore
from support.wire import Wire

Sn = Callable[..., SnClient]

ALL = pytest.mark.parametrize("profile", PROFILES)


def counts_of(broker: Broker) -> dict[str, int]:
    assert broker._server is not None
    return broker._server.core.counter_values()


@pytest.fixture
def unharmed(sn_broker: Broker, sn: Sn) -> Iterator[None]:
    """After the test two clients still talk, and nothing was raised."""
    publisher, subscriber = sn(V12, "witness1"), sn(A, "witness2")
    subscriber.subscribe("witness", 1)
    yield
    publisher.publish("witness", b"here", 1)
    assert subscriber.drain() == [Message("witness", b"here", 1)]
    server = sn_broker._server
    assert server is not None
    assert server.core.counters.internal_errors == 0


@pytest.mark.usefixtures("unharmed")
def test_every_malformed_vector_without_a_connection_is_dropped(sn: Sn, sn_broker: Broker) -> None:
    sender = sn(V12, "sender", connect=False)
    for vector in REJECTED:
        sender.send_bytes(bytes.fromhex(vector.hex))
    sn(V12, "barrier").ping()
    assert counts_of(sn_broker)["sn/malformed"] > 20


@ALL
@pytest.mark.usefixtures("unharmed")
def test_every_malformed_vector_inside_a_session(sn: Sn, profile: str) -> None:
    for number, vector in enumerate(REJECTED):
        if vector.profile.name != profile or "connect" in vector.name or not vector.hex:
            continue
        client = sn(profile, f"bad{number}")
        client.send_bytes(bytes.fromhex(vector.hex))
        if profile == V12:
            client.ping()  # dropped: the session goes on
        else:
            assert client.expect("DISCONNECT").body[-1] in (0x81, 0x82, 0x90), vector.name


@pytest.mark.usefixtures("unharmed")
def test_every_packet_cut_at_every_byte_without_a_connection(sn: Sn) -> None:
    sender = sn(V12, "sender", connect=False)
    for vector in VECTORS:
        data = bytes.fromhex(vector.hex)
        for size in range(2, len(data)):
            sender.send_bytes(data[:size])
            sender.send_bytes(bytes([size]) + data[1:size])
    sn(V12, "barrier").ping()


@pytest.mark.usefixtures("unharmed")
def test_random_and_mutated_datagrams(sn: Sn) -> None:
    random = Random(1883)
    clients = [sn(profile, f"fuzz{profile}") for profile in PROFILES] + [sn(V12, "sender", connect=False)]
    for vector in VECTORS:
        for _ in range(8):
            data = bytearray(bytes.fromhex(vector.hex))
            data[random.randrange(len(data))] = random.randrange(256)
            random.choice(clients).send_bytes(bytes(data))
        random.choice(clients).send_bytes(random.randbytes(random.randrange(40)))
    barrier = sn(B, "barrier")
    barrier.ping()


@ALL
@pytest.mark.usefixtures("unharmed")
def test_a_datagram_of_64_kib(sn: Sn, profile: str) -> None:
    client = sn(profile, "large")
    client.send_bytes(bytes(65_507))
    client.send_bytes(b"\x01" + (65_507).to_bytes(2) + b"\xfd" + bytes(65_503))
    if profile != V12:
        client.expect("DISCONNECT")


@ALL
@pytest.mark.usefixtures("unharmed")
def test_packets_of_a_session_before_connect_are_not_processed(sn: Sn, profile: str) -> None:
    sender, subscriber = sn(profile, "sender", connect=False), sn(profile, "subscriber")
    subscriber.subscribe("predefined/#", 1)
    sender.send("PUBLISH", sender.publish_bytes((1, b"\0\1", b""), b"x", 1, False, 7))
    sender.send("PUBLISH", sender.publish_bytes((1, b"\0\1", b""), b"x", 0, False, 0))
    sender.send("SUBSCRIBE", bytes([0 if profile == V12 else 3, 0, 7]) + b"#")
    sender.send("PUBREL", b"\0\7" + (b"\0" if profile == A else b""))
    assert subscriber.drain() == []


@ALL
@pytest.mark.parametrize("alias", [0x0000, 0xFFFF, 0x1234])
@pytest.mark.usefixtures("unharmed")
def test_aliases_that_were_not_given_out(sn: Sn, profile: str, alias: int) -> None:
    client = sn(profile, "alias")
    body = client.publish_bytes((0, alias.to_bytes(2), b""), b"x", 1, True, 7)
    if profile == B and alias == 0:
        client.send("PUBLISH", body)
        assert client.expect("DISCONNECT").body[-1] == 0x81
        return
    answer = client.ask("PUBLISH", body, "PUBACK")
    assert answer.body[-1] == (2 if profile == V12 else 0xF0)
    client.ping()


@pytest.mark.parametrize("profile", TWO)
@pytest.mark.usefixtures("unharmed")
def test_retain_handling_3_and_qos_3_are_protocol_errors(sn: Sn, profile: str) -> None:
    for flags in (0x2F, 0x63):
        client = sn(profile, "wrong")
        client.send("SUBSCRIBE", bytes([flags, 0, 9]) + b"a/+")
        assert client.expect("DISCONNECT").body[-1] == 0x82


@ALL
@pytest.mark.usefixtures("unharmed")
def test_another_address_cannot_speak_for_a_client(sn: Sn, profile: str) -> None:
    victim = sn(profile, "victim")
    victim.subscribe("a/b", 1)
    other = sn(profile, "other", connect=False)
    other.send("DISCONNECT", b"" if profile == V12 else b"\0")
    if profile != B:
        other.send("PINGREQ", (b"\0\7" if profile == A else b"") + b"victim")
    sn(profile, "publisher").publish("a/b", b"x", 1)
    assert victim.drain() == [Message("a/b", b"x", 1)]


@ALL
@pytest.mark.parametrize("sn_options", [{"retry_ms": 20, "retries_max": 4}])
@pytest.mark.parametrize(("topic_name", "size"), [("a/b", 60), ("a/b", 20_000), ("t" * 20_000, 1)])
def test_a_forged_address_is_sent_little_whatever_is_retained(
    sn: Sn, mqtt: Callable[..., Wire], profile: str, topic_name: str, size: int, sn_options: dict[str, int]
) -> None:
    """Somebody asks in the name of a victim, which answers nothing."""
    mqtt().publish(topic_name, bytes(size), qos=1, retain=True)
    victim = sn(profile, "victim", connect=False)
    asked = [
        packet(profile, "CONNECT", victim.connect_bytes()),
        packet(profile, "SUBSCRIBE", bytes([0x20 if profile == V12 else 0x23, 0, 7]) + b"#"),
    ]
    for data in asked:
        victim.send_bytes(data)
    victim.socket.settimeout(60)
    got = 0
    while True:
        data = victim.socket.recv(65_535)
        got += len(data)
        if unframe(data)[0] == CODES[profile]["DISCONNECT"]:
            break
    assert got <= 3 * sum(map(len, asked)) + 128 + 5 * 64


@pytest.mark.usefixtures("unharmed")
def test_a_protected_frame_is_dropped_and_counted(sn: Sn, sn_broker: Broker) -> None:
    client = sn(A, "protected")
    client.send_bytes(bytes.fromhex("34 ff f0 00 0102030405060708 aabbccdd 04160013" + "ee" * 32))
    client.ping()
    assert counts_of(sn_broker)["sn/dropped-wrapper"] == 1


def test_what_was_dropped_is_shown(sn_broker: Broker, sn: Sn) -> None:
    sender = sn(V12, "sender", connect=False)
    sender.send_bytes(b"\0")
    sn(V12, "barrier").ping()
    server = sn_broker._server
    assert server is not None
    shown = {name: count for counts in server.core.counters.others for name, count in counts().items()}
    assert (shown["sn/malformed"], shown["sn/clients"]) == (1, 1)


class StoreBehind(ScriptedStore):
    """A store for which more waits than may, as long as a test says so."""

    def __init__(self) -> None:
        super().__init__(late=False)
        self.is_behind: Callable[[], bool] = bool

    def group_bytes(self) -> int:
        return GROUP_BYTES_MAX + 1 if self.is_behind() else super().group_bytes()


@pytest.mark.parametrize("sn_store", [StoreBehind()])
def test_while_the_disk_is_behind_datagrams_are_dropped_and_counted(
    sn: Sn, sn_broker: Broker, sn_store: StoreBehind
) -> None:
    client = sn(A, "hasty")
    sn_store.is_behind = lambda: counts_of(sn_broker)["sn/dropped-disk-behind"] < 2
    client.retry_s = 0.05
    assert client.publish("a/b", b"x", 1) == 0
    assert counts_of(sn_broker)["sn/dropped-disk-behind"] == 2


def test_a_flood_of_connects_does_not_fill_the_log(sn: Sn, caplog: pytest.LogCaptureFixture) -> None:
    client = sn(A, "flood", connect=False)
    for number in range(500):
        client.client_id = f"flood{number}"
        client.send("CONNECT", client.connect_bytes())
    sn(A, "barrier").ping()
    lines = [record for record in caplog.records if "another client" in record.message]
    assert 0 < len(lines) < 400


@pytest.mark.parametrize("sn_options", [{"clients_max": 3}])
def test_more_clients_than_allowed_are_refused_for_congestion(sn: Sn, sn_options: dict[str, int]) -> None:
    for number in range(3):
        client = sn(V12, f"one{number}")
        client.publish("t/1", b"x", 1)  # an alias that it was sent proves its address
    assert sn(V12, "more", connect=False).connect().reason == 1
    assert sn(A, "more", connect=False).connect().reason == 0xF1
    assert sn(B, "more", connect=False).connect().reason == 0xF1


def test_a_busy_udp_port_is_said_in_one_sentence(sn_broker: Broker) -> None:
    from embermq.errors import ConfigError

    async def second() -> None:
        async with Broker(sn_port=sn_broker.sn_port):
            pass

    with pytest.raises(ConfigError, match=r"cannot listen on 127\.0\.0\.1:\d+: Address already in use; stop what"):
        asyncio.run(second())
