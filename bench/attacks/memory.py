"""Attacks on the memory: clients that make the server keep much for them, and many that leave together."""

import socket
import struct
import time
from contextlib import ExitStack, suppress
from typing import Final

from bench.attacks.clients import Attack, Target, flood, mqtt
from bench.load import HANDSHAKE_S_MAX, LoadFailed, open_client, read_exactly, subscribe

MANY: Final = 1_000
RATE: Final = 100
"""Messages a second to all of them."""
PAYLOAD: Final = bytes(4_096)
WILL_BYTES: Final = 64_000
CUT_PACKET_BYTES: Final = 1024 * 1024
TOPIC: Final = "to/all"
RESET: Final = struct.pack("ii", 1, 0)
"""SO_LINGER with no time: closing the socket resets the connection."""


def length_field(length: int) -> bytes:
    """A remaining length."""
    field = b""
    while length > 127:
        field += bytes([length & 127 | 128])
        length >>= 7
    return field + bytes([length])


def text(value: bytes) -> bytes:
    return len(value).to_bytes(2) + value


def packet(first_byte: int, body: bytes) -> bytes:
    return bytes([first_byte]) + length_field(len(body)) + body


def publish(topic_name: str, payload: bytes, qos: int = 0, packet_id: int = 1) -> bytes:
    rest = packet_id.to_bytes(2) if qos else b""
    return packet(0x30 | qos << 1, text(topic_name.encode()) + rest + payload)


def connected(target: Target, connect: bytes) -> socket.socket:
    """A client whose CONNECT was accepted; nothing else of what it is sent is read."""
    sock = socket.create_connection(("127.0.0.1", target.port), HANDSHAKE_S_MAX)
    sock.sendall(connect)
    _, length = read_exactly(sock, 2)
    if read_exactly(sock, length)[1]:
        raise LoadFailed("CONNECT was refused")
    return sock


def publish_to_all(target: Target, until_s: float, qos: int = 0) -> None:
    """`RATE` messages a second, until an instant."""
    with open_client(target.port, "attacker-writer") as writer:
        writer.setblocking(False)
        data = publish(TOPIC, PAYLOAD, qos)
        due_s = time.monotonic()
        while (now_s := time.monotonic()) < until_s:
            time.sleep(max(0.0, due_s - now_s))
            due_s += 1 / RATE
            with suppress(BlockingIOError):
                writer.recv(65_536)
            with suppress(BlockingIOError):
                writer.send(data)  # 4 KiB fit whole, or the server reads no more of it


def never_reading(target: Target, until_s: float) -> None:
    """1,000 clients that never read, and 100 messages of 4 KiB a second to all of them."""
    with suppress(OSError, LoadFailed), ExitStack() as stack:
        for number in range(MANY):
            subscribe(stack.enter_context(open_client(target.port, f"attacker-{number}")), [TOPIC], 0)
        publish_to_all(target, until_s)


def never_acknowledging(target: Target, until_s: float, expiry_s: int = 0) -> None:
    """1,000 clients with Receive Maximum 1 that never acknowledge; then they leave together."""
    properties = b"\x21\x00\x01" + (b"\x11" + expiry_s.to_bytes(4) if expiry_s else b"")
    begun_s = time.monotonic()
    with suppress(OSError, LoadFailed), ExitStack() as stack:
        for number in range(MANY):
            name = f"attacker-{number}".encode()
            body = b"\x00\x04MQTT\x05\x02\x00\x00" + bytes([len(properties)]) + properties + text(name)
            sock = stack.enter_context(connected(target, packet(0x10, body)))
            subscribe(sock, [TOPIC], 1, level=5)
        publish_to_all(target, (begun_s + 2 * until_s) / 3, qos=1)
    time.sleep(max(0.0, until_s - time.monotonic()))


def persistent_never_acknowledging(target: Target, until_s: float) -> None:
    """The same with sessions that outlive their connections, whose messages are read from the log."""
    never_acknowledging(target, until_s, expiry_s=600)


def wills_at_once(target: Target, until_s: float) -> None:
    """1,000 clients whose wills have 64,000 bytes end without DISCONNECT, again and again."""
    will = text(b"will/of/many") + text(bytes(WILL_BYTES))
    while time.monotonic() < until_s:
        with suppress(OSError, LoadFailed), ExitStack() as stack:
            for number in range(MANY):
                name = f"attacker-{number}".encode()
                body = b"\x00\x04MQTT\x04\x06\x00\x00" + text(name) + will
                stack.enter_context(connected(target, packet(0x10, body)))
        time.sleep(min(2.0, max(0.0, until_s - time.monotonic())))


def resets_in_mid_packet(target: Target, until_s: float) -> None:
    """Connections that are reset in the middle of a PUBLISH of 1 MiB, 50 at a time."""
    data = publish("a/b", bytes(CUT_PACKET_BYTES), 1)[: CUT_PACKET_BYTES * 3 // 4]
    while time.monotonic() < until_s:
        socks: list[socket.socket] = []
        with suppress(OSError, LoadFailed):
            for number in range(50):
                sock = open_client(target.port, f"attacker-{number}")
                socks.append(sock)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                sock.sendall(data)
        for sock in socks:
            sock.close()


def small_publishes(target: Target, until_s: float) -> None:
    """One client that sends messages of one byte at QoS 1 as fast as they are read."""
    flood(mqtt(target), 1, b"".join(publish("a/b", b"x", 1, number + 1) for number in range(30_000)), until_s)


def small_topics(target: Target, until_s: float) -> None:
    """The same at QoS 0, each to another topic."""
    flood(mqtt(target), 1, b"".join(publish(f"a/{number}", b"x") for number in range(200_000)), until_s)


ATTACKS: Final = {
    "never-reading": Attack(never_reading, grown_mib_max=48),
    "never-acknowledging": Attack(never_acknowledging, grown_mib_max=128),
    "never-acknowledging-persistent": Attack(persistent_never_acknowledging, grown_mib_max=96),
    "wills-at-once": Attack(wills_at_once, grown_mib_max=200),
    "resets-in-mid-packet": Attack(resets_in_mid_packet, grown_mib_max=96),
    "small-publishes": Attack(small_publishes, grown_mib_max=96),
    "small-topics": Attack(small_topics, grown_mib_max=128),
}
