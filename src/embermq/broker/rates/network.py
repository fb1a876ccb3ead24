"""Networks: which addresses count as one peer."""

import ipaddress


def network_of(address: str) -> str:
    """What counts as one peer: an address of IPv4, a network of IPv6, of which one peer has many addresses."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    return address if found.version == 4 else str(ipaddress.ip_network((found, 64), strict=False))
