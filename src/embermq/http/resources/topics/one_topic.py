"""Which blocks of a log may have messages of one topic in a span of time."""

from collections.abc import Sequence
from typing import Final, final

from embermq.store.log.by_topic.chosen_blocks import BlockChooser
from embermq.store.log.by_topic.topic_index import TopicIndex


@final
class OneTopic(BlockChooser):
    """One topic, from an instant on and before another."""

    def __init__(self, topic_name: str, since_us: int, until_us: int) -> None:
        self._topic: Final = topic_name.encode()
        self._since_us: Final = since_us
        self._until_us: Final = until_us

    def times(self, spans: Sequence[tuple[int, int]]) -> list[bool]:
        return [first_us < self._until_us and last_us >= self._since_us for first_us, last_us in spans]

    def topics(self, index: TopicIndex) -> Sequence[int]:
        number = index.number_of(self._topic)
        return () if number is None else (number,)
