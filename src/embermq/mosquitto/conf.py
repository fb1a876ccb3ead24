"""The settings file of Mosquitto, mosquitto.conf, with what its include_dir names.

Owns: which option belongs to the server, to a listener or to a bridge, and the file and line of each.
Never: what becomes of an option (`settings`). Each is taken once; `untaken` has those that nobody asked for, so that
none is dropped silently.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from embermq.errors import ConfigError

LISTENER_KEYS: Final = frozenset(
    {
        "accept_protocol_versions",
        "bind_interface",
        "cafile",
        "capath",
        "certfile",
        "ciphers",
        "ciphers_tls1.3",
        "crlfile",
        "dhparamfile",
        "enable_proxy_protocol",
        "http_dir",
        "keyfile",
        "listener_allow_anonymous",
        "listener_auto_id_prefix",
        "max_connections",
        "max_qos",
        "max_topic_alias",
        "max_topic_alias_broker",
        "maximum_qos",
        "mount_point",
        "protocol",
        "psk_hint",
        "require_certificate",
        "socket_domain",
        "tls_engine",
        "tls_engine_kpass_sha1",
        "tls_keyform",
        "tls_version",
        "use_identity_as_username",
        "use_subject_as_username",
        "use_username_as_clientid",
        "websockets_origin",
    }
)
"""What belongs to the listener above it; above the first one, to the default listener."""
SECURITY_KEYS: Final = frozenset(
    {"acl_file", "allow_anonymous", "allow_zero_length_clientid", "auto_id_prefix", "password_file", "psk_file"}
)
"""What belongs to the server, or with `per_listener_settings` to the listener above it."""
BRIDGE_KEYS: Final = frozenset(
    {
        "address",
        "addresses",
        "cleansession",
        "clientid",
        "idle_timeout",
        "keepalive_interval",
        "local_cleansession",
        "local_clientid",
        "local_password",
        "local_username",
        "notification_topic",
        "notifications",
        "notifications_local_only",
        "password",
        "remote_clientid",
        "remote_password",
        "remote_username",
        "restart_timeout",
        "round_robin",
        "start_type",
        "threshold",
        "topic",
        "try_private",
        "username",
    }
)
"""What belongs to the `connection` above it, beside all that begins with `bridge_`."""
_KEY: Final = re.compile(r"[A-Za-z0-9_.-]+")
REPEATED: Final = frozenset({"log_dest", "log_type", "topic", "websockets_origin"})
"""Options of which there may be several; of the others, a second one is an error."""
SERVER_KEYS: Final = frozenset({"allow_anonymous", "include_dir", "per_listener_settings", "persistence", "port"})
"""Some others, by which a file is recognised."""
INT_MAX: Final = 0x7FFF_FFFF
"""The largest number that an option can have there."""


@final
@dataclass(frozen=True)
class Option:
    """One line: `key value`. Errors name its file and line."""

    key: str
    value: str
    file: Path
    line: int

    def place(self) -> str:
        return f"{self.file}, line {self.line}"

    def wrong(self, expected: str) -> ConfigError:
        value = "" if self.secret() else f" {self.value!r}"
        return ConfigError(f"{self.place()}: {self.key}{value}: expected {expected}")

    def text(self) -> str:
        """The whole value."""
        if not self.value:
            raise ConfigError(f"{self.place()}: {self.key} has no value")
        return self.value

    def path(self) -> Path:
        """The file that it names: below the current directory, else beside the file that has the option."""
        path = Path(self.text())
        beside = self.file.parent / path
        return (beside if not path.exists() and beside.exists() else path).absolute()

    def words(self) -> list[str]:
        """The words of the value, without a comment."""
        words: list[str] = []
        for word in self.text().split():
            if word.startswith("#"):
                break
            words.append(word)
        return words

    def word(self) -> str:
        return next(iter(self.words()), "")

    def flag(self) -> bool:
        if self.word() not in ("true", "false", "1", "0"):
            raise self.wrong("true or false")
        return self.word() in ("true", "1")

    def number(self, low: int, high: int) -> int:
        try:
            number = int(self.word())
        except ValueError:
            raise self.wrong("a number") from None
        if not low <= number <= high:
            raise self.wrong(f"a number from {low} to {high}")
        return number

    def secret(self) -> bool:
        """Whether the value must not be shown."""
        return ("password" in self.key and self.key != "password_file") or self.key == "bridge_psk"

    def shown(self) -> str:
        return f"{self.key} ***" if self.secret() else f"{self.key} {self.value}".rstrip()


@final
class Options:
    """The options of the server, of one listener or of one bridge. `head` is the line that began the part."""

    def __init__(self, head: Option | None = None) -> None:
        self.head: Final = head
        self._options: Final[list[Option]] = []

    def add(self, option: Option) -> None:
        before = next((each for each in self._options if each.key == option.key), None)
        if before is not None and option.key not in REPEATED and not is_of_plugin(option.key):
            raise ConfigError(f"{option.place()}: {option.key} is set already, in {before.place()}")
        self._options.append(option)

    def take(self, key: str) -> Option | None:
        """The option of a key, which counts as taken; None if it is not set."""
        return next(iter(self.take_all(key)), None)

    def take_all(self, key: str) -> list[Option]:
        found = [option for option in self._options if option.key == key]
        for option in found:
            self._options.remove(option)
        return found

    def untaken(self) -> list[Option]:
        """Those that were not taken, in their order; they count as taken now."""
        found = list(self._options)
        self._options.clear()
        return found

    def flag(self, key: str, default: bool) -> bool:
        option = self.take(key)
        return default if option is None else option.flag()

    def first_but(self, keys: frozenset[str]) -> Option | None:
        """The first option of another key."""
        return next((option for option in self._options if option.key not in keys), None)

    def has_plugin(self) -> bool:
        return any(is_of_plugin(option.key) for option in self._options)


@final
class Conf:
    """A settings file that has been read, with the files it includes."""

    def __init__(self, file: Path) -> None:
        self.file: Final = file
        self.server: Final = Options()
        self.default_listener: Final = Options()
        self.listeners: Final[list[Options]] = []
        self.bridges: Final[list[Options]] = []
        self._per_listener = False
        self._has_security = False
        self._read(file, is_included=False)

    @property
    def per_listener(self) -> bool:
        """Whether each listener has users and rights of its own."""
        return self._per_listener

    def _read(self, file: Path, is_included: bool) -> None:
        part = _Reader(self.default_listener)
        for number, line in enumerate(read_lines(file), 1):
            words = line.split(maxsplit=1)
            if not words or words[0].startswith("#"):
                continue
            if not _KEY.fullmatch(words[0]):  # a password file has hashes, which are not to be shown
                raise ConfigError(
                    f"{file}, line {number} is no line of a mosquitto.conf: expected an option and its value"
                )
            option = Option(words[0], words[1].strip() if len(words) > 1 else "", file, number)
            if option.key == "include_dir":
                if not is_included:  # Mosquitto ignores it there
                    self._include(option)
            elif option.key == "listener":
                part.listener = Options(option)
                self.listeners.append(part.listener)
            elif option.key == "connection":
                part.bridge = Options(option)
                self.bridges.append(part.bridge)
            elif option.key == "per_listener_settings":
                self._set_per_listener(option)
            else:
                self._add(option, part)

    def _set_per_listener(self, option: Option) -> None:
        if self._has_security and option.flag():
            raise ConfigError(f"{option.place()}: per_listener_settings must be above all other security options")
        self._per_listener = option.flag()

    def _add(self, option: Option, part: "_Reader") -> None:
        key = option.key
        if key in BRIDGE_KEYS or key.startswith("bridge_"):
            if part.bridge is None:
                raise ConfigError(f"{option.place()}: {key} is for a bridge: expected 'connection NAME' above it")
            part.bridge.add(option)
        elif key in LISTENER_KEYS:
            part.listener.add(option)
        elif key in SECURITY_KEYS:
            self._has_security = True
            (part.listener if self._per_listener else self.server).add(option)
        elif key in ("port", "bind_address"):
            self.default_listener.add(option)
        else:
            self.server.add(option)

    def _include(self, option: Option) -> None:
        directory = Path(option.text())
        try:
            names = sorted(each for each in directory.iterdir() if each.suffix == ".conf")
        except OSError as error:
            raise ConfigError(f"{option.place()}: cannot read {directory}: {error.strerror or error}") from None
        for name in names:
            self._read(name, is_included=True)


@final
class _Reader:
    """Where the next line of a file belongs. Each file begins at the default listener."""

    def __init__(self, default_listener: Options) -> None:
        self.listener = default_listener
        self.bridge: Options | None = None


def is_of_plugin(key: str) -> bool:
    return key == "global_plugin" or key.startswith(("plugin", "auth_"))


def read_lines(file: Path) -> list[str]:
    """The lines of a file of Mosquitto; a `ConfigError` says why it cannot be read."""
    try:
        return file.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file} is not UTF-8 text (byte {error.start})") from None


def is_mosquitto_conf(text: str) -> bool:
    """Whether a text looks like mosquitto.conf: its first line that is no comment begins with an option of it."""
    for line in text.splitlines():
        words = line.split()
        if words and not words[0].startswith("#"):
            known = LISTENER_KEYS | SECURITY_KEYS | SERVER_KEYS | {"listener", "bind_address", "connection", "user"}
            return words[0] in known or words[0].startswith(("persist", "log_", "max_", "pid_", "plugin", "auth_"))
    return False
