"""Each target of the fuzzer takes what it begins with, and the same with a few bytes changed."""

from random import Random

import pytest

from fuzzing.targets import TARGETS, inputs

CHANGED = 150


def changed(data: bytes, rng: Random) -> bytes:
    found = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(found) + 1)
        how = rng.randrange(4)
        if how == 0 and found:
            found[at % len(found)] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        elif how == 1:
            found[at:at] = rng.randbytes(rng.randint(1, 4))
        elif how == 2:
            del found[at : at + rng.randint(1, 8)]
        elif found:
            found[at % len(found)] ^= 1 << rng.randrange(8)
    return bytes(found)


@pytest.mark.parametrize("name", TARGETS)
def test_what_is_almost_good_is_read_or_refused(name: str) -> None:
    target, rng = TARGETS[name], Random(name)
    begin = list(inputs(target))
    for data in begin:
        target.run(data)
    for _ in range(CHANGED):
        target.run(changed(rng.choice(begin), rng))
