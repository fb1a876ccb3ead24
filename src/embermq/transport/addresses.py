"""Addresses: which of them only this machine reaches, and how one is shown."""

import ipaddress


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
