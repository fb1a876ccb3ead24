"""TCP ports on loopback that a test names before anything listens there.

Owns: a socket on each of them until this process ends. It does not listen, so that a server that sets SO_REUSEADDR can,
and a client is refused before; but the system gives the port to nobody else who asks for any port.
"""

import socket
from typing import Final

_BOUND: Final[list[socket.socket]] = []


def free_port() -> int:
    bound = socket.socket()
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.bind(("127.0.0.1", 0))
    _BOUND.append(bound)
    return int(bound.getsockname()[1])
