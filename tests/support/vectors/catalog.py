"""One list of vectors for all levels: what is read and written, and what is rejected.

A new bug on the wire is a new line in one of the four modules of data. `tests/protocol/mqtt/test_vectors.py` reads and
writes every line; other tests cut, join and mutate them.
"""

from typing import Final

from support.vectors import rejected_v5, rejected_v311, v5, v311
from support.vectors.vector import Rejected, Vector

VECTORS: Final[list[Vector]] = [*v311.VECTORS, *v5.VECTORS]
REJECTED: Final[list[Rejected]] = [*rejected_v311.REJECTED, *rejected_v5.ALL_REJECTED]
