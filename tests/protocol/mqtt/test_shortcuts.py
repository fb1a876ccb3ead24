"""Shortcuts against the general path: the same bytes, cut at the same places, with and without them.

Whatever a peer sends, both give the same packets and the same error; whatever is delivered, both send the same bytes.
"""

from itertools import pairwise, product
from typing import Final

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from embermq.protocol.errors import PeerError
from embermq.protocol.mqtt import shortcuts
from embermq.protocol.mqtt.connection import Connection
from embermq.protocol.mqtt.decode import Decoder
from embermq.protocol.mqtt.dialect import MQTT_5, MQTT_311, Dialect
from embermq.protocol.mqtt.encode import RUN_PAYLOAD_BYTES_MAX, SHARED_BYTES_MIN, Encodings, encode
from embermq.protocol.mqtt.shortcuts import (
    TopicNames,
    lone_puback,
    read_common,
)
from embermq.protocol.mqtt.states import OPEN
from embermq.protocol.packets import (
    PUBACK,
    PUBCOMP,
    PUBREC,
    PUBREL,
    Acknowledgement,
    Columns,
    Connect,
    Delivery,
    Packet,
    Pingresp,
    Publish,
    Suback,
)
from embermq.protocol.reasons import ReasonCode
from support.acknowledgements import is_puback, puback, pubcomp, pubrec, pubrel, singles
from support.packet_strategies import from_client, packet_ids, payloads, short_names, wire_of
from support.vectors.mutations import WIRES, mutated
from support.vectors.vector import V31

PACKET_BYTES_MAX: Final = 100_000
ACKNOWLEDGEMENTS: Final = [
    *map(wire_of, (puback(1), puback(65_535), pubrec(2), pubrel(3), pubrel(0x6202), pubcomp(4))),
    b"\x40\x02\x00\x00",
    b"\x40\x82\x00\x00\x01",
    b"\x50\x03\x00\x01\x00",
]
places: Final = st.lists(st.integers(0, 100_000), max_size=8)


def split(wire: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(wire) + 1) for place in places), len(wire)]
    return [wire[start:stop] for start, stop in pairwise(edges)]


TYPES: Final = {PUBACK: puback, PUBREC: pubrec, PUBREL: pubrel, PUBCOMP: pubcomp}


def outcome(error: PeerError | None) -> object:
    return None if error is None else (type(error), error.reason, error.clause, str(error))


def assert_decoded_alike(pieces: list[bytes], bytes_max: int = PACKET_BYTES_MAX, server: bool = True) -> None:
    for dialect in (MQTT_311, MQTT_5):
        quick, general = (
            Decoder(bytes_max, server, shortcuts=shortcuts, levels=(3, 4, 5), dialect=dialect)
            for shortcuts in (True, False)
        )
        for piece in pieces:
            assert singles(quick.feed(piece)) == general.feed(piece)
            assert outcome(quick.error) == outcome(general.error)
            assert quick.rest_bytes_wanted == general.rest_bytes_wanted
            assert quick.dialect is general.dialect


# -- read_common ---------------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=300)
@given(st.lists(from_client, max_size=6), st.binary(max_size=20), places)
def test_packets_of_a_client_are_read_alike(packets: list[Packet], tail: bytes, places: list[int]) -> None:
    assert_decoded_alike(split(b"".join(map(wire_of, packets)) + tail, places))


@settings(deadline=None, max_examples=200)
@given(st.lists(st.tuples(st.sampled_from(ACKNOWLEDGEMENTS), st.integers(0, 9)), max_size=6), mutated(), places)
def test_runs_of_acknowledgements_are_read_alike(runs: list[tuple[bytes, int]], tail: bytes, places: list[int]) -> None:
    wire = b"".join(frame * count for frame, count in runs)
    assert_decoded_alike(split(wire + tail, places))


@settings(deadline=None, max_examples=300)
@given(st.sampled_from([b"", *sorted({wire[:4] for wire in WIRES})]), st.binary(max_size=60), places, st.booleans())
def test_random_bytes_are_read_alike(start: bytes, data: bytes, places: list[int], server: bool) -> None:
    assert_decoded_alike(split(start + data, places), server=server)


@settings(deadline=None, max_examples=500)
@given(mutated(), places, st.integers(2, 200), st.booleans())
def test_packets_with_a_wrong_bit_are_read_alike(wire: bytes, places: list[int], bytes_max: int, server: bool) -> None:
    assert_decoded_alike(split(wire, places), bytes_max, server)


@pytest.mark.parametrize("first", [*range(0x30, 0x40), 0x40, 0x41, 0x50, 0x60, 0x62, 0x70, 0x82])
def test_a_small_packet_alone_in_a_read_is_read_alike(first: int) -> None:
    topics = [b"", b"\0\0", b"\0\1a", b"\0\2a", b"\0\3a/b", b"\0\4a/b", b"\1\1a", b"\0\1+"]
    rests = [b"", b"\0", b"\0\0", b"\0\1", b"\1\0", b"\0\0x", b"\0\1x", b"xyz"]
    for topic, rest, wrong_by in product(topics, rests, range(-2, 3)):
        body = topic + rest
        length = max(0, len(body) + wrong_by)
        assert_decoded_alike([bytes((first, length)) + body])
        assert_decoded_alike([bytes((first, length | 0x80, 0)) + body])


@pytest.mark.parametrize("name_bytes", [1, 127, 128, 255, 256, 257, 511, 512, 16_000])
@pytest.mark.parametrize("payload_bytes", [0, 1, 126, 200, 16_500])
def test_lengths_at_their_edges_are_read_alike(name_bytes: int, payload_bytes: int) -> None:
    for qos, retain in product(range(3), (False, True)):
        wire = encode(Publish("n" * name_bytes, bytes(payload_bytes), qos, retain, False, 7 if qos else 0))
        assert_decoded_alike([wire + wire])
        for limit in (len(wire) - 4, len(wire) - 3, len(wire) - 2, len(wire) - 1):
            assert_decoded_alike([wire], limit)


def test_the_shortcut_reads_what_it_is_for() -> None:
    common: list[Packet] = [
        Publish("a", b"x"),
        Publish("a", b"x", 0, True),
        Publish("a", bytes(300), 1, False, False, 1),
        Publish("a", b"", 2, True, True, 65_535),
        puback(1),
        pubrec(2),
        pubrel(3),
        pubcomp(4),
    ]
    for dialect in (MQTT_311, MQTT_5):
        wire = b"".join(encode(packet, dialect) for packet in common)
        found: list[Packet] = []
        end = read_common(wire + b"\xc0\0", 0, found, PACKET_BYTES_MAX, dialect.has_properties, TopicNames())
        assert end == len(wire)
        assert found == common


def test_acknowledgements_that_count_up_are_one_packet() -> None:
    connection, _ = opened(shortcuts=True)
    for packet_type, single in TYPES.items():
        ids = (*range(250, 260), 7, 7, *range(65_530, 65_536), 1)
        wire = b"".join(wire_of(single(packet_id)) for packet_id in ids)
        assert connection.receive_data(wire) == [
            Acknowledgement(packet_type, 250, 10),
            single(7),
            single(7),
            Acknowledgement(packet_type, 65_530, 6),
            single(1),
        ]
        assert len(opened(shortcuts=False)[0].receive_data(wire)) == len(ids)


@given(
    st.lists(st.tuples(st.sampled_from([*TYPES]), packet_ids, st.integers(1, 12)), max_size=5),
    st.sampled_from([b"", b"\xc0\x00", b"\x40\x03\x00\x01", b"\x40\x02\x00"]),
)
@example([(PUBREC, 65_530, 6), (PUBREC, 1, 6)], b"\x50\x03\x00\x00")
@example([(PUBACK, 65_535, 1)] * 5, b"\x40\x03\x00\x00\x00")
def test_acknowledgements_that_count_up_are_read_as_one_by_one(
    stretches: list[tuple[int, int, int]], rest: bytes
) -> None:
    wire = b"".join(
        wire_of(Acknowledgement(packet_type, packet_id))
        for packet_type, first, count in stretches
        for packet_id in range(first, min(first + count, 65_536))
    )
    seen = []
    for shortcuts_on in (True, False):
        connection, _ = opened(shortcuts_on)
        seen.append((singles(connection.receive_data(wire + rest)), outcome(connection.failure)))
    assert seen[0] == seen[1]


def test_a_length_with_an_idle_byte_begins_no_run() -> None:
    wire = b"\x40\x82\x00\x00\x01" + b"\x40\x02\x00\x40" * 2
    connection, _ = opened(shortcuts=True)
    assert singles(connection.receive_data(wire + wire)) == [puback(1), puback(64), puback(64)] * 2


def test_the_topic_names_that_are_kept_are_bounded() -> None:
    names = TopicNames()
    cache = names.by_bytes
    decoder = Decoder(1000, topic_names=names)
    for number in range(shortcuts.TOPIC_CACHE_MAX + 10):
        name = f"bounded/{number:05}"
        assert decoder.feed(b"\x30\x0f\x00\x0d" + name.encode()) == [Publish(name, b"")]
        assert len(cache) <= shortcuts.TOPIC_CACHE_MAX
    assert decoder.feed(b"\x30\x0f\x00\x0dbounded/00000") == [Publish("bounded/00000", b"")]
    assert cache[b"bounded/00000"] == "bounded/00000"


def test_a_bad_topic_name_is_not_kept() -> None:
    for _ in range(2):
        decoder = Decoder(1000)
        assert decoder.feed(bytes.fromhex("30 05 0003612f23")) == []
        assert decoder.error is not None


# -- lone_puback ---------------------------------------------------------------------------------------------------


@given(st.binary(min_size=0, max_size=6) | packet_ids.map(lambda packet_id: wire_of(puback(packet_id))))
def test_a_lone_puback_is_what_the_general_path_reads(data: bytes) -> None:
    packet_id = lone_puback(data)
    decoder = Decoder(1000, shortcuts=False)
    packets = decoder.feed(data)
    if packet_id:
        assert packets == [puback(packet_id)]
    else:
        assert len(packets) != 1 or not is_puback(packets[0]) or decoder.rest_bytes_wanted or len(data) != 4


def test_a_lone_puback_is_told_from_bytes_that_only_look_like_one() -> None:
    puback = b"\x40\x02\x12\x34"
    assert lone_puback(puback) == 0x1234
    for other in (b"\x40\x02\0\0", b"\x41\x02\x12\x34", b"\x40\x03\x12\x34", b"\x50\x02\x12\x34", puback * 2, b"\x40"):
        assert lone_puback(other) == 0


def test_a_lone_puback_begins_a_packet_of_an_open_connection() -> None:
    puback = b"\x40\x02\x12\x34"
    connection, _ = opened(shortcuts=True)
    assert connection.lone_puback(puback) == 0x1234
    assert connection.receive_data(b"\x30\x07\0\1a") == []
    assert connection.lone_puback(puback) == 0, "it is the rest of a PUBLISH"
    assert connection.receive_data(puback) == [Publish("a", puback)]
    assert connection.lone_puback(puback) == 0x1234
    assert connection.receive_data(b"\xf0\0") == []
    assert connection.lone_puback(puback) == 0, "nothing counts after an error"
    assert opened(shortcuts=False)[0].lone_puback(puback) == 0
    early = new_connection(Encodings(), True, [])
    assert early.lone_puback(puback) == 0


# -- encoded bytes that are used again, and the whole connection ---------------------------------------------------


def new_connection(
    encodings: Encodings, shortcuts: bool, told: list[str], output_bytes_max: int = 10_000
) -> Connection:
    def make_room() -> bool:
        told.append("no room")
        return False

    return Connection(
        encodings,
        PACKET_BYTES_MAX,
        output_bytes_max,
        lambda: told.append("output"),
        make_room,
        shortcuts=shortcuts,
        levels=(3, 4, 5),
    )


def opened(shortcuts: bool, level: int = 4, encodings: Encodings | None = None) -> tuple[Connection, list[str]]:
    told: list[str] = []
    connection = new_connection(encodings or Encodings(is_reused=shortcuts), shortcuts, told)
    connect = Connect("c", protocol_level=level)
    wire = encode(connect, MQTT_5) if level == MQTT_5.level else wire_of(connect)
    assert connection.receive_data(wire) == [connect]
    connection.accepted()
    assert connection.opened() == []
    assert connection.state == OPEN
    return connection, told


# Few messages, so that one is delivered more than once, at several QoS and to several connections.
MESSAGES: Final = [
    Publish("a", b"x"),
    Publish("a", b"y"),
    Publish("a/b", b"x" * 123, 1, packet_id=9),
    Publish("é", b"x" * 124, 2, True, packet_id=8),
    Publish("a", b"x" * 511),
    Publish("a", b"x" * 512),
    Publish("n" * 300, b"", 1, packet_id=7),
    Publish("a", bytes(SHARED_BYTES_MIN)),
    Publish("a", bytes(SHARED_BYTES_MIN + 1)),
    Publish("a", b"x", properties=b"\x01\x01"),
]
messages: Final = st.sampled_from(MESSAGES) | st.builds(Publish, short_names, payloads)
deliveries: Final = st.builds(
    Delivery, messages.map(lambda one: [one]), st.integers(0, 2), st.booleans(), st.booleans(), packet_ids
)
# Many neighbours have the same topic name and length, as the messages of a queue have, and many differ in one of both.
neighbours: Final = st.sampled_from([Publish(name, payload) for name in ("a", "b") for payload in (b"", b"x", b"y")])
runs: Final = st.builds(
    lambda messages, qos, retain, dup, packet_id, ids: Delivery(
        messages, qos, retain, dup and qos > 0, packet_id if qos else 0, ids
    ),
    st.lists(neighbours | messages, min_size=1, max_size=40),
    st.integers(0, 2),
    st.sampled_from([False, False, False, True]),
    st.sampled_from([False, False, False, True]),
    st.sampled_from([1, 7, 32_760, 65_400]),
    st.sampled_from([(), (), (), (7,)]),
)
acknowledgements: Final = st.builds(
    lambda packet_type, first, count: Acknowledgement(packet_type, first, min(count, 65_536 - first)),
    st.sampled_from([*TYPES]),
    packet_ids,
    st.sampled_from([1, 2, 300]),
)
retained: Final = st.lists(st.tuples(short_names, st.binary(max_size=200)), min_size=1, max_size=5)
others: Final = st.sampled_from([Pingresp(), Suback(1, [0, 0x80])])
# What happens to which of three connections: bytes come, something is to be sent, or the turn ends.
steps: Final = st.tuples(
    st.integers(0, 2),
    st.one_of(
        *(messages, deliveries, runs, acknowledgements, retained, others),
        *(st.sampled_from(WIRES), mutated(), st.none()),
    ),
)


def deliver_run(connection: Connection, run: Delivery, in_one: bool) -> int:
    """As the core does it: as long as there is room; how many were delivered."""
    if in_one:
        return connection.deliver(run) if not run.qos or connection.has_room() else 0
    done = 0
    while done < len(run) and connection.has_room():
        lone = run.part(done, done + 1)
        if lone.columns is not None:
            lone = Delivery(lone.unpacked(), lone.qos, lone.retain, lone.dup, lone.packet_id)
        if not connection.deliver(lone):
            break
        done += 1
    return done


def carry_out(
    connections: list[tuple[Connection, list[str]]], script: list[tuple[int, object]], shortcuts_on: bool
) -> list[object]:
    """Everything that can be seen of it."""
    seen: list[object] = []
    for number, step in script:
        connection, told = connections[number]
        if isinstance(step, bytes):
            packet_id = connection.lone_puback(step)
            seen.append([puback(packet_id)] if packet_id else singles(connection.receive_data(step)))
            seen.append(outcome(connection.failure))
        elif isinstance(step, Publish):
            seen.append(connection.forward(step))
        elif isinstance(step, Delivery):
            seen.append(deliver_run(connection, step, shortcuts_on))
        elif isinstance(step, Acknowledgement):
            for packet in [step] if shortcuts_on else singles([step]):
                assert isinstance(packet, Acknowledgement)
                connection.acknowledge(packet)
        elif isinstance(step, list):
            seen.append(deliver_run(connection, retained_run(step), shortcuts_on))
        elif isinstance(step, Packet):
            connection.send(step)
        else:
            seen += [connection.data_to_send(), connection.packets_taken]
            connection.buffered(0)
        seen += [connection.pending_bytes, connection.answer_bytes, told[:]]
    return seen


def retained_run(found: list[tuple[str, bytes]], qos: int = 0, packet_id: int = 0) -> Delivery:
    columns = Columns([name.encode() for name, _ in found], [payload for _, payload in found])
    return Delivery([], qos, True, False, packet_id, columns=columns)


@settings(deadline=None, max_examples=400)
@given(st.lists(steps, max_size=30))
def test_connections_with_and_without_shortcuts_do_the_same(script: list[tuple[int, object]]) -> None:
    seen = []
    for shortcuts_on in (True, False):
        shared = Encodings(is_reused=shortcuts_on)
        connections = [opened(shortcuts_on, level, shared) for level in (4, 5, V31)]
        seen.append(carry_out(connections, script, shortcuts_on))
    assert seen[0] == seen[1]


@pytest.mark.parametrize("topic_bytes", [1, 124, 125, 127, 128, 255, 256, 16_380, 65_535])
@pytest.mark.parametrize("dialect", [MQTT_311, MQTT_5])
def test_retained_messages_of_every_length_are_written_alike(topic_bytes: int, dialect: Dialect) -> None:
    for payload in (b"", b"x"):
        for qos, first_id in ((0, 0), (1, 7), (2, 32_767), (1, 65_534)):
            ids = [first_id, first_id + 1] if qos else [0, 0]
            messages = [Publish("n" * topic_bytes, payload, qos, True, False, packet_id) for packet_id in ids]
            connection, _ = opened(True, dialect.level)
            connection.data_to_send()
            connection.output_bytes_max = 1_000_000
            found = [(message.topic_name, payload) for message in messages]
            assert connection.deliver(retained_run(found, qos, first_id)) == 2
            assert b"".join(connection.data_to_send()) == b"".join(encode(message, dialect) for message in messages)


@settings(deadline=None, max_examples=200)
@given(runs, st.sampled_from([4, 5, V31]), st.integers(0, 9_000))
def test_a_run_is_sent_as_its_messages_one_by_one(run: Delivery, level: int, pending: int) -> None:
    seen = []
    for is_on in (True, False):
        connection, told = opened(is_on, level)
        connection.pending_bytes += pending
        seen.append(carry_out([(connection, told)], [(0, run), (0, None)], is_on))
    assert seen[0] == seen[1]


@pytest.mark.parametrize("level", [4, 5])
def test_a_run_is_one_part_up_to_what_must_be_sent_alone(level: int) -> None:
    plain = [Publish("t", b"%d" % number, 1) for number in range(8)]
    for extra, ids, parts in (
        ([], (), 1),
        ([Publish("t", bytes(RUN_PAYLOAD_BYTES_MAX + 1), 1)], (), 1 + 3 + 1),
        ([], (1,), 1 if level == 4 else 3 * 16),
    ):
        connection, _ = opened(True, level)
        connection.data_to_send()
        run = Delivery([*plain, *extra, *plain], 1, packet_id=1, subscription_ids=ids)
        assert connection.deliver(run) == len(run)
        assert len(connection.out) == parts


def test_a_run_ends_where_the_room_ends() -> None:
    connection, told = opened(True)
    run = Delivery([Publish("t", bytes(992), 1)] * 19, 1, packet_id=1)
    assert connection.deliver(run) == 11, "ten fill the output exactly, one goes beyond"
    assert not connection.has_room()
    assert told == ["output", "no room", "no room"]


def test_a_client_that_a_publish_depends_on_gets_its_messages_one_by_one() -> None:
    run = Delivery([Publish("t", b"x", 1)] * 8, 1, packet_id=1)
    for connect in (
        Connect("c", protocol_level=5, maximum_packet_size=100),
        Connect("c", protocol_level=5, topic_alias_maximum=3),
    ):
        connection = new_connection(Encodings(), True, [])
        connection.receive_data(encode(connect, MQTT_5))
        connection.accepted()
        connection.opened()
        connection.data_to_send()
        assert connection.deliver(run) == 8
        assert len(connection.out) >= 8


@pytest.mark.parametrize("level", [4, 5])
def test_nothing_of_a_run_follows_the_end(level: int) -> None:
    for run in (Delivery([Publish("t", b"x", 1)] * 8, 1, packet_id=1), retained_run([("a", b"x"), ("b", b"y")])):
        written = []
        for shortcuts_on in (True, False):
            connection, _ = opened(shortcuts_on, level)
            assert connection.close(ReasonCode.SERVER_SHUTTING_DOWN)
            assert deliver_run(connection, run, shortcuts_on) == len(run)
            written.append((connection.data_to_send(), connection.packets_taken))
        assert written[0] == written[1]


def test_a_large_payload_is_shared_by_all_receivers() -> None:
    shared = Encodings()
    for qos in range(3):
        large = Publish("a", bytes(SHARED_BYTES_MIN), qos)
        parts = []
        for _ in range(2):
            connection, _ = opened(True, 4, shared)
            assert connection.deliver(Delivery([large], qos, packet_id=1))
            parts.append(max(connection.data_to_send(), key=len))
            assert connection.packets_taken == 1
        assert parts[0] is parts[1]
