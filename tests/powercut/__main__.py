"""`python -m powercut --images n`: record a server, and try so many of the states that a power cut may leave."""

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path
from random import SystemRandom

from powercut.recording import Recording
from powercut.trying import Plan, try_images


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m powercut", description=__doc__)
    parser.add_argument("--images", type=int, default=20_000)
    parser.add_argument("--seed", type=int, help="repeats the choices, though not the moments of the server")
    parser.add_argument("--lives", type=int, default=4, help="of the server; every second one ends with a kill")
    parser.add_argument("--messages", type=int, default=500, help="in each life")
    parser.add_argument("--durability", choices=("sync", "os"), default="sync")
    parser.add_argument("--unordered", action="store_true", help="the file system may reorder changes of a directory")
    parser.add_argument("--keep", type=Path, help="record into this directory, or try what was recorded there")
    parser.add_argument("--image", type=int, help="this one only")
    arguments = parser.parse_args()
    seed = arguments.seed if arguments.seed is not None else SystemRandom().randrange(1_000_000)
    print(f"seed {seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="power-cut-") as temporary:
        directory = arguments.keep or Path(temporary)
        root = (directory / "root").resolve()
        if not (directory / "events").exists():
            directory.mkdir(parents=True, exist_ok=True)
            Recording(directory, seed, arguments.durability).run(arguments.lives, arguments.messages)
        began_s = time.monotonic()
        plan = Plan(
            directory / "events",
            root,
            arguments.images,
            seed,
            arguments.durability,
            arguments.durability,
            is_unordered=arguments.unordered,
            only=arguments.image,
        )
        outcome = try_images(plan, os.cpu_count() or 1)
    print(f"{outcome}, in {time.monotonic() - began_s:.0f} s")
    for violation in outcome.violations:
        print(f"VIOLATION {violation}")
    return 1 if outcome.violations else 0


if __name__ == "__main__":
    sys.exit(main())
