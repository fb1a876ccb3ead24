"""The same scan of the log from its directory, its archive (a directory, and S3), and its server, in one run.

`python -m bench.spark_rates --only places`. The S3 server is moto's, in Python, in a process of its own, which bounds
what can be had from it.
"""

import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench.spark_rates import SCAN_WARM_UP_ROUNDS, compare, line, message_columns, scratch, write_log
from embermq.access.tokens import write_token
from embermq.archive.address import parse_address
from embermq.archive.objects import Objects
from embermq.archive.writer import ArchiveWriter
from embermq.store.log.identity import log_identity
from embermq.store.log.reader import LogReader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BUCKET: Final = "bench"
TARGET: Final = 0.6


def bench_places(spark: "SparkSession", rows: int, rounds: int, warm_up: int = SCAN_WARM_UP_ROUNDS) -> None:
    """Every column of the closed segments aggregated, from each place; the server has the last segment too."""
    from pyspark.sql import functions as F

    totals = [F.max("offset"), F.max("timestamp"), F.sum(F.length("topic")), F.sum(F.length("payload")), F.sum("qos")]
    totals += [F.count_if("retain"), F.max("client_id"), F.count("expiry"), F.count("user_properties")]
    with scratch() as directory, s3() as query:
        data = directory / "data"
        write_log(data, rows, 100_000, 100, segment_bytes=32 << 20)
        addresses = {"archive, directory": str(directory / "archive"), "archive, S3": f"s3://{BUCKET}/log?{query}"}
        end = 0
        for address in addresses.values():
            end = upload(data / "log", address)
        places = {"directory": {"path": str(data)}} | {name: {"path": text} for name, text in addresses.items()}
        with server(directory, data) as options:
            places["server"] = options

            def scan(name: str) -> object:
                reader = spark.read.format("embermq").schema(message_columns()).options(**places[name])
                return reader.option("kinds", "publish").option("endingOffsets", end).load().agg(*totals).collect()

            found = {name: scan(name) for name in places}
            assert len({str(answer) for answer in found.values()}) == 1, f"the answers differ: {found}"
            works = [partial(scan, name) for name in places]
            seconds = dict(zip(places, compare(rounds, *works, warm_up=warm_up), strict=True))
        count = end - 1
        for name, took_s in seconds.items():
            if name != "directory":
                said = f"{count / took_s:,.0f} rows/s, directory {count / seconds['directory']:,.0f}"
                line(f"scan from {name}", said, seconds["directory"] / took_s, TARGET)


def upload(log: Path, address: str) -> int:
    """Upload the closed segments; the offset after them."""
    writer = ArchiveWriter(Objects(parse_address(address)), log_identity(log))
    writer.claim()
    reader = LogReader(log)
    for info in reader.segments()[:-1]:
        writer.upload_segment(info, reader.entries(info.first_offset, info.blocks))
    return writer.archive.bounds()[1]


@contextmanager
def server(directory: Path, data: Path) -> Iterator[dict[str, str]]:
    """A real server on the data directory; the options of the source for it."""
    token, port = write_token(directory / "tokens", "bench", "viewer"), free_port()
    command = [sys.executable, "-m", "embermq", "serve", "--port", "0", "--data", str(data), "--http-port", str(port)]
    environment = {"EMBERMQ_HTTP__TOKEN_FILE": str(directory / "tokens")}
    with running(command, environment) as process:
        assert process.stdout is not None
        for said in process.stdout:
            if re.fullmatch("ready\n", said):
                break
        yield {"server": f"http://127.0.0.1:{port}", "token": token}


@contextmanager
def s3() -> Iterator[str]:
    """moto's server with an empty bucket; the query that an address needs."""
    port = free_port()
    os.environ.setdefault("AWS_ACCESS_KEY_ID", "bench")
    os.environ.setdefault("AWS_SECRET_ACCESS_KEY", "bench")
    command = [sys.executable, "-c", "import sys; from moto.server import main; main(sys.argv[1:])", "-p", str(port)]
    with running(command, {}):
        request = urllib.request.Request(f"http://127.0.0.1:{port}/{BUCKET}", method="PUT")
        for _ in range(600):
            with suppress(OSError), urllib.request.urlopen(request, timeout=10):
                break
            time.sleep(0.1)
        yield f"endpoint_override=127.0.0.1:{port}&scheme=http&region=us-east-1"


@contextmanager
def running(command: list[str], environment: dict[str, str]) -> Iterator["subprocess.Popen[str]"]:
    process = subprocess.Popen(
        command, env={**os.environ, **environment}, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        yield process
    finally:
        process.terminate()
        process.communicate(timeout=60)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
