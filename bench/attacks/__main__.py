"""`python -m bench.attacks`: a pair of clients at QoS 1 and 50 messages/s, beside one attack after the other.

Owns: the pair, the server of each attack, and the figures: the pair's latency, what it lost, how much the server's
memory and log have grown.
Each attack has a server of its own, on disk. Attackers run in a process of their own.
"""

import argparse
import multiprocessing
import resource
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from rich.console import Console
from rich.table import Column, Table

from bench.attacks.catalog import ATTACKS, run_attack
from bench.attacks.clients import NOT_SERVED, USER, Attack, Target
from bench.attacks.pair import AFTER_S_MAX, P99_MS_MAX, Seen, Victims
from bench.machine import Cores, forget_peak, peak_resident_bytes, pin, raise_open_files
from bench.servers import Server, ember, ember_path, free_port
from bench.wires import make_certificate

FEW_FILES: Final = 256
"""The open files of the server in the attack `idle-connections`."""
LOG_LINES_S_MAX: Final = 100.0
MIB: Final = 1024 * 1024


class Figures(NamedTuple):
    """What one attack has done."""

    pair: Seen
    grown_bytes: int
    log_lines_s: float
    is_refused: bool = False
    """Whether the attack itself has found that others were not served."""

    def is_good(self, attack: Attack) -> bool:
        pair = self.pair
        is_small = attack.grown_mib_max is None or self.grown_bytes <= attack.grown_mib_max * MIB
        return (
            not self.is_refused
            and not pair.lost
            and pair.p99_ms < P99_MS_MAX
            and self.log_lines_s < LOG_LINES_S_MAX
            and is_small
        )


@contextmanager
def attacked(path: str, name: str, cores: Cores) -> Iterator[tuple[Server, Target]]:
    """A server with every listener and one user, which also takes clients without a name."""
    target = Target(free_port(), free_port(), free_port(), free_port(), free_port())
    with tempfile.TemporaryDirectory(prefix="bench-attacks-") as directory:
        passwords = Path(directory) / "passwords"
        subprocess.run(
            [path, "passwd", str(passwords), USER, "--stdin"], input=b"right\n", check=True, stdout=subprocess.DEVNULL
        )
        certificate, key = make_certificate(Path(directory))
        settings = (
            f'[access]\npassword_file = "{passwords}"\nallow_anonymous = true\n'
            f'[http]\nport = {target.http_port}\nviewers = ["{USER}"]\n'
        )
        ports = ["--ws-port", str(target.ws_port), "--tls-port", str(target.tls_port), "--sn-port", str(target.sn_port)]
        arguments = [*ports, "--cert", str(certificate), "--key", str(key)]
        with ember(path, settings + ATTACKS[name].settings, True, cores, arguments) as server:
            if name == "idle-connections":
                resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (FEW_FILES, FEW_FILES))
            yield server, target._replace(port=server.port)


def measured(path: str, name: str, seconds: float, cores: Cores) -> Figures:
    """Run one attack beside the pair."""
    with attacked(path, name, cores) as (server, target):
        pair = Victims(server.port)
        pair.begin(1.0)
        pair.end()
        log = server.directory / "output.log"
        before_bytes, before_lines = server.resident_bytes(), log.read_bytes().count(b"\n")
        forget_peak(server.pid)
        attackers = multiprocessing.get_context("spawn").Process(target=run_attack, args=(name, target, seconds))
        attackers.start()
        try:
            pair.begin(seconds + 1)
            grown_bytes = peak_resident_bytes(server.pid) - before_bytes  # after the attack it may be given back
        finally:
            attackers.join(AFTER_S_MAX)
            attackers.kill()
            attackers.join()
        if attackers.exitcode == 1:
            raise SystemExit(f"bench: the attack {name} has failed")
        seen = pair.end()
        lines = log.read_bytes().count(b"\n") - before_lines
        pair.close()
        return Figures(seen, grown_bytes, lines / (seconds + 1), attackers.exitcode == NOT_SERVED)


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
            "" if figures.is_good(ATTACKS[name]) else "missed",
        )
    Console().print(table)


if __name__ == "__main__":
    main()
