"""`ember serve`: the server, from settings to a clean stop."""

import asyncio
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from embermq import __version__
from embermq.commands.options import config_option, directory_option
from embermq.compiled import form
from embermq.errors import ConfigError

if TYPE_CHECKING:
    from embermq.embed import Broker
    from embermq.settings import Settings
    from embermq.store.errors import StoreError
    from embermq.transport.listener import Listener

logger = logging.getLogger("embermq")

ARCHIVE_THREADS: Final = ("ember-archive", "ember-as-of", "ember-fetch")
"""How the names of threads begin that wait for an archive."""
REQUEST_END_S: Final = 0.2
START_AGAIN_S: Final = 2.0
FILES_OF_THE_SERVER: Final = 1024
"""For the store and the process itself, beside one for each connection."""
FEW_CLIENTS: Final = 4_000
"""Room for fewer than this many is said at start, also if nobody has asked for more."""

Directory = Annotated[Path | None, directory_option("--data", "Directory for all data.", "ember-data")]


def serve(
    host: Annotated[str | None, typer.Option(show_default="127.0.0.1", help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(show_default="1883", help="Port for plain TCP, 0 for a free one.")] = None,
    data: Directory = None,
    memory: Annotated[bool, typer.Option("--memory", help="Keep everything in memory only.")] = False,
    ws_port: Annotated[int | None, typer.Option(help="Port for WebSocket.")] = None,
    tls_port: Annotated[int | None, typer.Option(help="Port for TLS; needs --cert and --key.")] = None,
    cert: Annotated[Path | None, typer.Option(help="The server's certificate chain, PEM.")] = None,
    key: Annotated[Path | None, typer.Option(help="The certificate's private key, PEM.")] = None,
    unix: Annotated[Path | None, typer.Option(help="Unix socket to listen on.")] = None,
    sn_port: Annotated[int | None, typer.Option(help="UDP port for MQTT-SN.")] = None,
    http_port: Annotated[
        int | None, typer.Option(help="Port for the HTTP interface; needs http.token_file in --config.")
    ] = None,
    allow_anonymous: Annotated[
        bool, typer.Option("--allow-anonymous", help="Accept clients without a user name, from other machines too.")
    ] = False,
    config: Annotated[Path | None, config_option("Settings file, TOML.")] = None,
) -> None:
    """Run the server until SIGTERM or Ctrl-C. SIGHUP reads users, rights, certificates and listeners again."""
    if data is not None and memory:
        raise ConfigError("--data and --memory: expected one of them, not both")
    chosen = read_settings(
        config,
        {
            "listeners": {
                "host": host,
                "port": port,
                "ws_port": ws_port,
                "tls_port": tls_port,
                "certificate": cert,
                "key": key,
                "unix_path": unix,
            },
            "sn": {"port": sn_port},
            "http": {"port": http_port},
            "access": {"allow_anonymous": allow_anonymous or None},
            # --data overrides `memory = true` in a file.
            "store": {"directory": data, "memory": True if memory else False if data is not None else None},
        },
    )
    if chosen.problem is not None:
        logger.warning("the settings of the pipeline are wrong: %s", chosen.problem)
    run(chosen)


@dataclass(frozen=True)
class ChosenSettings:
    """The settings of a start, the file they were read from if there is one, and how they are read again.

    `problem` is why the section `pipeline` cannot be used; None if it can.
    """

    settings: "Settings"
    file: Path | None
    read_again: "Callable[[], Settings]"
    problem: str | None = None


def read_settings(config: Path | None, flags: dict[str, dict[str, Any]]) -> ChosenSettings:
    """The settings with the flags that were given (those not None), and logging as they say."""
    from embermq.config import load

    chosen = {
        section: {key: value for key, value in values.items() if value is not None} for section, values in flags.items()
    }
    given = {section: values for section, values in chosen.items() if values}  # an empty one would hide a wrong one
    problem = None
    try:
        settings = load(config, given)
    except ConfigError as error:
        # The server does not need the settings of the pipeline: if only they are wrong, it runs without them.
        settings, problem = load(config, given, without=("pipeline",)), str(error)
    logging.basicConfig(
        level=settings.server.log_level.upper(),
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        stream=sys.stderr,
    )
    return ChosenSettings(settings, config, lambda: load(config, given), problem)


def run(chosen: ChosenSettings, beside: AbstractAsyncContextManager[str] | None = None) -> None:
    """Serve until a signal comes. `beside` runs while the server runs; entering it gives a line to print at start."""
    from embermq.embed import loop_factory

    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_serve(chosen, beside if beside is not None else nullcontext("")))
    _leave_hanging_requests()


def _leave_hanging_requests() -> None:
    """End the process now if a request to the archive has not ended: pyarrow would wait for it, up to two minutes."""
    threads = [thread for thread in threading.enumerate() if thread.name.startswith(ARCHIVE_THREADS)]
    for thread in threads:
        thread.join(REQUEST_END_S)
    if any(thread.is_alive() for thread in threads):
        logger.warning("a request to the archive does not end: the server ends without waiting for it")
        logging.shutdown()
        sys.stdout.flush()
        os._exit(0)


async def _serve(chosen: ChosenSettings, beside: AbstractAsyncContextManager[str]) -> None:
    from embermq.commands.service_manager import ServiceManager
    from embermq.embed import Broker
    from embermq.transport.capacity import fix_allocator, give_back

    # Every new file is for this user alone; RocksDB, for example, creates its files by the umask.
    os.umask(0o077)
    fix_allocator()
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    settings = chosen.settings
    broker = Broker.from_settings(settings, chosen.read_again)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    reloads: set[asyncio.Task[None]] = set()  # the loop itself keeps none

    def reload() -> None:
        if stop.is_set():
            return
        task = loop.create_task(_reload(broker))
        reloads.add(task)
        task.add_done_callback(reloads.discard)

    loop.add_signal_handler(signal.SIGHUP, reload)
    async with broker, beside as other:
        lines = [
            f"ember {__version__} ({form()})",
            f"settings: {chosen.file or 'defaults, since no ember.toml was found'}",
            *start_up_lines(broker, settings),
            *([other] if other else []),
            "ready",
        ]
        print(*lines, sep="\n", flush=True)
        _raise_file_limit(settings.limits.connections_max)
        _collect_rarely()
        give_back()  # what only the start has needed
        async with ServiceManager():
            ended = await _until_stopped(broker, stop)
    if ended is not None:
        raise ConfigError(str(ended))
    print("stopped", flush=True)


async def _until_stopped(broker: "Broker", stop: asyncio.Event) -> "StoreError | None":
    """Until a signal comes; or the error that keeps this node out of its cluster. A node whose place another has taken
    starts again, as a standby."""
    from embermq.store.errors import Fenced

    signalled = asyncio.create_task(stop.wait())
    while True:
        await asyncio.wait((signalled, broker.stopped), return_when=asyncio.FIRST_COMPLETED)
        if signalled.done():
            return None
        error = broker.stopped.result()
        if not isinstance(error, Fenced):
            signalled.cancel()
            return error
        logger.warning("all clients are disconnected, and this server starts again as a standby: %s", error)
        await broker.stop()
        while not stop.is_set():
            try:
                await broker.start()
                break
            except ConfigError as reason:  # Kafka may not be there yet
                logger.error("not started again, this is tried again: %s", reason)
                with suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), START_AGAIN_S)


def start_up_lines(broker: "Broker", settings: "Settings") -> list[str]:
    """One line for each listener, the store and the access."""
    from embermq.transport.sockets.addresses import shown

    lines = [f"listening on {_place(listener)}" for listener in broker.listeners()]
    if broker.http_port is not None:
        scheme = "https" if settings.http.tls else "http"
        lines.append(f"listening on {scheme}://{shown(settings.http.host, broker.http_port)}")
    store = settings.store
    if store.memory:
        lines.append("store: memory, nothing outlives the server")
    elif settings.cluster.bootstrap_servers:
        cluster = settings.cluster
        lines.append(f"store: {store.directory}, node {cluster.node} of the cluster in topic {cluster.topic}")
    else:
        lines.append(f"store: {store.directory}, durability {store.durability}")
    access = settings.access
    users = [
        *([f"users of {access.password_file}"] if access.password_file is not None else []),
        *([f"tokens by {access.jwt_keys}"] if access.jwt_keys else []),
        *([f"users by {access.call_out_url}"] if access.call_out_url else []),
        *(["client certificates"] if access.certificate_as_user else []),
        *(["anonymous clients"] if settings.anonymous_allowed() else []),
    ]
    if access.plugin:
        return [*lines, f"access: the plug-in {access.plugin}"]
    rights = f"rights of {access.acl_file}" if access.acl_file is not None else "everything allowed"
    return [*lines, f"access: {', '.join(users)}; {rights}"]


def _place(listener: "Listener") -> str:
    from embermq.transport.sockets.addresses import shown

    if listener.kind == "unix":
        return f"unix socket {listener.address()}"
    also = "".join(f" and {shown(host, listener.port)}" for host in listener.hosts[1:])
    own_name = f" ({listener.name})" if listener.name != listener.kind else ""
    return listener.url() + also + (f" (UDP), {listener.sn.profile}" if listener.sn is not None else "") + own_name


async def _reload(broker: "Broker") -> None:
    try:
        found = await broker.reload_with_listeners()
    except ConfigError as error:
        logger.error("not reloaded, the old settings stay in use: %s", error)
        return
    logger.info("read again: %s; changed: %s", ", ".join(found.read), ", ".join(found.changed) or "nothing")
    for sentence in found.listeners:
        logger.info("%s", sentence)
    for sentence in found.failed:
        logger.error("%s", sentence)
    for sentence in found.needs_restart:
        logger.warning("needs a restart: %s", sentence)
    if found.settings_problem:
        logger.error("the settings were not compared: %s", found.settings_problem)


def _collect_rarely() -> None:
    """Packets and records are freed by reference counts; the search for cycles took 5 % of a retained write."""
    import gc

    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def _raise_file_limit(connections_max: int) -> None:
    """Raise the soft limit of open files, usually 1024: each connection is one.

    It is said only of a `connections_max` that the operator has set: the default is more than most servers ever have.
    """
    import resource

    from embermq.broker.limits import Limits

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections_max + FILES_OF_THE_SERVER
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        clients = max(0, soft - FILES_OF_THE_SERVER)
        if soft < wanted and (connections_max != Limits().connections_max or clients < FEW_CLIENTS):
            logger.warning(
                "about %d clients can be connected at a time, limits.connections_max is %d: the system lets this"
                " process open %d files. For more, raise its limit of open files (LimitNOFILE= of systemd, ulimit -n)",
                clients,
                connections_max,
                soft,
            )
