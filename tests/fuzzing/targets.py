"""The targets: each takes any bytes, and raises for nothing but a fault of ours.

Owns: what each reader may answer, and the inputs that fuzzing begins with.
"""

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from isal.isal_zlib import crc32

from embermq.config import load, read_toml
from embermq.errors import ConfigError
from embermq.protocol.errors import PeerError
from embermq.protocol.mqtt.client_connection import ClientConnection
from embermq.protocol.mqtt.connection import Connection
from embermq.protocol.mqtt.decode import Decoder
from embermq.protocol.mqtt.dialect import LEVELS
from embermq.protocol.mqtt.encode import Encodings, encode
from embermq.protocol.mqtt.settings import DEFAULT_SETTINGS
from embermq.protocol.mqtt.states import AUTHENTICATING
from embermq.protocol.packets import Connack, Connect, Packet
from embermq.protocol.sn.wire.codec import decode as decode_sn
from embermq.protocol.sn.wire.codec import encode as encode_sn
from embermq.protocol.sn.wire.detect import detect_connect
from embermq.protocol.sn.wire.framing import open_envelope, read_frame
from embermq.protocol.sn.wire.profiles import PROFILES
from embermq.store.errors import StoreError
from embermq.store.log.blocks import HEADER_BYTES, Block
from embermq.store.log.by_topic.topic_index import TopicIndexBuilder, parse_topic_index, write_topic_index
from embermq.store.log.checkpoint import Checkpoint, CheckpointWriter, checkpoint_path
from embermq.store.log.entries import Entries
from embermq.store.log.errors import BadBlock, LogError
from embermq.store.log.segments import index_path
from embermq.store.log.writer import Log
from embermq.transport.websocket_frames import FrameReader
from support.log_samples import encode_block, fill, open_log, sample_group
from support.vectors.catalog import REJECTED, VECTORS

BYTES_MAX: Final = 4_096
PACKET_BYTES_MAX: Final = 1 << 20
HERE: Final = Path("/dev/shm" if os.path.isdir("/dev/shm") else tempfile.gettempdir())


@dataclass(frozen=True, slots=True)
class Target:
    """`run` takes an input; `begin` gives inputs to begin with."""

    name: str
    run: Callable[[bytes], None]
    begin: Callable[[], list[bytes]]


# -- MQTT --------------------------------------------------------------------------------------------------------------


def _decoded(data: bytes, pieces: int, shortcuts: bool) -> tuple[list[bytes], str]:
    """What a server reads, as bytes again, and the error: the same whatever the pieces it comes in."""
    decoder = Decoder(
        PACKET_BYTES_MAX,
        levels=LEVELS,
        settings=DEFAULT_SETTINGS,
        now_us=lambda: 0,
        shortcuts=shortcuts,
    )
    size = max(1, len(data) // pieces)
    packets: list[Packet] = []
    for at in range(0, len(data), size):
        packets += decoder.feed(data[at : at + size])
    return [repr(packet).encode() for packet in packets], str(decoder.error)


def mqtt_from_a_client(data: bytes) -> None:
    whole = _decoded(data, 1, True)
    general = _decoded(data, 1, False)
    assert whole[1] == general[1], f"{whole[1]} with shortcuts, {general[1]} without"
    assert _decoded(data, 3, True)[1] == whole[1]


def mqtt_connection(data: bytes) -> None:
    """A server's connection that is accepted, opened and answered."""
    connection = Connection(
        Encodings(), PACKET_BYTES_MAX, 1 << 20, lambda: None, lambda: False, levels=LEVELS, now_us=lambda: 0
    )
    half = len(data) // 2
    for piece in (data[:half], data[half:]):
        if connection.failure is not None:
            break
        packets = connection.receive_data(piece)
        if connection.failure is None and connection.state == AUTHENTICATING and packets:
            connection.accepted()
            connection.send(Connack(False))
            connection.opened()
    with suppress(PeerError):
        for part in connection.data_to_send():
            assert part
    connection.close()
    connection.data_to_send()


def mqtt_from_a_server(data: bytes) -> None:
    for level in (3, 4, 5):
        client = ClientConnection()
        client.connect(Connect("c", protocol_level=level))
        client.data_to_send()
        client.receive_data(data[: len(data) // 2])
        client.receive_data(data[len(data) // 2 :])
        client.data_to_send()


def _mqtt_wires() -> list[bytes]:
    connects = [encode(Connect("c", protocol_level=4))]
    wires = [vector.wire for vector in VECTORS] + [case.wire for case in REJECTED]
    found = [wire for wire in wires if len(wire) <= 200]
    return found + [connects[0] + wire for wire in found[::4]]


# -- MQTT-SN, WebSocket ------------------------------------------------------------------------------------------------


def sn_datagram(data: bytes) -> None:
    with suppress(PeerError):
        open_envelope(data)
    with suppress(PeerError):
        detect_connect(read_frame(data))
    for profile in PROFILES:
        try:
            packet = decode_sn(data, profile)
        except PeerError:
            continue
        with suppress(PeerError):  # what only a server sends may not be written by it
            written = encode_sn(packet, profile)
            assert encode_sn(decode_sn(written, profile), profile) == written


def _sn_wires() -> list[bytes]:
    heads = [bytes((length, code)) for length in (2, 3, 5, 8) for code in range(0x20)]
    return [head + bytes(range(1, head[0] - 1)) for head in heads]


def websocket(data: bytes) -> None:
    whole, pieces = FrameReader(), FrameReader()
    read = whole.feed(data)
    gathered = b"".join(pieces.feed(data[at : at + 7]) for at in range(0, len(data), 7))
    assert (read, whole.problem) == (gathered, pieces.problem)


def _websocket_wires() -> list[bytes]:
    mask = b"\x01\x02\x03\x04"
    lengths = [b"\x80", b"\x85", b"\xfe\x00\x80", b"\xff\x00\x00\x00\x00\x00\x01\x00\x00"]
    return [
        bytes((opcode,)) + length + mask + bytes(140) for opcode in (0x82, 0x02, 0x80, 0x88, 0x89) for length in lengths
    ]


# -- the log -----------------------------------------------------------------------------------------------------------


def block(data: bytes) -> None:
    """A block whose checksum is right, so that the rest of it is looked at."""
    if len(data) >= HEADER_BYTES:
        data = data[:4] + crc32(data[8:]).to_bytes(4, "little") + data[8:]
    try:
        found = Block(data)
    except BadBlock:
        return
    if len(found) > 1_000:
        return
    for offset in range(found.first_offset, found.next_offset):
        with suppress(BadBlock):
            found.record(offset)


def _blocks() -> list[bytes]:
    return [bytes(encode_block(sample_group(1, records))[1]) for records in (1, 2, 7)]


def index_entries(data: bytes) -> None:
    entries = Entries(data[: len(data) // 48 * 48])
    known = entries.part(0, entries.consistent(32, 1))
    assert len(known) <= len(entries)
    for number in range(len(known)):
        assert known.block_of(known.first_offset(number)) == number
        known.entry(number)


def topic_index(data: bytes) -> None:
    found = parse_topic_index(data, 8)
    if found is None or len(found) > 1_000:
        return
    with suppress(LogError, IndexError):
        for number in range(len(found)):
            found.topic(number)


def _topic_indexes() -> list[bytes]:
    builder = TopicIndexBuilder()
    builder.add(Block(bytes(encode_block(sample_group(1, 7))[1])))
    with tempfile.TemporaryDirectory(dir=HERE) as directory:
        path = Path(directory) / "index.topics"
        path.with_suffix(".log").touch()
        write_topic_index(path, builder.index(), 8)
        return [path.read_bytes()]


def checkpoint(data: bytes) -> None:
    with tempfile.TemporaryDirectory(dir=HERE) as directory:
        checkpoint_path(Path(directory), 9).write_bytes(data)
        with suppress(LogError):
            for rows in Checkpoint(Path(directory), 9).rows():
                assert rows


def _checkpoints() -> list[bytes]:
    with tempfile.TemporaryDirectory(dir=HERE) as name:
        writer = CheckpointWriter(Path(name), 9, 1)
        for row in sample_group(1, 7).rows:
            writer.add(row)
        writer.finish()
        return [checkpoint_path(Path(name), 9).read_bytes()]


def segment(data: bytes) -> None:
    """A log whose newest segment is any bytes: it is opened, or refused."""
    with tempfile.TemporaryDirectory(dir=HERE) as name:
        directory = Path(name)
        (directory / f"{1:020d}.log").write_bytes(data)
        if data[-1:] == b"\x01":
            index_path(directory, 1).write_bytes(data[32:80])
        try:
            log = open_log(directory)
        except (StoreError, ValueError) as error:
            assert isinstance(error, StoreError) or not data, error
            return
        _read_all(log)


def _read_all(log: Log) -> None:
    try:
        for group in log.groups_from(log.first_offset):
            assert len(group)
    finally:
        log.close()


def _segments() -> list[bytes]:
    with tempfile.TemporaryDirectory(dir=HERE) as name:
        log = open_log(Path(name))
        fill(log, [1, 3, 2])
        log.close()
        return [(Path(name) / f"{1:020d}.log").read_bytes()]


# -- settings ----------------------------------------------------------------------------------------------------------


def settings(data: bytes) -> None:
    path = HERE / f"fuzzed-{os.getpid()}.toml"
    path.write_bytes(data)
    try:
        read_toml(path)
        load(path)
    except ConfigError:
        return
    finally:
        path.unlink()


def _settings() -> list[bytes]:
    return [
        b'[store]\ndurability = "os"\n[limits]\ninflight_max = 3\n',
        b"[mqtt]\nport = 1883\n",
        b'[[listeners]]\nkind = "tcp"\nport = 1\n',
    ]


TARGETS: Final = {
    target.name: target
    for target in (
        Target("mqtt-from-a-client", mqtt_from_a_client, _mqtt_wires),
        Target("mqtt-connection", mqtt_connection, _mqtt_wires),
        Target("mqtt-from-a-server", mqtt_from_a_server, _mqtt_wires),
        Target("sn-datagram", sn_datagram, _sn_wires),
        Target("websocket", websocket, _websocket_wires),
        Target("block", block, _blocks),
        Target("index-entries", index_entries, lambda: [bytes(48), bytes(range(96))]),
        Target("topic-index", topic_index, _topic_indexes),
        Target("checkpoint", checkpoint, _checkpoints),
        Target("segment", segment, _segments),
        Target("settings", settings, _settings),
    )
}


def inputs(target: Target) -> Iterator[bytes]:
    for data in target.begin():
        yield data[:BYTES_MAX]
