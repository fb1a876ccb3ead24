"""Scenarios of messages on the move: floods, paced load, ten thousand subscriptions.

Owns: who publishes what to whom, and the targets of EmberMQ.
Never: anything retained (`retained_scenarios`) or about connections themselves (`connection_scenarios`).
"""

from collections.abc import Iterator

import numpy as np

from bench import packets
from bench.figures import Figures, Metric
from bench.flood import Flood, flood, open_traffic
from bench.paced import paced
from bench.packets import Shape
from bench.scenario import Scale, Scenario, Step
from bench.servers import Server
from bench.wires import Wire

ALL_TOPICS = "plant/+/unit/+"
FAN = 50

# Times the rate of Mosquitto, by publishers, subscribers and QoS: as EmberMQ starts by default, and with `--memory`.
FLOOD_TARGETS = {
    (1, 1, 0): (8.0, 12.0),
    (1, 1, 1): (5.0, 8.0),
    (1, 1, 2): (7.0, 12.0),
    (1, FAN, 0): (30.0, 35.0),
    (FAN, 1, 1): (4.0, 6.0),
}
# Times the CPU of a message, by messages a second and QoS.
PACED_TARGETS = {
    (1_000, 1): (1.5, None),
    (4_000, 0): (1.2, 1.1),
    (4_000, 1): (1.5, 1.2),
    (10_000, 0): (1.0, 1.0),
    (10_000, 1): (1.3, 1.0),
}
PACED = tuple((rate, qos) for rate in (1_000, 4_000, 10_000) for qos in (0, 1, 2))
# The median time to delivery in microseconds, by messages a second and QoS, on a disk that syncs in 0.25 ms.
LATENCY_TARGETS = {(1_000, 1): 1_000.0, (4_000, 1): 1_000.0}
NO_TARGET = (None, None)


def flood_metrics(ratio: float | None, memory_ratio: float | None) -> tuple[Metric, ...]:
    return (
        Metric("rate", "delivered", "messages/s", "more", ratio, memory_ratio=memory_ratio),
        Metric("cpu_us", "broker CPU", "us/message", "less"),
        Metric("broker_busy", "broker busy", "of a core"),
        Metric("broker_waited", "broker ready but without a core", "of a core"),
        Metric("generator_busy", "generator busy", "of a core"),
        Metric("lost", "lost", "messages", "zero"),
    )


def flood_figures(result: Flood) -> Figures:
    return {
        "rate": result.rate,
        "cpu_us": result.broker_cpu_us,
        "broker_busy": result.broker_cpu_s / result.seconds,
        "broker_waited": result.broker_waited_s / result.seconds,
        "generator_busy": result.generator_cpu_s / result.seconds,
        "lost": result.lost,
    }


def flood_step(qos: int, publishers: int, subscribers: int, wire: Wire = "tcp") -> Step:
    def run(server: Server, scale: Scale) -> Iterator[Figures]:
        names = [packets.topic_name(index) for index in range(publishers)]
        filters = names if publishers == 1 else [ALL_TOPICS]
        window = scale.window_for(publishers, qos)
        port = server.port if wire == "tcp" else server.wire_port
        traffic = open_traffic(
            port, Shape(qos), [[name] for name in names], [filters] * subscribers, subscribers, window, wire=wire
        )
        yield flood_figures(flood(server, traffic, scale.seconds))

    return run


def into_nothing(server: Server, scale: Scale) -> Iterator[Figures]:
    """One publisher into a server that only reads; the sink is told apart from a broker by having no subscriber."""
    traffic = open_traffic(server.port, Shape(0), [[packets.topic_name(0)]], [], 0, scale.window)
    try:
        taken = traffic.run(scale.seconds)
        yield {"rate": traffic.published / taken}
    finally:
        traffic.close()


def generator_scenarios() -> Iterator[Scenario]:
    """The same floods through the sink, which copies bytes: how much faster than a broker the generator is."""
    yield Scenario(
        name="generator-send",
        title="generator alone: into a sink",
        metrics=(Metric("rate", "sent", "messages/s"),),
        run=into_nothing,
        store="sink",
    )
    for qos in (0, 1):
        for publishers, subscribers in ((1, 1), (FAN, 1), (1, FAN)):
            yield Scenario(
                name=f"generator-{publishers}-{subscribers}-qos{qos}",
                title=f"generator alone: {publishers}->{subscribers} through a sink, QoS {qos}",
                metrics=(Metric("rate", "delivered", "messages/s"), Metric("lost", "lost", "messages")),
                run=flood_step(qos, publishers, subscribers),
                store="sink",
            )


def flood_scenario(qos: int, publishers: int, subscribers: int) -> Scenario:
    return Scenario(
        name=f"flood-{publishers}-{subscribers}-qos{qos}",
        title=f"flood {publishers}->{subscribers}, QoS {qos}",
        metrics=flood_metrics(*FLOOD_TARGETS.get((publishers, subscribers, qos), NO_TARGET)),
        run=flood_step(qos, publishers, subscribers),
        with_peers=True,
    )


def wire_scenario(wire: Wire) -> Scenario:
    return Scenario(
        name=f"flood-{wire}-qos0",
        title=f"flood 1->1, QoS 0, {'TLS' if wire == 'tls' else 'WebSocket'}",
        metrics=flood_metrics(*NO_TARGET),
        run=flood_step(0, 1, 1, wire),
        wire=wire,
    )


def paced_step(qos: int, rate: int) -> Step:
    def run(server: Server, scale: Scale) -> Iterator[Figures]:
        result = paced(server, qos, scale.paced_publishers, rate, scale.paced_seconds)
        yield {
            "p50_us": float(np.percentile(result.latency_us, 50)),
            "p99_us": float(np.percentile(result.latency_us, 99)),
            "cpu_us": result.broker_cpu_us,
            "lag_p99_us": float(np.percentile(result.lag_us, 99)),
            "lost": result.lost,
        }

    return run


def paced_scenario(qos: int, rate: int) -> Scenario:
    ratio, memory_ratio = PACED_TARGETS.get((rate, qos), NO_TARGET)
    return Scenario(
        name=f"paced-{rate}-qos{qos}",
        title=f"paced, 200 publishers, {rate:,} messages/s, QoS {qos}",
        metrics=(
            Metric("cpu_us", "broker CPU", "us/message", "less", ratio, memory_ratio=memory_ratio),
            Metric("p50_us", "latency p50", "us", "less", value=LATENCY_TARGETS.get((rate, qos))),
            Metric("p99_us", "latency p99", "us", "less"),
            Metric("lag_p99_us", "generator late p99", "us"),
            Metric("lost", "lost", "messages", "zero"),
        ),
        run=paced_step(qos, rate),
        with_peers=True,
    )


def many_subscriptions(server: Server, scale: Scale) -> Iterator[Figures]:
    """Filters spread over a hundred clients, every second one with a wildcard; each message matches one."""
    names = [packets.topic_name(index) for index in range(scale.subscriptions)]
    holders = min(100, len(names))
    # The wildcard takes the place of "unit": it has to be matched, and still only one topic matches.
    filters = [name if index % 2 else name.replace("unit", "+") for index, name in enumerate(names)]
    order = np.random.default_rng(7).permutation(len(names))
    traffic = open_traffic(
        server.port,
        Shape(0),
        [[names[index] for index in order]],
        [filters[start::holders] for start in range(holders)],
        1,
        scale.window,
    )
    yield flood_figures(flood(server, traffic, scale.seconds))


SCENARIOS: tuple[Scenario, ...] = (
    *generator_scenarios(),
    *(flood_scenario(qos, *fan) for qos in (0, 1, 2) for fan in ((1, 1), (FAN, 1), (1, FAN))),
    wire_scenario("tls"),
    wire_scenario("websocket"),
    *(paced_scenario(qos, rate) for rate, qos in PACED),
    Scenario(
        name="subscriptions",
        title="publish over 10,000 subscriptions, QoS 0",
        metrics=flood_metrics(*NO_TARGET),
        run=many_subscriptions,
    ),
)
