"""The ways that real clients take to one broker."""

import ssl
from pathlib import Path
from typing import NamedTuple

TIMEOUT_S = 60.0


class Ways(NamedTuple):
    """Where the broker listens, and what a client needs to trust it."""

    host: str
    tcp: int
    tls: int
    ws: int
    wss: int
    unix: str
    authority: Path

    def context(self) -> ssl.SSLContext:
        """A TLS context that trusts the broker's certificate and nothing else."""
        return ssl.create_default_context(cafile=self.authority)
