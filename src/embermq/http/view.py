"""The view: what one caller may see of a server, and change in it.

Owns: that a user of the password file sees the topics that the access list lets it read, and nothing of others: no
name, number, or client. Tokens, the control socket, and users with the right to see all see everything.
An operation has the view of its caller, and the whole service only through it: `service` refuses callers who do not see
all, so that an operation that forgets the rights of users refuses them.
Rights are asked for each time: they may change while an answer is under way.
"""

from collections.abc import AsyncIterator
from functools import partial
from heapq import heappop, heappush
from time import time_ns
from typing import TYPE_CHECKING, Final, final

from embermq.broker.access import Identity
from embermq.broker.operator import retained_message, retained_pieces
from embermq.http.refusal import HttpRefusal
from embermq.http.resources.topics.level_messages import LevelMessages, instant_pieces, level_messages, store_order
from embermq.http.resources.topics.levels import Levels, NarrowedLevels, found_levels
from embermq.http.store_reads import on_store_thread
from embermq.http.streaming import Slices, StreamPlaces
from embermq.protocol.packets import Publish
from embermq.protocol.topics import covers, intersection
from embermq.store.errors import HistoryTrimmed
from embermq.store.interface import Retained
from embermq.store.topic_tree import Moments

if TYPE_CHECKING:
    from embermq.broker.clientless import ClientlessSubscription, ReadingLink
    from embermq.http.log_reading import LogReading
    from embermq.http.resources.live.latest import LatestView
    from embermq.http.service import Pending, Service
    from embermq.store.rows import LogRow

NOT_ALL: Final = "this shows more than single topics: the user needs the line 'see all' in the access list"
NOT_THIS_TOPIC: Final = "the access list does not let this user read this topic"
NO_PUBLISHING: Final = "the access list does not let this user publish to this topic"
NO_RETAINING: Final = "the access list does not let this user retain messages on this topic"
BUDGET_USED_UP: Final = "a budget for retained messages is used up"
ROWS_TOGETHER: Final = 100
"""How many messages of several filters are given at once."""


@final
class View:
    """A server as one caller sees it; without an identity, all of it."""

    __slots__ = ("_access", "_identity", "_service")

    def __init__(self, service: "Service", identity: Identity | None) -> None:
        self._service: Final = service
        self._access: Final = service.server.access
        self._identity: Final = identity

    @property
    def has_expired(self) -> bool:
        """Whether the log-in of the caller has ended, while an answer is under way."""
        return self._identity is not None and 0 < self._identity.expires_us <= time_ns() // 1000

    @property
    def sees_all(self) -> bool:
        if self.has_expired:
            return False
        return self._identity is None or self._access.unrestricted or self._access.may_see_all(self._identity)

    @property
    def may_change_access(self) -> bool:
        """Whether users and rights may be changed, and so any right may be taken."""
        return self._identity is None or self._access.unrestricted or self._access.may_change_access(self._identity)

    @property
    def service(self) -> "Service":
        """The whole service; refused to a caller who does not see all."""
        if not self.sees_all:
            raise HttpRefusal(403, NOT_ALL)
        return self._service

    def service_for(self, topic_name: str) -> "Service":
        """The service, to ask it about one topic; refused to a caller who may not read the topic."""
        if not self.may_read(topic_name):
            raise HttpRefusal(403, NOT_THIS_TOPIC)
        return self._service

    @property
    def user_name(self) -> str | None:
        """None for a caller whom no access list narrows."""
        return None if self._identity is None else self._identity.user_name

    def may_read(self, topic_filter: str) -> bool:
        """Whether all that a filter matches may be read; a topic name is a filter that matches itself."""
        identity = self._identity
        if self.has_expired:
            return False
        return identity is None or self.sees_all or self._access.may_subscribe(identity, topic_filter)

    def may_publish(self, topic_name: str, retain: bool = True) -> bool:
        """Whether a message may be published, and retained; the right to see all is none to change something."""
        identity = self._identity
        return identity is None or self._access.unrestricted or self._access.may_publish(identity, topic_name, retain)

    # -- facts that say nothing about topics -------------------------------------------------------------------------

    @property
    def has_log(self) -> bool:
        return self._service.log_directory is not None

    @property
    def has_lake(self) -> bool:
        return self._service.lake is not None

    @property
    def is_stopping(self) -> bool:
        return self._service.stopping.is_set()

    def known_since_us(self) -> int:
        """From which instant on the retained set is known; 0 without a history.

        How far back the archive reaches is known once it was asked.
        """
        store = self._service.server.store
        first_us = min(
            (each.first_timestamp_us for each in store.history.log_segments() if each.first_timestamp_us), default=0
        )
        known_us = max(first_us, store.history.begins_us())
        archived_us = 0 if self._service.archived is None else self._service.archived.past.first_us()
        return min(known_us, archived_us) if archived_us else known_us

    @property
    def places(self) -> StreamPlaces:
        return self._service.places

    @property
    def page_places(self) -> StreamPlaces:
        return self._service.page_places

    # -- retained messages -------------------------------------------------------------------------------------------

    async def pieces(
        self, topic_filter: str | None, instant_us: int | None = None, after_topic_name: str = ""
    ) -> AsyncIterator[list[Retained]]:
        """What a filter matches and may be read, now or as of an instant, which may be one that only the archive has.

        Without a filter: all that may be read.
        """
        filters = [topic_filter or "#"] if self.sees_all else self._narrowed(topic_filter)
        if len(filters) == 1:
            async for piece in self._pieces(filters[0], instant_us, after_topic_name):
                yield piece
            return
        slices = Slices()
        rows = [self._rows(each, instant_us, after_topic_name, slices) for each in filters]
        merged: list[Retained] = []
        async for retained in _merged(rows):
            merged.append(retained)
            if len(merged) == ROWS_TOGETHER:
                yield merged
                merged = []
        yield merged

    async def clearable_pieces(self, topic_filter: str) -> AsyncIterator[list[Retained]]:
        """What a filter matches, may be read, and may be cleared."""
        async for piece in self.pieces(topic_filter):
            if self._identity is not None and not self._access.unrestricted:
                yield [retained for retained in piece if self.may_publish(retained.topic_name)]
            else:
                yield piece

    async def message(self, topic_name: str, instant_us: int | None) -> Retained | None:
        """The retained message of a topic, now or as of an instant, which may be one that only the archive has."""
        service = self._service
        if not self.may_read(topic_name):
            return None
        try:
            store = service.server.store
            if instant_us is None:
                # One get, as a SUBSCRIBE to the topic takes: the way to the thread and back costs more.
                found = store.retained.get(topic_name)
            else:
                found = await on_store_thread(store, partial(retained_message, store, topic_name, instant_us))
        except HistoryTrimmed:
            if service.archived is None or instant_us is None:
                raise
            found = await service.archived.of_past(
                lambda past, is_wanted: past.message(topic_name, instant_us, is_wanted), instant_us
            )
        return None if found is None else self.shown(found)

    async def level_messages(
        self, below: str | None, position: str, topic_names: list[str], instant_us: int, bytes_max: int
    ) -> LevelMessages:
        """The retained messages of some topics of one level, from a position on, at an instant, 0 being now."""
        level_filter = None
        if self.service_below(below) is not None:
            level_filter = "+" if below is None else f"{below}/+"
        level = position.removesuffix("\x01")  # a position is a level, or the one behind a level
        after = level if below is None else f"{below}/{level}" if level else below
        names = [name for name in topic_names if self.may_read(name)]
        return await level_messages(self._service, level_filter, after, names, instant_us, bytes_max)

    def shown(self, retained: Retained) -> Retained:
        """A message without the client that published it, if the caller does not see clients."""
        if self.sees_all:
            return retained
        return Retained(
            retained.topic,
            retained.payload,
            retained.qos,
            retained.properties,
            retained.offset,
            retained.timestamp_us,
            b"",
            retained.expires_us,
        )

    def service_below(self, below: str | None) -> "Service | None":
        """The service, to ask it about all that is below a topic; None if not all of that may be read."""
        is_whole = self.sees_all or (below is not None and self.may_read(f"{below}/#"))
        return self._service if is_whole else None

    async def levels(
        self,
        below: str | None,
        position: str,
        moments: Moments,
        limit: int,
        work_max: int,
    ) -> Levels:
        """Levels of the topic tree until there are more than `limit`, or enough was read."""
        whole = self.service_below(below)
        if whole is not None:
            return await found_levels(whole, below, position, moments, limit, work_max)
        filters = self._narrowed(None)
        narrowed = NarrowedLevels(self._service, filters, self.may_read, moments, work_max)
        return await narrowed.page(below, position, limit), None

    def publish(self, message: Publish, pending: "Pending", login_name: str) -> str:
        """Publish a message; returns why it was refused. The log has the name of the login."""
        service = self._service
        if not self.may_publish(message.topic_name, message.retain):
            return NO_RETAINING if message.retain else NO_PUBLISHING
        refusal = service.publish(message, pending, login_name)
        if not refusal or self.sees_all:
            return refusal
        # The sentence of a budget says how much other topics have.
        is_over = service.server.store.retained.admits(message.topic_name, len(message.payload))
        return BUDGET_USED_UP if is_over else refusal

    def before_changes(self) -> str:
        """The instant just before what is changed from now on."""
        return self._service.before_changes()

    async def durable(self, pending: "Pending") -> None:
        """Wait until changes are durable."""
        await pending.durable(self._service)

    # -- messages ----------------------------------------------------------------------------------------------------

    def log_reading(self, topic_filter: str | None) -> "LogReading":
        """The messages of the log, and of its archive, that a filter matches and may be read."""
        from embermq.http.log_reading import LogReading
        from embermq.store.log.message_filter import MessageFilter

        directory = self._service.log_directory
        if directory is None:
            raise HttpRefusal(409, "a store in memory keeps no log")
        narrow = None if self._identity is None else self.readable
        return LogReading(self._service, directory, MessageFilter(topic_filter), narrow)

    def readable(self, records: "list[LogRow]") -> "list[LogRow]":
        """Those of some messages that may be read, without the clients that published them."""
        if self.sees_all:
            return records
        readable = {topic for topic in {record.topic for record in records} if self.may_read(topic.decode())}
        return [record.without_client_id() for record in records if record.topic in readable]

    def subscription(self, topic_filter: str, link: "ReadingLink") -> "ClientlessSubscription":
        """Messages as they are published, to a link; those that may not be read at that moment are left out."""
        from embermq.broker.clientless import ClientlessSubscription

        if self._identity is not None:
            link.narrow(self.may_read)
        return ClientlessSubscription(self._service.server.core, topic_filter, link)

    @property
    def latest_views(self) -> "dict[tuple[str | None, str, int], LatestView]":
        """The open views of the newest messages, by user, filter and interval."""
        return self._service.latest_views

    # -- narrowing ---------------------------------------------------------------------------------------------------

    def _narrowed(self, topic_filter: str | None) -> list[str]:
        """What of a filter may be read, as filters none of which covers another."""
        assert self._identity is not None
        found: list[str] = []
        for granted in self._access.read_filters(self._identity):
            common = granted if topic_filter is None else intersection(topic_filter, granted)
            if common is None or any(covers(each, common) for each in found):
                continue
            found = [each for each in found if not covers(common, each)] + [common]
        return found

    async def _pieces(
        self, topic_filter: str, instant_us: int | None, after_topic_name: str
    ) -> AsyncIterator[list[Retained]]:
        async for piece in _pieces_of(self._service, topic_filter, instant_us, after_topic_name):
            if self.sees_all:
                yield piece
                continue
            # A filter without wildcards finds its topic also behind it.
            names = [retained.topic_name for retained in piece]
            yield [
                self.shown(retained)
                for name, retained in zip(names, piece, strict=True)
                if self.may_read(name) and store_order(name) > store_order(after_topic_name)
            ]

    async def _rows(
        self, topic_filter: str, instant_us: int | None, after_topic_name: str, slices: Slices
    ) -> AsyncIterator[Retained]:
        async for piece in self._pieces(topic_filter, instant_us, after_topic_name):
            for retained in piece:
                yield retained
            await slices.rest()


async def _pieces_of(
    service: "Service", topic_filter: str, instant_us: int | None, after_topic_name: str
) -> AsyncIterator[list[Retained]]:
    if instant_us is not None:
        async for piece, _ in instant_pieces(service, topic_filter, after_topic_name, max(1, instant_us)):
            yield piece
        return
    store = service.server.store
    pieces = retained_pieces(store, topic_filter, None, after_topic_name)
    while (now := await on_store_thread(store, partial(next, pieces, None))) is not None:
        yield now


async def _merged(streams: list[AsyncIterator[Retained]]) -> AsyncIterator[Retained]:
    """Messages of several filters in store order, each topic once."""
    heads: list[tuple[str, int, Retained]] = []
    for number, stream in enumerate(streams):
        first = await anext(stream, None)
        if first is not None:
            heappush(heads, (store_order(first.topic_name), number, first))
    last = ""
    while heads:
        order, number, retained = heappop(heads)
        if order != last:
            last = order
            yield retained
        following = await anext(streams[number], None)
        if following is not None:
            heappush(heads, (store_order(following.topic_name), number, following))
