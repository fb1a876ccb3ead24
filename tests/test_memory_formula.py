"""The memory of the worst client that the limits allow, beside the formula of docs/limits.md."""

from contextlib import ExitStack
from pathlib import Path

from support.server_process import ServerProcess, client
from support.wire import PUBACK, PUBREC, Wire, packet, publish
from support.wire_v5 import WireV5
from support.wire_v5 import publish as publish_v5

MIB = 1024 * 1024
CLIENTS = 3
PACKET_BYTES = 2 * MIB
OUTPUT_BYTES = 2 * MIB
QUEUE_MESSAGES = 4_000
QUEUE_BYTES = 8 * MIB
SUBSCRIPTION_BYTES = 4 * MIB
RECEIVE_MAXIMUM = 2_000
GROUPS = 40
SETTINGS = {
    "store.memory": "true",
    "limits.packet_bytes_max": str(PACKET_BYTES),
    "limits.output_bytes_max": str(OUTPUT_BYTES),
    "limits.queue_messages_max": str(QUEUE_MESSAGES),
    "limits.queue_bytes_max": str(QUEUE_BYTES),
    "limits.subscription_bytes_max": str(SUBSCRIPTION_BYTES),
    "mqtt5.receive_maximum": str(RECEIVE_MAXIMUM),
}


def formula_bytes() -> int:
    """docs/limits.md, "What they add up to"."""
    return (
        2 * PACKET_BYTES
        + 3 * OUTPUT_BYTES
        + 2 * QUEUE_BYTES
        + 2 * 1_024 * QUEUE_MESSAGES
        + SUBSCRIPTION_BYTES
        + 128 * RECEIVE_MAXIMUM
        + 512 * 1024
    )


def used_bytes(server: ServerProcess) -> int:
    fields = Path(f"/proc/{server.pid}/statm").read_text(encoding="utf-8").split()
    return (int(fields[1]) - int(fields[2])) * 4096


def subscribed(server: ServerProcess, number: int) -> WireV5:
    """A client with as many subscriptions, and as many QoS 2 messages that it does not release, as are allowed."""
    wire = WireV5(("127.0.0.1", server.port))
    assert wire.connect(f"worst-{number}", expiry=600).reason == 0
    refused = 0
    at = 0
    while not refused:
        reasons = wire.subscribe(*(f"{number}/{at + each}" for each in range(500)))
        refused = sum(reason >= 0x80 for reason in reasons)
        at += 500
        if at == 500:
            assert wire.subscribe(("q", 1), ("z", 0)) == [1, 0]
            assert wire.subscribe(*((f"$share/{number}-{each}/q", 1) for each in range(GROUPS))) == [1] * GROUPS
    for packet_id in range(1, RECEIVE_MAXIMUM + 1):
        wire.send(publish_v5("x", b"", qos=2, packet_id=packet_id))
    for packet_id in range(1, RECEIVE_MAXIMUM + 1):
        wire.expect(PUBREC, packet_id)
    return wire


def fill_queues(publisher: Wire) -> None:
    """As many messages as a queue holds, which together have as many bytes as it may have."""
    payload = bytes(QUEUE_BYTES // QUEUE_MESSAGES - 1)
    for at in range(0, QUEUE_MESSAGES, 200):
        for packet_id in range(at + 1, at + 201):
            publisher.send(publish("q", payload, qos=1, packet_id=packet_id))
        for packet_id in range(at + 1, at + 201):
            publisher.expect(PUBACK, packet_id)


def test_the_worst_clients_take_no_more_memory_than_the_formula_says(tmp_path: Path) -> None:
    with (
        ServerProcess(tmp_path / "data", tmp_path / "server.log", SETTINGS) as server,
        client(server, "publisher") as publisher,
        ExitStack() as stack,
    ):
        publisher.publish("q", b"first", qos=1)
        before = used_bytes(server)
        for number in range(CLIENTS):
            with subscribed(server, number):
                pass  # it goes, and its session stays
        fill_queues(publisher)
        for number in range(CLIENTS):
            wire = stack.enter_context(WireV5(("127.0.0.1", server.port)))
            wire.connect(f"worst-{number}", clean=False, expiry=600)
            wire.send(packet(3, 0, bytes(PACKET_BYTES - 64))[:-1])
        for _ in range(60):
            publisher.publish("z", bytes(512 * 1024))  # nobody reads them
        grown = used_bytes(server) - before
        allowed = CLIENTS * formula_bytes()
        assert allowed // 4 < grown < allowed, "either the clients are not the worst, or the formula is wrong"


ALL_CLIENTS = 20
ALL_QUEUE_BYTES = 16 * MIB
ALL_PACKET_BYTES = 128 * 1024


def test_all_clients_together_take_no_more_memory_than_the_formula_says(tmp_path: Path) -> None:
    """Each client is owed messages of its own, which it does not acknowledge, four times as many as all may be owed."""
    settings = {
        "store.memory": "true",
        "limits.all_queue_bytes_max": str(ALL_QUEUE_BYTES),
        "limits.packet_bytes_max": str(ALL_PACKET_BYTES),
        "mqtt5.receive_maximum": "20",
    }
    allowed = ALL_QUEUE_BYTES * 5 // 4 + ALL_CLIENTS * (2 * ALL_PACKET_BYTES + 128 * 20 + 640 * 1024)
    payload = bytes(64 * 1024)
    with (
        ServerProcess(tmp_path / "data", tmp_path / "server.log", settings) as server,
        client(server, "publisher") as publisher,
        ExitStack() as stack,
    ):
        for number in range(ALL_CLIENTS):
            stack.enter_context(client(server, f"c{number}")).subscribe((f"to/{number}", 1))
        before = used_bytes(server)
        most = 0
        for _ in range(4 * ALL_QUEUE_BYTES // len(payload) // ALL_CLIENTS):
            for number in range(ALL_CLIENTS):
                publisher.publish(f"to/{number}", payload, qos=1)
            most = max(most, used_bytes(server) - before)
        assert ALL_QUEUE_BYTES // 2 < most < allowed
