"""Faults that are planted in the server while it runs, one for each promise: the simulation must find each.

Owns: the list. Each fault replaces a function or two of the interpreted modules; `EMBERMQ_PURE=1` is needed.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from embermq.broker import effects, wills
from embermq.broker.clock import Clock
from embermq.broker.connections import Connections
from embermq.broker.core import Core
from embermq.broker.retained_delivery import RetainedDelivery
from embermq.broker.session import ReceivedIds, Session
from embermq.broker.shared import ShareGroup
from embermq.protocol.packets import Delivery, Publish
from embermq.protocol.topics import matches
from embermq.store import records
from embermq.store.engines import disk, opening
from embermq.store.engines.checkpointer import Checkpointer
from embermq.store.engines.queue import SessionQueue
from embermq.store.log import recovery, segments, writer
from embermq.store.state.rocks import Rocks
from embermq.store.state.sessions import SessionState

Plant = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Fault:
    """`promise`: what it breaks; `plant` puts it into the server, for good."""

    name: str
    promise: str
    plant: Plant


FAULTS: Final[list[Fault]] = []


def fault(promise: str) -> Callable[[Plant], Plant]:
    """Add the function below to the list, under its name."""

    def add(plant: Plant) -> Plant:
        FAULTS.append(Fault(plant.__name__.replace("_", "-"), promise, plant))
        return plant

    return add


def change(owner: Any, name: str, function: Any) -> Any:
    """Replace a function; returns the one before."""
    before = getattr(owner, name)
    setattr(owner, name, function)
    return before


def nothing(*_: Any, **__: Any) -> None:
    """In the place of what is left out."""


# -- acknowledged is durable -------------------------------------------------------------------------------------------


@fault("acknowledged is durable: the block is synced before PUBACK")
def no_sync_of_a_block() -> None:
    change(writer, "_sync_data", nothing)


@fault("acknowledged is durable: the name of a segment is synced")
def no_sync_of_the_directory() -> None:
    change(writer, "sync_directory", nothing)


@fault("acknowledged is durable: PUBACK waits for the group")
def no_wait_for_the_group() -> None:
    change(disk.DiskStore, "must_commit", lambda self: False)


@fault("acknowledged is durable: CONNACK of a session waits")
def no_wait_for_a_session() -> None:
    change(records.SessionOpened, "is_waited_for", lambda self: False)


@fault("acknowledged is durable: SUBACK waits")
def no_wait_for_a_subscription() -> None:
    change(records.Subscribed, "is_waited_for", lambda self: False)


@fault("acknowledged is durable: the end of a session is durable before it is denied")
def no_wait_for_the_end_of_a_session() -> None:
    before = Connections.connect

    def connect(self: Any, *arguments: Any) -> None:
        self._ending.clear()
        before(self, *arguments)

    change(Connections, "connect", connect)


@fault("a failing disk: a sync that failed is not taken as done")
def errors_of_a_sync_ignored() -> None:
    before = writer._sync_data

    def sync(descriptor: int) -> None:
        try:
            before(descriptor)
        except OSError:
            return

    change(writer, "_sync_data", sync)


@fault("a failing disk: what a failed sync may have left is written again at a start")
def unsynced_blocks_trusted_at_a_start() -> None:
    change(recovery, "_make_durable", nothing)


@fault("a failing disk: a short write is continued")
def short_writes_taken_for_whole() -> None:
    change(writer, "_write", lambda descriptor, data, position: os.pwrite(descriptor, data, position))


@fault("a failing disk: a database that has refused a write is opened again")
def refused_writes_of_the_state_ignored() -> None:
    before = Rocks.write

    def write(self: Any, *arguments: Any) -> None:
        try:
            before(self, *arguments)
        except Exception:
            self._buffer = self._empty_buffer()

    change(Rocks, "write", write)


# -- recovery ----------------------------------------------------------------------------------------------------------


@fault("the log is enough: blocks that the index lacks are found")
def recovery_by_the_index_alone() -> None:
    change(recovery, "walk", lambda *_: iter(()))


@fault("the log is enough: a torn block is told by its checksum")
def recovery_without_checksums() -> None:
    change(recovery, "first_mismatch", nothing)
    change(segments, "is_whole", lambda *_: True)


@fault("the log is enough: what the state lacks is applied at a start")
def no_replay() -> None:
    change(opening, "replay", nothing)


@fault("the log is enough: what a session is owed is not trimmed")
def trimming_what_is_owed() -> None:
    def none_owed(self: Any) -> Iterator[int | None]:
        yield None

    change(SessionState, "owed_offsets", none_owed)
    change(Checkpointer, "undamaged_up_to", lambda self, offset: iter([self._log.newest_segment]))


# -- QoS 1 and 2 -------------------------------------------------------------------------------------------------------


@fault("QoS 2 once: a packet identifier is known until PUBREL")
def qos_2_identifiers_forgotten() -> None:
    change(Session, "remember_received", nothing)


@fault("QoS 2 once: a packet identifier is known after a crash")
def qos_2_identifiers_not_recorded() -> None:
    before = disk.DiskStore.append_publish
    change(disk.DiskStore, "append_publish", lambda self, message, client_id, _=0: before(self, message, client_id))


@fault("QoS 2 once: a packet identifier is free after PUBREL")
def qos_2_identifiers_never_freed() -> None:
    change(ReceivedIds, "take", lambda self, packet_id, count: None)


@fault("QoS 2 once: PUBREL is owed, not PUBLISH, after PUBREC and a crash")
def pubrec_not_recorded() -> None:
    change(SessionQueue, "release", nothing)


@fault("QoS 1 at least once: what was not acknowledged comes again")
def acknowledged_when_it_is_read() -> None:
    before = SessionQueue.read

    def read(self: Any, after_sequence: int, limit: int) -> list[Delivery]:
        found = before(self, after_sequence, limit)
        self.acknowledge(after_sequence + len(found))
        return found

    change(SessionQueue, "read", read)


@fault("what comes again has DUP")
def no_dup() -> None:
    change(Delivery, "repeated", lambda self: self)


@fault("the Receive Maximum is kept")
def window_too_large() -> None:
    before = Connections._new_outbound
    change(Connections, "_new_outbound", lambda self, queue, window: before(self, queue, 2 * window))


# -- order and retained ------------------------------------------------------------------------------------------------


@fault("order: a queue is read from its beginning")
def queue_read_backwards() -> None:
    before = SessionQueue._deliveries

    def deliveries(self: Any, *arguments: Any) -> list[Delivery]:
        found = before(self, *arguments)
        messages = [one.messages for one in found]
        for one, turned in zip(found, reversed(messages), strict=True):
            object.__setattr__(one, "messages", turned)
        return found

    change(SessionQueue, "_deliveries", deliveries)


@fault("order: effects are released as they were added")
def effects_in_reverse() -> None:
    before = effects.Effects.commit

    def commit(self: Any) -> None:
        if not self._is_committing:
            self.pending.reverse()
        before(self)

    change(effects.Effects, "commit", commit)


@fault("retained: a pending publish is not preceded by the one before it")
def pending_publishes_not_skipped() -> None:
    change(RetainedDelivery, "publish_pending", nothing)


@fault("retained: what was replaced before SUBACK comes before what replaces it")
def replaced_message_behind_the_newer() -> None:
    def keep(self: Any, topic_name: str) -> None:
        for session in self._pending_subacks:
            for stream in session.streams.pending():
                if topic_name not in stream.replaced and matches(stream.position.topic_filter, topic_name):
                    stream.replaced[topic_name] = self._last(topic_name)

    change(RetainedDelivery, "_keep_replaced", keep)


@fault("retained: an empty message clears")
def clears_ignored() -> None:
    before = disk.DiskStore.append_publish

    def append(self: Any, message: Publish, client_id: str, session_id: int = 0) -> int:
        if message.retain and not message.payload:
            message = Publish(message.topic_name, b"", message.qos, False, packet_id=message.packet_id)
        return before(self, message, client_id, session_id)

    change(disk.DiskStore, "append_publish", append)


@fault("as of an instant: the retained set is that of the log")
def as_of_a_second_before() -> None:
    before = disk.DiskHistory.as_of
    change(disk.DiskHistory, "as_of", lambda self, *a: before(self, a[0], a[1], a[2], a[3] - 1_000_000))


@fault("the log has what was acknowledged, and nothing twice")
def records_written_twice() -> None:
    before = disk.DiskStore.append_publish

    def append(self: Any, message: Publish, client_id: str, session_id: int = 0) -> int:
        if self.next_offset() % 7 == 0 and message.qos == 2 and not message.retain:
            before(self, message, client_id, session_id)
        return before(self, message, client_id, session_id)

    change(disk.DiskStore, "append_publish", append)


# -- sessions, shares, wills, expiry -----------------------------------------------------------------------------------


@fault("sessions: they are there after a start")
def one_session_lost_at_a_start() -> None:
    before = disk.DiskSessions.load
    change(disk.DiskSessions, "load", lambda self: list(before(self))[1:])


@fault("sessions: they expire not too early")
def sessions_expire_at_once() -> None:
    change(Session, "expiry_due_ms", lambda self: 1)


@fault("sessions: a clean start ends the one before")
def clean_start_keeps_the_session() -> None:
    change(records.SessionEnded, "apply", nothing)


@fault("share groups: a message goes to one member")
def share_group_gives_twice() -> None:
    before = ShareGroup._give

    def give(self: Any, member: Any, delivery: Delivery) -> None:
        before(self, member, delivery)
        for other in self._connected():
            if other is not member and delivery.qos == 2 and other.session.outbound.can_take(2):
                before(self, other, delivery)
                return

    change(ShareGroup, "_give", give)


@fault("share groups: what a member gives back goes to another")
def share_group_takes_nothing_back() -> None:
    change(ShareGroup, "take_back", nothing)


@fault("wills: not after DISCONNECT")
def will_after_disconnect() -> None:
    def disconnect(self: Any, session: Any, link: Any, packet: Any) -> None:
        self.lost(session, "disconnected")
        link.close(0, "disconnected")

    change(Connections, "disconnect", disconnect)


@fault("wills: in any case if the connection ends otherwise")
def will_forgotten() -> None:
    change(wills.Wills, "schedule", nothing)


@fault("wills: once")
def will_published_twice() -> None:
    before = wills.Wills._publish

    def publish(self: Any, *arguments: Any) -> None:
        before(self, *arguments)
        before(self, *arguments)

    change(wills.Wills, "_publish", publish)


@fault("expiry: nothing is sent after it has expired")
def expiry_ignored() -> None:
    change(Clock, "has_expired", lambda self, message: False)


@fault("nobody waits for ever: a reader that has caught up gets the rest")
def writable_ignored() -> None:
    change(Core, "writable", nothing)
