"""What happens in a run: a list of steps, made from a seed before anything runs.

Owns: the choice of settings and steps. Each step has its own randomness, so leaving one out changes no other: this is
what makes shrinking work.
"""

from dataclasses import dataclass
from random import Random
from typing import Final

CLIENTS_MAX: Final = 5
STEPS: Final = (40, 160)

WEIGHTS: Final = {
    "run": 30,
    "publish": 34,
    "connect": 16,
    "subscribe": 10,
    "unsubscribe": 2,
    "disconnect": 1,
    "drop": 2,
    "cut": 2,
    "stall": 2,
    "slow": 2,
    "acknowledge": 4,
    "ping": 1,
    "pass": 3,
    "wall": 1,
    "kill": 1,
    "power": 2,
    "disk": 2,
    "heal": 2,
    "stop": 1,
}


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that happens; `seed` decides the rest of it."""

    kind: str
    seed: int


@dataclass(frozen=True, slots=True)
class Setup:
    """What holds for a whole run."""

    clients: int
    segment_bytes: int
    retention_bytes: int
    flush_records: int
    buffer_entries_max: int
    durability: str
    disk_reserve_bytes: int
    output_bytes_max: int
    has_expiry: bool
    has_wills: bool
    has_clean_sessions: bool
    has_shares: bool
    is_unordered: bool
    latency_us: int
    packet_bytes: int  # how many bytes travel at once, at most
    has_short_writes: bool  # and more wills; added later, to every fourth seed, so that the others are what they were


def setup_of(seed: int) -> Setup:
    rng = Random(f"setup {seed}")
    return Setup(
        clients=rng.randint(2, CLIENTS_MAX),
        segment_bytes=rng.choice((2_048, 8_192, 65_536, 1 << 20)),
        retention_bytes=rng.choice((8_192, 1 << 30, 1 << 30)),
        flush_records=rng.choice((5, 50, 200_000)),
        buffer_entries_max=rng.choice((0, 20, 10_000)),
        durability="os" if rng.random() < 0.1 else "sync",
        disk_reserve_bytes=rng.choice((0, 1 << 20)),
        output_bytes_max=rng.choice((4_096, 4 << 20)),
        has_expiry=rng.random() < 0.3,
        has_wills=rng.random() < 0.4,
        has_clean_sessions=rng.random() < 0.5,
        has_shares=rng.random() < 0.3,
        is_unordered=False,
        latency_us=rng.choice((0, 500, 20_000)),
        packet_bytes=rng.choice((7, 200, 5_000)),
        has_short_writes=seed % 4 == 1,
    )


def script_of(seed: int) -> list[Step]:
    """Some kinds of steps are left out of a run, so that others come close together."""
    rng = Random(f"script {seed}")
    weights = {kind: weight for kind, weight in WEIGHTS.items() if weight > 9 or rng.random() < 0.7}
    if rng.random() < 0.7:
        weights.pop("wall", None)
    kinds = list(weights)
    beginning = ["connect"] * 8 + ["run"] + ["subscribe"] * 6 + ["run"]
    steps = [Step(kind, rng.getrandbits(32)) for kind in beginning]
    for kind in rng.choices(kinds, [weights[kind] for kind in kinds], k=rng.randint(*STEPS)):
        steps.append(Step(kind, rng.getrandbits(32)))
    return steps
