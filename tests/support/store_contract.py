"""What every engine of the store does alike, as tests to inherit.

A test class names its engine by a fixture `engine` (an `Engine`); `reopened` gives the store after a restart, for
engines that keep something.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from queue import SimpleQueue
from random import Random

from embermq.protocol.packets import Delivery, Publish, SubscriptionRequest, Will
from embermq.protocol.topics import matches
from embermq.store.budgets import RetainedBudget
from embermq.store.interface import Retained, SavedSession, Store, StoreError
from embermq.store.records import (
    Disconnected,
    PositionMoved,
    PubrelReceived,
    RetainedRemoved,
    SessionEnded,
    SessionExpiryChanged,
    SessionResumed,
    SharedQueueEnded,
    Subscribed,
    Unsubscribed,
    WillCleared,
    WillSet,
)
from embermq.store.state.retained_keys import topic_key
from support.store_calls import open_session, open_shared_queue, retained_scan

Opener = Callable[[Callable[[Callable[[], None]], None], tuple[RetainedBudget, ...]], Store]


@dataclass
class Engine:
    """A store and the loop that a shell would be."""

    opener: Opener
    budgets: tuple[RetainedBudget, ...] = ()
    calls: "SimpleQueue[Callable[[], None]]" = field(default_factory=SimpleQueue)
    now_us: int = 1_000_000

    def __post_init__(self) -> None:
        self.store = self.opener(self.calls.put, self.budgets)

    def reopen(self) -> Store:
        self.store.close()
        self.store = self.opener(self.calls.put, self.budgets)
        return self.store

    def turn(self, step_us: int = 1_000) -> int:
        self.now_us += step_us
        self.store.begin_turn(self.now_us)
        return self.now_us

    def commit(self) -> list[StoreError]:
        """Commit and wait for it; returns the errors that were reported on the way."""
        reports: list[StoreError | None] = []
        if self.store.commit(reports.append):
            return []
        while not reports or reports[-1] is not None:
            self.calls.get(timeout=60)()
        return [error for error in reports if error is not None]

    def publish(
        self, topic_name: str, payload: bytes = b"x", qos: int = 1, retain: bool = True, properties: bytes = b""
    ) -> int:
        return self.store.append_publish(Publish(topic_name, payload, qos, retain, properties=properties), "publisher")


def expiring(interval_s: int) -> bytes:
    """A Message Expiry Interval, as the properties of a message begin with it."""
    return b"\x02" + interval_s.to_bytes(4, "big")


def names(found: list[Retained]) -> list[str]:
    return [retained.topic_name for retained in found]


def sequences(found: list[Delivery]) -> list[int]:
    return [queued.sequence for queued in found]


class StoreContract:
    """Behaviours of every engine."""

    def test_a_retained_message_is_found_as_it_was_published(self, engine: Engine) -> None:
        now_us = engine.turn()
        offset = engine.publish("a/b", b"payload", qos=2, properties=b"\x01\x00")
        engine.commit()
        found = engine.store.retained.get("a/b")
        assert found is not None
        assert (found.topic_name, found.payload, found.qos) == ("a/b", b"payload", 2)
        assert (found.properties, found.offset, found.timestamp_us) == (b"\x01\x00", offset, now_us)
        assert found.client_id == "publisher"
        assert engine.store.retained.get("a") is None

    def test_the_last_of_several_in_one_group_is_retained(self, engine: Engine) -> None:
        engine.turn()
        for payload in (b"1", b"22", b"333"):
            engine.publish("a", payload)
        engine.publish("b", b"gone")
        engine.publish("b", b"")
        engine.commit()
        found = engine.store.retained.get("a")
        assert found is not None and found.payload == b"333"
        assert engine.store.retained.get("b") is None
        assert engine.store.retained.totals() == (1, 4)

    def test_zero_bytes_clear_and_are_never_retained(self, engine: Engine) -> None:
        engine.turn()
        engine.publish("a")
        engine.commit()
        engine.publish("a", b"")
        engine.publish("never-there", b"")
        engine.commit()
        assert engine.store.retained.get("a") is None
        assert engine.store.retained.totals() == (0, 0)
        assert retained_scan(engine.store, "#", "", 10) == []

    def test_a_publish_without_retain_touches_nothing(self, engine: Engine) -> None:
        engine.turn()
        engine.publish("a", b"kept")
        engine.publish("a", b"live", retain=False)
        engine.publish("a", b"", retain=False)
        engine.commit()
        found = engine.store.retained.get("a")
        assert found is not None and found.payload == b"kept"

    def test_removal_without_a_publish_clears(self, engine: Engine) -> None:
        engine.turn()
        engine.publish("a")
        engine.publish("b")
        engine.commit()
        engine.store.append(RetainedRemoved("a", "expired"))
        engine.store.append(RetainedRemoved("never-there", "expired"))
        engine.commit()
        assert names(retained_scan(engine.store, "#", "", 10)) == ["b"]

    def test_offsets_rise_by_the_records_appended(self, engine: Engine) -> None:
        engine.turn()
        offsets = [engine.publish("a") for _ in range(3)]
        engine.commit()
        offsets += [engine.publish("a") for _ in range(2)]
        assert offsets == list(range(offsets[0], offsets[0] + 5))
        assert engine.store.next_offset() == offsets[-1] + 1
        engine.commit()

    def test_totals_count_topic_and_payload_bytes(self, engine: Engine) -> None:
        engine.turn()
        engine.publish("a/b", b"12345")
        engine.publish("ü", b"1")
        engine.commit()
        assert engine.store.retained.totals() == (2, 3 + 5 + 2 + 1)
        engine.publish("a/b", b"1")
        engine.commit()
        assert engine.store.retained.totals() == (2, 3 + 1 + 2 + 1)

    def test_a_scan_finds_what_matching_every_topic_would(self, engine: Engine) -> None:
        rng = Random(7)
        levels = ["", "a", "b", "$x", "a!", "ü", "\x01", "\x02"]
        topics = {"/".join(rng.choice(levels) for _ in range(rng.randint(1, 4))) for _ in range(300)} - {""}
        engine.turn()
        for topic_name in topics:
            engine.publish(topic_name)
        engine.commit()
        ordered = sorted(topics, key=topic_key)
        for topic_filter in ("#", "+", "+/+", "a/#", "a/+/b", "+/a/#", "$x/#", "$x/+", "a/b", "/+", "+/#", "a!/#"):
            expected = [topic_name for topic_name in ordered if matches(topic_filter, topic_name)]
            assert names(retained_scan(engine.store, topic_filter, "", 10_000)) == expected, topic_filter
            pieces: list[str] = []
            while True:
                piece = names(retained_scan(engine.store, topic_filter, pieces[-1] if pieces else "", 7))
                pieces += piece
                if len(piece) < 7:
                    break
            assert pieces == expected, topic_filter

    def test_a_scan_goes_on_after_a_topic_that_is_gone(self, engine: Engine) -> None:
        engine.turn()
        for topic_name in ("a/1", "a/2", "a/3", "a/4"):
            engine.publish(topic_name)
        engine.commit()
        assert names(retained_scan(engine.store, "a/#", "", 2)) == ["a/1", "a/2"]
        engine.publish("a/2", b"")
        engine.publish("a/25", b"new")
        engine.commit()
        assert names(retained_scan(engine.store, "a/#", "a/2", 2)) == ["a/25", "a/3"]
        assert retained_scan(engine.store, "a/#", "a/4", 2) == []
        assert retained_scan(engine.store, "a/#", "", 0) == []

    def test_a_scan_ends_where_the_bytes_do(self, engine: Engine) -> None:
        engine.turn()
        for number in range(1, 7):
            engine.publish(f"a/{number}", bytes(100 * number))
        engine.commit()

        def piece(topic_filter: str, after: str, limit: int, bytes_max: int) -> tuple[list[str], str, bool]:
            found = engine.store.retained.piece(topic_filter, after, limit, bytes_max, 1_000)
            assert found.size_bytes == sum(len(retained.topic) + len(retained.payload) for retained in found.found())
            return names(found.found()), found.after_topic_name, found.done

        assert piece("a/#", "", 10, 300) == (["a/1", "a/2"], "a/2", False)
        assert piece("a/#", "a/2", 10, 300) == (["a/3"], "a/3", False)
        assert piece("+/4", "", 10, 1) == (["a/4"], "a/4", False)
        assert piece("+/4", "a/4", 10, 1)[::2] == ([], True)
        assert piece("a/#", "a/3", 2, 10_000) == (["a/4", "a/5"], "a/5", False)
        names_found, _, done = piece("a/#", "a/4", 10, 10_000)
        assert (names_found, done) == (["a/5", "a/6"], True)

    def test_a_piece_ends_after_so_many_looks_and_the_next_goes_on_there(self, engine: Engine) -> None:
        engine.turn()
        for number in range(100):
            engine.publish(f"{number:02}/{'hit' if number % 40 == 39 else 'miss'}")
        engine.commit()
        for topic_filter in ("+/hit", "+/hit/#", "+/none", "+/+/hit"):
            whole = names(retained_scan(engine.store, topic_filter, "", 1_000))
            found: list[str] = []
            after, done, pieces = "", False, 0
            while not done:
                piece = engine.store.retained.piece(topic_filter, after, 10, 1_000, 7)
                assert piece.seeks <= 7
                found += names(piece.found())
                after, done, pieces = piece.after_topic_name, piece.done, pieces + 1
            assert found == whole, topic_filter
            assert pieces > 5

    def test_a_retained_message_expires_by_its_own_interval(self, engine: Engine) -> None:
        start_us = engine.turn()
        engine.publish("a/1", properties=expiring(10) + b"\x01\x01")
        engine.publish("a/2")
        engine.publish("a/3", properties=expiring(20))
        engine.commit()
        found = engine.store.retained.get("a/1")
        assert found is not None and found.properties == expiring(10) + b"\x01\x01"
        assert found.expires_us == start_us + 10_000_000
        engine.turn(9_999_999)
        assert names(retained_scan(engine.store, "a/#", "", 10)) == ["a/1", "a/2", "a/3"]
        engine.turn(1)
        assert engine.store.retained.get("a/1") is None
        for topic_filter in ("a/#", "a/+"):
            assert names(retained_scan(engine.store, topic_filter, "", 10)) == ["a/2", "a/3"]
            assert names(retained_scan(engine.store, topic_filter, "", 1)) == ["a/2"]
            assert names(engine.store.retained.piece(topic_filter, "", 10, 1_000, 100).found()) == ["a/2", "a/3"]
        assert retained_scan(engine.store, "a/1", "", 10) == []
        assert engine.store.retained.totals()[0] == 3
        assert engine.store.retained.expired(engine.now_us, 10) == ["a/1"]
        engine.store.append(RetainedRemoved("a/1", "expired"))
        engine.commit()
        assert engine.store.retained.expired(engine.now_us, 10) == []
        assert engine.store.retained.totals()[0] == 2
        assert engine.store.retained.expired(start_us + 20_000_000, 10) == ["a/3"]

    def test_a_message_that_replaces_another_expires_when_its_own_interval_says(self, engine: Engine) -> None:
        start_us = engine.turn()
        for topic_name in ("earlier", "later", "never", "twice"):
            engine.publish(topic_name, properties=expiring(50))
        engine.commit()
        engine.publish("earlier", properties=expiring(5))
        engine.publish("later", properties=expiring(500))
        engine.publish("never")
        engine.publish("twice", properties=expiring(3))
        engine.publish("twice", properties=expiring(400))
        engine.commit()
        assert engine.store.retained.expired(start_us + 50_000_000, 10) == ["earlier"]
        assert engine.store.retained.expired(start_us + 1_000_000_000, 10) == ["earlier", "twice", "later"]
        engine.turn(100_000_000)
        assert names(retained_scan(engine.store, "#", "", 10)) == ["later", "never", "twice"]

    def test_a_message_expires_by_its_interval_or_its_budget_whichever_is_earlier(self, engine: Engine) -> None:
        engine.budgets = (RetainedBudget("a/#", expiry_s=60),)
        store = engine.reopen()
        start_us = engine.turn()
        engine.publish("a/1", properties=expiring(10))
        engine.publish("a/2", properties=expiring(100))
        engine.publish("b", properties=expiring(100))
        engine.commit()
        found = {retained.topic_name: retained.expires_us - start_us for retained in retained_scan(store, "#", "", 10)}
        assert found == {"a/1": 10_000_000, "a/2": 60_000_000, "b": 100_000_000}
        engine.turn(60_000_000)
        assert names(retained_scan(store, "#", "", 10)) == ["b"]
        assert store.retained.expired(engine.now_us, 10) == ["a/1", "a/2"]

    def test_an_interval_of_zero_has_passed_at_once(self, engine: Engine) -> None:
        engine.turn()
        engine.publish("a", b"before")
        engine.publish("a", properties=expiring(0))
        engine.commit()
        assert engine.store.retained.get("a") is None
        assert engine.store.retained.expired(engine.now_us, 10) == ["a"]

    def test_a_message_that_is_retained_again_meanwhile_is_not_removed(self, engine: Engine) -> None:
        engine.turn()
        engine.publish("a", properties=expiring(1))
        engine.publish("b", properties=expiring(1))
        engine.commit()
        engine.turn(2_000_000)
        engine.publish("a", b"new")  # perhaps not durable yet
        assert engine.store.retained.expired(engine.now_us, 10) == ["b"]
        engine.store.append(RetainedRemoved("b", "expired"))
        assert engine.store.retained.expired(engine.now_us, 10) == []
        engine.commit()
        assert names(retained_scan(engine.store, "#", "", 10)) == ["a"]

    def test_pieces_pass_over_any_number_of_expired_messages_within_their_bounds(self, engine: Engine) -> None:
        engine.turn()
        for number in range(100):
            engine.publish(f"a/{number:02}", properties=expiring(1) if number % 30 else b"")
        engine.commit()
        engine.turn(2_000_000)
        for topic_filter in ("a/#", "a/+", "+/+"):
            found: list[str] = []
            after, done, pieces = "", False, 0
            while not done:
                piece = engine.store.retained.piece(topic_filter, after, 10, 1_000, 100)
                found += names(piece.found())
                after, done, pieces = piece.after_topic_name, piece.done, pieces + 1
            assert found == ["a/00", "a/30", "a/60", "a/90"], topic_filter
            assert pieces >= 10

    def test_wills_and_expiries_are_taken_at_any_moment(self, engine: Engine) -> None:
        engine.turn()
        session_id = open_session(engine.store, "device", "", 3600).session_id
        engine.store.append(SessionExpiryChanged(session_id, "device", 0))
        engine.store.append(WillSet("device", session_id, "", Will("a", b"gone")))
        engine.store.append(WillCleared("device"))
        engine.store.append(WillCleared("never set"))
        engine.commit()
        assert engine.store.sessions.wills() == []

    def test_a_budget_of_messages_refuses_only_what_is_new(self, engine: Engine) -> None:
        engine.budgets = (RetainedBudget("a/#", count_max=2),)
        store = engine.reopen()
        engine.turn()
        engine.publish("a/1")
        assert store.retained.admits("a/2", 1) == ""
        engine.publish("a/2")
        assert "a/#" in store.retained.admits("a/3", 1)
        engine.commit()
        assert "a/#" in store.retained.admits("a/3", 1)
        assert store.retained.admits("a/2", 1_000) == ""
        assert store.retained.admits("b", 1_000) == ""
        assert store.retained.admits("a/3", 0) == ""
        engine.publish("a/1", b"")
        assert store.retained.admits("a/3", 1) == ""
        engine.commit()
        assert store.retained.admits("a/3", 1) == ""

    def test_a_budget_of_bytes_counts_topic_and_payload(self, engine: Engine) -> None:
        engine.budgets = (RetainedBudget("#", bytes_max=10),)
        store = engine.reopen()
        engine.turn()
        engine.publish("a", b"12345")
        assert store.retained.admits("b", 3) == ""
        assert store.retained.admits("b", 4) != ""
        engine.commit()
        assert store.retained.admits("a", 9) == ""
        assert store.retained.admits("a", 10) != ""
        assert store.retained.admits("$x", 3) != ""

    def test_a_message_expires_with_its_subtree_unless_it_is_replaced(self, engine: Engine) -> None:
        engine.budgets = (RetainedBudget("a/#", expiry_s=60), RetainedBudget("#", expiry_s=600))
        store = engine.reopen()
        start_us = engine.turn()
        engine.publish("a/1")
        engine.publish("b")
        engine.commit()
        assert store.retained.expired(start_us + 59_999_999, 10) == []
        assert store.retained.expired(start_us + 60_000_000, 10) == ["a/1"]
        assert store.retained.expired(start_us + 600_000_000, 10) == ["a/1", "b"]
        assert store.retained.expired(start_us + 600_000_000, 1) == ["a/1"]
        engine.turn(30_000_000)
        engine.publish("a/1")
        engine.commit()
        assert store.retained.expired(start_us + 60_000_000, 10) == []
        store.append(RetainedRemoved("a/1", "expired"))
        engine.commit()
        assert store.retained.expired(start_us + 700_000_000, 10) == ["b"]


class QueueContract:
    """Behaviours of a store that keeps queues."""

    def test_a_queue_gives_messages_in_order_until_they_are_acknowledged(self, engine: Engine) -> None:
        engine.turn()
        session = open_session(engine.store, "device", "user", 3600)
        queue = session.queue
        assert queue is not None
        assert (queue.acknowledged(), queue.last(), queue.read(0, 10)) == (0, 0, [])
        for number in range(10):
            message = Publish("a", b"%d" % number, 1 + number % 2)
            offset = engine.store.append_publish(message, "publisher")
            assert queue.push(message, offset, message.qos, False) == number + 1
        engine.commit()
        found = queue.read(0, 4)
        assert [queued.messages[0].payload for queued in found] == [b"0", b"1", b"2", b"3"]
        assert sequences(queue.read(4, 100)) == [5, 6, 7, 8, 9, 10]
        assert [queued.qos for queued in found] == [1, 2, 1, 2]
        queue.acknowledge(6)
        engine.commit()
        assert queue.acknowledged() == 6
        assert sequences(queue.read(0, 100)) == [7, 8, 9, 10]
        queue.acknowledge(10)
        queue.acknowledge(3)
        assert (queue.acknowledged(), queue.last(), queue.read(0, 10)) == (10, 10, [])

    def test_a_queued_message_without_a_record_is_kept_as_a_copy(self, engine: Engine) -> None:
        engine.turn()
        queue = open_session(engine.store, "device", "user", 3600).queue
        assert queue is not None
        queue.push(Publish("a", b"retained before", 2, True, properties=b"\x01\x01"), -1, 1, True)
        engine.commit()
        (found,) = queue.read(0, 10)
        assert (found.messages[0].topic_name, found.messages[0].payload) == ("a", b"retained before")
        assert (found.qos, found.retain, found.released) == (1, True, False)
        assert found.messages[0].properties == b"\x01\x01"

    def test_a_released_message_is_read_as_released(self, engine: Engine) -> None:
        engine.turn()
        queue = open_session(engine.store, "device", "user", 3600).queue
        assert queue is not None
        for _ in range(3):
            message = Publish("a", b"x", 2)
            queue.push(message, engine.store.append_publish(message, "publisher"), 2, False)
        engine.commit()
        queue.release(2)
        engine.commit()
        assert [queued.released for queued in queue.read(0, 10)] == [False, True, False]

    def test_a_queued_message_has_the_identifiers_of_its_subscriptions(self, engine: Engine) -> None:
        engine.turn()
        queue = open_session(engine.store, "device", "user", 3600).queue
        assert queue is not None
        pushed = [(), (), (1,), (1,), (1, 268_435_455), (), (7,), (7,)]
        for ids in pushed:
            message = Publish("a", b"x", 1)
            queue.push(message, engine.store.append_publish(message, "publisher"), 1, False, ids)
        engine.commit()
        assert [queued.subscription_ids for queued in queue.read(0, 100)] == pushed
        assert [queued.subscription_ids for queued in queue.read(3, 3)] == pushed[3:6]
        queue.acknowledge(4)
        engine.commit()
        assert [queued.subscription_ids for queued in queue.read(0, 100)] == pushed[4:]

    def test_a_queued_message_says_when_it_expires(self, engine: Engine) -> None:
        start_us = engine.turn()
        queue = open_session(engine.store, "device", "user", 3600).queue
        assert queue is not None
        for properties, expires_us in ((expiring(10), start_us + 10_000_000), (b"\x01\x00", 0), (b"", 0)):
            message = Publish("a", b"x", 1, properties=properties, expires_us=expires_us)
            queue.push(message, engine.store.append_publish(message, "publisher"), 1, False)
        engine.commit()
        assert [queued.messages[0].expires_us for queued in queue.read(0, 10)] == [start_us + 10_000_000, 0, 0]

    def test_a_copy_of_a_message_expires_with_the_message(self, engine: Engine) -> None:
        start_us = engine.turn()
        queue = open_session(engine.store, "device", "user", 3600).queue
        assert queue is not None
        message = Publish("a", b"x", 1, True, properties=expiring(10) + b"\x01\x01", expires_us=start_us + 10_000_000)
        engine.turn(4_000_000)
        queue.push(message, -1, 1, True)
        engine.turn(500_000)
        queue.push(message, -1, 1, True)
        engine.turn(60_000_000)
        queue.push(message, -1, 1, True)
        engine.commit()
        exact, rounded, passed = queue.read(0, 10)
        assert exact.messages[0].expires_us == start_us + 10_000_000
        assert exact.messages[0].properties[5:] == b"\x01\x01"
        # An interval in a record is in whole seconds.
        assert 0 <= rounded.messages[0].expires_us - (start_us + 10_000_000) < 1_000_000
        assert 0 < passed.messages[0].expires_us <= engine.now_us

    def test_a_share_group_has_a_queue_of_its_own(self, engine: Engine) -> None:
        engine.turn()
        filters = ["$share/g/a/+", "$share/h/a/+"]
        opened = [open_shared_queue(engine.store, share_filter) for share_filter in filters]
        session = open_session(engine.store, "$share/g/a/+", "", 3600)  # a client may have such an id
        assert len({session.session_id, *(queue_id for queue_id, _ in opened)}) == 3
        for number, (_, queue) in enumerate(opened):
            message = Publish("a/b", b"%d" % number, 1)
            queue.push(message, engine.store.append_publish(message, "publisher"), 1, False, (number + 1,))
        engine.commit()
        for number, (_, queue) in enumerate(opened):
            (found,) = queue.read(0, 10)
            assert (found.messages[0].payload, found.subscription_ids, found.sequence) == (
                b"%d" % number,
                (number + 1,),
                1,
            )
        assert session.queue is not None and session.queue.last() == 0
        engine.store.append(SharedQueueEnded(opened[0][0], filters[0]))
        engine.commit()
        assert len(opened[1][1].read(0, 10)) == 1


class DurableContract(StoreContract, QueueContract):
    """Behaviours of an engine that outlives its process."""

    def test_retained_messages_are_there_after_a_restart(self, engine: Engine) -> None:
        engine.turn()
        for number in range(50):
            engine.publish(f"a/{number}", b"%d" % number)
        engine.publish("a/7", b"")
        engine.commit()
        store = engine.reopen()
        found = retained_scan(store, "#", "", 100)
        assert {retained.topic_name: retained.payload for retained in found} == {
            f"a/{number}": b"%d" % number for number in range(50) if number != 7
        }
        assert store.retained.totals()[0] == 49

    def test_a_session_is_there_after_a_restart_as_it_was(self, engine: Engine) -> None:
        engine.turn()
        store = engine.store
        session = open_session(store, "device", "user", 3600)
        kept = SubscriptionRequest("a/+", 1, True, True, 1)
        first_offset = store.next_offset()
        store.append(Subscribed("device", session.session_id, kept, True))
        store.append(Subscribed("device", session.session_id, SubscriptionRequest("b"), True))
        store.append(Unsubscribed("device", session.session_id, "b"))
        message = Publish("a/1", b"x", 2, packet_id=17)
        store.append_publish(message, "device", session.session_id)
        store.append_publish(Publish("a/1", b"y", 2, packet_id=18), "device", session.session_id)
        store.append(PubrelReceived(session.session_id, "device", 17))
        engine.commit()
        (found,) = engine.reopen().sessions.load()
        assert (found.session_id, found.client_id, found.user_name) == (session.session_id, "device", "user")
        assert (found.session_expiry_s, found.ended_us) == (3600, 0)
        assert found.subscriptions == [(kept, first_offset)]
        assert found.received_ids == {18}
        (position,) = found.positions
        assert (position.topic_filter, position.qos, position.before_offset) == ("a/+", 1, first_offset)

    def test_a_session_remembers_its_disconnection_and_what_was_sent(self, engine: Engine) -> None:
        engine.turn()
        session = open_session(engine.store, "device", "", 10)
        assert session.queue is not None
        for _ in range(5):
            session.queue.push(Publish("a", b"x", 1), -1, 1, False)
        engine.commit()
        ended_us = engine.turn()
        engine.store.append(Disconnected("device", session.session_id, "closed", 3))
        (found,) = _reopened_sessions(engine)
        assert (found.ended_us, found.sent, found.session_expiry_s) == (ended_us, 3, 10)
        engine.store.append(SessionResumed(found.session_id, "device", 20))
        (found,) = _reopened_sessions(engine)
        assert (found.ended_us, found.sent, found.session_expiry_s) == (0, 5, 20)
        engine.store.append(SessionEnded(found.session_id, "device"))
        assert _reopened_sessions(engine) == []

    def test_a_queue_goes_on_after_a_restart(self, engine: Engine) -> None:
        engine.turn()
        session = open_session(engine.store, "device", "", 3600)
        queue = session.queue
        assert queue is not None
        for number in range(3000):
            message = Publish("a", b"%d" % number, 2)
            queue.push(message, engine.store.append_publish(message, "publisher"), 2, False)
            if number % 700 == 0:
                engine.commit()
        engine.commit()
        queue.release(1501)
        queue.release(1600)
        queue.acknowledge(1500)
        engine.commit()
        (found,) = _reopened_sessions(engine)
        queue = found.queue
        assert queue is not None
        assert (queue.acknowledged(), queue.last()) == (1500, 3000)
        read = queue.read(0, 10_000)
        assert sequences(read) == list(range(1501, 3001))
        assert [queued.messages[0].payload for queued in read] == [b"%d" % number for number in range(1500, 3000)]
        assert [queued.sequence for queued in read if queued.released] == [1501, 1600]
        assert queue.push(Publish("a", b"next", 1), -1, 1, False) == 3001
        engine.commit()
        assert [queued.messages[0].payload for queued in queue.read(3000, 5)] == [b"next"]
        queue.acknowledge(3001)
        (found,) = _reopened_sessions(engine)
        assert found.queue is not None
        assert (found.queue.acknowledged(), found.queue.last(), found.queue.read(0, 5)) == (3001, 3001, [])

    def test_subscription_identifiers_are_there_after_a_restart(self, engine: Engine) -> None:
        engine.turn()
        store = engine.store
        session_id = open_session(store, "device", "", 3600).session_id
        for request in (
            SubscriptionRequest("a", 1, subscription_id=1),
            SubscriptionRequest("b", 1, subscription_id=268_435_455),
            SubscriptionRequest("c", 1, subscription_id=9),
            SubscriptionRequest("c", 1),  # a replacement without an identifier
            SubscriptionRequest("d", 1),
        ):
            store.append(Subscribed("device", session_id, request, False))
        (found,) = _reopened_sessions(engine)
        ids = {request.topic_filter: request.subscription_id for request, _ in found.subscriptions}
        assert ids == {"a": 1, "b": 268_435_455, "c": 0, "d": 0}

    def test_identifiers_of_queued_messages_are_there_after_a_restart(self, engine: Engine) -> None:
        engine.turn()
        queue = open_session(engine.store, "device", "", 3600).queue
        assert queue is not None
        rng = Random(3)
        pushed: list[tuple[int, ...]] = []
        for number in range(3000):
            if number < 100 or rng.random() < 0.05:
                ids = tuple(rng.sample(range(1, 100_000), rng.randint(0, 3)))
            pushed.append(ids)
            queue.push(Publish("a", b"%d" % number, 1), -1, 1, False, ids)
            if number in (50, 1500):  # the second group has more entries than one key of the state
                engine.commit()
        (found,) = _reopened_sessions(engine)
        queue = found.queue
        assert queue is not None
        assert [queued.subscription_ids for queued in queue.read(0, 10_000)] == pushed
        queue.acknowledge(2000)
        queue.push(Publish("a", b"next", 1), -1, 1, False, (5,))
        (found,) = _reopened_sessions(engine)
        assert found.queue is not None
        assert [queued.subscription_ids for queued in found.queue.read(0, 10_000)] == [*pushed[2000:], (5,)]

    def test_a_changed_session_expiry_is_there_after_a_restart(self, engine: Engine) -> None:
        engine.turn()
        session_id = open_session(engine.store, "device", "", 3600).session_id
        engine.store.append(SessionExpiryChanged(session_id, "device", 7))
        ended_us = engine.turn()
        engine.store.append(Disconnected("device", session_id, "closed"))
        (found,) = _reopened_sessions(engine)
        assert (found.session_expiry_s, found.ended_us) == (7, ended_us)

    def test_a_will_is_there_after_a_restart_until_it_is_cleared(self, engine: Engine) -> None:
        engine.turn()
        session_id = open_session(engine.store, "kept", "ümit", 3600).session_id
        wills = {
            "kept": Will("a/ü", b"\x00payload", 2, True, 30, b"\x02\x00\x00\x00\x05\x26\x00\x01k\x00\x01v"),
            "clean": Will("b", b""),
            "replaced": Will("c", b"new"),
        }
        engine.store.append(WillSet("replaced", 0, "old", Will("c", b"old", 1, True, 9)))
        engine.store.append(WillSet("deleted", 0, "", Will("d", b"x")))
        engine.store.append(WillSet("kept", session_id, "ümit", wills["kept"]))
        engine.store.append(WillSet("clean", 0, "", wills["clean"]))
        engine.store.append(WillSet("replaced", 0, "new", wills["replaced"]))
        engine.store.append(WillCleared("deleted"))
        _reopened_sessions(engine)
        saved = {will.client_id: will for will in engine.store.sessions.wills()}
        assert {client_id: will.will for client_id, will in saved.items()} == wills
        assert {client_id: will.user_name for client_id, will in saved.items()} == {
            "kept": "ümit",
            "clean": "",
            "replaced": "new",
        }
        assert (saved["kept"].session_id, saved["kept"].ended_us, saved["clean"].session_id) == (session_id, 0, 0)
        ended_us = engine.turn()
        engine.store.append(Disconnected("kept", session_id, "lost"))
        engine.store.append(Disconnected("clean", 0, "lost"))
        engine.store.append(WillCleared("replaced"))
        _reopened_sessions(engine)
        saved = {will.client_id: will for will in engine.store.sessions.wills()}
        assert {client_id: will.ended_us for client_id, will in saved.items()} == {"kept": ended_us, "clean": 0}

    def test_the_queue_of_a_share_group_goes_on_after_a_restart(self, engine: Engine) -> None:
        engine.turn()
        ended_id, ended = open_shared_queue(engine.store, "$share/ended/a")
        queue_id, queue = open_shared_queue(engine.store, "$share/g/+/ü")
        for number in range(2000):
            message = Publish("a/ü", b"%d" % number, 2)
            offset = engine.store.append_publish(message, "publisher")
            queue.push(message, offset, 2, False, (number % 3,) if number % 3 else ())
            ended.push(message, offset, 2, False)
        engine.commit()
        queue.acknowledge(1500)
        queue.release(1503)
        engine.store.append(SharedQueueEnded(ended_id, "$share/ended/a"))
        assert _reopened_sessions(engine) == []
        (found,) = engine.store.sessions.shared_queues()
        assert (found.queue_id, found.share_filter) == (queue_id, "$share/g/+/ü")
        assert (found.queue.acknowledged(), found.queue.last()) == (1500, 2000)
        read = found.queue.read(0, 10_000)
        assert [queued.messages[0].payload for queued in read] == [b"%d" % number for number in range(1500, 2000)]
        assert [queued.subscription_ids for queued in read[:4]] == [(), (1,), (2,), ()]
        assert [queued.sequence for queued in read if queued.released] == [1503]
        assert found.queue.push(Publish("a/ü", b"next", 1), -1, 1, False) == 2001
        engine.commit()
        assert sequences(found.queue.read(1999, 10)) == [2000, 2001]

    def test_messages_expire_after_a_restart_as_before(self, engine: Engine) -> None:
        start_us = engine.turn()
        engine.publish("a", properties=expiring(10))
        engine.publish("b", properties=expiring(20))
        queue = open_session(engine.store, "device", "", 3600).queue
        assert queue is not None
        message = Publish("c", b"x", 1, properties=expiring(7), expires_us=start_us + 7_000_000)
        queue.push(message, engine.store.append_publish(message, "publisher"), 1, False)
        (found,) = _reopened_sessions(engine)
        assert found.queue is not None
        assert [queued.messages[0].expires_us for queued in found.queue.read(0, 10)] == [start_us + 7_000_000]
        engine.turn(10_000_000)
        assert names(retained_scan(engine.store, "#", "", 10)) == ["b"]
        assert engine.store.retained.expired(engine.now_us, 10) == ["a"]
        kept = engine.store.retained.get("b")
        assert kept is not None and kept.expires_us == start_us + 20_000_000

    def test_a_message_was_retained_until_it_expired(self, engine: Engine) -> None:
        engine.budgets = (RetainedBudget("b", expiry_s=5),)
        store = engine.reopen()
        start_us = engine.turn()
        engine.publish("a", b"own", properties=expiring(10))
        engine.publish("b", b"budget's")
        engine.publish("c", b"for ever")
        engine.commit()
        engine.turn(30_000_000)
        engine.publish("a", b"again")  # both were expired and not removed yet
        engine.publish("b", b"again")
        engine.commit()
        for _ in range(2):
            for after_us, expected in ((4_999_999, ["a", "b", "c"]), (5_000_000, ["a", "c"]), (10_000_000, ["c"])):
                instant_us = start_us + after_us
                assert names(store.history.as_of("#", "", 10, instant_us)) == expected
                assert names(store.history.as_of("#", "", 1, instant_us)) == expected[:1]
                pieces = store.history.as_of_pieces("#", instant_us)
                assert [name for piece in pieces for name in names(piece)] == expected
            expiries_us = [retained.expires_us for retained in store.history.as_of("#", "", 3, start_us)]
            assert expiries_us == [start_us + 10_000_000, start_us + 5_000_000, 0]
            assert names(store.history.as_of("#", "", 10, engine.now_us)) == ["a", "b", "c"]
            store = engine.reopen()

    def test_a_position_moves_and_ends(self, engine: Engine) -> None:
        engine.turn()
        session = open_session(engine.store, "device", "", 3600)
        engine.store.append(Subscribed("device", session.session_id, SubscriptionRequest("#", 1), True))
        (found,) = _reopened_sessions(engine)
        position = found.positions[0]
        position.after_topic_name = "a/ü"
        engine.store.append(PositionMoved(found.session_id, "device", position, False))
        (found,) = _reopened_sessions(engine)
        assert (found.positions[0].after_topic_name, found.positions[0].before_offset) == (
            "a/ü",
            position.before_offset,
        )
        engine.store.append(PositionMoved(found.session_id, "device", found.positions[0], True))
        (found,) = _reopened_sessions(engine)
        assert found.positions == []


def _reopened_sessions(engine: Engine) -> list[SavedSession]:
    engine.commit()
    return list(engine.reopen().sessions.load())
