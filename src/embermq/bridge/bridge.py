"""One bridge: its thread, its connections to the other broker, and when it connects again.

Owns: the thread, the state that an operator sees, keep alive, and waiting between attempts.
Never: the core or the store, but through `host`; what is sent (`outgoing`) and received (`inlet`).
"""

import logging
import os
import random
import select
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Final, final

from embermq.bridge.facts import BridgeCounters, BridgeFacts, State
from embermq.bridge.host import Host
from embermq.bridge.inlet import Inlet
from embermq.bridge.line import Line
from embermq.bridge.log_cursor import LogCursor
from embermq.bridge.marks import Marks
from embermq.bridge.outgoing import Outgoing
from embermq.bridge.plan import BridgePlan, Rule
from embermq.bridge.position import Position, PositionFile, UsedRules
from embermq.bridge.remote import MQTT_311_BRIDGE, Remote, VersionRefused
from embermq.broker.link import Link
from embermq.broker.rates import Bucket
from embermq.client.reasons import reason_text
from embermq.errors import ConfigError
from embermq.named_thread import NamedThread
from embermq.protocol.packets import (
    PACKET_IDS,
    PUBREL,
    SESSION_NEVER_EXPIRES,
    Acknowledgement,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Publish,
    Suback,
    Subscribe,
    SubscriptionRequest,
    Unsuback,
    Unsubscribe,
    packet_id_of,
)
from embermq.store.errors import StoreError
from embermq.store.interface import Retained

ANSWER_TIMEOUT_S: Final = 10.0
FIRST_WAIT_S: Final = 0.25
WAIT_MAX_S: Final = 60.0
"""The longest time between two attempts to connect; each wait is between half of it and all of it."""
TICK_S: Final = 1.0
LEAVE_S: Final = 3.0
"""How long the end of the server waits for a bridge."""
DRAIN_S: Final = 1.0
"""How long a bridge that is stopped waits for what is in flight."""
FILL_MESSAGES: Final = 500
"""How many messages are gathered before the network is looked at."""
RECEIVE_MAXIMUM: Final = 1_000
"""How many messages the other broker may send without acknowledgement (MQTT 5)."""

logger: Final = logging.getLogger("embermq.bridge")


@final
class Bridge:
    """A bridge between `start` and `stop`. `is_idle`: its thread waits, and may not know of new records."""

    def __init__(self, plan: BridgePlan, host: Host) -> None:
        self.plan: Final = plan
        self.counters: Final = BridgeCounters()
        self.is_idle = False
        self._host: Final = host
        self._marks: Final = Marks(host.server_id)
        self._read_end, self._write_end = os.pipe()
        os.set_blocking(self._read_end, False)
        os.set_blocking(self._write_end, False)
        self._thread: Final = NamedThread(self._run, f"ember-bridge-{plan.name}")
        self._is_stopping = self._is_removed = self._is_left = False
        self._state: State = "waiting"
        self._since_us = time.time_ns() // 1000
        self._error = self._last_failure = ""
        self._file: Final = PositionFile(host.data, plan.name)
        self._used = UsedRules()
        self._outgoing: Outgoing | None = None
        self._inlet: Final = Inlet(host.server, plan, self._marks, self.counters, host.call, self.wake)
        self._subscribe_id = 0
        self._asks_as_bridge: bool = not plan.is_mqtt5
        self._heard_s = self._sent_s = self._pinged_s = 0.0
        self._bucket: Final = Bucket(plan.rate_max, self._now_ms()) if plan.rate_max else None
        self._allowed_ms = 0

    # -- on the event loop ---------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Find the position, and begin."""
        end = self._host.server.store.next_offset()
        plan = self.plan
        found, known = self._file.load(), self._file.used_rules()
        if plan.outgoing and (found is None) != (known is None):
            logger.warning(
                "bridge %s: %s is missing or damaged, so it begins at the end of the log: what was published since it"
                " last sent is not sent",
                plan.name,
                self._file.rules_path if known is None else self._file.slots_path,
            )
        used, position = known or UsedRules(), found or Position(end)
        digest = plan.outgoing_digest(self._host.server_id) if plan.outgoing else ""
        if position.offset > end:
            logger.warning("bridge %s: the log ends before its position, and was replaced", plan.name)
        if not used.digest or position.offset > end:
            position = Position(end, position.sequence, position.completed)
        cursor = LogCursor(self._host.log_directory, plan.outgoing, plan.local_client_id, self._marks)
        outgoing = Outgoing(
            plan.outgoing,
            cursor,
            self._file,
            position,
            self.counters,
            self._marks,
            self._retained,
            plan.local_client_id,
        )
        if digest != used.digest:
            outgoing.change_rules()
        outgoing.save_if_due(0.0, at_once=True)
        self._used = UsedRules(digest, used.subscribed, used.has_connected)
        if self._used != known:
            self._file.use_rules(self._used)
        self._outgoing = outgoing
        self._thread.start()

    def stop(self, is_removed: bool = False) -> None:
        """Begin to end; `join` waits for it. `is_removed`: the other broker is to forget the session."""
        self._is_removed = is_removed
        self._is_stopping = True
        self.wake()

    def join(self) -> None:
        """Wait for its end. While it connects, that takes as long as the other broker may take to answer."""
        self._thread.join()

    def leave(self) -> None:
        """As `join`, but a thread that connects is left alone: the server ends, and it has nothing more to write."""
        self._thread.join(LEAVE_S)
        self._is_left = True

    def wake(self) -> None:
        """There is something to do. From any thread."""
        with suppress(OSError):  # the pipe is full, so the thread wakes anyway
            os.write(self._write_end, b"\0")

    def turn_ended(self, next_offset: int) -> None:
        """The server has worked: there may be new records."""
        outgoing = self._outgoing
        if self.is_idle and outgoing is not None and next_offset > outgoing.cursor.offset:
            self.is_idle = False
            self.wake()

    def facts(self) -> BridgeFacts:
        outgoing = self._outgoing
        lag = in_flight = 0
        if outgoing is not None and self.plan.outgoing:
            lag = max(0, self._host.server.store.next_offset() - outgoing.position.offset)
            in_flight = outgoing.in_flight
        return BridgeFacts(
            self.plan.name,
            str(self.plan.address),
            self._state,
            self._since_us,
            self._error,
            lag,
            in_flight,
            self.counters,
        )

    # -- the thread ----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        wait_s = FIRST_WAIT_S
        while not self._is_stopping:
            moved = self._moved()
            try:
                self._connect()
            except (ConfigError, StoreError, OSError) as error:
                self._failed(str(error))
            except Exception as error:  # a bug of ours must not end the bridge for good
                logger.exception("bridge %s: internal error", self.plan.name)
                self._failed(f"internal error: {error!r}")
            if self._moved() != moved:
                wait_s = FIRST_WAIT_S
                self._last_failure = ""
            self._rest(wait_s * random.uniform(0.5, 1.0))
            wait_s = min(2 * wait_s, WAIT_MAX_S)
        self._change("stopped")
        if self._outgoing is not None and not self._is_left:
            with suppress(OSError):
                self._outgoing.save_if_due(0.0, at_once=True)
        self._file.close()

    def _moved(self) -> tuple[int, int]:
        return self.counters.acknowledged, self.counters.received

    def _rest(self, wait_s: float) -> None:
        """Wait until it is time for another attempt, or to stop."""
        until_s = time.monotonic() + wait_s
        while not self._is_stopping and (left_s := until_s - time.monotonic()) > 0:
            _wait_for(self._read_end, left_s)
            self._drain_pipe()

    def _connect(self) -> None:
        """One connection, from its beginning to its end."""
        self._change("connecting")
        self.counters.connections += 1
        before = self._host.ask(self._own_client)
        line = Line(self.plan.address)
        reason = "the connection has ended"
        try:
            remote = Remote(str(self.plan.address), self._connect_packet(), self._host.server.limits.packet_bytes_max)
            packets = self._handshake(line, remote)
            if remote.connack is not None and self._host.ask(self._own_client) not in (None, before):
                self._disconnect(line, remote, is_last=True)
                raise ConfigError(f"{self.plan.address} is this server itself: a bridge leads to another broker")
            if remote.connack is None or self._is_cleaning(remote):
                self._disconnect(line, remote)
                return
            self._begin(remote, remote.connack.session_present)
            self._serve(line, remote, packets)
        except VersionRefused as error:
            reason = str(error)
            if not self._asks_as_bridge:
                raise
            if self.plan.has_loop():
                raise ConfigError(
                    f"{error}: it does not take the bit of a bridge, and what goes out would come back by the filters"
                    " of the other direction"
                ) from None
            self._asks_as_bridge = False
        except ConfigError as error:
            reason = str(error)
            raise
        finally:
            self._inlet.disconnected(reason)
            line.close()

    def _connect_packet(self) -> Connect:
        plan = self.plan
        level = 5 if plan.is_mqtt5 else MQTT_311_BRIDGE.level if self._asks_as_bridge else 4
        return Connect(
            plan.remote_client_id(self._host.server_id),
            not self._used.has_connected,
            plan.keep_alive_s,
            None,
            plan.user_name,
            plan.password(),
            SESSION_NEVER_EXPIRES,
            RECEIVE_MAXIMUM,
            level,
            self._host.server.limits.packet_bytes_max,
        )

    def _handshake(self, line: Line, remote: Remote) -> list[Packet]:
        """Until CONNACK has come; returns what came behind it."""
        until_s = time.monotonic() + ANSWER_TIMEOUT_S
        while True:
            line.write(remote.take_output())
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                raise ConfigError(f"{self.plan.address} does not answer within {ANSWER_TIMEOUT_S:g} s")
            if self._is_stopping:
                return []
            if line.wait(self._read_end, left_s, True):
                packets = remote.receive(line.read()[0])
                if packets:
                    return packets[1:]
            self._drain_pipe()

    def _own_client(self) -> Link | None:
        """On the event loop: the connection of a client of this server with the client id that the bridge has there."""
        session = self._host.server.core.session(self.plan.remote_client_id(self._host.server_id))
        return None if session is None else session.connection()

    def _is_cleaning(self, remote: Remote) -> bool:
        """Whether this connection is only to end a session of before. In MQTT 3.1.1 its own ends with it as well."""
        if self._used.has_connected or remote.dialect.has_properties:
            return False
        self._use_subscribed([])
        return True

    def _begin(self, remote: Remote, is_present: bool) -> None:
        """The other broker has accepted the connection."""
        outgoing = self._outgoing
        assert outgoing is not None
        outgoing.connected(remote, is_present)
        self._use(UsedRules(self._used.digest, self._used.subscribed if is_present else [], True))
        self._subscribe_id = 0
        if self.plan.incoming:
            self._inlet.connected(is_present)
        self._heard_s = self._sent_s = time.monotonic()
        self._error = ""
        self._change("connected")
        logger.info("bridge %s: connected to %s", self.plan.name, self.plan.address)

    def _serve(self, line: Line, remote: Remote, packets: list[Packet]) -> None:
        stop_s = 0.0
        may_have_more = False
        while True:
            self._dispatch(packets, remote)
            remote.check()
            if self._is_stopping:
                stop_s = stop_s or time.monotonic() + DRAIN_S
                if self._is_drained() or time.monotonic() > stop_s:
                    self._disconnect(line, remote, self._is_removed)
                    return
            timeout_s = 0.05 if stop_s else self._send(line, remote)
            timeout_s = min(timeout_s, self._keep_alive(remote))
            is_reading = not self._is_paused()
            data = remote.take_output()
            if data:
                self._sent_s = time.monotonic()
            line.write(data)
            packets = []
            if line.wait(self._read_end, 0 if may_have_more and is_reading else timeout_s, is_reading) or (
                may_have_more and is_reading
            ):
                received, may_have_more = line.read()
                if received:
                    self._heard_s = time.monotonic()
                    packets = remote.receive(received)
            self.is_idle = False
            self._drain_pipe()

    def _is_paused(self) -> bool:
        """Whether nothing is read: the core has not taken all, or the rate is exceeded."""
        return self._inlet.is_busy or self._allowed_ms > self._now_ms()

    def _is_drained(self) -> bool:
        return self._outgoing is None or not self._outgoing.in_flight

    def _send(self, line: Line, remote: Remote) -> float:
        """Gather what can be sent now; returns how long there is nothing more to do but to wait."""
        outgoing = self._outgoing
        assert outgoing is not None
        self._subscribe(remote, outgoing)
        now_s = time.monotonic()
        wait_ms = self._allowed_ms - self._now_ms()
        if wait_ms > 0:
            return min(TICK_S, wait_ms / 1000)
        if not self.plan.outgoing:
            return TICK_S
        lost = outgoing.cursor.lost
        self.is_idle = True
        most = max(1, self.plan.rate_max // 20) if self._bucket is not None else FILL_MESSAGES
        count = outgoing.fill(remote, line.unwritten_bytes, most)
        if self._bucket is not None and count:
            self._allowed_ms = self._now_ms() + self._bucket.spend(count, self._now_ms())
        self.counters.loops += outgoing.cursor.take_loops()
        if outgoing.cursor.lost > lost:
            self._report_gap(outgoing.cursor.lost - lost)
        outgoing.save_if_due(now_s)
        if count or not (outgoing.is_at_end or outgoing.is_full(remote, line.unwritten_bytes)):
            self.is_idle = False
            return TICK_S if outgoing.is_full(remote, line.unwritten_bytes) else 0.0
        return TICK_S

    def _report_gap(self, lost: int) -> None:
        self.counters.lost += lost
        self._error = (
            f"{lost} records were trimmed before they were sent: the line was cut for longer than"
            " store.unread_bytes_max allows"
        )
        logger.error("bridge %s: %s", self.plan.name, self._error)

    def _keep_alive(self, remote: Remote) -> float:
        """Ping a silent broker; returns when to look again. A `ConfigError` if it does not answer."""
        assert remote.connack is not None
        asked_s = remote.connack.server_keep_alive_s
        keep_alive_s = self.plan.keep_alive_s if asked_s < 0 else asked_s
        if not keep_alive_s:
            return TICK_S
        now_s = time.monotonic()
        if self._is_paused():
            self._heard_s = now_s
        elif now_s - self._heard_s > 1.5 * keep_alive_s:
            raise ConfigError(f"{self.plan.address} has been silent for {now_s - self._heard_s:.0f} s")
        is_silent = now_s - self._heard_s >= keep_alive_s / 2 and now_s - self._pinged_s >= keep_alive_s / 2
        if is_silent or now_s - self._sent_s >= keep_alive_s / 2:
            remote.send(Pingreq())
            self._pinged_s = now_s
        return min(TICK_S, keep_alive_s / 4)

    def _dispatch(self, packets: list[Packet], remote: Remote) -> None:
        """What has come from the other broker, and the answers of our own core."""
        inlet, outgoing = self._inlet, self._outgoing
        assert outgoing is not None
        incoming: list[Packet] = []
        is_acknowledged = False
        for packet in packets:
            if isinstance(packet, Publish):
                incoming.append(packet)
            elif isinstance(packet, Acknowledgement):
                if packet.packet_type == PUBREL:
                    incoming.append(packet)
                else:
                    outgoing.acknowledge(packet, remote)
                    is_acknowledged = True
            elif isinstance(packet, Suback | Unsuback):
                self._subscribed(packet)
        if is_acknowledged:
            outgoing.advance(remote)
        if incoming:
            inlet.take(incoming)
            if self._bucket is not None:
                self._allowed_ms = self._now_ms() + self._bucket.spend(len(incoming), self._now_ms())
        if inlet.problem:
            raise ConfigError(inlet.problem)
        while inlet.answers:
            remote.send(inlet.answers.popleft())

    # -- subscriptions -------------------------------------------------------------------------------------------------

    def _subscribe(self, remote: Remote, outgoing: Outgoing) -> None:
        """Ask for what is missing, once the retained messages of here are there: then those of here stay in force."""
        wanted = {rule.remote_filter for rule in self.plan.incoming}
        if self._subscribe_id or outgoing.is_retained_due or wanted == set(self._used.subscribed):
            return
        # Half of all identifiers away from those of messages.
        self._subscribe_id = packet_id_of(outgoing.position.sequence + PACKET_IDS // 2)
        left = [each for each in self._used.subscribed if each not in wanted]
        if left:
            remote.send(Unsubscribe(self._subscribe_id % PACKET_IDS + 1, left))
        self._use_subscribed([each for each in self._used.subscribed if each in wanted])
        asked = self._asked()
        if asked:
            remote.send(Subscribe(self._subscribe_id, asked))

    def _asked(self) -> list[SubscriptionRequest]:
        """A request for each filter that is not subscribed to, with the highest QoS of its rules."""
        qos: dict[str, int] = {}
        for rule in self.plan.incoming:
            if rule.remote_filter not in self._used.subscribed:
                qos[rule.remote_filter] = max(rule.qos, qos.get(rule.remote_filter, 0))
        return [
            SubscriptionRequest(topic_filter, each, no_local=True, retain_as_published=True)
            for topic_filter, each in qos.items()
        ]

    def _subscribed(self, packet: Suback | Unsuback) -> None:
        if isinstance(packet, Unsuback) or packet.packet_id != self._subscribe_id:
            return
        asked = self._asked()
        if len(packet.reasons) != len(asked):
            raise ConfigError(f"{self.plan.address} answers SUBSCRIBE with another number of reasons")
        granted = list(self._used.subscribed)
        for request, reason in zip(asked, packet.reasons, strict=True):
            if reason < 0x80:
                granted.append(request.topic_filter)
            else:
                self._error = (
                    f"{self.plan.address} refuses the subscription to {request.topic_filter}: {reason_text(reason)}"
                )
                logger.warning("bridge %s: %s", self.plan.name, self._error)
        self._use_subscribed(granted)

    def _use_subscribed(self, topic_filters: list[str]) -> None:
        self._use(UsedRules(self._used.digest, topic_filters, True))

    def _use(self, used: UsedRules) -> None:
        if used != self._used:
            self._file.use_rules(used)
            self._used = used

    # -- small things --------------------------------------------------------------------------------------------------

    def _disconnect(self, line: Line, remote: Remote, is_last: bool = False) -> None:
        """`is_last`: the other broker is to forget the session."""
        has_expiry = is_last and remote.dialect.has_properties
        remote.send(Disconnect(0, 0) if has_expiry else Disconnect())
        with suppress(ConfigError):
            line.write(remote.take_output())

    def _retained(self, rule: Rule) -> Iterator[Retained | None]:
        return self._host.retained(rule.local_filter)

    def _failed(self, sentence: str) -> None:
        self.counters.failures += 1
        is_new = sentence != self._last_failure
        self._error = self._last_failure = sentence
        self._change("waiting")
        logger.log(logging.WARNING if is_new else logging.DEBUG, "bridge %s: %s", self.plan.name, sentence)

    def _change(self, state: State) -> None:
        if state != self._state:
            self._state = state
            self._since_us = time.time_ns() // 1000

    def _drain_pipe(self) -> None:
        with suppress(OSError):
            while len(os.read(self._read_end, 4096)) == 4096:
                pass

    def _now_ms(self) -> int:
        return int(time.monotonic() * 1000)

    def __del__(self) -> None:
        for end in (self._read_end, self._write_end):
            with suppress(OSError):
                os.close(end)


def _wait_for(descriptor: int, timeout_s: float) -> None:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    poll.poll(max(1, int(timeout_s * 1000)))
