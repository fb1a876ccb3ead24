"""Attacks with floods of small packets."""

from typing import Final

from bench import packets
from bench.attacks.clients import Attack, Target, flood, mqtt


def pings(target: Target, until_s: float) -> None:
    """PINGREQ of 20 clients as fast as they are read."""
    flood(mqtt(target), 20, packets.PINGREQ * 65_536, until_s)


def acknowledgements(target: Target, until_s: float) -> None:
    """PUBACK of 20 clients for messages that they did not get."""
    flood(mqtt(target), 20, bytes([packets.PUBACK, 2, 0, 1]) * 32_768, until_s)


def small_subscribes(target: Target, until_s: float) -> None:
    """SUBSCRIBE of 8 clients, each packet with one filter."""
    flood(mqtt(target), 8, packets.subscribe(["a/b/c"], 0) * 16_384, until_s)


ATTACKS: Final = {
    "pings": Attack(pings),
    "acknowledgements": Attack(acknowledgements),
    "small-subscribes": Attack(small_subscribes),
}
