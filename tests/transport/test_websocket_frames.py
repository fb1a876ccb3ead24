"""Frames of WebSockets: unmasked however they are cut, a frame for each packet, and every rule has its end."""

import os
import random

import pytest

from embermq.transport.websocket_frames import (
    BINARY,
    CLOSE,
    CONTINUATION,
    PING,
    PROTOCOL_ERROR,
    TEXT,
    UNSUPPORTED_DATA,
    FrameReader,
    PacketFrames,
    head,
    unmasked,
)
from support.wire import publish

FINAL = 0x80


def frame(first: int, data: bytes, mask: bytes = b"\x01\x82\x03\x84") -> bytes:
    size = len(data)
    length = bytes([0x80 | size]) if size < 126 else b"\xfe" + size.to_bytes(2) if size < 65_536 else b""
    masked = bytes(byte ^ mask[index & 3] for index, byte in enumerate(data))
    return bytes([first]) + (length or b"\xff" + size.to_bytes(8)) + mask + masked


@pytest.mark.parametrize("size", [0, 1, 3, 4, 5, 255, 256, 257, 259, 70_000])
def test_masking_twice_gives_the_same(size: int) -> None:
    data, mask = os.urandom(size), b"\x01\x82\x03\x84"
    masked = unmasked(data, mask)
    assert masked == bytes(byte ^ mask[index & 3] for index, byte in enumerate(data))
    assert unmasked(masked, mask) == data


@pytest.mark.parametrize("seed", range(20))
def test_the_bytes_are_the_same_however_the_frames_are_cut(seed: int) -> None:
    rng = random.Random(seed)
    payload = rng.randbytes(rng.choice([10, 1_000, 140_000]))
    stream, at = b"", 0
    is_begun = False
    while at < len(payload):
        step = rng.choice([0, 1, 2, 125, 126, 300, 66_000])
        is_final = rng.random() < 0.5
        opcode = CONTINUATION if is_begun else BINARY
        stream += frame((FINAL if is_final else 0) | opcode, payload[at : at + step], rng.randbytes(4))
        if rng.random() < 0.2:
            stream += frame(FINAL | PING, b"between")
        is_begun = not is_final
        at += step
    reader = FrameReader()
    received, at = b"", 0
    while at < len(stream):
        step = rng.choice([1, 2, 7, 1_000, 70_000])
        received += reader.feed(stream[at : at + step])
        at += step
    assert (received, reader.problem) == (payload, "")


@pytest.mark.parametrize(
    ("data", "close_code"),
    [
        (b"\x82\x02ab", PROTOCOL_ERROR),  # not masked
        (frame(0xC2, b"a"), PROTOCOL_ERROR),  # a reserved bit: compression was not agreed on
        (frame(FINAL | 3, b"a"), PROTOCOL_ERROR),
        (frame(PING, b"a"), PROTOCOL_ERROR),  # a control frame in parts
        (frame(FINAL | PING, bytes(126)), PROTOCOL_ERROR),
        (frame(FINAL | CONTINUATION, b"a"), PROTOCOL_ERROR),
        (frame(BINARY, b"") + frame(FINAL | BINARY, b"b"), PROTOCOL_ERROR),
        (b"\x82\xff" + b"\xff" * 8 + b"mask", PROTOCOL_ERROR),
        (frame(FINAL | TEXT, b"a"), UNSUPPORTED_DATA),
    ],
)
def test_a_frame_that_breaks_a_rule_ends_the_stream(data: bytes, close_code: int) -> None:
    reader = FrameReader()
    assert reader.feed(frame(FINAL | BINARY, b"before") + data + frame(FINAL | BINARY, b"after")) == b"before"
    assert reader.problem and reader.close_code == close_code
    assert reader.feed(frame(FINAL | BINARY, b"after")) == b""


def test_control_frames_are_kept_apart() -> None:
    reader = FrameReader()
    assert reader.feed(frame(FINAL | PING, b"one") + frame(FINAL | PING, b"two") + frame(FINAL | BINARY, b"a")) == b"a"
    assert reader.ping == b"two"
    assert reader.feed(frame(FINAL | CLOSE, b"\x03\xe8") + frame(FINAL | BINARY, b"after")) == b""
    assert (reader.closed, reader.problem) == (b"\x03\xe8", "")


def test_an_incomplete_frame_is_not_gathered() -> None:
    reader = FrameReader()
    data = frame(FINAL | BINARY, bytes(100_000))
    assert len(reader.feed(data[:50_000])) == 50_000 - 14
    assert len(reader.feed(data[50_000:])) == 50_014


@pytest.mark.parametrize("sizes", [[0], [0, 1, 200], [120, 121, 122, 65_540, 3], [70_000, 0]])
def test_each_packet_has_its_own_frame(sizes: list[int]) -> None:
    packets = [publish("a", bytes(size)) for size in sizes]
    expected = b"".join(head(BINARY, len(packet)) + packet for packet in packets)
    assert b"".join(PacketFrames().framed(b"".join(packets))) == expected


def test_a_packet_that_comes_in_two_writes_has_one_frame() -> None:
    first, second = publish("a", bytes(70_000)), publish("b", b"x")
    frames = PacketFrames()
    parts = [first[:20], first[20:69_000], first[69_000:] + second]
    written = b"".join(part for data in parts for part in frames.framed(data))
    assert written == head(BINARY, len(first)) + first + head(BINARY, len(second)) + second
