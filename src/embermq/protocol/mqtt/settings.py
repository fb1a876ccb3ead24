"""The settings of MQTT 5: what the server tells its clients in CONNACK, and the bounds that only MQTT 5 needs.

Owns: name and default of each. `ember.sample.toml` says what each one does.
"""

from typing import Final, final

from embermq.protocol.mqtt.fields import PROPERTIES_BYTES_MAX, PROPERTIES_MAX, PropertyBounds

RECEIVE_MAXIMUM: Final = 65_535
"""How many QoS 1 and 2 messages a client may have unacknowledged; with this value the identifiers bound them alone."""
TOPIC_ALIAS_MAXIMUM: Final = 64
TOPIC_ALIAS_BYTES_MAX: Final = 64 * 1024
OUTGOING_ALIASES_MAX: Final = 64
REAUTHENTICATIONS_MAX: Final = 10


@final
class Mqtt5Settings:
    """The settings of one server."""

    __slots__ = (
        "receive_maximum",
        "topic_alias_maximum",
        "topic_alias_bytes_max",
        "outgoing_aliases_max",
        "property_bounds",
        "reauthentications_max",
        "server_reference",
    )

    def __init__(
        self,
        *,
        receive_maximum: int = RECEIVE_MAXIMUM,
        topic_alias_maximum: int = TOPIC_ALIAS_MAXIMUM,
        topic_alias_bytes_max: int = TOPIC_ALIAS_BYTES_MAX,
        outgoing_aliases_max: int = OUTGOING_ALIASES_MAX,
        properties_max: int = PROPERTIES_MAX,
        properties_bytes_max: int = PROPERTIES_BYTES_MAX,
        reauthentications_max: int = REAUTHENTICATIONS_MAX,
        server_reference: str = "",
    ) -> None:
        self.receive_maximum: Final = receive_maximum
        self.topic_alias_maximum: Final = topic_alias_maximum  # of a client; announced in CONNACK
        self.topic_alias_bytes_max: Final = topic_alias_bytes_max  # of the topic names behind a client's aliases
        self.outgoing_aliases_max: Final = outgoing_aliases_max  # towards a client that allows more
        self.property_bounds: Final = PropertyBounds(properties_max, properties_bytes_max)
        self.reauthentications_max: Final = reauthentications_max  # that one client may start in a minute
        self.server_reference: Final = server_reference  # where clients go when this server is not available


DEFAULT_SETTINGS: Final = Mqtt5Settings()
