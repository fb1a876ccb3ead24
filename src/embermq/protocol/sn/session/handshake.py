"""From an SN CONNECT to the core's: credentials, the will, and 1.2's dialogue that asks for the will.

Owns: what must be known before a session can be asked for, and the wills that 1.2 keeps between connections.
"""

from typing import Final, final

from embermq.protocol import packets as core
from embermq.protocol.errors import MalformedPacket, ProtocolError
from embermq.protocol.sn.session.aliases import Aliases
from embermq.protocol.sn.settings import SnSettings
from embermq.protocol.sn.wire import packets as sn
from embermq.protocol.sn.wire.fields import PREDEFINED_ALIAS, SESSION_ALIAS, text_of
from embermq.protocol.sn.wire.layouts import Profile

BASIC: Final = "MQTT-BASIC"
BAD_METHOD: Final = 0x8C


@final
class Credentials:
    """A user name and a password, both optional."""

    __slots__ = ("user_name", "password")

    def __init__(self, user_name: str | None, password: bytes | None) -> None:
        self.user_name: Final = user_name
        self.password: Final = password


def credentials_of(connect: sn.Connect) -> Credentials | None:
    """What a CONNECT proves its client with. None: by a method that is not known here."""
    if connect.auth_method is None:
        return Credentials(None, None)
    if connect.auth_method != BASIC:
        return None
    data = connect.auth_data
    user, at = _sized(data, 0)
    password, at = _sized(data, at)
    if at != len(data):
        raise MalformedPacket("bytes after the password")
    return Credentials(text_of(user), password)


def _sized(data: bytes, at: int) -> tuple[bytes, int]:
    if at + 2 > len(data):
        raise MalformedPacket("authentication data cut short")
    end = at + 2 + ((data[at] << 8) | data[at + 1])
    if end > len(data):
        raise MalformedPacket("authentication data cut short")
    return data[at + 2 : end], end


def name_of(reference: sn.TopicReference, aliases: Aliases | None, settings: SnSettings) -> str | None:
    """The name or filter that a packet means; None: an alias that nobody gave out."""
    if reference.topic_type == SESSION_ALIAS:
        return aliases.name_of(reference.topic_alias) if aliases is not None else None
    if reference.topic_type == PREDEFINED_ALIAS:
        return settings.predefined.get(reference.topic_alias)
    return reference.name


def will_of(connect: sn.Connect, aliases: Aliases | None, settings: SnSettings) -> core.Will | None:
    """2.0's will, as the core wants it."""
    will = connect.will
    if will is None:
        return None
    topic_name = name_of(will.reference, aliases, settings)
    if topic_name is None:
        raise ProtocolError("a will to an unknown alias")
    return core.Will(topic_name, will.payload, will.qos, will.retain)


def expiry_of(connect: sn.Connect, profile: Profile) -> int:
    """How long the session outlives its connection. 1.2 has no expiry: a session that is not clean is kept."""
    if profile.version == 1:
        return 0 if connect.clean_start else core.SESSION_NEVER_EXPIRES
    return max(connect.session_expiry_s, 0)


def core_connect(
    connect: sn.Connect,
    client_id: str,
    credentials: Credentials,
    will: core.Will | None,
    profile: Profile,
    window: int,
) -> core.Connect:
    """The CONNECT of the core."""
    return core.Connect(
        client_id,
        connect.clean_start,
        connect.keep_alive_s,
        will,
        credentials.user_name,
        credentials.password,
        expiry_of(connect, profile),
        window,
        profile.protocol_level,
    )


@final
class Handshake:
    """A CONNECT of 1.2 whose will is being asked for: first the topic, then the message."""

    __slots__ = ("connect", "profile", "request", "due_ms", "_topic")

    def __init__(self, connect: sn.Connect, profile: Profile, request: bytes, due_ms: int) -> None:
        self.connect: Final = connect
        self.profile: Final = profile
        self.request: Final = request  # the CONNECT's bytes, by which its repetition is known
        self.due_ms: Final = due_ms
        self._topic: sn.WillTopic | None = None

    def question(self) -> sn.WillRequest:
        """What to ask next."""
        return sn.WillRequest(for_topic=self._topic is None)

    def topic(self, packet: sn.WillTopic) -> bool:
        """The topic has come. True: it is empty, so there is no will to ask on for."""
        if not packet.topic_name:
            return True
        self._topic = packet
        return False

    def message(self, packet: sn.WillMsg) -> core.Will | None:
        """The message has come, so the will is whole. None: the topic is still missing."""
        topic = self._topic
        if topic is None:
            return None
        return core.Will(topic.topic_name, packet.payload, topic.qos, topic.retain)


@final
class KeptWills:
    """1.2 keeps a client's will between connections, until it is replaced, deleted, or a clean CONNECT comes.

    Kept in memory only, for as many clients as may be connected; the longest unused is forgotten first.
    """

    __slots__ = ("_wills", "_most")

    def __init__(self, most: int) -> None:
        self._wills: dict[str, core.Will] = {}
        self._most: Final = most

    def get(self, client_id: str) -> core.Will | None:
        """The will a client left."""
        return self._wills.get(client_id)

    def keep(self, client_id: str, will: core.Will | None) -> None:
        """Replace it, or forget it."""
        self._wills.pop(client_id, None)
        if will is not None:
            self._wills[client_id] = will
            if len(self._wills) > self._most:
                del self._wills[next(iter(self._wills))]
