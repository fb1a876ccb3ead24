"""A piece of what a filter matches: as far as a client's turn goes, and where the next one begins.

Owns: the bounds of a piece, alike for every engine.
Never: how keys are found.
"""

from collections.abc import Iterator

from embermq.store.interface import Retained, RetainedPiece
from embermq.store.state.retained_keys import Looks, key_topic


def piece_of(
    matching: Iterator[Retained], looks: Looks | None, after_topic_name: str, limit: int, bytes_max: int
) -> RetainedPiece:
    """The first of `matching`, within the bounds; `looks` is the cursor they are found with, if that may stop early."""
    found: list[Retained] = []
    payload_bytes = 0
    for retained in matching:
        found.append(retained)
        payload_bytes += len(retained.payload)
        if len(found) >= limit or payload_bytes >= bytes_max:
            return RetainedPiece(found, retained.topic_name, False, payload_bytes, looks.count if looks else 0)
    if looks is None:
        return RetainedPiece(found, after_topic_name, True, payload_bytes, 0)
    if looks.stopped_at is None:
        return RetainedPiece(found, after_topic_name, True, payload_bytes, looks.count)
    return RetainedPiece(found, key_topic(looks.stopped_at), False, payload_bytes, looks.count)
