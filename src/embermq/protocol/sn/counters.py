"""Counters of an MQTT-SN listener: what was dropped, and why."""

from dataclasses import dataclass, fields
from typing import final


@final
@dataclass
class SnCounters:
    """Plain integers that only grow, but for `clients`."""

    datagrams_received: int = 0
    datagrams_sent: int = 0
    bytes_received: int = 0
    bytes_sent: int = 0
    clients: int = 0  # virtual connections now
    clients_lost: int = 0  # silent for too long, or without an acknowledgement after the last retry
    clients_unproven_dropped: int = 0  # their addresses were not proven, and others needed the places
    connects_refused: int = 0
    malformed: int = 0
    protocol_errors: int = 0
    without_connection: int = 0  # packets that mean nothing outside a virtual connection
    unknown_aliases: int = 0
    repeats: int = 0  # duplicate requests, which were answered again
    retransmissions: int = 0
    dropped_too_large: int = 0  # messages larger than a client's maximum packet size
    dropped_waiting_full: int = 0
    dropped_sleeping_full: int = 0
    dropped_unregistered: int = 0  # messages whose topic a client refused to register
    dropped_sessionless: int = 0
    dropped_wrapper: int = 0
    dropped_disk_behind: int = 0  # datagrams, while too much was pending for the disk
    handshakes_dropped: int = 0
    rebinds: int = 0
    rebinds_refused: int = 0
    acks_unknown: int = 0

    def counts(self) -> dict[str, int]:
        """All of them by the names that `$SYS` shows."""
        return {f"sn/{field.name.replace('_', '-')}": int(getattr(self, field.name)) for field in fields(self)}
