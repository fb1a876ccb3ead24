"""The settings of MQTT 5: what the server tells its clients in CONNACK, and the bounds that only MQTT 5 needs.

Owns: name and default of each. `ember.sample.toml` says what each one does.
"""

from dataclasses import dataclass
from typing import Final, final

RECEIVE_MAXIMUM: Final = 65_535
"""How many QoS 1 and 2 messages a client may have unacknowledged; with this value the identifiers bound them alone."""
TOPIC_ALIAS_MAXIMUM: Final = 64
TOPIC_ALIAS_BYTES_MAX: Final = 64 * 1024
OUTGOING_ALIASES_MAX: Final = 64
REAUTHENTICATIONS_MAX: Final = 10
PROPERTIES_MAX: Final = 1_024
PROPERTIES_BYTES_MAX: Final = 512 * 1024
"""The three longest properties of a message fit, with more user properties."""


@final
@dataclass(frozen=True, kw_only=True)
class Mqtt5Settings:
    """The settings of one server."""

    receive_maximum: int = RECEIVE_MAXIMUM
    topic_alias_maximum: int = TOPIC_ALIAS_MAXIMUM  # of a client; announced in CONNACK
    topic_alias_bytes_max: int = TOPIC_ALIAS_BYTES_MAX  # of the topic names behind a client's aliases
    outgoing_aliases_max: int = OUTGOING_ALIASES_MAX  # towards a client that allows more
    properties_max: int = PROPERTIES_MAX  # of a packet; a client that sends more gets QUOTA_EXCEEDED
    properties_bytes_max: int = PROPERTIES_BYTES_MAX  # of them together
    reauthentications_max: int = REAUTHENTICATIONS_MAX  # that one client may start in a minute
    server_reference: str = ""  # where clients go when this server is not available


DEFAULT_SETTINGS: Final = Mqtt5Settings()
