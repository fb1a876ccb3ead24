"""`python -m bench.sn_load`: 1,000 MQTT-SN clients over UDP beside as many MQTT clients over TCP, on one EmberMQ.

Owns: its clients on raw sockets and the three loads: one QoS 1 message in flight each, QoS 0 at a fixed rate, and a
fan-out to all of them.
Never: the product's codec or an MQTT library; packets are prepared, of answers only the type is read.
A client of MQTT-SN has one message in flight, so the TCP clients have one as well.
"""

import argparse
import select
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Final, NamedTuple

from rich.console import Console
from rich.table import Table

from bench import packets
from bench.load import LoadFailed, open_client
from bench.machine import facts, pin, raise_open_files
from bench.servers import Server, ember, ember_path, free_port

PAYLOAD: Final = b"x" * 64
TOPIC_NAME: Final = "load/0123456789abc"
ANSWER_S_MAX: Final = 30.0
SETTINGS: Final = """\
[sn]
predefined = { 1 = "load/0123456789abc" }
"""


class Dialect(NamedTuple):
    """What one kind of client sends. `publish` makes a PUBLISH of a QoS and a packet id."""

    name: str
    udp: bool
    connect: Callable[[str], bytes]
    publish: Callable[[int, int], bytes]
    subscribe: bytes
    puback: int
    delivered: int


def _frame(code: int, body: bytes) -> bytes:
    return bytes([2 + len(body), code]) + body


def _mqtt_publish(qos: int, packet_id: int) -> bytes:
    name = TOPIC_NAME.encode()
    body = struct.pack(">H", len(name)) + name + (struct.pack(">H", packet_id) if qos else b"") + PAYLOAD
    return bytes([0x30 | qos << 1, len(body)]) + body


DIALECTS: Final = (
    Dialect(
        "MQTT 3.1.1, TCP",
        False,
        lambda name: packets.connect(name),
        _mqtt_publish,
        packets.subscribe(["fan/out"], 0),
        0x40,
        0x30,
    ),
    Dialect(
        "MQTT-SN 1.2, UDP",
        True,
        lambda name: _frame(0x04, b"\x04\x01\x0e\x10" + name.encode()),
        lambda qos, packet_id: _frame(0x0C, struct.pack(">BHH", qos << 5 | 1, 1, packet_id if qos else 0) + PAYLOAD),
        _frame(0x12, b"\x00\x00\x01fan/out"),
        0x0D,
        0x0C,
    ),
    Dialect(
        "MQTT-SN 2.0, UDP",
        True,
        lambda name: _frame(0x01, b"\x01\x00\x01\x02\x0e\x10\x00\x00" + name.encode()),
        lambda qos, packet_id: _frame(
            0x03, bytes([qos << 5 | 1]) + (struct.pack(">H", packet_id) if qos else b"") + b"\0\1" + PAYLOAD
        ),
        _frame(0x08, b"\x03\x00\x01fan/out"),
        0x04,
        0x03,
    ),
)


class Result(NamedTuple):
    """One load of one dialect."""

    messages: int
    seconds: float
    cpu_s: float

    def rate(self) -> float:
        return self.messages / self.seconds

    def cpu_us(self) -> float:
        return self.cpu_s / max(self.messages, 1) * 1e6


def connected(server: Server, sn_port: int, dialect: Dialect, count: int, stack: ExitStack) -> list[socket.socket]:
    """Clients whose CONNECT was accepted."""
    clients: list[socket.socket] = []
    for number in range(count):
        name = f"load-{number}"
        if dialect.udp:
            client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            client.connect(("127.0.0.1", sn_port))
            answer = _accepted(client, dialect.connect(name))
            if answer[-1] != 0:
                raise LoadFailed(f"CONNECT of {name} was answered {answer.hex()}")
        else:
            client = open_client(server.port, name)
        clients.append(stack.enter_context(client))
    return clients


def _accepted(client: socket.socket, connect: bytes) -> bytes:
    """The answer to a CONNECT, which is sent again until it comes: the port may not be bound yet."""
    client.settimeout(0.5)
    deadline = time.perf_counter() + ANSWER_S_MAX
    while time.perf_counter() < deadline:
        try:
            client.send(connect)
            return client.recv(64)
        except (ConnectionRefusedError, TimeoutError):
            time.sleep(0.01)
    raise LoadFailed("CONNECT was not answered")


def _type_of(dialect: Dialect, data: bytes) -> int:
    return data[1] if dialect.udp else data[0] & 0xF0


def one_in_flight(server: Server, clients: list[socket.socket], dialect: Dialect, seconds: float) -> Result:
    """Every client sends its next QoS 1 message when the last one is acknowledged."""
    prepared = [dialect.publish(1, packet_id) for packet_id in range(1, 257)]
    poll = select.epoll()
    by_number = {client.fileno(): client for client in clients}
    sent = dict.fromkeys(by_number, 0)
    acknowledged = 0
    with poll:
        for client in clients:
            client.setblocking(False)
            poll.register(client.fileno(), select.EPOLLIN)
        cpu_s, begun = server.cpu_seconds(), time.perf_counter()
        for client in clients:
            client.send(prepared[0])
        while (passed := time.perf_counter() - begun) < seconds:
            for number, _ in poll.poll(1.0):
                client = by_number[number]
                if _type_of(dialect, client.recv(512)) == dialect.puback:
                    acknowledged += 1
                    sent[number] += 1
                    client.send(prepared[sent[number] % len(prepared)])
        result = Result(acknowledged, passed, server.cpu_seconds() - cpu_s)
        while events := poll.poll(0.5):  # the last acknowledgements, so that the next load starts with nothing unread
            for number, _ in events:
                by_number[number].recv(512)
    return result


def paced(server: Server, clients: list[socket.socket], dialect: Dialect, rate: int, seconds: float) -> Result:
    """QoS 0 at a fixed rate in all, one send call a message; a subscriber on TCP counts what arrives."""
    message = dialect.publish(0, 0)
    with open_client(server.port, "counter") as counter:
        counter.sendall(packets.subscribe(["load/#"], 0))
        counter.recv(64)
        size = len(_mqtt_publish(0, 0))
        counter.setblocking(False)
        received = sent = 0
        cpu_s, begun = server.cpu_seconds(), time.perf_counter()
        while (passed := time.perf_counter() - begun) < seconds:
            while sent < rate * passed:
                clients[sent % len(clients)].send(message)
                sent += 1
            received += _take(counter)
            time.sleep(0.000_5)
        deadline = time.perf_counter() + 2
        while received < sent * size and time.perf_counter() < deadline:
            received += _take(counter)
    return Result(received // size, passed, server.cpu_seconds() - cpu_s)


def _take(counter: socket.socket) -> int:
    try:
        return len(counter.recv(1 << 20))
    except BlockingIOError:
        return 0


def fan_out(server: Server, clients: list[socket.socket], dialect: Dialect, rounds: int) -> Result:
    """One publisher on TCP, all clients subscribed: each message waits until every client has it."""
    for client in clients:
        client.setblocking(True)
        client.settimeout(ANSWER_S_MAX)
        client.send(dialect.subscribe)
        client.recv(64)
        client.setblocking(False)
    body = b"\x00\x07fan/out" + PAYLOAD
    message = bytes([0x30, len(body)]) + body
    delivered = 0
    poll = select.epoll()
    by_number = {client.fileno(): client for client in clients}
    with poll, open_client(server.port, "publisher") as publisher:
        for number in by_number:
            poll.register(number, select.EPOLLIN)
        cpu_s, begun = server.cpu_seconds(), time.perf_counter()
        for _ in range(rounds):
            publisher.sendall(message)
            for _ in _arrivals(poll, by_number, dialect, len(clients)):
                delivered += 1
        passed = time.perf_counter() - begun
    return Result(delivered, passed, server.cpu_seconds() - cpu_s)


def _arrivals(poll: select.epoll, by_number: dict[int, socket.socket], dialect: Dialect, wanted: int) -> Iterator[None]:
    deadline = time.perf_counter() + ANSWER_S_MAX
    while wanted > 0 and time.perf_counter() < deadline:
        for number, _ in poll.poll(1.0):
            data = by_number[number].recv(4096)
            if _type_of(dialect, data) == dialect.delivered:
                wanted -= 1
                yield
            elif dialect.udp and dialect.delivered != 0x30:
                _answer_register(by_number[number], dialect, data)


def _answer_register(client: socket.socket, dialect: Dialect, data: bytes) -> None:
    """A subscriber at QoS 0 has to prove its address now and then."""
    if data[1] == 0x0A and dialect.delivered == 0x0C:
        client.send(_frame(0x0B, data[2:6] + b"\0"))
    elif data[1] == 0x10 and dialect.delivered == 0x03:
        client.send(_frame(0x11, b"\0" + data[3:5]))


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.sn_load", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--clients", type=int, default=1_000)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rate", type=int, default=5_000, help="messages a second of the paced load")
    parser.add_argument("--rounds", type=int, default=20, help="messages of the fan-out")
    options = parser.parse_args()
    path = ember_path()
    if path is None:
        raise SystemExit("bench: the `ember` command is not installed; run `make setup`")
    raise_open_files()
    cores = pin(True)
    table = Table("load", "dialect", "messages/s", "broker CPU us/message")
    for dialect in DIALECTS:
        sn_port = free_port()
        with ExitStack() as stack:
            server = stack.enter_context(ember(path, SETTINGS, False, cores, ["--sn-port", str(sn_port)]))
            clients = connected(server, sn_port, dialect, options.clients, stack)
            results = {
                "QoS 0 paced": paced(server, clients, dialect, options.rate, options.seconds),
                "QoS 1, one in flight": one_in_flight(server, clients, dialect, options.seconds),
                "fan-out QoS 0": fan_out(server, clients, dialect, options.rounds),
            }
            for name, result in results.items():
                table.add_row(name, dialect.name, f"{result.rate():,.0f}", f"{result.cpu_us():.1f}")
    console = Console()
    console.print(table)
    console.print(f"{options.clients} clients; {facts(cores)}")


if __name__ == "__main__":
    main()
