"""Scenarios of MQTT 5: what a message costs beside 3.1.1, and how evenly a share group is served.

Owns: both, with their targets for EmberMQ.
"""

from collections.abc import Iterator
from typing import Final

from bench import packets
from bench.figures import Figures, Metric
from bench.flood import Flood, flood, open_traffic
from bench.packets import Shape
from bench.scenario import Scale, Scenario
from bench.servers import Server
from bench.traffic_scenarios import ALL_TOPICS

MEMBERS: Final = 4
# Twice each, in this order: what slows the machine for a while slows both levels.
LEVELS: Final = (4, 5, 5, 4)


def one_flood(server: Server, scale: Scale, level: int) -> Flood:
    name = packets.topic_name(0)
    traffic = open_traffic(server.port, Shape(1, level=level), [[name]], [[name]], 1, scale.window)
    return flood(server, traffic, scale.seconds / 2)


def beside_311(server: Server, scale: Scale) -> Iterator[Figures]:
    """The same flood with both levels, on one server."""
    runs: dict[int, list[Flood]] = {4: [], 5: []}
    for level in LEVELS:
        runs[level].append(one_flood(server, scale, level))
    cpu_us = {
        level: sum(run.broker_cpu_s for run in done) * 1e6 / max(sum(run.delivered for run in done), 1)
        for level, done in runs.items()
    }
    yield {
        "cpu_us_311": cpu_us[4],
        "cpu_us_5": cpu_us[5],
        "cpu_ratio": cpu_us[5] / cpu_us[4],
        "rate_311": sum(run.rate for run in runs[4]) / 2,
        "rate_5": sum(run.rate for run in runs[5]) / 2,
        "lost": sum(run.lost for done in runs.values() for run in done),
    }


def share_group(server: Server, scale: Scale) -> Iterator[Figures]:
    """One publisher, four members of a group: how far the busiest and the idlest are apart, as a part of the mean."""
    shared = [f"$share/bench/{ALL_TOPICS}"]
    names = [packets.topic_name(index) for index in range(MEMBERS)]
    traffic = open_traffic(server.port, Shape(1, level=5), [names], [shared] * MEMBERS, 1, scale.window)
    result = flood(server, traffic, scale.seconds)
    counts = [subscriber.received for subscriber in traffic.subscribers]
    yield {
        "spread": (max(counts) - min(counts)) * MEMBERS / max(sum(counts), 1),
        "rate": result.rate,
        "cpu_us": result.broker_cpu_us,
        "lost": result.lost,
    }


SCENARIOS: tuple[Scenario, ...] = (
    Scenario(
        name="v5-flood-qos1",
        title="flood 1->1, QoS 1, MQTT 5 without properties beside 3.1.1",
        metrics=(
            Metric("cpu_ratio", "broker CPU, MQTT 5 to 3.1.1", "x", "less", value=1.15),
            Metric("cpu_us_311", "broker CPU with 3.1.1", "us/message", "less"),
            Metric("cpu_us_5", "broker CPU with MQTT 5", "us/message", "less"),
            Metric("rate_311", "delivered with 3.1.1", "messages/s", "more"),
            Metric("rate_5", "delivered with MQTT 5", "messages/s", "more"),
            Metric("lost", "lost", "messages", "zero"),
        ),
        run=beside_311,
    ),
    Scenario(
        name="share-group",
        title="share group of 4, QoS 1, MQTT 5",
        metrics=(
            Metric("spread", "busiest minus idlest member", "of the mean", "less", value=0.1),
            Metric("rate", "delivered", "messages/s", "more"),
            Metric("cpu_us", "broker CPU", "us/message", "less"),
            Metric("lost", "lost", "messages", "zero"),
        ),
        run=share_group,
    ),
)
