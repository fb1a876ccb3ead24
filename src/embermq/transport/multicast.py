"""The multicast group in which MQTT-SN clients search for a server: SEARCHGW and ADVERTISE are sent to it.

Owns: joining the group, and the socket that receives what is sent to it.
Never: an answer. The listener's own socket sends that, since its address is what the client wants to know.
"""

import asyncio
import errno
import os
import socket
from collections.abc import Callable
from typing import Final, final

Group = tuple[str, int]
Receive = Callable[[bytes, tuple[str, int]], None]


@final
class GroupSocket(asyncio.DatagramProtocol):
    """Hands on what is sent to the group."""

    def __init__(self, receive: Receive) -> None:
        self._receive: Final = receive

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        self._receive(data, addr)


def send_on_own_network(bound: socket.socket) -> None:
    """Have a socket send to multicast groups on the network of its own address."""
    interface = _interface(bound)
    bound.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, interface)


async def receive_from_group(
    loop: asyncio.AbstractEventLoop, bound: socket.socket, group: Group, receive: Receive
) -> asyncio.BaseTransport | None:
    """Receive from the group on the network of a listener's socket. None: that socket itself receives it now."""
    interface = _interface(bound)
    membership = socket.inet_aton(group[0]) + interface
    host, port = bound.getsockname()[:2]
    if port == group[1] and host == "0.0.0.0":
        bound.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
        return None
    # A socket receives from a group only on the group's port, and never if it is bound to an address of this machine.
    own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        own.setblocking(False)
        own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # other servers of this machine receive it too
        own.bind(group)
        own.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
    except OSError:
        own.close()
        raise
    transport, _ = await loop.create_datagram_endpoint(lambda: GroupSocket(receive), sock=own)
    return transport


def _interface(bound: socket.socket) -> bytes:
    if bound.family != socket.AF_INET:
        raise OSError(errno.EAFNOSUPPORT, os.strerror(errno.EAFNOSUPPORT))
    return socket.inet_aton(bound.getsockname()[0])
