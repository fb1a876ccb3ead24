"""Scenarios of what is kept: retained messages by the million, restarts, an offline session's queue.

Owns: the order in which a million retained messages are written, read, and survived.
Never: a broker's settings; `servers` says that these run on the disk, with every limit as it is by default.
"""

import signal
import socket
import time
from collections.abc import Iterator
from typing import Final

import numpy as np

from bench import packets
from bench.figures import Figures, Metric
from bench.load import open_client, read_exactly
from bench.packets import Shape
from bench.queue_drain import drain
from bench.retained_load import PAYLOAD_BYTES, numbered_frames, read_all, wait_until_idle, write, write_steadily
from bench.scenario import Scale, Scenario, Step
from bench.servers import Server

FEW: Final = 1_000
LOOKUPS: Final = 1_000
UPDATED: Final = 10_000
READS: Final = 5
STEADY_WRITES: Final = 500_000  # enough that the merging of a store is in them in proportion, not by chance
LOAD_S_MAX: Final = 600.0
READ_S_MAX: Final = 300.0
MIB: Final = 2**20


def acknowledged_writes(publishers: int) -> Step:
    def run(server: Server, scale: Scale) -> Iterator[Figures]:
        """Ten thousand topics, each publisher its own part of them, over and over."""
        parts = np.array_split(np.arange(UPDATED), publishers)
        window = scale.window_for(publishers, 1)
        result = write(server, [numbered_frames(part) for part in parts], window, scale.seconds)
        yield {"rate": result.rate, "cpu_us": result.broker_cpu_us}

    return run


def a_million(server: Server, scale: Scale) -> Iterator[Figures]:
    count = scale.retained
    random = np.random.default_rng(7)
    steady = min(STEADY_WRITES, count)

    few = numbered_frames(np.arange(min(FEW, count)))
    write(server, [few], scale.window, LOAD_S_MAX, each_once=True)
    resident = server.resident_bytes()
    at_few = write_steadily(server, few[at_random(random, len(few), steady)], scale.window, LOAD_S_MAX)
    yield {"few_us": 1e6 / at_few.rate, "few_cpu_us": at_few.broker_cpu_us}

    everything = numbered_frames(np.arange(count))
    loaded = write(server, [everything], scale.window, LOAD_S_MAX, each_once=True)
    yield {"load_rate": loaded.rate, "grown_mib": (server.resident_bytes() - resident) / MIB}

    at_many = write_steadily(server, everything[at_random(random, count, steady)], scale.window, LOAD_S_MAX)
    yield {
        "many_us": 1e6 / at_many.rate,
        "many_cpu_us": at_many.broker_cpu_us,
        "slower": at_few.rate / at_many.rate,
        # The target is a ratio of CPU: other work on the machine during the first half makes the elapsed one too low.
        "slower_cpu": at_many.broker_cpu_us / at_few.broker_cpu_us,
    }
    del everything

    latency_us = look_up(server, random.choice(count, min(LOOKUPS, count), replace=False))
    yield {"exact_p50_us": float(np.percentile(latency_us, 50)), "exact_p99_us": float(np.percentile(latency_us, 99))}

    for qos in (0, 1):
        whole = read_all(server, "#", qos, count, 1, READ_S_MAX)
        yield {
            f"all_qos{qos}": whole.distinct,
            f"all_qos{qos}_missing": count - whole.distinct,
            f"all_qos{qos}_unmarked": whole.unmarked,
            f"all_qos{qos}_s": whole.seconds,
        }

    resident = server.resident_bytes()
    together = read_all(server, "#", 1, count, scale.readers, READ_S_MAX)
    yield {
        "readers_complete": together.complete,
        "readers_grown_mib": (together.resident_bytes_max - resident) / MIB,
        "readers_s": together.seconds,
    }

    server.stop(signal.SIGTERM)
    yield {"clean_restart_s": server.start()}
    yield after_kill(server, scale)


def read_everything(server: Server, scale: Scale) -> Iterator[Figures]:
    """Many retained messages, and one subscriber to `#` after the other."""
    count = scale.retained
    write(server, [numbered_frames(np.arange(count))], scale.window, LOAD_S_MAX, each_once=True)
    wait_until_idle(server)
    for _ in range(READS):
        for qos in (0, 1):
            whole = read_all(server, "#", qos, count, 1, READ_S_MAX)
            wait_until_idle(server)  # it may still forget the reader that has left, on the core of the next broker
            yield {f"qos{qos}_rate": whole.distinct / whole.seconds, f"qos{qos}_missing": count - whole.distinct}


def at_random(random: np.random.Generator, topics: int, writes: int) -> np.typing.NDArray[np.int64]:
    """Each topic before any of them again: with one twice in a window, a broker could do less for it."""
    return np.concatenate([random.permutation(topics) for _ in range(-(-writes // topics))])[:writes]


def after_kill(server: Server, scale: Scale) -> Figures:
    """Acknowledged updates, `kill -9`, and what is there after the start."""
    count = scale.retained
    changed = np.arange(min(UPDATED, count))
    write(server, [numbered_frames(changed, add=count)], scale.window, LOAD_S_MAX, each_once=True)
    server.stop(signal.SIGKILL)
    restart_s = server.start()
    kept = read_all(server, "#", 0, count, 1, READ_S_MAX)
    return {
        "kill_restart_s": restart_s,
        "kill_kept": kept.distinct,
        "kill_lost": len(changed) - int(np.count_nonzero(kept.numbers[changed] == changed + count)),
    }


def look_up(server: Server, indexes: np.typing.NDArray[np.int64]) -> np.typing.NDArray[np.float64]:
    """From SUBSCRIBE of one exact topic to its retained message and the SUBACK, one after the other."""
    owed_bytes = Shape(0, PAYLOAD_BYTES).size + 5
    taken_us = []
    sock = open_client(server.port, "reader")
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with sock:
        for index in indexes:
            request = packets.subscribe([packets.topic_name(int(index))], 0)
            begun = time.perf_counter()
            sock.sendall(request)
            read_exactly(sock, owed_bytes)
            taken_us.append((time.perf_counter() - begun) * 1e6)
    return np.array(taken_us)


def offline_queue(server: Server, scale: Scale) -> Iterator[Figures]:
    result = drain(server, scale.queued, scale.window)
    yield {
        "drained": result.received,
        "lost": scale.queued - result.received,
        "disorder": result.out_of_order,
        "seconds": result.seconds,
        "rate": result.received / max(result.seconds, 1e-9),
    }


WRITES: Final = (
    Metric("rate", "acknowledged", "messages/s", "more", ratio=2.0, memory_ratio=3.0),
    Metric("cpu_us", "broker CPU", "us/message", "less"),
)

SCENARIOS: tuple[Scenario, ...] = (
    *(
        Scenario(
            name=f"retained-write-{publishers}",
            title=f"retained publishes, QoS 1, {publishers} publisher{'s' * (publishers > 1)}",
            metrics=WRITES,
            run=acknowledged_writes(publishers),
            store="disk",
            memory_too=True,
        )
        for publishers in (1, 50)
    ),
    Scenario(
        name="retained-all",
        title="`#` over a million retained messages",
        metrics=(
            Metric("qos0_rate", "at QoS 0", "messages/s", "more", ratio=4.0),
            Metric("qos0_missing", "at QoS 0 missing", "topics", "zero"),
            Metric("qos1_rate", "at QoS 1", "messages/s", "more", ratio=3.0),
            Metric("qos1_missing", "at QoS 1 missing", "topics", "zero"),
        ),
        run=read_everything,
        store="disk",
        tuned=True,
        fresh=True,
        rounds_max=1,
    ),
    Scenario(
        name="retained-million",
        title="a million retained messages of 100 bytes",
        metrics=(
            Metric("few_us", "time of a write at 1,000 topics", "us", "less"),
            Metric("many_us", "time of a write at all topics", "us", "less"),
            Metric("slower", "write at all / at 1,000, elapsed", "times", "less"),
            Metric("slower_cpu", "write at all / at 1,000, CPU", "times", "less", value=1.5),
            Metric("few_cpu_us", "CPU of a write at 1,000", "us", "less"),
            Metric("many_cpu_us", "CPU of a write at all", "us", "less"),
            Metric("load_rate", "first writes of all topics", "messages/s", "more"),
            Metric("grown_mib", "resident memory grown", "MiB", "less", value=95.4),
            Metric("exact_p50_us", "exact subscribe p50", "us", "less"),
            Metric("exact_p99_us", "exact subscribe p99", "us", "less"),
            Metric("all_qos0", "`#` at QoS 0 delivered", "topics", "more"),
            Metric("all_qos0_missing", "`#` at QoS 0 missing", "topics", "zero"),
            Metric("all_qos0_unmarked", "`#` at QoS 0 without RETAIN", "messages", "zero"),
            Metric("all_qos0_s", "`#` at QoS 0 took", "s"),
            Metric("all_qos1", "`#` at QoS 1 delivered", "topics", "more"),
            Metric("all_qos1_missing", "`#` at QoS 1 missing", "topics", "zero"),
            Metric("all_qos1_unmarked", "`#` at QoS 1 without RETAIN", "messages", "zero"),
            Metric("all_qos1_s", "`#` at QoS 1 took", "s"),
            Metric("readers_complete", "10 readers of `#`: got all", "readers", "more"),
            Metric("readers_grown_mib", "10 readers of `#`: memory grown", "MiB", "less"),
            Metric("readers_s", "10 readers of `#`: took", "s"),
            Metric("clean_restart_s", "start after SIGTERM", "s", "less"),
            Metric("kill_restart_s", "start after kill -9", "s", "less", value=1.0),
            Metric("kill_kept", "kept over kill -9", "topics", "more"),
            Metric("kill_lost", "acknowledged, lost by kill -9", "messages of 10,000", "zero"),
        ),
        run=a_million,
        store="disk",
        fresh=True,
        rounds_max=1,
    ),
    Scenario(
        name="queue",
        title="an offline session's queue of 50,000, QoS 1",
        metrics=(
            Metric("drained", "drained", "messages", "more"),
            Metric("lost", "lost", "messages", "zero"),
            Metric("disorder", "out of order", "messages", "zero"),
            Metric("rate", "drained", "messages/s", "more", ratio=3.0),
            Metric("seconds", "took", "s"),
        ),
        run=offline_queue,
        store="disk",
        tuned=True,
        fresh=True,
    ),
)
