"""The Spark session: Java found, Delta Lake set up, settings that fit small and frequent commits.

Owns: what must be there before Spark can run, and the one place where a session is built.
Never: a table. Importing this module imports no Spark.
"""

import atexit
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from embermq.spark.errors import JavaMissing, JavaNotStarted, PipelineError, SparkMissing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DELTA_PACKAGE: Final = "io.delta:delta-spark_4.2_2.13:4.4.0"
JAVA_VERSION_MIN: Final = 17
DEFAULT_MASTER: Final = "local[*]"

# Spark brings its own, newer or equal; leaving these out fetches 13 MB instead of 87 and avoids two versions of each.
_BROUGHT_BY_SPARK: Final = (
    "com.fasterxml.jackson.core:*",
    "com.fasterxml.jackson.datatype:*",
    "com.github.luben:*",
    "com.google.code.findbugs:*",
    "commons-logging:*",
    "commons-pool:*",
    "io.airlift:*",
    "javax.annotation:*",
    "org.apache.hadoop:*",
    "org.apache.logging.log4j:*",
    "org.apache.parquet:*",
    "org.locationtech.jts:*",
    "org.roaringbitmap:*",
    "org.slf4j:*",
    "org.xerial.snappy:*",
)
_JAVA_PLACES: Final = ("/usr/lib/jvm", "/opt/java", "/opt/jdk", "/Library/Java/JavaVirtualMachines")
_JAVA_COMPLAINT: Final = re.compile(r"Error|Exception|Invalid|not found")
_VERSION: Final = re.compile(r'version "(\d+)')

SOCKET_PATH_BYTES_MAX: Final = 100
"""Of the path of a unix socket: 107 on Linux, 103 on macOS."""
_SOCKET_NAME_BYTES: Final = 43

# Without a check at every single value: what crosses to the JVM is checked in whole blocks when it is read.
_ARROW_UNCHECKED: Final = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"

SETTINGS: Final = {
    "spark.jars.packages": DELTA_PACKAGE,
    "spark.jars.excludes": ",".join(_BROUGHT_BY_SPARK),
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # 50 by default: an append to a small table then costs hundreds of tasks instead of tens.
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # The rules of one job must not wait behind another's batch.
    "spark.scheduler.mode": "FAIR",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.sql.streaming.minBatchesToRetain": "10",
    "spark.driver.memory": "2g",
    "spark.driver.extraJavaOptions": f"-XX:+UseParallelGC {_ARROW_UNCHECKED}",
    "spark.executor.extraJavaOptions": f"-XX:+UseParallelGC {_ARROW_UNCHECKED}",
    # Between a Python worker and the JVM: 64 KiB by default, a fraction of a batch.
    "spark.buffer.size": str(1 << 20),
    # A worker keeps the memory of a batch for the next one: fresh pages from the system would cost as much as reading.
    "spark.executorEnv.MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "spark.executorEnv.MALLOC_TRIM_THRESHOLD_": str(64 << 20),
}


def java_home() -> str:
    """The home of a Java that Spark can run on; JavaMissing if there is none."""
    named = os.environ.get("JAVA_HOME")
    if named:
        found = _java_version(Path(named) / "bin" / "java")
        if found is not None and found >= JAVA_VERSION_MIN:
            return named
    on_path = shutil.which("java")
    if on_path:
        found = _java_version(Path(on_path))
        if found is not None and found >= JAVA_VERSION_MIN:
            return str(Path(on_path).resolve().parent.parent)
    for place in map(Path, _JAVA_PLACES):
        homes = [*place.glob("*"), *place.glob("*/Contents/Home")] if place.is_dir() else []
        for home in sorted(homes):
            found = _java_version(home / "bin" / "java")
            if found is not None and found >= JAVA_VERSION_MIN:
                return str(home)
    raise JavaMissing(
        f"the pipeline needs Java {JAVA_VERSION_MIN} or newer and none was found: install one, or set JAVA_HOME to it"
    )


def _java_version(java: Path) -> int | None:
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _VERSION.search(said.stderr + said.stdout)
    return int(match[1]) if match else None


def what_is_missing() -> str | None:
    """One sentence about what keeps the pipeline from running here; None if nothing does."""
    try:
        _require_packages()
        java_home()
    except PipelineError as error:
        return str(error)
    return None


def _require_packages() -> None:
    if find_spec("pyspark") is None or find_spec("delta") is None:
        raise SparkMissing("the pipeline needs Spark, which is an extra: pip install 'embermq[spark]'")


def prepare_environment(master: str) -> None:
    """Set what Spark's launcher looks for."""
    _require_packages()
    os.environ["JAVA_HOME"] = java_home()
    if master.startswith("local"):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # else whatever `python3` is, without this package
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # else it looks for another address and says so


def session_settings(master: str, settings: Mapping[str, str] | None = None) -> dict[str, str]:
    """All settings of a session; those given win."""
    return {**SETTINGS, **_on_one_machine(master), **(settings or {})}


def launch_java(master: str, settings: Mapping[str, str] | None, log: Path, held: tuple[int, ...] = ()) -> None:
    """Start Spark's Java process unless it runs. What it says goes to `log`; `held` are descriptors it holds too."""
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is not None:
        return
    prepare_environment(master)
    conf = SparkConf(loadDefaults=False)
    conf.setMaster(master)
    for key, value in session_settings(master, settings).items():
        conf.set(key, value)
    try:
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
    except OSError:  # a question to a lake that may only be read
        log = Path(os.devnull)
        descriptor = os.open(log, os.O_WRONLY)
    try:
        gateway = launch_gateway(conf, {"pass_fds": held, "stderr": descriptor})  # type: ignore[no-untyped-call] # untyped there
    except PySparkRuntimeError:
        said = log.read_text(errors="replace").splitlines()
        reasons = [line.strip() for line in said if _JAVA_COMPLAINT.search(line)]
        raise JavaNotStarted(f"Java did not start: {reasons[0] if reasons else 'no reason given'} ({log})") from None
    finally:
        os.close(descriptor)
    SparkContext._ensure_initialized(gateway=gateway)


def build_session(
    master: str = DEFAULT_MASTER,
    name: str = "embermq",
    settings: Mapping[str, str] | None = None,
    functions: bool = True,
) -> "SparkSession":
    """A session with Delta Lake and the `embermq` format; the running one if there is one.

    Without `functions` it is up a little sooner, and SQL has no `mqtt_matches`.
    """
    prepare_environment(master)
    from pyspark.sql import SparkSession

    from embermq.spark import register

    builder = SparkSession.builder.appName(name).master(master)
    for key, value in session_settings(master, settings).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    register(spark, functions)
    return spark


def _on_one_machine(master: str) -> dict[str, str]:
    """Nobody else's business, and tasks for its cores: 200 for a shuffle and 10,000 for VACUUM are for clusters."""
    local = re.fullmatch(r"local(?:\[(\*|\d+)(?:,\s*\d+)?\])?", master)
    if not local:
        return {}
    cores = (os.cpu_count() or 1) if local[1] == "*" else int(local[1] or 1)
    return {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": str(max(2, cores)),
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": str(4 * cores),
        **_unix_sockets(),
    }


def _unix_sockets() -> dict[str, str]:
    """Rows cross between Python and Java without the work of TCP, unless the temporary directory's path is too long."""
    directory = _socket_directory()
    if len(os.fsencode(directory)) + _SOCKET_NAME_BYTES > SOCKET_PATH_BYTES_MAX:
        return {}
    return {
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.unix.domain.socket.dir": directory,
    }


@cache
def _socket_directory() -> str:
    """Only this user can enter it, which is all that guards such a socket. Empty at the end, and then removed."""
    directory = tempfile.mkdtemp(prefix="embermq-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return directory
