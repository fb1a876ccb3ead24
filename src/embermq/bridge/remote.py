"""One connection to the other broker without I/O: bytes in, packets out, and back.

Owns: CONNECT and its answer, what the broker's limits are, and the output that waits.
Never: packet identifiers or what is kept of a session. `protocol.mqtt.client_connection` keeps a session in memory;
that of a bridge must outlive this process, so `outgoing` and our own core keep it (`inlet`).
"""

from dataclasses import replace
from typing import Final, final

from embermq.client.reasons import reason_said
from embermq.errors import ConfigError
from embermq.protocol.mqtt.decode import Decoder
from embermq.protocol.mqtt.dialect import BRIDGE_BIT, MQTT_5, MQTT_311, Dialect
from embermq.protocol.mqtt.encode import encode
from embermq.protocol.mqtt.fields import VARIABLE_BYTE_INTEGER_MAX
from embermq.protocol.mqtt.settings import Mqtt5Settings
from embermq.protocol.packets import PACKET_IDS, Auth, Connack, Connect, Disconnect, Packet
from embermq.protocol.reasons import ReasonCode

MQTT_311_BRIDGE: Final = replace(MQTT_311, level=MQTT_311.level | BRIDGE_BIT)
"""MQTT 3.1.1 as a bridge of Mosquitto asks for it: nothing comes back, and what is retained is marked as such."""
WINDOW_311: Final = 20
"""How many messages are in flight to a broker that cannot say how many it takes. Mosquitto takes no more."""
_OLDER_CONNACK: Final = b"\x20\x02"
"""How a CONNACK before MQTT 5 begins: in MQTT 5 it has a property length as well."""
_NO_ALIASES: Final = Mqtt5Settings(topic_alias_maximum=0)


@final
class VersionRefused(ConfigError):
    """The broker does not support the version of MQTT, or not the bit of a bridge."""


@final
class Remote:
    """The other broker over one connection. Every error is a `ConfigError`, and the connection must end.

    `window`: how many messages at QoS 1 and 2 it takes at a time. `packet_bytes_max`: the largest packet that it takes.
    `pending_bytes`: how much output waits.
    """

    def __init__(self, name: str, connect: Connect, received_bytes_max: int) -> None:
        """`name`: how sentences call the broker."""
        self._name: Final = name
        self.dialect: Final[Dialect] = {4: MQTT_311, 5: MQTT_5}.get(connect.protocol_level, MQTT_311_BRIDGE)
        self.connack: Connack | None = None
        self.window = PACKET_IDS
        self.packet_bytes_max = VARIABLE_BYTE_INTEGER_MAX
        self.pending_bytes = 0
        self._start: bytes | None = b"" if self.dialect.has_properties else None
        self._decoder: Final = Decoder(
            received_bytes_max,
            server=False,
            dialect=MQTT_5 if self.dialect.has_properties else MQTT_311,
            settings=_NO_ALIASES,
            now_us=_epoch,
        )
        self._out: Final[list[bytes]] = []
        self.send(connect)

    def encoded(self, packet: Packet) -> bytes:
        return encode(packet, self.dialect)

    def send(self, packet: Packet) -> None:
        self.gather(encode(packet, self.dialect))

    def gather(self, frame: bytes) -> None:
        self._out.append(frame)
        self.pending_bytes += len(frame)

    def take_output(self) -> bytes:
        data = b"".join(self._out)
        self._out.clear()
        self.pending_bytes = 0
        return data

    def receive(self, data: bytes) -> list[Packet]:
        """The packets that are complete now; the first one is the CONNACK that accepts the connection."""
        if self._start is not None:
            data = self._start + data
            self._start = data if len(data) < len(_OLDER_CONNACK) else None
            if self._start is not None:
                return []
            if data.startswith(_OLDER_CONNACK):
                raise VersionRefused(f'{self._name} does not support MQTT 5: set mqtt = "3.1.1"')
        packets = self._decoder.feed(data)
        if not packets:
            self.check()
        for packet in packets:
            if self.connack is None:
                self._accept(packet)
            elif isinstance(packet, Disconnect):
                raise ConfigError(
                    f"{self._name} ends the connection: {reason_said(packet.reason, packet.reason_string)}"
                )
            elif isinstance(packet, Connack | Auth):
                raise ConfigError(f"{self._name} sends a {type(packet).__name__} after it has accepted the connection")
        return packets

    def check(self) -> None:
        """Raise what was wrong behind the packets that `receive` has returned."""
        if self._decoder.error is not None:
            raise ConfigError(f"{self._name} does not answer as an MQTT server: {self._decoder.error}")

    def _accept(self, packet: Packet) -> None:
        if not isinstance(packet, Connack):
            raise ConfigError(f"{self._name} does not answer CONNECT with CONNACK")
        if packet.reason:
            said = f"{self._name} refuses the connection: {reason_said(packet.reason, packet.reason_string)}"
            if packet.reason == ReasonCode.UNSUPPORTED_PROTOCOL_VERSION:
                raise VersionRefused(f'{said}; set mqtt to "{"3.1.1" if self.dialect.has_properties else "5"}"')
            raise ConfigError(said)
        self.connack = packet
        self.window = packet.receive_maximum if self.dialect.has_properties else WINDOW_311
        self.packet_bytes_max = packet.maximum_packet_size or VARIABLE_BYTE_INTEGER_MAX


def _epoch() -> int:
    """What comes from the other broker has its interval as it was sent; the core begins to count."""
    return 0
