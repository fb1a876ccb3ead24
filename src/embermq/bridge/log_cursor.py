"""The log as one bridge reads it: the messages that its rules send, one by one, from an offset on.

Owns: where the next record is, and which topics go where, remembered for the topics that were seen.
Never: what is done with a message. A piece of the log is in memory, however far the end is.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final, final

from embermq.bridge.marks import Marks
from embermq.bridge.plan import Rule, first_moved
from embermq.protocol.message_expiry import message_expires_us
from embermq.protocol.packets import Publish
from embermq.store.log.blocks import Block
from embermq.store.log.errors import LogLost, LogTrimmed
from embermq.store.log.identity import LostRange, goes_on_at
from embermq.store.log.reader import LogReader
from embermq.store.rows import QOS_MASK, RETAIN_FLAG, Kind

PIECE_RECORDS: Final = 1_000
PIECE_BYTES: Final = 1024 * 1024
"""How much of the log is read at a time; one commit group at least."""
REST_RECORDS: Final = 2_000
"""After so many records that are not sent the caller may do something else."""
TOPICS_MAX: Final = 20_000
"""For how many topics it is remembered where they go."""

_PUBLISH: Final = int(Kind.PUBLISH)


@final
class OutMessage:
    """A message for the other broker. `next_offset`: of the record behind it."""

    __slots__ = ("message", "next_offset")

    def __init__(self, message: Publish, next_offset: int) -> None:
        self.message: Final = message
        self.next_offset: Final = next_offset


@final
class LogCursor:
    """A cursor. `offset`: the next record. `has_ended`: the last answer was None since nothing durable is behind it.

    `lost`: how many records were trimmed before it had come to them.
    """

    __slots__ = (
        "_marks",
        "_loops",
        "_messages",
        "_own",
        "_reader",
        "_rules",
        "_targets",
        "has_ended",
        "lost",
        "offset",
    )

    def __init__(self, directory: Path, rules: tuple[Rule, ...], own_client_id: str, marks: Marks) -> None:
        self.offset = 0
        self.has_ended = False
        self.lost = 0
        self._loops = 0
        self._reader: Final = LogReader(directory)
        self._rules: Final = rules
        self._own: Final = own_client_id.encode()
        self._marks: Final = marks
        self._targets: Final[dict[bytes, tuple[str, Rule] | None]] = {}
        self._messages: Iterator[OutMessage | None] | None = None

    def seek(self, offset: int) -> None:
        self.offset = offset
        self._messages = None

    def next(self) -> OutMessage | None:
        """The next message; None at the end of what is durable, or where the caller may do something else.

        A `LogError` if the log cannot be read; what was trimmed is passed over, and counted.
        """
        self.has_ended = False
        if self._messages is None:
            self._messages = self._read()
        try:
            return next(self._messages)
        except StopIteration:
            self._messages = None
            self.has_ended = True
            return None
        except LogTrimmed as error:
            self._messages = None
            self._pass_over(error.first_available)
            return None
        except BaseException:
            self._messages = None
            raise

    def take_loops(self) -> int:
        """How many messages were not sent, since the last call, since they have gone in a circle."""
        loops, self._loops = self._loops, 0
        return loops

    def _pass_over(self, first_offset: int) -> None:
        self.lost += max(0, first_offset - self.offset)
        self.offset = max(self.offset, first_offset)

    def _read(self) -> Iterator[OutMessage | None]:
        end = self._reader.bounds()[1]
        lost = self._reader.lost()
        self._leave(lost)
        if self.offset >= end:
            return
        for run in self._reader.runs(self.offset, end, rows=PIECE_RECORDS, bytes=PIECE_BYTES):
            self.offset = run.start
            for block in run.blocks():
                yield from self._messages_of(block, max(run.start, block.first_offset), min(run.end, block.next_offset))

    def _leave(self, lost: tuple[LostRange, ...]) -> None:
        """Step over offsets that were lost with a machine before the log was restored."""
        try:
            self.offset = goes_on_at(lost, self.offset)
        except LogLost as error:
            self.offset = error.first_available

    def _messages_of(self, block: Block, start: int, end: int) -> Iterator[OutMessage | None]:
        targets = self._targets
        rest_at = start + REST_RECORDS
        for offset in range(start, end):
            if block.kind(offset) == _PUBLISH:
                topic = block.topic(offset)
                try:
                    target = targets[topic]
                except KeyError:
                    target = self._target(topic)
                if target is not None:
                    message = self._message(block, offset, target)
                    self.offset = offset + 1
                    if message is not None:
                        yield OutMessage(message, offset + 1)
                        rest_at = offset + REST_RECORDS
                        continue
            if offset >= rest_at:
                self.offset = offset + 1
                rest_at = offset + REST_RECORDS
                yield None
        self.offset = end

    def _target(self, topic: bytes) -> tuple[str, Rule] | None:
        targets = self._targets
        if len(targets) >= TOPICS_MAX:
            targets.clear()
        target = targets[topic] = first_moved(self._rules, topic.decode(), True)
        return target

    def _message(self, block: Block, offset: int, target: tuple[str, Rule]) -> Publish | None:
        """What is sent of a record; None if it has come over this bridge, or gone in a circle."""
        record = block.record(offset)
        if record.client_id == self._own:
            return None
        properties = record.properties
        if properties and (self._marks.is_own(properties) or self._marks.are_too_many(properties)):
            self._loops += 1
            return None
        topic_name, rule = target
        expires_us = message_expires_us(properties, record.timestamp_us) if properties else 0
        qos = min(record.flags & QOS_MASK, rule.qos)
        return Publish(
            topic_name, record.payload, qos, bool(record.flags & RETAIN_FLAG), False, 0, properties, expires_us
        )
