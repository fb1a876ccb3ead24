"""The journal against a model of a few lines: random work, crashes, lost states, trimming; the answers are the same."""

import shutil
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from random import Random

import pytest

from embermq.protocol.packets import Publish, SubscriptionRequest
from embermq.store.budgets import RetainedBudget
from embermq.store.errors import HistoryTrimmed
from embermq.store.interface import Queue, SavedSession, StoreError
from embermq.store.journal import Journal
from embermq.store.opening import JournalSettings
from embermq.store.state.retained_keys import topic_key
from embermq.store.state.state import StateSettings
from support.crashed_directory import copy_as_crashed

TOPICS = ["a", "a/b", "a/b/c", "a/c", "b", "b/c", "/", "a/\x01", "a\x02", "$x/a", "ü/b"]
RARE = ["rare/1", "rare/2", "rare/3", "a/rare"]  # these outlive the log that their message came with
FILTERS = ["#", "+", "a/#", "+/b", "a/+/c", "a/b", "$x/#", "+/+", "a/\x01"]
SETTINGS = JournalSettings(
    durability="os",  # a copy of the directory sees what the system has; no sync makes more histories in less time
    segment_bytes=16 * 1024,
    retention_bytes=48 * 1024,
    budgets=(RetainedBudget("a/#", count_max=1_000), RetainedBudget("#", bytes_max=10**9)),
    # Small numbers make rare things happen often.
    state=StateSettings(flush_records=120, chunk_entries=4, clean_every=8, forgotten_topics=3),
    merged_records=30,
)


class ModelSession:
    def __init__(self, session_id: int) -> None:
        self.session_id = session_id
        self.subscriptions: dict[str, int] = {}
        self.received: set[int] = set()
        self.messages: list[tuple[bytes, int]] = []
        self.acknowledged = 0
        self.released: set[int] = set()


class Model:
    """What must be there, as of the last commit."""

    def __init__(self) -> None:
        self.changes: list[tuple[int, str, bytes]] = []  # instant, topic, payload (empty: cleared)
        self.sessions: dict[str, ModelSession] = {}

    def retained(self, instant_us: int) -> dict[str, bytes]:
        current: dict[str, bytes] = {}
        for at_us, topic_name, payload in self.changes:
            if at_us <= instant_us:
                current[topic_name] = payload
        return {topic_name: payload for topic_name, payload in current.items() if payload}


class Walk:
    """One random history."""

    def __init__(self, seed: int, tmp_path: Path) -> None:
        self.rng = Random(seed)
        self.tmp_path = tmp_path
        self.lives = 0
        self.directory = tmp_path / "life-0"
        self.calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self.now_us = 1_000_000
        self.model = Model()
        self.queues: dict[str, Queue] = {}
        self.journal = Journal(self.directory, self.calls.put, SETTINGS)

    def commit(self) -> None:
        reports: list[StoreError | None] = []
        if self.journal.commit(reports.append):
            return
        while not reports:
            self.calls.get(timeout=30)()
        assert reports == [None]

    def step(self) -> None:
        self.now_us += self.rng.choice([0, 1, 1_000, 20_000_000])
        self.journal.begin_turn(self.now_us)
        for _ in range(self.rng.randint(1, 12)):
            self.rng.choice([self.publish, self.publish, self.publish, self.clear, self.session, self.acknowledge])()
        self.commit()
        if self.rng.random() < 0.08:
            self.crash()

    def topic_name(self) -> str:
        return self.rng.choice(RARE if self.rng.random() < 0.02 else TOPICS)

    def publish(self) -> None:
        topic_name = self.topic_name()
        retain = self.rng.random() < 0.7
        payload = self.rng.randbytes(self.rng.choice([1, 5, 900]))
        message = Publish(topic_name, payload, self.rng.choice([1, 2]), retain, packet_id=self.rng.randint(1, 9))
        senders = [session for session in self.model.sessions.values() if message.packet_id not in session.received]
        sender = self.rng.choice(senders) if senders and message.qos == 2 else None
        offset = self.journal.append_publish(message, "publisher", sender.session_id if sender else 0)
        if sender:
            sender.received.add(message.packet_id)
        if retain:
            self.model.changes.append((self.now_us, topic_name, payload))
        for client_id, session in self.model.sessions.items():
            if self.rng.random() < 0.3:
                self.queues[client_id].push(message, self.rng.choice([offset, -1]), message.qos, retain)
                session.messages.append((payload, message.qos))

    def clear(self) -> None:
        topic_name = self.topic_name()
        if self.rng.random() < 0.5:
            self.journal.append_retained_removed(topic_name, "test")
        else:
            self.journal.append_publish(Publish(topic_name, b"", 1, True), "publisher")
        self.model.changes.append((self.now_us, topic_name, b""))

    def session(self) -> None:
        client_id = f"device-{self.rng.randint(1, 3)}"
        known = self.model.sessions.get(client_id)
        if known is None:
            saved = self.journal.open_session(client_id, "", 60)
            assert saved.queue is not None
            self.queues[client_id] = saved.queue
            self.model.sessions[client_id] = ModelSession(saved.session_id)
        elif self.rng.random() < 0.15:
            self.journal.end_session(known.session_id, client_id)
            del self.model.sessions[client_id]
        elif known.received and self.rng.random() < 0.5:
            packet_id = known.received.pop()
            self.journal.append_pubrel(known.session_id, client_id, packet_id)
        elif self.rng.random() < 0.7:
            topic_filter = self.rng.choice(FILTERS)
            request = SubscriptionRequest(topic_filter, self.rng.randint(0, 2))
            self.journal.append_subscribed(client_id, known.session_id, request, request.qos, False)
            known.subscriptions[topic_filter] = request.qos
        elif known.subscriptions:
            topic_filter = self.rng.choice(sorted(known.subscriptions))
            self.journal.append_unsubscribed(client_id, known.session_id, topic_filter)
            del known.subscriptions[topic_filter]

    def acknowledge(self) -> None:
        for client_id, session in self.model.sessions.items():
            queue = self.queues[client_id]
            found = queue.read(0, self.rng.randint(1, 40))
            if found and self.rng.random() < 0.5:
                released = self.rng.choice(found).sequence
                queue.release(released)
                session.released.add(released)
            if found and self.rng.random() < 0.7:
                session.acknowledged = self.rng.choice(found).sequence
                queue.acknowledge(session.acknowledged)

    def crash(self) -> None:
        """What a kill leaves, sometimes without the state; or an orderly end."""
        # What was not acknowledged may be lost or not; here it is lost, as it is not written.
        self.journal.append_publish(Publish("a", b"never committed", 1, True), "publisher")
        if self.rng.random() < 0.3:
            self.commit()
            self.model.changes.append((self.now_us, "a", b"never committed"))
            self.journal.close()
        else:
            self.lives += 1
            crashed = self.tmp_path / f"life-{self.lives}"
            copy_as_crashed(self.directory, crashed)
            if self.rng.random() < 0.2 and self.is_untrimmed():
                shutil.rmtree(crashed / "state")
            self.journal.close()
            shutil.rmtree(self.directory)
            self.directory = crashed
        self.calls = SimpleQueue()
        self.journal = Journal(self.directory, self.calls.put, SETTINGS)
        saved = {session.client_id: session for session in self.journal.sessions()}
        self.check_sessions(saved)
        self.queues = {client_id: queue for client_id, s in saved.items() if (queue := s.queue) is not None}

    def is_untrimmed(self) -> bool:
        """Only a log that reaches back to the beginning can give everything again."""
        return (self.directory / "log" / f"{1:020d}.log").exists()

    def check(self) -> None:
        expected = self.model.retained(self.now_us)
        found = list(self.journal.retained_scan("#", "", 100_000))
        everything = {r.topic_name: r.payload for r in [*found, *self.journal.retained_scan("$x/#", "", 100_000)]}
        assert everything == expected
        sizes = {topic_name: len(topic_name.encode()) + len(payload) for topic_name, payload in expected.items()}
        assert self.journal.retained_totals() == (len(sizes), sum(sizes.values()))
        below_a = [size for topic_name, size in sizes.items() if topic_name == "a" or topic_name.startswith("a/")]
        assert self.journal.retained_budget_totals() == [
            ("a/#", len(below_a), sum(below_a)),
            ("#", len(sizes), sum(sizes.values())),
        ]
        for _ in range(5):
            self.check_past(self.rng.randint(1_000_000, self.now_us))

    def check_past(self, instant_us: int) -> None:
        expected = self.model.retained(instant_us)
        try:
            found = [
                *self.journal.retained_as_of("#", "", 100, instant_us),
                *self.journal.retained_as_of("$x/#", "", 100, instant_us),
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
            assert found.session_id == session.session_id
            assert {request.topic_filter: request.qos for request, _ in found.subscriptions} == session.subscriptions
            assert found.received_ids == session.received
            queue = found.queue
            assert queue is not None
            assert (queue.acknowledged(), queue.last()) == (session.acknowledged, len(session.messages))
            read = queue.read(0, 100_000)
            assert [q.sequence for q in read] == list(range(session.acknowledged + 1, len(session.messages) + 1))
            assert [(q.message.payload, q.qos) for q in read] == session.messages[session.acknowledged :]
            assert {q.sequence for q in read if q.released} == {
                sequence for sequence in session.released if sequence > session.acknowledged
            }


@pytest.mark.parametrize("seed", range(6))
def test_the_journal_answers_as_the_model_does(seed: int, tmp_path: Path) -> None:
    walk = Walk(seed, tmp_path)
    for _ in range(14):
        for _ in range(8):
            walk.step()
        walk.check()
    walk.journal.close()
    walk.journal = Journal(walk.directory, walk.calls.put, SETTINGS)
    walk.check()
    walk.check_sessions({session.client_id: session for session in walk.journal.sessions()})
    assert not walk.is_untrimmed()
    walk.journal.close()
