"""What a retained publish costs the state: `python -m bench.state_cost [--before PATH] [--only CASE] [--rounds N]`.

Applies groups of retained publishes to a state in a directory of its own, as the committer does, without a server and
without a log. Each case runs in a process of its own, `--rounds` times, in turn with the source tree at `--before`; the
figures are medians. `us` is the CPU time of all threads for a publish, RocksDB's flushes and merges included, `thread`
that of the thread that applies, `database` the part of that in calls that write to RocksDB, `bytes` the resident memory
a topic has added. Cases with readers also print the longest CPU time that a read and a group took.
"""

import argparse
import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Final

from rocksdict import Rdict, WriteBatch, WriteOptions

from embermq.store.rows import RETAIN_FLAG, Group, Kind
from embermq.store.state.changes import OFFSET_MAX
from embermq.store.state.rocks import open_database
from embermq.store.state.state import State, StateSettings

PAYLOAD: Final = bytes(100)
GROUP_RECORDS: Final = 500
FIRST_US: Final = 1_700_000_000_000_000
CLIENT_ID: Final = b"publisher"
HOT_TOPICS: Final = 1_000
HOT_WRITES: Final = 1_000_000
RANDOM_TOPICS: Final = 200_000
RANDOM_WRITES: Final = 600_000
DISTINCT_TOPICS: Final = 1_000_000
READ_TOPICS: Final = 50_000
READ_WRITES: Final = 200_000
READ_EVERY: Final = 20  # groups
READ_LIMIT: Final = 500

Figures = dict[str, float]


class TimedDatabase:
    """A database that adds up the time of its writes; everything else is passed on."""

    def __init__(self) -> None:
        self.write_s = 0.0

    def open(self, directory: Path) -> Rdict:
        real = open_database(directory)
        timed = self

        class Timed:
            def __getattr__(self, name: str) -> object:
                return getattr(real, name)

            def write(self, batch: WriteBatch, options: WriteOptions) -> None:
                begun_s = time.thread_time()
                real.write(batch, options)
                timed.write_s += time.thread_time() - begun_s

        return Timed()  # type: ignore[return-value]  # has all that the state asks for


class Writer:
    """Applies groups as the committer does."""

    def __init__(self, directory: Path, topics: list[bytes]) -> None:
        self.database = TimedDatabase()
        self.state = State(directory, (), StateSettings(open_database=self.database.open))
        self.topics = topics
        self.offset = 1
        self.group_s_max = 0.0
        self.groups = 0

    def write(self, numbers: list[int], after_group: Callable[[], None] | None = None) -> Figures:
        """Publish to these topics, and what it cost."""
        groups_s = thread_s = 0.0
        database_s = self.database.write_s
        for at in range(0, len(numbers), GROUP_RECORDS):
            group = Group(self.offset)
            for number in numbers[at : at + GROUP_RECORDS]:
                timestamp_us = FIRST_US + self.offset
                # A topic as it comes from the wire: an object of its own.
                topic = bytes(bytearray(self.topics[number]))
                group.append(
                    timestamp_us, int(Kind.PUBLISH), RETAIN_FLAG | 1, topic, bytes(bytearray(PAYLOAD)), CLIENT_ID
                )
            self.offset += len(group)
            begun_s, thread_begun_s = time.process_time(), time.thread_time()
            self.state.apply(group)
            if self.state.wants_flush():
                self.state.flush(wait=False)
            self.group_s_max = max(self.group_s_max, time.thread_time() - thread_begun_s)
            if after_group is not None:
                after_group()
            groups_s += time.process_time() - begun_s
            thread_s += time.thread_time() - thread_begun_s
            self.groups += 1
        return {
            "us": groups_s * 1e6 / len(numbers),
            "thread": thread_s * 1e6 / len(numbers),
            "database": (self.database.write_s - database_s) * 1e6 / len(numbers),
        }

    def close(self) -> float:
        """CPU time of what was left to be written."""
        begun_s = time.process_time()
        self.state.close()
        return time.process_time() - begun_s


def topic_names(count: int) -> list[bytes]:
    return [b"site/%03d/line/%d/sensor/%07d" % (number % 500, number % 7, number) for number in range(count)]


def hot(directory: Path) -> Figures:
    """A thousand topics, again and again."""
    writer = Writer(directory, topic_names(HOT_TOPICS))
    rng = Random(1)
    found = writer.write([rng.randrange(HOT_TOPICS) for _ in range(HOT_WRITES)])
    found["us"] += writer.close() * 1e6 / HOT_WRITES
    return found


def at_random(directory: Path) -> Figures:
    """200,000 topics in random order, each of which has a message."""
    writer = Writer(directory, topic_names(RANDOM_TOPICS))
    writer.write(list(range(RANDOM_TOPICS)))
    rng = Random(2)
    found = writer.write([rng.randrange(RANDOM_TOPICS) for _ in range(RANDOM_WRITES)])
    found["us"] += writer.close() * 1e6 / RANDOM_WRITES
    return found


def distinct(directory: Path) -> Figures:
    """A million topics, each written once."""
    writer = Writer(directory, topic_names(DISTINCT_TOPICS))
    writer.write(list(range(1_000)))
    before_bytes = resident_bytes()
    found = writer.write(list(range(1_000, DISTINCT_TOPICS)))
    found["bytes"] = (resident_bytes() - before_bytes) / (DISTINCT_TOPICS - 1_000)
    found["us"] += writer.close() * 1e6 / DISTINCT_TOPICS
    return found


def with_readers(read: Callable[[Writer, Random], int]) -> Callable[[Path], Figures]:
    def run(directory: Path) -> Figures:
        writer = Writer(directory, topic_names(READ_TOPICS))
        writer.write(list(range(READ_TOPICS)))
        rng = Random(3)
        numbers = [rng.randrange(READ_TOPICS) for _ in range(READ_WRITES)]
        writer.group_s_max = 0.0
        reads = 0
        reads_s: list[float] = []

        def after_group() -> None:
            nonlocal reads
            if writer.groups % READ_EVERY == 0:
                begun_s = time.thread_time()
                reads += read(writer, rng)
                reads_s.append(time.thread_time() - begun_s)

        found = writer.write(numbers, after_group)
        found["us"] += writer.close() * 1e6 / READ_WRITES
        assert reads > 0
        return found | {"read_ms": max(reads_s) * 1000, "group_ms": writer.group_s_max * 1000}

    return run


def scan(writer: Writer, rng: Random) -> int:
    """One piece of what `site/N/#` matches, one of what `+/N/line/+/#` does, and one topic."""
    number = rng.randrange(500)
    retained = writer.state.retained
    found = len(retained.piece(f"site/{number:03d}/#", "", READ_LIMIT, 1 << 20, 1_000))
    found += len(retained.piece(f"+/{number:03d}/line/+/#", "", READ_LIMIT, 1 << 20, 1_000))
    return found + int(retained.get(writer.topics[rng.randrange(READ_TOPICS)].decode()) is not None)


def as_of(writer: Writer, rng: Random) -> int:
    """What `site/N/#` matched at an instant of the past."""
    instant_us = FIRST_US + rng.randrange(READ_TOPICS, writer.offset)
    topic_filter = f"site/{rng.randrange(500):03d}/#"
    return len(writer.state.history.changes_as_of(topic_filter, b"", instant_us, OFFSET_MAX, READ_LIMIT).changes)


CASES: Final[dict[str, Callable[[Path], Figures]]] = {
    "hot": hot,
    "random": at_random,
    "distinct": distinct,
    "scans": with_readers(scan),
    "as-of": with_readers(as_of),
}


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def measured(case: str, tree: Path, scratch: Path) -> Figures:
    """One case in a process of its own, with the sources of a tree."""
    environment = os.environ | {"PYTHONPATH": str(tree / "src")}
    with tempfile.TemporaryDirectory(dir=scratch) as directory:
        command = [sys.executable, __file__, "--run", case, "--directory", directory]
        answer = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE).stdout
    found: Figures = json.loads(answer)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", type=Path, help="another source tree, measured in turn with this one")
    parser.add_argument("--only", choices=CASES, action="append")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--directory", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--run", choices=CASES, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.run:
        gc.freeze()
        gc.set_threshold(50_000, 20, 50)  # as `ember serve` does
        print(json.dumps(CASES[given.run](given.directory)))
        return
    trees = {"now": Path(__file__).resolve().parent.parent}
    if given.before is not None:
        trees["before"] = given.before
    for case in given.only or CASES:
        found: dict[str, list[Figures]] = {name: [] for name in trees}
        for _ in range(given.rounds):
            for name, tree in trees.items():
                found[name].append(measured(case, tree, given.directory))
        for name, rounds in found.items():
            medians = [f"{key} {statistics.median(each[key] for each in rounds):.2f}" for key in rounds[0]]
            print(f"{case:9} {name:7} {', '.join(medians)}", flush=True)


if __name__ == "__main__":
    main()
