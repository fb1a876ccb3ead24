"""Attacks over WebSocket."""

import socket
from typing import Final

from bench import packets
from bench.attacks.clients import CHUNK_BYTES, Attack, Target, flood
from bench.load import HANDSHAKE_S_MAX

MASK: Final = b"mask"
BINARY, BINARY_BEGUN, CONTINUED, PING = 0x82, 0x02, 0x00, 0x89

UPGRADE: Final = (
    b"GET /mqtt HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n"
)


def unfinished_websocket_messages(target: Target, until_s: float) -> None:
    """50 WebSockets that send a message of 14 MiB without its last byte, and no CONNECT."""
    length = 14 * 1024 * 1024
    frame = b"\x82\xff" + length.to_bytes(8) + b"mask" + bytes(length - 1)

    flood(lambda _: _upgraded(target), 50, frame, until_s)


def _upgraded(target: Target) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", target.ws_port), HANDSHAKE_S_MAX)
    sock.sendall(UPGRADE)
    sock.recv(CHUNK_BYTES)
    return sock


def _frame(first: int, data: bytes) -> bytes:
    masked = bytes(byte ^ MASK[index & 3] for index, byte in enumerate(data))
    return bytes((first, 0x80 | len(data))) + MASK + masked


def _flood_clients(target: Target, count: int, data: bytes, until_s: float) -> None:
    """Clients that are connected, and send the same frames over and over."""

    def opened(number: int) -> socket.socket:
        sock = _upgraded(target)
        sock.sendall(_frame(BINARY, packets.connect(f"attacker-{number}")))
        sock.recv(CHUNK_BYTES)
        return sock

    flood(opened, count, data, until_s)


def one_byte_messages(target: Target, until_s: float) -> None:
    """PINGREQ of 20 clients in WebSocket messages of one byte."""
    _flood_clients(target, 20, b"".join(_frame(BINARY, bytes([byte])) for byte in packets.PINGREQ) * 16_384, until_s)


def empty_fragments(target: Target, until_s: float) -> None:
    """20 clients that send one message in fragments without data."""
    begun = _frame(BINARY_BEGUN, b"") + _frame(CONTINUED | 0x80, b"")
    _flood_clients(target, 20, (begun[:6] + _frame(CONTINUED, b"") * 98 + begun[6:]) * 300, until_s)


def websocket_pings(target: Target, until_s: float) -> None:
    """Pings of 20 clients as fast as they are read."""
    _flood_clients(target, 20, _frame(PING, b"x") * 32_768, until_s)


def unread_pongs(target: Target, until_s: float) -> None:
    """Pings of 20 clients that read no answer."""

    class Deaf(socket.socket):
        def recv(self, *_: int) -> bytes:
            raise BlockingIOError

    def opened(_: int) -> socket.socket:
        return Deaf(fileno=_upgraded(target).detach())

    flood(opened, 20, _frame(PING, bytes(120)) * 2_048, until_s)


ATTACKS: Final = {
    "unfinished-websocket-messages": Attack(unfinished_websocket_messages, grown_mib_max=60),
    "one-byte-messages": Attack(one_byte_messages, grown_mib_max=40),
    "empty-fragments": Attack(empty_fragments, grown_mib_max=40),
    "websocket-pings": Attack(websocket_pings, grown_mib_max=40),
    "unread-pongs": Attack(unread_pongs, grown_mib_max=40),
}
