"""What an access list of 100 rules adds to a flood: `python -m bench.rights_cost [--seconds S] [--rounds N]`.

Two servers in memory, one without an access list, one with 100 rules for its clients, the last of which grants. Each
gets the same floods in turn. Compared is the processor time of a message, which other load on the machine disturbs less
than the rate; shown are medians of the rounds.
"""

import argparse
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from bench.flood import flood, open_traffic
from bench.machine import pin
from bench.packets import Shape, topic_name
from bench.servers import Server, ember, ember_path
from bench.traffic_scenarios import ALL_TOPICS

RULES = 100
FLOODS = ((1, 1, 0), (1, 1, 1), (1, 50, 0), (50, 1, 1))
"""Publishers, subscribers, QoS."""


def access_list() -> str:
    """Rules that grant and deny elsewhere, and the one that the flood needs."""
    others = [f"read,write area/{number}/+/%c" for number in range(RULES // 2)]
    denials = [f"deny read,write area/{number}/secret" for number in range(RULES - len(others) - 1)]
    return "\n".join(["all", *others, *denials, "read,write plant/#", ""])


def cpu_us(server: Server, publishers: int, subscribers: int, qos: int, seconds: float) -> float:
    """Of the server, for each message that was delivered."""
    names = [[topic_name(number)] for number in range(publishers)]
    traffic = open_traffic(server.port, Shape(qos), names, [[ALL_TOPICS]] * subscribers, subscribers)
    found = flood(server, traffic, seconds)
    assert found.delivered and not found.lost, found
    return found.broker_cpu_us


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=16)
    given = parser.parse_args()
    path = ember_path()
    assert path is not None, "`ember` is not installed"
    with TemporaryDirectory() as directory:
        acl_file = Path(directory) / "access.list"
        acl_file.write_text(access_list())
        settings = f'[access]\nacl_file = "{acl_file}"\nallow_anonymous = true\n'
        with (
            ember(path, "", False, pin(False), [], "without") as without,
            ember(path, settings, False, pin(False), [], "with") as with_rules,
        ):
            for publishers, subscribers, qos in FLOODS:
                found: dict[str, list[float]] = {without.name: [], with_rules.name: []}
                for number in range(given.rounds):
                    for server in (without, with_rules) if number % 2 else (with_rules, without):
                        found[server.name].append(cpu_us(server, publishers, subscribers, qos, given.seconds))
                plain, ruled = (median(values) for values in found.values())
                change = f"{(ruled / plain - 1) * 100:+.1f} %"
                what = f"{publishers} to {subscribers}, QoS {qos}"
                print(f"{what}: {plain:.3f} us a message, with {RULES} rules {ruled:.3f} ({change})", flush=True)


if __name__ == "__main__":
    main()
