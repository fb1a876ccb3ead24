"""What a bridge receives: messages of the other broker, published here by our own core as those of a client.

Owns: the session of the bridge in our core, `$bridge/NAME`, and handing packets over between the bridge's thread and
the event loop.
The other broker's packet identifiers are those of this session. So the core keeps which ones were received at QoS 2,
durably, and PUBACK, PUBREC and PUBCOMP are the core's own: they leave after the commit. If the other broker has lost
its session, ours is begun again too.
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, final

from embermq.bridge.facts import BridgeCounters
from embermq.bridge.marks import Marks
from embermq.bridge.plan import BridgePlan, first_moved
from embermq.broker.access import OPERATOR
from embermq.broker.session import ClientLink
from embermq.client.reasons import reason_text
from embermq.protocol.message_expiry import message_expires_us
from embermq.protocol.packets import (
    PUBACK,
    PUBREC,
    SESSION_NEVER_EXPIRES,
    Acknowledgement,
    Connack,
    Connect,
    Delivery,
    Packet,
    Publish,
)
from embermq.protocol.reasons import ReasonCode
from embermq.transport.server import Server

SHARE_PACKETS: Final = 256
"""How many packets one turn of the event loop takes."""
WAITING_MAX: Final = 2_000
"""How many answers may wait for a commit before more is handed over."""
RETRY_S: Final = 0.01
"""How often it is looked whether the core takes more again."""


@final
class BridgeLink(ClientLink):
    """The connection of the bridge's session, on the event loop. Answers go to the thread of the bridge."""

    def __init__(self, tells_reasons: bool, answer: Callable[[Packet], None], ended: Callable[[str], None]) -> None:
        super().__init__(supervises_keep_alive=True)
        self.is_held = False
        self.is_open = False
        self._tells_reasons: Final = tells_reasons
        self._answer: Final = answer
        self._ended: Final = ended

    def is_of_server(self) -> bool:
        return True

    def deliver(self, delivery: Delivery) -> int:
        return len(delivery)  # it has no subscription

    def acknowledge(self, acknowledgement: Acknowledgement) -> None:
        self._answer(acknowledgement)

    def tells_reasons(self) -> bool:
        return self._tells_reasons

    def send(self, packet: Packet) -> None:
        if isinstance(packet, Connack) and packet.reason:
            self._ended(f"this server refuses its own bridge: {reason_text(packet.reason)}")

    def has_room(self) -> bool:
        return True

    def listener_name(self) -> str:
        return "bridge"

    def hold_back(self, is_held: bool) -> None:
        self.is_held = is_held

    def opened(self) -> None:
        self.is_open = True

    def close(self, reason: ReasonCode, detail: str) -> None:
        self.is_open = False
        self._ended(f"this server has ended the session of its bridge: {detail}")


@final
class Inlet:
    """The receiving side of one bridge, over one connection after the other.

    `is_busy`: what was handed over is not taken yet, so no more is read. `answers`: for the other broker. `problem`:
    why the connection must end. These are read on the bridge's thread.
    """

    def __init__(
        self,
        server: Server,
        plan: BridgePlan,
        marks: Marks,
        counters: BridgeCounters,
        call: Callable[[Callable[[], None]], None],
        wake: Callable[[], None],
    ) -> None:
        """`call` has a function called on the event loop, `wake` ends the waiting of the bridge's thread."""
        self.is_busy = False
        self.answers: Final[deque[Packet]] = deque()
        self.problem = ""
        self._server: Final = server
        self._plan: Final = plan
        self._marks: Final = marks
        self._counters: Final = counters
        self._call: Final = call
        self._wake: Final = wake
        self._link: BridgeLink | None = None

    # -- on the bridge's thread ----------------------------------------------------------------------------------------

    def connected(self, is_session_present: bool) -> None:
        """The other broker has accepted the connection."""
        self.is_busy = True
        self.problem = ""
        self.answers.clear()
        link = BridgeLink(self._plan.is_mqtt5, self._add_answer, self._set_problem)
        self._link = link
        self._call(lambda: self._connect(link, not is_session_present))

    def disconnected(self, reason: str) -> None:
        link, self._link = self._link, None
        if link is not None:
            self._call(lambda: self._lose(link, reason))

    def take(self, packets: list[Packet]) -> None:
        """Hand PUBLISH and PUBREL over; `is_busy` until all of them are taken."""
        link = self._link
        kept: list[Packet] = []
        for packet in packets:
            if isinstance(packet, Publish):
                local = self._local(packet)
                if local is None:
                    continue
                kept.append(local)
            else:
                kept.append(packet)
        if kept and link is not None:
            self.is_busy = True
            self._call(lambda: self._receive(link, kept))

    def _local(self, message: Publish) -> Publish | None:
        """The message as it is published here; None if it is not, and then it is acknowledged."""
        self._counters.received += 1
        moved = first_moved(self._plan.incoming, message.topic_name, False)
        if moved is not None and not self._marks.is_own(message.properties):
            return Publish(
                moved[0],
                message.payload,
                message.qos,
                message.retain,
                message.dup,
                message.packet_id,
                message.properties,
                message.expires_us,
            )
        if moved is None:
            self._counters.unmatched += 1
        else:
            self._counters.loops += 1
        if message.qos:
            # PUBREL follows at QoS 2: the core answers that it does not know the identifier, which ends the handshake.
            self.answers.append(Acknowledgement(PUBACK if message.qos == 1 else PUBREC, message.packet_id))
        return None

    # -- on the event loop ---------------------------------------------------------------------------------------------

    def _connect(self, link: BridgeLink, is_clean: bool) -> None:
        server = self._server
        server.begin_turn()
        client_id = self._plan.local_client_id
        connect = Connect(client_id, is_clean, session_expiry_s=SESSION_NEVER_EXPIRES, protocol_level=5)
        self._do(partial(server.core.connect, link, connect, OPERATOR, "bridge", str(self._plan.address)))
        self._receive(link, [])

    def _lose(self, link: BridgeLink, reason: str) -> None:
        now_ms = self._server.begin_turn()
        if link.session is not None:
            self._server.core.lost(link, reason, now_ms)

    def _receive(self, link: BridgeLink, packets: list[Packet]) -> None:
        if link is self._link and not self.problem:
            self._do(partial(self._hand_over, link, packets))

    def _hand_over(self, link: BridgeLink, packets: list[Packet]) -> None:
        server = self._server
        now_ms = server.begin_turn()
        if not link.is_open or link.is_held or link.waiting > WAITING_MAX or server.overfull():
            server.loop.call_later(RETRY_S, self._receive, link, packets)
            return
        share = [self._with_expiry(packet) for packet in packets[:SHARE_PACKETS]]
        if share:
            server.core.receive(link, share, now_ms)
        rest = packets[SHARE_PACKETS:]
        if rest:
            server.loop.call_soon(self._receive, link, rest)
        else:
            self.is_busy = False
            self._wake()

    def _do(self, step: Callable[[], None]) -> None:
        """A bug of ours ends this connection: else the bridge would wait for good."""
        try:
            step()
        except Exception as error:
            self._server.bug(error)
            self._set_problem("internal error of this server")

    def _with_expiry(self, packet: Packet) -> Packet:
        """A message that expires does so by this server's clock."""
        if not isinstance(packet, Publish) or not packet.expires_us:
            return packet
        expires_us = message_expires_us(packet.properties, self._server.turn_us())
        return Publish(
            packet.topic_name,
            packet.payload,
            packet.qos,
            packet.retain,
            packet.dup,
            packet.packet_id,
            packet.properties,
            expires_us,
        )

    def _add_answer(self, packet: Packet) -> None:
        self.answers.append(packet)
        self._wake()

    def _set_problem(self, problem: str) -> None:
        self.problem = problem
        self._wake()
