"""Keep alive and sleep: when a client's silence has lasted too long."""

import pytest

from embermq.protocol import packets as core
from embermq.protocol.sn.client_state import ACTIVE, ClientState
from embermq.protocol.sn.wire.codec import decode
from embermq.protocol.sn.wire.layouts import Profile
from embermq.protocol.sn.wire.profiles import V12, A, B, W
from support import sn_packets as sn
from support.sn_harness import (
    ALL,
    Harness,
    fall_asleep,
    ping_of,
    pingresp,
)


@pytest.mark.parametrize(
    ("profile", "keep_alive_s", "lasts_ms"),
    [(V12, 10, 15_000), (V12, 100, 110_000), (W, 10, 15_000), (A, 100, 150_000), (B, 100, 150_000)],
)
def test_silence_beyond_the_keep_alive_loses_the_client(profile: Profile, keep_alive_s: int, lasts_ms: int) -> None:
    harness = Harness()
    harness.connect(profile, keep_alive_s=keep_alive_s)
    harness.pass_ms(lasts_ms - 1)
    assert harness.lost() == []
    harness.pass_ms(1)
    assert harness.lost() == ["no packet in time"]
    assert decode(harness.sent[-1][1], profile).kind == sn.DISCONNECT


@ALL
def test_any_packet_restarts_the_keep_alive(profile: Profile) -> None:
    harness = Harness()
    connection = harness.connect(profile, keep_alive_s=10)
    for number in range(1, 6):
        harness.pass_ms(14_000)
        harness.ask(connection, sn.pingreq(number))
    assert harness.lost() == []


def test_a_keep_alive_of_0_is_not_supervised_in_1_2_unless_there_is_a_cap() -> None:
    harness = Harness()
    harness.connect(V12, keep_alive_s=0)
    harness.pass_ms(10**9)
    assert harness.lost() == []
    harness = Harness(keep_alive_max_s=60)
    harness.connect(V12, keep_alive_s=0)
    harness.pass_ms(100_000)
    assert harness.lost() == ["no packet in time"]


@pytest.mark.parametrize("profile", [W, A, B], ids=lambda profile: profile.name)
def test_a_client_may_limit_how_much_it_fetches_at_a_time(profile: Profile) -> None:
    harness = Harness()
    connection = harness.connect(profile, awake_messages=2)
    fall_asleep(harness, connection)
    for number in range(3):
        harness.deliver(connection, "ab", b"%d" % number)
    packets = harness.ask(connection, ping_of(connection))
    assert sum(packet.kind == sn.PUBLISH for packet in packets) == 2
    assert not connection.has_room()
    connection.flushed(4, harness.now_ms)
    assert [decode(data, profile) for data in harness.settle()] == [pingresp(profile, 5)]


@ALL
def test_a_sleeper_is_supervised_by_its_sleep(profile: Profile) -> None:
    harness = Harness()
    connection = harness.connect(profile, keep_alive_s=1)
    fall_asleep(harness, connection, 60)
    harness.pass_ms(89_999)
    assert harness.engine.counters.clients == 1
    harness.pass_ms(1)
    assert harness.engine.counters.clients == 0
    if profile is A:
        # The sleep was the session's lifetime as well.
        assert harness.received() == [core.Disconnect(4, 0)]
    else:
        assert harness.lost() == ["no packet in time"]


@ALL
def test_waking_restarts_the_sleep(profile: Profile) -> None:
    harness = Harness()
    connection = harness.connect(profile, keep_alive_s=1)
    fall_asleep(harness, connection, 60)
    for _ in range(5):
        harness.pass_ms(80_000)
        harness.ask(connection, ping_of(connection))
        connection.flushed(0, harness.now_ms)
        harness.settle()
    assert harness.engine.counters.clients == 1


@pytest.mark.parametrize(("seconds", "percent", "lasts_ms"), [(60, 110, 90_000), (61, 110, 67_100), (61, 150, 91_500)])
def test_a_long_keep_alive_has_the_tolerance_of_its_profile(seconds: int, percent: int, lasts_ms: int) -> None:
    state = ClientState(seconds, percent, 10, 1_000)
    assert state.due_ms() == 0, "a client that is not connected yet is not supervised"
    state.state = ACTIVE
    assert state.due_ms() == 1_000 + lasts_ms


def test_remaining_messages_are_counted_up_to_what_one_byte_holds() -> None:
    state = ClientState(60, 150, 10, 0)
    state.sleep(60)
    assert state.buffer(core.Publish("a", b"1"))
    assert (state.remaining(0), state.remaining(2), state.remaining(1_000)) == (1, 3, 255)


def test_messages_are_limited_only_while_the_client_is_awake() -> None:
    state = ClientState(60, 150, 10, 0)
    state.sleep(60)
    assert not state.may_deliver()
    state.wake(7, 1)
    assert state.may_deliver()
    state.delivered()
    assert not state.may_deliver()
    state.wake(8, 0)
    state.delivered()
    assert state.may_deliver()
