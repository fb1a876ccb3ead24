"""The retained messages of another MQTT broker, to import them.

Owns: the URL of that broker, and the decision that all retained messages have come. It is an MQTT 3.1.1 client.
MQTT does not mark the last retained message. They follow the SUBACK in one stream, so they are complete when none has
come for the quiet time; live messages do not restart that time. The subscription asks for QoS 0: brokers bound what
they queue at QoS 1 and 2, and some drop the rest silently.
"""

import os
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Final, Self, final
from urllib.parse import unquote, urlsplit

from embermq.client.address import ServerAddress
from embermq.commands.mqtt_client.connection import MqttConnection
from embermq.errors import ConfigError
from embermq.protocol.packets import Connect, Publish, SubscriptionRequest

PASSWORD_VARIABLE: Final = "EMBERMQ_IMPORT_PASSWORD"
KEEP_ALIVE_S: Final = 60
TOTAL_MAX_S: Final = 3600.0
"""The longest import. A broker that sends retained messages for longer is sending something else."""

_PORTS: Final = {"mqtt": 1883, "mqtts": 8883}
_COUNT_TOPIC: Final = "$SYS/broker/retained messages/count"


def broker_address(url: str, ca: Path | None = None) -> tuple[ServerAddress, str | None, bytes | None]:
    """Address, user name and password that `mqtt://[user[:password]@]host[:port]` or `mqtts://...` names.

    A password belongs into the environment: every user of the machine can read a command line.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or parts.scheme not in _PORTS or parts.path not in ("", "/") or parts.query or parts.fragment:
        raise ConfigError("--from: expected mqtt://host:1883 or mqtts://host:8883, with user@ before the host")
    address = ServerAddress(host, _PORTS[parts.scheme] if port is None else port, parts.scheme == "mqtts", ca=ca)
    password = unquote(parts.password) if parts.password is not None else os.environ.get(PASSWORD_VARIABLE)
    if password is None or not parts.username:  # MQTT-3.1.2-22: no password without a user name
        return address, unquote(parts.username) if parts.username else None, None
    return address, unquote(parts.username), password.encode("utf-8", "surrogateescape")


@final
class RetainedSource:
    """A connection to a broker, for one subscription after another."""

    def __init__(self, url: str, quiet_s: float, ca: Path | None = None) -> None:
        self._address, user_name, password = broker_address(url, ca)
        self._quiet_s: Final = quiet_s
        connect = Connect(f"ember-import-{secrets.token_hex(4)}", True, KEEP_ALIVE_S, None, user_name, password)
        self._connection: Final = MqttConnection(self._address, connect, f"set {PASSWORD_VARIABLE}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.__exit__(kind, error, trace)

    def messages(self, topic_filter: str) -> Iterator[Publish]:
        """The retained messages that a filter matches, as they come."""
        suback = self._connection.subscribe([SubscriptionRequest(topic_filter, 0)])
        if suback.reasons[0] > 2:
            raise ConfigError(f"{self._address} refuses a subscription to {topic_filter}")
        deadline_s = time.monotonic() + TOTAL_MAX_S
        quiet_s = 0.0  # time spent waiting here; the caller's time does not count
        while quiet_s < self._quiet_s:
            since_s = time.monotonic()
            if since_s > deadline_s:
                raise ConfigError(f"{self._address} has sent retained messages for {TOTAL_MAX_S:.0f} s: stopped")
            packets = self._connection.receive(self._quiet_s)
            retained = [one for one in packets if isinstance(one, Publish) and one.retain and one.payload]
            quiet_s = 0.0 if retained else quiet_s + time.monotonic() - since_s
            yield from retained

    def reported_count(self) -> int | None:
        """The broker's own count of its retained messages, without those of `$SYS`; None if it publishes none.

        The count may be some seconds old.
        """
        count: int | None = None
        own = 0
        try:
            for message in self.messages("$SYS/#"):
                own += 1
                if message.topic_name == _COUNT_TOPIC and message.payload.isdigit():
                    count = int(message.payload)
        except ConfigError:  # the broker may refuse a subscription to $SYS
            return None
        return None if count is None else max(0, count - own)
