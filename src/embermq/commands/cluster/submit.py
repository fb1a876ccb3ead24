"""`ember pipeline submit`: the pipeline on a Spark cluster, through spark-submit.

Owns: the command line of spark-submit, and the life of its processes. What the line adds to the one that a user would
write: Delta Lake's package, and the settings that the pipeline's session has elsewhere.
"""

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Final

import typer

from embermq.commands.pipeline_queries import errors_as_sentences
from embermq.commands.submitted.parent import DRIVER_FILE, end_with_parent
from embermq.errors import ConfigError

PACKAGES = "spark.jars.packages"
_FORWARDED: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class DeployMode(StrEnum):
    """Where the driver runs."""

    CLIENT = "client"
    CLUSTER = "cluster"


@dataclass(frozen=True)
class Submission:
    """What spark-submit is told."""

    master: str
    deploy_mode: DeployMode = DeployMode.CLIENT
    conf: Sequence[str] = ()
    packages: Sequence[str] = ()
    properties_file: Path | None = None
    options: Sequence[str] = field(default=())
    """Options of spark-submit that are passed on as they are."""
    arguments: Sequence[str] = ()


def submit(
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[-- RUN-OPTIONS]", help="Options of `ember pipeline run`.")
    ] = None,
    master: Annotated[str, typer.Option(help="The cluster: spark://HOST:PORT, yarn, k8s://URL, local[*].")] = "yarn",
    deploy_mode: Annotated[DeployMode, typer.Option(help="Where the driver runs.")] = DeployMode.CLIENT,
    conf: Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", help="A Spark setting; repeatable.")] = None,
    packages: Annotated[
        list[str] | None, typer.Option(metavar="MAVEN", help="Packages beside Delta Lake's; repeatable.")
    ] = None,
    properties_file: Annotated[Path | None, typer.Option(help="Spark settings from a file; --conf wins.")] = None,
    py_files: Annotated[str | None, typer.Option(help="Passed to spark-submit.")] = None,
    files: Annotated[str | None, typer.Option(help="Passed to spark-submit.")] = None,
    archives: Annotated[str | None, typer.Option(help="Passed to spark-submit.")] = None,
    show: Annotated[bool, typer.Option("--print", help="Print the spark-submit line instead of running it.")] = False,
) -> None:
    """Run the pipeline on a cluster: `ember pipeline submit --master yarn -- --server https://mq:8080 --lake hdfs://...`"""
    with errors_as_sentences(needs_spark=not show):
        passed = {"--py-files": py_files, "--files": files, "--archives": archives}
        line = submit_line(
            Submission(
                master,
                deploy_mode,
                tuple(conf or ()),
                tuple(packages or ()),
                properties_file,
                [part for name, value in passed.items() if value is not None for part in (name, value)],
                tuple(arguments or ()),
            )
        )
        if show:
            print(shlex.join(line))
            return
        raise typer.Exit(_run(line, master))


def submit_line(submission: Submission) -> list[str]:
    """The command line of spark-submit. ConfigError if an option cannot be used."""
    from embermq.commands.submitted import __file__ as folder

    given = dict(_pair(text) for text in submission.conf)
    known = _properties(submission.properties_file)
    check_arguments(submission.arguments)
    ours = _settings(submission.master, _lake(submission.arguments))
    packages = [ours.pop(PACKAGES), *submission.packages, *_listed(given.pop(PACKAGES, known.get(PACKAGES)))]
    line = [_spark_submit(), "--master", submission.master, "--deploy-mode", submission.deploy_mode.value]
    if submission.properties_file is not None:
        line += ["--properties-file", str(submission.properties_file)]
    line += ["--packages", ",".join(dict.fromkeys(packages)), *submission.options]
    settings = {**{key: value for key, value in ours.items() if key not in known}, **given}
    for key, value in settings.items():
        line += ["--conf", f"{key}={value}"]
    return [*line, str(Path(folder).parent / "program.py"), *submission.arguments]


def check_arguments(arguments: Sequence[str]) -> None:
    """ConfigError if the pipeline would refuse its options, which on a cluster is noticed late."""
    from embermq.commands.pipeline import check_run_options

    for name, instead in (("--master", "--master"), ("--memory", "--conf spark.driver.memory=1g")):
        if any(argument == name or argument.startswith(f"{name}=") for argument in arguments):
            raise ConfigError(f"{name}: expected before `--`, as {instead}")
    if find_spec("pyspark") is not None:  # to print the line, Spark is not needed
        check_run_options(arguments)


def _lake(arguments: Sequence[str]) -> str | None:
    """The place of the lake, if the pipeline's options name one."""
    for at, argument in enumerate(arguments):
        if argument == "--lake" and at + 1 < len(arguments):
            return arguments[at + 1]
        if argument.startswith("--lake="):
            return argument.removeprefix("--lake=")
    return None


def _settings(master: str, lake: str | None) -> dict[str, str]:
    from embermq.lake.lake import Lake
    from embermq.spark.session import PIPELINE_SETTINGS, session_settings

    of_lake = {} if lake is None else Lake(lake).spark_settings()
    return session_settings(master, {**of_lake, **PIPELINE_SETTINGS}) | {"spark.app.name": "embermq pipeline"}


def _pair(text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not separator or not key.strip():
        raise ConfigError(f"--conf {text}: expected KEY=VALUE")
    return key.strip(), value


def _listed(text: str | None) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()] if text else []


def _properties(path: Path | None) -> Mapping[str, str]:
    """The settings of a properties file, which win over those of the pipeline."""
    if path is None:
        return {}
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--properties-file: {path} cannot be read: {error}") from None
    found: dict[str, str] = {}
    for line in map(str.strip, lines):
        if line and line[0] not in "#!":
            key, _, value = line.replace("=", " ", 1).partition(" ")
            found[key.strip()] = value.strip()
    return found


def _spark_submit() -> str:
    """The spark-submit of SPARK_HOME, or the one in PySpark."""
    home = os.environ.get("SPARK_HOME")
    found = find_spec("pyspark")
    if home is None and found is not None and found.origin is not None:
        home = str(Path(found.origin).parent)
    return str(Path(home) / "bin" / "spark-submit") if home is not None else "spark-submit"


def _run(line: Sequence[str], master: str) -> int:
    """Run spark-submit to its end; its exit code. What ends this process ends the driver as well.

    A signal goes to the driver, which stops cleanly, and Java follows with its exit code. While there is no driver, and
    where it runs on the cluster, Java gets it. They are in a process group of their own: Ctrl-C would end Java first.
    """
    from embermq.spark.session import prepare_environment

    prepare_environment(master)
    with TemporaryDirectory(prefix="embermq-") as directory:
        file = Path(directory, "driver")
        environment = {**os.environ, DRIVER_FILE: str(file)}
        environment.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
        try:
            process = subprocess.Popen(line, env=environment, process_group=0, preexec_fn=end_with_parent)
        except OSError as error:
            raise ConfigError(f"{line[0]} cannot be run: {error.strerror}") from None

        def forward(*_: object) -> None:
            try:
                driver = int(file.read_text())
            except (OSError, ValueError):
                driver = process.pid
            with suppress(ProcessLookupError):
                os.kill(driver, signal.SIGTERM)

        # What is ignored stays so: `nohup` is to outlive a terminal.
        heard = [number for number in _FORWARDED if signal.getsignal(number) is not signal.SIG_IGN]
        before = {number: signal.signal(number, forward) for number in heard}
        try:
            code = process.wait()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
    return 128 - code if code < 0 else code
