"""One client's socket: one write a turn, clients that do not read or send too fast, and the end of a connection."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from embermq.protocol.mqtt.encode import SHARED_BYTES_MIN, encode
from embermq.protocol.packets import (
    SESSION_NEVER_EXPIRES,
    Acknowledgement,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Publish,
    Subscribe,
    SubscriptionRequest,
)
from embermq.store.engines.disk import DiskStore
from embermq.transport.rate_limited_log import LINES_A_SECOND
from embermq.transport.server import Server
from embermq.transport.stream_link import WAITING_MAX
from embermq.transport.turn_time import SHARE_BYTES
from support.acknowledgements import puback, pubcomp, pubrec, pubrel
from support.attributes import attributes_of
from support.clauses import v311
from support.stores import ScriptedStore
from support.transports import Peer, joined, run, turn

# -- a turn ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("qos", [0, 1])
def test_500_messages_in_one_read_are_one_write_for_each_subscriber(qos: int) -> None:
    async def scenario(server: Server) -> None:
        readers = [await joined(server, f"r{n}", "t/#", qos=qos) for n in range(3)]
        bystander = await joined(server, "b", "other")
        writer = await joined(server, "w")
        await writer.send(*(Publish(f"t/{n}", b"x" * 50, qos, packet_id=n + 1 if qos else 0) for n in range(500)))
        for reader in readers:
            assert len(reader.writes) == 1
            assert [message.topic_name for message in reader.messages()] == [f"t/{n}" for n in range(500)]
        assert bystander.writes == []
        assert len(writer.writes) == (1 if qos else 0)
        assert writer.packets() == ([puback(n + 1) for n in range(500)] if qos else [])

    run(scenario, inflight_max=1000)


def test_a_client_that_brings_much_is_read_from_again_when_the_turn_has_ended() -> None:
    async def scenario(server: Server) -> None:
        writer = await joined(server, "w")
        message = Publish("t", b"x" * 50)
        writer.send_now(*[message] * 100)
        assert writer.is_read_from
        writer.send_now(*[message] * (SHARE_BYTES // len(encode(message)) + 1))
        assert not writer.is_read_from
        await turn()
        await turn()
        assert writer.is_read_from

    run(scenario)


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_large_payload_is_not_copied_for_each_receiver(qos: int) -> None:
    async def scenario(server: Server) -> None:
        readers = [await joined(server, f"r{n}", "t", qos=qos) for n in range(3)]
        writer = await joined(server, "w")
        sent = server.core.counters.messages_sent
        sizes = [5, 300_000, 5]
        await writer.send(
            *(Publish("t", bytes(size), qos, packet_id=n if qos else 0) for n, size in enumerate(sizes, 1))
        )
        while not writer.is_read_from:  # it brings more than one share
            await turn()
        await turn()
        parts = [max(reader.writes, key=len) for reader in readers]
        assert len(parts[0]) >= 300_000
        assert all(part is parts[0] for part in parts)
        acknowledgements = 3 if qos else 0
        assert server.core.counters.messages_sent - sent == 9 + acknowledgements
        for reader in readers:
            assert [len(payload) for payload in reader.payloads()] == sizes

    run(scenario)


# -- the end -----------------------------------------------------------------------------------------------------------


@v311("MQTT-2.2.2-2")
def test_good_packets_before_a_bad_one_are_processed_and_then_the_connection_ends() -> None:
    async def scenario(server: Server) -> None:
        reader = await joined(server, "r", "t")
        writer = await joined(server, "w")
        good, after = (encode(Publish("t", payload)) for payload in (b"good", b"after"))
        writer.connection.data_received(good + b"\xf0\x00" + after)
        await turn()
        assert reader.payloads() == [b"good"]
        assert writer.ended == "closed"
        assert server.core.counters.protocol_errors == 1

    run(scenario)


def test_bytes_behind_disconnect_are_no_error() -> None:
    async def scenario(server: Server) -> None:
        writer = await joined(server, "w")
        writer.connection.data_received(encode(Disconnect()) + b"\xf0\x00")
        await turn()
        assert writer.ended == "closed"
        assert server.core.counters.protocol_errors == 0

    run(scenario)


def test_a_client_that_goes_while_its_acknowledgement_waits_takes_no_other_with_it() -> None:
    store = ScriptedStore()

    async def scenario(server: Server) -> None:
        leaver, writer = await joined(server, "leaver"), await joined(server, "w")
        leaver.send_now(Publish("t", b"x", 1, packet_id=1))
        await writer.send(Publish("t", b"x", 1, packet_id=2))
        leaver.abort()
        await turn()
        store.finish()
        await turn()
        assert leaver.writes == []
        assert writer.packets() == [puback(2)]

    run(scenario, store)


def test_a_connect_that_is_not_answered_in_time_leaves_no_trace() -> None:
    store = ScriptedStore()

    async def scenario(server: Server) -> None:
        peer = Peer(server)
        await peer.send(Connect("waits", False, session_expiry_s=SESSION_NEVER_EXPIRES))
        async with asyncio.timeout(60):
            while not peer.ended:
                await turn()
        await turn()
        assert server.core.counters.clients_connected == 0
        store.finish()
        await turn()
        [session] = server.core.sessions()
        assert session.link is None and session.opening is None
        assert peer.packets() == []

    run(scenario, store, connect_timeout_s=0)


def test_a_long_client_id_is_cut_in_the_log_and_cannot_forge_a_line(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(server: Server) -> None:
        peer = Peer(server)
        await peer.send(Connect("a\n2026-01-01 ERROR forged\x1b[2J" + "x" * 60_000), Connect("again"))
        assert peer.ended == "closed"

    with caplog.at_level(logging.WARNING, "embermq"):
        run(scenario)
    [line] = caplog.messages
    assert "\n" not in line and "\x1b" not in line
    assert len(line) < 300


def test_malformed_packets_on_many_new_connections_make_few_lines(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(server: Server) -> None:
        begun_s = server.loop.time()
        for _ in range(1_000):
            peer = Peer(server)
            peer.connection.data_received(b"\x00\x00")
            await turn()
            assert peer.ended == "closed"
        seconds.append(int(server.loop.time() - begun_s) + 2)

    seconds: list[int] = []  # in how many seconds lines were written, at most
    with caplog.at_level(logging.WARNING, "embermq"):
        run(scenario)
    assert LINES_A_SECOND <= len(caplog.messages) <= seconds[0] * (LINES_A_SECOND + 1)


# -- clients that do not read, or send faster than the disk writes -----------------------------------------------------


def test_a_reader_that_never_reads_is_bounded_by_its_cap_and_others_go_on() -> None:
    cap = 100_000

    async def scenario(server: Server) -> None:
        stuck, fine = await joined(server, "stuck", "t", qos=1), await joined(server, "fine", "t", qos=1)
        writer = await joined(server, "w")
        stuck.reads = False
        for n in range(300):
            await writer.send(Publish("t", b"%06d" % n + b"x" * 1000))
        assert len(fine.packets()) == 300
        assert stuck.unread_bytes < cap + 2_000
        assert server.core.counters.dropped_output_full > 150
        # QoS 1 is not dropped: it waits in the session's queue.
        await writer.send(Publish("t", b"must arrive", 1, packet_id=1))
        [waiting] = [session.outbound.backlog for session in server.core.sessions() if session.client_id == "stuck"]
        assert [queued.messages[0].payload for queued in waiting] == [b"must arrive"]
        stuck.packets()
        stuck.catch_up()
        await turn()
        assert stuck.payloads() == [b"must arrive"]

    run(scenario, output_bytes_max=cap)


def test_a_client_that_leaves_its_answers_unread_is_read_from_no_more() -> None:
    cap = 10_000

    async def scenario(server: Server) -> None:
        peer = await joined(server, "never reads")
        peer.reads = False
        for _ in range(1_000):
            if not peer.is_read_from:
                break
            await peer.send(*[Pingreq()] * 1_000)
        assert not peer.is_read_from
        assert cap < peer.unread_bytes < 3 * cap
        peer.catch_up()
        assert peer.is_read_from
        await peer.send(Pingreq())
        assert peer.is_read_from

    run(scenario, output_bytes_max=cap)


def test_a_slow_subscriber_is_heard_although_its_output_is_full() -> None:
    async def scenario(server: Server) -> None:
        slow, writer = await joined(server, "slow", "t"), await joined(server, "writer")
        slow.reads = False
        for _ in range(30):
            await writer.send(Publish("t", bytes(1_000)))
            await slow.send(Pingreq())
        assert slow.is_read_from
        assert server.core.counters.dropped_output_full > 10

    run(scenario, output_bytes_max=10_000)


def test_a_qos_1_message_that_found_no_room_is_sent_although_a_later_qos_0_message_found_some() -> None:
    async def scenario(server: Server) -> None:
        slow, writer = await joined(server, "slow", "t", qos=1), await joined(server, "writer")
        slow.reads = False
        for _ in range(11):
            await writer.send(Publish("t", bytes(1_000)))
        await writer.send(Publish("t", b"waits", 1, packet_id=1))
        slow.unread_bytes -= 5_000
        await writer.send(Publish("t", b"finds room"))
        slow.catch_up()
        await turn()
        assert sorted(slow.payloads()[-2:]) == [b"finds room", b"waits"]

    run(scenario, output_bytes_max=10_000)


@pytest.mark.parametrize("packet", [Pingreq(), pubrel(7)])
def test_answers_that_wait_for_the_disk_are_bounded_for_each_client(packet: Packet) -> None:
    store = ScriptedStore()

    async def scenario(server: Server) -> None:
        hasty, other = await joined(server, "hasty"), await joined(server, "other")
        await hasty.send(Publish("t", b"waits", 1, packet_id=1))
        fed = 0
        while hasty.is_read_from and fed < 10 * WAITING_MAX:
            hasty.send_now(*[packet] * 500)
            fed += 500
        assert not hasty.is_read_from
        assert fed <= WAITING_MAX + 500
        assert other.is_read_from
        await turn()
        assert not hasty.is_read_from
        while store.done is not None:
            store.finish()
            await turn()
        assert hasty.is_read_from
        assert len(hasty.packets()) == fed + 1  # PUBACK

    run(scenario, store)


def sized_store() -> ScriptedStore:
    store = ScriptedStore()
    store.counts_bytes = True
    return store


def test_a_group_keeps_to_its_size_within_a_turn_too() -> None:
    store = sized_store()

    async def scenario(server: Server) -> None:
        peers = [await joined(server, f"c{number}") for number in range(20)]
        for peer in peers:
            peer.send_now(Publish("t", bytes(5_000), 1, packet_id=1))
        # All in one turn: a client that sends past the limit is not read from again, and the group stays near it.
        assert [peer.is_read_from for peer in peers] == [True, True] + [False] * 18
        await turn()
        store.finish()
        await turn()
        assert all(peer.is_read_from for peer in peers)

    run(scenario, store, group_bytes_max=10_000)


def test_a_client_is_read_from_again_as_soon_as_a_group_that_no_effect_waits_for_is_written(tmp_path: Path) -> None:
    calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
    journal = DiskStore(tmp_path, calls.put)

    async def scenario(server: Server) -> None:
        peer = await joined(server, "writer")
        for _ in range(20):
            if peer.is_read_from:
                await peer.send(Publish("t", bytes(100_000)))
        assert not peer.is_read_from
        calls.get(timeout=60)()
        await turn()
        assert peer.is_read_from

    run(scenario, journal, group_bytes_max=500_000)
    journal.close()


def test_a_client_whose_connack_waits_is_not_read_from_because_the_disk_has_caught_up() -> None:
    store = sized_store()

    async def scenario(server: Server) -> None:
        store.gathered_bytes = 20_000
        peer = Peer(server)
        await peer.send(Connect("persistent", False, session_expiry_s=SESSION_NEVER_EXPIRES))
        assert not server.overfull()
        assert not peer.is_read_from
        store.finish()
        await turn()
        assert peer.is_read_from
        assert peer.packets() == [Connack(False, 0)]

    run(scenario, store, group_bytes_max=10_000)


# -- with and without shortcuts ---------------------------------------------------------------------------------------

topic_names = st.sampled_from(["a", "a/b", "b"])
requests = st.one_of(
    st.builds(Publish, topic_names, st.sampled_from([b"", b"x", b"x" * 130, b"x" * 600]), retain=st.booleans()),
    st.builds(
        Publish,
        topic_names,
        st.sampled_from([b"y", b"y" * 600]),
        st.integers(1, 2),
        st.booleans(),
        st.booleans(),
        st.integers(1, 4),
    ),
    st.builds(
        Subscribe,
        st.integers(1, 9),
        st.lists(st.builds(SubscriptionRequest, st.sampled_from(["a", "#", "+/b"]), st.integers(0, 2)), min_size=1),
    ),
    st.just(Pingreq()),
)
acknowledgements = st.one_of(
    *(st.builds(kind, st.integers(1, 4)) for kind in (puback, pubrec, pubrel, pubcomp)),
)
LARGE = Publish("a", bytes(SHARED_BYTES_MIN))
# Which of three clients sends what in one turn, with a large message behind it or not, and whether it reads what it is
# sent. One client a turn: QoS 1 that waits for the end of the turn may be delivered behind what another client sent.
# Acknowledgements come alone: no client acknowledges what is delivered because of the same read.
Step = tuple[int, list[Packet], bool, bool]
several_packets: st.SearchStrategy[list[Packet]] = st.one_of(
    st.lists(requests, min_size=1, max_size=6), st.lists(acknowledgements, min_size=1, max_size=4)
)
steps = st.tuples(st.integers(0, 2), several_packets, st.booleans(), st.booleans())


def kind_of(packet: Packet) -> tuple[str, int]:
    return type(packet).__name__, packet.packet_type if isinstance(packet, Acknowledgement) else 0


def seen(script: list[Step], shortcuts: bool) -> list[object]:
    """All that the clients were sent, and all that was counted."""
    found: list[object] = []

    async def scenario(server: Server) -> None:
        peers = [await joined(server, f"c{number}", "a/#", qos=number) for number in range(3)]
        for number, sent, has_large, reads in script:
            peer = peers[number]
            if reads != peer.reads:
                peer.reads = reads
                if reads:
                    peer.catch_up()
            if peer.is_read_from:
                await peer.send(*sent, *([LARGE] if has_large else []))
            for each in peers:
                got = each.packets()
                messages = [packet for packet in got if isinstance(packet, Publish)]
                # An answer that does not wait for the end of the turn may leave before one of another kind that does.
                answers = sorted((packet for packet in got if not isinstance(packet, Publish)), key=kind_of)
                found.append((messages, answers, each.ended, each.is_read_from))
        counters = server.core.counters
        found.append({name: value for name, value in attributes_of(counters).items() if name != "others"})

    run(scenario, shortcuts=shortcuts, output_bytes_max=1_000, inflight_max=4)
    return found


@settings(deadline=None, max_examples=100)
@given(st.lists(steps, max_size=15))
@example([(1, [Pingreq()], False, False), (0, [Publish("a", b"x" * 600)] * 6, False, False)])  # output is dropped
def test_clients_see_the_same_with_and_without_shortcuts(script: list[Step]) -> None:
    with_shortcuts, without = seen(script, shortcuts=True), seen(script, shortcuts=False)
    assert all(one == other for one, other in zip(with_shortcuts, without, strict=True))
