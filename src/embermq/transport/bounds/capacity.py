"""Capacity: whether the server has room for one more connection, by number, by files and by memory.

Owns: the files that are kept in reserve for the store, and the memory high-water mark.
Never: what is done about a client that holds much; the server decides that when it has looked.
"""

import logging
import os
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Final, final

from embermq.broker.counters import Counters
from embermq.broker.limits import Limits
from embermq.protocol.reasons import ReasonCode
from embermq.transport.byte_transport import ByteTransport
from embermq.transport.rate_limited_log import RateLimitedLog

logger: Final = logging.getLogger("embermq")

MEMORY_PART: Final = (3, 4)
"""The part of the machine's memory at which the high-water mark is, unless it is set."""
RELIEF_PART: Final = (15, 16)
"""Below this part of the mark, connections and subscriptions are accepted again."""
MIB: Final = 1024 * 1024
STATM: Final = Path("/proc/self/statm")
CGROUPS: Final = Path("/proc/self/cgroup")
CGROUP_FILES: Final = ("/sys/fs/cgroup{}/memory.max", "/sys/fs/cgroup/memory{}/memory.limit_in_bytes")


def used_bytes() -> int:
    """The memory of this process that is not a copy of a file; 0 where the system does not tell."""
    try:
        fields = STATM.read_text().split()
    except OSError:
        return 0
    return (int(fields[1]) - int(fields[2])) * resource.getpagesize()


def machine_bytes(cgroups: Path = CGROUPS, files: tuple[str, ...] = CGROUP_FILES) -> int:
    """How much memory this process may use: that of the machine, or less if its control group has a limit."""
    found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    try:
        groups = {"", *(line.split(":", 2)[2].rstrip("/") for line in cgroups.read_text().splitlines())}
    except OSError:
        groups = {""}
    for file in files:
        for group in groups:
            try:
                text = Path(file.format(group)).read_text().strip()
            except OSError:
                continue
            if text.isdigit():  # version 2 has "max" for none
                found.append(int(text))
    return min(found)


def file_number(transport: ByteTransport) -> int:
    """The descriptor of a transport's socket; -1 if it has none."""
    socket = transport.get_extra_info("socket")
    return socket.fileno() if socket is not None and hasattr(socket, "fileno") else -1


@final
class Capacity:
    """The bounds of all connections together.

    The system gives a new socket the lowest free descriptor. No connection keeps one of the highest
    `limits.files_reserved`, so these are left for the store, whatever clients do.
    """

    __slots__ = (
        "_connections_max",
        "_counters",
        "_files_max",
        "_files_reserved",
        "_log",
        "_memory_max",
        "_used_bytes",
        "clients_ended",
        "is_memory_full",
        "memory_bytes",
        "refused_for_files",
        "refused_for_memory",
    )

    def __init__(
        self, limits: Limits, counters: Counters, log: RateLimitedLog, used: Callable[[], int] = used_bytes
    ) -> None:
        numerator, denominator = MEMORY_PART
        self._connections_max: Final = limits.connections_max
        self._files_reserved: Final = limits.files_reserved
        self._memory_max: Final = limits.memory_bytes_max or machine_bytes() * numerator // denominator
        self._counters: Final = counters
        self._log: Final = log
        self._used_bytes: Final = used
        self._files_max = 0
        self.is_memory_full = False
        self.memory_bytes = 0
        self.refused_for_files = 0
        self.refused_for_memory = 0
        self.clients_ended = 0  # because they held much when the memory was full
        counters.others.append(self.counts)
        self.look()

    def look(self) -> None:
        """Find out how many files and how much memory the process may use and uses; once a tick."""
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._files_max = max(files - self._files_reserved, files // 2) if files != resource.RLIM_INFINITY else 1 << 62
        self.memory_bytes = self._used_bytes()
        numerator, denominator = RELIEF_PART if self.is_memory_full else (1, 1)
        is_full = self.memory_bytes >= self._memory_max * numerator // denominator
        if is_full and not self.is_memory_full:
            logger.warning(
                "%d MiB of memory are in use, limits.memory_bytes_max is %d MiB: new connections and subscriptions are "
                "refused, and the connections of clients that hold most are ended",
                self.memory_bytes // MIB,
                self._memory_max // MIB,
            )
        elif self.is_memory_full and not is_full:
            logger.warning("%d MiB of memory are in use: connections are accepted again", self.memory_bytes // MIB)
        self.is_memory_full = is_full

    def has_room(self, connections: int, transport: ByteTransport) -> bool:
        """Whether there is room for one more connection than these streams; if not, it is counted and logged."""
        if connections >= self._connections_max:
            reason = "limits.connections_max is reached"
        elif file_number(transport) >= self._files_max:
            self.refused_for_files += 1
            reason = "the remaining files are kept for the store (limits.files_reserved)"
        elif self.is_memory_full:
            self.refused_for_memory += 1
            reason = "limits.memory_bytes_max is reached"
        else:
            return True
        self._counters.refuse_connection(ReasonCode.SERVER_BUSY)
        self._log.log(logging.WARNING, "a new connection was closed: %s", reason)
        return False

    def counts(self) -> dict[str, int]:
        """For `$SYS/broker/`."""
        return {
            "connections/refused/files": self.refused_for_files,
            "connections/refused/memory": self.refused_for_memory,
            "memory/bytes": self.memory_bytes,
            "memory/bytes-max": self._memory_max,
            "memory/clients-ended": self.clients_ended,
        }
