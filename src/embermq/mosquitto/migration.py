"""From mosquitto.conf to ember.toml.

Owns: which setting each option of the server becomes; those of listeners and bridges are in `listeners` and `bridges`.
Never: a file that is written, except in the result; the command writes it.
Everything is moved as far as it can be, and each option that has no counterpart is reported. But a listener or a bridge
is left out if without an option it would let in more clients, or let them reach other topics.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, final

from embermq.mosquitto.bridges import BridgeMigrator
from embermq.mosquitto.conf import INT_MAX, Conf, Options
from embermq.mosquitto.counterparts import report_rest
from embermq.mosquitto.listeners import ListenerMigrator
from embermq.mosquitto.report import Report
from embermq.mosquitto.toml_text import settings_text

PACKET_BYTES: Final = (128, 268_435_460)
TOPIC_AND_HEADER_BYTES: Final = 65_540
BY_LOG_BYTES: Final = "for clean sessions; queues of others are bounded by limits.queue_log_bytes_max"
PERIODS_S: Final = {"h": 3600, "d": 86_400, "w": 7 * 86_400, "m": 30 * 86_400, "y": 365 * 86_400}
UINT32_MAX: Final = 0xFFFF_FFFF


@final
@dataclass(frozen=True)
class NewFile:
    """A file to write, readable by its owner only."""

    name: str
    text: str


@final
@dataclass
class Migration:
    """What a mosquitto.conf becomes: ember.toml, and files beside it."""

    settings: str = ""
    files: list[NewFile] = field(default_factory=list)
    report: Report = field(default_factory=Report)
    database: Path | None = None


def migrate(file: Path, directory: Path) -> Migration:
    """Read mosquitto.conf; what becomes of it is to be written in a directory. A `ConfigError` names file and line."""
    return _Migrator(Conf(file), directory).migrate()


@final
class _Migrator:
    def __init__(self, conf: Conf, directory: Path) -> None:
        self._conf: Final = conf
        self._directory: Final = directory
        self._made: Final = Migration()
        self._report: Final = self._made.report

    def migrate(self) -> Migration:
        conf = self._conf
        server = conf.server
        sections: dict[str, dict[str, object]] = {"server": {}, "access": {}, "limits": {}, "store": {}}
        self._server_settings(server, sections["server"])
        self._limits(server, sections["limits"])
        sections["store"]["directory"] = str(self._directory / "ember-data")
        self._database(server)
        listeners = ListenerMigrator(conf, self._report, self._write).listeners(sections["access"])
        bridges = self._bridges()
        for option in server.untaken():
            report_rest(self._report, option)
        self._made.settings = settings_text(conf.file, sections, {"listeners": listeners, "bridges": bridges})
        return self._made

    # -- the server ------------------------------------------------------------------------------------------------

    def _server_settings(self, server: Options, section: dict[str, object]) -> None:
        interval = server.take("sys_interval")
        if interval is not None:
            section["sys_interval_s"] = interval.number(0, 65_535)
        types = server.take_all("log_type")
        detailed = [option for option in types if option.word() in ("all", "debug")]
        if detailed:
            section["log_level"] = "debug"
        for option in server.take_all("log_dest"):
            if option.word() in ("stderr", "stdout"):
                self._report.not_needed(option)
            else:
                self._report.differs(option, "the log is written to standard error; systemd keeps it in its journal")
        for option in types:
            if option not in detailed:
                self._report.not_needed(option)

    def _limits(self, server: Options, section: dict[str, object]) -> None:
        report = self._report
        plain = (
            ("max_keepalive", "keep_alive_max_s", 65_535),
            ("global_max_clients", "sessions_max", INT_MAX),
            ("global_max_connections", "connections_max", INT_MAX),
        )
        for key, setting, high in plain:
            option = server.take(key)
            if option is not None and option.number(-1, high) > 0:
                section[setting] = option.number(-1, high)
        inflight = server.take("max_inflight_messages")
        if inflight is not None:
            section["inflight_max"] = max(0, inflight.number(-INT_MAX, 65_535)) or 65_535  # 0 is no bound there
        memory = server.take("memory_limit")
        if memory is not None:
            section["memory_bytes_max"] = memory.number(0, 1 << 62)
        queued = server.take("max_queued_messages")
        if queued is not None and queued.number(-INT_MAX, INT_MAX) > 0:
            section["queue_messages_max"] = queued.number(-INT_MAX, INT_MAX)
            report.differs(queued, BY_LOG_BYTES)
        elif queued is not None:
            report.not_moved(queued, "a queue has a bound: limits.queue_messages_max and queue_log_bytes_max")
        queued_bytes = server.take("max_queued_bytes")
        if queued_bytes is not None and queued_bytes.number(-INT_MAX, 1 << 62) > 0:
            section["queue_bytes_max"] = queued_bytes.number(-INT_MAX, 1 << 62)
            report.differs(queued_bytes, BY_LOG_BYTES)
        elif queued_bytes is not None:
            report.not_needed(queued_bytes)
        self._packet_bytes(server, section)
        self._session_expiry(server, section)

    def _packet_bytes(self, server: Options, section: dict[str, object]) -> None:
        """A packet is bounded here; `message_size_limit` is of the payload, and 0 is no bound."""
        low, high = PACKET_BYTES
        packet, payload = server.take("max_packet_size"), server.take("message_size_limit")
        bounds: list[int] = []
        if packet is not None:
            bounds.append(packet.number(0, INT_MAX) or high)
        if payload is not None:
            size = payload.number(0, INT_MAX)
            bounds.append(size + TOPIC_AND_HEADER_BYTES if size else high)
            self._report.differs(payload, "here it bounds the packet, with 64 KiB for its topic")
        if bounds:
            section["packet_bytes_max"] = min(max(min(bounds), low), high)

    def _session_expiry(self, server: Options, section: dict[str, object]) -> None:
        option = server.take("persistent_client_expiration")
        if option is None:
            self._report.different.append(
                "persistent_client_expiration is not set: sessions end after 30 days without their client here, set"
                " limits.session_expiry_max_s for another time"
            )
            return
        word = option.word()
        unit, number = word[-1:], word[:-1]
        if unit not in PERIODS_S or not number.isdigit() or int(number) == 0:
            raise option.wrong("a number with h, d, w, m or y")
        section["session_expiry_max_s"] = min(int(number) * PERIODS_S[unit], UINT32_MAX)

    def _database(self, server: Options) -> None:
        """Where the retained messages and sessions are, if Mosquitto keeps them."""
        options = [server.take(key) for key in ("persistence", "retained_persistence")]
        directory, file = server.take("persistence_location"), server.take("persistence_file")
        for option in (*options, directory, file):
            if option is not None:
                self._report.not_needed(option)
        if any(option is not None and option.flag() for option in options):
            name = file.text() if file is not None else "mosquitto.db"
            self._made.database = Path(directory.text()) / name if directory is not None else Path(name)

    # -- bridges ---------------------------------------------------------------------------------------------------

    def _bridges(self) -> list[dict[str, object]]:
        bridges = BridgeMigrator(self._report, self._write)
        made = [found for part in self._conf.bridges if (found := bridges.bridge(part)) is not None]
        if self._conf.bridges:
            self._report.moved.append(f"{len(made)} of {len(self._conf.bridges)} bridges")
        return made

    def _write(self, name: str, text: str) -> str:
        self._made.files.append(NewFile(name, text))
        return str(self._directory / name)
