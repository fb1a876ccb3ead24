"""The fields that packets are made of: integers, strings, binary data (1.5).

Owns: reading them in order, what is wrong with one that is cut short or holds no valid text, and writing them.
Never: a packet's meaning.
"""

from typing import Final, final

from embermq.protocol.errors import MalformedPacket, ProtocolError
from embermq.protocol.mqtt.settings import DEFAULT_SETTINGS, Mqtt5Settings
from embermq.protocol.reasons import ReasonCode
from embermq.protocol.topics import check_topic_filter, check_topic_name, decode_text

# For malformed packets that no other statement names: a violation closes the connection.
VIOLATION: Final = "MQTT-4.8.0-1"
VARIABLE_BYTE_INTEGER_MAX: Final = 268_435_455
SHARE_PREFIX: Final = "$share/"
FILTERS_MAX: Final = 2_048
"""How many topic filters a SUBSCRIBE or UNSUBSCRIBE may have."""

# Ready objects: making a bytes of one byte costs more than the rest of a short header.
ONE_BYTE: Final[list[bytes]] = [bytes((value,)) for value in range(256)]


def variable_byte_integer(value: int) -> bytes:
    """One to four bytes of seven bits each, the lowest first: a remaining length (2.2.3) and more (5.0, 1.5.5)."""
    if value < 128:
        return ONE_BYTE[value]
    if value < 16_384:
        return bytes((value & 0x7F | 0x80, value >> 7))
    if value < 2_097_152:
        return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14))
    if value > VARIABLE_BYTE_INTEGER_MAX:
        raise ValueError(f"{value} is too large for a variable byte integer")
    return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14 & 0x7F | 0x80, value >> 21))


def binary_field(data: bytes) -> bytes:
    """Binary data with its length of two bytes."""
    return len(data).to_bytes(2, "big") + data


def text_field(text: str) -> bytes:
    """A string with its length of two bytes (1.5.3)."""
    return binary_field(text.encode())


def text_of(raw: bytes) -> str:
    """Bytes as an MQTT string (1.5.3)."""
    return decode_text(raw, "MQTT-1.5.3-1", "MQTT-1.5.3-2")


def topic_name_of(raw: bytes, wildcard_clause: str = "MQTT-3.3.2-2") -> str:
    """Bytes as a valid topic name; `wildcard_clause` is the statement that forbids wildcards there."""
    topic_name = text_of(raw)
    problem = check_topic_name(topic_name)
    if problem is not None:
        clause = wildcard_clause if topic_name else "MQTT-4.7.3-1"
        raise ProtocolError(problem, clause, ReasonCode.TOPIC_NAME_INVALID)
    return topic_name


def topic_filter_of(raw: bytes) -> str:
    """Bytes as a valid topic filter."""
    topic_filter = text_of(raw)
    problem = check_topic_filter(topic_filter)
    if problem is not None:
        if not topic_filter:
            clause = "MQTT-4.7.3-1"
        elif problem.startswith("'#'"):
            clause = "MQTT-4.7.1-2"
        else:
            clause = "MQTT-4.7.1-3"
        raise ProtocolError(problem, clause, ReasonCode.TOPIC_FILTER_INVALID)
    return topic_filter


def check_filter_count(count: int) -> None:
    """Refuse a SUBSCRIBE or UNSUBSCRIBE with too many topic filters: it is processed in one go."""
    if count > FILTERS_MAX:
        raise ProtocolError(f"more than {FILTERS_MAX} topic filters in a packet", "", ReasonCode.QUOTA_EXCEEDED)


@final
class Fields:
    """One packet's body, read from front to back. Every read stays inside the body or raises.

    `first` is the first byte of the fixed header, type and flags (2.2); `sender` is who sent the packet (`properties`
    names the two sides). `settings` bound MQTT 5's properties.
    """

    def __init__(
        self,
        data: bytes,
        at: int,
        stop: int,
        first: int = 0,
        settings: Mqtt5Settings = DEFAULT_SETTINGS,
        sender: int = 0,
    ) -> None:
        self.first: Final = first
        self.settings: Final = settings
        self.sender: Final = sender
        self._data: Final = data
        self._at = at
        self._stop: Final = stop

    def position(self) -> int:
        """Where the next field begins, for `between`."""
        return self._at

    def between(self, start: int, stop: int) -> bytes:
        """The bytes from one position to another."""
        return self._data[start:stop]

    def more(self) -> bool:
        """Whether bytes are left."""
        return self._at < self._stop

    def byte(self) -> int:
        """One byte."""
        at = self._at
        if at + 1 > self._stop:
            raise MalformedPacket("packet is cut short", VIOLATION)
        self._at = at + 1
        return self._data[at]

    def integer(self) -> int:
        """Two bytes, big end first (1.5.2)."""
        at = self._at
        if at + 2 > self._stop:
            raise MalformedPacket("packet is cut short", VIOLATION)
        self._at = at + 2
        return self._data[at] << 8 | self._data[at + 1]

    def four_byte_integer(self) -> int:
        """Four bytes, big end first (5.0, 1.5.3)."""
        high = self.integer()
        return high << 16 | self.integer()

    def variable_byte_integer(self) -> int:
        """One to four bytes of seven bits each, the lowest first (5.0, 1.5.5)."""
        value = 0
        for shift in (0, 7, 14, 21):
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if byte == 0 and shift:
                    raise MalformedPacket("variable byte integer with more bytes than it needs", "MQTT-1.5.5-1")
                return value
        raise MalformedPacket("variable byte integer of more than four bytes", VIOLATION)

    def part(self, length: int) -> "Fields":
        """The next bytes as fields of their own; they count as read here."""
        start = self._at
        if start + length > self._stop:
            raise MalformedPacket("field is longer than its packet", VIOLATION)
        self._at = start + length
        return Fields(self._data, start, start + length, 0, self.settings)

    def binary(self) -> bytes:
        """A length of two bytes and that many bytes."""
        start = self._at + 2
        stop = start + self.integer()
        if stop > self._stop:
            raise MalformedPacket("field is longer than its packet", VIOLATION)
        self._at = stop
        return self._data[start:stop]

    def text(self) -> str:
        """A string (1.5.3)."""
        return text_of(self.binary())

    def topic_name(self) -> str:
        """A string that is a valid topic name."""
        return topic_name_of(self.binary())

    def optional_topic_name(self) -> str:
        """A string that is empty or a valid topic name (5.0, 3.3.2.1)."""
        raw = self.binary()
        return topic_name_of(raw) if raw else ""

    def rest(self) -> bytes:
        """All bytes that are left."""
        start = self._at
        self._at = self._stop
        return self._data[start : self._stop]

    def end(self) -> None:
        """State that the packet ends here."""
        if self._at != self._stop:
            raise MalformedPacket(f"{self._stop - self._at} bytes after the last field", VIOLATION)
