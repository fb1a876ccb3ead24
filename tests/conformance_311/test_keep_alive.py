"""Keep alive (3.1.2.10)."""

import time

from support import wire
from support.clauses import v311
from support.wire import Dial, Join


@v311("MQTT-3.1.2-24")
def test_a_silent_client_is_cut_off_after_one_and_a_half_times_its_keep_alive(join: Join) -> None:
    start = time.monotonic()
    client = join(keep_alive=1)
    client.assert_closed()
    assert time.monotonic() - start > 1.4  # not before the time is up


@v311("MQTT-3.1.2-24")
def test_any_packet_keeps_a_client_alive_and_keep_alive_zero_needs_none(join: Join, space: str) -> None:
    pinging, publishing, acknowledging = (join(keep_alive=3) for _ in range(3))
    unlimited = join(keep_alive=0)
    silent = join(keep_alive=3)
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
