"""A listener of Mosquitto as `[[listeners]]`, with its users and rights.

Owns: which setting of a listener each option becomes, and which listeners are left out: those that without an option
would let in more clients, or let them reach other topics.
"""

import socket
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, final

from embermq.access.passwords import parse_passwords, read_text
from embermq.errors import ConfigError
from embermq.mosquitto.acl import access_text
from embermq.mosquitto.conf import INT_MAX, Conf, Option, Options
from embermq.mosquitto.counterparts import CLOSED_WITHOUT, FLAGS, NOT_OPENING, QOS, report_rest
from embermq.mosquitto.report import Report

PORT: Final = 1883
LOOPBACK: Final = ("127.0.0.1", "::1")
EVERYWHERE: Final = ("0.0.0.0", "::")  # what a listener without an address means in Mosquitto
UNUSED_AUTHORITY: Final = "not used: no certificates are asked for; certfile needs its whole chain"
VERSION_OF: Final = {"3": "3.1", "4": "3.1.1", "5": "5"}


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


@final
class ListenerMigrator:
    """All listeners of a mosquitto.conf."""

    def __init__(self, conf: Conf, report: Report, write: Callable[[str, str], str]) -> None:
        """`write` has a file of this name and text written, and returns its path."""
        self._conf: Final = conf
        self._report: Final = report
        self._write: Final = write
        self._names: Final[Counter[str]] = Counter()
        self._left_out: Final[list[Options]] = []

    def listeners(self, access: dict[str, object]) -> list[dict[str, object]]:
        """The settings of each listener. Those of the users and rights that they share are put in `access`."""
        conf = self._conf
        parts = self._parts()
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

    def _security_of(self, part: Options) -> _Security:
        return _Security(part.take("password_file"), part.take("acl_file"), part.take("allow_anonymous"))

    def _access(self, security: _Security, suffix: str) -> dict[str, object]:
        """The settings of users and rights, and their files."""
        found: dict[str, object] = {}
        users: frozenset[str] = frozenset()
        if security.passwords is not None:
            source = security.passwords.path()
            text = read_text(source, security.passwords.place())
            users = frozenset(parse_passwords(text, str(source)).users)
            found["password_file"] = self._write(f"passwords{suffix}", text)
            self._report.moved.append(f"{len(users)} users of {source}, with their passwords")
        if security.rights is not None:
            source = security.rights.path()
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
        made["certificate"], made["key"] = str(certificate.path()), str(key.path())
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
            made["client_ca"] = str(authority.path())
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
                report_rest(self._report, option)
        return part not in self._left_out

    def _leave_out(self, part: Options, option: Option, why: str) -> None:
        assert part.head is not None
        self._left_out.append(part)
        self._report.not_moved(option, f"{why}; the listener of {part.head.place()} is left out")
