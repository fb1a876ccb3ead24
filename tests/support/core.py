"""The core without sockets: links that write down what they are told, a clock that is moved by hand, a slow disk."""

from collections.abc import Callable

from embermq.broker.access import Access, AllowAll, Identity
from embermq.broker.core import Core
from embermq.broker.limits import Limits
from embermq.broker.link import Link
from embermq.broker.retained_delivery import COMPARISONS_MAX
from embermq.protocol.packets import (
    SESSION_NEVER_EXPIRES,
    Connack,
    Connect,
    Delivery,
    Packet,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    SubscriptionRequest,
    Will,
)
from embermq.protocol.reasons import ReasonCode
from embermq.store.interface import StoreError
from embermq.store.memory import MemoryStore

ACKS = {4: Puback, 5: Pubrec, 6: Pubrel, 7: Pubcomp}


class ScriptedLink(Link):
    """What a client got, in order, until the test takes it."""

    def __init__(self, room: int = 1_000_000, supervises_keep_alive: bool = False) -> None:
        super().__init__(supervises_keep_alive)
        self.got: list[Packet] = []
        self.closed: ReasonCode | None = None
        self.room = room  # how many more messages the client takes before it "reads too slowly"
        self.stash: list[Packet] = []
        self.is_open = False
        self.on_open: Callable[[], None] = lambda: None

    def deliver(self, delivery: Delivery) -> bool:
        qos, message = delivery.qos, delivery.message
        if qos == 0 and self.room <= 0:
            return False
        self.room -= 1
        self.got.append(
            Publish(message.topic_name, message.payload, qos, delivery.retain, delivery.dup, delivery.packet_id)
        )
        return True

    def forward(self, message: Publish) -> bool:
        return self.deliver(Delivery(message))

    def acknowledge(self, packet_type: int, packet_id: int, reason: int) -> None:
        self.got.append(ACKS[packet_type](packet_id, reason))

    def send(self, packet: Packet) -> None:
        self.got.append(packet)

    def has_room(self) -> bool:
        return self.room > 0

    def opened(self) -> None:
        self.is_open = True
        self.on_open()

    def close(self, reason: ReasonCode, detail: str) -> None:
        self.closed = reason

    def take(self) -> list[Packet]:
        """All since the last time."""
        got, self.got = self.got, []
        return got

    def take_messages(self) -> list[Publish]:
        return [packet for packet in self.take() if isinstance(packet, Publish)]

    def payloads(self) -> list[bytes]:
        return [message.payload for message in self.take_messages()]


class SlowStore(MemoryStore):
    """A store whose disk takes as long as the test wants: `finish` ends the commit under way."""

    def __init__(self, *, queues: bool = True) -> None:
        super().__init__(queues=queues)
        self.done: Callable[[StoreError | None], None] | None = None
        self.trouble = ""

    def at_once(self) -> bool:
        return False

    def commit(self, done: Callable[[StoreError | None], None]) -> bool:
        assert self.done is None, "one commit at a time"
        self.done = done
        return False

    def finish(self) -> None:
        assert self.done is not None, "nothing is being committed"
        done, self.done = self.done, None
        done(None)

    def failing(self) -> str:
        return self.trouble


class NamedUsers(Access):
    """Everybody has a name and may do everything with what is their own."""

    def __init__(self) -> None:
        super().__init__(slow=False, unrestricted=True)

    def authenticate(
        self, client_id: str, user_name: str | None, password: bytes | None, certificate: str | None
    ) -> Identity:
        return Identity(user_name or "", client_id)

    def may_publish(self, identity: Identity, topic_name: str, retain: bool) -> bool:
        return True

    def may_subscribe(self, identity: Identity, topic_filter: str) -> bool:
        return True


class Bench:
    """A core, its clock and its clients."""

    def __init__(
        self,
        store: MemoryStore | None = None,
        limits: Limits | None = None,
        access: Access | None = None,
        comparisons_max: int = COMPARISONS_MAX,
    ) -> None:
        self.store = store if store is not None else MemoryStore()
        self.now_ms = 1_000_000
        self.core = Core(
            self.store,
            access or AllowAll(),
            limits or Limits(),
            lambda: None,
            self.bug,
            "test",
            "seed",
            comparisons_max=comparisons_max,
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
        expiry_s: int = SESSION_NEVER_EXPIRES,
        room: int = 1_000_000,
        turn: bool = True,
        user: str = "",
    ) -> ScriptedLink:
        link = ScriptedLink(room)
        connect = Connect(
            client_id,
            clean,
            keep_alive_s,
            will,
            session_expiry_s=0 if clean else expiry_s,
            receive_maximum=receive_maximum,
        )
        self.core.connect(link, connect, Identity(user, client_id), "MQTT 3.1.1", "test")
        if turn:
            self.turn()
        return link

    def join(self, client_id: str = "", **options: object) -> ScriptedLink:
        """Connect, and see to it that the server said yes."""
        link = self.connect(client_id, **options)  # type: ignore[arg-type]
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

    def pass_s(self, seconds: float) -> None:
        self.now_ms += int(seconds * 1000)
        self.core.tick(self.now_ms, self.now_ms * 1000)
        self.turn()

    def lose(self, link: ScriptedLink) -> None:
        self.core.lost(link, "gone", self.now_ms)
        self.turn()

    def subscribe(self, link: ScriptedLink, topic_filter: str, qos: int = 0, **options: object) -> None:
        self.send(link, Subscribe(1, [SubscriptionRequest(topic_filter, qos, **options)]))  # type: ignore[arg-type]

    def subscribed(self, link: ScriptedLink, topic_filter: str, qos: int = 0) -> None:
        """Subscribe, and take the SUBACK off."""
        self.subscribe(link, topic_filter, qos)
        assert link.got.pop(0) == Suback(1, [qos])

    def publish(self, topic_name: str, payload: bytes, qos: int = 0, retain: bool = False) -> None:
        """A message of somebody else."""
        self.core.publish_sessionless(Publish(topic_name, payload, qos, retain), Identity("", "somebody"))
        self.turn()
