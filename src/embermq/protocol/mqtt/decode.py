"""The bytes of one connection to packets (2.2).

Owns: where one packet ends and the next begins, the incomplete rest, and the dialect once CONNECT has decided it.
Never: the order of packets. That CONNECT comes first and only once is the connection's rule and the broker's.
"""

from collections.abc import Callable
from typing import Final, final

from embermq.protocol.errors import MalformedPacket, PeerError, ProtocolError
from embermq.protocol.mqtt.aliases import IncomingAliases
from embermq.protocol.mqtt.dialect import (
    LEVELS_BEFORE_5,
    MQTT_311,
    Dialect,
    Reader,
    dialect_for_later_level,
    requested_dialect,
    unexpected,
)
from embermq.protocol.mqtt.fields import VARIABLE_BYTE_INTEGER_MAX, VIOLATION, Fields
from embermq.protocol.mqtt.properties import CLIENT, SERVER
from embermq.protocol.mqtt.readers import WirePublish, read_connect
from embermq.protocol.mqtt.settings import DEFAULT_SETTINGS, Mqtt5Settings
from embermq.protocol.mqtt.shortcuts import TopicNames, read_common
from embermq.protocol.packets import Packet
from embermq.protocol.reasons import ReasonCode

CONNECT_PROPERTIES_BYTES_MAX: Final = 2 * 65_535
"""How many bytes the properties of a CONNECT and of its will may have together (MQTT 5)."""
CONNECT_BYTES_MAX: Final = 12 + 5 * (2 + 65_535) + CONNECT_PROPERTIES_BYTES_MAX
"""The largest CONNECT that is read: its head, its five fields, and its properties."""
_CONNECT: Final = 0x10
"""The first byte of a CONNECT."""
_AUTH: Final = 0xF0
"""The first byte of an AUTH."""
# One empty one for all connections, never changed: most have no incomplete packet.
_NO_REST: Final = bytearray()

# Size of a fixed header -> the lowest and the highest remaining length that it has (5.0, 1.5.5).
_LENGTHS_BY_HEADER: Final = (
    (5, 1 << 21, VARIABLE_BYTE_INTEGER_MAX),
    (4, 1 << 14, (1 << 21) - 1),
    (3, 1 << 7, (1 << 14) - 1),
)


def remaining_length_max(packet_bytes_max: int) -> int:
    """The largest remaining length of a packet that has at most `packet_bytes_max` bytes with its fixed header.

    MQTT 5's Maximum Packet Size counts the whole packet (5.0, 2.1.4).
    """
    for header_bytes, lowest, highest in _LENGTHS_BY_HEADER:
        if packet_bytes_max - header_bytes >= lowest:
            return min(packet_bytes_max - header_bytes, highest)
    return min(max(0, packet_bytes_max - 2), 127)


@final
class Decoder:
    """Bytes of one connection to packets. Feed it what a read brought.

    `server`: it reads what clients send; False: it reads what servers send.
    `first_bytes_max`, if not 0, is the limit until a CONNECT was decoded: an unauthenticated client may send less.
    `shortcuts`: whether common packets are read by `shortcuts.read_common`.
    `levels` are those that a CONNECT may ask for. `dialect` is the argument until a CONNECT has named its level, then
    the one of that level.
    `rest_bytes_wanted` is 0 between two packets, else the size at which the incomplete one is decoded again.
    `settings` are those of MQTT 5, by which what belongs to its connection is resolved, at the instant that `now_us`
    tells; without them such a PUBLISH is returned as `WirePublish`.
    `topic_names` are those that the connections of a server share.
    `error` is set when the stream ended in a bad packet; everything after it is ignored.
    """

    def __init__(
        self,
        packet_bytes_max: int,
        server: bool = True,
        first_bytes_max: int = 0,
        shortcuts: bool = True,
        levels: tuple[int, ...] = LEVELS_BEFORE_5,
        dialect: Dialect = MQTT_311,
        settings: Mqtt5Settings | None = None,
        now_us: Callable[[], int] | None = None,
        topic_names: TopicNames | None = None,
    ) -> None:
        self.dialect = dialect
        self.error: PeerError | None = None
        self._is_server: Final = server
        self._packet_bytes_max: Final = packet_bytes_max
        self._bytes_max = min(first_bytes_max or packet_bytes_max, packet_bytes_max)  # the limit now
        self._readers = dialect.readers_from_client if server else dialect.readers_from_server
        self._levels: Final = levels
        self._settings: Final = settings
        self._now_us: Final = now_us
        self._aliases: IncomingAliases | None = None  # from the first PUBLISH on that may have one
        self._bounds: Final = settings or DEFAULT_SETTINGS
        self._topic_names: Final = topic_names or TopicNames()
        self._has_auth = False
        self._has_shortcut: Final = shortcuts
        # The beginning of an incomplete packet: one that comes in many reads is gathered by appending.
        self._rest = _NO_REST
        self.rest_bytes_wanted = 0

    def take_has_auth(self) -> bool:
        """Whether an AUTH has come since the last call."""
        has_auth, self._has_auth = self._has_auth, False
        return has_auth

    def fail(self, error: PeerError) -> None:
        """Read no more."""
        self.error = error

    def feed(self, data: bytes) -> list[Packet]:
        """All packets that are complete now. Never raises for what a peer sent: see `error`."""
        packets: list[Packet] = []
        if self.rest_bytes_wanted or self.error is not None:
            if self.error is not None:
                return packets
            rest = self._rest
            if len(rest) + len(data) < self.rest_bytes_wanted:
                rest += data
                return packets
            data = bytes(rest) + data
            self._rest = _NO_REST
            self.rest_bytes_wanted = 0
        try:
            at = 0
            if self._has_shortcut:
                at = read_common(data, 0, packets, self._bytes_max, self.dialect.has_properties, self._topic_names)
            if at < len(data):
                self._decode(data, at, packets)
        except PeerError as error:
            # Without its traceback, which would keep this read's bytes alive as long as the connection.
            self.error = self.dialect.translated(error).with_traceback(None)
        return packets

    def _decode(self, data: bytes, at: int, packets: list[Packet]) -> None:
        end = len(data)
        while at < end:
            first = data[at]
            body, length = self._remaining_length(data, at)
            stop = body + length
            if body == 0 or stop > end:
                self._reader(first)
                self._rest = bytearray(data[at:])
                self.rest_bytes_wanted = stop - at if body else end - at + 1
                return
            sender = CLIENT if self._is_server else SERVER
            packets.append(self._read(first, Fields(data, body, stop, first, self._bounds, sender)))
            at = stop
            if self._has_shortcut:
                at = read_common(data, at, packets, self._bytes_max, self.dialect.has_properties, self._topic_names)

    def _remaining_length(self, data: bytes, at: int) -> tuple[int, int]:
        """Where the body of the packet at `at` begins, and its length (2.2.3); 0 and 0 if more bytes are needed."""
        length = shift = 0
        for body in range(at + 1, min(at + 5, len(data))):
            byte = data[body]
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                if byte == 0 and shift > 7 and self.dialect.has_properties:
                    self._reader(data[at])
                    raise MalformedPacket("remaining length with more bytes than it needs", "MQTT-1.5.5-1")
                if length > self._bytes_max:
                    self._reader(data[at])
                    raise ProtocolError(f"packet of {length} bytes", "", ReasonCode.PACKET_TOO_LARGE)
                return body + 1, length
        if shift == 28:
            self._reader(data[at])
            raise MalformedPacket("remaining length of more than four bytes", VIOLATION)
        return 0, 0

    def _read(self, first: int, fields: Fields) -> Packet:
        if first != _CONNECT or not self._is_server:
            packet = self._reader(first)(fields, self.dialect)
            if isinstance(packet, WirePublish) and self._settings is not None and self._now_us is not None:
                return self._own_aliases(self._settings, self._now_us).resolved(packet)
            if first == _AUTH:
                self._has_auth = True
            return packet
        start = fields.position()
        try:
            dialect = requested_dialect(fields, self._levels)
        except ProtocolError:
            asked = fields.between(start, fields.position())
            self.dialect = dialect_for_later_level(asked, self._levels) or self.dialect
            raise
        self.dialect = dialect  # also if the rest is wrong: the answer is of this level
        connect = read_connect(fields, dialect)
        self._readers = dialect.readers_from_client
        self._bytes_max = self._packet_bytes_max
        if dialect.has_properties:
            self._bytes_max = remaining_length_max(self._packet_bytes_max)
        return connect

    def _own_aliases(self, settings: Mqtt5Settings, now_us: Callable[[], int]) -> IncomingAliases:
        if self._aliases is None:
            self._aliases = IncomingAliases(settings.topic_alias_maximum, now_us, settings.topic_alias_bytes_max)
        return self._aliases

    def _reader(self, first: int) -> Reader:
        """Who reads a packet that begins with this byte; an error if none may.

        Asked before a length is judged or a body gathered, so that the error is the same however the bytes were split
        into reads.
        """
        reader = self._readers.get(first)
        if reader is None:
            raise unexpected(first, self._readers)
        return reader
