"""A UDP socket: many datagrams in a turn, errors of the network, and a kernel that has no room."""

import socket

import pytest

from embermq.transport.server import Server
from embermq.transport.sockets.datagram_socket import DATAGRAM_BYTES_MAX, RECEIVED_MAX, UNSENT_MAX, DatagramSocket
from embermq.transport.sockets.poll import Poll
from support.polled_server import TIMEOUT_S, is_silent, look, run

Received = list[tuple[bytes, tuple[str | int, ...]]]


class FullSocket(socket.socket):
    """A socket whose kernel takes as many datagrams as `room` says."""

    room = 0

    def sendto(self, data: bytes, address: tuple[str | int, ...]) -> int:  # type: ignore[override]  # what is used
        if self.room == 0:
            raise BlockingIOError
        self.room -= 1
        return super().sendto(data, address)


def bound(kind: type[socket.socket] = socket.socket) -> socket.socket:
    made = kind(socket.AF_INET, socket.SOCK_DGRAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    made.settimeout(TIMEOUT_S)
    made.bind(("127.0.0.1", 0))
    return made


def served(
    poll: Poll, received: Received, kind: type[socket.socket] = socket.socket
) -> tuple[DatagramSocket, socket.socket]:
    """A socket of the server that writes down what it receives, and the same one as the system knows it."""
    made = bound(kind)
    made.setblocking(False)
    return DatagramSocket(poll, made, lambda data, address: received.append((data, address))), made


def test_datagrams_come_whole_and_in_order_no_more_than_are_fair_in_one_turn() -> None:
    async def scenario(server: Server, poll: Poll) -> None:
        received: Received = []
        datagrams, made = served(poll, received)
        client = bound()
        for number in range(RECEIVED_MAX + 10):
            client.sendto(b"%d" % number, made.getsockname())
        look(poll)
        assert len(received) == RECEIVED_MAX
        look(poll)
        assert received == [(b"%d" % number, client.getsockname()) for number in range(RECEIVED_MAX + 10)]
        assert is_silent(poll)
        datagrams.close()
        client.close()

    run(scenario)


def test_the_largest_and_the_empty_datagram_come() -> None:
    largest = bytes(DATAGRAM_BYTES_MAX - 28)  # without the headers of IP and UDP

    async def scenario(server: Server, poll: Poll) -> None:
        received: Received = []
        datagrams, made = served(poll, received)
        client = bound()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 18)
        for data in (largest, b"", b"x"):
            client.sendto(data, made.getsockname())
        look(poll)
        assert [data for data, _ in received] == [largest, b"", b"x"]
        datagrams.close()
        client.close()

    run(scenario)


def test_a_socket_that_is_closed_by_what_it_received_is_read_no_more() -> None:
    async def scenario(server: Server, poll: Poll) -> None:
        received: list[bytes] = []

        def receive(data: bytes, address: tuple[str | int, ...]) -> None:
            received.append(data)
            datagrams.close()

        made = bound()
        made.setblocking(False)
        address = made.getsockname()
        datagrams = DatagramSocket(poll, made, receive)
        client = bound()
        for data in (b"first", b"second"):
            client.sendto(data, address)
        look(poll)
        assert received == [b"first"]
        datagrams.close()
        datagrams.sendto(b"too late", client.getsockname())
        assert is_silent(poll)
        client.close()

    run(scenario)


def test_a_bug_with_one_datagram_leaves_the_next() -> None:
    async def scenario(server: Server, poll: Poll) -> None:
        received: list[bytes] = []

        def receive(data: bytes, address: tuple[str | int, ...]) -> None:
            if data == b"bad":
                raise ValueError("a bug")
            received.append(data)

        made = bound()
        made.setblocking(False)
        datagrams = DatagramSocket(poll, made, receive)
        client = bound()
        for data in (b"first", b"bad", b"second"):
            client.sendto(data, made.getsockname())
        look(poll)
        look(poll)
        assert received == [b"first", b"second"]
        datagrams.close()
        client.close()

    run(scenario, internal_errors=1)


def test_an_error_of_the_network_is_passed_over() -> None:
    async def scenario(server: Server, poll: Poll) -> None:
        received: Received = []
        gone = bound()
        nobody = gone.getsockname()
        made = bound()
        made.connect(nobody)  # only a connected socket is told that there is nobody
        made.setblocking(False)
        datagrams = DatagramSocket(poll, made, lambda data, address: received.append((data, address)))
        gone.close()
        datagrams.sendto(b"x", nobody)
        look(poll)
        assert is_silent(poll)
        datagrams.sendto(b"x", nobody)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as somebody:
            somebody.bind(nobody)
            somebody.sendto(b"y", made.getsockname())
        look(poll)
        assert received == [(b"y", nobody)]
        datagrams.sendto(b"x" * 70_000, nobody)  # it is too long for UDP
        assert is_silent(poll)
        datagrams.close()

    run(scenario)


def test_datagrams_wait_for_the_kernel_in_order() -> None:
    async def scenario(server: Server, poll: Poll) -> None:
        received: Received = []
        datagrams, made = served(poll, received, FullSocket)
        assert isinstance(made, FullSocket)
        client = bound()
        for number in range(10):
            datagrams.sendto(b"%d" % number, client.getsockname())
        look(poll)  # the kernel has no room again
        made.room = 4
        look(poll)
        made.room = 6
        client.sendto(b"meanwhile", made.getsockname())
        look(poll)
        assert [client.recv(100) for _ in range(10)] == [b"%d" % number for number in range(10)]
        assert [data for data, _ in received] == [b"meanwhile"]
        assert is_silent(poll)
        made.room = 1
        datagrams.sendto(b"next", client.getsockname())
        assert client.recv(100) == b"next"
        datagrams.close()
        client.close()

    run(scenario)


@pytest.mark.parametrize("more", [0, 1])
def test_no_more_than_a_number_of_datagrams_wait(more: int) -> None:
    async def scenario(server: Server, poll: Poll) -> None:
        datagrams, made = served(poll, [], FullSocket)
        assert isinstance(made, FullSocket)
        client = bound()
        for _ in range(UNSENT_MAX + more):
            datagrams.sendto(b"", client.getsockname())
        made.room = room = UNSENT_MAX + 2
        look(poll)
        assert made.room == room - UNSENT_MAX
        datagrams.close()
        client.close()

    run(scenario)


def test_what_waits_at_the_end_is_sent_if_the_kernel_takes_it() -> None:
    async def scenario(server: Server, poll: Poll) -> None:
        datagrams, made = served(poll, [], FullSocket)
        assert isinstance(made, FullSocket)
        client = bound()
        for data in (b"first", b"second", b"third"):
            datagrams.sendto(data, client.getsockname())
        made.room = 2
        datagrams.close()
        assert [client.recv(100) for _ in range(2)] == [b"first", b"second"]
        assert is_silent(poll)
        client.close()

    run(scenario)
