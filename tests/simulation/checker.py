"""The promises of docs/guarantees.md, held against what clients saw.

Owns: every message that was sent, what each session is owed and got, and the violations found.
Never: a look into the server. Its log is compared by `world`, with `logged`.

Instants are numbers of events, which count up; the world is one thread, so one event is before the other. A message
counts as sent when its PUBLISH leaves the client, as acknowledged when PUBACK or PUBREC has arrived there. A session is
owed what was sent first after its SUBACK had arrived and before its UNSUBSCRIBE left, once it was acknowledged.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from embermq.protocol.topics import matches
from simulation.clock import CLOCK

EXPIRY_SLACK_US: Final = 5_000_000
"""A group that became durable while the clock jumped is released at the instant of the turn before."""


@dataclass(slots=True)
class Message:
    """One message of a client, or a will."""

    number: int
    client_id: str
    topic_name: str
    qos: int
    retain: bool
    is_clear: bool
    expiry_s: int | None
    sent: int
    attempts: int = 1
    acknowledged: int = 0  # 0: not yet
    arrived_us: int = 0  # when its last byte came to the server, the last time
    is_will: bool = False
    has_lost_expiry: bool = False  # it was sent again in a version that has none

    def payload(self) -> bytes:
        if self.is_clear:
            return b""
        head = b"%d|" % self.number
        return head + b"x" * (self.number * 7919 % 61 if self.number % 17 else 3_000)


@dataclass(slots=True)
class Share:
    """A share group: what its members got together."""

    share_filter: str
    got: Counter[int] = field(default_factory=Counter)
    got_once: Counter[int] = field(default_factory=Counter)  # at QoS 2
    complete_from: int = 0  # since this event it has had a member that never leaves


@dataclass(slots=True)
class WillModel:
    """The will of one connection."""

    message: Message
    delay_s: int
    is_set: bool = False  # CONNACK has come
    is_ended: bool = False  # so has the end of the connection
    is_withdrawn: bool = False  # DISCONNECT has come to the server
    is_unclear: bool = False  # see `wills_are_unclear`


@dataclass(slots=True)
class Subscribed:
    """One filter of a session, from SUBSCRIBE to UNSUBSCRIBE."""

    topic_filter: str
    qos: int
    asked: int
    asked_us: int
    answered: int = 0
    ended: int = 0
    share: Share | None = None

    def filter(self) -> str:
        return self.topic_filter.split("/", 2)[2] if self.share is not None else self.topic_filter

    def matches(self, topic_name: str) -> bool:
        return matches(self.filter(), topic_name)


@dataclass(slots=True)
class SessionModel:
    """What one session was told and has asked for."""

    client_id: str
    is_persistent: bool
    subscriptions: list[Subscribed] = field(default_factory=list)
    live: Counter[int] = field(default_factory=Counter)  # by message number, without DUP
    total: Counter[int] = field(default_factory=Counter)  # by message number, retained ones too, once for a packet id
    once: Counter[int] = field(default_factory=Counter)  # the same for what came at QoS 2
    # The newest number, by publisher and by topic name, and whether it came at QoS 0, which may overtake what waits.
    newest: dict[tuple[str, bool], int] = field(default_factory=dict)
    newest_of_topic: dict[tuple[str, bool], int] = field(default_factory=dict)
    has_ended: bool = False

    def matching(self, topic_name: str) -> list[Subscribed]:
        return [asked for asked in self.subscriptions if asked.matches(topic_name)]


class Checker:
    """Is told everything that clients see."""

    def __init__(self) -> None:
        self.violations: list[str] = []
        self.messages: list[Message] = []
        self.by_topic: dict[str, list[Message]] = {}
        self.sessions: list[SessionModel] = []
        self.shares: dict[str, Share] = {}
        self.wills: dict[int, WillModel] = {}  # by message number
        self.event = 0
        self.is_wall_steady = True  # nobody has set the time of day
        self.checks: Counter[str] = Counter()  # how often each promise was put to the test
        self.notes: Callable[[str], None] = lambda _: None  # is told what happens, for a reader

    def now(self) -> int:
        self.event += 1
        return self.event

    def wrong(self, text: str) -> None:
        self.violations.append(text)

    # -- publishers --------------------------------------------------------------------------------------------------

    def sent(
        self,
        client_id: str,
        topic_name: str,
        qos: int,
        *,
        retain: bool = False,
        is_clear: bool = False,
        expiry_s: int | None = None,
        is_will: bool = False,
    ) -> Message:
        """A message leaves its client for the first time."""
        number = len(self.messages) + 1
        message = Message(number, client_id, topic_name, qos, retain, is_clear, expiry_s, self.now(), is_will=is_will)
        self.messages.append(message)
        self.by_topic.setdefault(topic_name, []).append(message)
        return message

    def acknowledged(self, message: Message) -> None:
        if not message.acknowledged:
            message.acknowledged = self.now()
            self.checks["acknowledged"] += 1

    def wills_are_unclear(self) -> None:
        """The server has crashed or its disk fails: a client that comes back meanwhile may withdraw its will."""
        for will in self.wills.values():
            will.is_unclear = True

    # -- subscribers -------------------------------------------------------------------------------------------------

    def session(self, client_id: str, is_persistent: bool) -> SessionModel:
        """CONNACK says that there was no session before."""
        session = SessionModel(client_id, is_persistent)
        self.sessions.append(session)
        return session

    def subscribing(self, session: SessionModel, topic_filter: str, qos: int) -> Subscribed:
        share = None
        if topic_filter.startswith("$share/"):
            share = self.shares.setdefault(topic_filter, Share(topic_filter))
        asked = Subscribed(topic_filter, qos, self.now(), CLOCK.now_us, share=share)
        for before in session.subscriptions:  # it is replaced: what it is owed goes on
            if before.topic_filter == topic_filter and not before.ended:
                asked.answered = before.answered if before.qos and qos else 0
                before.ended = self.event
        session.subscriptions.append(asked)
        return asked

    def subscribed(self, asked: Subscribed) -> None:
        if not asked.answered:
            asked.answered = self.now()
        if asked.share is not None and not asked.share.complete_from:
            asked.share.complete_from = asked.answered

    def unsubscribing(self, session: SessionModel, topic_filter: str) -> None:
        for asked in session.subscriptions:
            if asked.topic_filter == topic_filter and not asked.ended:
                asked.ended = self.now()

    def ended(self, session: SessionModel) -> None:
        """The session may be gone: nothing more is owed to it."""
        session.has_ended = True

    def delivered(
        self,
        session: SessionModel,
        topic_name: str,
        payload: bytes,
        qos: int,
        *,
        retain: bool,
        dup: bool,
        expiry_s: int | None,
        sent_us: int,
    ) -> None:
        """A PUBLISH has come that the client's QoS 2 state does not know. `sent_us`: when the server wrote it."""
        found = session.matching(topic_name)
        who = f"{session.client_id}: {topic_name}"
        if not found:
            self.wrong(f"{who} came without a subscription")
            return
        if not payload:
            if retain:
                self.wrong(f"{who}: an empty message was retained")
            return  # it does not say which clear it is
        message = self._message_of(topic_name, payload)
        if message is None:
            self.wrong(f"{who} never had the payload {payload[:40]!r}")
            return
        who = f"{who} number {message.number}"
        if qos not in {min(message.qos, asked.qos) for asked in found}:
            self.wrong(f"{who} of QoS {message.qos} came with QoS {qos}")
        if retain and not message.retain:
            self.wrong(f"{who} came with RETAIN, but is not retained")
        will = self.wills.get(message.number)
        if will is not None:
            self.checks["will"] += 1
            if will.is_withdrawn and not will.is_unclear:
                self.wrong(f"{who} is a will, and its client has said DISCONNECT")
        shared = [asked.share for asked in found if asked.share is not None]
        plain = [asked for asked in found if asked.share is None]
        if shared and not plain:
            self._check_shared(who, shared[0], message, qos)
            return
        if shared:
            return  # overlapping filters: which copy it is cannot be told
        is_first = not session.total[message.number]
        # What a publisher sends again may come first to who subscribed in between.
        is_owed = message.expiry_s is None and any(
            asked.qos and not asked.ended and 0 < asked.answered < message.sent for asked in plain
        )
        is_first_try = message.attempts == 1 or is_owed
        if dup and message.expiry_s is not None:  # after a crash what had expired unsent may count as sent
            is_first_try = False
        session.total[message.number] += 1
        if retain:
            self._check_retained(who, session, plain, message)
        else:
            self._check_live(who, session, message, qos, dup, is_first and is_first_try)
        if message.retain and is_first and is_first_try:
            self._check_not_older(who, session, message, qos)
        if qos == 2 and message.qos == 2:
            self.checks["QoS 2 once"] += 1
            session.once[message.number] += 1
            if session.once[message.number] > len(plain):
                self.wrong(f"{who} came {session.once[message.number]} times with QoS 2")
        if is_first and not dup:  # with DUP it may have left before it expired
            self._check_expiry(who, message, expiry_s, sent_us)

    def _message_of(self, topic_name: str, payload: bytes) -> Message | None:
        number, _, _ = payload.partition(b"|")
        if not number.isdigit() or not 0 < int(number) <= len(self.messages):
            return None
        message = self.messages[int(number) - 1]
        return message if message.topic_name == topic_name and message.payload() == payload else None

    def _check_live(
        self, who: str, session: SessionModel, message: Message, qos: int, dup: bool, is_first: bool
    ) -> None:
        if not dup:
            session.live[message.number] += 1
            if session.live[message.number] > message.attempts:
                self.wrong(f"{who} came again without DUP, and was sent {message.attempts} times")
        if is_first and not message.is_will:
            self.checks["order"] += 1
            key = message.client_id, qos == 0
            newest = session.newest.get(key, 0)
            if message.number < newest:
                self.wrong(f"{who} came after {newest} of the same publisher")
            session.newest[key] = max(newest, message.number)

    def _check_retained(self, who: str, session: SessionModel, found: list[Subscribed], message: Message) -> None:
        """It may not have been replaced before the SUBSCRIBE was sent."""
        self.checks["retained"] += 1
        asked = max(each.asked for each in found)
        for newer in reversed(self.by_topic[message.topic_name]):
            if newer.number == message.number:
                break
            first = min(each.asked for each in found)
            if newer.retain and 0 < newer.acknowledged < first and newer.qos:
                self.wrong(f"{who} is retained, but {newer.number} was acknowledged before SUBSCRIBE ({asked})")
                break

    def _check_not_older(self, who: str, session: SessionModel, message: Message, qos: int) -> None:
        self.checks["retained in order"] += 1
        key = message.topic_name, qos == 0
        newest = session.newest_of_topic.get(key, 0)
        if message.number < newest:
            self.wrong(f"{who} came after the newer {newest} of the same topic")
        session.newest_of_topic[key] = max(newest, message.number)

    def _check_shared(self, who: str, share: Share, message: Message, qos: int) -> None:
        self.checks["shared"] += 1
        share.got[message.number] += 1
        if qos == 2:  # from a member that takes QoS 1 it may go to another one
            share.got_once[message.number] += 1
            if share.got_once[message.number] > 1:
                self.wrong(f"{who} came {share.got_once[message.number]} times with QoS 2 to {share.share_filter}")

    def _check_expiry(self, who: str, message: Message, expiry_s: int | None, sent_us: int) -> None:
        if message.expiry_s is None or message.has_lost_expiry or not (self.is_wall_steady and message.arrived_us):
            return
        self.checks["expiry"] += 1
        if sent_us > message.arrived_us + message.expiry_s * 1_000_000 + EXPIRY_SLACK_US:
            late_s = (sent_us - message.arrived_us) / 1_000_000
            self.wrong(f"{who} was sent {late_s:.1f} s after it came, but expires after {message.expiry_s} s")
        if expiry_s is not None and expiry_s > message.expiry_s:
            self.wrong(f"{who} has an expiry of {expiry_s} s, but had {message.expiry_s} s")

    # -- when all is quiet -------------------------------------------------------------------------------------------

    def finished(self) -> None:
        """Every client is connected and has had the time to get everything."""
        for will in self.wills.values():
            if will.is_set and will.is_ended and not (will.is_withdrawn or will.is_unclear or will.delay_s):
                self.acknowledged(will.message)
        for session in self.sessions:
            if session.has_ended:
                continue
            for asked in session.subscriptions:
                if not asked.answered or asked.ended or not asked.qos:
                    continue
                for message in self._owed(asked):
                    self.checks["owed"] += 1
                    got = asked.share.got if asked.share is not None else session.total
                    if not got[message.number]:
                        self.wrong(
                            f"{session.client_id}: {message.topic_name} number {message.number} of QoS {message.qos}"
                            f" was acknowledged ({message.acknowledged}) and never came to {asked.topic_filter}"
                        )

    def _owed(self, asked: Subscribed) -> list[Message]:
        since = asked.answered if asked.share is None else asked.share.complete_from
        return [
            message
            for message in self.messages
            if message.acknowledged and message.sent > since and message.qos and not message.is_clear
            if message.expiry_s is None and asked.matches(message.topic_name)
        ]

    def may_be_retained(self, topic_name: str) -> set[int]:
        """The numbers of what a new SUBSCRIBE may find; 0: nothing. One client writes to a topic."""
        found = [message for message in self.by_topic.get(topic_name, []) if message.retain]
        allowed: set[int] = set()
        for message in reversed(found):
            allowed.add(0 if message.is_clear else message.number)
            if message.expiry_s is not None:
                allowed.add(0)
            if message.acknowledged and message.qos:
                return allowed
        allowed.add(0)
        return allowed

    def retained(self, found: dict[str, bytes]) -> None:
        """All retained messages as a new client got them."""
        for topic_name in self.by_topic:
            allowed = self.may_be_retained(topic_name)
            self.checks["retained set"] += 1
            payload = found.get(topic_name)
            message = None if payload is None else self._message_of(topic_name, payload)
            number = 0 if payload is None else -1 if message is None else message.number
            if number not in allowed:
                self.wrong(f"{topic_name}: number {number} is retained, but one of {sorted(allowed)} must be")
        for topic_name in found.keys() - self.by_topic.keys():
            self.wrong(f"{topic_name}: retained, but never sent")

    def logged(self, found: list[tuple[str, str, bytes]], is_whole: bool) -> None:
        """The messages in the log, in its order: client id, topic name, payload. `is_whole`: nothing was trimmed."""
        count: Counter[int] = Counter()
        newest: dict[str, int] = {}
        for client_id, topic_name, payload in found:
            if not payload:
                continue
            message = self._message_of(topic_name, payload)
            if message is None or message.client_id != client_id:
                self.wrong(f"the log has {payload[:40]!r} to {topic_name} of {client_id}, which was never sent")
                continue
            count[message.number] += 1
            if message.qos == 2 and not message.is_will and count[message.number] > 1:
                self.wrong(f"the log has number {message.number} of QoS 2 twice")
            if count[message.number] > message.attempts:
                self.wrong(f"the log has number {message.number} {count[message.number]} times")
            if is_whole and count[message.number] == 1 and not message.is_will:
                if message.number < newest.get(client_id, 0):
                    self.wrong(f"the log has number {message.number} after {newest[client_id]} of {client_id}")
                newest[client_id] = max(message.number, newest.get(client_id, 0))
        for message in self.messages if is_whole else []:
            self.checks["logged"] += 1
            if message.acknowledged and message.qos and not message.is_clear and not count[message.number]:
                self.wrong(f"number {message.number} was acknowledged and is not in the log")
