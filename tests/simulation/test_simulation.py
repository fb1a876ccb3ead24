"""Seeds of the simulated world: no promise is broken, and a run is the same whenever it is repeated."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent.parent
SEEDS = 200
LONG_SEEDS = 5_000
FAILED = {
    35: "an older retained message came to a stored queue behind the newer one",
    979: "a session that a client was told is gone came back with a power cut",
    2614: "a message was released late while the clock jumped: the checker was wrong by seconds",
    3146: "what had expired unsent came with DUP after a crash, behind newer ones: the checker was wrong",
    596: "a client got a retained message at QoS 0 and again, older, at QoS 1: the checker was wrong",
    711: "the log was trimmed between a message and its repetition: the checker was wrong",
    730: "a session had expired before its client knew that it was disconnected: the checker was wrong",
}
"""Every seed that has ever failed, when all others had succeeded, with what it has shown."""

PLANTED = {
    "no-wait-for-the-group": 1,
    "no-sync-of-a-block": 2,
    "clears-ignored": 2,
    "qos-2-identifiers-forgotten": 3,
    "records-written-twice": 4,
}
"""Faults that are planted in every test run, and how many seeds find them."""
NOT_FOUND = {"no-wait-for-the-end-of-a-session", "unsynced-blocks-trusted-at-a-start", "writable-ignored"}
"""Faults that `FAULT_SEEDS` seeds do not find (docs/proof.md)."""
FAULT_SEEDS = 150


def simulate(*arguments: str, is_good: bool = True) -> str:
    """What `python -m simulation` prints."""
    environment = {**os.environ, "EMBERMQ_PURE": "1", "PYTHONHASHSEED": "0"}
    environment["PYTHONPATH"] = os.pathsep.join([str(TESTS), *filter(None, [environment.get("PYTHONPATH")])])
    command = [sys.executable, "-m", "simulation", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == (0 if is_good else 1), done.stdout + done.stderr
    return done.stdout


@pytest.mark.timeout(600)  # a quarter of a minute where nothing else runs
def test_no_seed_breaks_a_promise() -> None:
    printed = simulate("--seeds", f"0:{SEEDS}")
    assert f"{SEEDS} seeds, 0 failed" in printed
    # A run means nothing if it never came to what it checks.
    checked = printed.rpartition("checked ")[2]
    counts = {name: int(count) for name, _, count in (part.rpartition(" ") for part in checked.split(", "))}
    for name in ("acknowledged", "as of", "expiry", "logged", "order", "owed", "retained", "retained set", "shared"):
        assert counts[name] > 100, checked
    assert counts["QoS 2 once"] > 100 and counts["will"] > 10 and counts["session present"] > 0, checked


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", FAILED)
def test_a_seed_that_failed_once_keeps_every_promise(seed: int) -> None:
    assert "nothing wrong" in simulate("--seed", str(seed))


def test_a_seed_is_the_same_run_again() -> None:
    first, second = (simulate("--seed", "12", "--tell") for _ in range(2))
    assert len(first.splitlines()) > 50
    assert first == second


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_is_found(name: str) -> None:
    printed = simulate("--fault", name, "--seeds", str(PLANTED[name]), "--first", is_good=False)
    assert f"{PLANTED[name]} seeds, 1 failed" in printed


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_the_faults_of_the_list_are_found() -> None:
    lines = simulate("--fault", "all", "--seeds", str(FAULT_SEEDS), is_good=False).splitlines()
    assert len(lines) > 25
    assert {line.split("`")[1] for line in lines if "| not found in" in line} <= NOT_FOUND


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_no_seed_of_many_breaks_a_promise() -> None:
    assert f"{LONG_SEEDS} seeds, 0 failed" in simulate("--seeds", f"{SEEDS}:{SEEDS + LONG_SEEDS}")
