"""Keep alive (3.1.2.10)."""

import time

from support import wire
from support.clauses import v311
from support.wire import Dial, Join


@v311("MQTT-3.1.2-24")
def test_a_silent_client_is_cut_off_after_one_and_a_half_times_its_keep_alive(join: Join) -> None:
    client = join(keep_alive=1)
    start = time.monotonic()
    client.assert_closed()
    # Not before the time is up; the upper bound is generous to a busy machine.
    assert 1.4 < time.monotonic() - start < 4


@v311("MQTT-3.1.2-24")
def test_any_packet_keeps_a_client_alive_and_keep_alive_zero_needs_none(join: Join, space: str) -> None:
    pinging, publishing, acknowledging = (join(keep_alive=1) for _ in range(3))
    unlimited = join(keep_alive=0)
    silent = join(keep_alive=1)
    while not silent.readable_within(0.3):
        pinging.ping()
        publishing.send(wire.publish(f"{space}/a", b"x"))
        acknowledging.send(wire.ack(wire.PUBACK, 1))
    silent.assert_closed()
    for client in (pinging, publishing, acknowledging, unlimited):
        client.ping()


def test_a_connection_that_says_nothing_at_all_does_not_disturb_others(dial: Dial, join: Join) -> None:
    dial()
    half = dial()
    half.send(wire.connect("half")[:5])
    join().assert_silent()
