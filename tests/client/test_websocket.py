"""The client's side of a WebSocket: the upgrade and frames, from servers of every kind."""

import socket
import threading
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha1

import pytest

from embermq.client.websocket import HEAD_BYTES_MAX, WebSocket
from embermq.errors import ConfigError

UPGRADED = (
    "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Accept: {accept}\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n"
)


def question(server: socket.socket) -> dict[str, str]:
    """The headers of an upgrade."""
    data = b""
    while not data.endswith(b"\r\n\r\n"):
        data += server.recv(1)
    return dict(line.split(": ", 1) for line in data.decode().split("\r\n")[1:-2])


def accepted(headers: dict[str, str]) -> str:
    key = headers["Sec-WebSocket-Key"].encode()
    return b64encode(sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest()).decode()


@contextmanager
def opened(first: bytes = b"") -> Iterator[tuple[WebSocket, socket.socket]]:
    """A WebSocket, and the socket of its server; `first` comes together with the answer to the upgrade."""
    client, server = socket.socketpair()
    for each in (client, server):
        each.settimeout(60)

    def answer() -> None:
        headers = question(server)
        server.sendall(UPGRADED.format(accept=accepted(headers)).encode() + first)

    thread = threading.Thread(target=answer)
    thread.start()
    with client, server:
        try:
            yield WebSocket(client, "ws://test", "test", "/mqtt"), server
        finally:
            thread.join()


def test_frames_come_in_any_pieces() -> None:
    long = bytes(range(256)) * 400
    frames = b"\x02\x01a" + b"\x80\x02bc" + b"\x82\x00" + b"\x82\x7e\x00\xc8" + bytes(200)
    frames += b"\x82\x7f" + len(long).to_bytes(8) + long
    expected = b"abc" + bytes(200) + long
    with opened(frames[:1]) as (websocket, server):

        def send() -> None:
            for byte in frames[1:400]:
                server.sendall(bytes([byte]))
            server.sendall(frames[400:])

        sending = threading.Thread(target=send)
        sending.start()
        found = b""
        while len(found) < len(expected):
            found += websocket.recv(1000)
        sending.join()
        assert found == expected


def test_pings_are_answered_and_an_end_is_an_end() -> None:
    with opened(b"\x89\x02hi" + b"\x8a\x00" + b"\x82\x01x" + b"\x88\x02\x03\xe8") as (websocket, server):
        assert websocket.recv(10) == b"x"
        assert unmasked(server) == (0x8A, b"hi")
        assert websocket.recv(10) == b"" == websocket.recv(10)
        assert unmasked(server) == (0x88, b"\x03\xe8")
        websocket.close()
        assert server.recv(1) == b"", "the end was answered already"


def unmasked(server: socket.socket) -> tuple[int, bytes]:
    """A short frame of a client."""
    kind, size = server.recv(2)
    assert size & 0x80, "a client masks"
    mask = server.recv(4)
    data = server.recv(size & 0x7F)
    return kind, bytes(byte ^ mask[place % 4] for place, byte in enumerate(data))


def test_what_is_sent_is_masked_and_the_end_is_said() -> None:
    with opened() as (websocket, server):
        websocket.sendall(b"hello")
        assert unmasked(server) == (0x82, b"hello")
        websocket.close()
        assert unmasked(server) == (0x88, b"\x03\xe8")


@pytest.mark.parametrize(
    "frame", [b"\x81\x01a", b"\xc2\x01a", b"\x82\x81aaaaa", b"\x89\x7e\x00\x80", b"\x83\x00", b"\x8b\x00"]
)
def test_a_wrong_frame_is_one_sentence(frame: bytes) -> None:
    with opened(frame) as (websocket, _), pytest.raises(ConfigError, match="does not answer as a WebSocket server"):
        websocket.recv(10)


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        ("HTTP/1.1 404 Not Found\r\n\r\n", "ws://test refuses the WebSocket: '404 Not Found' for the path /mqtt"),
        ("HTTP/1.1 200 \x1b[31mOK\r\n\r\n", r"refuses the WebSocket: '200 \\x1b\[31mOK'"),
        (" \x02\x00\r\n\r\n", "the answer is not HTTP"),
        ("", "no answer to the upgrade"),
        ("x" * (HEAD_BYTES_MAX + 1), "no answer to the upgrade"),
        (UPGRADED.format(accept="wrong"), "the answer to the upgrade does not fit the question"),
        (UPGRADED.replace("Protocol: mqtt", "Protocol: other"), "ws://test does not offer MQTT over this WebSocket"),
    ],
)
def test_a_refused_upgrade_is_one_sentence(answer: str, sentence: str) -> None:
    client, server = socket.socketpair()

    def serve() -> None:
        headers = question(server)
        server.sendall(answer.replace("{accept}", accepted(headers)).encode())
        server.shutdown(socket.SHUT_WR)

    thread = threading.Thread(target=serve)
    thread.start()
    with client, server:
        with pytest.raises(ConfigError, match=sentence):
            WebSocket(client, "ws://test", "test", "/mqtt")
        thread.join()
