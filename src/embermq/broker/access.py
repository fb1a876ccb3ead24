"""Access: who a client is, and what it may read, write and retain, as one interface.

Owns: the questions, the answer of a server that is open to all, and the grants that an access list is made of.
Never: a file, a password hash. `embermq.access` reads those and answers `authenticate` from them.
"""

from abc import ABC, abstractmethod
from typing import Final, final

from embermq.protocol.topics import covers, matches

READ: Final = 1
WRITE: Final = 2
RETAIN: Final = 4

# Answers remembered for each connection: a device publishes to a few topics, again and again.
REMEMBERED_TOPICS_MAX: Final = 256
REMEMBERED_TOPIC_LENGTH_MAX: Final = 256


@final
class Grant:
    """Rights on the topics of one filter, in which `%u` and `%c` stand for the client's own names."""

    __slots__ = ("rights", "_literals", "_names")

    def __init__(self, rights: int, literals: list[str], names: list[str]) -> None:
        """The filter is the literals with, between each two, a name: "u" or "c"."""
        assert len(literals) == len(names) + 1
        self.rights: Final = rights
        self._literals: Final = literals
        self._names: Final = names

    def topic_filter(self, user_name: str, client_id: str) -> str | None:
        """The filter for this client; None if a name in it cannot stand for a part of one level.

        A name is taken from the peer. With `+`, `#` or `/` in it, or `$` at the filter's start, it would widen the
        grant; an empty one would merge the anonymous into one. Such a client is not granted anything by this line.
        """
        text = self._literals[0]
        for name, literal in zip(self._names, self._literals[1:], strict=True):
            value = user_name if name == "u" else client_id
            if not value or "+" in value or "#" in value or "/" in value or (not text and value[0] == "$"):
                return None
            text = text + value + literal
        return text


@final
class Rights:
    """What one client is granted by one access list, its names filled in."""

    __slots__ = ("access_list", "_read", "_write", "_retain", "_may_write", "_may_retain")

    def __init__(self, access_list: "AccessList", read: list[str], write: list[str], retain: list[str]) -> None:
        self.access_list: Final = access_list
        self._read: Final = read
        self._write: Final = write
        self._retain: Final = retain
        self._may_write: Final[dict[str, bool]] = {}
        self._may_retain: Final[dict[str, bool]] = {}

    def may_read(self, topic_filter: str) -> bool:
        """Whether one grant covers all that the filter can match."""
        return any(covers(granted, topic_filter) for granted in self._read)

    def may_write(self, topic_name: str, retain: bool) -> bool:
        """Whether a message may be published to a topic; to retain it, the right to retain is needed as well."""
        remembered = self._may_retain if retain else self._may_write
        answer = remembered.get(topic_name)
        if answer is None:
            answer = any(matches(granted, topic_name) for granted in self._write)
            if answer and retain:
                answer = any(matches(granted, topic_name) for granted in self._retain)
            if len(topic_name) <= REMEMBERED_TOPIC_LENGTH_MAX:
                if len(remembered) >= REMEMBERED_TOPICS_MAX:
                    remembered.clear()
                remembered[topic_name] = answer
        return answer


@final
class AccessList:
    """The grants for everybody, for the anonymous, and for each user. What is not granted is refused."""

    __slots__ = ("_everybody", "_anonymous", "_users")

    def __init__(self, everybody: list[Grant], anonymous: list[Grant], users: dict[str, list[Grant]]) -> None:
        self._everybody: Final = everybody
        self._anonymous: Final = anonymous
        self._users: Final = users

    def rights_of(self, user_name: str, client_id: str) -> Rights:
        """What a client is granted; an empty user name is an anonymous client."""
        own = self._users.get(user_name, []) if user_name else self._anonymous
        read: list[str] = []
        write: list[str] = []
        retain: list[str] = []
        for grant in self._everybody + own:
            topic_filter = grant.topic_filter(user_name, client_id)
            if topic_filter is None:
                continue
            if grant.rights & READ:
                read.append(topic_filter)
            if grant.rights & WRITE:
                write.append(topic_filter)
            if grant.rights & RETAIN:
                retain.append(topic_filter)
        return Rights(self, read, write, retain)


@final
class Identity:
    """Who a connection is. An empty user name is an anonymous client."""

    __slots__ = ("user_name", "client_id", "_rights")

    def __init__(self, user_name: str, client_id: str) -> None:
        self.user_name: Final = user_name
        self.client_id: Final = client_id
        self._rights: Rights | None = None

    def rights(self, access_list: AccessList) -> Rights:
        """What the list grants to this client: worked out once, and again when another list is in force."""
        rights = self._rights
        if rights is None or rights.access_list is not access_list:
            rights = access_list.rights_of(self.user_name, self.client_id)
            self._rights = rights
        return rights


OPERATOR: Final = Identity("", "$operator")
"""Who runs the server, on its own machine: no access rule binds it. In the log its messages have this client id."""


class Access(ABC):
    """One way to decide. `authenticate` is asked once for each CONNECT, the others for each PUBLISH and filter."""

    __slots__ = ("slow", "unrestricted")

    def __init__(self, *, slow: bool, unrestricted: bool) -> None:
        self.slow = slow  # `authenticate` takes long: the shell calls it on another thread
        self.unrestricted = unrestricted  # everything is allowed: `may_publish` and `may_subscribe` need not be asked

    @abstractmethod
    def authenticate(
        self, client_id: str, user_name: str | None, password: bytes | None, certificate_name: str | None
    ) -> Identity:
        """Who this is; raises `Refused` with BAD_USER_NAME_OR_PASSWORD or NOT_AUTHORIZED.

        `certificate_name` is the common name of a client certificate that TLS has verified.
        """

    @abstractmethod
    def may_publish(self, identity: Identity, topic_name: str, retain: bool) -> bool:
        """Whether a message may be published, and retained if `retain` is set."""

    @abstractmethod
    def may_subscribe(self, identity: Identity, topic_filter: str) -> bool:
        """Whether all that the filter can match may be read."""

    def may_take_over(self, identity: Identity, user_name: str) -> bool:
        """Whether a client may have the session that one of this user name left, or push that one off."""
        return identity.user_name == user_name

    def reload(self) -> None:  # noqa: B027  most have nothing to read
        """Read again what the answers come from, where that is outside the program; what fails leaves the old."""


@final
class AllowAll(Access):
    """Everybody is who they say, and may do everything: for a server that only its own machine reaches."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(slow=False, unrestricted=True)

    def authenticate(
        self, client_id: str, user_name: str | None, password: bytes | None, certificate_name: str | None
    ) -> Identity:
        return Identity(user_name or certificate_name or "", client_id)

    def may_publish(self, identity: Identity, topic_name: str, retain: bool) -> bool:
        return True

    def may_subscribe(self, identity: Identity, topic_filter: str) -> bool:
        return True

    def may_take_over(self, identity: Identity, user_name: str) -> bool:
        return True  # names are only claims here
