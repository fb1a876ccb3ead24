"""What was acknowledged survives kill -9; and the checker that says so can say no."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from support.crash import QUEUE_MESSAGES_MAX, CrashTest
from support.crash_checker import LIVE, Checker, payload_of

ROUNDS = 20
SEED = 311


@pytest.mark.timeout(900)  # half a minute where nothing else runs
def test_nothing_acknowledged_is_lost_stale_twice_or_out_of_order_after_kills(tmp_path: Path) -> None:
    report = asyncio.run(CrashTest(tmp_path, SEED).run(ROUNDS))
    assert report.violations == []
    assert report.kills >= ROUNDS
    # The test means nothing if the server was killed before it had done anything.
    assert report.acknowledged > 20 * ROUNDS
    assert report.redeliveries > 0
    assert report.shared > 0 and report.brief > 0 and report.wills > 0


class LosingChecker(Checker):
    """Is not told of one message for a session that is away most of the time, as if the server had lost it.

    It is not told of the message's redeliveries either: one that comes again after a kill would not be lost.
    """

    def __init__(self, lost: str) -> None:
        super().__init__(QUEUE_MESSAGES_MAX)
        self._lost = lost
        self._payloads: list[bytes] = []

    def delivered(self, client_id: str, topic_name: str, payload: bytes, qos: int, retain: int, dup: int) -> None:
        if client_id == "offline-1" and topic_name == self._lost:
            if payload not in self._payloads:
                self._payloads.append(payload)
            if self.has_lost() and payload == self._payloads[19]:
                return
        super().delivered(client_id, topic_name, payload, qos, retain, dup)

    def has_lost(self) -> bool:
        return len(self._payloads) >= 20


@pytest.mark.timeout(900)
def test_one_message_lost_from_the_queue_of_a_session_that_is_away_is_found(tmp_path: Path) -> None:
    checker = LosingChecker(f"{LIVE}/0/1")
    report = asyncio.run(CrashTest(tmp_path, SEED, checker=checker, drain_after=1_500).run(ROUNDS))
    assert checker.has_lost()
    assert len(report.violations) == 1
    assert report.violations[0].startswith(f"offline-1: {LIVE}/0/1 "), report.violations
    # Which of the two is seen first depends on what came behind it.
    assert "is lost or late" in report.violations[0] or "was overtaken" in report.violations[0]


# -- the checker -------------------------------------------------------------------------------------------------

Event = Callable[[Checker], None]


def sent(topic_name: str, number: int) -> Event:
    return lambda checker: checker.sent(topic_name, number)


def acknowledged(topic_name: str, number: int) -> Event:
    return lambda checker: checker.acknowledged(topic_name, number)


def got(client_id: str, topic_name: str, number: int, qos: int, dup: int = 0) -> Event:
    payload = payload_of(topic_name, number)
    return lambda checker: checker.delivered(client_id, topic_name, payload, qos, 0, dup)


def retained(**numbers: int) -> Event:
    """What is retained below `kept/`, 0 for nothing."""
    found = {f"kept/{name}": payload_of(f"kept/{name}", number) for name, number in numbers.items() if number}
    return lambda checker: checker.retained(found)


def connected(client_id: str, session_present: int) -> Event:
    return lambda checker: checker.connected(client_id, session_present)


# One publisher with QoS 1 and one with QoS 2, a session that takes QoS 1 and one that takes QoS 2. The server is
# killed once, in the middle: message 2 of each stream was on its way, and the acknowledgements of the sessions too.
HISTORY: dict[str, Event] = {
    "connect-1": connected("one", 0),
    "connect-2": connected("two", 0),
    "send-a1": sent("live/a", 1),
    "send-b1": sent("live/b", 1),
    "send-r1": sent("kept/r", 1),
    "ack-a1": acknowledged("live/a", 1),
    "ack-b1": acknowledged("live/b", 1),
    "ack-r1": acknowledged("kept/r", 1),
    "one-a1": got("one", "live/a", 1, 1),
    "one-b1": got("one", "live/b", 1, 1),
    "one-r1": got("one", "kept/r", 1, 1),
    "two-a1": got("two", "live/a", 1, 1),
    "two-b1": got("two", "live/b", 1, 2),
    "two-r1": got("two", "kept/r", 1, 1),
    "send-a2": sent("live/a", 2),
    "send-b2": sent("live/b", 2),
    "send-r2": sent("kept/r", 2),
    "killed": retained(r=2),
    "reconnect-1": connected("one", 1),
    "reconnect-2": connected("two", 1),
    "send-a2-again": sent("live/a", 2),
    "send-b2-again": sent("live/b", 2),
    "send-r2-again": sent("kept/r", 2),
    "one-a1-again": got("one", "live/a", 1, 1, dup=1),
    "one-b1-again": got("one", "live/b", 1, 1, dup=1),
    "one-a2": got("one", "live/a", 2, 1),
    "one-b2": got("one", "live/b", 2, 1),
    "one-r2": got("one", "kept/r", 2, 1),
    "one-a2-again": got("one", "live/a", 2, 1),
    "two-a2": got("two", "live/a", 2, 1),
    "two-b2": got("two", "live/b", 2, 2),
    "two-r2": got("two", "kept/r", 2, 1),
    "ack-a2": acknowledged("live/a", 2),
    "ack-b2": acknowledged("live/b", 2),
    "ack-r2": acknowledged("kept/r", 2),
    "end": retained(r=2),
}


def violations(history: dict[str, Event]) -> list[str]:
    checker = Checker(QUEUE_MESSAGES_MAX)
    checker.stream("live/a", 1)
    checker.stream("live/b", 2)
    checker.stream("kept/r", 1)
    for client_id, qos in (("one", 1), ("two", 2)):
        checker.subscribing(client_id, qos)
        checker.subscribed(client_id)
    for event in history.values():
        event(checker)
    checker.finished()
    return checker.violations


def changed(**events: Event | None) -> dict[str, Event]:
    """The history with some events replaced, or left out."""
    history = dict(HISTORY)
    for name, event in events.items():
        name = name.replace("_", "-")
        assert name in history
        if event is None:
            del history[name]
        else:
            history[name] = event
    return history


def test_the_checker_finds_nothing_wrong_with_what_is_allowed() -> None:
    assert violations(HISTORY) == []
    # Nothing of what was on its way has to be there, as long as it is redone.
    assert violations(changed(killed=retained(r=1))) == []


@pytest.mark.parametrize(
    ("history", "complaint"),
    [
        (changed(one_a2=None, one_a2_again=None), "one: live/a ended at 1, acknowledged were 2"),
        (changed(two_b2=None), "two: live/b ended at 1, acknowledged were 2"),
        (changed(one_a1=None, one_a1_again=None), "one: live/a 2 came first: 1 is lost or late"),
        (changed(ack_b2=None), "live/b: 2 to 2 were never acknowledged"),
        (changed(ack_a1=None), "live/a: 2 was acknowledged after 0"),
        (changed(two_b1=None, two_r2=got("two", "live/b", 1, 2)), "two: live/b 2 came first: 1 is lost or late"),
        (changed(two_r2=got("two", "live/b", 1, 2, dup=1)), "two: live/b 1 came twice with QoS 2"),
        (changed(one_a1_again=got("one", "live/a", 1, 1)), "one: live/a 1 came again without DUP"),
        (changed(end=got("one", "live/a", 2, 1)), "one: live/a 2 came again without DUP"),
        (changed(one_b1=got("one", "live/b", 1, 2)), "one: live/b came with QoS 2"),
        (changed(one_b1=got("one", "live/b", 7, 1)), "one: live/b never had the payload"),
        (changed(one_b1=got("one", "live/c", 1, 1)), "one: live/c was never sent to"),
        (changed(killed=retained(r=0)), "kept/r: retained is None, but number 1 was acknowledged"),
        (changed(end=retained(r=1)), "kept/r: retained is b'kept/r 1 "),
        (changed(end=retained(r=3)), "kept/r: retained is b'kept/r 3 "),
        (changed(end=retained(r=2, s=1)), "kept/s: retained, but never sent"),
        (changed(reconnect_1=connected("one", 0)), "one: the session is gone"),
    ],
)
def test_the_checker_finds_what_is_wrong(history: dict[str, Event], complaint: str) -> None:
    found = violations(history)
    assert any(text.startswith(complaint) for text in found), found


def test_the_checker_wants_a_cleared_message_to_stay_cleared() -> None:
    checker = Checker(QUEUE_MESSAGES_MAX)
    checker.stream("kept/r", 2)
    for number in range(1, 6):
        checker.sent("kept/r", number)
        checker.acknowledged("kept/r", number)
    assert payload_of("kept/r", 5) == b""
    checker.retained({})
    assert checker.violations == []
    checker.retained({"kept/r": payload_of("kept/r", 4)})
    assert len(checker.violations) == 1


def test_the_checker_knows_from_when_on_a_late_session_is_owed_messages() -> None:
    checker = Checker(QUEUE_MESSAGES_MAX)
    for topic_name in ("live/a", "live/b", "kept/c"):
        checker.stream(topic_name, 1)
        for number in (1, 2, 3):
            checker.sent(topic_name, number)
            checker.acknowledged(topic_name, number)
    checker.connected("late", 0)
    checker.subscribing("late", 1, "live")
    got("late", "live/a", 2, 1)(checker)
    checker.subscribed("late")
    assert checker.owed("late") == 1
    got("late", "live/a", 3, 1)(checker)
    checker.finished()
    assert checker.violations == []
    for number in (4, 5):
        for topic_name in ("live/a", "live/b"):
            checker.sent(topic_name, number)
            checker.acknowledged(topic_name, number)
    checker.finished()
    assert len(checker.violations) == 2
    checker.violations.clear()
    got("late", "live/b", 5, 1)(checker)
    assert checker.violations == ["late: live/b 5 came first: 4 is lost or late"]


def test_the_checker_wants_the_order_of_a_publisher_across_its_streams() -> None:
    checker = Checker(QUEUE_MESSAGES_MAX)
    checker.stream("live/a/1", 1)
    checker.stream("live/a/2", 2)
    checker.subscribing("one", 1)
    checker.subscribed("one")
    for topic_name in ("live/a/1", "live/a/2", "live/a/1"):
        checker.sent(topic_name, checker.streams[topic_name].sent + 1)
    got("one", "live/a/1", 1, 1)(checker)
    got("one", "live/a/1", 2, 1)(checker)
    assert checker.violations == []
    got("one", "live/a/2", 1, 1)(checker)
    assert checker.violations == ["one: live/a/2 1 was overtaken by a later message of its publisher"]


def test_the_checker_wants_an_ended_session_to_stay_away() -> None:
    checker = Checker(QUEUE_MESSAGES_MAX)
    checker.connected("c", 0)
    checker.ended("c")
    checker.connected("c", 0)
    assert checker.violations == []
    checker.ended("c")
    checker.connected("c", 1)
    assert checker.violations == ["c: the session is back, but it was ended"]


def test_the_checker_says_when_a_full_queue_could_be_taken_for_a_loss() -> None:
    checker = Checker(4)
    checker.stream("live/a", 1)
    for number in (1, 2, 3, 4):
        checker.sent("live/a", number)
    assert checker.owed_max() == 4
    checker.drained()
    for number in (4, 5, 6, 6):
        checker.sent("live/a", number)
    assert checker.violations == []
    checker.sent("live/a", 7)
    assert checker.violations == ["the test is at fault: so much was sent that the server may drop messages"]


def test_the_checker_knows_a_packet_id_that_is_used_too_early() -> None:
    checker = Checker(QUEUE_MESSAGES_MAX)
    checker.redelivered("two", 7, True, 1)
    assert checker.violations == []
    checker.redelivered("two", 7, False, 1)
    assert checker.violations == ["two: packet id 7 was used for another message before PUBREL"]
