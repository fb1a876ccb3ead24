"""`python -m simulation --seed n` runs one seed; `--seeds n` or `--seeds a:b` many; a failing one is made shorter."""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from simulation import patches

patches.install()  # before anything of the server is imported

from simulation.clock import real_s  # noqa: E402
from simulation.faults import FAULTS  # noqa: E402
from simulation.runs import run_seed, shortened  # noqa: E402
from simulation.world import Report  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="run this one")
    parser.add_argument("--seeds", default="", help="run this many, from 0 on, or from a up to b with a:b")
    parser.add_argument("--steps", default="", help="only these steps of the script, as a shortened run prints them")
    parser.add_argument("--first", action="store_true", help="with --seeds: stop at the first that fails")
    parser.add_argument("--tell", action="store_true", help="with --seed: print what happens")
    parser.add_argument("--fault", help="plant this fault first; `all`: each, and say how many seeds find it")
    parser.add_argument("--no-shrink", action="store_true", help="do not look for a shorter script")
    arguments = parser.parse_args()
    if arguments.fault == "all":
        return _find_each(arguments.seeds or "400")
    if arguments.fault:
        planted = [fault for fault in FAULTS if fault.name == arguments.fault]
        if not planted:
            parser.error(f"--fault: expected one of {', '.join(fault.name for fault in FAULTS)}")
        planted[0].plant()
    with tempfile.TemporaryDirectory(prefix="simulation-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as to:
        if arguments.seed is not None:
            kept = [int(number) for number in arguments.steps.split(",")] if arguments.steps else None
            return _one(arguments.seed, kept, Path(to), not arguments.no_shrink, arguments.tell)
        first, _, end = arguments.seeds.rpartition(":")
        return _many(range(int(first or 0), int(end or 100)), Path(to), arguments.first, not arguments.no_shrink)


def _one(seed: int, kept: list[int] | None, directory: Path, may_shrink: bool, is_told: bool) -> int:
    report = run_seed(seed, directory, kept, is_told)
    if not report.violations:
        print(f"seed {seed}: nothing wrong. {_summary([report])}")
        return 0
    _tell(seed, report, directory, may_shrink and kept is None)
    return 1


def _many(seeds: range, directory: Path, is_first_enough: bool, may_shrink: bool) -> int:
    began_s = real_s()
    reports: list[Report] = []
    failed = 0
    for seed in seeds:
        report = run_seed(seed, directory)
        reports.append(report)
        if report.violations:
            failed += 1
            _tell(seed, report, directory, may_shrink and not is_first_enough)
            if is_first_enough:
                break
    print(f"{len(reports)} seeds, {failed} failed, in {real_s() - began_s:.1f} s. {_summary(reports)}")
    return 1 if failed else 0


def _find_each(seeds: str) -> int:
    """Each fault in a process of its own, since it is planted for good."""
    missed = 0
    for fault in FAULTS:
        command = [sys.executable, "-m", "simulation", "--fault", fault.name, "--seeds", seeds, "--first"]
        printed = subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines()
        found = next((line for line in printed if line.startswith("seed ")), "")
        missed += not found
        count = printed[-1].split(" ")[0] if printed else "?"
        print(
            f"| `{fault.name}` | {fault.promise} | {count if found else 'not found in ' + count} | {found} |",
            flush=True,
        )
    return 1 if missed else 0


def _tell(seed: int, report: Report, directory: Path, may_shrink: bool) -> None:
    print(f"seed {seed}: {report.violations[0]}")
    if may_shrink:
        kept, short = shortened(seed, directory, report.violations[0])
        steps = ",".join(map(str, kept))
        print(f"  shorter: python -m simulation --seed {seed} --steps {steps}\n  {short.violations[0]}")
    sys.stdout.flush()


def _summary(reports: list[Report]) -> str:
    checks: dict[str, int] = {}
    for report in reports:
        for name, count in report.checks.items():
            checks[name] = checks.get(name, 0) + count
    total = {name: sum(getattr(report, name) for report in reports) for name in ("lives", "messages", "operations")}
    parts = [
        f"{total['lives']} starts",
        f"{total['messages']} messages",
        f"{total['operations']} operations of the disk",
    ]
    return ", ".join(parts) + "; checked " + ", ".join(f"{name} {count}" for name, count in sorted(checks.items()))


if __name__ == "__main__":
    sys.exit(main())
