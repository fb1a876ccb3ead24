"""The file mosquitto.db: what Mosquitto remembers of its retained messages and sessions.

Owns: the layout of formats 5 (Mosquitto 1.6) and 6 (2.0 and newer).
Never: a guess. A file with anything else is refused in a sentence.

The file is a head and chunks. A chunk has a number for its kind and its length, then a part of fixed length and texts.
Lengths and identifiers of packets are big-endian. Identifiers of messages and instants are as on the machine that has
written the file; here they are read as little-endian, which all usual machines are.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from struct import Struct
from struct import error as StructError
from typing import BinaryIO, Final, final

from embermq.errors import ConfigError
from embermq.protocol.errors import PeerError
from embermq.protocol.mqtt.fields import Fields
from embermq.protocol.mqtt.properties import SERVER, read_message_section
from embermq.protocol.packets import PUBLISH
from embermq.protocol.topics import check_topic_filter, check_topic_name

MAGIC: Final = b"\x00\xb5\x00mosquitto db"
FORMATS: Final = (5, 6)
MESSAGE_ID_BYTES: Final = 8
CHUNK_BYTES_MAX: Final = 300 * 1024 * 1024
"""The largest message of MQTT has 256 MiB; a longer chunk is damage."""

_HEAD: Final = Struct(">4xI")  # a checksum that is always 0, the format
_CHUNK: Final = Struct(">II")
_CONFIG: Final = Struct("<QBB6x")
_MESSAGE_LITTLE: Final = Struct("<Qq")
_MESSAGE: Final = Struct(">IHHHHHBB")
_CLIENT_LITTLE: Final = Struct("<q")
_CLIENT_5: Final = Struct(">IHH")
_CLIENT_6: Final = Struct(">IHHHH4x")
_OWED_LITTLE: Final = Struct("<Q")
_OWED: Final = Struct(">HHBBBB")
_SUBSCRIPTION: Final = Struct(">IHHBB2x")
_RETAINED: Final = Struct("<Q")

_CONFIG_CHUNK, _MESSAGE_CHUNK, _OWED_CHUNK, _RETAINED_CHUNK, _SUBSCRIPTION_CHUNK, _CLIENT_CHUNK = range(1, 7)
_OUTGOING: Final = 1

# What a message that a client is owed waits for.
RESEND_PUBREL: Final = 6
WAIT_FOR_PUBCOMP: Final = 9
QUEUED: Final = 11


@final
@dataclass(frozen=True)
class StoredMessage:
    """A message. `expires_s` is the second since 1970 at which it expires, 0: never."""

    topic_name: str
    payload: bytes
    qos: int
    properties: bytes
    expires_s: int


@final
@dataclass(frozen=True)
class Owed:
    """A message that one client is owed, or has sent at QoS 2 and not released yet (`is_outgoing` is false)."""

    message_id: int
    packet_id: int
    qos: int
    retain: bool
    state: int
    is_outgoing: bool
    subscription_ids: tuple[int, ...]


@final
@dataclass(frozen=True)
class StoredSubscription:
    """A subscription of a client. What Retain Handling was is not in the file."""

    topic_filter: str
    qos: int
    no_local: bool
    retain_as_published: bool
    subscription_id: int


@final
@dataclass
class StoredClient:
    """A persistent session. `user_name` is None if the format does not say; `port` is that of the listener, 0: unknown.

    `expires_s` is the second since 1970 at which it expires, 0: it is not known.
    """

    client_id: str
    user_name: str | None
    port: int
    expiry_s: int
    expires_s: int
    owed: list[Owed] = field(default_factory=list)
    subscriptions: list[StoredSubscription] = field(default_factory=list)


@final
class Database:
    """What a file has. `is_complete`: Mosquitto wrote it when it stopped; otherwise later changes are missing."""

    def __init__(self, file: Path) -> None:
        """Read a file; a `ConfigError` says why it is refused."""
        self.file: Final = file
        self.messages: Final[dict[int, StoredMessage]] = {}
        self.clients: Final[dict[str, StoredClient]] = {}
        self.retained: Final[list[int]] = []
        self._format = 0
        self._is_complete = False
        try:
            with file.open("rb") as opened:
                self._read(opened)
        except OSError as error:
            raise ConfigError(f"cannot read {file}: {error.strerror or error}") from None

    @property
    def format(self) -> int:
        return self._format

    @property
    def is_complete(self) -> bool:
        return self._is_complete

    def _read(self, opened: BinaryIO) -> None:
        head = opened.read(len(MAGIC) + _HEAD.size)
        if len(head) < len(MAGIC) + _HEAD.size or not head.startswith(MAGIC):
            raise ConfigError(f"{self.file} is not a database of Mosquitto")
        (self._format,) = _HEAD.unpack_from(head, len(MAGIC))
        if self._format not in FORMATS:
            raise ConfigError(
                f"{self.file} has format {self._format}: expected 5 or 6, which Mosquitto 1.6 and 2 write; start a"
                " Mosquitto 2 on it once, or import with `ember retained import --from URL`"
            )
        for place, kind, data in self._chunks(opened, len(head)):
            try:
                self._take(kind, data)
            except (StructError, ValueError, PeerError) as error:
                detail = error.detail if isinstance(error, PeerError) else str(error)
                raise ConfigError(f"{self.file}: the chunk at byte {place} is not understood: {detail}") from None

    def _chunks(self, opened: BinaryIO, place: int) -> Iterator[tuple[int, int, bytes]]:
        while head := opened.read(_CHUNK.size):
            if len(head) < _CHUNK.size:
                raise ConfigError(f"{self.file} ends within a chunk, at byte {place}: it is damaged")
            kind, length = _CHUNK.unpack(head)
            if length > CHUNK_BYTES_MAX:
                raise ConfigError(f"{self.file}: the chunk at byte {place} has {length} bytes: it is damaged")
            data = opened.read(length)
            if len(data) < length:
                raise ConfigError(f"{self.file} ends within a chunk, at byte {place}: it is damaged")
            yield place, kind, data
            place += len(head) + length

    def _take(self, kind: int, data: bytes) -> None:
        if kind == _CONFIG_CHUNK:
            _, is_complete, id_bytes = _CONFIG.unpack(data)
            if id_bytes != MESSAGE_ID_BYTES:
                raise ValueError(f"identifiers of messages have {id_bytes} bytes")
            self._is_complete = bool(is_complete)
        elif kind == _MESSAGE_CHUNK:
            self._take_message(data)
        elif kind == _CLIENT_CHUNK:
            self._take_client(data)
        elif kind == _OWED_CHUNK:
            self._take_owed(data)
        elif kind == _SUBSCRIPTION_CHUNK:
            self._take_subscription(data)
        elif kind == _RETAINED_CHUNK:
            self.retained.append(_RETAINED.unpack(data)[0])
        else:
            raise ValueError(f"its kind is {kind}")

    def _take_message(self, data: bytes) -> None:
        message_id, expires_s = _MESSAGE_LITTLE.unpack_from(data)
        payload_bytes, _, *lengths, _, qos, _ = _MESSAGE.unpack_from(data, _MESSAGE_LITTLE.size)
        texts = _Texts(data, _MESSAGE_LITTLE.size + _MESSAGE.size)
        _, _, topic_name = (texts.take(length) for length in lengths)  # sender, its user, topic name
        payload = texts.take_bytes(payload_bytes)
        properties, _ = _properties(texts.rest())
        problem = check_topic_name(topic_name)
        if problem or qos > 2:
            raise ValueError(problem or f"QoS {qos}")
        self.messages[message_id] = StoredMessage(topic_name, payload, qos, properties, expires_s)

    def _take_client(self, data: bytes) -> None:
        (expires_s,) = _CLIENT_LITTLE.unpack_from(data)
        user_bytes = port = 0
        if self._format == 5:
            expiry_s, _, id_bytes = _CLIENT_5.unpack_from(data, _CLIENT_LITTLE.size)
            texts = _Texts(data, _CLIENT_LITTLE.size + _CLIENT_5.size)
        else:
            expiry_s, _, id_bytes, port, user_bytes = _CLIENT_6.unpack_from(data, _CLIENT_LITTLE.size)
            texts = _Texts(data, _CLIENT_LITTLE.size + _CLIENT_6.size)
        client_id, user_name = texts.take(id_bytes), texts.take(user_bytes)
        texts.end()
        if client_id in self.clients:
            raise ValueError(f"client id {client_id!r} is there twice")
        known_user = None if self._format == 5 else user_name
        self.clients[client_id] = StoredClient(client_id, known_user, port, expiry_s, max(0, expires_s))

    def _take_owed(self, data: bytes) -> None:
        (message_id,) = _OWED_LITTLE.unpack_from(data)
        packet_id, id_bytes, qos, state, flags, direction = _OWED.unpack_from(data, _OWED_LITTLE.size)
        texts = _Texts(data, _OWED_LITTLE.size + _OWED.size)
        client = self._client(texts.take(id_bytes))
        _, subscription_ids = _properties(texts.rest())
        if qos > 2 or direction > 1:
            raise ValueError(f"QoS {qos}, direction {direction}")
        is_outgoing = direction == _OUTGOING
        client.owed.append(Owed(message_id, packet_id, qos, flags > 0x0F, state, is_outgoing, subscription_ids))

    def _take_subscription(self, data: bytes) -> None:
        subscription_id, id_bytes, topic_bytes, qos, options = _SUBSCRIPTION.unpack_from(data)
        texts = _Texts(data, _SUBSCRIPTION.size)
        client, topic_filter = self._client(texts.take(id_bytes)), texts.take(topic_bytes)
        texts.end()
        problem = check_topic_filter(topic_filter)
        if problem or qos > 2:
            raise ValueError(problem or f"QoS {qos}")
        no_local, retain_as_published = bool(options & 0b100), bool(options & 0b1000)
        client.subscriptions.append(
            StoredSubscription(topic_filter, qos, no_local, retain_as_published, subscription_id)
        )

    def _client(self, client_id: str) -> StoredClient:
        client = self.clients.get(client_id)
        if client is None:
            raise ValueError(f"there is no client {client_id!r} above it")
        return client


@final
class _Texts:
    """What follows the fixed part of a chunk."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data: Final = data
        self._at = at

    def take_bytes(self, length: int) -> bytes:
        end = self._at + length
        if end > len(self._data):
            raise ValueError("it is too short")
        found = self._data[self._at : end]
        self._at = end
        return found

    def take(self, length: int) -> str:
        return self.take_bytes(length).decode()

    def rest(self) -> bytes:
        return self.take_bytes(len(self._data) - self._at)

    def end(self) -> None:
        if self._at < len(self._data):
            raise ValueError("it is too long")


def _properties(section: bytes) -> tuple[bytes, tuple[int, ...]]:
    """The properties of a message in our form, and its Subscription Identifiers."""
    if not section:
        return b"", ()
    fields = Fields(section, 0, len(section))
    found = read_message_section(fields, PUBLISH, SERVER)
    if fields.more():
        raise ValueError("bytes follow the properties")
    return found.canonical, found.subscription_ids


def is_database(file: Path) -> bool:
    """Whether a file begins as mosquitto.db does."""
    try:
        with file.open("rb") as opened:
            return opened.read(len(MAGIC)) == MAGIC
    except OSError:
        return False
