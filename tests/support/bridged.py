"""What tests of bridges share: many messages at once, what a log has, and waiting for an event."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from embermq.store.log.reader import LogReader
from embermq.store.rows import Kind
from support import wire

WAIT_S = 60.0
BATCH = 500


def wait_until(is_so: Callable[[], bool], what: str = "it", within_s: float = WAIT_S) -> None:
    deadline_s = time.monotonic() + within_s
    while not is_so():
        assert time.monotonic() < deadline_s, f"{what} has not happened within {within_s} s"
        time.sleep(0.02)


def publish_all(port: int, messages: Sequence[tuple[str, bytes]], qos: int = 2, batch: int = BATCH) -> None:
    """Publish and wait for every acknowledgement, many messages at a time."""
    joined = wire.Wire(("127.0.0.1", port))
    assert joined.connect("publisher").return_code == 0
    for start in range(0, len(messages), batch):
        part = messages[start : start + batch]
        packets = [
            wire.publish(topic_name, payload, qos=qos, packet_id=number)
            for number, (topic_name, payload) in enumerate(part, 1)
        ]
        joined.send(b"".join(packets))
        if qos == 1:
            _expect(joined, wire.PUBACK, len(part))
        elif qos == 2:
            _expect(joined, wire.PUBREC, len(part))
            joined.send(b"".join(wire.ack(wire.PUBREL, number) for number in range(1, len(part) + 1)))
            _expect(joined, wire.PUBCOMP, len(part))
    joined.close()


def wait_until_subscribed(port: int, data: Path, there: str, here: str) -> None:
    """Wait until a bridge to the server at a port has subscribed: a retained message comes then or at once."""
    with wire.Wire(("127.0.0.1", port)) as joined:
        assert joined.connect("first").return_code == 0
        joined.publish(there, b"first", qos=1, retain=True)
    wait_until(lambda: bool(logged(data, here)), "the subscription")


def _expect(joined: wire.Wire, kind: int, count: int) -> None:
    for _ in range(count):
        assert joined.receive().kind == kind


def logged(data: Path, topic_prefix: str) -> list[bytes]:
    """The payloads that a server has recorded for topics that begin so, in order."""
    reader = LogReader(data / "log")
    prefix = topic_prefix.encode()
    return [
        block.payload(offset)
        for run in reader.runs(reader.bounds()[0])
        for block in run.blocks()
        for offset in range(max(run.start, block.first_offset), min(run.end, block.next_offset))
        if block.kind(offset) == Kind.PUBLISH and block.topic(offset).startswith(prefix)
    ]


def numbered(topic_name: str, count: int, start: int = 0) -> list[tuple[str, bytes]]:
    return [(topic_name, b"%d" % number) for number in range(start, start + count)]
