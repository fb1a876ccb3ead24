"""The packets that open and end a virtual connection: CONNECT, CONNACK, AUTH, DISCONNECT.

Owns: their fields, in 2.0's words; 1.2's CleanSession is `clean_start`, its Duration a keep alive or a sleep.
Never: the place of a field on a wire (`profiles`), or what a session does about it (`session`).
"""

from typing import Final, final

from embermq.protocol.sn.wire import kinds
from embermq.protocol.sn.wire.fields import (
    ADDRESS_CHANGE,
    AUTH,
    AUTH_DATA,
    AUTH_METHOD,
    AWAKE_MESSAGES,
    CLEAN_START,
    CLIENT_ID,
    HAS_AWAKE,
    HAS_EXPIRY,
    HAS_KEEP_ALIVE,
    HAS_PACKET_ID,
    HAS_REASON,
    HAS_REASON_STRING,
    KEEP_ALIVE,
    MAX_PACKET,
    PACKET_ID,
    REASON,
    REASON_STRING,
    RETAIN_ALIASES,
    SERVER_KEEP_ALIVE,
    SESSION_EXPIRY,
    SESSION_PRESENT,
    SUGGESTIONS,
    VERSION,
    WILL,
    Values,
)
from embermq.protocol.sn.wire.kinds import SnPacket
from embermq.protocol.sn.wire.will_packets import ConnectWill, fill_will, read_will


@final
class Connect(SnPacket):
    """A client asks for a virtual connection.

    `will_flag` without `will`: the server has to ask for it (1.2's dialogue). `session_expiry_s` below 0: not written.
    """

    __slots__ = (
        "client_id",
        "clean_start",
        "keep_alive_s",
        "packet_id",
        "will_flag",
        "will",
        "session_expiry_s",
        "packet_bytes_max",
        "awake_messages",
        "auth_method",
        "auth_data",
        "suggestions",
        "address_change",
        "version",
    )

    def __init__(
        self,
        client_id: str,
        clean_start: bool = True,
        keep_alive_s: int = 60,
        packet_id: int = 0,
        will_flag: bool = False,
        will: ConnectWill | None = None,
        session_expiry_s: int = -1,
        packet_bytes_max: int = 0,
        awake_messages: int = 0,
        auth_method: str | None = None,
        auth_data: bytes = b"",
        suggestions: bool = False,
        address_change: bool = False,
        version: int = 2,
    ) -> None:
        self.client_id: Final = client_id
        self.clean_start: Final = clean_start
        self.keep_alive_s: Final = keep_alive_s
        self.packet_id: Final = packet_id
        self.will_flag: Final = will_flag or will is not None
        self.will: Final = will
        self.session_expiry_s: Final = session_expiry_s
        self.packet_bytes_max: Final = packet_bytes_max
        self.awake_messages: Final = awake_messages
        self.auth_method: Final = auth_method
        self.auth_data: Final = auth_data
        self.suggestions: Final = suggestions
        self.address_change: Final = address_change
        self.version: Final = version

    def kind(self) -> int:
        return kinds.CONNECT

    def fill(self, values: Values) -> None:
        numbers = values.numbers
        values.set_blob(CLIENT_ID, self.client_id.encode())
        numbers[CLEAN_START] = 1 if self.clean_start else 0
        numbers[KEEP_ALIVE] = self.keep_alive_s
        numbers[PACKET_ID] = self.packet_id
        numbers[VERSION] = self.version
        numbers[SESSION_EXPIRY] = max(self.session_expiry_s, 0)
        numbers[HAS_EXPIRY] = 1 if self.session_expiry_s >= 0 else 0
        numbers[MAX_PACKET] = self.packet_bytes_max
        numbers[AWAKE_MESSAGES] = self.awake_messages
        numbers[HAS_AWAKE] = 1 if self.awake_messages else 0
        numbers[SUGGESTIONS] = 1 if self.suggestions else 0
        numbers[ADDRESS_CHANGE] = 1 if self.address_change else 0
        numbers[WILL] = 1 if self.will_flag else 0
        if self.will is not None:
            fill_will(values, self.will)
        if self.auth_method is not None:
            numbers[AUTH] = 1
            values.set_blob(AUTH_METHOD, self.auth_method.encode())
            values.set_blob(AUTH_DATA, self.auth_data)

    def __repr__(self) -> str:
        """Without the authentication data: a packet may end up in a log line."""
        return f"Connect(client_id={self.client_id!r}, version={self.version}, auth_method={self.auth_method!r})"


def read_connect(values: Values) -> SnPacket:
    numbers = values.numbers
    method = values.text(AUTH_METHOD) if numbers[AUTH] else None
    return Connect(
        values.text(CLIENT_ID),
        values.flag(CLEAN_START),
        numbers[KEEP_ALIVE],
        numbers[PACKET_ID],
        values.flag(WILL),
        read_will(values),
        numbers[SESSION_EXPIRY],
        numbers[MAX_PACKET],
        numbers[AWAKE_MESSAGES],
        method,
        values.blob(AUTH_DATA),
        values.flag(SUGGESTIONS),
        values.flag(ADDRESS_CHANGE),
        numbers[VERSION],
    )


@final
class Connack(SnPacket):
    """The server's answer to CONNECT. Fields below 0 or empty are not written; 1.2 has only the reason."""

    __slots__ = (
        "reason",
        "packet_id",
        "session_present",
        "session_expiry_s",
        "keep_alive_s",
        "assigned_client_id",
        "auth_method",
        "auth_data",
    )

    def __init__(
        self,
        reason: int = 0,
        packet_id: int = 0,
        session_present: bool = False,
        session_expiry_s: int = -1,
        keep_alive_s: int = -1,
        assigned_client_id: str = "",
        auth_method: str | None = None,
        auth_data: bytes = b"",
    ) -> None:
        self.reason: Final = reason
        self.packet_id: Final = packet_id
        self.session_present: Final = session_present
        self.session_expiry_s: Final = session_expiry_s
        self.keep_alive_s: Final = keep_alive_s
        self.assigned_client_id: Final = assigned_client_id
        self.auth_method: Final = auth_method
        self.auth_data: Final = auth_data

    def kind(self) -> int:
        return kinds.CONNACK

    def fill(self, values: Values) -> None:
        numbers = values.numbers
        numbers[REASON] = self.reason
        numbers[PACKET_ID] = self.packet_id
        numbers[SESSION_PRESENT] = 1 if self.session_present else 0
        numbers[SESSION_EXPIRY] = max(self.session_expiry_s, 0)
        numbers[HAS_EXPIRY] = 1 if self.session_expiry_s >= 0 else 0
        numbers[SERVER_KEEP_ALIVE] = max(self.keep_alive_s, 0)
        numbers[HAS_KEEP_ALIVE] = 1 if self.keep_alive_s >= 0 else 0
        values.set_blob(CLIENT_ID, self.assigned_client_id.encode())
        if self.auth_method is not None:
            numbers[AUTH] = 1
            values.set_blob(AUTH_METHOD, self.auth_method.encode())
            values.set_blob(AUTH_DATA, self.auth_data)


def read_connack(values: Values) -> SnPacket:
    numbers = values.numbers
    return Connack(
        numbers[REASON],
        numbers[PACKET_ID],
        values.flag(SESSION_PRESENT),
        numbers[SESSION_EXPIRY],
        numbers[SERVER_KEEP_ALIVE],
        values.text(CLIENT_ID),
        values.text(AUTH_METHOD) if numbers[AUTH] else None,
        values.blob(AUTH_DATA),
    )


@final
class Auth(SnPacket):
    """A step of an authentication exchange."""

    __slots__ = ("packet_id", "reason", "auth_method", "auth_data")

    def __init__(self, packet_id: int, reason: int, auth_method: str, auth_data: bytes = b"") -> None:
        self.packet_id: Final = packet_id
        self.reason: Final = reason
        self.auth_method: Final = auth_method
        self.auth_data: Final = auth_data

    def kind(self) -> int:
        return kinds.AUTH

    def fill(self, values: Values) -> None:
        values.numbers[PACKET_ID] = self.packet_id
        values.numbers[REASON] = self.reason
        values.set_blob(AUTH_METHOD, self.auth_method.encode())
        values.set_blob(AUTH_DATA, self.auth_data)


def read_auth(values: Values) -> SnPacket:
    return Auth(values.numbers[PACKET_ID], values.numbers[REASON], values.text(AUTH_METHOD), values.blob(AUTH_DATA))


@final
class Disconnect(SnPacket):
    """The orderly end, or (1.2, W, A: with an expiry above 0) the start of a sleep.

    `session_expiry_s` is 1.2's Duration as well; below 0 it is not written. `packet_id`: B, of the refused packet.
    """

    __slots__ = ("reason", "session_expiry_s", "reason_string", "retain_aliases", "packet_id")

    def __init__(
        self,
        reason: int = 0,
        session_expiry_s: int = -1,
        reason_string: str = "",
        retain_aliases: bool = False,
        packet_id: int = 0,
    ) -> None:
        self.reason: Final = reason
        self.session_expiry_s: Final = session_expiry_s
        self.reason_string: Final = reason_string
        self.retain_aliases: Final = retain_aliases
        self.packet_id: Final = packet_id

    def kind(self) -> int:
        return kinds.DISCONNECT

    def fill(self, values: Values) -> None:
        numbers = values.numbers
        numbers[REASON] = self.reason
        numbers[HAS_REASON] = 1 if self.reason else 0
        numbers[SESSION_EXPIRY] = self.session_expiry_s
        numbers[HAS_EXPIRY] = 1 if self.session_expiry_s >= 0 else 0
        values.set_blob(REASON_STRING, self.reason_string.encode())
        numbers[HAS_REASON_STRING] = 1 if self.reason_string else 0
        numbers[RETAIN_ALIASES] = 1 if self.retain_aliases else 0
        numbers[PACKET_ID] = self.packet_id
        numbers[HAS_PACKET_ID] = 1 if self.packet_id else 0


def read_disconnect(values: Values) -> SnPacket:
    numbers = values.numbers
    return Disconnect(
        numbers[REASON],
        numbers[SESSION_EXPIRY],
        values.text(REASON_STRING),
        values.flag(RETAIN_ALIASES),
        numbers[PACKET_ID],
    )
