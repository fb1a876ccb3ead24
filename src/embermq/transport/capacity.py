"""Capacity: whether the server has room for one more connection, by number, by files and by memory.

Owns: the files that are kept in reserve for the store, and the memory high-water mark.
Never: what is done about a client that holds much; the server decides that when it has looked.
"""

import ctypes
import logging
import os
import resource
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, final

from embermq.broker.counters import Counters
from embermq.broker.limits import Limits
from embermq.protocol.reasons import ReasonCode
from embermq.transport.rate_limited_log import RateLimitedLog
from embermq.transport.sockets.interface import ByteTransport

logger: Final = logging.getLogger("embermq")

MEMORY_PART: Final = (3, 4)
"""The part of the machine's memory at which the high-water mark is, unless it is set."""
QUEUES_PART: Final = (1, 4)
"""The part of the mark that all queues together may have, unless it is set."""
TRIM_ENDED_MIN: Final = 100
TRIM_BYTES_MIN: Final = 32 * 1024 * 1024
"""Freed memory is given back to the system after this many connections have ended, if this much more is in use than
after the last time; and whenever the mark is near."""
RELIEF_PART: Final = (15, 16)
"""Below this part of the mark, connections and subscriptions are accepted again."""
MIB: Final = 1024 * 1024
M_TRIM_THRESHOLD: Final = -1
M_MMAP_THRESHOLD: Final = -3
MAPPED_BYTES_MIN: Final = 1024 * 1024
TRIMMED_BYTES_MIN: Final = 4 * 1024 * 1024
"""A freed piece of at least the first size, and more than the second at the end of the heap, are given back at once."""
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


def give_back() -> None:
    """Give memory that was freed back to the system. The C library keeps it, and Linux counts it as used."""
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):  # another C library than GNU's
        return
    trim(0)


def fix_allocator() -> None:
    """At start: freed memory of this size is given back at once.

    Without this the C library raises the size, up to 32 MiB, with each larger piece that is freed, and what is above a
    piece that stays in use is kept.
    """
    with suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(M_MMAP_THRESHOLD, MAPPED_BYTES_MIN)
        mallopt(M_TRIM_THRESHOLD, TRIMMED_BYTES_MIN)


def memory_bytes_max(limits: Limits) -> int:
    """The high-water mark."""
    numerator, denominator = MEMORY_PART
    return limits.memory_bytes_max or machine_bytes() * numerator // denominator


def all_queue_bytes_max(limits: Limits) -> int:
    """How much all clients together may be owed in memory."""
    numerator, denominator = QUEUES_PART
    return limits.all_queue_bytes_max or memory_bytes_max(limits) * numerator // denominator


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

    def __init__(
        self, limits: Limits, counters: Counters, log: RateLimitedLog, used: Callable[[], int] = used_bytes
    ) -> None:
        self._connections_max: Final = limits.connections_max
        self._files_reserved: Final = limits.files_reserved
        self._memory_max: Final = memory_bytes_max(limits)
        self._counters: Final = counters
        self._log: Final = log
        self._used_bytes: Final = used
        self._files_max = 0
        self.is_memory_full = False
        self.memory_bytes = 0
        self._trimmed_bytes = 0  # in use when freed memory was last given back
        self._ended = 0  # connections since then
        self._refused_for_files = 0
        self._refused_for_memory = 0
        self._clients_ended = 0  # those that had most messages when the memory was full
        counters.others.append(self.counts)
        self.look()

    def look(self) -> None:
        """Find out how many files and how much memory the process may use and uses; once a tick."""
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._files_max = max(files - self._files_reserved, files // 2) if files != resource.RLIM_INFINITY else 1 << 62
        self.memory_bytes = self._used_bytes()
        is_full = self.memory_bytes >= (self._relief_bytes() if self.is_memory_full else self._memory_max)
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

    def must_give_back(self) -> bool:
        """Whether memory that was freed may be a good part of what is in use."""
        if self.memory_bytes >= self._relief_bytes():
            return True
        return self._ended >= TRIM_ENDED_MIN and self.memory_bytes >= self._trimmed_bytes + TRIM_BYTES_MIN

    def gave_back(self) -> None:
        """Freed memory was given back."""
        self.look()
        self._ended = 0
        self._trimmed_bytes = self.memory_bytes

    def connection_ended(self) -> None:
        """The memory of a connection was freed."""
        self._ended += 1

    def client_ended(self) -> None:
        """A client with many messages is disconnected, since the memory is full."""
        self._clients_ended += 1

    def excess_bytes(self) -> int:
        """How much less would have to be in use for connections to be accepted again."""
        return self.memory_bytes - self._relief_bytes()

    def _relief_bytes(self) -> int:
        numerator, denominator = RELIEF_PART
        return self._memory_max * numerator // denominator

    def has_room(self, connections: int, transport: ByteTransport) -> bool:
        """Whether there is room for one more connection than these streams; if not, it is counted and logged."""
        if connections >= self._connections_max:
            reason = "limits.connections_max is reached"
        elif file_number(transport) >= self._files_max:
            self._refused_for_files += 1
            reason = "the remaining files are kept for the store (limits.files_reserved)"
        elif self.is_memory_refusal():
            reason = "limits.memory_bytes_max is reached"
        else:
            return True
        self._counters.refuse_connection(ReasonCode.SERVER_BUSY)
        self._log.log(logging.WARNING, "a new connection was closed: %s", reason)
        return False

    def is_memory_refusal(self) -> bool:
        """Whether the memory has no room for one more client; if so, that is counted."""
        if self.is_memory_full:
            self._refused_for_memory += 1
        return self.is_memory_full

    def counts(self) -> dict[str, int]:
        """For `$SYS/broker/`."""
        return {
            "connections/refused/files": self._refused_for_files,
            "connections/refused/memory": self._refused_for_memory,
            "memory/bytes": self.memory_bytes,
            "memory/bytes-max": self._memory_max,
            "memory/clients-ended": self._clients_ended,
        }
