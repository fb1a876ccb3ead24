"""`TestedBroker`: a real broker on a thread of its own, with what a test wants to see and do.

Owns: the broker's thread, the messages that it took, and the files for users and certificates.
Never: a shortcut past the broker. Clients connect over real sockets.
"""

import asyncio
import tempfile
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar, final

from embermq.access.file_access import FileAccess
from embermq.access.passwords import write_password
from embermq.broker.access import OPERATOR, Access
from embermq.broker.clientless import ClientlessSubscription, ReadingLink
from embermq.broker.operator import retained_pieces
from embermq.embed import Broker, BrokerThread
from embermq.errors import ConfigError
from embermq.protocol.packets import Publish
from embermq.protocol.topics import matches
from embermq.testing.faults import AsyncFaultyNetwork, FaultyNetwork

MESSAGES_MAX: Final = 100_000
"""How many messages a broker remembers for `messages` and `wait_for`: the newest ones."""
WAIT_S: Final = 5.0
_PORTS: Final = ("port", "tls_port", "ws_port", "wss_port", "sn_port")

T = TypeVar("T")


@final
class _TakenMessages(ReadingLink):
    """Every message that the broker took, newest last. Written by the broker's thread, read by the test's."""

    def __init__(self) -> None:
        super().__init__()
        self._changed: Final = threading.Condition()
        self._messages: Final[deque[Publish]] = deque(maxlen=MESSAGES_MAX)

    def gather(self, message: Publish) -> None:
        with self._changed:
            self._messages.append(message)
            self._changed.notify_all()

    def matching(self, topic_filter: str) -> list[Publish]:
        with self._changed:
            return self._matching(topic_filter)

    def wait(self, topic_filter: str, count: int, timeout_s: float) -> list[Publish]:
        """The messages that match, when there are so many of them; a `TimeoutError` says what has come instead."""
        with self._changed:
            if not self._changed.wait_for(lambda: len(self._matching(topic_filter)) >= count, timeout_s):
                came = sorted({message.topic_name for message in self._messages}) or "no message"
                found = len(self._matching(topic_filter))
                raise TimeoutError(f"{found} of {count} messages for {topic_filter} in {timeout_s:g} s; came: {came}")
            return self._matching(topic_filter)

    def _matching(self, topic_filter: str) -> list[Publish]:
        return [message for message in self._messages if matches(topic_filter, message.topic_name)]


@final
class TestedBroker:
    """A broker for a test, as a context manager.

    `users`: passwords by user name; without it clients need none. `access_list`: the text of an access list
    (docs/access.md). `tls`: listen with TLS too, on `tls_port`, with a certificate that `ca` has signed. `data`: a
    directory for what outlives `restart`. Other options are those of `embermq.Broker`.
    """

    __test__ = False  # pytest takes a class of this name for a test

    def __init__(
        self,
        *,
        users: dict[str, str] | None = None,
        access_list: str | None = None,
        tls: bool = False,
        data: Path | None = None,
        **options: Any,
    ) -> None:
        self._files: Final = tempfile.TemporaryDirectory(prefix="embermq-test-")
        self._directory: Final = Path(self._files.name)
        self._options: Final[dict[str, Any]] = {**options, "data": data}
        self.ca: Final = self._directory / "test-authority.crt"
        if users is not None or access_list is not None:
            self._options["access"] = self._access(users, access_list)
        if tls:
            self._options.update(tls_port=0, **self._certificate())
        self._taken = _TakenMessages()
        self._broker: Broker | None = None
        self._thread: BrokerThread | None = None

    def _access(self, users: dict[str, str] | None, access_list: str | None) -> Access:
        passwords = self._directory / "passwords"
        for name, password in (users or {}).items():
            write_password(passwords, name, password.encode(), with_scram=False)
        rights = self._directory / "access-list"
        if access_list is not None:
            rights.write_text(access_list, encoding="utf-8")
        return FileAccess(
            password_file=passwords if users else None,
            acl_file=rights if access_list is not None else None,
            allow_anonymous=users is None,
        )

    def _certificate(self) -> dict[str, Path]:
        try:
            from embermq.certificates import Authority
        except ImportError as error:
            raise ConfigError("tls=True needs the package cryptography: pip install 'embermq[tls]'") from error
        pair = Authority(self._directory).sign("server")
        return {"certificate": pair.certificate, "key": pair.key}

    # -- start and stop ------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self._files.cleanup()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._thread is not None:
                self.stop()
        finally:
            self._files.cleanup()

    def start(self) -> None:
        """Start it; after `stop` on the same ports."""
        broker = Broker(**self._options)
        thread = BrokerThread(broker)
        thread.__enter__()
        self._broker, self._thread = broker, thread
        self._options.update({name: getattr(broker, name) for name in _PORTS})
        self._call(lambda: ClientlessSubscription(broker.server.core, "#", self._taken).begin())

    def stop(self) -> None:
        """Stop it, with all connections; what is not in `data` is lost."""
        thread, self._thread = self._thread, None
        assert thread is not None, "the broker does not run"
        thread.__exit__(None, None, None)

    def restart(self) -> None:
        """Stop and start it: clients lose their connections, and what is in `data` is kept."""
        self.stop()
        self.start()

    # -- where it is ---------------------------------------------------------------------------------------------------

    @property
    def broker(self) -> Broker:
        """The broker itself, for everything that is not here."""
        assert self._broker is not None, "the broker was not started"
        return self._broker

    @property
    def host(self) -> str:
        return self.broker.host

    @property
    def port(self) -> int:
        assert self.broker.port is not None, "the broker has no listener for plain TCP"
        return self.broker.port

    @property
    def tls_port(self) -> int:
        assert self.broker.tls_port is not None, "the broker has no listener for TLS: use tls=True"
        return self.broker.tls_port

    @property
    def url(self) -> str:
        return f"mqtt://{self.host}:{self.port}"

    # -- messages ------------------------------------------------------------------------------------------------------

    def publish(self, topic_name: str, payload: bytes | str = b"", qos: int = 0, retain: bool = False) -> None:
        """Publish a message with the rights of the operator; it has been handed to all subscribers on return."""
        data = payload.encode() if isinstance(payload, str) else payload
        durable = threading.Event()

        def publish() -> None:
            server = self.broker.server
            server.begin_turn()
            refused = server.core.publish_sessionless(Publish(topic_name, data, qos, retain), OPERATOR)
            if refused is not None:
                raise ValueError(f"the broker refused a message to {topic_name!r}: reason code {refused:#04x}")
            server.core.when_durable(durable.set)

        self._call(publish)
        if not durable.wait(WAIT_S):
            raise TimeoutError(f"a message to {topic_name!r} was not durable in {WAIT_S:g} s")

    def messages(self, topic_filter: str = "#") -> list[Publish]:
        """What was published since the start and matches, in the order of arrival; the newest `MESSAGES_MAX`."""
        return self._taken.matching(topic_filter)

    def wait_for(self, topic_filter: str, timeout_s: float = WAIT_S) -> Publish:
        """The first message since the start that matches; it may have come already."""
        return self._taken.wait(topic_filter, 1, timeout_s)[0]

    def wait_for_all(self, topic_filter: str, count: int, timeout_s: float = WAIT_S) -> list[Publish]:
        """The messages since the start that match, when there are at least `count`."""
        return self._taken.wait(topic_filter, count, timeout_s)

    def retained(self, topic_filter: str = "#") -> dict[str, bytes]:
        """The payloads of the retained messages that match, by topic name."""

        def read() -> dict[str, bytes]:
            server = self.broker.server
            server.begin_turn()
            pieces = retained_pieces(server.store, topic_filter)
            return {message.topic_name: message.payload for piece in pieces for message in piece}

        return self._call(read)

    # -- clients -------------------------------------------------------------------------------------------------------

    def clients(self) -> list[str]:
        """The client identifiers of those that are connected, sorted."""
        return self._call(
            lambda: sorted(each.client_id for each in self.broker.server.core.sessions() if each.link is not None)
        )

    def disconnect(self, client_id: str) -> None:
        """End the connection of a client as an operator would: its will is published, and a lasting session stays."""

        def end() -> None:
            server = self.broker.server
            session = server.core.session(client_id)
            if session is None or session.link is None:
                raise ValueError(f"no client {client_id!r} is connected")
            server.begin_turn()
            server.core.disconnect(session)

        self._call(end)

    def faults(self) -> FaultyNetwork:
        """A network between clients and the broker that fails on demand, as a context manager with a port."""
        return FaultyNetwork(self.host, self.port)

    def _call(self, function: Callable[[], T]) -> T:
        assert self._thread is not None, "the broker does not run"
        return self._thread.call(function)


@final
class AsyncTestedBroker:
    """`TestedBroker` for code in an event loop: the same names, awaited where they wait."""

    def __init__(self, broker: TestedBroker) -> None:
        self.broker: Final = broker
        self.host: Final = broker.host
        self.port: Final = broker.port
        self.url: Final = broker.url

    async def publish(self, topic_name: str, payload: bytes | str = b"", qos: int = 0, retain: bool = False) -> None:
        await asyncio.to_thread(self.broker.publish, topic_name, payload, qos, retain)

    async def messages(self, topic_filter: str = "#") -> list[Publish]:
        return self.broker.messages(topic_filter)

    async def wait_for(self, topic_filter: str, timeout_s: float = WAIT_S) -> Publish:
        return await asyncio.to_thread(self.broker.wait_for, topic_filter, timeout_s)

    async def wait_for_all(self, topic_filter: str, count: int, timeout_s: float = WAIT_S) -> list[Publish]:
        return await asyncio.to_thread(self.broker.wait_for_all, topic_filter, count, timeout_s)

    async def retained(self, topic_filter: str = "#") -> dict[str, bytes]:
        return await asyncio.to_thread(self.broker.retained, topic_filter)

    async def clients(self) -> list[str]:
        return await asyncio.to_thread(self.broker.clients)

    async def disconnect(self, client_id: str) -> None:
        await asyncio.to_thread(self.broker.disconnect, client_id)

    def faults(self) -> AsyncFaultyNetwork:
        return AsyncFaultyNetwork(self.broker.faults())

    async def restart(self) -> None:
        await asyncio.to_thread(self.broker.restart)
