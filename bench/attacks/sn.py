"""Attacks with MQTT-SN datagrams."""

import socket
import time
from contextlib import suppress
from typing import Final

from bench.attacks.clients import Attack, Target

ADDRESSES: Final = 11_000
DURATION_S: Final = 65_535


def forged_addresses(target: Target, until_s: float) -> None:
    """CONNECT, and DISCONNECT with a sleep of 18 hours, from each of 11,000 addresses that read no answer."""
    disconnect = bytes([4, 0x18]) + DURATION_S.to_bytes(2)
    number = 0
    while time.monotonic() < until_s:
        number = (number + 1) % ADDRESSES
        client_id = f"forged-{number}".encode()
        connect = bytes([6 + len(client_id), 0x04, 0, 1]) + DURATION_S.to_bytes(2) + client_id
        # All of 127.0.0.0/8 is this machine.
        with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.bind((f"127.1.{number >> 8}.{number & 0xFF}", 0))
            for datagram in (connect, disconnect):
                sock.sendto(datagram, ("127.0.0.1", target.sn_port))


ATTACKS: Final = {"sn-forged-addresses": Attack(forged_addresses, grown_mib_max=100)}
