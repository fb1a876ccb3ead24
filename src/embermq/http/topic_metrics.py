"""Topic metrics: how much is published to some topics, for the metrics.

Owns: the counts of each named topic filter, from the start of the server on.
"""

import time
from typing import TYPE_CHECKING, Final, NamedTuple, final

from embermq.broker.clientless import ClientlessSubscription, ReadingLink
from embermq.protocol.packets import Publish

if TYPE_CHECKING:
    from embermq.broker.core import Core

TOPIC_METRICS_MAX: Final = 100


class TopicMetric(NamedTuple):
    """A topic filter by the name that its metrics have as their label."""

    name: str
    topic_filter: str


@final
class TopicCount(ReadingLink):
    """What was published to the topics of one filter. `newest_s` is when, in seconds since 1970; 0 is never."""

    def __init__(self, metric: TopicMetric) -> None:
        super().__init__()
        self.metric: Final = metric
        self.messages = 0
        self.payload_bytes = 0
        self.newest_s = 0.0

    def begin(self, core: "Core") -> None:
        """Count from now on."""
        ClientlessSubscription(core, self.metric.topic_filter, self).begin()

    def gather(self, message: Publish) -> None:
        self.messages += 1
        self.payload_bytes += len(message.payload)
        self.newest_s = time.time()
