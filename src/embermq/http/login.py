"""Login: who asks, and with which role.

Owns: the actor of a request. Whoever may open the unix socket in the data directory is an operator.
"""

import socket
import struct
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Final, final

from aiohttp import web

from embermq.broker.access import Identity
from embermq.http.operation import OPERATOR

_CREDENTIALS: Final = struct.Struct("iII")  # process, user, group (unix(7), SO_PEERCRED)


@dataclass(frozen=True, slots=True)
class Actor:
    """Who asks, for the audit log; `role` is PUBLIC, VIEWER, READER or OPERATOR.

    `identity` is that of a user, whose rights narrow what is seen; None: no access list does.
    `login_name` is the name of the user or of the token, for the log; empty for the unix socket, which has no login.
    """

    name: str
    role: int
    address: str
    identity: Identity | None = None
    login_name: str = ""


class Login(ABC):
    """How the requests of one listener say who asks."""

    __slots__ = ()

    def check_source(self, request: web.Request) -> None:
        """Raises an `HttpRefusal` if the request comes from a place that is not allowed, for every user."""
        return

    @abstractmethod
    async def actor(self, request: web.Request) -> Actor:
        """Who asks; raises an `HttpRefusal` if that is not known."""


@final
class UnixLogin(Login):
    """The file system decides who can open the socket."""

    __slots__ = ()

    async def actor(self, request: web.Request) -> Actor:
        return Actor(_peer_name(request.get_extra_info("socket")), OPERATOR, "unix")


def _peer_name(peer: object) -> str:
    get = getattr(peer, "getsockopt", None)
    if get is None or not hasattr(socket, "SO_PEERCRED"):
        return "local user"
    process, user, _ = _CREDENTIALS.unpack(get(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return f"uid {user}, process {process}"
