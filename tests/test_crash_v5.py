"""The checks of the crash test that only MQTT 5 has can say no. `test_crash.py` runs them under kills."""

import asyncio
import time

import pytest

from support.crash import QUEUE_MESSAGES_MAX
from support.crash_checker import Checker, payload_of
from support.crash_clients_v5 import FILTERS, SubscriberV5
from support.crash_v5 import (
    BRIEF_LIVE,
    EXPIRY_S,
    SLACK_S,
    BriefPublisher,
    BriefSubscriber,
    GroupChecker,
    Leaving,
    WillWatcher,
)
from support.properties_v5 import Properties
from support.wire import PUBLISH, Packet
from support.wire_v5 import MESSAGE_EXPIRY, SUBSCRIPTION_ID, USER_PROPERTY, Message, publish


@pytest.fixture
def checker() -> Checker:
    made = Checker(QUEUE_MESSAGES_MAX)
    made.stream("live/0/1", 1)
    for number in (1, 2, 3):
        made.sent("live/0/1", number)
        made.acknowledged("live/0/1", number)
    return made


def test_a_message_that_no_member_of_a_group_has_got_is_found(checker: Checker) -> None:
    group = GroupChecker(checker, QUEUE_MESSAGES_MAX)
    for client_id in ("a", "b"):
        group.subscribing(client_id, 1)
    for client_id, number in (("a", 1), ("b", 3), ("a", 3)):
        group.delivered(client_id, "live/0/1", payload_of("live/0/1", number), 1, 0, 0)
    assert (group.missing(), checker.violations) == (["live/0/1 2"], [])
    group.delivered("a", "live/0/1", b"something else", 1, 0, 0)
    group.delivered("b", "live/0/1", payload_of("live/0/1", 2), 2, 0, 0)
    assert len(checker.violations) == 2


def briefly(*ages_s: float) -> tuple[Checker, BriefSubscriber]:
    """A subscriber to messages that were acknowledged so long ago."""
    checker = Checker(QUEUE_MESSAGES_MAX)
    publisher = BriefPublisher(checker)
    publisher.sent_at[BRIEF_LIVE] = [time.monotonic() - age_s for age_s in ages_s]
    publisher.acknowledged[BRIEF_LIVE] = set(range(1, len(ages_s) + 1))
    return checker, BriefSubscriber(checker, publisher)


def brief(number: int, left_s: int, dup: bool = False) -> Message:
    return Message(BRIEF_LIVE, b"%d" % number, 1, False, dup, 1, [(MESSAGE_EXPIRY, left_s)])


def test_an_expired_message_may_only_come_again() -> None:
    checker, subscriber = briefly(EXPIRY_S + SLACK_S + 1, 0)
    subscriber.take(brief(1, 1, dup=True))
    subscriber.take(brief(2, EXPIRY_S))
    assert checker.violations == []
    checker, subscriber = briefly(EXPIRY_S + SLACK_S + 1)
    subscriber.take(brief(1, 1))
    assert len(checker.violations) == 2  # it came, and its interval was not counted down


def test_a_message_that_has_not_expired_may_not_be_missing() -> None:
    checker, subscriber = briefly(EXPIRY_S, 0)
    subscriber.take(brief(2, EXPIRY_S))
    assert checker.violations == []
    checker, subscriber = briefly(0.5, 0)
    subscriber.take(brief(2, EXPIRY_S))
    assert checker.violations == ["brief-subscriber: 1 is missing before 2, and has not expired"]


def test_a_will_may_come_once_and_none_of_a_client_that_is_back(checker: Checker) -> None:
    watcher = WillWatcher(checker)
    for client_id, dup in (("mortal-1", False), ("mortal-1", True), ("mortal-2", True)):
        watcher.take(Message(f"will/{client_id}", b"gone", 1, False, dup, 1))
    assert checker.violations == []
    for client_id in ("mortal-2", "returner-1"):
        watcher.take(Message(f"will/{client_id}", b"gone", 1, False, False, 1))
    assert len(checker.violations) == 2


@pytest.mark.parametrize(
    ("away_s", "session_present", "is_right"), [(1, 1, True), (1, 0, False), (30, 1, False), (30, 0, True)]
)
def test_a_session_is_there_until_it_expires(
    checker: Checker, away_s: int, session_present: int, is_right: bool
) -> None:
    leaving = Leaving("c", checker, 10)
    leaving._left_at = time.monotonic() - away_s
    leaving._take_session(session_present)
    assert (checker.violations == []) is is_right


def test_identifiers_and_properties_that_changed_are_found(checker: Checker) -> None:
    async def scene() -> None:
        subscriber = SubscriberV5("s", checker, 1)
        subscriber.connect_packet()
        both: Properties = [(SUBSCRIPTION_ID, FILTERS["live/#"]), (SUBSCRIPTION_ID, FILTERS["live/0/#"])]
        told: Properties = [(USER_PROPERTY, ("for", "live/0/1"))]
        for properties, violations in (([*both, *told], 0), ([both[0], *told], 1), (both, 2)):
            bare = publish("live/0/1", b"x", qos=1, packet_id=1, properties=properties)
            subscriber.message_of(Packet(PUBLISH, 2, bare[2:]))
            assert len(checker.violations) == violations

    asyncio.run(scene())
