"""`python -m bench.typical`: the memory of many clients at typical use.

Owns: the clients: each is connected with a persistent session, has some subscriptions, and has some QoS 1 messages that
it has not acknowledged. The memory is that of the server's process, after each step.
"""

import argparse
import select
import socket
from typing import Final

from rich.console import Console
from rich.table import Table

from bench.load import open_client, subscribe
from bench.machine import pin, raise_open_files
from bench.servers import Server, ember, ember_path

SUBSCRIPTIONS: Final = 5
MESSAGES: Final = 10
PAYLOAD: Final = bytes(200)
MIB: Final = 1024 * 1024
QUIET_S: Final = 1.0


def topic_name(number: int) -> str:
    return f"site/{number % 100}/device/{number}/command"


def publish_all(port: int, clients: int) -> None:
    """Publish messages to each client at QoS 1, and wait for the acknowledgements."""
    with open_client(port, "publisher") as sock:
        for number in range(clients):
            name = topic_name(number).encode()
            body = len(name).to_bytes(2) + name + b"\x00\x01" + PAYLOAD
            length = bytes([len(body) % 128 | 0x80, len(body) // 128])
            sock.sendall((b"\x32" + length + body) * MESSAGES)
            left = 4 * MESSAGES
            while left:
                left -= len(sock.recv(left))


def read_all(socks: list[socket.socket]) -> None:
    """Read what has come, so that it is in flight and not in the network's buffers; acknowledge nothing."""
    with select.epoll() as poller:
        by_number = {sock.fileno(): sock for sock in socks}
        for number in by_number:
            poller.register(number, select.EPOLLIN)
        while events := poller.poll(QUIET_S):
            for number, _ in events:
                by_number[number].recv(1 << 16)


def steps(server: Server, clients: int) -> list[tuple[str, int]]:
    """What was done, and the memory that it took."""
    before = server.resident_bytes()
    taken: list[tuple[str, int]] = []

    def step(name: str) -> None:
        nonlocal before
        now = server.resident_bytes()
        taken.append((name, now - before))
        before = now

    socks = [open_client(server.port, f"client-{number}", clean_session=False) for number in range(clients)]
    step("connected, with a persistent session")
    for number, sock in enumerate(socks):
        others = [f"site/{number % 100}/device/{number}/{part}" for part in range(SUBSCRIPTIONS - 1)]
        subscribe(sock, [topic_name(number), *others], 1)
    step(f"{SUBSCRIPTIONS} subscriptions each")
    publish_all(server.port, clients)
    read_all(socks)
    step(f"{MESSAGES} unacknowledged messages of {len(PAYLOAD)} bytes each")
    for sock in socks:
        sock.close()
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.typical", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--clients", type=int, default=10_000)
    options = parser.parse_args()
    path = ember_path()
    if path is None:
        raise SystemExit("bench: the `ember` command is not installed; run `make setup`")
    raise_open_files()
    table = Table("step", "MiB", "KiB a client")
    with ember(path, "", True, pin(True), []) as server:
        table.add_row("the server alone", f"{server.resident_bytes() / MIB:,.0f}", "")
        for name, taken in steps(server, options.clients):
            table.add_row(name, f"{taken / MIB:,.0f}", f"{taken / 1024 / options.clients:.1f}")
        table.add_row("in all", f"{server.resident_bytes() / MIB:,.0f}", "")
    Console().print(table)


if __name__ == "__main__":
    main()
