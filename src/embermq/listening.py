"""Listeners and access as the settings describe them: `[[listeners]]`, or the short form.

Owns: what of the settings of a listener becomes which field of a `Listener`, and whose rules it has.
Never: a socket; `transport.listeners` opens them.
"""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

from embermq.broker.access import Access, AllowAll
from embermq.errors import ConfigError
from embermq.plug_ins import make_plug_in
from embermq.transport.listener import Listener, TlsFiles
from embermq.transport.mount_point import MountPoint
from embermq.transport.sockets.addresses import is_loopback

if TYPE_CHECKING:
    from embermq.access.access_files import AccessFiles
    from embermq.access.file_access import FileAccess
    from embermq.access.source import Source
    from embermq.settings import AccessSettings, OneListener, Settings


LEVEL_OF: Final = {"3.1": 3, "3.1.1": 4, "5": 5}
"""The protocol level of each version."""
PLUG_INS: Final = "embermq.access"
"""The group of entry points with the rules of other packages."""


@final
class Rules:
    """The access rules of a server and of its listeners. Reads their files; raises a `ConfigError`."""

    def __init__(self, settings: "Settings") -> None:
        self._settings: Final = settings
        self._server: FileAccess | None = None
        self._own: Final[dict[str, FileAccess]] = {}
        self.files: AccessFiles | None = None
        access = settings.access
        if access.plugin:
            self.access: Access = make_plug_in(
                "access.plugin",
                access.plugin,
                PLUG_INS,
                Access,  # type: ignore[type-abstract]  # it makes a class that derives from it
            )
            return
        named = access.has_users() or access.acl_file is not None or access.certificate_as_user
        if not named and not settings.listeners.each:
            self.access = AllowAll()
            return
        self._server, self.access = self._joined()
        self.files = self._files()

    def _joined(self) -> "tuple[FileAccess, Access]":
        from embermq.access.by_listener import AllListeners
        from embermq.access.file_access import FileAccess

        settings = self._settings
        scopes = [each.shown_name() for each in settings.listeners.each if each.has_own_users()]
        server = FileAccess(
            password_file=settings.access.password_file,
            acl_file=settings.access.acl_file,
            allow_anonymous=settings.anonymous_allowed(),
            certificate_as_user=settings.access.certificate_as_user,
            reserved=scopes,
            is_narrowing=settings.access.wildcards == "narrow",
            sources=_sources(settings.access, scopes),
        )
        for listener in settings.listeners.each:
            if listener.has_own_users():
                self._own[listener.shown_name()] = self._of_own(listener)
        return server, AllListeners(server, self._own) if settings.listeners.each else server

    def _files(self) -> "AccessFiles | None":
        """What can be changed while the server runs."""
        from embermq.access.access_files import AccessFiles, FilePair

        access = self._settings.access
        pairs = {"": FilePair(access.password_file, access.acl_file)}
        for each in self._settings.listeners.each:
            if each.has_own_users():
                users, rights = each.password_file or access.password_file, each.acl_file or access.acl_file
                pairs[each.shown_name()] = FilePair(users, rights)
        return AccessFiles(pairs) if any(path is not None for pair in pairs.values() for path in pair) else None

    def _of_own(self, listener: "OneListener") -> "FileAccess":
        from embermq.access.file_access import FileAccess

        access = self._settings.access
        return FileAccess(
            password_file=listener.password_file or access.password_file,
            acl_file=listener.acl_file or access.acl_file,
            allow_anonymous=self._settings.anonymous_allowed_at(listener),
            certificate_as_user=self._takes_certificates(listener),
            scope=listener.shown_name(),
            is_narrowing=access.wildcards == "narrow",
        )

    def _takes_certificates(self, listener: "OneListener") -> bool:
        asked = listener.certificate_as_user
        return self._settings.access.certificate_as_user if asked is None else asked

    def of(self, listener: "OneListener") -> Access:
        """Those of one listener."""
        own = self._own.get(listener.shown_name())
        if own is not None:
            return own
        if self._server is None or not self._settings.listeners.each:
            return self.access
        from embermq.access.by_listener import AtListener

        allow_anonymous = self._settings.anonymous_allowed_at(listener)
        return AtListener(self._server, allow_anonymous, self._takes_certificates(listener))


def _sources(access: "AccessSettings", scopes: list[str]) -> "list[Source]":
    """The users of the server beside those of its password file."""
    reserved = [f"{scope}:" for scope in scopes]
    found: list[Source] = []
    if access.jwt_keys:
        from embermq.access.sources.json_web_tokens import TokenRules, TokenSource
        from embermq.access.sources.token_keys import FileKeys, UrlKeys

        names = access.jwt_algorithms
        path = _key_file(access)
        url = access.jwt_keys
        keys = UrlKeys(url, names, access.jwt_refresh_s) if path is None else FileKeys(path, names)
        rules = TokenRules(
            algorithms=names,
            issuer=access.jwt_issuer,
            audience=access.jwt_audience,
            user_claim=access.jwt_user_claim,
            rights_claim=access.jwt_rights_claim,
            leeway_s=access.jwt_leeway_s,
        )
        found.append(TokenSource(keys, rules, reserved))
    if access.call_out_url:
        from embermq.access.sources.call_out import CallOut

        call_out = CallOut(
            access.call_out_url,
            timeout_s=access.call_out_timeout_s,
            cache_s=access.call_out_cache_s,
            concurrency=access.call_out_concurrency,
            takes_rights=access.acl_file is not None,
            reserved=reserved,
        )
        found.append(call_out)  # the last: it takes every password
    return found


def _key_file(access: "AccessSettings") -> Path | None:
    is_url = access.jwt_keys.startswith(("http://", "https://"))
    return None if is_url or not access.jwt_keys else Path(access.jwt_keys)


def listener_of(one: "OneListener", settings: "Settings", rules: Rules) -> Listener:
    """A listener that does not listen yet."""
    own_limits = one.limits.model_dump(exclude_none=True)
    is_udp = one.kind == "udp"
    return Listener(
        kind=one.kind,
        name=one.shown_name(),
        limits=replace(settings.limits, **own_limits),
        access=rules.of(one),
        hosts=() if one.kind == "unix" else one.host,
        port=one.port or 0,
        path=one.unix_path,
        mode=int(one.unix_mode, 8),
        tls_files=tls_files_of(one),
        ws_paths=one.ws_paths,
        ws_origins=one.ws_origins,
        levels=tuple(LEVEL_OF[version] for version in one.versions),
        proxies=one.proxy_protocol,
        mount=MountPoint(one.mount_point) if one.mount_point else None,
        sn=settings.sn.engine(settings.limits.keep_alive_max_s) if is_udp else None,
        sn_group=settings.sn.group() if is_udp else None,
    )


def tls_files_of(one: "OneListener") -> TlsFiles | None:
    """What the TLS of a listener is read from."""
    if one.certificate is None or one.key is None:
        return None
    return TlsFiles(one.certificate, one.key, one.client_ca, one.require_client_certificate)


def files_of(settings: "Settings") -> dict[str, tuple[Path | None, ...]]:
    """The files that a reload reads again, by what they hold."""
    every = settings.listeners.every(settings.sn.port)
    tls = [each for each in every if each.certificate is not None]
    pair = settings.listeners.certificate_and_key()
    return {
        "users": (settings.access.password_file, *(each.password_file for each in every)),
        "rights": (settings.access.acl_file, *(each.acl_file for each in every)),
        "keys": (_key_file(settings.access),),
        "tokens": (settings.http.token_file,),
        "certificate": (*pair, *(each.certificate for each in tls), *(each.key for each in tls)),
    }


def check_listeners(settings: "Settings") -> None:
    """What of `[[listeners]]` does not go together with the rest; raises a `ConfigError`."""
    listeners = settings.listeners
    for key in listeners.beside_each():
        raise ConfigError(f"listeners.{key} and [[listeners]] are given: expected one form, set {key} in a listener")
    if listeners.each and settings.sn.port is not None:
        raise ConfigError(
            'sn.port and [[listeners]] are given: expected a listener of kind = "udp" in place of sn.port'
        )
    for listener in listeners.each:
        if listener.proxy_protocol:
            _check_proxies(listener)
        if not settings.has_users_at(listener) and not settings.anonymous_allowed_at(listener):
            name = listener.shown_name()
            if listener.only_this_machine():
                reason = f"listener {name}: anonymous clients are refused and there are no users"
            else:
                beyond = [host for host in listener.host if not is_loopback(host)]
                reached = beyond[0] if beyond else f"{listener.host[0]}, behind a proxy,"
                reason = f"listener {name}: {reached} is reachable from other machines"
            raise ConfigError(
                f"{reason}: set access.password_file or its password_file, or its allow_anonymous = true if every"
                " client may connect"
            )


def _check_proxies(listener: "OneListener") -> None:
    from embermq.transport.listeners import HAS_POLL  # with the server, which most commands do not need

    if not HAS_POLL:
        raise ConfigError(f"listener {listener.shown_name()}: proxy_protocol needs Linux")
