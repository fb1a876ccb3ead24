"""The core without sockets: links that write down what they are told, and a clock that is moved by hand."""

from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue

from embermq.broker.access import Access, AllowAll, Grant, Identity
from embermq.broker.admission import Refusal, ignore_refusal
from embermq.broker.clock import Clock
from embermq.broker.context import Context
from embermq.broker.core import Core
from embermq.broker.counters import Counters
from embermq.broker.delivery import RUN_MESSAGES_MAX
from embermq.broker.limits import Limits
from embermq.broker.outbound import Outbound
from embermq.broker.retained_delivery import COMPARISONS_MAX
from embermq.broker.session import ClientLink, Session
from embermq.protocol.message_expiry import message_expires_us
from embermq.protocol.packets import (
    Acknowledgement,
    Connack,
    Connect,
    Delivery,
    Packet,
    Publish,
    Suback,
    Subscribe,
    SubscriptionRequest,
    Will,
)
from embermq.protocol.reasons import ReasonCode
from embermq.store.engines.disk import DiskStore
from embermq.store.engines.memory import MemoryStore
from embermq.store.engines.opening import JournalSettings
from embermq.store.engines.retention import Archiver
from embermq.store.history.trimmed import TrimmedLog
from embermq.store.interface import Store
from support.acknowledgements import singles
from support.crashed_directory import copy_as_crashed
from support.stores import ScriptedStore


class ScriptedLink(ClientLink):
    """What a client got, in order, until the test takes it."""

    def __init__(self, room: int = 1_000_000, supervises_keep_alive: bool = False, is_v5: bool = False) -> None:
        super().__init__(supervises_keep_alive)
        self.is_v5 = is_v5
        self.got: list[Packet] = []
        self.ids: list[tuple[int, ...]] = []  # the Subscription Identifiers of each message
        self.closed: ReasonCode | None = None
        self.closed_detail = ""
        self.room = room  # how many more messages the client takes before it is a slow reader
        self.runs: list[int] = []  # how many messages each call has brought
        self.sent_in_runs = 0  # how many messages at QoS 1 and 2 came several at a time
        self.run_max = 1_000_000  # how many messages at QoS 1 and 2 it takes at a time
        self.retained_rate = 0
        self.is_open = False
        self.is_held_back = False
        self.on_open: Callable[[], None] = lambda: None

    def has_properties(self) -> bool:
        return self.is_v5

    def tells_reasons(self) -> bool:
        return self.is_v5

    def deliver(self, delivery: Delivery) -> int:
        qos = delivery.qos
        taken = 0
        for message in delivery.unpacked():
            is_full = self.room <= 0 if taken or not qos else False
            if is_full or (qos and taken >= self.run_max):
                break
            self.room -= 1
            self.ids.append(delivery.subscription_ids)
            packet_id = delivery.packet_id + taken if qos else 0
            self.got.append(Publish(message.topic_name, message.payload, qos, delivery.retain, delivery.dup, packet_id))
            taken += 1
        self.runs.append(taken)
        if qos and taken > 1:
            self.sent_in_runs += taken
        return taken

    def acknowledge(self, acknowledgement: Acknowledgement) -> None:
        self.got += singles([acknowledgement])

    def send(self, packet: Packet) -> None:
        self.got.append(packet)

    def has_room(self) -> bool:
        return self.room > 0

    def retained_rate_max(self) -> int:
        return self.retained_rate

    def hold_back(self, is_held: bool) -> None:
        self.is_held_back = is_held

    def opened(self) -> None:
        self.is_open = True
        self.on_open()

    def close(self, reason: ReasonCode, detail: str) -> None:
        self.closed, self.closed_detail = reason, detail

    def take(self) -> list[Packet]:
        """All since the last time."""
        got, self.got = self.got, []
        return got

    def take_ids(self) -> list[tuple[int, ...]]:
        """The Subscription Identifiers of all messages since the last time."""
        ids, self.ids = self.ids, []
        return ids

    def take_messages(self) -> list[Publish]:
        return [packet for packet in self.take() if isinstance(packet, Publish)]

    def payloads(self) -> list[bytes]:
        return [message.payload for message in self.take_messages()]


class ScriptedAccess(Access):
    """Every client is who it says. A session belongs to its user.

    `allowed`: the beginning of the topic names and filters that may be used; a test may change it. `may_retain`:
    whether messages may be retained there. With `allowed` None there are no rules.
    """

    def __init__(self, allowed: str | None = None, may_retain: bool = False) -> None:
        super().__init__(slow=False, unrestricted=allowed is None)
        self.allowed = allowed or ""
        self._may_retain = may_retain

    def authenticate(
        self, client_id: str, user_name: str | None, password: bytes | None, certificate_name: str | None
    ) -> Identity:
        return Identity(user_name or "", client_id)

    def may_publish(self, identity: Identity, topic_name: str, retain: bool) -> bool:
        return topic_name.startswith(self.allowed) and (self._may_retain or not retain)

    def may_subscribe(self, identity: Identity, topic_filter: str) -> bool:
        return topic_filter.startswith(self.allowed)


def new_session(client_id: str = "c") -> Session:
    """A session that belongs to no core."""
    return Session(client_id, 0, Identity("", client_id), Outbound(None, 10, Limits(), Counters(), Clock()))


def new_context(limits: Limits | None = None) -> Context:
    """What a part of a core needs that belongs to no core."""
    return Context(MemoryStore(), AllowAll(), limits or Limits(), lambda: None)


class Bench:
    """A core, its clock and its clients."""

    def __init__(
        self,
        store: Store | None = None,
        limits: Limits | None = None,
        access: Access | None = None,
        *,
        report_refusal: Callable[[Refusal], None] = ignore_refusal,
        run_max: int = RUN_MESSAGES_MAX,
        comparisons_max: int = COMPARISONS_MAX,
        now_ms: int = 1_000_000,
        wake_in_us: Callable[[int, Callable[[], None]], None] | None = None,
        response_information: Grant | None = None,
    ) -> None:
        self.store = store if store is not None else MemoryStore()
        self.now_ms = now_ms
        self.run_max = run_max
        self.store.begin_turn(now_ms * 1000)
        self.core = Core(
            self.store,
            access or AllowAll(),
            limits or Limits(),
            lambda: None,
            self.bug,
            "test",
            "seed",
            report_refusal=report_refusal,
            run_max=run_max,
            comparisons_max=comparisons_max,
            wake_in_us=wake_in_us,
            response_information=response_information,
        )
        self.core.restore(self.now_ms, self.now_ms * 1000)

    def bug(self, error: Exception) -> None:
        raise error

    def connect(
        self,
        client_id: str = "",
        *,
        clean: bool = True,
        will: Will | None = None,
        keep_alive_s: int = 0,
        receive_maximum: int = 65_535,
        expiry_s: int | None = None,
        room: int = 1_000_000,
        turn: bool = True,
        user: str = "",
    ) -> ScriptedLink:
        link = ScriptedLink(room)
        link.run_max = self.run_max
        connect = Connect(
            client_id,
            clean,
            keep_alive_s,
            will,
            session_expiry_s=expiry_s if expiry_s is not None else 0 if clean else Limits().session_expiry_max_s,
            receive_maximum=receive_maximum,
        )
        self.core.connect(link, connect, Identity(user, client_id), "MQTT 3.1.1", "test")
        if turn:
            self.turn()
        return link

    def join(
        self,
        client_id: str = "",
        *,
        clean: bool = True,
        will: Will | None = None,
        keep_alive_s: int = 0,
        receive_maximum: int = 65_535,
        expiry_s: int | None = None,
        room: int = 1_000_000,
        user: str = "",
    ) -> ScriptedLink:
        """Connect, wait for the commit, and take the CONNACK off, which must say yes."""
        link = self.connect(
            client_id,
            clean=clean,
            will=will,
            keep_alive_s=keep_alive_s,
            receive_maximum=receive_maximum,
            expiry_s=expiry_s,
            room=room,
            user=user,
        )
        self.commit()
        connack = link.got.pop(0)
        assert isinstance(connack, Connack)
        assert connack.reason == ReasonCode.SUCCESS
        return link

    def send(self, link: ScriptedLink, *packets: Packet, turn: bool = True) -> None:
        self.core.receive(link, list(packets), self.now_ms)
        if turn:
            self.turn()

    def turn(self) -> None:
        while self.core.end_turn():
            pass

    def commit(self) -> None:
        """Finish the commits of a late store until none is under way."""
        store = self.store
        while isinstance(store, ScriptedStore) and store.done is not None:
            store.finish()
            self.turn()

    def pass_s(self, seconds: float) -> None:
        self.now_ms += int(seconds * 1000)
        self.store.begin_turn(self.now_ms * 1000)
        self.core.tick(self.now_ms, self.now_ms * 1000)
        self.turn()

    def lose(self, link: ScriptedLink) -> None:
        self.core.lost(link, "gone", self.now_ms)
        self.turn()

    def subscribe(
        self,
        link: ScriptedLink,
        topic_filter: str,
        qos: int = 0,
        *,
        no_local: bool = False,
        retain_as_published: bool = False,
        retain_handling: int = 0,
        number: int = 0,
    ) -> None:
        request = SubscriptionRequest(topic_filter, qos, no_local, retain_as_published, retain_handling, number)
        self.send(link, Subscribe(1, [request]))

    def subscribed(self, link: ScriptedLink, topic_filter: str, qos: int = 0) -> None:
        """Subscribe, wait for the commit, and take the SUBACK off."""
        self.subscribe(link, topic_filter, qos)
        self.commit()
        assert link.got.pop(0) == Suback(1, [qos])

    def publish(
        self, topic_name: str, payload: bytes, qos: int = 0, retain: bool = False, *, expiry_s: int | None = None
    ) -> None:
        """A message without a session; with `expiry_s` it has a Message Expiry Interval."""
        properties = b"" if expiry_s is None else b"\x02" + expiry_s.to_bytes(4, "big")
        expires_us = message_expires_us(properties, self.now_ms * 1000)
        message = Publish(topic_name, payload, qos, retain, properties=properties, expires_us=expires_us)
        self.core.publish_sessionless(message, Identity("", "somebody"))
        self.turn()


class DiskBench(Bench):
    """A core on a journal in a directory, which can be left as a crash would leave it."""

    def __init__(
        self,
        directory: Path,
        limits: Limits | None = None,
        access: Access | None = None,
        *,
        now_ms: int = 1_000_000,
        settings: JournalSettings | None = None,
        archiver: Archiver | None = None,
        trimmed: Callable[[], TrimmedLog] | None = None,
    ) -> None:
        self.directory = directory
        self.calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
        settings = settings or JournalSettings(durability="os")
        self.journal = DiskStore(directory, self.calls.put, settings, archiver=archiver, trimmed=trimmed)
        super().__init__(self.journal, limits, access, now_ms=now_ms)

    def commit(self) -> None:
        """Wait until everything that was appended is durable, and released."""
        durable: list[bool] = []
        self.core.when_durable(lambda: durable.append(True))
        self.turn()
        while not durable:
            self.calls.get(timeout=60)()
            self.turn()

    def crashed(self, limits: Limits | None = None, *, after_s: int = 0) -> "DiskBench":
        """The server that starts from what is durable now. This one is of no use any more."""
        to = self.directory.with_name(f"{self.directory.name}-crashed")
        copy_as_crashed(self.directory, to)
        self.journal.close()
        return DiskBench(to, limits, now_ms=self.now_ms + after_s * 1000)

    def restarted(self, limits: Limits | None = None, *, after_s: int = 0) -> "DiskBench":
        """The server that starts after an orderly stop of this one."""
        self.core.stop("stopped")
        self.commit()
        self.journal.close()
        return DiskBench(self.directory, limits, now_ms=self.now_ms + after_s * 1000)
