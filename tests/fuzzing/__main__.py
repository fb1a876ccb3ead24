"""`python -m fuzzing TARGET --seconds n` fuzzes one target with coverage, by atheris; without one it lists them.

An input that breaks a target is written to build/fuzzing, and `--input FILE` repeats it.
"""

import argparse
import importlib
import sys
from pathlib import Path

FOUND = Path("build/fuzzing")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m fuzzing", description=__doc__)
    parser.add_argument("target", nargs="?", default="")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--input", type=Path, help="run the target with this file")
    arguments = parser.parse_args()
    if arguments.input is not None:
        importlib.import_module("fuzzing.targets").TARGETS[arguments.target].run(arguments.input.read_bytes())
        return 0
    import atheris

    with atheris.instrument_imports(include=["embermq"]):
        targets = importlib.import_module("fuzzing.targets")
    if arguments.target not in targets.TARGETS:
        print("\n".join(targets.TARGETS))
        return 0 if not arguments.target else 2
    target = targets.TARGETS[arguments.target]
    corpus = FOUND / target.name
    corpus.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(targets.inputs(target)):
        (corpus / f"begin-{number}").write_bytes(data)
    options = [
        f"-max_total_time={arguments.seconds}",
        f"-max_len={targets.BYTES_MAX}",
        "-timeout=20",
        "-print_final_stats=1",
    ]
    atheris.Setup([sys.argv[0], str(corpus), f"-artifact_prefix={corpus}-", *options], target.run)
    atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main())
