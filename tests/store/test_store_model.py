"""The journal against a model of a few lines: random work, crashes, lost states, trimming; the answers are the same."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from random import Random

from embermq.protocol.packets import Publish, SubscriptionRequest, Will
from embermq.store.budgets import RetainedBudget
from embermq.store.engines.disk import DiskStore
from embermq.store.engines.opening import JournalSettings
from embermq.store.errors import HistoryTrimmed
from embermq.store.interface import Queue, SavedSession, StoreError
from embermq.store.records import (
    PubrelReceived,
    RetainedRemoved,
    SessionEnded,
    SessionExpiryChanged,
    SharedQueueEnded,
    Subscribed,
    Unsubscribed,
    WillCleared,
    WillSet,
)
from embermq.store.state.retained_keys import topic_key
from embermq.store.state.state import StateSettings
from support.crashed_directory import copy_as_crashed
from support.store_calls import open_session, open_shared_queue, retained_scan

TOPICS = ["a", "a/b", "a/b/c", "a/c", "b", "b/c", "/", "a/\x01", "a\x02", "$x/a", "ü/b"]
RARE = ["rare/1", "rare/2", "rare/3", "a/rare"]  # these outlive the log that their message came with
FILTERS = ["#", "+", "a/#", "+/b", "a/+/c", "a/b", "$x/#", "+/+", "a/\x01"]
SETTINGS = JournalSettings(
    durability="os",  # a copy of the directory sees what the system has; no sync makes more histories in less time
    segment_bytes=16 * 1024,
    retention_bytes=48 * 1024,
    budgets=(
        RetainedBudget("a/#", count_max=1_000),
        RetainedBudget("#", bytes_max=10**9),
        RetainedBudget("b/c", expiry_s=25),
    ),
    # Small numbers make rare things happen often.
    state=StateSettings(flush_records=120, chunk_entries=4, clean_every=8, forgotten_topics=3),
    merged_records=30,
)
BUFFER_ENTRIES_MAX = (0, 40, 10_000)  # in turn: none, one that is often full, one that only flushes and readers empty


class ModelQueue:
    def __init__(self, queue_id: int) -> None:
        self.queue_id = queue_id
        self.messages: list[tuple[bytes, int, tuple[int, ...], int]] = []  # payload, qos, subscription ids, expiry
        self.acknowledged = 0
        self.released: set[int] = set()


class ModelSession(ModelQueue):
    def __init__(self, session_id: int) -> None:
        super().__init__(session_id)
        self.expiry_s = 60
        self.subscriptions: dict[str, tuple[int, int]] = {}  # qos, subscription id
        self.received: set[int] = set()


class Model:
    """What must be there, as of the last commit."""

    def __init__(self) -> None:
        self.changes: list[tuple[int, str, bytes, int]] = []  # instant, topic, payload (empty: cleared), expiry
        self.sessions: dict[str, ModelSession] = {}
        self.shared: dict[str, ModelQueue] = {}
        self.wills: dict[str, Will] = {}

    def retained(self, instant_us: int, with_expired: bool = False) -> dict[str, bytes]:
        current: dict[str, tuple[bytes, int]] = {}
        for at_us, topic_name, payload, expires_us in self.changes:
            if at_us <= instant_us:
                current[topic_name] = payload, expires_us
        return {
            topic_name: payload
            for topic_name, (payload, expires_us) in current.items()
            if payload and (with_expired or not 0 < expires_us <= instant_us)
        }


class Walk:
    """One random history."""

    def __init__(self, seed: int, tmp_path: Path) -> None:
        self.rng = Random(seed)
        self.tmp_path = tmp_path
        self.lives = 0
        self.states_from_checkpoints = 0
        self.directory = tmp_path / "life-0"
        self.calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self.now_us = 1_000_000
        self.model = Model()
        self.queues: dict[int, Queue] = {}
        entries_max = BUFFER_ENTRIES_MAX[seed % len(BUFFER_ENTRIES_MAX)]
        self.settings = replace(SETTINGS, state=replace(SETTINGS.state, buffer_entries_max=entries_max))
        self.journal = DiskStore(self.directory, self.calls.put, self.settings)

    def commit(self) -> None:
        reports: list[StoreError | None] = []
        if self.journal.commit(reports.append):
            return
        while not reports:
            self.calls.get(timeout=60)()
        assert reports == [None]

    def step(self) -> None:
        self.now_us += self.rng.choice([0, 1, 1_000, 20_000_000])
        self.journal.begin_turn(self.now_us)
        for _ in range(self.rng.randint(1, 12)):
            self.rng.choice(
                [
                    self.publish,
                    self.publish,
                    self.publish,
                    self.clear,
                    self.session,
                    self.acknowledge,
                    self.share,
                    self.will,
                ]
            )()
        if self.rng.random() < 0.5:
            self.remove_expired()
        self.commit()
        if self.rng.random() < 0.08:
            self.crash()

    def topic_name(self) -> str:
        return self.rng.choice(RARE if self.rng.random() < 0.02 else TOPICS)

    def publish(self) -> None:
        topic_name = self.topic_name()
        retain = self.rng.random() < 0.7
        payload = self.rng.randbytes(self.rng.choice([1, 5, 900]))
        interval_s = self.rng.choice([-1, -1, 0, 1, 30, 1_000])  # -1: none
        properties = b"\x02" + interval_s.to_bytes(4, "big") if interval_s >= 0 else b""
        expires_us = self.now_us + interval_s * 1_000_000 if interval_s >= 0 else 0
        message = Publish(
            topic_name,
            payload,
            self.rng.choice([1, 2]),
            retain,
            packet_id=self.rng.randint(1, 9),
            properties=properties,
            expires_us=expires_us,
        )
        senders = [session for session in self.model.sessions.values() if message.packet_id not in session.received]
        sender = self.rng.choice(senders) if senders and message.qos == 2 else None
        offset = self.journal.append_publish(message, "publisher", sender.queue_id if sender else 0)
        if sender:
            sender.received.add(message.packet_id)
        if retain:
            expiries_us = [expires_us] if expires_us else []
            if topic_name == "b/c":
                expiries_us.append(self.now_us + 25_000_000)  # its budget's
            self.model.changes.append((self.now_us, topic_name, payload, min(expiries_us, default=0)))
        for owed in self.all_queues():
            if self.rng.random() < 0.3:
                ids = self.rng.choice([(), (), (1,), (1, 300)])
                self.queues[owed.queue_id].push(message, self.rng.choice([offset, -1]), message.qos, retain, ids)
                owed.messages.append((payload, message.qos, ids, expires_us))

    def all_queues(self) -> list[ModelQueue]:
        return [*self.model.sessions.values(), *self.model.shared.values()]

    def clear(self) -> None:
        topic_name = self.topic_name()
        if self.rng.random() < 0.5:
            self.journal.append(RetainedRemoved(topic_name, "test"))
        else:
            self.journal.append_publish(Publish(topic_name, b"", 1, True), "publisher")
        self.model.changes.append((self.now_us, topic_name, b"", 0))

    def remove_expired(self) -> None:
        for topic_name in self.journal.retained.expired(self.now_us, self.rng.choice([1, 100])):
            assert topic_name not in self.model.retained(self.now_us)
            self.journal.append(RetainedRemoved(topic_name, "expired"))
            self.model.changes.append((self.now_us, topic_name, b"", 0))

    def share(self) -> None:
        share_filter = f"$share/{self.rng.choice('gh')}/a/#"
        known = self.model.shared.get(share_filter)
        if known is None:
            queue_id, queue = open_shared_queue(self.journal, share_filter)
            self.queues[queue_id] = queue
            self.model.shared[share_filter] = ModelQueue(queue_id)
        elif self.rng.random() < 0.1:
            self.journal.append(SharedQueueEnded(known.queue_id, share_filter))
            del self.model.shared[share_filter]

    def will(self) -> None:
        client_id = f"device-{self.rng.randint(1, 3)}"
        if self.rng.random() < 0.5:
            session = self.model.sessions.get(client_id)
            will = Will("w", self.rng.randbytes(3), self.rng.randint(0, 2), True, self.rng.choice([0, 70_000]), b"")
            self.journal.append(WillSet(client_id, session.queue_id if session else 0, "user", will))
            self.model.wills[client_id] = will
        else:
            self.journal.append(WillCleared(client_id))
            self.model.wills.pop(client_id, None)

    def session(self) -> None:
        client_id = f"device-{self.rng.randint(1, 3)}"
        known = self.model.sessions.get(client_id)
        if known is None:
            saved = open_session(self.journal, client_id, "", 60)
            assert saved.queue is not None
            self.queues[saved.session_id] = saved.queue
            self.model.sessions[client_id] = ModelSession(saved.session_id)
        elif self.rng.random() < 0.15:
            self.journal.append(SessionEnded(known.queue_id, client_id))
            del self.model.sessions[client_id]
        elif self.rng.random() < 0.1:
            known.expiry_s = self.rng.randint(0, 1_000)
            self.journal.append(SessionExpiryChanged(known.queue_id, client_id, known.expiry_s))
        elif known.received and self.rng.random() < 0.5:
            packet_id = known.received.pop()
            self.journal.append(PubrelReceived(known.queue_id, client_id, packet_id))
        elif self.rng.random() < 0.7:
            topic_filter = self.rng.choice(FILTERS)
            request = SubscriptionRequest(
                topic_filter, self.rng.randint(0, 2), subscription_id=self.rng.choice([0, 1, 20_000])
            )
            self.journal.append(Subscribed(client_id, known.queue_id, request, False))
            known.subscriptions[topic_filter] = request.qos, request.subscription_id
        elif known.subscriptions:
            topic_filter = self.rng.choice(sorted(known.subscriptions))
            self.journal.append(Unsubscribed(client_id, known.queue_id, topic_filter))
            del known.subscriptions[topic_filter]

    def acknowledge(self) -> None:
        for owed in self.all_queues():
            queue = self.queues[owed.queue_id]
            found = queue.read(0, self.rng.randint(1, 40))
            if found and self.rng.random() < 0.5:
                released = self.rng.choice(found).sequence
                queue.release(released)
                owed.released.add(released)
            if found and self.rng.random() < 0.7:
                owed.acknowledged = self.rng.choice(found).sequence
                queue.acknowledge(owed.acknowledged)

    def crash(self) -> None:
        """What a kill leaves, sometimes without the state; or an orderly end."""
        # What was not acknowledged may be lost or not; here it is lost, as it is not written.
        self.journal.append_publish(Publish("a", b"never committed", 1, True), "publisher")
        if self.rng.random() < 0.3:
            self.commit()
            self.model.changes.append((self.now_us, "a", b"never committed", 0))
            self.journal.close()
        else:
            self.lives += 1
            crashed = self.tmp_path / f"life-{self.lives}"
            copy_as_crashed(self.directory, crashed)
            if self.rng.random() < 0.3:
                shutil.rmtree(crashed / "state")
                self.states_from_checkpoints += not self.is_untrimmed()
            self.journal.close()
            shutil.rmtree(self.directory)
            self.directory = crashed
        self.calls = SimpleQueue()
        self.journal = DiskStore(self.directory, self.calls.put, self.settings)
        saved = {session.client_id: session for session in self.journal.sessions.load()}
        self.check_sessions(saved)
        self.queues = {s.session_id: queue for s in saved.values() if (queue := s.queue) is not None}
        self.queues |= {s.queue_id: s.queue for s in self.journal.sessions.shared_queues()}

    def is_untrimmed(self) -> bool:
        return (self.directory / "log" / f"{1:020d}.log").exists()

    def check(self) -> None:
        self.journal.begin_turn(self.now_us)
        expected = self.model.retained(self.now_us)
        found = list(retained_scan(self.journal, "#", "", 100_000))
        everything = {r.topic_name: r.payload for r in [*found, *retained_scan(self.journal, "$x/#", "", 100_000)]}
        assert everything == expected
        kept = self.model.retained(self.now_us, with_expired=True)
        sizes = {topic_name: len(topic_name.encode()) + len(payload) for topic_name, payload in kept.items()}
        assert set(self.journal.retained.expired(self.now_us, 1_000)) == kept.keys() - expected.keys()
        assert self.journal.retained.totals() == (len(sizes), sum(sizes.values()))
        below_a = [size for topic_name, size in sizes.items() if topic_name == "a" or topic_name.startswith("a/")]
        assert self.journal.retained.budget_totals() == [
            ("a/#", len(below_a), sum(below_a)),
            ("#", len(sizes), sum(sizes.values())),
            ("b/c", int("b/c" in sizes), sizes.get("b/c", 0)),
        ]
        for _ in range(5):
            self.check_past(self.rng.randint(1_000_000, self.now_us))

    def check_past(self, instant_us: int) -> None:
        expected = self.model.retained(instant_us)
        try:
            found = [
                *self.journal.history.as_of("#", "", 100, instant_us),
                *self.journal.history.as_of("$x/#", "", 100, instant_us),
            ]
        except HistoryTrimmed as trimmed:
            assert instant_us < trimmed.begins_us
            return
        assert {r.topic_name: r.payload for r in found} == expected, instant_us
        assert all(r.timestamp_us <= instant_us for r in found)
        names = [r.topic_name for r in found if not r.topic_name.startswith("$")]
        assert names == sorted(names, key=topic_key)

    def check_sessions(self, saved: dict[str, SavedSession]) -> None:
        assert saved.keys() == self.model.sessions.keys()
        for client_id, session in self.model.sessions.items():
            found = saved[client_id]
            assert (found.session_id, found.session_expiry_s) == (session.queue_id, session.expiry_s)
            assert {
                request.topic_filter: (request.qos, request.subscription_id) for request, _ in found.subscriptions
            } == session.subscriptions
            assert found.received_ids == session.received
            assert found.queue is not None
            self.check_queue(found.queue, session)
        shared = {found.share_filter: found for found in self.journal.sessions.shared_queues()}
        assert shared.keys() == self.model.shared.keys()
        for share_filter, owed in self.model.shared.items():
            assert shared[share_filter].queue_id == owed.queue_id
            self.check_queue(shared[share_filter].queue, owed)
        assert {saved.client_id: saved.will for saved in self.journal.sessions.wills()} == self.model.wills

    def check_queue(self, queue: Queue, owed: ModelQueue) -> None:
        assert (queue.acknowledged(), queue.last()) == (owed.acknowledged, len(owed.messages))
        read = queue.read(0, 100_000)
        assert [q.sequence for q in read] == list(range(owed.acknowledged + 1, len(owed.messages) + 1))
        found = [(q.messages[0].payload, q.qos, q.subscription_ids, q.messages[0].expires_us) for q in read]
        assert found == owed.messages[owed.acknowledged :]
        assert {q.sequence for q in read if q.released} == {
            sequence for sequence in owed.released if sequence > owed.acknowledged
        }


def test_the_journal_answers_as_the_model_does(tmp_path: Path) -> None:
    states_from_checkpoints = 0
    for seed in range(6):
        states_from_checkpoints += _walk(seed, tmp_path / str(seed))
    assert states_from_checkpoints >= 2


def _walk(seed: int, tmp_path: Path) -> int:
    """Returns how often the state was made from a checkpoint."""
    walk = Walk(seed, tmp_path)
    for _ in range(14):
        for _ in range(8):
            walk.step()
        walk.check()
    walk.journal.close()
    walk.journal = DiskStore(walk.directory, walk.calls.put, walk.settings)
    walk.check()
    walk.check_sessions({session.client_id: session for session in walk.journal.sessions.load()})
    assert not walk.is_untrimmed()
    walk.journal.close()
    return walk.states_from_checkpoints
