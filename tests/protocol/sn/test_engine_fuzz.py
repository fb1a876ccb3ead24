"""Any datagrams at any time, from anywhere: the engine never raises, and its tables stay within their bounds."""

from random import Random

import pytest

from embermq.protocol import packets as core
from embermq.protocol.sn.wire.profiles import PROFILES
from support.sn_harness import (
    Harness,
)
from support.sn_vectors import VECTORS

CLIENTS_MAX = 6
PLACES = [("192.0.2.1", port) for port in range(10)]


@pytest.mark.parametrize("seed", range(4))
def test_any_sequence_of_datagrams(seed: int) -> None:
    random = Random(seed)
    harness = Harness(
        clients_max=CLIENTS_MAX, handshakes_max=3, aliases_max=32, retry_ms=50, predefined={1: "a/b", 9: "c"}
    )
    vectors = [bytes.fromhex(vector.hex) for vector in VECTORS]
    connects = [bytes.fromhex(vector.hex) for vector in VECTORS if "connect-" in vector.name]
    for _ in range(800):
        data = bytearray(random.choice(connects if random.random() < 0.1 else vectors))
        if random.random() < 0.3:
            data[random.randrange(len(data))] = random.randrange(256)
        if random.random() < 0.1:
            data = bytearray(bytes((8, 0xFE, 0)) + b"node1" + data)
        harness.feed(bytes(data), random.choice(PLACES))
        if random.random() < 0.2:
            harness.pass_ms(random.choice([1, 60, 2_000, 100_000]))
        open_now = [connection for connection in harness.open.values() if connection.client_state.state in (1, 2, 3)]
        if open_now and random.random() < 0.5:
            qos = random.randrange(3)
            topic_name = random.choice(["a/b", "ab", "x/y/z", "c"])
            packet_id = random.randrange(1, 9) if qos else 0
            message = core.Publish(topic_name, bytes(random.randrange(90)), qos)
            random.choice(open_now).deliver(core.Delivery([message], qos, packet_id=packet_id))
        for connection in list(harness.engine.awake):
            connection.flushed(random.randrange(2), harness.now_ms)
        harness.settle()
        assert harness.engine.counters.clients <= CLIENTS_MAX
    assert harness.engine.counters.clients >= 0
    assert {profile.name for profile in PROFILES} >= {c.peer.profile.name for c in harness.open.values()} != set()
