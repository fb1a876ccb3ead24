"""An archive of the Java classes that Spark and Delta Lake consist of: with it a session starts in half the time.

Owns: the directory `embermq` in the user's cache, with a list of the jars that Spark has fetched, and the archive; and
Java's options for both.
The first start has Spark fetch its jars, the next run with `--once` makes the archive at its end, and later starts use
it. Java leaves an archive unused that another Java has made, or whose jars have changed since: only the time of a start
depends on it. Importing this module imports no Spark.
"""

import hashlib
import json
import logging
import os
import re
import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

FREE_BYTES_MIN: Final = 2 << 30
"""No archive is made on a disk with less space. One has about 200 MB."""
UNUSED_DAYS_MAX: Final = 30
"""An archive that was not used for so long is removed when another one is made."""

_WANTED: Final = "embermq.class.archive"
"""The property of a Java process that can make an archive: how the file's path begins."""
_JARS: Final = re.compile(r"^\s*spark\.jars[\s=:]", re.MULTILINE)
_SAFE: Final = re.compile(r"[\w./+@%,=-]+")
"""Paths that need no quotes among Java's options."""


def cache_directory() -> Path:
    """Where the list of jars and the archive are kept. OSError if this user has no home."""
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "embermq"
    except RuntimeError as error:
        raise OSError(str(error)) from None


def known_jars(settings: Mapping[str, str], spark_home: str) -> list[str]:
    """The jars that an earlier session with these packages has fetched; empty if one is missing now, or if there are
    jars of the user's own beside them."""
    if _has_other_jars(settings, spark_home):
        return []
    try:
        jars = json.loads(_list_of_jars(settings).read_text())
    except (OSError, ValueError):
        return []
    is_right = isinstance(jars, list) and all(isinstance(jar, str) and os.path.isfile(jar) for jar in jars)
    return jars if is_right else []


def keep_jars(spark: "SparkSession", settings: Mapping[str, str], spark_home: str) -> None:
    """Remember the jars that Spark has fetched for this session, unless there are others beside them."""
    fetched = spark.sparkContext.getConf().get("spark.jars", "") or ""
    jars = [jar.removeprefix("file://") for jar in fetched.split(",") if jar]
    if not jars or _has_other_jars(settings, spark_home) or not all(map(os.path.isfile, jars)):
        return
    with suppress(OSError):  # the next session has them fetched again
        _write(_list_of_jars(settings), json.dumps(jars))


def archive_options(java_home: str, spark_home: str, jars: Sequence[str], makes_archive: bool) -> str:
    """Options for Java: to use the archive, or with `makes_archive` and without one, to be able to make it.

    Empty if there are directories with files on its class path, since Java refuses archives then.
    """
    named = [os.environ.get(name) or "" for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_DIST_CLASSPATH")]
    directories = filter(os.path.isdir, os.pathsep.join([_conf_directory(spark_home), *named]).split(os.pathsep))
    try:
        if any(map(os.listdir, directories)):
            return ""
        parts = [Path(java_home, "lib", "modules"), Path(spark_home, "jars"), *map(Path, jars)]
        stamps = [(str(part), part.stat().st_size, part.stat().st_mtime_ns) for part in parts]
        prefix = cache_directory() / f"classes-{hashlib.sha256(repr(stamps).encode()).hexdigest()[:16]}"
        archives = _archives(prefix)
    except OSError:  # something is missing or must not be read, or another process has just removed an archive
        return ""
    if not _SAFE.fullmatch(str(prefix)):
        return ""
    quiet = "-XX:+IgnoreUnrecognizedVMOptions -Xlog:cds*=off"
    for archive in archives:
        with suppress(OSError):
            os.utime(archive)
        return f"{quiet} -XX:SharedArchiveFile={archive}"
    return f"{quiet} -XX:+RecordDynamicDumpInfo -D{_WANTED}={prefix}" if makes_archive else ""


def _archives(prefix: Path) -> list[Path]:
    """The archives whose names begin so. Java would crash with one that was cut off, so the name has its length."""
    found = prefix.parent.glob(f"{prefix.name}-*.jsa")
    return [one for one in found if one.stem.rpartition("-")[2] == str(one.stat().st_size)]


def make_archive(spark: "SparkSession") -> None:
    """Make the archive of all classes that Spark's Java process has loaded by now, if it was started for that."""
    jvm: Any = spark._jvm
    wanted = jvm.java.lang.System.getProperty(_WANTED)
    if wanted is None:
        return
    prefix = Path(wanted)
    unfinished = prefix.with_suffix(f".{os.getpid()}")
    try:
        prefix.parent.mkdir(parents=True, exist_ok=True)
        if _archives(prefix) or shutil.disk_usage(prefix.parent).free < FREE_BYTES_MIN:
            return
        _dump(spark, unfinished)
        with unfinished.open("rb") as made:
            os.fsync(made.fileno())
        archive = unfinished.rename(f"{prefix}-{unfinished.stat().st_size}.jsa")
        for other in prefix.parent.glob("classes-*"):  # also what a run has left that was killed here
            is_damaged = other != archive and other.name.startswith(f"{prefix.name}-")
            if is_damaged or other.stat().st_mtime < time.time() - UNUSED_DAYS_MAX * 86_400:
                other.unlink()
        logger.info("Spark's Java classes are in %s now, for faster starts", archive)
    except Exception as error:  # of Java, of the bridge to it, of the disk: the tables are complete without an archive
        logger.info("no archive of Java classes was made: %s", error)
    finally:
        with suppress(OSError):
            unfinished.unlink()


def _dump(spark: "SparkSession", file: Path) -> None:
    """What `jcmd PID VM.cds dynamic_dump FILE` does; not every Java has that command."""
    jvm: Any = spark._jvm
    gateway: Any = spark.sparkContext._gateway

    def array(of: Any, *values: object) -> Any:
        made = gateway.new_array(of, len(values))
        for number, value in enumerate(values):
            made[number] = value
        return made

    text, thing = jvm.java.lang.String, jvm.java.lang.Object
    beans = jvm.java.lang.management.ManagementFactory.getPlatformMBeanServer()
    name = jvm.javax.management.ObjectName("com.sun.management:type=DiagnosticCommand")
    arguments = array(thing, array(text, "dynamic_dump", str(file)))
    # By reflection: the class of the server is not open to the bridge, its interface is.
    find = jvm.java.lang.Class.forName
    types = ["javax.management.ObjectName", "java.lang.String", "[Ljava.lang.Object;", "[Ljava.lang.String;"]
    invoke = find("javax.management.MBeanServer").getMethod("invoke", array(jvm.java.lang.Class, *map(find, types)))
    invoke.invoke(beans, array(thing, name, "vmCds", arguments, array(text, "[Ljava.lang.String;")))


def _has_other_jars(settings: Mapping[str, str], spark_home: str) -> bool:
    """Whether the settings of a session, or those of Spark on this machine, name jars."""
    try:
        defaults = Path(_conf_directory(spark_home), "spark-defaults.conf").read_text(errors="replace")
    except OSError:
        defaults = ""
    return "spark.jars" in settings or _JARS.search(defaults) is not None


def _conf_directory(spark_home: str) -> str:
    """Where Spark's own settings are."""
    return os.environ.get("SPARK_CONF_DIR") or os.path.join(spark_home, "conf")


def _list_of_jars(settings: Mapping[str, str]) -> Path:
    chosen = sorted((key, value) for key, value in settings.items() if key.startswith("spark.jars"))
    return cache_directory() / f"jars-{hashlib.sha256(repr(chosen).encode()).hexdigest()[:16]}.json"


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(f".{os.getpid()}")
    unfinished.write_text(text)
    unfinished.rename(path)
