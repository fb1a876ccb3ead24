"""Addresses: which of them only this machine reaches, how one is shown, and how a long path is one."""

import ipaddress
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

UNIX_ADDRESS_BYTES_MAX: Final = 100
"""Systems take a little more, each its own."""


def is_loopback(host: str) -> bool:
    """Whether an address, or the name `localhost`, is of this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def shown(host: str, port: int) -> str:
    """As in a URL: an IPv6 address is set in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def shown_peer(peer: object) -> str:
    """What a socket tells of its peer, for log lines and records."""
    if isinstance(peer, tuple) and len(peer) >= 2:
        return f"{peer[0]}:{peer[1]}"
    return str(peer) if peer else "unix"


@contextmanager
def unix_address(path: Path) -> Iterator[str]:
    """An address to bind or to connect to; a path that is too long to be one is reached through its directory."""
    by_descriptor = Path("/proc/self/fd")
    if len(os.fsencode(path)) <= UNIX_ADDRESS_BYTES_MAX or not by_descriptor.is_dir():
        yield str(path)
        return
    descriptor = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield str(by_descriptor / str(descriptor) / path.name)
    finally:
        os.close(descriptor)
