"""`python -m bench.attacks`: a pair of clients at QoS 1 and 50 messages/s, beside one attack after the other.

Owns: the pair, the server of each attack, and the figures: the pair's latency, what it lost, how much the server's
memory and log have grown.
Each attack has a server of its own, on disk. Attackers run in a process of their own.
"""

import argparse
import multiprocessing
import resource
import select
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Column, Table

from bench import packets
from bench.attack_load import ATTACKS, USER, Target
from bench.load import LoadFailed, Peer, open_client, subscribe
from bench.machine import Cores, pin, raise_open_files
from bench.paced import PacedPublisher, TimedSubscriber
from bench.packets import Shape
from bench.servers import Server, ember, ember_path, free_port

RATE: Final = 50
AFTER_S_MAX: Final = 15.0
"""How long the pair's last messages may take after an attack."""
FEW_FILES: Final = 256
"""The open files of the server in the attack `idle-connections`."""
P99_MS_MAX: Final = 300.0
LOG_LINES_S_MAX: Final = 100.0
MIB: Final = 1024 * 1024


class Seen(NamedTuple):
    """What the pair has seen. `late`: more than `P99_MS_MAX` after it was sent; `lost`: not after the attack either."""

    sent: int
    late: int
    lost: int
    p99_ms: float


class Figures(NamedTuple):
    """What one attack has done."""

    pair: Seen
    grown_bytes: int
    log_lines_s: float

    @property
    def is_good(self) -> bool:
        pair = self.pair
        return not pair.lost and pair.p99_ms < P99_MS_MAX and self.log_lines_s < LOG_LINES_S_MAX


class Victims:
    """A publisher and a subscriber that are connected before an attack begins."""

    def __init__(self, port: int) -> None:
        shape = Shape(1)
        name = packets.topic_name(0)
        self._poller = select.epoll()
        sock = open_client(port, "pair-subscriber")
        subscribe(sock, [name], 1)
        self._reader = TimedSubscriber(sock, self._poller, shape)
        self._writer = PacedPublisher(open_client(port, "pair-publisher"), self._poller, shape, name)
        self._peers: dict[int, Peer] = {peer.fd: peer for peer in (self._reader, self._writer)}
        self._before = self._sent = 0

    def begin(self, seconds: float) -> None:
        """Publish at the rate."""
        self._reader.ages_ns.clear()
        self._before = self._reader.received
        self._sent = max(1, int(RATE * seconds))
        begun_s = time.perf_counter()
        # If its connection ends, what it could not send counts as lost.
        with suppress(LoadFailed, OSError):
            for number in range(self._sent):
                self._poll_until(begun_s + number / RATE)
                self._writer.publish()

    def end(self, after_s: float = AFTER_S_MAX) -> Seen:
        """Wait for what is missing."""
        reader = self._reader
        ends_s = time.perf_counter() + after_s
        with suppress(LoadFailed, OSError):
            while reader.received < self._before + self._sent and time.perf_counter() < ends_s:
                self._poll_until(time.perf_counter() + 0.05)
        lost = self._before + self._sent - reader.received
        ages_ms = np.concatenate([np.array([], dtype=np.int64), *reader.ages_ns]) / 1e6
        p99_ms = float(np.percentile(ages_ms, 99)) if len(ages_ms) else float("inf")
        return Seen(self._sent, int(np.sum(ages_ms > P99_MS_MAX)), lost, p99_ms)

    def _poll_until(self, due_s: float) -> None:
        while (left_s := due_s - time.perf_counter()) > 0:
            for number, event in self._poller.poll(left_s):
                self._peers[number].on_event(event)

    def close(self) -> None:
        for peer in self._peers.values():
            peer.close()
        self._poller.close()


def attack(name: str, target: Target, seconds: float) -> None:
    """In a process of its own."""
    raise_open_files()
    ATTACKS[name](target, time.monotonic() + seconds)


@contextmanager
def attacked(path: str, name: str, cores: Cores) -> Iterator[tuple[Server, Target]]:
    """A server with one user, which also takes clients without a name."""
    ws_port = free_port()
    with tempfile.TemporaryDirectory(prefix="bench-attacks-") as directory:
        passwords = Path(directory) / "passwords"
        subprocess.run(
            [path, "passwd", str(passwords), USER, "--stdin"], input=b"right\n", check=True, stdout=subprocess.DEVNULL
        )
        settings = f'[access]\npassword_file = "{passwords}"\nallow_anonymous = true\n'
        with ember(path, settings, True, cores, ["--ws-port", str(ws_port)]) as server:
            if name == "idle-connections":
                resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (FEW_FILES, FEW_FILES))
            yield server, Target(server.port, ws_port)


def measured(path: str, name: str, seconds: float, cores: Cores) -> Figures:
    """Run one attack beside the pair."""
    with attacked(path, name, cores) as (server, target):
        pair = Victims(server.port)
        pair.begin(1.0)
        pair.end()
        log = server.directory / "output.log"
        before_bytes, before_lines = server.resident_bytes(), log.read_bytes().count(b"\n")
        attackers = multiprocessing.get_context("spawn").Process(target=attack, args=(name, target, seconds))
        attackers.start()
        try:
            pair.begin(seconds + 1)
            grown_bytes = server.resident_bytes() - before_bytes
        finally:
            attackers.join(AFTER_S_MAX)
            attackers.kill()
        seen = pair.end()
        lines = log.read_bytes().count(b"\n") - before_lines
        pair.close()
        return Figures(seen, grown_bytes, lines / (seconds + 1))


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.attacks", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=10.0, help="how long each attack lasts")
    parser.add_argument("--only", choices=sorted(ATTACKS), action="append", help="one attack; may be given again")
    options = parser.parse_args()
    path = ember_path()
    if path is None:
        raise SystemExit("bench: the `ember` command is not installed; run `make setup`")
    raise_open_files()
    cores = pin(True)
    table = Table(Column("attack", no_wrap=True), "p99 ms", "late", "lost", "memory MiB", "log lines/s", "")
    for name in options.only or ATTACKS:
        figures = measured(path, name, options.seconds, cores)
        pair = figures.pair
        table.add_row(
            name,
            f"{pair.p99_ms:,.0f}",
            str(pair.late),
            str(pair.lost),
            f"{figures.grown_bytes / MIB:,.0f}",
            f"{figures.log_lines_s:,.0f}",
            "" if figures.is_good else "missed",
        )
    Console().print(table)


if __name__ == "__main__":
    main()
