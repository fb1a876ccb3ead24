"""How many bytes of one client are processed in one turn, and how long a commit group waits for more records."""

import asyncio

import pytest

from embermq.protocol.mqtt.encode import encode
from embermq.protocol.packets import Pingreq, Publish, Subscribe, SubscriptionRequest
from embermq.transport.server import Server
from embermq.transport.turn_time import (
    BUSY,
    GATHER_US_MAX,
    GATHER_US_MIN,
    LIGHT_S,
    LONG_S,
    LONG_TURN_S,
    LOOK_S,
    QUICK_S,
    SHARE_BYTES,
    SHARE_BYTES_MAX,
    SHARE_BYTES_MIN,
    SHARE_TIMED_BYTES,
    SPARE,
    TURN_S,
    CommitPace,
    TurnTime,
    adapted_share,
)
from support.stores import ScriptedStore
from support.transports import joined, run, turn


@pytest.mark.parametrize(
    ("took_s", "was_whole", "factor"),
    [(QUICK_S / 2, True, 2), (QUICK_S / 2, False, 1), (LONG_S, True, 1), (LONG_S * 2, True, 0.5), (1.0, False, 0.25)],
)
def test_a_share_adapts_to_the_time_that_it_took(took_s: float, was_whole: bool, factor: float) -> None:
    assert adapted_share(10_000, took_s, was_whole) == 10_000 * factor


def test_a_share_that_leaves_much_work_for_the_next_turns_is_halved() -> None:
    assert adapted_share(10_000, 0, True, is_behind=True) == 5_000


def test_while_much_work_waits_no_other_client_adds_its_share() -> None:
    store = ScriptedStore(queues=False)

    async def scenario(server: Server) -> None:
        flooders, other = [await joined(server, f"f{n}") for n in range(4)], await joined(server, "o")
        other.send_now(Publish("t", b"", 1, packet_id=1))  # its commit is not done
        await turn()
        before = server.core.counters.messages_received
        subscribes = encode(Subscribe(1, [SubscriptionRequest("a", 0)])) * 10_000
        for flooder in flooders:
            flooder.connection.data_received(subscribes)
        for _ in range(5):
            await turn()
        taken = server.core.counters.messages_received - before
        assert taken < 2 * SHARE_BYTES * 10_000 / len(subscribes)
        while server.core.counters.messages_received - before < 40_000:
            if store.done is not None:
                store.finish()
            await turn()

    run(scenario, store=store)


def test_a_share_has_bounds() -> None:
    assert adapted_share(SHARE_BYTES_MAX, 0, True) == SHARE_BYTES_MAX
    assert adapted_share(SHARE_BYTES_MIN, 1, True) == SHARE_BYTES_MIN


def test_what_is_above_the_share_waits_for_the_next_turn_and_nothing_is_lost() -> None:
    async def scenario(server: Server) -> None:
        reader = await joined(server, "r", "t")
        writer = await joined(server, "w")
        messages = [Publish("t", b"%06d" % number) for number in range(2 * SHARE_BYTES // 12)]
        writer.send_now(*messages)
        assert server.core.counters.bytes_received < 2 * SHARE_BYTES
        while not writer.is_read_from:
            await turn()
        await turn()  # what the last share caused is sent
        assert reader.payloads() == [message.payload for message in messages]

    run(scenario)


def test_other_clients_are_answered_between_the_shares_of_one() -> None:
    async def scenario(server: Server) -> None:
        flooder, other = await joined(server, "f"), await joined(server, "o")
        flooder.connection.data_received(encode(Pingreq()) * (2 * SHARE_BYTES))
        other.send_now(Pingreq())
        await turn()
        assert len(other.packets()) == 1
        assert len(flooder.packets()) < 2 * SHARE_BYTES
        while not flooder.is_read_from:
            await turn()

    run(scenario)


def test_what_came_before_the_end_of_a_connection_is_processed() -> None:
    async def scenario(server: Server) -> None:
        reader = await joined(server, "r", "t")
        writer = await joined(server, "w")
        messages = [Publish("t", b"%06d" % number) for number in range(2 * SHARE_BYTES // 12)]
        writer.send_now(*messages)
        writer.connection.connection_lost(None)
        assert len(server.core.sessions()) == 2, "what it has sent is processed in shares as before"
        while len(server.core.sessions()) == 2:
            await turn()
        await turn()
        assert reader.payloads() == [message.payload for message in messages]

    run(scenario)


def test_a_client_that_brings_much_waits_when_others_have_used_the_time_of_a_turn() -> None:
    async def scenario(server: Server) -> None:
        reader = await joined(server, "r", "t")
        late, small = await joined(server, "l"), await joined(server, "s")
        server.turn_time.shares_s = 2 * TURN_S
        before = server.core.counters.bytes_received
        late.send_now(Publish("t", bytes(10_000)))
        assert server.core.counters.bytes_received == before
        assert not late.is_read_from
        small.send_now(Pingreq())
        assert server.core.counters.bytes_received == before + 2
        await turn()
        assert late.is_read_from
        await turn()
        assert reader.payloads() == [bytes(10_000)]

    run(scenario)


class SlowStore(ScriptedStore):
    """One message of a client takes the time of a whole turn."""

    def __init__(self) -> None:
        super().__init__(late=False)
        self.turn_time = TurnTime()
        self.served = ""

    def append_publish(self, message: Publish, client_id: str, qos2_session_id: int = 0) -> int:
        self.served += client_id
        self.turn_time.shares_s = 2 * TURN_S
        return super().append_publish(message, client_id, qos2_session_id)


def test_clients_take_turns_where_the_time_of_a_turn_is_too_short_for_all() -> None:
    store = SlowStore()

    async def scenario(server: Server) -> None:
        store.turn_time = server.turn_time
        peers = [await joined(server, client_id) for client_id in "abc"]
        for peer in peers:
            peer.send_now(*[Publish("t", bytes(SHARE_BYTES_MAX), 1, packet_id=1)] * 4)
        while len(store.served) < 7:
            await turn()

    run(scenario, store)
    assert store.served[:7] == "abcabca"


def test_small_reads_are_timed_after_a_long_turn_until_none_was_long_for_a_while() -> None:
    turn_time = TurnTime()
    turn_time.ended(LONG_TURN_S / 2)
    assert turn_time.timed_bytes == SHARE_TIMED_BYTES
    turn_time.ended(LONG_TURN_S * 2)
    assert turn_time.timed_bytes == 0
    turn_time.tick()
    assert turn_time.timed_bytes == 0
    turn_time.tick()
    assert turn_time.timed_bytes == SHARE_TIMED_BYTES


def test_a_client_whose_small_packets_take_long_waits_and_others_do_not() -> None:
    async def scenario(server: Server) -> None:
        heavy, light = await joined(server, "h"), await joined(server, "l")
        server.turn_time.ended(2e6)
        for client in (heavy, light):
            client.send_now(Pingreq())
        await turn()
        heavy.connection._took_s = 2 * LIGHT_S
        light.connection._took_s = 0.0
        server.turn_time.shares_s = 2 * TURN_S
        before = server.core.counters.bytes_received
        heavy.send_now(Pingreq())
        assert server.core.counters.bytes_received == before
        light.send_now(Pingreq())
        assert server.core.counters.bytes_received == before + 2
        await turn()
        assert server.core.counters.bytes_received == before + 4

    run(scenario)


def test_a_client_that_goes_and_has_left_its_answers_unread_ends_when_all_is_processed() -> None:
    async def scenario(server: Server) -> None:
        reader, peer = await joined(server, "r", "t"), await joined(server, "p")
        peer.reads = False
        peer.connection.data_received(encode(Pingreq()) * SHARE_BYTES + encode(Publish("t", b"last")))
        await turn()
        assert not peer.is_read_from
        peer.connection.connection_lost(None)
        while len(server.core.sessions()) == 2:
            await turn()
        await turn()
        assert reader.payloads() == [b"last"]

    run(scenario, output_bytes_max=10_000)


def test_writing_that_takes_long_is_charged_to_those_that_brought_much() -> None:
    async def scenario(server: Server) -> None:
        flooder, other = await joined(server, "f"), await joined(server, "o")
        flooder.connection.data_received(encode(Pingreq()) * SHARE_BYTES)
        assert not flooder.is_read_from, "it has brought more than its share"
        flooder.connection._share_bytes = other.connection._share_bytes = 10_000
        server._charge_writing(TURN_S)
        assert flooder.connection._share_bytes == 10_000
        server._charge_writing(3 * TURN_S)
        assert (flooder.connection._share_bytes, other.connection._share_bytes) == (2_500, 10_000)
        while not flooder.is_read_from:
            await turn()

    run(scenario)


def test_between_two_shares_of_one_client_the_sockets_are_read_from() -> None:
    turns: list[None] = []

    async def scenario(server: Server) -> None:
        flooder = await joined(server, "f")
        flooder.connection.data_received(encode(Pingreq()) * (16 * SHARE_BYTES))
        server.end_of_turn.append(lambda: turns.append(None))
        passes = 0
        while not flooder.is_read_from:
            passes += 1
            server.hold_turn()  # as the poll does, once in each pass of the loop
            server.begin_turn()
            server.end_held_turn()
            await asyncio.sleep(0)
        assert passes > 3
        assert len(turns) <= 2 * passes, "one turn of the sockets, and one of those that have brought much"

    run(scenario)


# -- the commit group -----------------------------------------------------------------------------------------------


def test_no_group_waits_while_the_processor_has_time() -> None:
    pace = CommitPace()
    for _ in range(10):
        pace.adapt(BUSY - 0.01)
        pace.adapt(0.0)
    assert pace.gather_us == 0


def test_the_wait_grows_while_the_processor_is_busy_up_to_its_bound() -> None:
    pace = CommitPace()
    waits = []
    for _ in range(20):
        pace.adapt(BUSY + 0.01)
        waits.append(pace.gather_us)
    assert waits[0] == GATHER_US_MIN
    assert waits == sorted(waits)
    assert waits[-1] == GATHER_US_MAX


def test_the_wait_stays_between_the_two_bounds_and_ends_when_there_is_time_again() -> None:
    pace = CommitPace()
    for _ in range(5):
        pace.adapt(1.0)
    reached = pace.gather_us
    pace.adapt((BUSY + SPARE) / 2)
    assert pace.gather_us == reached
    for _ in range(20):
        pace.adapt(SPARE - 0.01)
    assert pace.gather_us == 0


def test_the_time_is_looked_at_seldom() -> None:
    pace = CommitPace()
    assert pace.look(1_000.0)
    assert not pace.look(1_000.0 + LOOK_S / 2)
    assert pace.look(1_000.0 + 2 * LOOK_S)
