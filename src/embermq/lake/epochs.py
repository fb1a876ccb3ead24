"""The epoch of a lake's writer, in the version that Delta keeps with a transaction identifier.

Owns: how an epoch and the last applied offset are one number. A pipeline that takes over a lake has a higher epoch than
all before it. Delta leaves out a commit whose version is not above the one that the table has, so a pipeline that was
deposed cannot commit any more, whatever it believes.
"""

from typing import Final

from embermq.lake.errors import LakeError

OFFSET_BITS: Final = 44
EPOCH_MAX: Final = (1 << (63 - OFFSET_BITS)) - 1
OFFSET_MAX: Final = (1 << OFFSET_BITS) - 2
NOTHING_APPLIED: Final = -1


def transaction_version(epoch: int, through: int) -> int:
    """The version of a commit that applies the log up to an offset. Epoch 0 is that of lakes before format 3."""
    if epoch > EPOCH_MAX or through > OFFSET_MAX:
        raise LakeError(
            f"epoch {epoch}, offset {through}: a lake ends at epoch {EPOCH_MAX} and offset {OFFSET_MAX}: begin a new "
            "one"
        )
    return through if epoch == 0 else (epoch << OFFSET_BITS) + through + 1


def epoch_and_offset(version: int | None) -> tuple[int, int]:
    """The epoch and the last applied offset, NOTHING_APPLIED if there is none, of a version; None: no transaction."""
    if version is None or version < 0:
        return 0, NOTHING_APPLIED
    epoch = version >> OFFSET_BITS
    return (0, version) if epoch == 0 else (epoch, (version & ((1 << OFFSET_BITS) - 1)) - 1)
