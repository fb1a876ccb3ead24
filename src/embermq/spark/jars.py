"""The jars that Spark has fetched, kept for faster starts, and Java's archive of their classes.

Owns: the directory `embermq` in the user's cache, with a list of the jars and the archive; and Java's options for it.
With the jars on its class path Java needs no search for packages. From 19 on it keeps an archive of the classes that it
has loaded (JEP 350), makes it at its end, and makes another one when the jars or Java have changed; Java 17 starts
without one. Importing this module imports no Spark.
"""

import hashlib
import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_WITH_ARCHIVE: Final = 19
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


def archive_options(java_version: int) -> str:
    """Options for Java to keep an archive of its classes; empty if it cannot."""
    try:
        archive = cache_directory() / "classes.jsa"
        archive.parent.mkdir(parents=True, exist_ok=True)
    except OSError:  # the next start takes as long as this one
        return ""
    if java_version < JAVA_WITH_ARCHIVE or not _SAFE.fullmatch(str(archive)):
        return ""
    return f"-XX:+AutoCreateSharedArchive -XX:SharedArchiveFile={archive} -Xlog:cds*=off"


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
