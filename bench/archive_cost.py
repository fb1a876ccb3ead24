"""What uploading to an archive costs the broker: `python -m bench.archive_cost [--rate N] [--seconds S] [--rounds N]`.

Two servers on the disk get the same paced QoS 1 traffic in turn, round by round: one with an archive on an S3 server
(moto, a process of its own, with a CPU time of its own), one without. Segments are smaller than by default, so that
some are uploaded in each round; a round ends when all that is closed is uploaded.

It prints the CPU time of the threads that upload, as a part of the server's, and the difference of the two servers. The
first decides: the CPU time of one and the same server differs by 10 % and more from round to round, since it depends on
how many messages each turn and each sync happen to take together. The second would show a cost outside those threads,
given enough rounds; its standard error is printed with it.
"""

import argparse
import math
import os
import re
import statistics
import subprocess
import sys
import time
from contextlib import ExitStack
from typing import Final, NamedTuple

from pyarrow import fs

from bench.machine import pin, thread_seconds
from bench.paced import Paced, paced
from bench.servers import Server, ember, ember_path
from embermq.http.client import HttpClient

COST_MAX: Final = 0.03
UPLOADING: Final = ("ember-archive", "AwsEventLoop")
"""Threads of the uploads: that of the archive, with those that pyarrow starts for it, and those of Amazon's library."""
PUBLISHERS: Final = 50
BUCKET: Final = "bench"
SETTINGS: Final = """\
[store]
segment_bytes = {segment_bytes}
archive = "{archive}"
"""
S3_SERVER: Final = """
import threading
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
threading.Event().wait()
"""


def pending_bytes(server: Server) -> int:
    with HttpClient(server.data / "control.sock") as http:
        found = re.search(r"^embermq_archive_pending_bytes (\S+)", http.text("/metrics"), re.MULTILINE)
    assert found is not None
    return int(float(found[1]))


def uploaded_bytes(server: Server) -> int:
    with HttpClient(server.data / "control.sock") as http:
        found = re.search(r"^embermq_archive_uploaded_bytes_total (\S+)", http.text("/metrics"), re.MULTILINE)
    assert found is not None
    return int(float(found[1]))


class Round(NamedTuple):
    done: Paced
    cpu_s: float
    uploading_s: float


def measured(server: Server, rate: int, seconds: float, has_archive: bool) -> Round:
    """One round: the traffic, and the CPU time of the server until all is uploaded, without that of the questions."""
    before_s, uploading_before_s = server.cpu_seconds(), thread_seconds(server.pid, UPLOADING)
    done = paced(server, 1, PUBLISHERS, rate, seconds)
    time.sleep(1)  # for the last upload; the same for both
    cpu_s = server.cpu_seconds() - before_s
    while has_archive and pending_bytes(server):
        time.sleep(0.1)
    return Round(done, cpu_s, thread_seconds(server.pid, UPLOADING) - uploading_before_s)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=int, default=4_000)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--segment-bytes", type=int, default=8 << 20)
    given = parser.parse_args()
    path = ember_path()
    assert path is not None, "`ember` is not installed"
    environment = {"AWS_ACCESS_KEY_ID": "bench", "AWS_SECRET_ACCESS_KEY": "bench", "AWS_EC2_METADATA_DISABLED": "true"}
    os.environ.update(environment)
    with ExitStack() as stack:
        s3 = subprocess.Popen(
            [sys.executable, "-c", S3_SERVER], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        stack.callback(s3.wait)
        stack.callback(s3.kill)
        assert s3.stdout is not None
        query = f"endpoint_override=127.0.0.1:{int(s3.stdout.readline())}&scheme=http&region=us-east-1"
        filesystem, _ = fs.FileSystem.from_uri(f"s3://{BUCKET}?{query}&allow_bucket_creation=true")
        filesystem.create_dir(BUCKET)
        servers: dict[str, Server] = {}
        for name, archive in (("without", ""), ("with", f"s3://{BUCKET}/log?{query}")):
            settings = SETTINGS.format(segment_bytes=given.segment_bytes, archive=archive)
            servers[name] = stack.enter_context(ember(path, settings, True, pin(False), [], name))
        rounds: dict[str, list[Round]] = {name: [] for name in servers}
        for number in range(given.rounds):
            order = list(servers) if number % 2 else list(reversed(servers))
            for name in order:
                found = measured(servers[name], given.rate, given.seconds, name == "with")
                rounds[name].append(found)
                print(
                    f"round {number + 1}, {name:>7} an archive: {found.cpu_s:.2f} s of CPU,"
                    f" {found.uploading_s:.3f} s of them to upload, {found.done.lost} lost",
                    flush=True,
                )
        uploaded = uploaded_bytes(servers["with"])
    print(f"{uploaded / (1 << 20):.1f} MiB uploaded in segments of {given.segment_bytes:,} bytes")
    print(f"difference of the two servers: {difference(rounds['with'], rounds['without'])}")
    cpu_s = sum(each.cpu_s for each in rounds["with"])
    uploading_s = sum(each.uploading_s for each in rounds["with"])
    cost = uploading_s / (cpu_s - uploading_s)
    print(f"the threads that upload: {uploading_s:.2f} s beside {cpu_s - uploading_s:.2f} s of the broker: {cost:+.1%}")
    print("(met)" if cost < COST_MAX else "(missed)")


def difference(with_archive: list[Round], without: list[Round]) -> str:
    """In percent, as the mean of the rounds' own differences."""
    each = [
        (one.cpu_s / one.done.delivered) / (other.cpu_s / other.done.delivered) - 1
        for one, other in zip(with_archive, without, strict=True)
    ]
    error = statistics.stdev(each) / math.sqrt(len(each)) if len(each) > 1 else math.nan
    return f"{statistics.mean(each):+.1%}, standard error {error:.1%}"


if __name__ == "__main__":
    main()
