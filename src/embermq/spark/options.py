"""Options of the source and of the sink, parsed once into typed objects.

Owns: every option's name, default and meaning, and the sentence when one is wrong.
Never: Spark, a file, a socket.
"""

import os
import re
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import unquote, urlsplit

from embermq.archive.address import check_address
from embermq.archive.errors import ArchiveError
from embermq.history.location import TIMEOUT_S, LogLocation, is_url
from embermq.instants import EXPECTED as INSTANT_EXPECTED
from embermq.instants import instant_us
from embermq.lake.topic_masks import filter_problem
from embermq.spark.errors import bad_option
from embermq.store.rows import Kind

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
KIND_NAMES: Final = {kind.name.lower(): kind for kind in Kind}
MQTT_PORT: Final = 1883
MQTTS_PORT: Final = 8883
PACKET_BYTES_MAX: Final = 16 * 1024 * 1024
"""The server's own default (limits.packet_bytes_max)."""
TOKEN_VARIABLE: Final = "EMBERMQ_TOKEN"
HIDDEN: Final = "(hidden)"

T = TypeVar("T")
_SECRET: Final = re.compile("token|password|secret", re.IGNORECASE)

_SOURCE_NAMES: Final = (
    "path",
    "server",
    "token",
    "tokenFile",
    "caFile",
    "timeoutSeconds",
    "filter",
    "kinds",
    "startingOffsets",
    "startingTimestamp",
    "endingOffsets",
    "maxRecordsPerTrigger",
    "minPartitions",
    "failOnDataLoss",
)
_SINK_NAMES: Final = (
    "url",
    "username",
    "password",
    "passwordFile",
    "caFile",
    "certFile",
    "keyFile",
    "clientIdPrefix",
    "qos",
    "retain",
    "orderBy",
    "packetBytesMax",
    "refusalsPath",
    "window",
    "timeoutSeconds",
    "progressSeconds",
    "checkpointLocation",
    "path",
)


@dataclass(frozen=True)
class SourceOptions:
    """The options of `spark.read` and `spark.readStream`."""

    location: LogLocation
    topic_filter: str | None = None
    kinds: tuple[int, ...] = ()
    starting: int | str = EARLIEST
    starting_timestamp_us: int | None = None
    ending: int | str = LATEST
    max_records_per_trigger: int | None = None
    min_partitions: int = 1
    fail_on_data_loss: bool = True


@dataclass(frozen=True)
class SinkOptions:
    """The options of `df.write` and `df.writeStream`: where and how rows are published."""

    host: str
    port: int
    tls: bool
    username: str | None
    password: str | None
    ca_file: str | None
    cert_file: str | None
    key_file: str | None
    client_id_prefix: str
    qos: int
    retain: bool
    order_by: str | None
    packet_bytes_max: int
    refusals_path: str | None
    window: int
    timeout_s: float
    progress_s: float


def parse_source_options(options: Mapping[str, str]) -> SourceOptions:
    """The source's options; OptionError names the first that is wrong."""
    read = _Reader(options, _SOURCE_NAMES)
    starting = read.offset("startingOffsets", EARLIEST, LATEST)
    timestamp_us = read.one("startingTimestamp", _timestamp_us, None)
    if timestamp_us is not None and read.text("startingOffsets"):
        raise bad_option("startingTimestamp", read.text("startingTimestamp"), "no startingOffsets beside it")
    ending = read.offset("endingOffsets", LATEST)
    if isinstance(starting, int) and isinstance(ending, int) and ending < starting:
        raise bad_option("endingOffsets", ending, f"an offset not below startingOffsets, which is {starting}")
    return SourceOptions(
        location=_location(read),
        topic_filter=read.one("filter", _topic_filter, None),
        kinds=read.one("kinds", _kinds, ()),
        starting=starting,
        starting_timestamp_us=timestamp_us,
        ending=ending,
        max_records_per_trigger=read.one("maxRecordsPerTrigger", _whole(1), None),
        min_partitions=read.one("minPartitions", _whole(1), os.cpu_count() or 1),
        fail_on_data_loss=read.one("failOnDataLoss", _flag, True),
    )


def location_options(location: LogLocation, ca_file: Path) -> dict[str, str]:
    """The options that name a location. Its authorities are written to a file."""
    if location.authorities is not None:
        ca_file.parent.mkdir(parents=True, exist_ok=True)
        ca_file.write_text(location.authorities)
    given = {"path": location.path, "server": location.server}
    if location.server is not None:
        given |= {"token": location.token, "timeoutSeconds": str(location.timeout_s)}
        given |= {"caFile": None if location.authorities is None else str(ca_file)}
    return {name: value for name, value in given.items() if value is not None}


def _location(read: "_Reader") -> LogLocation:
    """Where the log is: in a data directory, in an archive, at a server, or at the last two."""
    path, server = read.text("path"), read.one("server", server_url, None)
    if not path and server is None:
        raise bad_option("path", path, "the server's data directory or an archive, as in .load(PATH), or a server")
    if path:
        path = read.one("path", log_path, "")
    if server is None:
        for name in ("token", "tokenFile", "caFile", "timeoutSeconds"):
            if read.text(name) is not None:
                raise bad_option(name, HIDDEN, "the option server beside it")
    return LogLocation(
        path=path or None,
        server=server,
        token=server_token(read.text("token"), read.text("tokenFile")) if server is not None else None,
        authorities=read.one("caFile", _authorities, None),
        timeout_s=read.one("timeoutSeconds", _seconds, TIMEOUT_S),
    )


def _authorities(file: str) -> str:
    text = Path(file).read_text()
    try:
        ssl.create_default_context(cadata=text)
    except ssl.SSLError:
        raise ValueError("a file of certificates (PEM)") from None
    return text


def log_path(text: str) -> str:
    """A data directory, made absolute, or the address of an archive; ValueError otherwise."""
    text = text.removeprefix("file://")
    if not is_url(text):
        return os.path.abspath(text)
    try:
        return check_address(text)
    except ArchiveError as error:
        raise ValueError(f"a data directory or an archive: {error}") from None


def server_url(text: str) -> str:
    """The URL of a server's HTTP interface; ValueError otherwise."""
    try:
        parts = urlsplit(text)
        is_right = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        is_right = False
    if not is_right or "@" in text or parts.path.strip("/") or parts.query or parts.fragment:
        raise ValueError("http://HOST:PORT or https://HOST:PORT, without a user name or a token in it")
    return text.rstrip("/")


def server_token(token: str | None, file: str | None) -> str | None:
    """The token for a server: as given, from a file, or from the environment; None if there is none."""
    if token is not None and file is not None:
        raise bad_option("tokenFile", file, "no token beside it")
    if file is not None:
        try:
            token = Path(file).read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise bad_option("tokenFile", file, str(error)) from None
    if token is None:
        token = os.environ.get(TOKEN_VARIABLE)
    token = token.strip() if token is not None else None
    if token is not None and not (token.isascii() and token.isprintable()):
        raise bad_option("token", HIDDEN, "a token as `ember token` prints it")
    return token or None


def parse_sink_options(options: Mapping[str, str]) -> SinkOptions:
    """The sink's options; OptionError names the first that is wrong."""
    read = _Reader(options, _SINK_NAMES)
    url = read.text("url") or "mqtt://localhost"
    parts = urlsplit(url)
    try:
        port = parts.port
    except ValueError:
        port = -1
    if parts.scheme not in ("mqtt", "mqtts") or not parts.hostname or port == -1 or parts.path.strip("/"):
        raise bad_option("url", url, "mqtt://HOST[:PORT] or mqtts://HOST[:PORT]")
    tls = parts.scheme == "mqtts"
    password = read.text("password") or (unquote(parts.password) if parts.password else None)
    password_file = read.text("passwordFile")
    if password_file:
        password = read.one("passwordFile", lambda name: Path(name).read_text().rstrip("\n"), "")
    return SinkOptions(
        host=parts.hostname,
        port=port or (MQTTS_PORT if tls else MQTT_PORT),
        tls=tls,
        username=read.text("username") or (unquote(parts.username) if parts.username else None),
        password=password,
        ca_file=read.text("caFile"),
        cert_file=read.text("certFile"),
        key_file=read.text("keyFile"),
        client_id_prefix=read.text("clientIdPrefix") or "spark",
        qos=read.one("qos", _whole(0, 2), 1),
        retain=read.one("retain", _flag, False),
        order_by=read.text("orderBy"),
        packet_bytes_max=read.one("packetBytesMax", _whole(128, 268_435_460), PACKET_BYTES_MAX),
        refusals_path=read.text("refusalsPath"),
        window=read.one("window", _whole(1, 65_535), 10_000),
        timeout_s=read.one("timeoutSeconds", _seconds, 60.0),
        progress_s=read.one("progressSeconds", _seconds, 5.0),
    )


class _Reader:
    """Options by name, without regard to case; an unknown one is an error."""

    __slots__ = ("_values",)

    def __init__(self, options: Mapping[str, str], names: tuple[str, ...]) -> None:
        known = {name.lower(): name for name in names}
        self._values: dict[str, str] = {}
        for key, value in options.items():
            name = known.get(key.lower())
            if name is not None:
                self._values[name] = value
            elif not key.startswith("__"):  # an option of Spark itself
                shown = HIDDEN if _SECRET.search(key) else value
                raise bad_option(key, shown, f"one of the options {', '.join(names)}")

    def text(self, name: str) -> str | None:
        return self._values.get(name)

    def offset(self, name: str, *words: str) -> int | str:
        """An offset, or one of some words; the first word is the default."""
        value = self._values.get(name, words[0]).strip().lower()
        if value in words:
            return value
        if not value.isdecimal():
            raise bad_option(name, value, f"{', '.join(map(repr, words))} or an offset (a whole number)")
        return int(value)

    def one(self, name: str, parse: Callable[[str], T], default: T) -> T:
        value = self._values.get(name)
        if value is None:
            return default
        try:
            return parse(value.strip())
        except (ValueError, OSError) as error:
            raise bad_option(name, HIDDEN if "@" in value else value, str(error)) from None


def _whole(lowest: int, highest: int | None = None) -> Callable[[str], int]:
    def parse(value: str) -> int:
        if not value.isdecimal() or int(value) < lowest or (highest is not None and int(value) > highest):
            wanted = f"from {lowest} to {highest}" if highest is not None else f"of at least {lowest}"
            raise ValueError(f"a whole number {wanted}")
        return int(value)

    return parse


def _seconds(value: str) -> float:
    try:
        seconds = float(value)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < 1e9:
        raise ValueError("a number of seconds")
    return seconds


def _flag(value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise ValueError("true or false")
    return value.lower() == "true"


def _topic_filter(value: str) -> str:
    problem = filter_problem(value)
    if problem is not None:
        raise ValueError(f"an MQTT topic filter ({problem})")
    return value


def _kinds(value: str) -> tuple[int, ...]:
    names = [name.strip().lower() for name in value.split(",")]
    if not all(name in KIND_NAMES for name in names):
        raise ValueError(f"a list of {', '.join(KIND_NAMES)}")
    return tuple(sorted(int(KIND_NAMES[name]) for name in names))


def _timestamp_us(value: str) -> int:
    try:
        return instant_us(value)
    except ValueError:
        raise ValueError(INSTANT_EXPECTED) from None
