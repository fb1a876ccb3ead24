"""The machine under the figures: cores, limits, and what a process used of them.

Owns: pinning, CPU time and resident memory of a process, the facts printed above a table.
Never: a judgement on a figure.
"""

import contextlib
import datetime
import os
import platform
import resource
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

CPU_CLOCK: Final = 2  # of Linux: with the complement of a process's number, the clock of the time that it has run
PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Cores:
    """Which core the generator has and which the brokers; None where nothing is pinned."""

    generator: int | None
    broker: int | None


@dataclass(frozen=True, slots=True)
class Facts:
    date: str
    cpu: str
    cores: int
    memory_gib: float
    kernel: str
    python: str
    load_average: float
    pinned: str

    def as_dict(self) -> dict[str, str | int | float]:
        return asdict(self)


def pin(wanted: bool) -> Cores:
    """Give this process a core of its own. The brokers get another one, the same for each of them."""
    allowed = sorted(os.sched_getaffinity(0))
    if not wanted or len(allowed) < 2:
        return Cores(None, None)
    os.sched_setaffinity(0, {allowed[1]})
    return Cores(generator=allowed[1], broker=allowed[0])


def raise_open_files() -> int:
    """As many open files as the system lets us have; inherited by the brokers."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def prioritise(nice: int) -> None:
    """Come before other work of the same session; the brokers inherit it, and it ends with these processes.

    Where the kernel shares time by session first (autogroup) it does little. The session's own value is left alone:
    it would outlast the run and slow down everything else on the machine.
    """
    os.setpriority(os.PRIO_PROCESS, 0, nice)


def cpu_seconds(pid: int) -> float:
    """User and system time of all threads of a process, also of those that have ended, to the nanosecond."""
    return time.clock_gettime(~pid << 3 | CPU_CLOCK)


def thread_seconds(pid: int, names: tuple[str, ...]) -> float:
    """User and system time of those threads of a process whose names begin with one of these."""
    took_ns = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):
            if (task / "comm").read_text(encoding="utf-8").startswith(names):
                took_ns += int((task / "schedstat").read_text(encoding="utf-8").split()[0])
    return took_ns / 1e9


def waited_seconds(pid: int) -> float:
    """How long the threads of a process were ready but had no core: what other work on the machine took from it."""
    waited_ns = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):
            waited_ns += int((task / "schedstat").read_text(encoding="utf-8").split()[1])
    return waited_ns / 1e9


def forget_peak(pid: int) -> None:
    """Let the peak of a process's resident memory begin again (proc(5), clear_refs)."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def peak_resident_bytes(pid: int) -> int:
    """The most resident memory since `forget_peak`."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"process {pid} has no peak of its memory")


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text(encoding="utf-8").split()[1]) * PAGE_BYTES


def facts(cores: Cores) -> Facts:
    model = platform.processor() or platform.machine()
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    return Facts(
        date=datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        cpu=model,
        cores=os.cpu_count() or 1,
        memory_gib=round(os.sysconf("SC_PHYS_PAGES") * PAGE_BYTES / 2**30, 1),
        kernel=platform.release(),
        python=platform.python_version(),
        load_average=round(os.getloadavg()[0], 2),
        pinned="no" if cores.broker is None else f"generator on core {cores.generator}, brokers on core {cores.broker}",
    )
