"""A whole server against packets that are almost good, in every level: no bug shows, and other clients go on."""

import asyncio
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embermq.broker.access import AllowAll
from embermq.broker.limits import Limits
from embermq.protocol.mqtt.decode import Decoder
from embermq.protocol.mqtt.dialect import MQTT_5, MQTT_31, MQTT_311
from embermq.protocol.mqtt.encode import encode
from embermq.protocol.packets import (
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Subscribe,
    SubscriptionRequest,
)
from embermq.store.engines.memory import MemoryStore
from embermq.transport.server import Server
from support.transports import Peer, turn
from support.vectors.mutations import mutated
from support.vectors.vector import V5, V31, V311

DIALECTS = {V31: MQTT_31, V311: MQTT_311, V5: MQTT_5}
SUBSCRIBE = Subscribe(1, [SubscriptionRequest("#", 2, subscription_id=7)])


async def join(server: Server, client_id: str, level: int) -> Peer:
    """A client that has subscribed to everything."""
    peer = Peer(server)
    await feed(peer, encode(Connect(client_id, protocol_level=level), DIALECTS[level]))
    await feed(peer, encode(SUBSCRIBE, DIALECTS[level]))
    return peer


async def feed(peer: Peer, data: bytes) -> None:
    if not peer.ended:
        peer.connection.data_received(data)
    await turn()


def sent(peer: Peer, level: int) -> list[Packet]:
    """What the server has sent since the last time, all of it whole and good."""
    decoder = Decoder(1 << 28, server=False, levels=(level,), dialect=DIALECTS[level])
    packets = decoder.feed(b"".join(peer.writes))
    assert decoder.error is None and not decoder.rest_bytes_wanted
    peer.writes.clear()
    return packets


async def scenario(streams: list[bytes], places: list[int], level: int) -> None:
    # With few messages and bytes at a time, the streams meet these bounds as well.
    server = Server(
        store=MemoryStore(),
        access=AllowAll(),
        limits=Limits(inflight_max=2, subscriptions_max=3, output_bytes_max=2_000),
        sys_interval_s=0,
    )
    await server.start()
    bystander = await join(server, "bystander", V5)
    for number, stream in enumerate(streams):
        client = await join(server, f"client-{number % 2}", level)
        before = sent(client, level)
        assert isinstance(before[0], Connack)
        edges = sorted({place % (len(stream) + 1) for place in places} | {0, len(stream)})
        for start, stop in pairwise(edges):
            await feed(client, stream[start:stop])
        packets = sent(client, level)
        assert not any(isinstance(packet, Connack) for packet in packets)
        ends = [place for place, packet in enumerate(packets) if isinstance(packet, Disconnect)]
        assert ends in ([], [len(packets) - 1]), "nothing follows a DISCONNECT"
        if ends:
            assert level == V5 and client.ended
    await feed(bystander, encode(Pingreq(), MQTT_5))
    assert Pingresp() in sent(bystander, V5) and not bystander.ended
    assert server.core.counters.internal_errors == 0


@pytest.mark.parametrize("level", [V311, V5])
def test_packets_that_are_almost_good_harm_no_other_client(level: int) -> None:
    @settings(deadline=None, max_examples=150)
    @given(st.lists(mutated(), min_size=1, max_size=4), st.lists(st.integers(0, 1_000), max_size=4))
    def check(streams: list[bytes], places: list[int]) -> None:
        asyncio.run(scenario(streams, places, level))

    check()
