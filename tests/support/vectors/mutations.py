"""Packets that are almost good: vectors of all levels in a row, with a few bytes changed."""

from typing import Final

from hypothesis import strategies as st

from support.vectors.catalog import REJECTED, VECTORS

WIRES: Final = [
    wire for wire in [*[vector.wire for vector in VECTORS], *[case.wire for case in REJECTED]] if len(wire) <= 300
]
# Each strategy is made once: hypothesis takes long to make one of so many wires.
_ROWS: Final = st.lists(st.sampled_from(WIRES), min_size=1, max_size=3)
_CHANGES: Final = st.lists(
    st.tuples(
        st.integers(0, 900),
        st.sampled_from(["set", "flip", "insert", "remove"]),
        st.sampled_from([0x00, 0x01, 0x02, 0x26, 0x7F, 0x80, 0xFF]),
    ),
    min_size=1,
    max_size=4,
)


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A stream of one to three packets, changed in one to four places."""
    wire = bytearray(b"".join(draw(_ROWS)))
    for place, change, value in draw(_CHANGES):
        at = place % (len(wire) + 1)
        if change == "insert" or at == len(wire):
            wire.insert(at, value)
        elif change == "set":
            wire[at] = value
        elif change == "flip":
            wire[at] ^= 1 << (value & 7)
        else:
            del wire[at]
    return bytes(wire)
