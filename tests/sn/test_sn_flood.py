"""Many messages for one small client: all of them arrive, at its pace, and others do not wait for it."""

from collections.abc import Callable

import pytest

from support import wire
from support.sn_client import PROFILES, V12, A, Message, SnClient
from support.wire import Wire

MANY = 1_100

ALL = pytest.mark.parametrize("profile", PROFILES)


def retain_many(publisher: Wire, qos: int) -> None:
    """All at once: one write, then wait until the last is taken."""
    publisher.send(
        *(
            wire.publish(f"many/{number}", b"%d" % number, qos=qos, retain=True, packet_id=number + 1)
            for number in range(MANY)
        )
    )
    if qos:
        for number in range(MANY):
            publisher.expect(wire.PUBACK, number + 1)
    publisher.ping()


@ALL
@pytest.mark.parametrize("qos", [0, 1])
def test_a_wildcard_over_many_retained_messages_brings_all_of_them(
    sn: Callable[..., SnClient], mqtt: Callable[..., Wire], profile: str, qos: int
) -> None:
    retain_many(mqtt(), qos)
    client = sn(profile, "small")
    client.subscribe("many/#", qos)
    got = client.await_messages(MANY, timeout_s=60)
    assert sorted(got) == sorted(Message(f"many/{n}", b"%d" % n, qos, True) for n in range(MANY))
    assert client.drain() == []


def test_large_retained_messages_at_qos_0_come_at_the_pace_of_their_names(
    sn: Callable[..., SnClient], mqtt: Callable[..., Wire]
) -> None:
    """Together they are far more than a client's socket holds unread, or than may wait for it."""
    publisher = mqtt()
    for number in range(60):
        publisher.publish(f"large/{number}", b"%d" % number * 10_000, retain=True)
    client = sn(V12, "small")
    client.subscribe("large/#", 0)
    got = client.await_messages(60, timeout_s=60)
    assert sorted(got) == sorted(Message(f"large/{n}", b"%d" % n * 10_000, 0, True) for n in range(60))


def test_a_client_that_does_not_answer_delays_no_other(sn: Callable[..., SnClient], mqtt: Callable[..., Wire]) -> None:
    publisher = mqtt()
    retain_many(publisher, 1)
    deaf, other = sn(A, "deaf"), sn(A, "other")
    deaf.acknowledging = False
    deaf.subscribe("many/#", 1)
    other.subscribe("live", 1)
    for number in range(20):
        publisher.publish("live", b"%d" % number, qos=1)
    assert other.drain() == [Message("live", b"%d" % number, 1) for number in range(20)]
    assert len(deaf.await_messages(1)) == 1
    assert deaf.drain() == []
