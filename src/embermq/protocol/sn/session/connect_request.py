"""From an MQTT-SN CONNECT to the core's: credentials, session expiry, the will, and 1.2's dialogue about the will.

Owns: what must be known before the core is asked for a session, and the wills that 1.2 stores between connections
(1.2: sections 6.2 to 6.4; 2.0: section 3.1.4).
"""

from typing import Final, final

from embermq.protocol import packets as core
from embermq.protocol.errors import MalformedPacket, ProtocolError
from embermq.protocol.sn.session.aliases import Aliases, topic_name_of
from embermq.protocol.sn.settings import SnSettings
from embermq.protocol.sn.wire import packets as sn
from embermq.protocol.sn.wire.fields import text_of
from embermq.protocol.sn.wire.layouts import Profile

BASIC: Final = "MQTT-BASIC"
BAD_AUTHENTICATION_METHOD: Final = 0x8C


@final
class Credentials:
    """A user name and a password, both optional."""

    __slots__ = ("user_name", "password")

    def __init__(self, user_name: str | None, password: bytes | None) -> None:
        self.user_name: Final = user_name
        self.password: Final = password


def credentials_of(connect: sn.Connect) -> Credentials | None:
    """The user name and password of a CONNECT. None: it has an authentication method that is not supported."""
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


def will_of(connect: sn.Connect, aliases: Aliases | None, settings: SnSettings) -> core.Will | None:
    """2.0's will, as the core wants it."""
    will = connect.will
    if will is None:
        return None
    topic_name = topic_name_of(will.reference, aliases, settings)
    if topic_name is None:
        raise ProtocolError("the will has an unknown topic alias")
    return core.Will(topic_name, will.payload, will.qos, will.retain)


def session_expiry_of(connect: sn.Connect, profile: Profile) -> int:
    """How long the session outlives its connection. 1.2 has no expiry: a session that is not clean never expires."""
    if not profile.has_session_expiry:
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
        session_expiry_of(connect, profile),
        window,
        profile.protocol_level,
    )


@final
class WillDialogue:
    """A CONNECT of 1.2 or W whose will is being asked for: first its topic, then its message (1.2: section 6.2)."""

    __slots__ = ("connect", "profile", "content", "due_ms", "_topic")

    def __init__(self, connect: sn.Connect, profile: Profile, content: bytes, due_ms: int) -> None:
        self.connect: Final = connect
        self.profile: Final = profile
        self.content: Final = content  # the body of the CONNECT, by which its repetition is known
        self.due_ms: Final = due_ms
        self._topic: sn.WillTopic | None = None

    def question(self) -> sn.WillRequest:
        """What to ask next."""
        return sn.WillRequest(for_topic=self._topic is None)

    def set_topic(self, packet: sn.WillTopic) -> bool:
        """The topic has come. True: it is empty, so there is no will, and the dialogue is over."""
        if not packet.topic_name:
            return True
        self._topic = packet
        return False

    def will(self, packet: sn.WillMsg) -> core.Will | None:
        """The message has come: the whole will. None: the topic is still missing."""
        topic = self._topic
        if topic is None:
            return None
        return core.Will(topic.topic_name, packet.payload, topic.qos, topic.retain)


@final
class StoredWills:
    """1.2 stores a client's will between connections, until it is replaced, deleted, or a clean CONNECT comes.

    They are in memory only, for as many clients as may be connected; the least recently stored is dropped first.
    """

    __slots__ = ("_wills", "_clients_max")

    def __init__(self, clients_max: int) -> None:
        self._wills: dict[str, core.Will] = {}
        self._clients_max: Final = clients_max

    def store(self, client_id: str, will: core.Will | None) -> None:
        """Replace a client's will, or delete it."""
        self._wills.pop(client_id, None)
        if will is not None:
            self._wills[client_id] = will
            if len(self._wills) > self._clients_max:
                del self._wills[next(iter(self._wills))]

    def connect(self, connect: sn.Connect, client_id: str, will: core.Will | None) -> core.Will | None:
        """The will of a connection (1.2, sections 6.2 and 6.3); `will` is the one from the dialogue, if there was one.

        Clean, with or without a will: the stored will is deleted. Not clean, with a will: the new one is stored. Not
        clean, without a will: the stored one stays in force.
        """
        if connect.clean_start:
            self.store(client_id, None)
        elif connect.will_flag:
            self.store(client_id, will)
        else:
            return self._wills.get(client_id)
        return will
