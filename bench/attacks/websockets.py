"""Attacks over WebSocket."""

import socket
from typing import Final

from bench.attacks.clients import CHUNK_BYTES, Attack, Target, flood
from bench.load import HANDSHAKE_S_MAX

UPGRADE: Final = (
    b"GET /mqtt HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n"
)


def unfinished_websocket_messages(target: Target, until_s: float) -> None:
    """50 WebSockets that send a message of 14 MiB without its last byte, and no CONNECT."""
    length = 14 * 1024 * 1024
    frame = b"\x82\xff" + length.to_bytes(8) + b"mask" + bytes(length - 1)

    def opened(_: int) -> socket.socket:
        sock = socket.create_connection(("127.0.0.1", target.ws_port), HANDSHAKE_S_MAX)
        sock.sendall(UPGRADE)
        sock.recv(CHUNK_BYTES)
        return sock

    flood(opened, 50, frame, until_s)


ATTACKS: Final = {"unfinished-websocket-messages": Attack(unfinished_websocket_messages)}
