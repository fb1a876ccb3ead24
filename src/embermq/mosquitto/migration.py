"""From mosquitto.conf to ember.toml.

Owns: which setting each option becomes, and what is said of those that become none.
Never: a file that is written, except in the result; the command writes it.

The rule for what has no counterpart: if a listener without it would let in more clients, or let them reach other
topics, the listener is left out. Everything else is moved and the option is reported.
"""

import json
import socket
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, final

from embermq.access.passwords import parse_passwords, read_text
from embermq.errors import ConfigError
from embermq.mosquitto.acl import access_text
from embermq.mosquitto.bridges import BridgeMigrator
from embermq.mosquitto.conf import LISTENER_KEYS, Conf, Option, Options, is_of_plugin
from embermq.mosquitto.counterparts import (
    CLOSED_WITHOUT,
    FLAGS,
    NO_COUNTERPART,
    NOT_OPENING,
    OF_ANOTHER_KIND,
    PLUGIN,
    QOS,
    UNKNOWN,
    UNNEEDED,
)
from embermq.mosquitto.report import Report

PORT: Final = 1883
LOOPBACK: Final = ("127.0.0.1", "::1")
EVERYWHERE: Final = ("0.0.0.0", "::")  # what a listener without an address means in Mosquitto
PACKET_BYTES: Final = (128, 268_435_460)
TOPIC_AND_HEADER_BYTES: Final = 65_540
BY_LOG_BYTES: Final = "for clean sessions; queues of others are bounded by limits.queue_log_bytes_max"
UNUSED_AUTHORITY: Final = "not used: no certificates are asked for; certfile needs its whole chain"
VERSION_OF: Final = {"3": "3.1", "4": "3.1.1", "5": "5"}
PERIODS_S: Final = {"h": 3600, "d": 86_400, "w": 7 * 86_400, "m": 30 * 86_400, "y": 365 * 86_400}
UINT32_MAX: Final = 0xFFFF_FFFF
INT_MAX: Final = 0x7FFF_FFFF


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


@final
@dataclass(frozen=True)
class _Security:
    """Users and rights of the server or of one listener. `anonymous` is None where nothing is said."""

    passwords: Option | None
    rights: Option | None
    anonymous: Option | None

    def files(self) -> tuple[str, str]:
        """What they are read from, to be compared."""
        return (
            "" if self.passwords is None else self.passwords.text(),
            "" if self.rights is None else self.rights.text(),
        )


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
        self._names: Final[Counter[str]] = Counter()
        self._left_out: Final[list[Options]] = []

    def migrate(self) -> Migration:
        conf = self._conf
        server = conf.server
        sections: dict[str, dict[str, object]] = {"server": {}, "access": {}, "limits": {}, "store": {}}
        self._server_settings(server, sections["server"])
        self._limits(server, sections["limits"])
        sections["store"]["directory"] = str(self._directory / "ember-data")
        self._database(server)
        listeners = self._listeners(self._parts(), sections["access"])
        bridges = self._bridges()
        for option in server.untaken():
            self._no_counterpart(option)
        self._made.settings = settings_text(conf.file, sections, {"listeners": listeners, "bridges": bridges})
        return self._made

    # -- the server ------------------------------------------------------------------------------------------------

    def _server_settings(self, server: Options, section: dict[str, object]) -> None:
        interval = server.take("sys_interval")
        if interval is not None:
            section["sys_interval_s"] = interval.number(0, 65_535)
        types = server.take_all("log_type")
        if any(option.word() in ("all", "debug") for option in types):
            section["log_level"] = "debug"
        for option in server.take_all("log_dest"):
            if option.word() in ("stderr", "stdout"):
                self._report.not_needed(option)
            else:
                self._report.differs(option, "the log is written to standard error; systemd keeps it in its journal")
        self._report.unneeded.extend(f"{option.place()}: {option.shown()}" for option in types)

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

    def _no_counterpart(self, option: Option) -> None:
        key = option.key
        report = self._report
        if key in UNNEEDED:
            report.not_needed(option)
        elif is_of_plugin(key):
            report.not_moved(option, PLUGIN)
        else:
            usual = OF_ANOTHER_KIND if key in LISTENER_KEYS else UNKNOWN
            report.not_moved(option, NO_COUNTERPART.get(key) or CLOSED_WITHOUT.get(key) or usual)

    # -- listeners -------------------------------------------------------------------------------------------------

    def _parts(self) -> list[Options]:
        """The listeners, the default one last, if Mosquitto opens it."""
        default, listeners = self._conf.default_listener, self._conf.listeners
        port, address = default.take("port"), default.take("bind_address")
        opening = port or address or (default.first_but(NOT_OPENING) if listeners else None)
        if opening is None:
            for option in default.untaken():
                self._report.not_moved(option, "without a port it belongs to no listener")
            return listeners
        value = f"{PORT if port is None else port.number(1, 65_535)} {'' if address is None else address.text()}"
        made = Options(Option("listener", value.strip(), opening.file, opening.line))
        for option in default.untaken():
            made.add(option)
        return [*listeners, made]

    def _listeners(self, parts: list[Options], access: dict[str, object]) -> list[dict[str, object]]:
        conf = self._conf
        own: list[_Security] = [self._security_of(part) for part in parts] if conf.per_listener else []
        shared: _Security | None = self._security_of(conf.server)
        if own:
            is_one = len({each.files() for each in own}) == 1
            shared = _Security(own[0].passwords, own[0].rights, None) if is_one else None
        if shared is not None:
            access.update(self._access(shared, ""))
            access["allow_anonymous"] = shared.anonymous is not None and shared.anonymous.flag()
        elif own:
            self._report.different.append(
                "per_listener_settings: users of a listener are called LISTENER:NAME here, and are different persons"
                " from those of other listeners: a session cannot be resumed at another listener"
            )
        if any(each.rights is not None for each in (*own, *([shared] if shared is not None else []))):
            access["wildcards"] = "narrow"
        made: list[dict[str, object]] = []
        for number, part in enumerate(parts):
            listener = self._listener(part)
            if not self._is_complete(part):
                continue
            if own:
                if shared is None:
                    listener.update(self._access(own[number], f"-{self._name_of(listener)}"))
                anonymous = own[number].anonymous
                listener["allow_anonymous"] = anonymous is not None and anonymous.flag()
            made.append(listener)
        if not parts:  # Mosquitto accepts everybody then, from its own machine
            made.append({"kind": "tcp", "host": self._addresses(LOOPBACK), "port": PORT})
            access["allow_anonymous"] = True
        self._report.moved.append(f"{len(made)} of {max(1, len(parts))} listeners")
        return made

    def _security_of(self, part: Options) -> _Security:
        return _Security(part.take("password_file"), part.take("acl_file"), part.take("allow_anonymous"))

    def _access(self, security: _Security, suffix: str) -> dict[str, object]:
        """The settings of users and rights, and their files."""
        found: dict[str, object] = {}
        users: frozenset[str] = frozenset()
        if security.passwords is not None:
            source = self._path(security.passwords)
            text = read_text(source, security.passwords.place())
            users = frozenset(parse_passwords(text, str(source)).users)
            found["password_file"] = self._write(f"passwords{suffix}", text)
            self._report.moved.append(f"{len(users)} users of {source}, with their passwords")
        if security.rights is not None:
            source = self._path(security.rights)
            rights = access_text(source, users)
            found["acl_file"] = self._write(f"access{suffix}.list", rights.text)
            self._report.moved.append(f"{rights.lines} lines of {source}")
            self._report.different.extend(rights.differences)
            if rights.has_users and security.passwords is None:
                self._report.differs(
                    security.rights, "without a password file nobody is the user of a section 'user' here"
                )
        elif self._conf.server.has_plugin():
            text = "# Rights that a plugin of Mosquitto granted are not moved: grant here what clients may do.\n"
            found["acl_file"] = self._write(f"access{suffix}.list", text)
            self._report.different.append(f"access{suffix}.list grants nothing: the rights of a plugin are not moved")
        return found

    def _write(self, name: str, text: str) -> str:
        self._made.files.append(NewFile(name, text))
        return str(self._directory / name)

    def _listener(self, part: Options) -> dict[str, object]:
        assert part.head is not None
        words = part.head.words()
        try:
            port = int(words[0])
        except (ValueError, IndexError):
            raise part.head.wrong("a port") from None
        if not 0 <= port <= 65_535 or (port == 0 and len(words) < 2):
            raise part.head.wrong("a port from 1 to 65535, or 0 and the path of a unix socket")
        is_websocket = self._is_websocket(part)
        if port == 0:
            made: dict[str, object] = {"kind": "unix", "unix_path": words[1]}
        else:
            made = {"kind": "ws" if is_websocket else "tcp", "host": self._hosts(part, words[1:]), "port": port}
            self._tls(part, made, is_websocket)
        self._give_name(made)
        self._listener_options(part, made)
        return made

    def _is_websocket(self, part: Options) -> bool:
        protocol = part.take("protocol")
        if protocol is None:
            return False
        if protocol.word() not in ("mqtt", "websockets"):
            raise protocol.wrong("mqtt or websockets")
        return protocol.word() == "websockets"

    def _hosts(self, part: Options, words: list[str]) -> list[str]:
        domain = part.take("socket_domain")
        if words:
            if domain is not None:
                self._report.not_needed(domain)
            return words[:1]
        if domain is None:
            return self._addresses(EVERYWHERE)
        if domain.word() not in ("ipv4", "ipv6"):
            raise domain.wrong("ipv4 or ipv6")
        return [EVERYWHERE[domain.word() == "ipv6"]]

    def _addresses(self, both: tuple[str, str]) -> list[str]:
        """Those of IPv4 and IPv6, as far as this machine has them."""
        try:
            with socket.socket(socket.AF_INET6) as probe:
                probe.bind(("::1", 0))
        except OSError:
            return [both[0]]
        return list(both)

    def _tls(self, part: Options, made: dict[str, object], is_websocket: bool) -> None:
        certificate, key, authority = part.take("certfile"), part.take("keyfile"), part.take("cafile")
        required = part.take("require_certificate")
        asked = [option for option in (certificate, key, authority, required) if option is not None]
        if not asked:
            return
        if certificate is None or key is None:
            raise ConfigError(f"{asked[0].place()}: {asked[0].key} is set: expected certfile and keyfile as well")
        made["kind"] = "wss" if is_websocket else "tls"
        made["certificate"], made["key"] = str(self._path(certificate)), str(self._path(key))
        self._client_certificates(part, made, authority, required)
        version = part.take("tls_version")
        if version is not None:
            self._report.differs(version, "TLS 1.2 and 1.3 are offered")

    def _client_certificates(
        self, part: Options, made: dict[str, object], authority: Option | None, required: Option | None
    ) -> None:
        named, directory = part.take("use_identity_as_username"), part.take("capath")
        is_user = named is not None and named.flag()  # then Mosquitto asks each client for a certificate
        needing = named if is_user else required if required is not None and required.flag() else None
        if needing is None:
            for option in (authority, directory):
                if option is not None:
                    self._report.differs(option, UNUSED_AUTHORITY)
        elif authority is None:
            self._leave_out(part, needing, "the authority of the certificates is not named by cafile")
        else:
            made["client_ca"] = str(self._path(authority))
            made["require_client_certificate"] = True
            if is_user:
                made["certificate_as_user"] = True
        if needing is not None and directory is not None:
            self._report.not_moved(directory, "one file with all authorities is needed: join them and use cafile")

    def _give_name(self, made: dict[str, object]) -> None:
        """A name where kind and port are those of another listener."""
        name = "unix" if made["kind"] == "unix" else f"{made['kind']}-{made['port']}"
        self._names[name] += 1
        if self._names[name] > 1:
            made["name"] = f"{name}-{self._names[name]}"

    def _name_of(self, made: Mapping[str, object]) -> str:
        return str(made.get("name") or ("unix" if made["kind"] == "unix" else f"{made['kind']}-{made['port']}"))

    def _listener_options(self, part: Options, made: dict[str, object]) -> None:
        most = part.take("max_connections")
        if most is not None and most.number(-INT_MAX, INT_MAX) > 0:
            made["limits"] = {"connections_max": most.number(-INT_MAX, INT_MAX)}
        accepted = part.take("accept_protocol_versions")
        if accepted is not None:
            levels = " ".join(accepted.words()).replace(",", " ").split()
            if not levels or not set(levels) <= set(VERSION_OF):
                raise accepted.wrong("some of 3, 4, 5")
            made["versions"] = [VERSION_OF[level] for level in levels]
        self._mount_point(part, made)
        anonymous = part.take("listener_allow_anonymous")
        if anonymous is not None:
            made["allow_anonymous"] = anonymous.flag()
        origins = part.take_all("websockets_origin")
        if origins:
            made["ws_origins"] = [option.text() for option in origins]
        elif made["kind"] in ("ws", "wss") and set(made["host"]) <= {*LOOPBACK, "localhost"} and part.head is not None:  # type: ignore[call-overload]  # a list of texts
            self._report.differs(
                part.head, "only pages of this machine may connect to a loopback address: set ws_origins for others"
            )

    def _mount_point(self, part: Options, made: dict[str, object]) -> None:
        option = part.take("mount_point")
        if option is None:
            return
        prefix = option.text()
        if prefix.endswith("/") and not prefix.startswith("$"):
            made["mount_point"] = prefix
        else:
            self._leave_out(part, option, "a prefix of topics is whole levels here, such as home/")

    def _is_complete(self, part: Options) -> bool:
        """Whether the listener may be opened without what has no counterpart, all of which is reported."""
        for option in part.untaken():
            why = CLOSED_WITHOUT.get(option.key)
            if (option.key in FLAGS and not option.flag()) or (option.key in QOS and option.number(0, 2) == 2):
                self._report.not_needed(option)
            elif why is not None:
                self._leave_out(part, option, why)
            else:
                self._no_counterpart(option)
        return part not in self._left_out

    def _leave_out(self, part: Options, option: Option, why: str) -> None:
        assert part.head is not None
        self._left_out.append(part)
        self._report.not_moved(option, f"{why}; the listener of {part.head.place()} is left out")

    def _path(self, option: Option) -> Path:
        """A file that an option names: below the current directory, else beside the file that has the option."""
        path = Path(option.text())
        beside = option.file.parent / path
        return (beside if not path.exists() and beside.exists() else path).absolute()

    # -- bridges ---------------------------------------------------------------------------------------------------

    def _bridges(self) -> list[dict[str, object]]:
        bridges = BridgeMigrator(self._report, self._write, self._path)
        made = [found for part in self._conf.bridges if (found := bridges.bridge(part)) is not None]
        if self._conf.bridges:
            self._report.moved.append(f"{len(made)} of {len(self._conf.bridges)} bridges")
        return made


# -- TOML --------------------------------------------------------------------------------------------------------------


def settings_text(
    source: Path,
    sections: Mapping[str, Mapping[str, object]],
    tables: Mapping[str, list[dict[str, object]]],
) -> str:
    """The settings file. `tables`: the sections of which there may be several."""
    lines = [
        f"# Written by `ember migrate` from {json.dumps(str(source), ensure_ascii=False)}.",
        "# What is not set here is as `ember config sample` shows it.",
    ]
    for section, values in sections.items():
        if values:
            lines += ["", f"[{section}]", *_lines(values)]
    for name, several in tables.items():
        for values in several:
            lines += ["", f"[[{name}]]", *_lines(values)]
    return "\n".join(lines) + "\n"


def _lines(values: Mapping[str, object]) -> list[str]:
    return [f"{key} = {_value(value)}" for key, value in values.items()]


def _value(value: object) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(_lines(value)) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(_value(each) for each in value) + "]"
    return json.dumps(value, ensure_ascii=False)  # for texts, numbers and truth values TOML is as JSON
