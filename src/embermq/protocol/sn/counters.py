"""Counters of an MQTT-SN listener: what was dropped, and why."""

from typing import Final, final

NAMES: Final = (
    "datagrams_received",
    "datagrams_sent",
    "bytes_received",
    "bytes_sent",
    "clients",
    "clients_lost",
    "clients_unproven_dropped",
    "connects_refused",
    "malformed",
    "protocol_errors",
    "without_connection",
    "unknown_aliases",
    "repeats",
    "retransmissions",
    "dropped_too_large",
    "dropped_waiting_full",
    "dropped_sleeping_full",
    "dropped_unregistered",
    "dropped_sessionless",
    "dropped_wrapper",
    "dropped_disk_behind",
    "handshakes_dropped",
    "rebinds",
    "rebinds_refused",
    "acks_unknown",
)


@final
class SnCounters:
    """Plain integers that only grow, but for `clients`."""

    __slots__ = NAMES

    def __init__(self) -> None:
        self.datagrams_received = 0
        self.datagrams_sent = 0
        self.bytes_received = 0
        self.bytes_sent = 0
        self.clients = 0  # virtual connections now
        self.clients_lost = 0  # silent for too long, or without an acknowledgement after the last retry
        self.clients_unproven_dropped = 0  # their addresses were not proven, and others needed the places
        self.connects_refused = 0
        self.malformed = 0
        self.protocol_errors = 0
        self.without_connection = 0  # packets that mean nothing outside a virtual connection
        self.unknown_aliases = 0
        self.repeats = 0  # duplicate requests, which were answered again
        self.retransmissions = 0
        self.dropped_too_large = 0  # messages larger than a client's maximum packet size
        self.dropped_waiting_full = 0
        self.dropped_sleeping_full = 0
        self.dropped_unregistered = 0  # messages whose topic a client refused to register
        self.dropped_sessionless = 0
        self.dropped_wrapper = 0
        self.dropped_disk_behind = 0  # datagrams, while too much was pending for the disk
        self.handshakes_dropped = 0
        self.rebinds = 0
        self.rebinds_refused = 0
        self.acks_unknown = 0

    def counts(self) -> dict[str, int]:
        """All of them by the names that `$SYS` shows."""
        return {f"sn/{name.replace('_', '-')}": int(getattr(self, name)) for name in NAMES}
