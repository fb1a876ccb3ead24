"""What a crash test checks only with MQTT 5: share groups, expiry of messages and sessions, delayed wills.

Owns: the clients for it and what must hold for each of them however often the server was killed:

- share group: every message that was acknowledged to its publisher reaches a member. It may come again after a crash.
- message expiry: a message that has expired is not sent for the first time, nor found as retained; one that has not
  expired is not missing.
- session expiry: the interval of DISCONNECT counts. A session is gone when it is over, and there before.
- wills: the will of a client that was accepted and does not come back is published once; the will of a client that is
  back within the delay is not published.

Time is that of this machine, for the server and for the test. `SLACK_S` is what a busy machine may take for anything.
"""

import asyncio
import time
from collections import Counter
from random import Random
from typing import Final

from support import wire, wire_v5
from support.crash_checker import LIVE, Checker, number_of
from support.crash_clients import Peer, Subscriber
from support.crash_clients_v5 import SESSION_EXPIRY_S, SubscriberV5
from support.wire_v5 import MESSAGE_EXPIRY, SESSION_EXPIRY, SUBSCRIPTION_ID, WILL_DELAY

SLACK_S: Final = 4.0
EXPIRY_S: Final = 5
BRIEF_LIVE: Final = "brief/live"
BRIEF_KEPT: Final = "brief/kept"
BRIEF_PAUSE_S: Final = 0.005
MEMBER_CHANCE: Final = 0.6
BRIEF_CHANCE: Final = 0.25
"""How often a client takes part in a round. The brief subscriber is away for so long that messages expire."""
WILLS: Final = "will"
SHORT_S: Final = 2
GROUP_ID: Final = 77
RETURN_DELAY_S: Final = 3_600


# -- share group -----------------------------------------------------------------------------------------------------


class GroupChecker(Checker):
    """Is told which messages a share group has got. It does not matter which member got each."""

    def __init__(self, checker: Checker, queue_messages_max: int) -> None:
        super().__init__(queue_messages_max)
        self.streams = checker.streams
        self.violations = checker.violations
        self.got: dict[str, set[int]] = {}
        self._qos: dict[str, int] = {}

    def subscribing(self, client_id: str, qos: int, prefix: str = "") -> None:
        self._qos[client_id] = qos

    def subscribed(self, client_id: str) -> None:
        """The members subscribe before anything is published: all of it is owed to the group."""

    def delivered(self, client_id: str, topic_name: str, payload: bytes, qos: int, retain: int, dup: int) -> None:
        self.deliveries += 1
        stream = self.streams[topic_name]
        number = number_of(topic_name, payload)
        if not 0 < number <= stream.sent:
            self.wrong(f"{client_id}: {topic_name} never had the payload {payload[:60]!r}")
        if qos != min(stream.qos, self._qos[client_id]) or retain:
            self.wrong(f"{client_id}: {topic_name} came with QoS {qos} and RETAIN {retain}")
        self.got.setdefault(topic_name, set()).add(number)

    def missing(self) -> list[str]:
        """What the group has still to get."""
        return [
            f"{topic_name} {number}"
            for topic_name, stream in self.streams.items()
            if topic_name.startswith(LIVE)
            for number in range(1, stream.acknowledged + 1)
            if number not in self.got.get(topic_name, ())
        ]


class Member(SubscriberV5):
    """One member; its subscription has an identifier."""

    def subscribe_packets(self) -> bytes:
        asked = [(SUBSCRIPTION_ID, GROUP_ID)]
        return wire_v5.subscribe(1, (f"$share/crash/{LIVE}/#", self.qos), properties=[*asked])

    def is_last_suback(self, packet_id: int) -> bool:
        return True

    def expected_identifiers(self, topic_name: str) -> list[int]:
        return [GROUP_ID]


class OldMember(Subscriber):
    """A member that speaks MQTT 3.1.1."""

    def subscribe_packets(self) -> bytes:
        return wire.subscribe(1, (f"$share/crash/{LIVE}/#", self.qos))


# -- message expiry --------------------------------------------------------------------------------------------------


class BriefPublisher(Peer):
    """Publishes messages that expire soon, each once: what was not acknowledged is not owed."""

    def __init__(self, checker: Checker) -> None:
        super().__init__("brief-publisher", checker)
        self.sending = True
        self.sent_at: dict[str, list[float]] = {BRIEF_LIVE: [], BRIEF_KEPT: []}
        self.acknowledged: dict[str, set[int]] = {BRIEF_LIVE: set(), BRIEF_KEPT: set()}
        self._inflight: dict[int, tuple[str, int]] = {}
        self._packet_id = 0

    def connect_packet(self) -> bytes:
        return wire_v5.connect(self.client_id, clean=True, keep_alive=0)

    def opened(self) -> None:
        self._inflight.clear()
        self._publish()

    def _take_session(self, session_present: int) -> None:
        """It has none."""

    def received(self, kind: int, flags: int, body: bytes) -> None:
        packet_id = int.from_bytes(body[:2])
        if kind != wire.PUBACK or packet_id not in self._inflight:
            super().received(kind, flags, body)
            return
        topic_name, number = self._inflight.pop(packet_id)
        self.acknowledged[topic_name].add(number)
        asyncio.get_running_loop().call_later(BRIEF_PAUSE_S, self._publish)

    def _publish(self) -> None:
        if not self.sending or not self.is_open():
            return
        self._packet_id = self._packet_id % 60_000 + 1
        topic_name = (BRIEF_LIVE, BRIEF_KEPT)[self._packet_id % 2]
        times = self.sent_at[topic_name]
        times.append(time.monotonic())
        self._inflight[self._packet_id] = (topic_name, len(times))
        self.write(
            wire_v5.publish(
                topic_name,
                b"%d" % len(times),
                qos=1,
                retain=topic_name == BRIEF_KEPT,
                packet_id=self._packet_id,
                properties=[(MESSAGE_EXPIRY, EXPIRY_S)],
            )
        )
        self.flush()

    def age_s(self, topic_name: str, number: int) -> float:
        return time.monotonic() - self.sent_at[topic_name][number - 1]

    def unexpired(self, topic_name: str, after: int, before: int) -> list[int]:
        """The acknowledged messages between two numbers that have certainly not expired yet."""
        return [
            number
            for number in range(after + 1, before)
            if number in self.acknowledged[topic_name] and self.age_s(topic_name, number) < EXPIRY_S - SLACK_S
        ]


class SessionPeer(Peer):
    """A persistent session of MQTT 5 with one subscription at QoS 1."""

    def __init__(self, client_id: str, checker: Checker, topic_filter: str) -> None:
        super().__init__(client_id, checker)
        self._topic_filter = topic_filter
        self.subscribed: asyncio.Event = asyncio.Event()

    def connect_packet(self) -> bytes:
        return wire_v5.connect(self.client_id, clean=False, keep_alive=0, expiry=SESSION_EXPIRY_S)

    def opened(self) -> None:
        if not self.subscribed.is_set():
            self.write(wire_v5.subscribe(1, (self._topic_filter, 1)))

    def received(self, kind: int, flags: int, body: bytes) -> None:
        if kind == wire.SUBACK:
            self.subscribed.set()
        elif kind == wire.PUBLISH:
            message = wire_v5.message_of(wire.Packet(kind, flags, body))
            self.take(message)
            self.write(wire.ack(wire.PUBACK, message.packet_id))
        else:
            super().received(kind, flags, body)

    def take(self, message: wire_v5.Message) -> None:
        raise NotImplementedError


class BriefSubscriber(SessionPeer):
    """Gets every message before it expires, or not at all."""

    def __init__(self, checker: Checker, publisher: BriefPublisher) -> None:
        super().__init__("brief-subscriber", checker, BRIEF_LIVE)
        self._publisher = publisher
        self._newest = 0
        self.taken = 0

    def take(self, message: wire_v5.Message) -> None:
        number = int(message.payload)
        age_s = self._publisher.age_s(BRIEF_LIVE, number)
        (left_s,) = message.valued(MESSAGE_EXPIRY)
        assert isinstance(left_s, int)
        if message.dup:  # an expired message is not sent for the first time; a repetition is allowed
            self._newest = max(self._newest, number)
            return
        self.taken += 1
        if age_s > EXPIRY_S + SLACK_S:
            self.checker.wrong(f"{self.client_id}: {number} came {age_s:.1f} s after it was sent")
        if not 0 < left_s <= EXPIRY_S or left_s > EXPIRY_S - age_s + SLACK_S:
            self.checker.wrong(f"{self.client_id}: {number} came with {left_s} s left, {age_s:.1f} s after it was sent")
        if number <= self._newest:
            self.checker.wrong(f"{self.client_id}: {number} came after {self._newest}")
        for lost in self._publisher.unexpired(BRIEF_LIVE, self._newest, number):
            self.checker.wrong(f"{self.client_id}: {lost} is missing before {number}, and has not expired")
        self._newest = max(self._newest, number)


class BriefOnlooker(Peer):
    """A client without a session that looks whether the brief retained message is there."""

    def __init__(self, checker: Checker, publisher: BriefPublisher) -> None:
        super().__init__("brief-onlooker", checker, clean=True)
        self._publisher = publisher
        self._found = 0

    def connect_packet(self) -> bytes:
        return wire_v5.connect(self.client_id, clean=True, keep_alive=0)

    async def look(self, port: int) -> None:
        self._found = 0
        acknowledged = max(self._publisher.acknowledged[BRIEF_KEPT], default=0)
        if not await self.open(port):
            self.checker.wrong("brief-onlooker: cannot connect to a server that is ready")
            return
        self.write(wire_v5.subscribe(1, (BRIEF_KEPT, 0)))
        self.flush()
        await self.ping()
        # The retained message follows SUBACK, and so it is here before the answer to a second PINGREQ.
        await self.ping()
        await self.drop()
        number = self._found
        if number and self._publisher.age_s(BRIEF_KEPT, number) > EXPIRY_S + SLACK_S:
            self.checker.wrong(f"{BRIEF_KEPT}: {number} is retained, but has expired")
        if number < acknowledged and self._publisher.age_s(BRIEF_KEPT, acknowledged) < EXPIRY_S - SLACK_S:
            self.checker.wrong(f"{BRIEF_KEPT}: {number} is retained, but {acknowledged} was acknowledged")

    def received(self, kind: int, flags: int, body: bytes) -> None:
        if kind == wire.PUBLISH:
            self._found = int(wire_v5.message_of(wire.Packet(kind, flags, body)).payload)


# -- wills -----------------------------------------------------------------------------------------------------------


class Mortal(Peer):
    """Leaves a will when its connection ends; whether it comes back is up to the test."""

    def __init__(self, client_id: str, checker: Checker, delay_s: int) -> None:
        super().__init__(client_id, checker)
        self._delay_s = delay_s
        self.is_accepted = False
        self.has_returned = False

    def connect_packet(self) -> bytes:
        if self.is_accepted:  # back again, without a will
            return wire_v5.connect(self.client_id, clean=False, keep_alive=0, expiry=SESSION_EXPIRY_S)
        will = wire_v5.Will(f"{WILLS}/{self.client_id}", b"gone", 1, False, [(WILL_DELAY, self._delay_s)])
        return wire_v5.connect(self.client_id, clean=False, keep_alive=0, expiry=SESSION_EXPIRY_S, will=will)

    def opened(self) -> None:
        self.has_returned = self.is_accepted
        self.is_accepted = True

    async def leave(self) -> None:
        """DISCONNECT, for good; a session that is not needed any more goes with it."""
        self.may_drop = True
        self.write(wire_v5.disconnect(0, [(SESSION_EXPIRY, 0)]))
        self.flush()
        await self.gone()


class WillWatcher(SessionPeer):
    """A persistent session that gets every will."""

    def __init__(self, checker: Checker) -> None:
        super().__init__("will-watcher", checker, f"{WILLS}/#")
        self.wills: Counter[str] = Counter()

    def take(self, message: wire_v5.Message) -> None:
        client_id = message.topic_name.removeprefix(f"{WILLS}/")
        if message.dup and self.wills[client_id]:
            return
        self.wills[client_id] += 1
        if self.wills[client_id] > 1:
            self.checker.wrong(f"the will of {client_id} was published again")
        if client_id.startswith("returner"):
            self.checker.wrong(f"the will of {client_id} was published, but its delay was not over")


# -- session expiry --------------------------------------------------------------------------------------------------


class Leaving(Peer):
    """Connects with one Session Expiry Interval and leaves with another."""

    def __init__(self, client_id: str, checker: Checker, expiry_s: int) -> None:
        super().__init__(client_id, checker)
        self._expiry_s = expiry_s
        self._left_at = 0.0
        self._acknowledged = 0

    def connect_packet(self) -> bytes:
        return wire_v5.connect(self.client_id, clean=False, keep_alive=0, expiry=600)

    def _take_session(self, session_present: int) -> None:
        """Judged here: the checker knows no session that ends by itself."""
        if not self._left_at:
            return
        away_s = time.monotonic() - self._left_at
        if session_present and away_s > self._expiry_s + SLACK_S:
            self.checker.wrong(f"{self.client_id}: the session is there {away_s:.1f} s after it was left")
        if not session_present and away_s < self._expiry_s - SLACK_S:
            self.checker.wrong(f"{self.client_id}: the session is gone {away_s:.1f} s after it was left")

    async def visit(self, port: int) -> None:
        """Come and go."""
        await self.open(port)
        self.may_drop = True
        self.write(wire_v5.disconnect(0, [(SESSION_EXPIRY, self._expiry_s)]))
        self.flush()
        await self.gone()
        self._left_at = time.monotonic()
        self._acknowledged = self.checker.messages_acknowledged()

    async def come_back(self, port: int) -> None:
        # DISCONNECT is not acknowledged; but what was acknowledged later says that it was durable before a kill.
        if self.checker.messages_acknowledged() > self._acknowledged:
            await self.open(port)
            await self.drop()


# -- all of it -------------------------------------------------------------------------------------------------------


class V5Checks:
    """The clients above through the rounds of a crash test."""

    def __init__(self, checker: Checker, queue_messages_max: int, seed: int) -> None:
        self._checker = checker
        self._random = Random(seed)
        self.group = GroupChecker(checker, queue_messages_max)
        self.members: list[Subscriber] = [
            Member("member-1", self.group, 1),
            Member("member-2", self.group, 2),
            OldMember("member-3", self.group, 1),
        ]
        self._brief_publisher = BriefPublisher(checker)
        self.brief_subscriber = BriefSubscriber(checker, self._brief_publisher)
        self._onlooker = BriefOnlooker(checker, self._brief_publisher)
        self.watcher = WillWatcher(checker)
        self._mortals: list[Mortal] = []
        self._returners: list[Mortal] = []
        self._leaving: list[Leaving] = []
        self._rounds = 0

    def peers(self) -> list[Peer]:
        """The clients that stay through all rounds."""
        return [*self.members, self.watcher, self._brief_publisher, self.brief_subscriber]

    def all(self) -> list[Peer]:
        return [*self.peers(), *self._mortals, *self._returners]

    async def subscribe(self, port: int) -> None:
        subscribers: list[Subscriber | SessionPeer] = [*self.members, self.watcher, self.brief_subscriber]
        for peer in subscribers:
            await peer.open(port)
            await peer.subscribed.wait()
            await peer.drop()

    async def before_load(self, port: int) -> None:
        """Clients that come and go while nothing else does."""
        self._rounds += 1
        for leaving in self._leaving:
            await leaving.come_back(port)
        self._leaving = [
            Leaving(f"leaving-{self._rounds}-{expiry_s}", self._checker, expiry_s) for expiry_s in (SHORT_S, 3_600)
        ]
        for leaving in self._leaving:
            await leaving.visit(port)
        for returner in self._returners:
            if returner.is_accepted:
                await returner.open(port)
                await returner.leave()
        self._returners = [Mortal(f"returner-{self._rounds}", self._checker, RETURN_DELAY_S)]
        self._mortals.append(Mortal(f"mortal-{self._rounds}", self._checker, 1))

    def load(self) -> list[Peer]:
        """The clients that are connected while the server is under load."""
        often: list[Peer] = [self.watcher, self._brief_publisher, self._mortals[-1], *self._returners]
        members = [member for member in self.members if self._random.random() < MEMBER_CHANCE]
        brief = [self.brief_subscriber] if self._random.random() < BRIEF_CHANCE else []
        return [*often, *members, *brief]

    async def after_start(self, port: int) -> None:
        await self._onlooker.look(port)

    def sending(self, is_sending: bool) -> None:
        self._brief_publisher.sending = is_sending

    def owed(self) -> int:
        """How many messages and wills are still to come."""
        return len(self.group.missing()) + len(self._missing_wills())

    def _missing_wills(self) -> list[str]:
        return [
            mortal.client_id
            for mortal in self._mortals
            if mortal.is_accepted and not mortal.is_open() and not self.watcher.wills[mortal.client_id]
        ]

    def finished(self) -> None:
        if missing := self.group.missing():
            self._checker.wrong(f"no member of the group has got {', '.join(missing[:5])} ({len(missing)} in all)")
        for client_id in self._missing_wills():
            self._checker.wrong(f"the will of {client_id} was never published")
