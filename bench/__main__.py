"""`python -m bench`: run the scenarios, EmberMQ and other servers in turn, and print one table.

Owns: the command line and the order of rounds.
Never: a measurement of its own.
"""

import argparse
import dataclasses
import fnmatch
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from rich.console import Console

from bench import connection_scenarios, peers, retained_scenarios, traffic_scenarios, v5_scenarios
from bench.figures import BEFORE, MEMORY, PEERS, Figures, Report, show
from bench.load import LoadFailed
from bench.machine import Cores, facts, pin, prioritise, raise_open_files
from bench.scenario import Scale, Scenario
from bench.servers import (
    MOSQUITTO_FLOOD,
    MOSQUITTO_STORE,
    BrokerFailed,
    Server,
    ember,
    ember_path,
    mosquitto,
    mosquitto_path,
    mosquitto_version,
    sink,
)

SCENARIOS: tuple[Scenario, ...] = (
    *traffic_scenarios.SCENARIOS,
    *v5_scenarios.SCENARIOS,
    *connection_scenarios.SCENARIOS,
    *retained_scenarios.SCENARIOS,
)

Factory = Callable[[Scenario], Server]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench", description="EmberMQ beside Mosquitto, in one interleaved run")
    parser.add_argument("--only", action="append", metavar="NAME", help="scenario name or pattern, may be repeated")
    parser.add_argument("--list", action="store_true", help="name the scenarios and end")
    parser.add_argument("--quick", action="store_true", help="small sizes, one round: does it work, not how fast")
    parser.add_argument("--rounds", type=int, help="rounds of each scenario (default 3, with --quick 1)")
    parser.add_argument(
        "--server",
        action="append",
        choices=["ember", "mosquitto", *PEERS],
        help="only this broker, may be repeated; without it all that are installed",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every value to a file")
    parser.add_argument("--no-pin", action="store_true", help="leave processes on any core")
    parser.add_argument("--nice", type=int, help="priority of generator and brokers on a machine that is not idle")
    parser.add_argument("--ember", metavar="PATH", help="the `ember` command to measure")
    parser.add_argument(
        "--before", metavar="PATH", help="another build's `ember` command, measured in turn with the first"
    )
    parser.add_argument(
        "--ember-store",
        choices=["both", "disk", "memory"],
        default="both",
        help="EmberMQ's store in the traffic scenarios: as it starts by default, with `--memory`, or both in turn",
    )
    parser.add_argument("--ember-arg", action="append", default=[], help="passed on to `ember serve`")
    for field in dataclasses.fields(Scale):
        kind = float if field.type is float or field.type == "float" else int
        parser.add_argument(f"--{field.name.replace('_', '-')}", type=kind, help=f"default {field.default}")
    return parser.parse_args()


def chosen_scale(options: argparse.Namespace) -> Scale:
    scale = Scale.quick() if options.quick else Scale()
    given = {field.name: getattr(options, field.name) for field in dataclasses.fields(Scale)}
    return dataclasses.replace(scale, **{name: value for name, value in given.items() if value is not None})


def factories(options: argparse.Namespace, cores: Cores, report: Report) -> dict[str, Factory]:
    wanted = options.server or ["ember", "mosquitto", *PEERS]
    found: dict[str, Factory] = {}
    if "ember" in wanted:
        ember_command = options.ember or ember_path()
        if ember_command is None:
            sys.exit("bench: the `ember` command is not installed; run `make setup`")

        def starting(command: str, name: str) -> Factory:
            def start_ember(scenario: Scenario) -> Server:
                in_memory = has_memory(scenario) and (options.ember_store == "memory" or name == MEMORY)
                return ember(command, "", not in_memory, cores, options.ember_arg, name, scenario.wire)

            return start_ember

        found["EmberMQ"] = starting(ember_command, "EmberMQ")
        if options.ember_store == "both" and not options.before:
            found[MEMORY] = starting(ember_command, MEMORY)
        if options.before:
            found[BEFORE] = starting(options.before, "before")
    if "mosquitto" in wanted:
        mosquitto_command = mosquitto_path()
        if mosquitto_command is None:
            report.note("Mosquitto is not installed: EmberMQ was measured alone, there are no ratios")
        else:

            def start_mosquitto(scenario: Scenario) -> Server:
                settings = MOSQUITTO_STORE if scenario.store == "disk" and not scenario.tuned else MOSQUITTO_FLOOD
                return mosquitto(mosquitto_command, settings, cores, scenario.wire)

            found["Mosquitto"] = start_mosquitto
    for name in peers.installed():
        if name in wanted:
            found[name] = partial(start_peer, name, cores)
    missing = [name for name in PEERS if name in wanted and name not in found]
    if missing:
        report.note(f"not installed, so not measured: {', '.join(missing)}")
    return found


def start_peer(name: str, cores: Cores, scenario: Scenario) -> Server:
    return peers.peer(name, cores)


def has_memory(scenario: Scenario) -> bool:
    """Whether EmberMQ is measured with `--memory`, too."""
    return scenario.store == "memory" or scenario.memory_too


def takes_part(name: str, scenario: Scenario) -> bool:
    if name == MEMORY:
        return has_memory(scenario)
    return scenario.with_peers or name not in PEERS


def measure(
    scenario: Scenario, scale: Scale, rounds: int, found: dict[str, Factory], report: Report, cores: Cores
) -> None:
    """Rounds of one scenario, the brokers in turn within each, so that both see the same weather."""
    rounds = min(rounds, scenario.rounds_max or rounds)
    if scenario.store == "sink":
        found = {"sink": lambda _: sink(cores)}
    with ExitStack() as running:
        servers: dict[str, Server] = {}
        for round_ in range(rounds):
            if scenario.fresh or not servers:
                running.close()
                wanted = {name: make for name, make in found.items() if takes_part(name, scenario)}
                servers = {}
                for name, make in wanted.items():
                    try:
                        servers[name] = running.enter_context(make(scenario))
                    except BrokerFailed as error:  # the others go on
                        report.note(f"{scenario.name}: {error}")
            turns = {name: scenario.run(server, scale) for name, server in servers.items()}
            order = list(turns) if round_ % 2 == 0 else list(reversed(turns))
            while turns:
                for name in order:
                    if name in turns and not advance(scenario, name, turns[name], report):
                        del turns[name]


def advance(scenario: Scenario, name: str, turn: Iterator[Figures], report: Report) -> bool:
    """One step of one broker; False when it has no further one."""
    try:
        figures = next(turn, None)
    except (LoadFailed, BrokerFailed, OSError) as error:
        report.note(f"{scenario.name}: {name} failed: {error!r}")
        return False
    if figures is None:
        return False
    report.add(scenario.title, scenario.metrics, name, figures)
    return True


def heading(cores: Cores, rounds: int, scale: Scale, found: dict[str, Factory]) -> dict[str, object]:
    told: dict[str, object] = dict(facts(cores).as_dict())
    if "EmberMQ" in found:
        try:
            told["embermq"] = version("embermq")
        except PackageNotFoundError:
            told["embermq"] = "unknown"
    path = mosquitto_path()
    if "Mosquitto" in found and path is not None:
        told["mosquitto"] = mosquitto_version(path)
    told.update({name: peers.version_of(name) for name in PEERS if name in found})
    told["rounds"] = rounds
    told["scale"] = ", ".join(f"{name} {value:,g}" for name, value in dataclasses.asdict(scale).items())
    return told


def main() -> int:
    options = arguments()
    if options.list:
        for scenario in SCENARIOS:
            print(f"{scenario.name:20} {scenario.title}")
        return 0
    patterns = options.only or ["*"]
    scenarios = [s for s in SCENARIOS if any(fnmatch.fnmatch(s.name, pattern) for pattern in patterns)]
    if not scenarios:
        sys.exit("bench: no scenario has that name; see --list")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    console = Console(width=None if sys.stdout.isatty() else 150)
    report = Report()
    raise_open_files()
    cores = pin(not options.no_pin)
    if options.nice is not None:
        prioritise(options.nice)
    scale = chosen_scale(options)
    rounds = options.rounds or (1 if options.quick else 3)
    found = factories(options, cores, report)
    told = heading(cores, rounds, scale, found)
    for scenario in scenarios:
        console.print(f"{scenario.title} ...", highlight=False)
        measure(scenario, scale, rounds, found, report, cores)
    show(console, report, told)
    if options.json:
        report.write_json(options.json, told)
    return 0


if __name__ == "__main__":
    sys.exit(main())
