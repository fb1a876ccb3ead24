"""`Broker`: a whole server as one object, its parts started and stopped together.

Owns: the order in which store, access, server and listeners start and stop.
Never: a decision of any of them.

    async with Broker(port=0) as broker:
        ...connect to broker.host, broker.port

    with Broker.in_thread() as broker:
        ...the same from a program without asyncio
"""

import asyncio
import errno
import logging
import os
import threading
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, ParamSpec, Self, TypeVar, final

from embermq.access.access_list import parse_grant
from embermq.bridge.plan import BridgePlan
from embermq.broker.access import READ, Access, AllowAll, Grant
from embermq.broker.limits import Limits
from embermq.engines import CONTROL_SOCKET, OpenStore, embedded_store, open_node, open_store
from embermq.errors import ConfigError
from embermq.hooks import Hook, Hooks, make_hooks
from embermq.http.control_socket import ControlSocket
from embermq.http.options import BrokerCalls, HttpOptions, ReloadReport
from embermq.listener_changes import changes_of
from embermq.listening import Rules, files_of, listener_of
from embermq.protocol.mqtt.settings import DEFAULT_SETTINGS, Mqtt5Settings
from embermq.protocol.sn.settings import SnSettings
from embermq.reloading import ReadSettings, Reloading
from embermq.store.interface import Store, StoreError
from embermq.transport.address_bounds import SHARED_ADDRESSES
from embermq.transport.listener import Group, Kind, Listener, TlsFiles
from embermq.transport.listeners import HAS_POLL, listen
from embermq.transport.server import GROUP_BYTES_MAX, Server
from embermq.transport.sockets.addresses import is_loopback, shown
from embermq.transport.sockets.loop import SocketLoop
from embermq.transport.tls import CertificateError, ServerTls

if TYPE_CHECKING:
    from embermq.access.access_files import AccessFiles
    from embermq.bridge.bridges import Bridges
    from embermq.bridge.facts import BridgeFacts
    from embermq.http.server import HttpServer
    from embermq.settings import Settings

T = TypeVar("T")
P = ParamSpec("P")

logger: Final = logging.getLogger("embermq")

LOOPBACK: Final = "127.0.0.1"
PORTS: Final[dict[Kind, str]] = {"tcp": "port", "tls": "tls_port", "ws": "ws_port", "wss": "wss_port", "udp": "sn_port"}
"""The field of `Broker` that has the port of a listener."""


@final
@dataclass(kw_only=True, eq=False, repr=False)
class Broker:
    """An MQTT server in this process. After the start, `port`, `ws_port` and so on are the ports it listens on.

    A port of 0 is a free one, None is none. Without `data` or `store`, nothing outlives the broker. Without `access`
    every client may do everything, which is refused when other machines can connect.
    """

    host: str = LOOPBACK
    port: int | None = 0
    ws_port: int | None = None
    tls_port: int | None = None
    wss_port: int | None = None
    certificate: Path | str | None = None
    key: Path | str | None = None
    client_ca: Path | str | None = None
    require_client_certificate: bool = False
    ws_path: str | None = None
    ws_origins: Sequence[str] = ()
    shared_addresses: Sequence[str] = SHARED_ADDRESSES
    unix_path: Path | str | None = None
    unix_mode: int = 0o660
    sn_port: int | None = None
    sn: SnSettings | None = None
    sn_group: Group | None = None
    data: Path | str | None = None
    store: Store | None = None
    access: Access | None = None
    limits: Limits | None = None
    mqtt5: Mqtt5Settings = DEFAULT_SETTINGS
    response_information: str = ""
    sys_interval_s: int = 10
    group_bytes_max: int = GROUP_BYTES_MAX
    http: HttpOptions = field(default_factory=HttpOptions)
    bridges: Sequence[BridgePlan] = ()
    hooks: Sequence[Hook] = ()
    http_port: int | None = field(default=None, init=False)

    stopped: "asyncio.Future[StoreError]" = field(init=False)
    """Done, with the reason, when the cluster goes on without this node: it is to be stopped."""

    def __post_init__(self) -> None:
        if self.access is None and not is_loopback(self.host):
            raise ConfigError(
                f"host {self.host} is reachable from other machines: expected an explicit access, or AllowAll()"
            )
        if (self.tls_port is not None or self.wss_port is not None or self.http.tls) and (
            self.certificate is None or self.key is None
        ):
            raise ConfigError("tls_port, wss_port and http.tls need certificate and key")
        if self.bridges and self.data is None:
            raise ConfigError("bridges need a log on disk: expected data")
        self._access: Access = self.access or AllowAll()
        self._limits: Limits = self.limits or Limits()
        self._response_information: Grant | None = None
        if self.response_information:
            self._response_information = parse_grant(READ, self.response_information, "response_information")
        self._open_store: OpenStore = embedded_store(self.data, self.store)
        self._opened: Store | None = None
        self._server: Server | None = None
        self._described: list[Listener] | None = None  # by settings; else the fields describe them
        self._tls: dict[TlsFiles, ServerTls] = {}
        self._control: ControlSocket | None = None
        self._hooks: Hooks | None = None
        self._http: HttpServer | None = None
        self._http_loading: asyncio.Task[None] | None = None
        self._bridges: Bridges | None = None
        self._access_files: AccessFiles | None = None
        self._settings: dict[str, Any] = {}
        self._in_use: Settings | None = None  # what the listeners are described by
        self._rules: Rules | None = None
        self._reloading = Reloading({}, {})
        self._reloads = asyncio.Lock()

    @classmethod
    def from_settings(cls, settings: "Settings", read_settings: ReadSettings | None = None) -> Self:
        """The broker that a settings tree describes; reads its access files, opens nothing else yet.

        `read_settings` reads the settings again, so that a reload can say what needs a restart.
        """
        every = settings.listeners.every(settings.sn.port)
        rules = Rules(settings)
        certificate, key = settings.listeners.certificate_and_key()
        broker = cls(
            host=settings.listeners.host,
            port=None,
            certificate=certificate,
            key=key,
            shared_addresses=sorted({address for each in every for address in each.shared_addresses}),
            data=None if settings.store.memory else settings.store.directory,
            access=rules.access,
            limits=settings.limits,
            mqtt5=settings.mqtt5.settings(),
            response_information=settings.mqtt5.response_information,
            sys_interval_s=settings.server.sys_interval_s,
            group_bytes_max=settings.store.group_bytes_max,
            http=HttpOptions(
                **settings.http.model_dump(exclude={"lake"}),
                lake=settings.lake_directory(),
                has_users=settings.access.has_users(),
                alerts=tuple(alert.rule() for alert in settings.server.alerts),
                topic_metrics=tuple(each.metric() for each in settings.server.topic_metrics),
            ),
            bridges=settings.bridges.plans(),
            hooks=make_hooks(settings.server.hooks) if settings.server.hooks else (),
        )
        broker._open_store = partial(open_store, settings.store)
        if settings.cluster.bootstrap_servers:
            broker._open_store = partial(open_node, settings)
        broker._settings = settings.model_dump(mode="json")
        broker._access_files = rules.files
        broker._in_use, broker._rules = settings, rules
        broker._described = [listener_of(each, settings, rules) for each in every]
        broker._reloading = Reloading(files_of(settings), broker._settings, read_settings)
        return broker

    @classmethod
    def in_thread(cls: "Callable[P, Broker]", *args: P.args, **options: P.kwargs) -> "BrokerThread":
        """A broker on a thread of its own, as a context manager; takes what `Broker` takes."""
        return BrokerThread(cls(*args, **options))

    async def start(self) -> None:
        """Listen. After an error nothing stays open; an error that the user can correct is a `ConfigError`."""
        assert self._server is None, "a broker is started once at a time"
        self._tls = self.check()
        loop = asyncio.get_running_loop()

        def call_in_loop(function: Callable[[], None]) -> None:
            try:
                loop.call_soon_threadsafe(function)
            except RuntimeError:  # a closed loop cannot be called any more
                return

        call = loop.wake.call if isinstance(loop, SocketLoop) else call_in_loop
        try:
            self._opened = self._open_store(call)
        except StoreError as error:
            raise ConfigError(str(error)) from error
        self.stopped = loop.create_future()
        self._opened.when_stopped(self._stopped_by_store)
        try:
            self._server = Server(
                store=self._opened,
                access=self._access,
                limits=self._limits,
                sys_interval_s=self.sys_interval_s,
                group_bytes_max=self.group_bytes_max,
                mqtt5=self.mqtt5,
                shared_addresses=self.shared_addresses,
                response_information=self._response_information,
            )
            await self._server.start()
            if self.hooks:
                self._hooks = Hooks(self.hooks, self._server.core)
            await self._listen(self._server)
            self._apply_bridges(self.bridges, call)
        except BaseException:
            await self.stop()
            raise

    def _apply_bridges(self, plans: Sequence[BridgePlan], call: Callable[[Callable[[], None]], None]) -> None:
        """Run these bridges; also without any, those of before are to be forgotten."""
        if self.data is None or self._server is None or not (Path(self.data) / "log").is_dir():
            return
        from embermq.bridge.bridges import Bridges

        self._bridges = Bridges(self._server, Path(self.data), call)
        self._bridges.apply(plans)

    def check(self) -> dict[TlsFiles, ServerTls]:
        """Read the certificates; a `ConfigError` says what is wrong with one."""
        wanted = [listener.tls_files for listener in self._described_listeners()]
        own = self._tls_files()
        found: dict[TlsFiles, ServerTls] = {}
        for files in (own, *wanted):
            if files is not None and files not in found:
                try:
                    found[files] = files.read()
                except CertificateError as error:
                    raise ConfigError(str(error)) from error
        return found

    def _tls_files(self) -> TlsFiles | None:
        """The certificate of the fields, which the HTTP interface has as well."""
        if self.certificate is None or self.key is None:
            return None
        client_ca = Path(self.client_ca) if self.client_ca is not None else None
        return TlsFiles(Path(self.certificate), Path(self.key), client_ca, self.require_client_certificate)

    async def _listen(self, server: Server) -> None:
        for listener in self._described_listeners():
            await self._open(server, listener)
            if listener.kind in PORTS:
                setattr(self, PORTS[listener.kind], listener.port)
        await self._listen_http(server)

    async def _open(self, server: Server, listener: Listener) -> None:
        if listener.tls_files is not None:
            listener.tls = self._tls[listener.tls_files]
        group = listener.sn_group
        place = listener.places() + (f" and in the group {shown(*group)}" if group is not None else "")
        await _bound(listen(server, listener), place)

    def _described_listeners(self) -> list[Listener]:
        """The listeners that the settings or the fields describe; of the fields at most one of each kind."""
        if self._described is not None:
            return self._described
        made: list[Listener] = []
        for kind, field_name in PORTS.items():
            port: int | None = getattr(self, field_name)
            if port is not None:
                made.append(self._listener(kind, port))
        return made if self.unix_path is None else [*made, self._listener("unix", 0)]

    def _listener(self, kind: Kind, port: int) -> Listener:
        return Listener(
            kind=kind,
            limits=self._limits,
            access=self._access,
            hosts=[] if kind == "unix" else [self.host],
            port=port,
            path=Path(self.unix_path) if kind == "unix" and self.unix_path is not None else None,
            mode=self.unix_mode,
            tls_files=self._tls_files() if kind in ("tls", "wss") else None,
            ws_paths=[self.ws_path] if kind in ("ws", "wss") and self.ws_path is not None else [],
            ws_origins=self.ws_origins,
            sn=(self.sn or SnSettings()) if kind == "udp" else None,
            sn_group=self.sn_group if kind == "udp" else None,
        )

    async def _listen_http(self, server: Server) -> None:
        """The HTTP interface: on the socket in the data directory and, where asked for, on a port.

        For the socket alone it is loaded when somebody asks there.
        """
        if self.data is None and self.http.port is None and not self.http.alerts:
            return
        server.before_stop.append(self._close_http)
        if self.data is not None:
            try:
                self._control = ControlSocket(Path(self.data) / CONTROL_SOCKET)
            except OSError as error:  # some file systems have no sockets; clients do not need this one
                logger.warning("commands cannot reach this server: %s", error)
        if self.http.works_unasked():
            await self._serve_http(server)
        elif self._control is not None:
            self._http_loading = asyncio.create_task(self._serve_http_when_asked(server, self._control))

    async def _serve_http_when_asked(self, server: Server, control: ControlSocket) -> None:
        try:
            await control.asked()
            await asyncio.to_thread(_load_http_server)  # it takes some tenths of a second
            await self._serve_http(server)
        except Exception as error:
            control.close()
            server.bug(error)

    async def _serve_http(self, server: Server) -> None:
        log_directory = Path(self.data) / "log" if self.data is not None else None
        calls = BrokerCalls(
            reload=self.reload_with_listeners,
            listeners=self._stream_urls,
            bridges=self.bridge_facts,
            access_files=self._access_files,
            read_access=self._read_access,
        )
        self._http = http = _load_http_server()(server, self.http, log_directory, self._settings, calls)
        if self._control is not None:
            await http.listen_unix(self._control)
        if self.http.port is not None:
            files = self._tls_files()
            tls = self._tls[files] if self.http.tls and files is not None else None
            listening = http.listen_tcp(tls)
            self.http_port = await _bound(listening, shown(self.http.host, self.http.port))

    async def _close_http(self) -> None:
        loading, self._http_loading = self._http_loading, None
        if loading is not None:
            loading.cancel()
            await asyncio.wait((loading,))
        http, self._http = self._http, None
        if http is not None:
            await http.close()
        control, self._control = self._control, None
        if control is not None:
            control.close()

    def _stopped_by_store(self, error: StoreError) -> None:
        if not self.stopped.done():
            self.stopped.set_result(error)

    async def stop(self) -> None:
        """Close the listeners and the connections, then the store."""
        server, self._server = self._server, None
        store, self._opened = self._opened, None
        if server is not None:
            await server.stop()  # it closes the store as well, after its last commit
        elif store is not None:
            store.close()
        hooks, self._hooks = self._hooks, None
        if hooks is not None:  # after the last client has gone
            await asyncio.to_thread(hooks.close)

    @property
    def url(self) -> str:
        """Where clients of plain TCP connect: `mqtt://host:port`."""
        assert self.port is not None, "the broker has no listener for plain TCP"
        return f"mqtt://{shown(self.host, self.port)}"

    @property
    def server(self) -> Server:
        """The running server; its objects may be used on the thread of its event loop only."""
        assert self._server is not None, "the broker does not run"
        return self._server

    def listeners(self) -> list[Listener]:
        """The listeners of a broker that runs."""
        return [] if self._server is None else list(self._server.listeners)

    def _stream_urls(self) -> list[str]:
        """Where the commands of this machine can connect."""
        return [listener.url() for listener in self.listeners() if listener.kind in ("tcp", "tls", "unix")]

    def bridge_facts(self) -> "list[BridgeFacts]":
        """The bridges of a broker that runs, each at this moment."""
        return [] if self._bridges is None else self._bridges.facts()

    def _reload_bridges(self) -> list[str]:
        """Run the bridges of the settings; returns those that are new, gone or changed."""
        try:
            settings = self._reloading.wanted()
        except ConfigError:
            return []  # the report says what is wrong
        if settings is None or self._bridges is None:
            return []
        return [f"bridge {name}" for name in self._bridges.apply(settings.bridges.plans())]

    def reload(self) -> ReloadReport:
        """Read certificate, users, rights and bridges again; after a `ConfigError` the old ones stay in use."""
        read = self._read_again()
        bridges = self._reload_bridges()
        return self._reloading.report([*read, *bridges], bridges)

    def _read_again(self) -> list[str]:
        """What `reload` reads, apart from the settings."""
        self._read_access()()
        read = ["users and rights"]
        if self._http is not None and self._http.reload():
            read.append("tokens")
        for tls in self._tls.values():
            try:
                tls.reload()
            except CertificateError as error:
                raise ConfigError(str(error)) from error
        if self._tls:
            read.append("certificate")
        return read

    async def reload_with_listeners(self) -> ReloadReport:
        """As `reload`; then `[[listeners]]` that the settings add, change or remove are opened and closed.

        Clients of a listener that is removed or changed are disconnected, those of others are not affected.
        """
        async with self._reloads:
            read = self._read_again()
            done, failed, waiting = await self._change_listeners()
            bridges = self._reload_bridges()
            found = self._reloading.report([*read, *bridges], bridges)
            return replace(found, needs_restart=[*found.needs_restart, *waiting], listeners=done, failed=failed)

    async def _change_listeners(self) -> tuple[list[str], list[str], list[str]]:
        """What was done, what has failed, and what waits for a restart. A `ConfigError` before anything is done."""
        in_use, rules, server = self._in_use, self._rules, self.server
        try:
            wanted = self._reloading.wanted()
        except ConfigError:  # the report says it
            return [], [], []
        if in_use is None or rules is None or wanted is None:
            return [], [], []
        changes = changes_of(in_use, wanted)
        opened = [listener_of(each, in_use, rules) for each in changes.opened]
        self._read_certificates(opened)
        names = {each.shown_name() for each in changes.closed}
        closed = {each.name: each for each in server.listeners if each.name in names}
        for listener in closed.values():
            server.close_listener(listener)
        failed = await self._open_all(server, opened, closed)
        open_now = {each.name for each in server.listeners}
        before = {each.shown_name(): each for each in in_use.listeners.each}
        kept = [before.get(each.shown_name(), each) if each.shown_name() in failed else each for each in changes.in_use]
        each = tuple(one for one in kept if one.shown_name() in open_now)
        server.addresses.share(sorted({address for one in each for address in one.shared_addresses}))
        self._in_use = in_use.model_copy(update={"listeners": in_use.listeners.model_copy(update={"each": each})})
        self._settings["listeners"] = self._in_use.listeners.model_dump(mode="json")
        self._described = list(server.listeners)
        used = {self._tls_files(), *(one.tls_files for one in server.listeners)}
        self._tls = {files: tls for files, tls in self._tls.items() if files in used}
        return changes.done(failed), list(failed.values()), changes.waiting

    def _read_certificates(self, listeners: list[Listener]) -> None:
        """Those that were not read before; a `ConfigError` says what is wrong with one."""
        for files in (each.tls_files for each in listeners):
            if files is not None and files not in self._tls:
                try:
                    self._tls[files] = files.read()
                except CertificateError as error:
                    raise ConfigError(str(error)) from error

    async def _open_all(self, server: Server, listeners: list[Listener], closed: dict[str, Listener]) -> dict[str, str]:
        """Open listeners; by the names of those that cannot be opened, why. What they replace is opened again."""
        failed: dict[str, str] = {}
        for listener in listeners:
            try:
                await self._open(server, listener)
            except ConfigError as error:
                failed[listener.name] = f"listener {listener.name}: {error}"
        for name in failed:
            if name in closed:
                try:
                    await self._open(server, closed[name])
                    failed[name] += "; it stays as it was"
                except ConfigError:
                    failed[name] += "; it is closed, since the address that it had is taken too"
        return failed

    def _read_access(self) -> Callable[[], None]:
        """Read the users and the rights again, on any thread; a call of what is returned puts them in force, for the
        clients that are connected too."""
        return partial(self._use_access, self._access.read_again())

    def _use_access(self, use: Callable[[], Collection[str]]) -> None:
        revoked = use()
        self.server.begin_turn()
        self.server.core.access_changed(revoked)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()


@final
class BrokerThread:
    """A broker that runs on a thread with its own event loop, from entering to leaving the context."""

    def __init__(self, broker: Broker) -> None:
        self._broker: Final = broker
        self._thread: Final = threading.Thread(target=self._run, name="embermq", daemon=True)
        self._ready: Final = threading.Event()
        self._failure: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None

    def __enter__(self) -> Broker:
        self._thread.start()
        self._ready.wait()
        if self._failure is not None:
            self._thread.join()
            raise self._failure
        return self._broker

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._loop is not None and self._stop is not None
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        if self._failure is not None and error is None:
            raise self._failure

    def call(self, function: Callable[[], T]) -> T:
        """Call a function on the broker's thread, between two turns; returns what it returns."""
        assert self._loop is not None

        async def answer() -> T:
            return function()

        return asyncio.run_coroutine_threadsafe(answer(), self._loop).result()

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=loop_factory()) as runner:
                runner.run(self._serve())
        except BaseException as error:  # raised again where the caller enters or leaves the context
            self._failure = error
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        async with self._broker:
            self._ready.set()
            await self._stop.wait()


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """The server's own where the system has epoll, else uvloop where it is installed; None is asyncio's own."""
    if HAS_POLL:
        return SocketLoop
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def _load_http_server() -> "type[HttpServer]":
    from embermq.http.server import HttpServer

    return HttpServer


async def _bound(listening: Awaitable[T], address: str) -> T:
    """The result of a listener; a `ConfigError` says why it cannot listen."""
    try:
        return await listening
    except OSError as error:
        # asyncio repeats the address in the error's text; a host name that is not found has an errno below 0.
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or str(error)
        advice = "; stop what listens there, or choose another address" if error.errno == errno.EADDRINUSE else ""
        raise ConfigError(f"cannot listen on {address}: {reason}{advice}") from error
