"""Timers: deadlines come in order, and stale entries do not pile up."""

from embermq.protocol.sn.wire.layouts import Profile
from embermq.protocol.sn.wire.profiles import B
from support import sn_packets as sn
from support.sn_harness import (
    ALL,
    Harness,
)


@ALL
def test_connections_that_are_over_are_not_kept_until_their_keep_alive_would_have_run_out(profile: Profile) -> None:
    harness = Harness()
    for number in range(5_000):
        harness.connect(profile, f"dev{number}", keep_alive_s=65_535)
    assert len(harness.engine.timers) < 2_000
    assert harness.engine.counters.clients == 1


@ALL
def test_timers_of_one_busy_client_do_not_pile_up(profile: Profile) -> None:
    harness = Harness(retry_ms=10, retries_max=4)
    connection = harness.connect(profile, keep_alive_s=65_535)
    for number in range(1, 3_000):
        harness.deliver(connection, "ab" if profile is not B else "a/b", b"x", 1, number)
        harness.ask(connection, sn.acknowledgement(sn.PUBACK, number))
        harness.pass_ms(20)
    assert len(harness.engine.timers) < 2_000
    assert harness.lost() == []
    harness.pass_ms(65_535 * 1_500)
    assert harness.lost() == ["no packet in time"]
