"""The multicast group in which MQTT-SN clients look for a server: SEARCHGW comes there, ADVERTISE goes there.

Owns: joining the group, and the socket that hears it.
Never: an answer. That leaves by the listener's own socket, since its address is what the client wants to know.
"""

import asyncio
import errno
import os
import socket
from collections.abc import Callable
from typing import Final, final

Group = tuple[str, int]
Heard = Callable[[bytes, tuple[str, int]], None]


@final
class GroupSocket(asyncio.DatagramProtocol):
    """What is sent to the group, handed on."""

    def __init__(self, heard: Heard) -> None:
        self._heard: Final = heard

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        self._heard(data, addr)


def speak_to_group(bound: socket.socket) -> None:
    """Have what a socket sends to a group leave where its own address is."""
    interface = _interface(bound)
    bound.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, interface)


async def hear_group(
    loop: asyncio.AbstractEventLoop, bound: socket.socket, group: Group, heard: Heard
) -> asyncio.BaseTransport | None:
    """Hear the group on the network of a listener's socket. None: that socket hears it by itself from now on."""
    interface = _interface(bound)
    membership = socket.inet_aton(group[0]) + interface
    host, port = bound.getsockname()[:2]
    if port == group[1] and host == "0.0.0.0":
        bound.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
        return None
    # A socket hears a group only on the group's port, and not at all if it is bound to an address of this machine.
    own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        own.setblocking(False)
        own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # other servers of this machine hear it too
        own.bind(group)
        own.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
    except OSError:
        own.close()
        raise
    transport, _ = await loop.create_datagram_endpoint(lambda: GroupSocket(heard), sock=own)
    return transport


def _interface(bound: socket.socket) -> bytes:
    if bound.family != socket.AF_INET:
        raise OSError(errno.EAFNOSUPPORT, os.strerror(errno.EAFNOSUPPORT))
    return socket.inet_aton(bound.getsockname()[0])
