"""A run means what its messages and acknowledgements mean one by one, and a lone PUBACK what it means in a turn.

Random scripts of several clients run on two cores. In the one, messages and acknowledgements are handled as runs, and
a PUBACK that comes alone takes its shortcut; in the other, every run has one message, the links take one at a time, and
each acknowledgement is a packet. After each step everything that was sent, counted and recorded must be the same, in
memory, with commits that take their time, and on disk.

What is not compared is the order between messages to a client and answers to it: a client that gets its own messages
gets those of a run first, then their acknowledgements.
"""

from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from random import Random

import pytest

from embermq.broker.access import Access, AllowAll, Identity
from embermq.broker.limits import Limits
from embermq.protocol.packets import (
    Acknowledgement,
    Disconnect,
    Packet,
    Pingreq,
    Publish,
    Subscribe,
    SubscriptionRequest,
    Unsubscribe,
    Will,
)
from embermq.store.engines.disk import DiskStore
from embermq.store.engines.opening import JournalSettings
from embermq.store.interface import Store
from embermq.store.log.reader import LogReader
from support.acknowledgements import in_runs, is_pubrec, is_pubrel, puback, pubcomp, pubrec, pubrel
from support.attributes import attributes_of
from support.core import Bench, ScriptedLink
from support.stores import ScriptedStore

CLIENTS = 4
ADMITTED = ["a", "a", "a/b", "b", "b/c", "$data"]
TOPIC_NAMES = [*ADMITTED, "$SYS/x", "a/too/many/levels"]
TOPIC_FILTERS = [
    "a",
    "#",
    "a/+",
    "a/#",
    "b",
    "b/+",
    "$data",
    "$SYS/#",
    "a/too/many/levels/+",
    "$share/g/a",
    "$share/g/#",
]
TIGHT = Limits(inflight_max=3, queue_messages_max=4, queue_bytes_max=60, topic_levels_max=3)
WIDE = Limits(topic_levels_max=3)

Step = Callable[["Side"], None]


class Rules(Access):
    """The first client may do everything, the others only what begins with "a"."""

    def __init__(self) -> None:
        super().__init__(slow=False, unrestricted=False)

    def authenticate(
        self, client_id: str, user_name: str | None, password: bytes | None, certificate_name: str | None
    ) -> Identity:
        return Identity(user_name or "", client_id)

    def may_publish(self, identity: Identity, topic_name: str, retain: bool) -> bool:
        return identity.client_id == "c0" or topic_name.startswith("a")

    def may_subscribe(self, identity: Identity, topic_filter: str) -> bool:
        return identity.client_id == "c0" or topic_filter.startswith("a")


class Side:
    """A core with its clients; everything that they got since the last look."""

    def __init__(self, store: Store, access: Access, limits: Limits, in_runs: bool) -> None:
        self.store = store
        self.limits = limits
        self.has_runs = in_runs
        self.accepted = 0  # calls of `Core.acknowledged` that were done at once
        self.bench = Bench(store, limits, access, run_max=512 if in_runs else 1)
        self.links: list[ScriptedLink] = []  # all that there ever were
        self.clients: list[ScriptedLink | None] = [None] * CLIENTS
        self.unanswered: list[list[Packet]] = [[] for _ in range(CLIENTS)]
        self.unreleased: list[list[int]] = [[] for _ in range(CLIENTS)]  # packet identifiers of PUBRECs
        self.finish: Callable[[], None] = self.bench.commit

    def connect(self, client: int, clean: bool, receive_maximum: int, room: int, will: Will | None) -> None:
        self.unanswered[client].clear()
        self.unreleased[client].clear()
        link = self.bench.connect(f"c{client}", clean=clean, receive_maximum=receive_maximum, room=room, will=will)
        self.links.append(link)
        self.clients[client] = link

    def send(self, client: int, *packets: Packet, turn: bool = True) -> None:
        link = self.clients[client]
        if link is not None and link.is_open:
            self.bench.send(link, *(in_runs([*packets]) if self.has_runs else packets), turn=turn)

    def send_puback(self, client: int, packet_id: int) -> None:
        """As a stream does it: a PUBACK that comes alone is offered to `acknowledged` first."""
        link = self.clients[client]
        if link is None or not link.is_open:
            return
        if self.has_runs and self.bench.core.acknowledged(link, packet_id, self.bench.now_ms):
            self.accepted += 1
        else:
            self.bench.core.receive(link, [puback(packet_id)], self.bench.now_ms)
        self.bench.turn()

    def answer(self, client: int, number: int) -> None:
        """Answer one of the packets that the client got and has not answered."""
        packets = self.unanswered[client]
        if not packets:
            return
        packet = packets.pop(number % len(packets))
        if is_pubrel(packet):
            self.send(client, pubcomp(packet.packet_id))
        elif isinstance(packet, Publish):
            if packet.qos == 1:
                self.send_puback(client, packet.packet_id)
            else:
                self.send(client, pubrec(packet.packet_id))

    def answer_all(self, client: int, unknown_at: int, swap: bool) -> None:
        """Answer everything in one read; one identifier among the answers may be unknown, or all of a wrong type."""
        answers: list[list[Packet]] = [[], [], [], []]
        for packet in self.unanswered[client]:
            if is_pubrel(packet):
                answers[0].append(pubcomp(packet.packet_id))
            elif isinstance(packet, Publish) and packet.qos == 1:
                answers[1].append(puback(packet.packet_id))
            elif isinstance(packet, Publish):
                answers[2].append(pubrec(packet.packet_id))
        answers[3] += map(pubrel, self.unreleased[client])
        for kind, same in zip((pubcomp, puback, pubrec, pubrel), answers, strict=True):
            if unknown_at < len(same):
                same.insert(unknown_at, kind(60_000))
        if swap:
            ids = [
                packet.packet_id for packet in self.unanswered[client] if isinstance(packet, (Publish, Acknowledgement))
            ]
            answers = [[kind(packet_id) for packet_id in ids] for kind in (pubcomp, puback, pubrec, pubrel)]
        self.unanswered[client].clear()
        self.unreleased[client].clear()
        self.send(client, *answers[3], *answers[2], *answers[1], *answers[0])

    def release_early(self, client: int, message: Publish) -> None:
        """A client that does not wait for the PUBRECs: several messages at QoS 2, with their PUBRELs behind them."""
        first = 100 + message.packet_id
        ids = range(first, first + 3)
        publishes = [Publish(message.topic_name, message.payload, 2, False, False, packet_id) for packet_id in ids]
        self.send(client, *publishes, *map(pubrel, ids))

    def answer_wrongly(self, client: int) -> None:
        """PUBACK for a message at QoS 2."""
        for packet in self.unanswered[client]:
            if isinstance(packet, Publish) and packet.qos == 2:
                self.send_puback(client, packet.packet_id)
                return

    def leave(self, client: int, orderly: bool) -> None:
        link = self.clients[client]
        self.clients[client] = None
        if link is not None and orderly:
            self.bench.send(link, Disconnect())
        elif link is not None:
            self.bench.lose(link)

    def come_back(self, client: int, room: int, receive_maximum: int, answers: str) -> None:
        """The client is lost, and gets only some of what it has not acknowledged over its new connection."""
        before = [packet for packet in self.unanswered[client] if isinstance(packet, Publish)]
        self.leave(client, orderly=False)
        self.connect(client, False, receive_maximum, room, None)
        self.finish()
        self.set_room(client, 5, is_noticed=False)
        got = [packet for packet in self.links[-1].got if isinstance(packet, Publish) and packet.qos]
        if answers == "one" and got and got[0].qos == 1:
            self.send_puback(client, got[0].packet_id)
        elif answers == "all":  # also what it has got over its last connection only
            self.send(client, *(puback(p.packet_id) if p.qos == 1 else pubrec(p.packet_id) for p in before))

    def be_away(self, client: int, publisher: int, messages: list[Packet], room: int, receive_maximum: int) -> None:
        """The client subscribes and is lost, is published to, and comes back to its queue."""
        self.connect(client, False, receive_maximum, 1_000_000, None)
        self.finish()
        self.send(client, Subscribe(9, [SubscriptionRequest("a/#", 2)]))
        self.finish()
        self.leave(client, orderly=False)
        self.send(publisher, *messages)
        self.finish()
        self.connect(client, False, receive_maximum, room, None)
        self.finish()

    def set_room(self, client: int, room: int, is_noticed: bool) -> None:
        """The client reads, or reads no more; the core learns of it at once, or when it asks the link."""
        link = self.clients[client]
        if link is not None:
            link.room = room
            if room and is_noticed:
                self.bench.core.writable(link)
                self.bench.turn()

    def end_turn(self) -> None:
        self.bench.turn()

    def look(self) -> list[object]:
        """Everything that can be seen from outside since the last time, and what decides about later."""
        sent: list[object] = []
        for link in self.links:
            got = link.take()
            messages = [packet for packet in got if isinstance(packet, Publish)]
            others = [packet for packet in got if not isinstance(packet, Publish)]
            sent.append((messages, others, link.take_ids(), link.closed, link.waiting, link.room))
            if link in self.clients:
                wanted = [p for p in got if is_pubrel(p) or (isinstance(p, Publish) and p.qos)]
                self.unanswered[self.clients.index(link)] += wanted
                released = [p.packet_id for p in got if is_pubrec(p) and p.reason < 0x80]
                self.unreleased[self.clients.index(link)] += released
        counters = attributes_of(self.bench.core.counters)
        del counters["others"]  # functions
        sessions = [
            (
                session.client_id,
                session.pending,
                session.heard_ms,
                sorted(session.received_ids.ids()),
                session.outbound.inflight.ids(),
                session.outbound.owed(),
                session.outbound.memory_bytes,
                session.owed(),
            )
            for session in self.bench.core.sessions()
        ]
        records = self.store.records[-20:] if isinstance(self.store, ScriptedStore) else []
        return [sent, counters, sessions, self.store.next_offset(), records]


# -- scripts ---------------------------------------------------------------------------------------------------------


def random_publish(
    random: Random, levels: tuple[int, ...] = (0, 1, 2), topic_names: list[str] = TOPIC_NAMES
) -> Publish:
    qos = random.choice(levels)
    payload = bytes(random.choice([0, 3, 10, 40]))
    retain = random.random() < 0.2
    packet_id = random.randint(1, 4) if qos else 0
    return Publish(random.choice(topic_names), payload, qos, retain, False, packet_id)


def connect_step(random: Random, client: int) -> tuple[str, Step]:
    clean, receive_maximum = random.random() < 0.6, random.choice([1, 2, 10, 10])
    room = random.choice([0, 1, 2, 1_000_000, 1_000_000, 1_000_000])
    will = Will("a", b"gone", random.randint(0, 2)) if random.random() < 0.3 else None
    text = f"connect {client} clean={clean} receive_maximum={receive_maximum} room={room} will={will}"
    return text, lambda side: side.connect(client, clean, receive_maximum, room, will)


def read_step(random: Random, client: int) -> tuple[str, Step]:
    packets: list[Packet]
    number = random.randrange(4)
    if number == 0:
        packets = [random_publish(random, (0, 0, 1), ADMITTED) for _ in range(3)]
    elif number == 1:
        packets = [random_publish(random, (1, 1, 2)) for _ in range(3)]
        if random.random() < 0.6:  # a run, which may have one that is retained in it, or be of retained ones (-1)
            topic_name, qos, retained = random.choice(ADMITTED), random.choice((1, 2)), random.choice([0, 2, 9, 9, -1])
            sizes = random.choices([0, 3, 10], k=random.choice([4, 4, 9]))
            packets = [
                Publish(topic_name, bytes(size), qos, retained in (number, -1), False, number + 1)
                for number, size in enumerate(sizes)
            ]
    else:
        packets = [random_publish(random)]
        if random.random() < 0.2:
            packets.insert(random.randrange(2), random.choice([Pingreq(), pubrel(random.randint(1, 4))]))
    return f"read {client} {packets}", lambda side: side.send(client, *packets)


def crowd_step(random: Random) -> tuple[str, Step]:
    """Several clients in one turn."""
    messages = [(random.randrange(CLIENTS), random_publish(random, (1, 1, 2))) for _ in range(3)]

    def run(side: Side) -> None:
        for client, message in messages:
            side.send(client, message, turn=False)
        side.end_turn()

    return f"one turn {messages}", run


def subscribe_step(random: Random, client: int) -> tuple[str, Step]:
    topic_filter = random.choice(TOPIC_FILTERS)
    if random.random() < 0.2:
        return f"unsubscribe {client} {topic_filter}", lambda side: side.send(client, Unsubscribe(7, [topic_filter]))
    request = SubscriptionRequest(
        topic_filter,
        random.randint(0, 2),
        random.random() < 0.2 and not topic_filter.startswith("$share"),
        random.random() < 0.2,
        random.choice([0, 0, 1, 2]),
        random.choice([0, 0, 7, 268_435_455]),
    )
    return f"subscribe {client} {request}", lambda side: side.send(client, Subscribe(8, [request]))


def away_step(random: Random, client: int) -> tuple[str, Step]:
    publisher = (client + random.randint(1, CLIENTS - 1)) % CLIENTS
    topic_name, levels = random.choice(["a", "a/b"]), random.choice([(1,), (2,), (1, 2)])
    count, room, maximum = random.randint(4, 12), random.choice([0, 3, 6, 1_000_000]), random.choice([2, 10, 10, 100])
    messages: list[Packet] = [
        Publish(topic_name, bytes(random.choice([3, 3, 10])), random.choice(levels), False, False, packet_id)
        for packet_id in range(200, 200 + count)
    ]
    text = f"away {client} {publisher} {messages} {room} {maximum}"
    return text, lambda side: side.be_away(client, publisher, messages, room, maximum)


def random_step(random: Random, with_absences: bool) -> tuple[str, Step]:
    client = random.randrange(CLIENTS)
    if with_absences and random.randrange(25) == 0:
        return away_step(random, client)
    number = random.randrange(100)
    if number < 30:
        return read_step(random, client)
    if number < 37:
        return crowd_step(random)
    if number < 41:
        unknown_at, swap = random.choice([0, 1, 2, 100, 100]), random.random() < 0.2
        return f"answer all {client} {unknown_at} {swap}", lambda side: side.answer_all(client, unknown_at, swap)
    if number < 43:
        message = random_publish(random, (2,), ADMITTED)
        return f"release early {client} {message}", lambda side: side.release_early(client, message)
    if number < 65:
        which = random.choice([0, 0, 0, 1, 2])
        return f"answer {client} {which}", lambda side: side.answer(client, which)
    if number < 69:
        if random.random() < 0.5:
            return f"puback {client} for QoS 2", lambda side: side.answer_wrongly(client)
        packet_id = random.randint(1, 30)
        return f"puback {client} {packet_id}", lambda side: side.send_puback(client, packet_id)
    if number < 79:
        return subscribe_step(random, client)
    if number < 81:
        return connect_step(random, client)
    if number < 85:
        room, maximum = random.choice([0, 1, 1, 2]), random.choice([2, 10])
        answers = random.choice(["none", "one", "all", "all"])
        text = f"come back {client} {room} {maximum} {answers}"
        return text, lambda side: side.come_back(client, room, maximum, answers)
    if number < 87:
        orderly = random.random() < 0.5
        return f"leave {client} orderly={orderly}", lambda side: side.leave(client, orderly)
    if number < 91:
        room, is_noticed = random.choice([0, 1, 3, 1_000_000]), random.random() < 0.5
        return f"room {client} {room} {is_noticed}", lambda side: side.set_room(client, room, is_noticed)
    if number < 94:
        seconds = random.choice([0.1, 1, 60])
        return f"pass {seconds} s", lambda side: side.bench.pass_s(seconds)
    return "finish", lambda side: side.finish()


def script(seed: int, steps: int, with_absences: bool = True) -> list[tuple[str, Step]]:
    """`with_absences`: clients come back to long queues. Where queues are short, publishers wait for those instead, and
    what they send in several steps is one turn, between whose packets the server keeps no order.
    """
    random = Random(seed)
    begin = [connect_step(random, client) for client in range(CLIENTS)]
    begin.append(("finish", lambda side: side.finish()))
    begin += [subscribe_step(random, client) for client in range(CLIENTS)]
    return begin + [random_step(random, with_absences) for _ in range(steps)] + [("finish", lambda side: side.finish())]


def compare(seed: int, steps: int, in_runs: Side, one_by_one: Side) -> None:
    done: list[str] = []
    for text, step in script(seed, steps, in_runs.limits is WIDE):
        done.append(text)
        step(in_runs)
        step(one_by_one)
        one, other = in_runs.look(), one_by_one.look()
        if one != other:
            differing = [pair for pair in zip(one, other, strict=True) if pair[0] != pair[1]]
            pytest.fail("\n".join([f"seed {seed}, after step {len(done)}:", *done[-12:], *map(str, differing)]))


# -- in memory ---------------------------------------------------------------------------------------------------------

STORES: dict[str, Callable[[], ScriptedStore]] = {
    "memory": lambda: ScriptedStore(late=False, queues=False),
    "queues": lambda: ScriptedStore(late=False),
    "late": lambda: ScriptedStore(),
}


@pytest.mark.parametrize("access", [AllowAll(), Rules()], ids=["open", "rules"])
@pytest.mark.parametrize("kind", STORES)
def test_runs_send_count_and_record_what_their_messages_do_one_by_one(kind: str, access: Access) -> None:
    for seed in range(60 if access.unrestricted else 10):
        limits = TIGHT if seed % 2 else WIDE
        sides = [Side(STORES[kind](), access, limits, in_runs) for in_runs in (True, False)]
        compare(seed, 120, sides[0], sides[1])
        stores = [side.store for side in sides]
        assert isinstance(stores[0], ScriptedStore) and isinstance(stores[1], ScriptedStore)
        assert stores[0].records == stores[1].records


def test_the_scripts_have_runs_and_the_other_side_has_none() -> None:
    """Else the comparison would compare one side with itself."""
    sides = [Side(STORES["memory"](), AllowAll(), WIDE, in_runs) for in_runs in (True, False)]
    for seed in range(10):
        for _, step in script(seed, 120):
            for side in sides:
                step(side)
                side.look()
    assert sides[0].accepted > 5
    assert sides[1].accepted == 0
    counts = [sum(link.sent_in_runs for link in side.links) for side in sides]
    assert counts[0] > 100 and counts[1] == 0


# -- on disk -----------------------------------------------------------------------------------------------------------


def on_disk(directory: Path, limits: Limits, in_runs: bool) -> Side:
    calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
    side = Side(DiskStore(directory, calls.put, JournalSettings(durability="os")), AllowAll(), limits, in_runs)

    def finish() -> None:
        """Wait until everything that was appended is durable, and released."""
        durable: list[bool] = []
        side.bench.core.when_durable(lambda: durable.append(True))
        side.bench.turn()
        while not durable:
            calls.get(timeout=60)()
            side.bench.turn()

    side.finish = finish
    return side


def log_of(directory: Path) -> list[dict[str, object]]:
    reader = LogReader(directory / "log")
    return [row for batch in reader.batches(*reader.bounds()) for row in batch.to_pylist()]


@pytest.mark.parametrize("seed", range(6))
def test_runs_write_the_same_log(tmp_path: Path, seed: int) -> None:
    directories = tmp_path / "runs", tmp_path / "one-by-one"
    limits = TIGHT if seed % 2 else WIDE
    sides = [on_disk(directory, limits, index == 0) for index, directory in enumerate(directories)]
    try:
        compare(seed, 150, sides[0], sides[1])
    finally:
        for side in sides:
            side.store.close()
    logs = [log_of(directory) for directory in directories]
    assert len(logs[0]) > 50
    assert logs[0] == logs[1]
