"""The Spark session: a Java to run on, Delta Lake, and settings for small and frequent commits.

Owns: finding Java and the packages, starting the Java process, and building a session.
Never: a table. Importing this module imports no Spark.
"""

import atexit
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from embermq.lake.errors import PipelineError
from embermq.spark.errors import JavaMissing, JavaNotStarted, SparkMissing
from embermq.spark.jars import archive_options, keep_jars, known_jars

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TESTED_SPARK: Final = "4.2"
TESTED_DELTA: Final = "4.4.0"
JAVA_VERSION_MIN: Final = 17
DEFAULT_MASTER: Final = "local[*]"


def delta_package() -> str:
    """The Delta Lake that is installed, for the Spark that is: it has a package for each of Spark's versions."""
    spark = ".".join(_installed("pyspark", TESTED_SPARK).split(".")[:2])
    return f"io.delta:delta-spark_{spark}_2.13:{_installed('delta-spark', TESTED_DELTA)}"


def _installed(package: str, otherwise: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return otherwise


DELTA_PACKAGE: Final = delta_package()

# Spark has these, newer or equal; without them 13 MB are fetched instead of 87, and there are no two versions of any.
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
_LOCAL_MASTER: Final = r"local(?:\[(\*|\d+)(?:,\s*\d+)?\])?"
_MASTER: Final = re.compile(
    r"local(?:\[(?:\*|[1-9]\d*)(?:\s*,\s*[1-9]\d*)?\])?|local-cluster\[.+\]|yarn|[a-z][a-z0-9+.-]*://.+"
)
_MEMORY: Final = "spark.driver.memory"
_BYTES: Final = re.compile(r"[1-9][0-9]*[kmgt]b?", re.IGNORECASE)
_VERSION: Final = re.compile(r'version "(\d+)')

SOCKET_PATH_BYTES_MAX: Final = 100
"""The most bytes in the path of a unix socket: 107 on Linux, 103 on macOS."""
_SOCKET_NAME_BYTES: Final = 43

# No check of every value by Arrow: the reader has checked the CRC of each block.
_ARROW_UNCHECKED: Final = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"

COMPRESSION: Final = "spark.sql.parquet.compression.codec"
SETTINGS: Final = {
    "spark.jars.packages": DELTA_PACKAGE,
    "spark.jars.excludes": ",".join(_BROUGHT_BY_SPARK),
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # 50 by default: an append to a small table then costs hundreds of tasks instead of tens.
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.sql.session.timeZone": "UTC",
    # By default INT96, which takes longer to write, more space, and has no statistics for other readers.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # Snappy by default, with which messages take twice the space for about the same processor time.
    COMPRESSION: "zstd",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
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
    # A worker keeps the memory of a batch for the next one: new pages from the system cost as much as reading.
    "spark.executorEnv.MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "spark.executorEnv.MALLOC_TRIM_THRESHOLD_": str(64 << 20),
}

INTERPRETED: Final = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}
"""Settings for small queries. To compile one costs more than to run it, and adaptive execution doubles its jobs."""

PIPELINE_SETTINGS: Final = {
    # Most of the time it is idle: one thread collects garbage, one compiler is enough, unused memory is given back.
    "spark.driver.extraJavaOptions": (
        "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=160m -XX:MinHeapFreeRatio=10 "
        f"-XX:MaxHeapFreeRatio=30 {_ARROW_UNCHECKED}"
    ),
    **INTERPRETED,
    # Without its web page Spark still keeps what the page would show.
    "spark.ui.retainedJobs": "5",
    "spark.ui.retainedStages": "5",
    "spark.ui.retainedTasks": "50",
    "spark.sql.ui.retainedExecutions": "5",
    "spark.executor.heartbeatInterval": "50s",
    "spark.databricks.delta.history.metricsEnabled": "false",
}
"""Settings of the session that runs the pipeline, beside those that every session has."""

ONCE_SETTINGS: Final = {
    **PIPELINE_SETTINGS,
    # It is never idle: memory is not given back but taken early, half of it for young objects.
    "spark.driver.extraJavaOptions": (
        "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:NewRatio=1 -XX:MinHeapFreeRatio=70 -XX:MetaspaceSize=256m "
        f"{_ARROW_UNCHECKED}"
    ),
}
"""The same for a run that ends where the log ends."""

_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
_PACKAGES: Final = "spark.jars.packages"
_CLASS_PATH: Final = "SPARK_DIST_CLASSPATH"
"""Jars behind those of Spark itself. A setting of Spark would replace the user's own."""


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


@cache
def _java_version(java: Path) -> int | None:
    try:
        result = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _VERSION.search(result.stderr + result.stdout)
    return int(match[1]) if match else None


def what_is_missing() -> str | None:
    """One sentence about what is missing to run the pipeline here; None if nothing is."""
    try:
        _require_packages()
        java_home()
    except PipelineError as error:
        return str(error)
    return None


def _require_packages() -> None:
    if any(find_spec(name) is None for name in ("pyspark", "delta", "deltalake")):
        raise SparkMissing("the pipeline needs Spark, which is an extra: pip install 'embermq[spark]'")


def prepare_environment(master: str) -> None:
    """Set the environment variables that Spark's launcher reads."""
    _require_packages()
    _refuse_connect(master)
    os.environ["JAVA_HOME"] = java_home()
    if master.startswith("local"):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # `python3` may not have this package
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # without it Spark prints a warning
        os.environ.setdefault("MALLOC_ARENA_MAX", "2")  # Java's threads would get memory areas of their own


def use_this_python(spark: "SparkSession | None" = None) -> None:
    """Have Spark look for formats, and in a local session run them, with this Python, unless PYSPARK_PYTHON names one.

    By default it takes the first `python3` of the PATH, which does not have what is installed in a virtual environment.
    """
    if os.environ.get("PYSPARK_PYTHON"):
        return
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)  # counts if Java has not been started yet
    if spark is not None and not is_connect(spark) and re.fullmatch(_LOCAL_MASTER, spark.sparkContext.master or ""):
        spark.sparkContext.pythonExec = sys.executable


def _refuse_connect(master: str) -> None:
    """PipelineError where Spark cannot be started beside this process because it would be that of Spark Connect."""
    if master.startswith("sc:"):
        instead = f"the master is {master}: expected that of a cluster, or local[*]"
    elif os.environ.get("SPARK_REMOTE"):
        instead = f"SPARK_REMOTE is {os.environ['SPARK_REMOTE']}: unset it"
    elif "SPARK_CONNECT_MODE_ENABLED" in os.environ:  # PySpark sets it with the first session of this kind
        instead = "this process has such a session already: use another process"
    else:
        return
    raise PipelineError(f"this cannot run over Spark Connect, and {instead}")


def session_settings(master: str, settings: Mapping[str, str] | None = None) -> dict[str, str]:
    """All settings of a session; those given win."""
    return {**SETTINGS, **_local_mode(master), **(settings or {})}


def check_launch(master: str, settings: Mapping[str, str]) -> None:
    """PipelineError if Spark would refuse a master or an amount of memory, which it does after its start."""
    if not _MASTER.fullmatch(master):
        raise PipelineError(f"--master {master}: expected local[*], local[N], spark://HOST:PORT, yarn or k8s://URL")
    memory = settings.get(_MEMORY, "1g")
    if not _BYTES.fullmatch(memory):
        raise PipelineError(f"--memory {memory}: expected an amount such as 512m or 1g")


def launch_java(
    master: str,
    settings: Mapping[str, str] | None,
    log: Path,
    inherited: tuple[int, ...] = (),
) -> None:
    """Start Spark's Java process unless it runs. It writes to `log`, and inherits the file descriptors `inherited`."""
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is not None:
        return
    chosen = session_settings(master, settings)
    check_launch(master, chosen)
    prepare_environment(master)
    jars = _jars_at_hand(master, chosen)
    if jars:
        chosen[_PACKAGES] = ""
        java = _java_version(Path(os.environ["JAVA_HOME"]) / "bin" / "java") or JAVA_VERSION_MIN
        chosen[_JAVA_OPTIONS] = f"{chosen[_JAVA_OPTIONS]} {archive_options(java)}".rstrip()
    conf = SparkConf(loadDefaults=False)
    conf.setMaster(master)
    for key, value in chosen.items():
        conf.set(key, value)
    try:
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
    except OSError:  # a query of a lake that this user can only read
        log = Path(os.devnull)
        descriptor = os.open(log, os.O_WRONLY)
    try:
        with _class_path(jars):
            gateway = launch_gateway(conf, {"pass_fds": inherited, "stderr": descriptor})  # type: ignore[no-untyped-call] # untyped there
    except PySparkRuntimeError:
        written = log.read_text(errors="replace").splitlines()
        reasons = [line.strip() for line in written if _JAVA_COMPLAINT.search(line)]
        raise JavaNotStarted(f"Java did not start: {reasons[0] if reasons else 'no reason given'} ({log})") from None
    finally:
        os.close(descriptor)
    SparkContext._ensure_initialized(gateway=gateway)


def _spark_home() -> str:
    from pyspark.find_spark_home import _find_spark_home

    return str(_find_spark_home())


def _jars_at_hand(master: str, settings: Mapping[str, str]) -> list[str]:
    """The jars of Delta Lake, where Java can have them on its class path: Spark then resolves and copies nothing."""
    is_alone = re.fullmatch(_LOCAL_MASTER, master) is not None
    return known_jars(settings, _spark_home()) if is_alone and settings[_PACKAGES] else []


@contextmanager
def _class_path(jars: list[str]) -> Iterator[None]:
    """Has Java processes that are started meanwhile load classes from these jars too."""
    before = os.environ.get(_CLASS_PATH)
    if jars:
        os.environ[_CLASS_PATH] = os.pathsep.join([*([before] if before else []), *jars])
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(_CLASS_PATH, None)
        else:
            os.environ[_CLASS_PATH] = before


def build_session(
    master: str = DEFAULT_MASTER,
    name: str = "embermq",
    settings: Mapping[str, str] | None = None,
    source: bool = True,
) -> "SparkSession":
    """A session with Delta Lake; the running one if there is one.

    Without `source` it starts a little faster, and has neither the format `embermq` nor `mqtt_matches`.
    """
    prepare_environment(master)
    from pyspark.sql import SparkSession

    from embermq.spark import register

    builder = SparkSession.builder.appName(name).master(master)
    chosen = session_settings(master, settings)
    for key, value in chosen.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    keep_jars(spark, chosen, _spark_home())
    if source:
        register(spark)
    return spark


def submitted_session() -> "SparkSession":
    """The session that spark-submit has prepared."""
    from pyspark.sql import SparkSession

    return SparkSession.builder.getOrCreate()


def is_connect(spark: "SparkSession") -> bool:
    """Whether Spark runs in a server of Spark Connect, and not beside this process."""
    return "connect" in type(spark).__module__


def check_session(spark: "SparkSession") -> None:
    """PipelineError if the pipeline cannot run in a session that it has not made."""
    if is_connect(spark):
        raise PipelineError(
            "the pipeline cannot run over Spark Connect, which gives no access to the lake's files: give it a session "
            "in the driver's own process"
        )
    if "DeltaSparkSessionExtension" not in (spark.conf.get("spark.sql.extensions", "") or ""):
        raise PipelineError(
            f"the session has no Delta Lake: it needs the package {DELTA_PACKAGE}, spark.sql.extensions="
            f"{SETTINGS['spark.sql.extensions']} and spark.sql.catalog.spark_catalog="
            f"{SETTINGS['spark.sql.catalog.spark_catalog']}"
        )


def adopt_session(spark: "SparkSession") -> None:
    """Use a session that the pipeline has not made: it compresses as one of its own, unless its settings say otherwise.

    PipelineError if the pipeline cannot run in it.
    """
    check_session(spark)
    if not spark.sparkContext.getConf().contains(COMPRESSION):
        spark.conf.set(COMPRESSION, SETTINGS[COMPRESSION])


def _local_mode(master: str) -> dict[str, str]:
    """Settings for local mode: loopback only, and tasks for its cores; Spark's defaults are for clusters."""
    local = re.fullmatch(_LOCAL_MASTER, master)
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
    """Unix sockets between Python and Java, cheaper than TCP, unless the temporary directory's path is too long."""
    directory = _socket_directory()
    if len(os.fsencode(directory)) + _SOCKET_NAME_BYTES > SOCKET_PATH_BYTES_MAX:
        return {}
    return {
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.unix.domain.socket.dir": directory,
    }


@cache
def _socket_directory() -> str:
    """A directory that only this user can enter, since nothing else protects such a socket. Removed at exit."""
    directory = tempfile.mkdtemp(prefix="embermq-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return directory
