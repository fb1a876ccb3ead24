"""Files of a lake at a URL, through the Hadoop file system of a Spark session.

Owns: the calls of Hadoop's FileSystem, and one sentence for its errors.
Spark Connect has no such file system on this side: only a session whose Java process is beside this one has it.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped] # it has no types

from embermq.lake.errors import LakeError
from embermq.lake.files import LakeFiles, LocalFiles
from embermq.lake.lake import Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MISSING: Final = ("FileNotFoundException", "NoSuchFileException")
_S3_STORE_JAR: Final = Path(__file__).parent / "java" / "s3-log-store.jar"
_ATOMIC_CREATE: Final = ("s3a",)
"""Schemes where a file appears when it is closed, whole; elsewhere it is renamed when it is whole."""

_S3A: Final = "spark.hadoop.fs.s3a."
_S3_OPTIONS: Final = {
    "access.key": "AWS_ACCESS_KEY_ID",
    "secret.key": "AWS_SECRET_ACCESS_KEY",
    "session.token": "AWS_SESSION_TOKEN",
    "endpoint": "AWS_ENDPOINT_URL",
    "endpoint.region": "AWS_REGION",
}


@final
class HadoopFiles(LakeFiles):
    """Files below a URL. `root` is the URL in the form that Hadoop gives it."""

    __slots__ = ("root", "_jvm", "_gateway", "_hadoop", "_files", "_local", "_renames")

    def __init__(self, spark: "SparkSession", place: str) -> None:
        """LakeError if the file system cannot be opened."""
        self._jvm: Final[Any] = getattr(spark, "_jvm", None)
        if self._jvm is None:
            raise LakeError(
                f"the files of the lake {place} cannot be reached over Spark Connect: `Lake` without a session reads "
                "them with delta-rs"
            )
        self._gateway: Final[Any] = spark.sparkContext._gateway
        self._hadoop: Final[Any] = spark._jsparkSession.sessionState().newHadoopConf()
        try:
            root = self._jvm.org.apache.hadoop.fs.Path(place)
            self._files: Final[Any] = root.getFileSystem(self._hadoop)
            qualified = self._files.makeQualified(root)
            self.root: Final = str(qualified.toString())
        except Py4JError as error:
            raise LakeError(f"the lake {place} cannot be opened: {_reason(error)}") from None
        self._renames: Final = not self.root.startswith(_ATOMIC_CREATE)
        # Hadoop keeps a checksum beside a local file, and cannot replace the two at once: a reader would find neither,
        # or one that does not match the other. The Java process is beside this one, so this one can write the file.
        self._local: Final = LocalFiles(Path(qualified.toUri().getPath())) if self.root.startswith("file:") else None
        if self.root.startswith("s3a:"):
            spark.sql(f"add jar '{_S3_STORE_JAR}'")  # the class that `Lake.spark_settings` names

    def read(self, name: str) -> str | None:
        if self._local is not None:
            return self._local.read(name)
        try:
            stream = self._files.open(self._path(name))
            try:
                return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
            finally:
                stream.close()
        except Py4JError as error:
            if _is_missing(error):
                return None
            raise OSError(_reason(error)) from None

    def write(self, name: str, text: str) -> None:
        if self._local is not None:
            directory, _, file = name.rpartition("/")
            self._local.remove(f"{directory}/.{file}.crc")  # of an earlier version, which Hadoop would compare with
            self._local.write(name, text)
            return
        written = f"{name}.new" if self._renames else name
        try:
            stream = self._files.create(self._path(written), True)
            stream.write(text.encode())
            stream.close()
            if self._renames:
                context = self._jvm.org.apache.hadoop.fs.FileContext.getFileContext(
                    self._path("").toUri(), self._hadoop
                )
                options = self._gateway.new_array(self._jvm.org.apache.hadoop.fs.Options.Rename, 1)
                options[0] = self._jvm.org.apache.hadoop.fs.Options.Rename.OVERWRITE
                context.rename(self._path(written), self._path(name), options)
        except Py4JError as error:
            raise OSError(_reason(error)) from None

    def names(self, directory: str = "") -> list[str]:
        try:
            return sorted(str(entry.getPath().getName()) for entry in self._files.listStatus(self._path(directory)))
        except Py4JError as error:
            if _is_missing(error):
                return []
            raise OSError(_reason(error)) from None

    def read_bytes(self, name: str) -> bytes | None:
        if self._local is not None:
            return self._local.read_bytes(name)
        try:
            stream = self._files.open(self._path(name))
            try:
                return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
            finally:
                stream.close()
        except Py4JError as error:
            if _is_missing(error):
                return None
            raise OSError(_reason(error)) from None

    def sizes(self, directory: str) -> dict[str, int]:
        if self._local is not None:
            return self._local.sizes(directory)
        found: dict[str, int] = {}
        try:
            entries = self._files.listFiles(self._path(directory), True)
            while entries.hasNext():
                entry = entries.next()
                path = str(entry.getPath().toString()).removeprefix(f"{self.root}/{directory}/")
                found[path] = int(entry.getLen())
        except Py4JError as error:
            if not _is_missing(error):
                raise OSError(_reason(error)) from None
        return found

    def remove(self, name: str) -> None:
        try:
            self._files.delete(self._path(name), True)
        except Py4JError as error:
            raise OSError(_reason(error)) from None

    def upload(self, local: Path, name: str) -> str:
        """Copy a local file into the lake; its URL."""
        try:
            # Not `copyFromLocalFile`: for `s3a` it uses another client than all else, with which some servers fail.
            source = self._jvm.java.io.File(str(local.absolute()))
            self._jvm.org.apache.hadoop.fs.FileUtil.copy(source, self._files, self._path(name), False, self._hadoop)
        except Py4JError as error:
            raise OSError(_reason(error)) from None
        return f"{self.root}/{name}"

    def _path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(f"{self.root}/{name}" if name else self.root)


def _is_missing(error: Exception) -> bool:
    return isinstance(error, Py4JJavaError) and error.java_exception.getClass().getSimpleName() in _MISSING


def _reason(error: Exception) -> str:
    """What Java says, without its stack and Hadoop's advertisement of a page about it."""
    if not isinstance(error, Py4JJavaError):
        return str(error)
    said = str(error.java_exception.getMessage() or error.java_exception.getClass().getName()).splitlines()[0]
    return said.partition("; For more details")[0]


def use_spark(lake: Lake, spark: "SparkSession") -> Lake:
    """From now on the files of a lake at a URL are read and written with this session."""
    if not lake.is_local:
        files = HadoopFiles(spark, lake.place)
        lake.use(files.root, files, _credentials(spark) if files.root.startswith("s3a:") else {})
    return lake


def _credentials(spark: "SparkSession") -> dict[str, str]:
    """What the settings of a session say of S3, as options of delta-rs."""
    settings = {key: value for key, value in spark.sparkContext.getConf().getAll() if key.startswith(_S3A)}
    options = {option: settings[_S3A + key] for key, option in _S3_OPTIONS.items() if settings.get(_S3A + key)}
    if options.get("AWS_ENDPOINT_URL", "").startswith("http:"):
        options["AWS_ALLOW_HTTP"] = "true"
    return options
