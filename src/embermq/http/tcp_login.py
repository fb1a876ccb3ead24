"""Login on TCP: tokens, and users of the password file; requests of web pages are refused.

Owns: reading the Authorization header, how often a peer may fail, and which Host and Origin a request may have.
A browser sends what a page tells it to, also to this machine, so a request with a foreign Origin is refused; and so is
one for a host name that is not ours, since anyone can have a name point to this address (DNS rebinding).
"""

import asyncio
import ipaddress
import time
from base64 import b64decode
from binascii import Error as Base64Error
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Final, final
from urllib.parse import urlsplit

from aiohttp import web

from embermq.access.tokens import TokenHolder, token_hash
from embermq.broker.access import Identity
from embermq.http.login import Actor, Login
from embermq.http.operation import OPERATOR, READER, VIEWER
from embermq.http.refusal import HttpRefusal
from embermq.protocol.errors import Refused
from embermq.protocol.packets import Connect
from embermq.transport.addresses import network_of
from embermq.transport.authentication import Authenticator

FAILURES_MAX: Final = 10
FAILURES_S: Final = 60.0
"""So many failed logins of one address in so many seconds; further ones are refused unread."""
ADDRESSES_MAX: Final = 10_000
ROLE_NUMBERS: Final = {"viewer": VIEWER, "reader": READER, "operator": OPERATOR}


def _unknown() -> HttpRefusal:
    sentence = "expected a token, or a user name and password, that is known"
    return HttpRefusal(401, sentence, {"WWW-Authenticate": 'Bearer realm="ember"'})


@final
class FailedLogins:
    """How often each address has failed. The addresses that failed longest ago are forgotten first."""

    __slots__ = ("_addresses_max", "_failed", "_failures_max", "_now_s")

    def __init__(
        self,
        failures_max: int = FAILURES_MAX,
        addresses_max: int = ADDRESSES_MAX,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._failures_max: Final = failures_max
        self._addresses_max: Final = addresses_max
        self._now_s: Final = now_s
        self._failed: Final[OrderedDict[str, tuple[float, int]]] = OrderedDict()  # since when, how often

    def __len__(self) -> int:
        return len(self._failed)

    def check(self, address: str) -> None:
        """Raises an `HttpRefusal` if an address has failed too often."""
        since_s, count = self._failed.get(address, (0.0, 0))
        wait_s = since_s + FAILURES_S - self._now_s()
        if count >= self._failures_max and wait_s > 0:
            raise HttpRefusal(429, "too many failed logins, try again later", {"Retry-After": str(int(wait_s) + 1)})

    def add(self, address: str) -> None:
        now_s = self._now_s()
        since_s, count = self._failed.pop(address, (now_s, 0))
        if now_s - since_s >= FAILURES_S:
            since_s, count = now_s, 0
        self._failed[address] = since_s, count + 1
        if len(self._failed) > self._addresses_max:
            self._failed.popitem(last=False)


@final
class TcpLogin(Login):
    """Tokens and users. `users` gives the role of each user of the password file that has one."""

    __slots__ = ("_authenticator", "_failed", "_hosts", "_users", "tokens")

    def __init__(
        self,
        tokens: Mapping[str, TokenHolder],
        hosts: frozenset[str],
        authenticator: Authenticator | None = None,
        users: Mapping[str, int] | None = None,
        failed: FailedLogins | None = None,
    ) -> None:
        self.tokens = tokens
        self._hosts: Final = hosts
        self._authenticator: Final = authenticator
        self._users: Final = users or {}
        self._failed: Final = failed if failed is not None else FailedLogins()

    def check_source(self, request: web.Request) -> None:
        host = request.headers.get("Host", "")
        if not self._is_ours(host):
            raise HttpRefusal(421, "this host name is not one of this server (http.names)")
        origin = request.headers.get("Origin")
        is_foreign = origin is not None and _host_of(origin) != host.lower()
        if origin is None and _is_link_to_page(request):
            return
        if is_foreign or request.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
            raise HttpRefusal(403, "pages of other origins may not use this interface")

    def _is_ours(self, host: str) -> bool:
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        if name in self._hosts:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True  # no page has an address for a name

    async def actor(self, request: web.Request) -> Actor:
        address = request.remote or ""
        peer = network_of(address)
        self._failed.check(peer)
        kind, _, given = request.headers.get("Authorization", "").partition(" ")
        if not kind:
            raise _unknown()
        actor: Actor | None = None
        if kind.lower() == "bearer":
            holder = self.tokens.get(token_hash(given.strip()))
            if holder is not None:
                actor = Actor(holder.name, ROLE_NUMBERS[holder.role], address)
        elif kind.lower() == "basic" and self._authenticator is not None:
            actor = await self._user(given, address, self._authenticator)
        if actor is None:
            self._failed.add(peer)
            raise _unknown()
        return actor

    async def _user(self, given: str, address: str, authenticator: Authenticator) -> Actor | None:
        try:
            user_name, separator, password = b64decode(given.strip(), validate=True).decode().partition(":")
        except (Base64Error, ValueError):
            return None
        if not separator:
            return None
        answered: asyncio.Future[Identity | None] = asyncio.get_running_loop().create_future()

        def answer(identity: Identity | None) -> None:
            if not answered.done():  # else the peer is gone
                answered.set_result(identity)

        def refused(refusal: Refused) -> None:
            answer(None)

        connect = Connect("", True, 0, None, user_name=user_name, password=password.encode())
        authenticator.authenticate(connect, None, answer, refused, lambda: answer(None), lambda: not answered.done())
        identity = await answered
        role = self._users.get(user_name)
        return Actor(user_name, role, address, identity) if identity is not None and role is not None else None


def _is_link_to_page(request: web.Request) -> bool:
    """Whether somebody followed a link, which may be anywhere, to the page: its file says nothing about the server."""
    headers = request.headers
    is_link = headers.get("Sec-Fetch-Mode") == "navigate" and headers.get("Sec-Fetch-Dest") == "document"
    return is_link and request.path == "/" and request.method == "GET"


def _host_of(origin: str) -> str:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""
