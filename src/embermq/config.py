"""Reading the settings: from a TOML file, the environment and flags; the later overrides the earlier.

Owns: where each value comes from, and the sentence for a wrong one.
Never: what is done with a setting; `embed` joins the parts.
"""

import os
import tomllib
from collections.abc import Collection, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError
from pydantic_settings import BaseSettings, InitSettingsSource, PydanticBaseSettingsSource
from pydantic_settings.exceptions import SettingsError

from embermq.errors import ConfigError
from embermq.listening import check_listeners
from embermq.mosquitto.conf import is_mosquitto_conf
from embermq.settings import ENVIRONMENT_PREFIX, ListenerLimits, OneListener, Settings, all_keys
from embermq.units import DURATION_EXPECTED, SIZE_EXPECTED, unit_of

FILE_NAME: Final = "ember.toml"
SYSTEM_FILE: Final = Path("/etc/embermq") / FILE_NAME

BESIDE_NO_PLUGIN: Final = (
    *("password_file", "acl_file", "certificate_as_user", "allow_anonymous", "jwt_keys", "call_out_url"),
)
"""The settings of `access` that do nothing beside a plug-in."""
LISTS: Final = ("listeners", "bridges")
"""The sections that may be written as a list of tables, such as `[[bridges]]`."""

# The flags of `ember serve` that are not called like their setting.
FLAGS: Final = {"certificate": "cert", "directory": "data", "unix_path": "unix"}


def usual_files() -> tuple[Path, Path, Path]:
    """Where the settings file is looked for: in the current directory, then the user's, then the system's."""
    user = Path(os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config"))
    return Path(FILE_NAME), user / "embermq" / FILE_NAME, SYSTEM_FILE


def found_file() -> Path | None:
    """The settings file of a command that names none: the first of the usual ones that exists."""
    return next((path for path in usual_files() if _exists(path)), None)


def _exists(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a directory that this user may not look into
        return False


def load(
    path: Path | None = None, flags: Mapping[str, Mapping[str, Any]] | None = None, without: Collection[str] = ()
) -> Settings:
    """The settings of a file, under those of the environment, under flags given as {section: {key: value}}.

    Raises a `ConfigError` that names where the first wrong value came from. The file's sections that `without` names
    are not read.
    """
    settings = load_unchecked(path, flags, without)
    _check_together(settings)
    return settings


def load_unchecked(
    path: Path | None = None, flags: Mapping[str, Mapping[str, Any]] | None = None, without: Collection[str] = ()
) -> Settings:
    """As `load`, but settings are not checked together: for commands that do not start a server."""
    in_file = read_toml(path) if path is not None else {}
    for section in without:
        in_file.pop(section, None)
    for section in LISTS:
        if isinstance(in_file.get(section), list):
            in_file[section] = {"each": in_file[section]}
    _check_environment()

    class Sources(Settings):
        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            dotenv_settings: PydanticBaseSettingsSource,
            file_secret_settings: PydanticBaseSettingsSource,
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            return init_settings, env_settings, InitSettingsSource(settings_cls, in_file)

    given: dict[str, Any] = {section: dict(values) for section, values in (flags or {}).items()}
    try:
        settings = Sources(**given)
    except ValidationError as error:
        found = error.errors(include_url=False)
        # A misspelt setting is the likely reason why another one is missing.
        first = next((one for one in found if one["type"] == "extra_forbidden"), found[0])
        key = tuple(first["loc"])
        place = _place(key, given, in_file, path)
        raise ConfigError(f"{place}: {_expected(key, first['type'], first['msg'], first['input'])}") from error
    except SettingsError as error:
        raise ConfigError(f"environment: {error}") from error
    return settings


def read_toml(path: Path) -> dict[str, Any]:
    """The content of a TOML file; a ConfigError says why it cannot be read."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror or error}") from error
    try:
        return tomllib.loads(content.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        text = content.decode(errors="replace")
        if is_mosquitto_conf(text):
            raise ConfigError(
                f"{path} is a settings file of Mosquitto: `ember migrate {path}` writes an {FILE_NAME} from it"
            ) from None
        raise ConfigError(f"{path} is not TOML: {error}{_both_forms(text)}") from error


def _both_forms(text: str) -> str:
    """What TOML does not say of a file with both forms of listeners, as the sample is with one table added."""
    lines = {line.strip() for line in text.splitlines()}
    if not {"[listeners]", "[[listeners]]"} <= lines:
        return ""
    return "; [listeners] and [[listeners]] are given: expected one form, remove the section [listeners]"


def _check_environment() -> None:
    """Refuse a variable with an unknown section; pydantic refuses unknown keys of a section."""
    for name in os.environ:
        section, separator, _ = name.upper().removeprefix(ENVIRONMENT_PREFIX).partition("__")
        if name.upper().startswith(ENVIRONMENT_PREFIX) and separator and section.lower() not in Settings.model_fields:
            near = _nearest((section.lower(),), all_keys())
            meant = f"did you mean {near}?" if near else f"expected one of {', '.join(Settings.model_fields)}"
            raise ConfigError(f"environment variable {name}: there is no section {section.lower()}, {meant}")


def _place(key: tuple[int | str, ...], flags: Mapping[str, Any], in_file: Mapping[str, Any], path: Path | None) -> str:
    """Where the value of a setting came from."""
    if _holds(flags, key):
        flag = f"{key[0]}_port" if key[0] in ("sn", "http") else str(key[-1])
        return f"--{FLAGS.get(flag, flag).replace('_', '-')}"
    wanted = (ENVIRONMENT_PREFIX + "__".join(str(part) for part in key)).upper()
    for name in os.environ:
        if name.upper() == wanted or wanted.startswith(name.upper() + "__"):
            return f"environment variable {name}"
    return str(path) if _holds(in_file, key[:1]) else "settings"


def _holds(values: Any, key: tuple[int | str, ...]) -> bool:
    for part in key:
        if not isinstance(values, Mapping) or part not in values:
            return False
        values = values[part]
    return True


def _expected(key: tuple[int | str, ...], kind: str, message: str, value: object) -> str:
    """What was expected of a setting, in a few words."""
    name = ".".join(str(part) for part in key if part != "each")  # [[listeners]] of the file
    if kind == "extra_forbidden":
        near = _nearest(key, all_keys())
        what = "section" if len(key) == 1 else "setting"
        return f"there is no {what} {name}" + (f", did you mean {near}?" if near else "")
    unit = unit_of(str(key[-1]))
    if kind == "int_parsing" and unit:
        return f"{name}: expected {SIZE_EXPECTED if unit == 'bytes' else DURATION_EXPECTED}, not {value!r}"
    if kind == "missing":
        return f"{name} is missing"
    if kind in ("model_type", "model_attributes_type"):
        return f"{name}: expected a table of settings, not {value!r}"
    wanted = message.removeprefix("Value error, ").removesuffix(", unable to parse string as an integer")
    wanted = wanted.replace("Input should be", "expected").replace("String should", "must")
    wanted = wanted.replace("a valid tuple", "a list")
    if kind == "value_error" and not wanted.startswith("expected"):
        return f"{name}: {wanted}"
    return f"{name}: {wanted}, not {value!r}"


def _check_together(settings: Settings) -> None:
    """Check settings that depend on each other."""
    listeners, access = settings.listeners, settings.access
    check_listeners(settings)
    encrypted = listeners.tls_port is not None or listeners.wss_port is not None
    if encrypted and (listeners.certificate is None or listeners.key is None):
        raise ConfigError(
            "listeners.tls_port and wss_port need listeners.certificate and listeners.key (--cert, --key)"
        )
    has_client_ca = listeners.client_ca is not None or any(each.client_ca is not None for each in listeners.each)
    if (listeners.require_client_certificate or access.certificate_as_user) and not has_client_ca:
        raise ConfigError(
            "listeners.require_client_certificate and access.certificate_as_user need listeners.client_ca,"
            " the authority that signs the clients' certificates"
        )
    if not listeners.every(settings.sn.port):
        raise ConfigError("listeners: nothing to listen on, set listeners.tcp = true or another listener")
    if settings.store.recording == "filters" and not settings.store.recording_filters:
        raise ConfigError('store.recording is "filters": expected at least one filter in store.recording_filters')
    if settings.sn.profile == "2.0" and settings.sn.sessionless_profile == "2.0-w":
        raise ConfigError('sn.sessionless_profile is "2.0-w", which sn.profile = "2.0" does not include')
    _check_http(settings)
    _check_access(settings)
    _check_cluster(settings)
    _check_bridges(settings)
    named = access.has_users() or access.certificate_as_user
    if not named and not listeners.each and not settings.anonymous_allowed():
        raise ConfigError(
            "access.allow_anonymous is false: expected access.password_file or access.certificate_as_user, or"
            " no client can connect"
            if access.allow_anonymous is False
            else f"listeners.host {listeners.host} is reachable from other machines: set access.password_file, or"
            " access.allow_anonymous = true (--allow-anonymous) if every client may connect"
        )


def _check_access(settings: Settings) -> None:
    access = settings.access
    if not access.jwt_keys:
        for key in ("jwt_issuer", "jwt_audience", "jwt_rights_claim"):
            if getattr(access, key):
                raise ConfigError(f"access.{key} does nothing: set access.jwt_keys, what tokens are verified with")
    if access.plugin:
        given = [key for key in BESIDE_NO_PLUGIN if getattr(access, key)]
        given += [f"[[listeners]] {each.shown_name()}" for each in settings.listeners.each if each.has_own_users()]
        given += ['wildcards = "narrow"'] if access.wildcards == "narrow" else []
        if given:
            raise ConfigError(f"access.plugin decides about all clients: expected it without {', '.join(given)}")
    has_rights = access.acl_file is not None or any(each.acl_file is not None for each in settings.listeners.each)
    if access.wildcards == "narrow" and not has_rights:
        raise ConfigError(
            'access.wildcards = "narrow" does nothing: set access.acl_file, what subscriptions are narrowed to'
        )
    if access.jwt_rights_claim and access.acl_file is None:
        raise ConfigError(
            "access.jwt_rights_claim needs access.acl_file, which may have no rule: without it every client may do"
            " everything"
        )


def _check_cluster(settings: Settings) -> None:
    if settings.cluster.bootstrap_servers and settings.store.memory:
        raise ConfigError("cluster.bootstrap_servers needs a data directory: expected store.memory = false")
    if settings.cluster.bootstrap_servers and settings.store.archive:
        raise ConfigError("store.archive: nodes of a cluster do not archive in this version, leave it empty")


def _check_bridges(settings: Settings) -> None:
    if settings.bridges.each and settings.store.memory:
        raise ConfigError("[[bridges]] need a log on disk: expected store.memory = false")
    if settings.bridges.each and settings.cluster.bootstrap_servers:
        raise ConfigError("[[bridges]] and a cluster are given: a bridge is of a single server")


def _check_http(settings: Settings) -> None:
    http, access = settings.http, settings.access
    if http.port is None:
        return
    users = access.has_users() and (http.viewers or http.operators)
    if http.token_file is None and not users:
        raise ConfigError(
            "http.port needs http.token_file (`ember token` makes one), or access.password_file with http.viewers or"
            " http.operators: nobody could use the interface"
        )
    if http.tls and None in settings.listeners.certificate_and_key():
        raise ConfigError("http.tls needs listeners.certificate and listeners.key (--cert, --key)")


def _nearest(key: tuple[int | str, ...], known: Sequence[str]) -> str:
    """The section or setting that was probably meant; empty if none is near. `known` are all as `section.key`."""
    places = [(section, name) for section, _, name in (each.partition(".") for each in known)]
    if len(key) == 1:
        sections = list(dict.fromkeys(section for section, _ in places))
        return next(iter(get_close_matches(str(key[0]), sections, n=1)), "")
    section, name = str(key[0]), str(key[-1])
    if key[1:2] == ("each",):
        of = ListenerLimits if "limits" in key else OneListener
        return next(iter(get_close_matches(name, of.model_fields, n=1)), "")
    names = [other for part, other in places if part == section]
    elsewhere = [f"{part}.{other}" for part, other in places if other == name]
    if elsewhere and not get_close_matches(name, names, n=1, cutoff=0.8):
        return elsewhere[0]
    near = get_close_matches(name, names, n=1)
    if near:
        return f"{section}.{near[0]}"
    return next(iter(get_close_matches(f"{section}.{name}", known, n=1)), "")
