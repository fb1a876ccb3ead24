"""A piece of what a filter matches: as far as a client's turn goes, and where the next one begins.

Owns: the bounds of a piece, alike for every engine.
Never: how keys are found.
"""

from collections.abc import Iterator

from embermq.store.interface import Retained, RetainedPiece
from embermq.store.state.retained_keys import BoundedSeeks, key_topic


def piece_of(
    matching: Iterator[Retained], seeks: BoundedSeeks | None, after_topic_name: str, limit: int, bytes_max: int
) -> RetainedPiece:
    """The first of `matching`, within the bounds; `seeks` is the cursor they are found with, if that may stop early."""
    found: list[Retained] = []
    payload_bytes = 0
    for retained in matching:
        found.append(retained)
        payload_bytes += len(retained.payload)
        if len(found) >= limit or payload_bytes >= bytes_max:
            return RetainedPiece(found, retained.topic_name, False, payload_bytes, seeks.count if seeks else 0)
    if seeks is None:
        return RetainedPiece(found, after_topic_name, True, payload_bytes, 0)
    if seeks.stopped_at is None:
        return RetainedPiece(found, after_topic_name, True, payload_bytes, seeks.count)
    return RetainedPiece(found, key_topic(seeks.stopped_at), False, payload_bytes, seeks.count)
