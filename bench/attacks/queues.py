"""Attacks with queues: clients that do not read what they are owed, share groups, and messages that have expired."""

import socket
import time
from contextlib import ExitStack, suppress
from typing import Final

from bench import packets
from bench.attacks.clients import CHUNK_BYTES, Attack, Target
from bench.load import LoadFailed, open_client, subscribe

FILLING_BYTES: Final = 20 * 1024 * 1024
"""More than a fourth of what a queue holds in memory."""
PAYLOAD_BYTES: Final = 100_000
AWAY_S: Final = 3.0
"""After this time a client comes back under another name."""
GROUPS_IN_PACKET: Final = 500


def publish(topic_name: str, payload: bytes, packet_id: int, properties: bytes | None = None) -> bytes:
    """A PUBLISH at QoS 1; of MQTT 5 if it has properties."""
    name = topic_name.encode()
    body = len(name).to_bytes(2) + name + packet_id.to_bytes(2)
    if properties is not None:
        body += bytes([len(properties)]) + properties
    length = len(body) + len(payload)
    head = b"\x32"
    while length > 0x7F:
        head += bytes([length & 0x7F | 0x80])
        length >>= 7
    return head + bytes([length]) + body + payload


def fill(sock: socket.socket, topic_name: str, until_s: float) -> None:
    """Publish as much as fills a queue; answers are not read."""
    payload = bytes(PAYLOAD_BYTES)
    for number in range(FILLING_BYTES // PAYLOAD_BYTES):
        if time.monotonic() < until_s:
            sock.sendall(publish(topic_name, payload, 1 + number))


def own_queue(target: Target, until_s: float) -> None:
    """A client gets all messages, fills its own queue, does not read, and comes back under another name."""
    number = 0
    while time.monotonic() < until_s:
        number += 1
        with suppress(OSError, LoadFailed), open_client(target.port, f"attacker-{number}") as sock:
            subscribe(sock, ["#"], 1)
            sock.settimeout(AWAY_S)
            fill(sock, f"attack/{number}", until_s)
            time.sleep(min(AWAY_S, max(0.0, until_s - time.monotonic())))


def filled_queues(target: Target, until_s: float) -> None:
    """Clients get all messages and do not read; others fill their queues."""
    number = 0
    while time.monotonic() < until_s:
        number += 1
        with suppress(OSError, LoadFailed), ExitStack() as stack:
            readers = [stack.enter_context(open_client(target.port, f"attacker-{number}-{at}")) for at in range(3)]
            writers = [stack.enter_context(open_client(target.port, f"writer-{number}-{at}")) for at in range(3)]
            for reader in readers:
                subscribe(reader, ["#"], 1)
            for writer in writers:
                writer.settimeout(1.0)
                with suppress(TimeoutError):
                    fill(writer, f"attack/{number}", until_s)
            time.sleep(min(AWAY_S, max(0.0, until_s - time.monotonic())))


def join_groups(target: Target, clients: int, groups: int, until_s: float, *, is_persistent: bool = False) -> None:
    """Each client joins share groups of its own that get all messages; it reads, and acknowledges nothing."""
    with suppress(OSError, LoadFailed), ExitStack() as stack:
        members: list[socket.socket] = []
        for number in range(clients):
            member = stack.enter_context(open_client(target.port, f"attacker-{number}", not is_persistent))
            filters = [f"$share/{number}-{each}/#" for each in range(groups)]
            for at in range(0, groups, GROUPS_IN_PACKET):
                member.sendall(packets.subscribe(filters[at : at + GROUPS_IN_PACKET], 1))
            member.setblocking(False)
            members.append(member)
        while time.monotonic() < until_s:
            for member in members:
                with suppress(BlockingIOError):
                    member.recv(CHUNK_BYTES)
            time.sleep(0.05)


def share_groups(target: Target, until_s: float) -> None:
    """One client asks for 15,000 share groups."""
    join_groups(target, 1, 15_000, until_s)


def stored_share_groups(target: Target, until_s: float) -> None:
    """A client with a persistent session asks for 3,000 share groups."""
    join_groups(target, 1, 3_000, until_s, is_persistent=True)


def many_share_groups(target: Target, until_s: float) -> None:
    """A hundred clients with 100 share groups each."""
    join_groups(target, 100, 100, until_s)


def many_stored_share_groups(target: Target, until_s: float) -> None:
    """The same with persistent sessions."""
    join_groups(target, 100, 100, until_s, is_persistent=True)


def expired_queue(target: Target, until_s: float) -> None:
    """Messages that expire after a second fill the queue of a client that is away; then it comes back."""
    with suppress(OSError, LoadFailed):
        with open_client(target.port, "attacker", False) as reader:
            subscribe(reader, ["attack"], 1)
        back_s = time.monotonic() + (until_s - time.monotonic()) * 0.7
        data = b"".join(publish("attack", b"x", number, b"\x02\x00\x00\x00\x01") for number in range(1, 60_000))
        with open_client(target.port, "attacker-writer", level=5) as writer:
            writer.settimeout(0.5)
            while time.monotonic() < back_s - 1.5:
                with suppress(TimeoutError):
                    writer.sendall(data)
                    while writer.recv(CHUNK_BYTES):
                        pass
        time.sleep(max(0.0, back_s - time.monotonic()))
        with open_client(target.port, "attacker", False):
            time.sleep(max(0.0, until_s - time.monotonic()))


ATTACKS: Final = {
    "own-queue": Attack(own_queue, grown_mib_max=250),
    "filled-queues": Attack(filled_queues, grown_mib_max=500),
    "share-groups": Attack(share_groups, grown_mib_max=100),
    "stored-share-groups": Attack(stored_share_groups, grown_mib_max=100),
    "many-share-groups": Attack(many_share_groups, grown_mib_max=200),
    "many-stored-share-groups": Attack(many_stored_share_groups, grown_mib_max=300),
    "expired-queue": Attack(expired_queue, grown_mib_max=250),
}
