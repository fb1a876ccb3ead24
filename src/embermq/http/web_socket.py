"""WebSockets: when a request asks for one, and how a page says in it who asks.

A browser lets a page set no header of a WebSocket but the protocols that it offers. So a page offers its Authorization
among them, as the text of that header in base64url behind AUTHORIZATION. The server chooses PROTOCOL.
"""

from base64 import urlsafe_b64decode
from typing import Final

from aiohttp import web

PROTOCOL: Final = "ember.events"
AUTHORIZATION: Final = "ember.authorization."


def is_web_socket(request: web.Request) -> bool:
    """Whether a request asks to become a WebSocket."""
    return request.method == "GET" and request.headers.get("Upgrade", "").lower() == "websocket"


def authorization_of(request: web.Request) -> str:
    """The Authorization of a request; empty without one."""
    header = request.headers.get("Authorization", "")
    if header or not is_web_socket(request):
        return header
    for offered in request.headers.get("Sec-WebSocket-Protocol", "").split(","):
        name = offered.strip()
        if name.startswith(AUTHORIZATION):
            return _decoded(name.removeprefix(AUTHORIZATION))
    return ""


def _decoded(text: str) -> str:
    try:
        return urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()
    except ValueError:
        return "unreadable"  # no kind of login is called so
