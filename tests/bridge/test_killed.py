"""Bridges whose servers are killed, while the line is cut at random: real processes, `kill -9` on either side.

The truth is the log of each server: what it has recorded, in which order.
"""

import random
import threading
import time
from pathlib import Path

import pytest

from support.bridged import logged, numbered, publish_all, wait_until, wait_until_subscribed
from support.cut_line import CutLine
from support.server_process import ServerProcess

RULES = 'out = [{ filter = "up/#" }]\nin = [{ filter = "down/#" }]\n'


def settings_file(path: Path, port: int, rules: str = RULES) -> Path:
    path.write_text(f'[[bridges]]\nname = "b"\nurl = "mqtt://127.0.0.1:{port}"\n{rules}')
    return path


class Pair:
    """Two servers and the line between them. Here is the bridge."""

    def __init__(self, folder: Path, rules: str = RULES) -> None:
        self.there = ServerProcess(folder / "there", folder / "there.log")
        self.line = CutLine(lambda: self.there.port)
        config = settings_file(folder / "ember.toml", self.line.port, rules)
        self.here = ServerProcess(folder / "here", folder / "here.log", config=config)
        self.data_here, self.data_there = folder / "here", folder / "there"

    def __enter__(self) -> "Pair":
        self.line.__enter__()
        self.there.start()
        self.here.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.here.kill()
        self.there.kill()
        self.line.__exit__(None, None, None)


def test_either_side_killed_nothing_is_lost_or_repeated_at_qos_2_and_the_order_stays(tmp_path: Path) -> None:
    draw = random.Random(5)
    count = 600
    rounds = 4
    with Pair(tmp_path) as pair:
        wait_until(lambda: "connected to" in pair.here.log(), "the bridge")
        wait_until_subscribed(pair.there.port, pair.data_here, "down/first", "down/first")
        for turn in range(rounds):
            pair.line.cut_after(draw, 30_000, 2)
            publish_all(pair.here.port, numbered("up/a", count, turn * count))
            publish_all(pair.there.port, numbered("down/a", count, turn * count))
            enough = turn * count + draw.randrange(count)
            if turn % 2:
                wait_until(lambda least=enough: len(logged(pair.data_there, "up/")) >= least, "some up")  # type: ignore[misc]
                pair.here.restart()
            else:
                wait_until(lambda least=enough: len(logged(pair.data_here, "down/a")) >= least, "some down")  # type: ignore[misc]
                pair.there.restart()
        everything = [b"%d" % number for number in range(rounds * count)]
        wait_until(lambda: len(logged(pair.data_there, "up/")) >= len(everything), "all up")
        wait_until(lambda: len(logged(pair.data_here, "down/a")) >= len(everything), "all down")
        assert logged(pair.data_there, "up/") == everything
        assert logged(pair.data_here, "down/a") == everything


def memory_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmRSS")


@pytest.mark.long
@pytest.mark.timeout(900)
def test_100000_messages_behind_a_cut_line_arrive_once_and_in_order_and_cost_no_memory(tmp_path: Path) -> None:
    count = 100_000
    draw = random.Random(3)
    with Pair(tmp_path) as pair:
        wait_until(lambda: "connected to" in pair.here.log(), "the bridge")
        publish_all(pair.here.port, numbered("up/a", 1_000))
        wait_until(lambda: len(logged(pair.data_there, "up/")) == 1_000, "the first")
        before = memory_bytes(pair.here.pid)
        pair.line.cut()
        publish_all(pair.here.port, numbered("up/a", count - 1_000, 1_000))
        behind = memory_bytes(pair.here.pid)
        assert behind - before < 64 << 20, (before, behind)
        pair.here.restart()
        begun_s = time.monotonic()
        pair.line.mend()
        pair.line.cut_after(draw, 2_000_000, 6)
        killer = threading.Thread(target=kill_now_and_then, args=(pair, draw))
        killer.start()
        killer.join()
        wait_until(lambda: len(logged(pair.data_there, "up/")) >= count, "all", 600)
        print(f"100,000 messages at QoS 2 in {time.monotonic() - begun_s:.0f} s, kills and cuts included")
        assert memory_bytes(pair.here.pid) - before < 64 << 20
        assert logged(pair.data_there, "up/") == [b"%d" % number for number in range(count)]


def kill_now_and_then(pair: Pair, draw: random.Random) -> None:
    for turn in range(4):
        enough = len(logged(pair.data_there, "up/")) + draw.randrange(3_000, 12_000)
        wait_until(lambda least=enough: len(logged(pair.data_there, "up/")) >= least)  # type: ignore[misc]
        (pair.here if turn % 2 else pair.there).restart()
