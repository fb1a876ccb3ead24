"""`ember up`: the server, and the pipeline on Spark beside it in a process of its own.

The pipeline reads the log's files and nothing else of the server: if it fails, or its settings are wrong, the server
goes on without it.
"""

import asyncio
import importlib
import logging
import sys
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Any, Final, final

import typer

from embermq.commands.options import DEFAULT_LAKE, config_option, lake_option
from embermq.commands.serve import Directory, read_settings, run
from embermq.errors import ConfigError
from embermq.history.location import is_url

if TYPE_CHECKING:
    from embermq.lake.settings import PipelineSettings

logger = logging.getLogger("embermq")

RESTART_FIRST_S: Final = 5.0
RESTART_MAX_S: Final = 60.0
LOOK_S: Final = 2.0
"""How often it is looked whether what the pipeline needs has been installed since the start."""
STOP_GRACE_S: Final = 30.0
"""How long a pipeline may take to finish its batch when it is told to stop."""


def up(
    host: Annotated[str | None, typer.Option(show_default="127.0.0.1", help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(show_default="1883", help="Port for plain TCP, 0 for a free one.")] = None,
    data: Directory = None,
    lake: Annotated[str | None, lake_option("The directory of the tables, or their URL.", DEFAULT_LAKE)] = None,
    master: Annotated[
        str | None, typer.Option(show_default="local[*]", help="Where Spark runs: local[*], or the URL of a cluster.")
    ] = None,
    sn_port: Annotated[int | None, typer.Option(help="UDP port for MQTT-SN.")] = None,
    http_port: Annotated[
        int | None, typer.Option(help="Port for the HTTP interface; needs http.token_file in --config.")
    ] = None,
    config: Annotated[Path | None, config_option("Settings file, TOML.")] = None,
) -> None:
    """Run the server and the pipeline together until SIGTERM or Ctrl-C.

    Without Spark or Java the server runs alone; the pipeline starts when both have been installed.
    """
    listeners = {"host": host, "port": port}
    flags: dict[str, dict[str, Any]] = {
        "listeners": listeners,
        "sn": {"port": sn_port},
        "http": {"port": http_port, "lake": None if lake is None or is_url(lake) else Path(lake)},
        "store": {"directory": data},
        "pipeline": {"lake": lake, "master": master},
    }
    chosen = read_settings(config, flags)
    settings = chosen.settings
    if settings.store.memory:
        raise ConfigError("store.memory is set: expected a directory, the pipeline reads its log")
    place = settings.pipeline.lake if lake is not None else settings.lake_place()
    arguments = ["--data", str(settings.store.directory), "--lake", place, "--master", settings.pipeline.master]
    if config is not None:
        arguments += ["--config", str(config)]
    run(chosen, Pipeline(arguments, place, chosen.problem or _problem_of_tables(settings.pipeline)))


def _problem_of_tables(settings: "PipelineSettings") -> str | None:
    """Why the pipeline would refuse the tables that are there; None if it goes on with them."""
    from embermq.lake.errors import LakeError

    try:
        settings.check_tables()
    except LakeError as error:
        return str(error)
    return None


@final
class Pipeline:
    """`ember pipeline run --continuous` as a child that is started again when it ends.

    With a `problem` there is no child: the problem is logged, and the server runs alone. Without Spark or Java the
    child is started when they are there.
    """

    __slots__ = ("_arguments", "_lake", "_problem", "_process", "_watch")

    def __init__(self, arguments: list[str], lake: str, problem: str | None = None) -> None:
        self._arguments: Final = arguments
        self._lake: Final = lake
        self._problem: Final = problem
        self._process: asyncio.subprocess.Process | None = None
        self._watch: asyncio.Task[None] | None = None

    async def __aenter__(self) -> str:
        from embermq.spark import what_is_missing

        if self._problem is not None:
            logger.warning("the pipeline does not run: %s", self._problem)
            return f"pipeline: not running: {self._problem}"
        self._watch = asyncio.create_task(self._keep_running())
        missing = what_is_missing()
        if missing:
            return f"pipeline: starts when it can: {missing}"
        return f"pipeline: tables in {self._lake}"

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._watch is None:
            return
        self._watch.cancel()
        with suppress(asyncio.CancelledError):
            await self._watch
        process = self._process
        if process is not None and process.returncode is None:
            process.terminate()
            try:
                await asyncio.wait_for(process.wait(), STOP_GRACE_S)
            except TimeoutError:
                logger.warning(
                    "the pipeline did not stop in %.0f s and was killed; it goes on from its checkpoint", STOP_GRACE_S
                )
                process.kill()
                await process.wait()

    async def _keep_running(self) -> None:
        await self._installed()
        restart_s = RESTART_FIRST_S
        while True:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "embermq",
                "pipeline",
                "run",
                "--continuous",
                *self._arguments,
                stdin=asyncio.subprocess.DEVNULL,
                preexec_fn=_end_with_parent,
                start_new_session=True,  # Ctrl-C is for the server, which then stops its child cleanly
            )
            code = await self._process.wait()
            logger.warning("the pipeline ended with code %d and is started again in %.0f s", code, restart_s)
            await asyncio.sleep(restart_s)
            restart_s = min(2 * restart_s, RESTART_MAX_S)

    async def _installed(self) -> None:
        """Wait until Spark and Java are there."""
        from embermq.spark import what_is_missing

        has_waited = False
        while what_is_missing():
            has_waited = True
            await asyncio.sleep(LOOK_S)
            importlib.invalidate_caches()  # of the directories in which nothing was found before
        if has_waited:
            logger.info("the pipeline starts: Spark and Java are installed; tables in %s", self._lake)


def _end_with_parent() -> None:
    """In the child: have the system stop it if the server is killed, so that no pipeline keeps the lake locked."""
    if sys.platform == "linux":
        import ctypes
        import signal

        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGTERM)
