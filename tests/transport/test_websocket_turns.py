"""WebSockets within a turn: one that brings much waits when the time for decoding is used up, and comes first then."""

import socket

from embermq.protocol.mqtt.encode import encode
from embermq.protocol.packets import Connect, Pingreq
from embermq.transport.listener import Listener
from embermq.transport.server import Server
from embermq.transport.sockets.interface import READABLE
from embermq.transport.sockets.poll import DECODING_S, Poll
from embermq.transport.sockets.stream_socket import READ_BYTES, StreamSocket
from embermq.transport.websocket import PONG_UNSENT_MAX, WebSocketStream
from support.polled_server import PEER, TIMEOUT_S, look, run, unix_pair

UPGRADE = (
    b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n"
)
CONNACK, PINGRESP = b"\x82\x04\x20\x02\x00\x00", b"\x82\x02\xd0\x00"


def frame(data: bytes, first: int = 0x82) -> bytes:
    return bytes((first, 0x80 | len(data))) + bytes(4) + data


PINGREQ = frame(encode(Pingreq()))


class Client:
    """A WebSocket that is connected, and the server's socket for it."""

    def __init__(self, server: Server, poll: Poll, client_id: str) -> None:
        self.socket, served = unix_pair()
        served.setblocking(False)
        served.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16 * 1024)
        websocket = WebSocketStream(server, Listener(kind="ws", limits=server.limits, access=server.access))
        self.stream = StreamSocket(poll, served.detach(), PEER, websocket, is_framed=True)
        poll.add(self.stream)
        websocket.connection_made(self.stream)
        self.socket.sendall(UPGRADE)
        look(poll)
        answer = self.socket.recv(1_000)
        assert answer.startswith(b"HTTP/1.1 101 ") and b"Sec-WebSocket-Protocol: mqtt\r\n" in answer
        self.socket.sendall(frame(encode(Connect(client_id))))
        look(poll)
        self.expect(CONNACK)

    def expect(self, expected: bytes) -> None:
        received = b""
        while len(received) < len(expected):
            received += self.socket.recv(len(expected) - len(received))
        assert received == expected

    def end(self, poll: Poll) -> None:
        self.socket.close()
        look(poll)

    def is_silent(self) -> bool:
        self.socket.setblocking(False)
        try:
            return not self.socket.recv(1)
        except BlockingIOError:
            return True
        finally:
            self.socket.settimeout(TIMEOUT_S)


def test_one_that_brings_much_waits_for_the_next_turn_and_one_that_brings_little_does_not() -> None:
    async def scenario(server: Server, poll: Poll) -> None:
        much, little = Client(server, poll, "much"), Client(server, poll, "little")
        count = READ_BYTES // len(PINGREQ) + 1
        much.socket.sendall(PINGREQ * count)
        for _ in range(2):  # as much as shows that it brings much, then the rest
            look(poll)
        much.expect(PINGRESP * count)
        for client in (much, little):
            client.socket.sendall(PINGREQ)
        much.stream._sends_much = True
        poll.spent_decoding(2 * DECODING_S)
        for client in (much, little):
            client.stream.ready(READABLE)
        server._end_turn()
        little.expect(PINGRESP)
        assert much.is_silent()
        poll.look([])  # the next turn, before what is ready in it
        much.expect(PINGRESP)
        for client in (much, little):
            client.end(poll)

    run(scenario)


def test_a_client_that_reads_nothing_gets_no_more_pongs_than_a_bound() -> None:
    async def scenario(server: Server, poll: Poll) -> None:
        client = Client(server, poll, "deaf")
        ping = frame(bytes(125), 0x89)
        for _ in range(4_000):
            client.socket.sendall(ping)
            client.stream.ready(READABLE)
        assert PONG_UNSENT_MAX < client.stream.get_write_buffer_size() <= PONG_UNSENT_MAX + 127
        client.end(poll)

    run(scenario)
