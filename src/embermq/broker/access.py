"""Access: who a client is, and what it may read, write and retain, as one interface.

Owns: the questions, the order and the bounds of an exchange (enhanced authentication), the answer of a server that is
open to all, and the grants that an access list is made of.
Never: a file, a password hash, randomness. `embermq.access` reads files and answers from them.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from enum import IntEnum
from typing import Final, final

from mypy_extensions import mypyc_attr

from embermq.protocol.errors import Refused
from embermq.protocol.reasons import ReasonCode
from embermq.protocol.topics import covers, intersection, matches

READ: Final = 1
WRITE: Final = 2
RETAIN: Final = 4
SEE_ALL: Final = 8

# Answers remembered for each connection: a device publishes to a few topics, again and again.
REMEMBERED_TOPICS_MAX: Final = 256
REMEMBERED_TOPIC_LENGTH_MAX: Final = 256

EXCHANGE_ROUNDS_MAX: Final = 16
"""How many messages one exchange takes from a client, the first one included."""
METHOD_LENGTH_SHOWN: Final = 64


@final
class Grant:
    """Rights on the topics of one filter, granted or denied; `%u` and `%c` in it stand for the client's own names."""

    __slots__ = ("is_denial", "line", "rights", "_literals", "_names")

    def __init__(
        self, rights: int, literals: list[str], names: list[str], line: str = "", is_denial: bool = False
    ) -> None:
        """The filter is the literals with, between each two, a name: "u" or "c". `line`: where the list has it.

        `is_denial`: the rights are denied.
        """
        assert len(literals) == len(names) + 1
        self.is_denial: Final = is_denial
        self.line: Final = line
        self.rights: Final = rights
        self._literals: Final = literals
        self._names: Final = names

    def topic_filter(self, user_name: str, client_id: str) -> str | None:
        """The filter for this client; None if a name in it cannot stand for a part of one level, and it is a grant.

        A name is taken from the peer. With `+`, `#` or `/` in it, or `$` at the filter's start, it would widen the
        grant; an empty one would merge the anonymous into one. Such a client is not granted anything by this line, and
        a denial takes all from it that the line could mean.
        """
        text = self._literals[0]
        for name, literal in zip(self._names, self._literals[1:], strict=True):
            value = user_name if name == "u" else client_id
            if not value or "+" in value or "#" in value or "/" in value:
                return text[: text.rfind("/") + 1] + "#" if self.is_denial else None
            if not text and value[0] == "$" and not self.is_denial:
                return None
            text = text + value + literal
        return text


@final
class Granted:
    """The filters of one right: what matches one of `allowed` and none of `denied`."""

    __slots__ = ("allowed", "denied")

    def __init__(self) -> None:
        self.allowed: Final[list[str]] = []
        self.denied: Final[list[str]] = []

    def has_topic(self, topic_name: str) -> bool:
        if not any(matches(allowed, topic_name) for allowed in self.allowed):
            return False
        return not any(matches(denied, topic_name) for denied in self.denied)

    def has_all(self, topic_filter: str) -> bool:
        """Whether one filter covers all that another can match, and none of it is denied."""
        if not any(covers(allowed, topic_filter) for allowed in self.allowed):
            return False
        return all(intersection(denied, topic_filter) is None for denied in self.denied)

    def has_some(self, topic_filter: str) -> bool:
        """Whether something that a filter can match is allowed. What several denials cover together counts too."""
        for allowed in self.allowed:
            common = intersection(allowed, topic_filter)
            if common is not None and not any(covers(denied, common) for denied in self.denied):
                return True
        return False


@final
class Rights:
    """What one client is granted by one access list, its names filled in."""

    __slots__ = ("access_list", "sees_all", "_read", "_write", "_retain", "_may_read", "_may_write", "_may_retain")

    def __init__(
        self, access_list: "AccessList", sees_all: bool, read: Granted, write: Granted, retain: Granted
    ) -> None:
        self.access_list: Final = access_list
        self.sees_all: Final = sees_all
        self._read: Final = read
        self._write: Final = write
        self._retain: Final = retain
        self._may_read: Final[dict[str, bool]] = {}
        self._may_write: Final[dict[str, bool]] = {}
        self._may_retain: Final[dict[str, bool]] = {}

    @property
    def read_filters(self) -> list[str]:
        """Filters that together match all that may be read, and perhaps more."""
        return self._read.allowed

    def may_read(self, topic_filter: str) -> bool:
        """Whether one grant covers all that the filter can match, and nothing of it is denied."""
        return self._read.has_all(topic_filter)

    def may_subscribe(self, topic_filter: str) -> bool:
        """Whether a subscription is granted: to a filter of which all may be read, or something, by `is_narrowing`."""
        if self.access_list.is_narrowing:
            return self._read.has_some(topic_filter)
        return self.may_read(topic_filter)

    @property
    def has_everything(self) -> bool:
        """Whether everything may be seen, read, written and retained."""
        return self.sees_all and all(each.has_all("#") for each in (self._read, self._write, self._retain))

    def may_read_topic(self, topic_name: str) -> bool:
        """Whether messages of one topic may be read."""
        answer = self._may_read.get(topic_name)
        if answer is None:
            answer = self._read.has_topic(topic_name)
            _remember(self._may_read, topic_name, answer)
        return answer

    def may_write(self, topic_name: str, retain: bool) -> bool:
        """Whether a message may be published to a topic; to retain it, the right to retain is needed as well."""
        remembered = self._may_retain if retain else self._may_write
        answer = remembered.get(topic_name)
        if answer is None:
            answer = self._write.has_topic(topic_name)
            if answer and retain:
                answer = self._retain.has_topic(topic_name)
            _remember(remembered, topic_name, answer)
        return answer


def _remember(answers: dict[str, bool], topic_name: str, answer: bool) -> None:
    if len(topic_name) <= REMEMBERED_TOPIC_LENGTH_MAX:
        if len(answers) >= REMEMBERED_TOPICS_MAX:
            answers.clear()
        answers[topic_name] = answer


@final
class AccessList:
    """The grants and denials for all clients, for the anonymous, for each user and for each group of users.

    What is not granted is refused, and so is what is denied, whatever grants it.
    """

    __slots__ = ("is_narrowing", "_everybody", "_anonymous", "_users", "_groups", "_prefix", "_own")

    def __init__(
        self,
        everybody: list[Grant],
        anonymous: list[Grant],
        users: dict[str, list[Grant]],
        groups: dict[str, list[list[Grant]]] | None = None,
        *,
        prefix: str = "",
        is_narrowing: bool = False,
        own: "dict[str, AccessList] | None" = None,
    ) -> None:
        """`groups`: by user name, the grants of each group that the user is a member of. `prefix`: what the names of
        all users begin with, and the list leaves out. `is_narrowing`: a subscription to more than may be read gets
        what may be read; otherwise it is refused. `own`: other lists, for user names that begin with a name and a
        colon.
        """
        self.is_narrowing: Final = is_narrowing
        self._everybody: Final = everybody
        self._anonymous: Final = anonymous
        self._users: Final = users
        self._groups: Final[dict[str, list[list[Grant]]]] = groups if groups is not None else {}
        self._prefix: Final = prefix
        self._own: Final[dict[str, AccessList]] = own if own is not None else {}

    def joined(self, own: "dict[str, AccessList]") -> "AccessList":
        """The same list, with others for user names that begin with their name and a colon."""
        return AccessList(
            self._everybody,
            self._anonymous,
            self._users,
            self._groups,
            prefix=self._prefix,
            is_narrowing=self.is_narrowing,
            own=own,
        )

    def _of(self, user_name: str) -> "AccessList":
        """The list that has a user."""
        if not self._own or ":" not in user_name:
            return self
        return self._own.get(user_name.partition(":")[0], self)

    def _grants(self, user_name: str) -> list[Grant]:
        """All that a user of this list has, by its name without the prefix."""
        grants = self._everybody + (self._users.get(user_name, []) if user_name else self._anonymous)
        for group in self._groups.get(user_name, []):
            grants = grants + group
        return grants

    def rights_of(self, user_name: str, client_id: str, own: list[Grant] | None = None) -> Rights:
        """What a client is granted, here and by `own`; an empty user name is an anonymous client."""
        found = self._of(user_name)
        user_name = user_name.removeprefix(found._prefix)
        sees_all = False
        read, write, retain = Granted(), Granted(), Granted()
        for grant in found._grants(user_name) + (own if own is not None else []):
            topic_filter = grant.topic_filter(user_name, client_id)
            if topic_filter is None:
                continue
            if grant.rights & SEE_ALL:
                sees_all = True
            for right, granted in ((READ, read), (WRITE, write), (RETAIN, retain)):
                if grant.rights & right:
                    (granted.denied if grant.is_denial else granted.allowed).append(topic_filter)
        return Rights(self, sees_all, read, write, retain)

    def deciding_lines(self, user_name: str, client_id: str, rights: int, topic_filter: str) -> list[str]:
        """For each of some rights the line that grants it on all that a filter matches, or the lines that deny one.

        Empty if there is neither.
        """
        found = self._of(user_name)
        user_name = user_name.removeprefix(found._prefix)
        lines: list[str] = []
        denials: list[str] = []
        is_granted = True
        for right in (READ, WRITE, RETAIN, SEE_ALL):
            if not rights & right:
                continue
            line = ""
            for grant in found._grants(user_name):
                granted = grant.topic_filter(user_name, client_id) if grant.rights & right else None
                if granted is None:
                    continue
                if grant.is_denial:
                    if intersection(granted, topic_filter) is not None:
                        denials.append(grant.line)
                elif not line and (right == SEE_ALL or covers(granted, topic_filter)):
                    line = grant.line
            is_granted = is_granted and bool(line)
            if line not in lines:
                lines.append(line)
        return denials or (lines if is_granted else [])


@final
class Identity:
    """Who a connection is. An empty user name is an anonymous client.

    `grants`: what it has beside the access list, from a source of users. `expires_us`: when its log-in ends, in
    microseconds since 1970; 0 is never.
    """

    __slots__ = ("user_name", "client_id", "expires_us", "_grants", "_rights")

    def __init__(self, user_name: str, client_id: str, grants: list[Grant] | None = None, expires_us: int = 0) -> None:
        self.user_name: Final = user_name
        self.client_id: Final = client_id
        self.expires_us: Final = expires_us
        self._grants: Final[list[Grant]] = grants if grants is not None else []
        self._rights: Rights | None = None

    def rights(self, access_list: AccessList) -> Rights:
        """What the list grants to this client: worked out once, and again when another list is in force."""
        rights = self._rights
        if rights is None or rights.access_list is not access_list:
            rights = access_list.rights_of(self.user_name, self.client_id, self._grants)
            self._rights = rights
        return rights


OPERATOR: Final = Identity("", "$operator")
"""Who runs the server: no access rule binds it. In the log its messages have this client id, with the name of the
login behind it if it has logged in over HTTP (`operator_client_id`)."""


BRIDGE_CLIENT_PREFIX: Final = "$bridge/"
"""How the client ids of this server's own bridges begin; no client can have one."""


@final
class ExchangeAnswer:
    """What the server answers to one message of an exchange.

    Without an identity the client has to send another message (the answer is AUTH 0x18). With one, the client has
    proved who it is (the answer is CONNACK 0x00, or AUTH 0x00 after a re-authentication). `data` is the packet's
    Authentication Data; None leaves the property out.
    """

    __slots__ = ("data", "identity")

    def __init__(self, data: bytes | None, identity: Identity | None = None) -> None:
        self.data: Final = data
        self.identity: Final = identity


class _ExchangeState(IntEnum):
    """What an exchange waits for."""

    BEGIN = 0
    PROCEED = 1
    NOTHING = 2


@mypyc_attr(allow_interpreted_subclasses=True)
class Exchange(ABC):
    """The enhanced authentication of one connection (MQTT 5, 4.12): at its CONNECT, and each time it re-authenticates.

    The connection calls `begin` with the data of CONNECT or AUTH 0x19, then `proceed` with that of each AUTH 0x18 until
    the answer has an identity. Both raise `Refused`, and the connection ends with its reason: BAD_USER_NAME_OR_PASSWORD
    or NOT_AUTHORIZED from the method, NOT_AUTHORIZED after too many rounds or for another user than before,
    PROTOCOL_ERROR for a message at a wrong moment. After an error nothing more is accepted.

    A method of authentication is a subclass with `first_answer` and `next_answer`.
    """

    __slots__ = ("method", "slow", "identity", "is_busy", "_rounds_max", "_rounds", "_state")

    def __init__(self, method: str, *, slow: bool = False, rounds_max: int = EXCHANGE_ROUNDS_MAX) -> None:
        self.method: Final = method
        self.slow: Final = slow  # an answer takes long: the shell asks for it on another thread
        self.identity: Identity | None = None  # who the client has proved to be, from the end of the first exchange on
        self.is_busy = False  # an answer is being worked out on another thread
        self._rounds_max: Final = rounds_max
        self._rounds = 0
        self._state = _ExchangeState.BEGIN

    @abstractmethod
    def first_answer(self, data: bytes | None, nonce: bytes) -> ExchangeAnswer:
        """The answer to the first message of an exchange; `nonce` is random, printable, and different every time.

        It is called again when the client re-authenticates, and discards what is left of the exchange before.
        """

    @abstractmethod
    def next_answer(self, data: bytes | None) -> ExchangeAnswer:
        """The answer to a later message of the exchange."""

    def answer_begun(self) -> None:
        """The shell has asked for an answer."""
        self.is_busy = self.slow

    def answer_done(self) -> None:
        """The shell has the answer."""
        self.is_busy = False

    @property
    def is_in_progress(self) -> bool:
        """Whether the client has to send another message."""
        return self._state == _ExchangeState.PROCEED

    @final
    def begin(self, data: bytes | None, nonce: bytes) -> ExchangeAnswer:
        """Begin the exchange of CONNECT, or after its end that of a re-authentication."""
        self._take(_ExchangeState.BEGIN)
        self._rounds = 1
        return self._checked(self.first_answer(data, nonce))

    @final
    def proceed(self, data: bytes | None) -> ExchangeAnswer:
        """Take the client's next message."""
        self._take(_ExchangeState.PROCEED)
        self._rounds += 1
        if self._rounds > self._rounds_max:
            raise Refused(f"no end after {self._rounds_max} messages of authentication", ReasonCode.NOT_AUTHORIZED)
        return self._checked(self.next_answer(data))

    def _take(self, state: _ExchangeState) -> None:
        """Any error from here on ends the exchange for good: only `_checked` sets the next state."""
        current = self._state
        self._state = _ExchangeState.NOTHING
        if current != state:
            raise Refused("a message of authentication at a wrong moment", ReasonCode.PROTOCOL_ERROR)

    def _checked(self, answer: ExchangeAnswer) -> ExchangeAnswer:
        identity = answer.identity
        if identity is None:
            self._state = _ExchangeState.PROCEED
            return answer
        before = self.identity
        if before is None:
            self.identity = identity
        elif identity.user_name != before.user_name:
            raise Refused(
                f"user {before.user_name!r} re-authenticated as {identity.user_name!r}", ReasonCode.NOT_AUTHORIZED
            )
        self._state = _ExchangeState.BEGIN
        return answer


def _nobody() -> Collection[str]:
    return ()


@final
class Lane:
    """Threads of their own for checks that wait for something, so that these delay no others."""

    __slots__ = ("name", "threads")

    def __init__(self, name: str, threads: int) -> None:
        self.name: Final = name
        self.threads: Final = threads


@mypyc_attr(allow_interpreted_subclasses=True)
class Access(ABC):
    """What a server decides. `authenticate` is asked once for each CONNECT, `may_publish` and `may_subscribe` for each
    PUBLISH and filter. A CONNECT with an Authentication Method asks `begin_exchange` in place of `authenticate`.
    """

    __slots__ = ("access_list", "slow", "unrestricted")

    def __init__(self, *, slow: bool, unrestricted: bool) -> None:
        self.access_list: AccessList | None = None  # what all answers about topics come from; None: asked each time
        self.slow = slow  # `authenticate` takes long: the shell calls it on another thread
        self.unrestricted = unrestricted  # everything is allowed: `may_publish` and `may_subscribe` need not be asked

    @abstractmethod
    def authenticate(
        self, client_id: str, user_name: str | None, password: bytes | None, certificate_name: str | None
    ) -> Identity:
        """Who this is; raises `Refused` with BAD_USER_NAME_OR_PASSWORD or NOT_AUTHORIZED.

        `certificate_name` is the common name of a client certificate that TLS has verified.
        """

    def queue_for(self, user_name: str | None, password: bytes | None, certificate_name: str | None) -> str | None:
        """None if `authenticate` answers these credentials quickly; else the queue in which they wait for a thread.

        Queues take turns, so that checks of one do not delay those of another: wrong passwords for one user, or for
        users that do not exist, do not keep other users out.
        """
        return "" if self.slow else None

    def begin_exchange(self, method: str, client_id: str, certificate_name: str | None) -> Exchange:
        """An exchange by a CONNECT's Authentication Method; raises `Refused` if there is no such method."""
        raise Refused(
            f"authentication method {method[:METHOD_LENGTH_SHOWN]!r} is not offered",
            ReasonCode.BAD_AUTHENTICATION_METHOD,
        )

    @abstractmethod
    def may_publish(self, identity: Identity, topic_name: str, retain: bool) -> bool:
        """Whether a message may be published, and retained if `retain` is set."""

    @abstractmethod
    def may_subscribe(self, identity: Identity, topic_filter: str) -> bool:
        """Whether all that the filter can match may be read."""

    @final
    def grants(self, identity: Identity, topic_filter: str) -> bool:
        """Whether a client gets a subscription, perhaps to less than the filter can match."""
        access_list = self.access_list
        if self.unrestricted:
            return True
        if access_list is None:
            return self.may_subscribe(identity, topic_filter)
        return identity.rights(access_list).may_subscribe(topic_filter)

    @final
    def reaches(self, identity: Identity, topic_name: str) -> bool:
        """Whether a message may be sent to a client that has a subscription: by the rights of now."""
        access_list = self.access_list
        if access_list is None or self.unrestricted or identity is OPERATOR:
            return True
        return identity.rights(access_list).may_read_topic(topic_name)

    @final
    def reaches_all(self, identity: Identity, topic_filter: str) -> bool:
        """Whether every message that a filter matches may be sent to a client."""
        access_list = self.access_list
        if access_list is None or self.unrestricted or identity is OPERATOR:
            return True
        return identity.rights(access_list).may_read(topic_filter)

    @final
    def admits(self, identity: Identity, topic_name: str) -> bool:
        """Whether a message that is not retained may be published, if that is known quickly; False: ask."""
        if self.unrestricted:
            return True
        access_list = self.access_list
        return access_list is not None and identity.rights(access_list).may_write(topic_name, False)

    def may_see_all(self, identity: Identity) -> bool:
        """Whether a user of the HTTP interface sees every topic, and all clients, sessions, numbers and the log.

        Any other user sees the topics that `may_subscribe` allows.
        """
        return self.unrestricted

    def may_change_access(self, identity: Identity) -> bool:
        """Whether an operator over HTTP may change users and rights, and so give itself any right."""
        return self.unrestricted

    def read_filters(self, identity: Identity) -> list[str]:
        """Topic filters that together match every topic that a user may read, and perhaps others.

        What none of them matches is not searched for this user. `may_subscribe` decides for each topic that is found.
        """
        return ["#"]

    def deciding_lines(self, identity: Identity, rights: int, topic_filter: str) -> list[str]:
        """The lines of the access list that grant these rights on all that a filter matches, or that deny one of them;
        empty without such a line.
        """
        return []

    def may_take_over(self, identity: Identity, user_name: str) -> bool:
        """Whether a client may take over the session of a client with this user name, connected or not."""
        return identity.user_name == user_name

    def remembered(
        self, client_id: str, user_name: str | None, password: bytes | None, certificate_name: str | None
    ) -> Identity | None:
        """Who this is, if that is known without a check; it is asked before these credentials wait in a queue."""
        return None

    def lane_of(self, queue: str) -> "Lane | None":
        """The threads on which the checks of a queue run; None: those that all others share."""
        return None

    def counts(self) -> dict[str, int]:
        """What happened, by names below `$SYS/broker/`."""
        return {}

    def revision(self) -> int:
        """Another number after each change of the users: an answer of `authenticate` from before is asked for again."""
        return 0

    def read_again(self) -> Callable[[], Collection[str]]:
        """Read the files that the answers come from again, on any thread; on an error the old answers stay.

        A call of what is returned puts them in force, and returns the users that are gone or have other credentials:
        their connections end.
        """
        return _nobody

    def reload(self) -> Collection[str]:
        """Read the files again and put them in force."""
        return self.read_again()()


@final
class AllowAll(Access):
    """Every client is who it says, and may do everything: for a server that only its own machine reaches."""

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
