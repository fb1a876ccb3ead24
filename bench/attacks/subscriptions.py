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


def combinations(levels: int, end: str) -> list[str]:
    """2^levels filters that match the same topics."""
    return [
        "/".join("+" if number >> level & 1 else "a" for level in range(levels)) + end for number in range(1 << levels)
    ]


def publish_to_new_topics(target: Target, until_s: float, readers: list[list[str]], topic: str) -> None:
    """Clients with many filters each, and 100 messages a second to new topics that begin alike."""
    with suppress(OSError, LoadFailed), ExitStack() as stack:
        socks = [stack.enter_context(open_client(target.port, f"attacker-{at}")) for at in range(len(readers))]
        writer = stack.enter_context(open_client(target.port, "attacker-writer"))
        for sock, filters in zip(socks, readers, strict=True):
            sock.sendall(subscribes_of(filters))
            sock.setblocking(False)
        number = 0
        while time.monotonic() < until_s:
            number += 1
            writer.sendall(packets.publish_to(f"{topic}{number}", b"", 0))
            for sock in socks:
                with suppress(BlockingIOError):
                    sock.recv(CHUNK_BYTES)
            time.sleep(0.01)


def overlapping_filters(target: Target, until_s: float) -> None:
    """2^14 filters of one client."""
    publish_to_new_topics(target, until_s, [combinations(14, "/+")], "a/" * 14)


def ten_overlapping(target: Target, until_s: float) -> None:
    """2^14 filters of each of ten clients."""
    publish_to_new_topics(target, until_s, [combinations(14, "/+")] * 10, "a/" * 14)


def ten_sharing(target: Target, until_s: float) -> None:
    """2^11 share filters of each of ten clients."""
    shares = [[f"$share/{at}/{name}" for name in combinations(11, "/+")] for at in range(10)]
    publish_to_new_topics(target, until_s, shares, "a/" * 11)


def spread_overlapping(target: Target, until_s: float) -> None:
    """The 2^14 filters of 64 clients together, with `#` at the end."""
    filters = combinations(14, "/#")
    publish_to_new_topics(target, until_s, [filters[at::64] for at in range(64)], "a/" * 14)


def hashes_at_each_level(target: Target, until_s: float) -> None:
    """2^0 to 2^7 filters that end in `#` at each of 128 levels, with wildcards in the last levels."""
    filters = [f"{'a/' * depth}{part}" for depth in range(100) for part in combinations(7, "/#")]
    publish_to_new_topics(target, until_s, [filters], "a/" * 110)


def searches_in_vain(target: Target, until_s: float) -> None:
    """10,000 SUBSCRIBEs of four clients whose wildcards find nothing among 100,000 retained topics."""
    with suppress(OSError, LoadFailed), open_client(target.port, "attacker-retains") as sock:
        for begin in range(0, 100_000, 1_000):
            names = [f"{number}/a/{number % 100}/b" for number in range(begin, begin + 1_000)]
            sock.sendall(b"".join(packets.publish_to(name, b"x", 0, retain=True) for name in names))
        sock.sendall(packets.PINGREQ)
        read_exactly(sock, 2)
    shapes = ("+/x{}", "+/+/+/none{}", "+/a/+/none{}/#", "+/+/none{}/+")
    filters = [shapes[number % len(shapes)].format(number) for number in range(10_000)]
    flood(mqtt(target), 4, b"".join(packets.subscribe([name], 0) for name in filters), until_s)


ATTACKS: Final = {
    "million-filters": Attack(million_filters),
    "deep-filters": Attack(deep_filters),
    "long-filters": Attack(long_filters),
    "overlapping-filters": Attack(overlapping_filters),
    "ten-overlapping": Attack(ten_overlapping),
    "ten-sharing": Attack(ten_sharing),
    "spread-overlapping": Attack(spread_overlapping),
    "hashes-at-each-level": Attack(hashes_at_each_level),
    "searches-in-vain": Attack(searches_in_vain),
}
