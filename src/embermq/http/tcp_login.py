"""Login on TCP: tokens, and users of the password file; requests of web pages are refused.

Owns: what an Authorization is worth, and which Host and Origin a request may have.
A browser sends what a page tells it to, also to this machine, so a request with a foreign Origin is refused; and so is
one for a host name that is not ours, since anyone can have a name point to this address (DNS rebinding).
"""

import asyncio
import ipaddress
import logging
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Mapping
from math import ceil
from typing import Final, final
from urllib.parse import urlsplit

from aiohttp import web

from embermq.access.tokens import TokenHolder, token_hash
from embermq.broker.access import Identity
from embermq.http.counts import HttpCounts
from embermq.http.login import Actor, Login
from embermq.http.operation import OPERATOR, READER, VIEWER
from embermq.http.refusal import HttpRefusal
from embermq.http.web_socket import authorization_of
from embermq.protocol.packets import Connect
from embermq.protocol.reasons import ReasonCode
from embermq.transport.address_bounds import AddressBounds
from embermq.transport.authentication import Authenticator
from embermq.transport.rate_limited_log import RateLimitedLog, shown_name

ROLE_NUMBERS: Final = {"viewer": VIEWER, "reader": READER, "operator": OPERATOR}


failed_logins: Final = RateLimitedLog(logging.getLogger("embermq"), "failed HTTP logins", lines_a_second=5)


def _unknown() -> HttpRefusal:
    sentence = "expected a token, or a user name and password, that is known"
    return HttpRefusal(401, sentence, {"WWW-Authenticate": 'Bearer realm="ember"'})


@final
class TcpLogin(Login):
    """Tokens and users. `users` gives the role of each user of the password file that has one.

    After too many failures an address waits as on the other listeners (`limits.address_login_failures_max`). A token
    that is right, and a password that was right before, are accepted meanwhile.
    """

    __slots__ = ("_addresses", "_authenticator", "_counts", "_hosts", "_users", "tokens")

    def __init__(
        self,
        tokens: Mapping[str, TokenHolder],
        hosts: frozenset[str],
        addresses: AddressBounds,
        counts: HttpCounts,
        authenticator: Authenticator | None = None,
        users: Mapping[str, int] | None = None,
    ) -> None:
        self.tokens = tokens
        self._hosts: Final = hosts
        self._addresses: Final = addresses
        self._counts: Final = counts
        self._authenticator: Final = authenticator
        self._users: Final = users or {}

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
        kind, _, given = authorization_of(request).partition(" ")
        if not kind:
            raise _unknown()
        key = self._addresses.key((address,))
        if kind.lower() == "basic" and self._authenticator is not None:
            return await self._user(given, address, key, self._authenticator)
        holder = self.tokens.get(token_hash(given.strip())) if kind.lower() == "bearer" else None
        if holder is not None:
            return Actor(holder.name, ROLE_NUMBERS[holder.role], address, login_name=holder.name)
        if self._addresses.must_wait(key):
            raise self._too_many_failures(key)
        raise self._failed(address, key, "an unknown token")

    def _failed(self, address: str, key: str, who: str) -> HttpRefusal:
        self._addresses.refused_login(key, ReasonCode.NOT_AUTHORIZED)
        self._counts.logins_failed += 1
        failed_logins.log(logging.WARNING, "failed HTTP login from %s: %s", address, who)
        return _unknown()

    def _too_many_failures(self, key: str) -> HttpRefusal:
        wait_s = ceil(self._addresses.wait_s(key))
        return HttpRefusal(429, "too many failed logins, try again later", {"Retry-After": str(max(1, wait_s))})

    async def _user(self, given: str, address: str, key: str, authenticator: Authenticator) -> Actor:
        try:
            user_name, separator, password = b64decode(given.strip(), validate=True).decode().partition(":")
        except (Base64Error, ValueError):
            user_name = separator = password = ""
        if not separator:
            raise self._failed(address, key, "no user name and password")
        answered: asyncio.Future[Identity | ReasonCode] = asyncio.get_running_loop().create_future()

        def answer(outcome: Identity | ReasonCode) -> None:
            if not answered.done():  # else the peer is gone
                answered.set_result(outcome)

        authenticator.authenticate(
            Connect("", True, 0, None, user_name=user_name, password=password.encode()),
            None,
            answer,
            lambda refusal: answer(refusal.reason),
            lambda: answer(ReasonCode.SERVER_BUSY),
            lambda: not answered.done(),
            key,
        )
        outcome = await answered
        if outcome is ReasonCode.CONNECTION_RATE_EXCEEDED:
            raise self._too_many_failures(key)
        if outcome is ReasonCode.SERVER_BUSY:
            raise HttpRefusal(503, "too many passwords wait to be checked, try again", {"Retry-After": "1"})
        if isinstance(outcome, ReasonCode):
            raise self._failed(address, key, f"user {shown_name(user_name)}")
        role = self._users.get(outcome.user_name)  # a token says who it is, whatever name is sent with it
        if role is None:
            raise self._failed(address, key, f"user {shown_name(outcome.user_name)}")
        return Actor(outcome.user_name, role, address, outcome, outcome.user_name)


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
