"""The server's shell: the turn, the one timer, the connections, the way to the store's thread and back.

Owns: everything asynchronous. Given a store, an access rule and limits it moves bytes between sockets and the core.
A turn: the loop hands in what it has read, connection by connection; then, once, the core ends the turn and every
dirty connection is written to once.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from contextvars import copy_context
from typing import Final, final

from embermq import __version__
from embermq.broker.access import Access, Grant
from embermq.broker.core import Core
from embermq.broker.delivery import RUN_MESSAGES_MAX
from embermq.broker.limits import Limits
from embermq.broker.owed import heaviest
from embermq.protocol.mqtt.connection import Connection
from embermq.protocol.mqtt.dialect import LEVELS
from embermq.protocol.mqtt.encode import Encodings
from embermq.protocol.mqtt.settings import DEFAULT_SETTINGS, Mqtt5Settings
from embermq.protocol.reasons import ReasonCode
from embermq.store.interface import Store
from embermq.transport.address_bounds import SHARED_ADDRESSES, AddressBounds
from embermq.transport.authentication import Authenticator
from embermq.transport.capacity import Capacity, all_queue_bytes_max, give_back, used_bytes
from embermq.transport.listener import Listener
from embermq.transport.rate_limited_log import ServerLog
from embermq.transport.sockets.interface import ByteTransport, PolledServer
from embermq.transport.sockets.loop import SocketLoop
from embermq.transport.sockets.poll import Poll
from embermq.transport.sockets.tls_socket import Handshakes
from embermq.transport.stream_link import DISK, TURN, WAITING_MAX, StreamLink
from embermq.transport.timer import Timer, UnopenedConnections
from embermq.transport.turn_time import LONG_TURN_S, SHARE_TIMED_BYTES, TURN_S, CommitPace, TurnTime

_now_s: Final = time.monotonic  # looked up once: it is called twice in a turn

TICK_MAX_MS: Final = 1_000
TICK_MIN_MS: Final = 50
GROUP_BYTES_MAX: Final = 32 * 1024 * 1024
"""How much may wait for the disk before clients that send more are no longer read from."""
AUTHENTICATION_THREADS: Final = 2
STOP_GRACE_S: Final = 5.0
MANY_WRITTEN: Final = 256
"""In a turn that writes to this many connections, the time of writing is charged to those that brought much."""
HEAVY_BYTES: Final = 1024 * 1024
"""A client with fewer bytes of messages in memory is not disconnected because the memory is full."""


@final
class Server(PolledServer):
    """One broker on one event loop."""

    def __init__(
        self,
        *,
        store: Store,
        access: Access,
        limits: Limits,
        sys_interval_s: int = 10,
        group_bytes_max: int = GROUP_BYTES_MAX,
        shortcuts: bool = True,
        levels: tuple[int, ...] = LEVELS,
        mqtt5: Mqtt5Settings = DEFAULT_SETTINGS,
        response_information: Grant | None = None,
        used_bytes: Callable[[], int] = used_bytes,
        give_back: Callable[[], None] = give_back,
        shared_addresses: Sequence[str] = SHARED_ADDRESSES,
        long_turn_s: float = LONG_TURN_S,
    ) -> None:
        """`shortcuts` off: every packet takes the general path. `levels`: the protocol levels on a stream."""
        self.loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self.store: Final = store
        self.access: Final = access
        self.limits: Final = limits
        self.has_shortcuts: Final = shortcuts
        self.levels: Final = levels
        self.mqtt5: Final = mqtt5
        self.encodings: Final = Encodings(is_reused=shortcuts)
        self.dirty: list[StreamLink] = []  # they have something to send, or to end, when this turn ends
        self.log: Final = ServerLog()
        self.core: Final = self._new_core(shortcuts, response_information)
        self.core.bound_queues(all_queue_bytes_max(limits))
        self.addresses: Final = AddressBounds(
            limits.address_connections_max, limits.address_login_failures_max, shared_addresses
        )
        self.core.add_counts(self.addresses.counts)
        self.core.add_counts(access.counts)
        self._authenticators: Final[dict[Access, Authenticator]] = {}  # by the access rules of listeners
        self.capacity: Final = Capacity(limits, self.core.counters, self.log.ends, used_bytes)
        self.handshakes: Final = Handshakes(self.log.closed)
        self.core.add_counts(self.handshakes.counts)
        self.end_of_turn: Final[list[Callable[[], None]]] = []
        """Called when the core has ended a turn and the connections are written to: what a listener gathers itself."""
        self._give_back: Final = give_back
        self._is_giving_back = False
        self._sys_interval_ms: Final = sys_interval_s * 1000
        self.group_bytes_max: Final = group_bytes_max
        self._connections: set[StreamLink] = set()
        self._paused: dict[StreamLink, None] = {}
        self._resting: list[StreamLink] = []
        self.unopened: Final = UnopenedConnections(self.loop, self.connection_count, limits.connect_timeout_s)
        self.listeners: Final[list[Listener]] = []
        self._poll: Poll | None = None  # of its own sockets, if it has any
        self._entered: Poll | None = None  # the same, if it is not the event loop's
        self.before_stop: Final[list[Callable[[], Awaitable[None]]]] = []  # the ends of what uses this server
        self._in_turn = self._is_turn_held = self._stopping = False
        self._is_end_called = False  # the loop will call `_end_called_turn`
        self._next_report_ms = self._turn_ms = self._turn_us = 0  # the last since 1970, the others as `now_ms`
        self.turn_time: Final = TurnTime(0 if limits.has_client_rates() else SHARE_TIMED_BYTES, long_turn_s)
        self._pace: Final = CommitPace()
        self._turn_end: Final = self._end_called_turn  # bound once, not in every turn; as the context it runs in
        self._now_us: Final = self.turn_us  # and this not for every connection
        self._context: Final = copy_context()
        self._begun_s = 0.0  # when the turn began
        self._wall_ahead_s = 0.0  # wall clock minus the loop's clock, as of the last tick
        self._timer: Final = self.new_timer(self._tick)

    def _new_core(self, shortcuts: bool, response_information: Grant | None) -> Core:
        return Core(
            self.store,
            self.access,
            self.limits,
            self._wake,
            self.bug,
            __version__,
            secrets.token_hex(4),
            report_refusal=self.log.refusal,
            report_long_queue=self.log.long_queue,
            wake_in_us=self._call_in_us,
            run_max=RUN_MESSAGES_MAX if shortcuts else 1,
            response_information=response_information,
        )

    # -- life ----------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Take up the sessions that the store remembers, and begin to count time."""
        self._wall_ahead_s = time.time() - _now_s()
        self.store.begin_turn(time.time_ns() // 1000)
        self.core.start(self.now_ms(), time.time_ns() // 1000)
        self.store.when_active(self._restore)
        self._tick()

    def _restore(self) -> None:
        """At start; on a standby of a cluster when it becomes the active one."""
        self.core.restore(self.begin_turn(), time.time_ns() // 1000)

    async def stop(self) -> None:
        """End every connection (wills are published), make durable what is open, close the store."""
        self._stopping = True
        for authenticator in self._authenticators.values():
            authenticator.close()
        for listener in self.listeners:
            if listener.kind != "udp":  # its clients are told the end first, by the same socket
                listener.close()
        for close in self.before_stop:
            await close()
        self.begin_turn()
        reason = "the server is shutting down"
        self.core.stop(reason)
        for connection in list(self._connections):  # those without a session, which the core does not know
            connection.close(ReasonCode.SERVER_SHUTTING_DOWN, reason)
        self._end_turn()
        for listener in self.listeners:
            listener.close()
        deadline = self.loop.time() + STOP_GRACE_S
        while self._connections and self.loop.time() < deadline:
            await asyncio.sleep(0.01)
        for connection in list(self._connections):
            connection.abort()
        self.unopened.close()
        self._leave_poll()
        self._timer.cancel()
        await self.loop.run_in_executor(None, self.store.close)

    # -- the turn --------------------------------------------------------------------------------------------------

    def now_ms(self) -> int:
        """The instant that the core's timers count in."""
        return int(_now_s() * 1000)

    def begin_turn(self) -> int:
        """Something has come in: see to it that the turn ends; returns the instant of the turn."""
        if not self._in_turn:
            self._in_turn = True
            now_s = self._begun_s = _now_s()
            self._turn_ms = int(now_s * 1000)
            self._turn_us = int((now_s + self._wall_ahead_s) * 1_000_000)
            self.store.begin_turn(self._turn_us)
            if not self._is_turn_held and not self._is_end_called:
                self._is_end_called = True
                self.loop.call_soon(self._turn_end, context=self._context)
        return self._turn_ms

    def hold_turn(self) -> None:
        """All that begins now is one turn; `end_held_turn` ends it."""
        self._is_turn_held = True

    def end_held_turn(self) -> None:
        """All sockets that were ready have been read from."""
        self._is_turn_held = False
        self._end_turn()

    def _end_called_turn(self) -> None:
        """The loop is to call this once at a time: sockets are read between its calls, and each may begin a turn."""
        self._is_end_called = False
        self._end_turn()

    def turn_us(self) -> int:
        """The instant of the turn, in microseconds since 1970."""
        return self._turn_us

    def _wake(self) -> None:
        self.begin_turn()

    def _call_in_us(self, wait_us: int, call: Callable[[], None]) -> None:
        self.loop.call_later(wait_us / 1_000_000, call)

    def bug(self, error: Exception) -> None:
        """Something raised that no peer should be able to cause: our own fault. Log it with its trace, and count it."""
        self.core.counters.internal_errors += 1
        self.log.bug(error)

    def _end_turn(self) -> None:
        if not self._in_turn:
            return
        self._in_turn = False
        begun_s = self._begun_s
        try:
            if self.core.is_owed_due():
                self._look_at_owed()
                self._look_at_capacity()
            more = self.core.end_turn()
        except Exception as error:
            self.bug(error)
            more = False
        dirty = self.dirty
        if dirty:
            self.dirty = []
            for connection in dirty:
                try:
                    connection.flush()
                except Exception as error:  # what one socket does must not keep the others' output back
                    self.bug(error)
            if len(dirty) >= MANY_WRITTEN and self._resting:
                self._charge_writing(_now_s() - begun_s)
        for callback in self.end_of_turn:
            try:
                callback()
            except Exception as error:
                self.bug(error)
        now_s = _now_s()
        self.turn_time.ended(now_s - begun_s)
        if self._pace.look(now_s):
            self.core.gather_for(self._pace.gather_us)
        if more:
            self.begin_turn()
        if self._resting:
            self._proceed_resting()
        if self._paused and not self.overfull():
            for connection in [paused for paused in self._paused if paused.waiting <= WAITING_MAX]:
                del self._paused[connection]
                connection.resume_reading(DISK)

    def _charge_writing(self, took_s: float) -> None:
        """A turn with many receivers took long: those that brought much for it bring less in the next turns."""
        if took_s > 2 * TURN_S:
            for connection in self._resting:
                connection.cut_share()

    def _proceed_resting(self) -> None:
        """Process more of the clients that have brought much, in order, for as long as a turn allows."""
        resting = self._resting
        self._resting = []
        for position, connection in enumerate(resting):
            connection.proceed()
            if self.turn_time.is_used_up():  # the others come first in the next turn
                self._resting = resting[position + 1 :] + self._resting
                self.begin_turn()
                return

    def overfull(self) -> bool:
        """Whether more waits for the disk, or behind it, than may.

        While the disk fails nothing that must last is taken, so nothing grows; QoS 0 is still delivered.
        """
        is_full = self.store.group_bytes() > self.group_bytes_max or self.core.is_behind()
        return is_full and not self.store.failing()

    def pause(self, connection: StreamLink) -> None:
        """Too much waits for the disk: read no more of a client until it has caught up."""
        if connection.waiting > WAITING_MAX or self.overfull():
            connection.pause_reading(DISK)
            self._paused[connection] = None

    def rest(self, connection: StreamLink) -> None:
        """A client has brought much: read no more of it in this turn, which has begun."""
        connection.pause_reading(TURN)
        self._resting.append(connection)

    def _tick(self) -> None:
        self._wall_ahead_s = time.time() - _now_s()
        now_ms = self.begin_turn()
        self.log.flush()
        self.turn_time.tick()
        try:
            self.core.tick(now_ms, time.time_ns() // 1000)
            if self.core.has_throttled():
                self._look_at_owed()
            self._look_at_capacity()
            if self._sys_interval_ms and now_ms >= self._next_report_ms:
                self._next_report_ms = now_ms + self._sys_interval_ms
                self.core.report()
        except Exception as error:
            self.bug(error)
        due_ms = self.core.next_deadline_ms()
        wait_ms = TICK_MAX_MS if due_ms is None else max(TICK_MIN_MS, min(TICK_MAX_MS, due_ms - now_ms))
        self._timer.set(wait_ms / 1000)

    def _look_at_capacity(self) -> None:
        """If the memory is full: refuse subscriptions, and end the connections of the clients that hold most of it.

        Freed memory is given back on a thread: it takes as long as there is much of it.
        """
        capacity = self.capacity
        capacity.look()
        self.core.refuse_subscriptions(capacity.is_memory_full)
        if capacity.is_memory_full:
            reason = "limits.memory_bytes_max is reached, and this client holds most"
            for session in heaviest(self.core.sessions(), HEAVY_BYTES, capacity.excess_bytes()):
                capacity.client_ended()
                link = session.connection()
                if link is not None:
                    link.throttle(True)  # so that its output is not waited for
                self.core.end_connection(session, ReasonCode.QUOTA_EXCEEDED, reason)
        if capacity.must_give_back() and not self._is_giving_back and not self._stopping:
            self._is_giving_back = True
            self.loop.run_in_executor(None, self._give_back).add_done_callback(self._gave_back)

    def _gave_back(self, _: asyncio.Future[None]) -> None:
        self._is_giving_back = False
        self.capacity.gave_back()
        self.core.refuse_subscriptions(self.capacity.is_memory_full)

    def _look_at_owed(self) -> None:
        """If all clients together are owed too much: those that hold most get no more, then their connections end."""
        unsent_bytes = 0 if self._poll is None else self._poll.unsent.size_bytes  # what clients share counts once
        self.core.relieve_queues(unsent_bytes, self.now_ms())

    # -- connections -----------------------------------------------------------------------------------------------

    def connection_count(self) -> int:
        """How many streams there are, before CONNECT too."""
        return len(self._connections)

    def authenticator(self, access: Access) -> Authenticator:
        """What asks the access rules of a listener about clients on streams."""
        found = self._authenticators.get(access)
        if found is None:
            found = self._authenticators[access] = Authenticator(
                access, self.begin_turn, threads=AUTHENTICATION_THREADS, addresses=self.addresses
            )
        return found

    def new_timer(self, call: Callable[[], None]) -> Timer:
        """A timer for what clients are judged by."""
        return Timer(self.loop, self.connection_count, call)

    def refuse_proxied(self, sentence: str) -> None:
        """A connection by a listener for proxies was closed, since nothing says where its client is."""
        self.core.counters.refuse_connection(ReasonCode.PROTOCOL_ERROR)
        self.log.closed(sentence)

    def new_protocol(
        self, listener: Listener, has_output: Callable[[], None], make_room: Callable[[], bool]
    ) -> Connection:
        """What a connection understands of its bytes."""
        limits = listener.limits
        return Connection(
            self.encodings,
            limits.packet_bytes_max,
            limits.output_bytes_max,
            has_output,
            make_room,
            self.has_shortcuts,
            listener.levels or self.levels,
            self._now_us,
            self.mqtt5,
        )

    def close_listener(self, listener: Listener) -> None:
        """Accept no more connections by a listener of streams, and end those of the clients that have come by it."""
        listener.close()
        self.listeners.remove(listener)
        self.begin_turn()
        reason = f"listener {listener.name} was closed"
        for connection in [each for each in self._connections if each.is_at(listener)]:
            if connection.session is not None:
                self.core.end_connection(connection.session, ReasonCode.ADMINISTRATIVE_ACTION, reason)
            else:
                connection.close(ReasonCode.ADMINISTRATIVE_ACTION, reason)
        if all(each.access is not listener.access for each in self.listeners):
            authenticator = self._authenticators.pop(listener.access, None)
            if authenticator is not None:
                authenticator.close()

    def admit(self, connection: StreamLink, transport: ByteTransport, listener: Listener) -> bool:
        """Whether one more connection is within the limits; if so it counts from now on."""
        if not self._has_room(transport, connection.address_key, listener):
            return False
        self._connections.add(connection)
        listener.connected()
        return True

    def _has_room(self, transport: ByteTransport, address_key: str, listener: Listener) -> bool:
        if self._stopping or not self.capacity.has_room(len(self._connections), transport):
            return False
        if listener.connections >= listener.limits.connections_max:
            self.core.counters.refuse_connection(ReasonCode.SERVER_BUSY)
            reason = f"connections_max of listener {listener.name} is reached"
            self.log.ends.log(logging.WARNING, "a new connection was closed: %s", reason)
            return False
        if self.addresses.add(address_key):
            return True
        self.core.counters.refuse_connection(ReasonCode.SERVER_BUSY)
        reason = "limits.address_connections_max is reached"
        self.log.ends.log(logging.WARNING, "a new connection from %s was closed: %s", address_key, reason)
        return False

    def forget(self, connection: StreamLink, listener: Listener) -> None:
        """A connection is gone."""
        if connection in self._connections:
            self._connections.discard(connection)
            listener.disconnected()
            self.capacity.connection_ended()
            self.addresses.remove(connection.address_key)
        self._paused.pop(connection, None)

    # -- its own sockets -----------------------------------------------------------------------------------------------

    def own_poll(self) -> Poll:
        """The poll of the server's own event loop, or one that is entered in a loop of another kind as one file."""
        if self._poll is None:
            loop = self.loop
            poll = loop.poll if isinstance(loop, SocketLoop) else None
            if poll is None or not poll.take(self):
                poll = self._entered = Poll(loop)
                poll.take(self)
                loop.add_reader(poll.epoll.fileno(), poll.look_now)
            self._poll = poll
        return self._poll

    def _leave_poll(self) -> None:
        if self._poll is not None:
            self._poll.leave()
        if self._entered is not None:
            self.loop.remove_reader(self._entered.epoll.fileno())
            self._entered.close()

    def may_rest(self) -> bool:
        return self.core.may_rest()

    def group_bytes(self) -> int:
        return self.store.group_bytes()
