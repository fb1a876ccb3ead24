"""Messages out of blocks, by a topic filter.

Owns: which topics a filter matches, remembered for the topics that were seen.
"""

from typing import Final, final

from embermq.protocol.topics import matches
from embermq.store.log.reader import ReadBlocks
from embermq.store.rows import Kind, LogRow

TOPICS_MAX: Final = 20_000
"""For how many topics it is remembered whether the filter matches them."""

_PUBLISH: Final = int(Kind.PUBLISH)


@final
class MessageFilter:
    """Chooses messages. A topic name as the filter matches that topic."""

    __slots__ = ("_matching", "_topic_filter")

    def __init__(self, topic_filter: str | None) -> None:
        self._topic_filter: Final = topic_filter
        self._matching: Final[dict[bytes, bool]] = {}

    def messages(self, read: ReadBlocks) -> list[LogRow]:
        """The messages of the wanted records that match, in order."""
        found: list[LogRow] = []
        for block in read.blocks():
            for offset in range(max(read.start, block.first_offset), min(read.end, block.next_offset)):
                if block.kind(offset) == _PUBLISH and self._is_wanted(block.topic(offset)):
                    found.append(block.record(offset))
        return found

    def _is_wanted(self, topic: bytes) -> bool:
        if self._topic_filter is None:
            return True
        is_wanted = self._matching.get(topic)
        if is_wanted is None:
            if len(self._matching) >= TOPICS_MAX:
                self._matching.clear()
            is_wanted = self._matching[topic] = matches(self._topic_filter, topic.decode())
        return is_wanted
