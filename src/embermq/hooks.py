"""Hooks: code of other packages that is told what happens in a server, on a thread of its own.

Owns: what a hook is, and the bounded queue between the event loop and a hook's thread. A hook is found by the name of
its entry point in the group `embermq.hooks` (`plug_ins`).
Never: a decision; what a hook does or raises changes nothing in the server. `embermq.broker.access` is for decisions.

    class Doors(Hook):
        def client_went(self, client: Client, reason: str) -> None:
            print(client.client_id, reason)
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple, final

from embermq.broker.clientless import ClientlessSubscription, ReadingLink
from embermq.broker.connections import ClientWatch
from embermq.broker.core import Core
from embermq.broker.session import Session
from embermq.named_thread import NamedThread
from embermq.plug_ins import make_plug_in
from embermq.protocol.packets import Publish
from embermq.transport.rate_limited_log import RateLimitedLog

logger: Final = logging.getLogger("embermq")

GROUP: Final = "embermq.hooks"
EVENTS_MAX: Final = 10_000
"""How many events wait for one hook. One more is dropped and counted."""
EVENTS_BYTES_MAX: Final = 16 * 1024 * 1024
"""How much they have together; an event that is larger alone is taken if no other waits."""
EVENT_BYTES: Final = 256
"""What an event counts beside its names and payload."""
ERROR_LINES_A_SECOND: Final = 1
STOP_S: Final = 2.0
"""How long the end of the server waits for a hook to finish what is in its queue."""


class Message(NamedTuple):
    """A message that the server has taken."""

    topic_name: str
    payload: bytes
    qos: int
    retain: bool


class Client(NamedTuple):
    """A client; `user_name` is empty for an anonymous one."""

    client_id: str
    user_name: str


class Hook:
    """What a hook derives from; it overrides what it wants to be told. All calls come one by one, on one thread."""

    def message_accepted(self, message: Message) -> None:
        """A message was published, and is durable where it has to be. Messages to topics that begin with `$` are not
        told."""

    def client_came(self, client: Client) -> None:
        """A client has its connection: CONNACK was sent."""

    def client_went(self, client: Client, reason: str) -> None:
        """The connection of a client has ended."""


def make_hooks(names: Sequence[str]) -> list[Hook]:
    """The hooks of these names; a ConfigError says why one cannot be made."""
    return [make_plug_in("server.hooks", name, GROUP, Hook) for name in names]


@final
class HookThread:
    """The thread of one hook, and what waits for it."""

    def __init__(self, hook: Hook, events_max: int = EVENTS_MAX, bytes_max: int = EVENTS_BYTES_MAX) -> None:
        self.hook: Final = hook
        self.dropped = 0  # written by the event loop
        self.errors = 0  # written by the hook's thread
        self._events_max: Final = events_max
        self._bytes_max: Final = bytes_max
        self._changed: Final = threading.Condition()
        self._events: Final[deque[tuple[int, Callable[[], None]]]] = deque()
        self._bytes = 0
        self._is_closed = False
        self._log: Final = RateLimitedLog(logger, "errors of hooks", ERROR_LINES_A_SECOND)
        self._thread: Final = NamedThread(self._run, "ember-hook")
        self._thread.start()

    def put(self, size_bytes: int, call: Callable[[], None]) -> None:
        """Have the hook called; does not wait."""
        size_bytes += EVENT_BYTES
        with self._changed:
            is_full = len(self._events) >= self._events_max or self._bytes + size_bytes > self._bytes_max
            if self._events and is_full:
                self.dropped += 1
                return
            self._events.append((size_bytes, call))
            self._bytes += size_bytes
            self._changed.notify()

    def close(self) -> None:
        """No event follows; those that wait are still told, if the hook is fast enough."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join(STOP_S)
        if self._thread.is_alive():
            name = type(self.hook).__qualname__
            logger.warning("the hook %s does not end: %d events are not told to it", name, len(self._events))

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._events or self._is_closed)
                if not self._events:
                    return
                size_bytes, call = self._events.popleft()
                self._bytes -= size_bytes
            try:
                call()
            except (Exception, SystemExit) as error:
                self.errors += 1
                name = type(self.hook).__qualname__
                self._log.log(logging.ERROR, "the hook %s raised an error", name, error=error)
            del call  # it has a payload, and the next one may be hours away


@final
class _Messages(ReadingLink):
    """All messages, for the hooks that want them."""

    def __init__(self, threads: Sequence[HookThread]) -> None:
        super().__init__()
        self._threads: Final = threads

    def gather(self, message: Publish) -> None:
        told = Message(message.topic_name, message.payload, message.qos, message.retain)
        size_bytes = message.size_bytes()
        for thread in self._threads:
            thread.put(size_bytes, partial(thread.hook.message_accepted, told))


@final
class Hooks(ClientWatch):
    """All hooks of a server that runs. Messages are subscribed to only if a hook wants them."""

    def __init__(self, hooks: Sequence[Hook], core: Core) -> None:
        self._threads: Final = [HookThread(hook) for hook in hooks]
        wanting = [each for each in self._threads if type(each.hook).message_accepted is not Hook.message_accepted]
        if wanting:
            ClientlessSubscription(core, "#", _Messages(wanting)).begin()
        core.watch_clients(self)
        core.add_counts(self._counts)

    def came(self, session: Session) -> None:
        client = Client(session.client_id, session.identity.user_name)
        for thread in self._threads:
            thread.put(len(client.client_id), partial(thread.hook.client_came, client))

    def went(self, session: Session, reason: str) -> None:
        client = Client(session.client_id, session.identity.user_name)
        for thread in self._threads:
            thread.put(len(client.client_id) + len(reason), partial(thread.hook.client_went, client, reason))

    def close(self) -> None:
        """The server has ended: no client is connected any more."""
        for thread in self._threads:
            thread.close()

    def _counts(self) -> dict[str, int]:
        return {
            "hooks/events/dropped": sum(each.dropped for each in self._threads),
            "hooks/errors": sum(each.errors for each in self._threads),
        }
