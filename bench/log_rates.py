"""`python -m bench.log_rates`: how fast the log is written and read, by the number of records in a commit.

Owns: the figures on the log alone, without a broker. Payloads of 40 bytes, topics of about 16.
Never: a judgement on a figure. Processor time stands beside the clock's: a busy machine stretches only that.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from embermq.store.log.reader import LogReader
from embermq.store.log.writer import Log
from embermq.store.rows import RETAIN_FLAG, Group, Kind

RECORDS_PER_COMMIT: Final = (1, 10, 100, 1000)
NOW_US: Final = 1_700_000_000_000_000


def groups(first_offset: int, records: int, per_commit: int) -> list[Group]:
    """Records of a thousand devices, in groups."""
    made: list[Group] = []
    group = Group(first_offset)
    for number in range(records):
        offset = first_offset + number
        topic = b"plant/line/%04d" % (offset % 1000)
        group.append(
            NOW_US + offset, Kind.PUBLISH, 1 | RETAIN_FLAG, topic, b"%040d" % offset, b"device-%d" % (offset % 50)
        )
        if len(group) == per_commit:
            made.append(group)
            group = Group(offset + 1)
    return made


def rates(work: Callable[[], int]) -> tuple[float, float]:
    """Records a second by the clock, and by processor time."""
    wall, processor = time.perf_counter(), time.process_time()
    records = work()
    return records / (time.perf_counter() - wall), records / (time.process_time() - processor)


def write(directory: Path, records: int, per_commit: int, sync: bool) -> tuple[float, float]:
    log = Log(directory, segment_bytes=128 << 20, segment_age_s=3600, sync=sync)
    made = groups(1, records, per_commit)

    def append() -> int:
        for group in made:
            log.append(group, NOW_US)
        return log.next_offset - 1

    measured = rates(append)
    log.close()
    return measured


def read(directory: Path, verify: bool) -> tuple[float, float]:
    reader = LogReader(directory, verify=verify)
    return rates(lambda: sum(batch.num_rows for batch in reader.batches(1)))


def read_parquet(directory: Path) -> tuple[float, float]:
    """The same rows from a Parquet file, for scale."""
    path = directory / "same.parquet"
    pq.write_table(pa.Table.from_batches(LogReader(directory).batches(1)), path)
    file = pq.ParquetFile(path)
    return rates(lambda: sum(batch.num_rows for batch in file.iter_batches(10_000, use_threads=False)))


def look_up(directory: Path, records: int) -> tuple[float, float]:
    """Records by offset, one after another, as a queue is drained."""
    log = Log(directory, segment_bytes=128 << 20, segment_age_s=3600, sync=False)
    count = min(records, 50_000)
    measured = rates(lambda: sum(log.read(offset) is not None for offset in range(1, count + 1)))
    log.close()
    return measured


def shown(rate: tuple[float, float]) -> str:
    return f"{rate[0] / 1000:,.1f} / {rate[1] / 1000:,.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.log_rates", description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--records", type=int, default=200_000, help="records to read for each size of commit")
    parser.add_argument("--commits", type=int, default=1000, help="commits to write with a sync for each size")
    parser.add_argument("--directory", type=Path, help="where to write (default: the system's temporary directory)")
    arguments = parser.parse_args()
    table = Table("thousand records/s, by the clock / by processor time", *map(str, RECORDS_PER_COMMIT))
    rows: dict[str, list[str]] = {}

    def add(name: str, rate: tuple[float, float]) -> None:
        rows.setdefault(name, []).append(shown(rate))

    for per_commit in RECORDS_PER_COMMIT:
        with tempfile.TemporaryDirectory(dir=arguments.directory) as name:
            synced = min(arguments.commits * per_commit, arguments.records)
            add("write and sync", write(Path(name), synced, per_commit, sync=True))
        with tempfile.TemporaryDirectory(dir=arguments.directory) as name:
            directory = Path(name)
            add("write", write(directory, arguments.records, per_commit, sync=False))
            read(directory, verify=True)  # the first time warms the page cache
            add("read, checksums compared", read(directory, verify=True))
            add("read, checksums not compared", read(directory, verify=False))
            add("read the same from Parquet", read_parquet(directory))
            add("look up by offset, in order", look_up(directory, arguments.records))
    for name, cells in rows.items():
        table.add_row(name, *cells)
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
