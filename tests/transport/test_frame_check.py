"""Frames of WebSocket clients: those without a mask and messages above the bound are refused, however they are cut."""

import pytest

from embermq.transport.frame_check import FrameCheck

CONTINUATION, BINARY, PING = 0, 2, 9


class Reader:
    """What was passed on."""

    def __init__(self) -> None:
        self.data = b""
        self.is_ended = False

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        self.data += data
        return False, b""

    def feed_eof(self) -> None:
        self.is_ended = True


def frame(opcode: int, length: int, *, final: bool = True, masked: bool = True) -> bytes:
    first = bytes([(0x80 if final else 0) | opcode])
    mask = 0x80 if masked else 0
    if length < 126:
        size = bytes([mask | length])
    elif length < 65_536:
        size = bytes([mask | 126]) + length.to_bytes(2)
    else:
        size = bytes([mask | 127]) + length.to_bytes(8)
    return first + size + (b"mask" if masked else b"") + bytes(length)


def checked(data: bytes, step: int, message_bytes_max: int = 100_000) -> tuple[Reader, list[str]]:
    reader, refusals = Reader(), list[str]()
    check = FrameCheck(reader, message_bytes_max, refusals.append)
    for start in range(0, len(data), step):
        check.feed_data(data[start : start + step])
    return reader, refusals


@pytest.mark.parametrize("step", [1, 7, 1000, 1_000_000])
def test_masked_frames_of_every_length_are_passed_on(step: int) -> None:
    data = b"".join(frame(BINARY, length) for length in (0, 1, 125, 126, 127, 65_535, 65_536, 100_000, 0))
    reader, refusals = checked(data, step)
    assert reader.data == data
    assert refusals == []


@pytest.mark.parametrize("step", [1, 7, 1_000_000])
@pytest.mark.parametrize("length", [0, 5, 200, 70_000])
def test_a_frame_that_is_not_masked_is_refused_once_and_nothing_behind_it_is_passed_on(step: int, length: int) -> None:
    good, bad = frame(BINARY, 300), frame(BINARY, length, masked=False)
    reader, refusals = checked(good + bad + good, step)
    assert len(reader.data) <= len(good) + 1
    assert [text for text in refusals if "masked" in text] == refusals and len(refusals) == 1


@pytest.mark.parametrize("step", [1, 1_000_000])
def test_a_message_is_bounded_by_what_its_frames_announce(step: int) -> None:
    parts = [frame(BINARY, 40, final=False), frame(PING, 100), frame(CONTINUATION, 60)]
    assert checked(b"".join(parts) * 3, step, message_bytes_max=100)[1] == []
    for last in (frame(CONTINUATION, 61, final=False), frame(CONTINUATION, 1 << 20)[:14]):
        _, refusals = checked(parts[0] + parts[1] + last, step, message_bytes_max=100)
        assert refusals == ["a WebSocket message of more than 100 bytes"]


def test_the_bound_can_be_raised_and_the_end_is_passed_on() -> None:
    reader, refusals = Reader(), list[str]()
    check = FrameCheck(reader, 10, refusals.append)
    check.feed_data(frame(BINARY, 10))
    check.message_bytes_max = 20
    check.feed_data(frame(BINARY, 20))
    check.feed_eof()
    assert refusals == [] and reader.is_ended
