"""The service: what the handlers of requests need of a running server.

Owns: the places for streams, how a change is published and waited for, and that the event loop never waits for a file.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, final

from embermq.broker.operator import publish, record_change
from embermq.http.alerts.rules import Alert, AlertRule
from embermq.http.alerts.webhooks import Webhooks
from embermq.http.archived import archived_history
from embermq.http.counts import HttpCounts
from embermq.http.options import BrokerCalls
from embermq.http.refusal import HttpRefusal
from embermq.http.repeats import RepeatedRequests
from embermq.http.resources.pipeline.lake_tables import LakeTables
from embermq.http.resources.topics.level_cache import LevelCache
from embermq.http.streaming import STREAMS_MAX, StreamPlaces
from embermq.http.topic_metrics import TopicCount, TopicMetric
from embermq.http.unread import UNREAD_BYTES_MAX, UnreadAnswers
from embermq.instants import utc_text
from embermq.protocol.packets import Publish

if TYPE_CHECKING:
    from embermq.http.resources.live.latest import LatestView
    from embermq.http.resources.statistics_history import Sample
    from embermq.transport.server import Server

FAILING_CHECK_S: Final = 1.0
PAGES_MAX: Final = 64
"""How many pages may follow the newest messages at a time."""
SAMPLES_MAX: Final = 360
"""How many samples of the statistics are kept: one hour."""
QUERIES_MAX: Final = 2
"""How many queries in SQL run at a time."""
THREADS: Final = 2
"""For reading files, and writing those of users and rights: the end of the process waits for them."""

T = TypeVar("T")


@final
class Service:
    """One server. `settings` are the effective ones; `log_directory` is None for a server in memory."""

    __slots__ = (
        "access_changes",
        "alerts",
        "archived",
        "calls",
        "counts",
        "failing_check_s",
        "lake",
        "lake_tables",
        "latest_views",
        "levels",
        "log_directory",
        "page_places",
        "places",
        "queries",
        "repeats",
        "samples",
        "server",
        "settings",
        "stopping",
        "topic_counts",
        "unread",
        "webhooks",
        "_threads",
    )

    def __init__(
        self,
        server: "Server",
        log_directory: Path | None = None,
        settings: Mapping[str, Any] | None = None,
        lake: Path | None = None,
        streams_max: int = STREAMS_MAX,
        failing_check_s: float = FAILING_CHECK_S,
        calls: BrokerCalls | None = None,
        unread_bytes_max: int = UNREAD_BYTES_MAX,
        alerts: Sequence[AlertRule] = (),
        topic_metrics: Sequence[TopicMetric] = (),
    ) -> None:
        self.alerts: Final = tuple(Alert(rule) for rule in alerts)
        self.topic_counts: Final = tuple(TopicCount(metric) for metric in topic_metrics)
        for count in self.topic_counts:
            count.begin(server.core)
        self.webhooks: Final = Webhooks()
        self.calls: Final = calls
        self.server: Final = server
        self.log_directory: Final = log_directory
        self.settings: Final = settings if settings is not None else {}
        self.lake: Final = lake
        self.lake_tables: Final = LakeTables()
        self.counts: Final = HttpCounts()
        server.core.add_counts(self.counts.values)
        self.unread: Final = UnreadAnswers(self.counts, unread_bytes_max)
        self.places: Final = StreamPlaces(streams_max, self.unread)
        self.page_places: Final = StreamPlaces(PAGES_MAX, self.unread)
        self.latest_views: Final[dict[tuple[str | None, str, int], LatestView]] = {}  # by user, filter and interval
        self.levels: Final = LevelCache()
        self.queries: Final = asyncio.Semaphore(QUERIES_MAX)
        self.access_changes: Final = asyncio.Lock()  # one after the other, from the record to the use of the files
        self.repeats: Final = RepeatedRequests()
        self.samples: Final[deque[Sample]] = deque(maxlen=SAMPLES_MAX)  # of the statistics, oldest first
        self.stopping: Final = asyncio.Event()
        self.failing_check_s: Final = failing_check_s
        self._threads: Final = ThreadPoolExecutor(THREADS, "http")
        self.archived: Final = archived_history(server.store)

    async def on_thread(self, call: Callable[[], T]) -> T:
        """Do something that reads files away from the event loop."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)

    def close(self) -> None:
        """No call follows."""
        self.webhooks.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def publish(self, message: Publish, pending: "Pending", login_name: str) -> str:
        """Publish a message; returns why it was refused. The log has the name of the login."""
        server = self.server
        server.begin_turn()
        refusal = publish(server.core, server.store, server.limits, message, pending.done, login_name)
        if not refusal:
            pending.count += 1
        return refusal

    def record_change(self, change: bytes, pending: "Pending", login_name: str) -> None:
        """Record a change of users or rights in the log, with the name of the login."""
        self.server.begin_turn()
        record_change(self.server.core, change, pending.done, login_name)
        pending.count += 1

    def before_changes(self) -> str:
        """The instant just before what is changed from now on: a restore as of it takes the changes back."""
        self.server.begin_turn()
        return utc_text(self.server.turn_us() - 1)

    def when_durable(self, pending: "Pending") -> None:
        """Count what this turn has changed as pending until it is durable."""
        pending.count += 1
        self.server.begin_turn()
        self.server.core.when_durable(pending.done)


@final
class Pending:
    """Changes of one request that are not durable yet."""

    __slots__ = ("_news", "count")

    def __init__(self) -> None:
        self.count = 0
        self._news: Final = asyncio.Event()

    def done(self) -> None:
        self.count -= 1
        if self.count == 0:
            self._news.set()

    async def durable(self, service: Service) -> None:
        """Wait until all are durable. Refused while the disk fails: they may become durable later."""
        while self.count:
            self._news.clear()
            try:
                async with asyncio.timeout(service.failing_check_s):
                    await self._news.wait()
            except TimeoutError:
                failing = service.server.store.failing()
                if failing:
                    raise HttpRefusal(503, f"not durable yet: {failing}") from None
