"""The client's side of MQTT without I/O: bytes in, packets out; messages and requests in, bytes out.

Owns: what the client keeps of its session (messages that the server has not acknowledged, and QoS 2 identifiers that it
has received), packet identifiers, the limits that CONNACK announces, and what waits to be sent. The session outlives a
connection: `connect` begins the next one.
Never: a socket, a clock, keep alive, a decision when to connect again.

How a shell uses it: `connect`; `receive_data` takes what was read and returns packets; `failure` says that the
connection must end; `publish`, `acknowledge`, `subscribe`, `ping` and `disconnect` gather output, and so may
`receive_data`; `data_to_send` takes it.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, final

from embermq.protocol.errors import PeerError, ProtocolError, Refused
from embermq.protocol.mqtt.decode import Decoder
from embermq.protocol.mqtt.dialect import DIALECTS, MQTT_311, Dialect
from embermq.protocol.mqtt.encode import encode
from embermq.protocol.mqtt.fields import VARIABLE_BYTE_INTEGER_MAX, VIOLATION
from embermq.protocol.mqtt.reason_codes import FAILURE
from embermq.protocol.mqtt.settings import Mqtt5Settings
from embermq.protocol.packets import (
    PACKET_IDS,
    PUBACK,
    PUBCOMP,
    PUBREC,
    PUBREL,
    Acknowledgement,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Publish,
    Suback,
    Subscribe,
    SubscriptionRequest,
)
from embermq.protocol.reasons import ReasonCode

_OLDER_CONNACK: Final = b"\x20\x02"
"""How a CONNACK before MQTT 5 begins: in MQTT 5 it has a property length as well."""
_UNKNOWN: Final = Publish("", b"")
_BY_LEVEL: Final[dict[int, Dialect]] = {dialect.level: dialect for dialect in DIALECTS.values()}


@final
@dataclass
class Acknowledged(Packet):
    """In the place of PUBACK, PUBREC and PUBCOMP: what became of a message. Reasons from 0x80 on refuse it (MQTT 5)."""

    message: Publish
    reason: int


def _epoch() -> int:
    """The instant of a connection whose user does not ask when a message expires."""
    return 0


@final
class ClientConnection:
    """The state machine of one client, over one connection after the other.

    `connack`: the server's answer; None until it has come. `is_open`: the server has accepted the connection.
    `failure`: why the connection must end now; the packets that came before the bad one have been returned.
    `pending_bytes`: how much output waits. `window`: how many messages at QoS 1 and 2 may be sent and unacknowledged:
    `window_max`, or the server's Receive Maximum if that is less.
    `sent_bytes_max` is the largest packet that is sent; a server may announce less. `received_bytes_max` is the
    largest one that is read. `now_us` tells the instant from which a received Message Expiry Interval counts.
    """

    def __init__(
        self,
        window_max: int = PACKET_IDS,
        sent_bytes_max: int = VARIABLE_BYTE_INTEGER_MAX,
        received_bytes_max: int = VARIABLE_BYTE_INTEGER_MAX,
        now_us: Callable[[], int] = _epoch,
    ) -> None:
        self.connack: Connack | None = None
        self.is_open = False
        self.failure: PeerError | None = None
        self.pending_bytes = 0
        self.window = window_max
        self._window_max: Final = window_max
        self._sent_bytes_max: Final = sent_bytes_max
        self._received_bytes_max: Final = received_bytes_max
        self._now_us: Final = now_us
        self._receive_maximum = PACKET_IDS
        self._bytes_max = sent_bytes_max
        self._dialect = MQTT_311
        self._decoder = Decoder(received_bytes_max, server=False)
        self._start: bytes | None = None  # what has come of the first two bytes, where they tell the server's version
        self._out: list[bytes] = []
        self._next_id = 1
        self._unacknowledged: Final[dict[int, Publish]] = {}  # in the order of `publish`
        self._unsent: OrderedDict[int, None] = OrderedDict()  # those that were not sent over this connection
        self._released: Final[dict[int, None]] = {}  # those whose PUBREC has come, in its order
        self._requests: Final[set[int]] = set()  # of each SUBSCRIBE that is not answered
        # Messages by packet identifier until `acknowledge`; None: PUBREC was sent and PUBREL has not come.
        self._received: Final[dict[int, Publish | None]] = {}

    # -- the connection ------------------------------------------------------------------------------------------------

    def connect(self, packet: Connect) -> None:
        """Begin a connection, and gather CONNECT. What was not sent over the connection before is dropped.

        Messages that the server has not acknowledged are sent again when CONNACK has come.
        """
        self._dialect = _BY_LEVEL[packet.protocol_level]
        self._decoder = self._decoder_of(self._dialect, packet.topic_alias_maximum)
        self._receive_maximum = packet.receive_maximum
        self._start = b"" if self._dialect.has_properties else None
        self._out.clear()
        self.pending_bytes = 0
        self.connack = None
        self.is_open = False
        self.failure = None
        self._requests.clear()
        for packet_id in [packet_id for packet_id, message in self._received.items() if message is not None]:
            del self._received[packet_id]  # the server sends it again
        self._send(packet)

    def _decoder_of(self, dialect: Dialect, topic_alias_maximum: int) -> Decoder:
        settings = Mqtt5Settings(topic_alias_maximum=topic_alias_maximum)
        size = self._received_bytes_max
        return Decoder(size, server=False, dialect=dialect, settings=settings, now_us=self._now_us)

    def ping(self) -> None:
        """Gather PINGREQ."""
        self._send(Pingreq())

    def disconnect(self, reason: int = ReasonCode.SUCCESS) -> None:
        """Gather DISCONNECT, the last packet; before MQTT 5 there is none with a reason."""
        self._send(Disconnect(reason))
        self.is_open = False

    # -- out -----------------------------------------------------------------------------------------------------------

    @property
    def unacknowledged(self) -> int:
        """How many messages the server has not acknowledged, sent or not. There may be `PACKET_IDS` at most."""
        return len(self._unacknowledged)

    def publish(self, message: Publish) -> None:
        """Gather a message; at QoS 1 and 2 it gets a packet identifier and is kept until the server acknowledges it.

        It waits while the window is full or the connection is not open; at QoS 0 it is then dropped, if not open.
        `Refused`: it is larger than the server takes, and was not kept.
        """
        if not message.qos:
            if self.is_open:
                self._gather(self._encoded(message))
            return
        packet_id = self._free_id()
        numbered = _numbered(message, packet_id, False)
        if self.is_open and not self._unsent and len(self._unacknowledged) < self.window:
            self._gather(self._encoded(numbered))
        else:
            self._unsent[packet_id] = None
        self._unacknowledged[packet_id] = numbered

    def acknowledge(self, message: Publish) -> None:
        """Gather PUBACK or PUBREC for a message that `receive_data` has returned; nothing if it came at QoS 0.

        Nothing either if it came over an earlier connection: the server sends it again.
        """
        packet_id = message.packet_id
        if self._received.get(packet_id) is not message:
            return
        if message.qos == 1:
            del self._received[packet_id]
            self._acknowledge(PUBACK, packet_id)
        else:
            self._received[packet_id] = None
            self._acknowledge(PUBREC, packet_id)

    def subscribe(self, requests: list[SubscriptionRequest]) -> int:
        """Gather SUBSCRIBE; returns the packet identifier that SUBACK will have."""
        packet_id = self._free_id()
        self._requests.add(packet_id)
        self._send(Subscribe(packet_id, requests))
        return packet_id

    def data_to_send(self) -> bytes:
        """Take what was gathered."""
        data = b"".join(self._out)
        self._out.clear()
        self.pending_bytes = 0
        return data

    def _free_id(self) -> int:
        if len(self._unacknowledged) + len(self._requests) >= PACKET_IDS:
            raise OverflowError("every packet identifier is in use")
        packet_id = self._next_id
        while packet_id in self._unacknowledged or packet_id in self._requests:
            packet_id = packet_id % PACKET_IDS + 1
        self._next_id = packet_id % PACKET_IDS + 1
        return packet_id

    def _encoded(self, message: Publish) -> bytes:
        if message.size_bytes() <= self._bytes_max:
            frame = encode(message, self._dialect)
            if len(frame) <= self._bytes_max:
                return frame
        raise Refused(f"a message of {len(message.payload)} bytes", ReasonCode.PACKET_TOO_LARGE)

    def _send(self, packet: Packet) -> None:
        self._gather(encode(packet, self._dialect))

    def _acknowledge(self, packet_type: int, packet_id: int, is_known: bool = True) -> None:
        self._send(
            Acknowledgement(packet_type, packet_id, 1, 0 if is_known else ReasonCode.PACKET_IDENTIFIER_NOT_FOUND)
        )

    def _gather(self, frame: bytes) -> None:
        self._out.append(frame)
        self.pending_bytes += len(frame)

    # -- in ------------------------------------------------------------------------------------------------------------

    def receive_data(self, data: bytes) -> list[Packet]:
        """What has come: CONNACK, then messages to `acknowledge`, `Acknowledged`, and the server's other packets.

        Never raises for what a server sent: see `failure` afterwards.
        """
        if self.failure is not None:
            return []
        if self._start is not None:
            data = self._start + data
            self._start = data if len(data) < len(_OLDER_CONNACK) else None
            if self._start is not None:
                return []
            if data.startswith(_OLDER_CONNACK):
                self._decoder = self._decoder_of(MQTT_311, 0)  # what an older server says to a client of MQTT 5
        events: list[Packet] = []
        try:
            for packet in self._decoder.feed(data):
                if self.is_open:
                    self._receive(packet, events)
                else:
                    self._receive_first(packet, events)
            self._send_next(events)
            self.failure = self._decoder.error
        except PeerError as error:
            self.failure = error.with_traceback(None)
        return events

    def _receive_first(self, packet: Packet, events: list[Packet]) -> None:
        if self.connack is not None:
            return  # what follows a refusal or a DISCONNECT does not count
        if isinstance(packet, Auth):
            events.append(packet)
            return
        if not isinstance(packet, Connack):
            raise ProtocolError(f"the first packet is {type(packet).__name__}, not CONNACK", "MQTT-3.2.0-1")
        if not packet.reason and self._decoder.dialect is not self._dialect:
            raise ProtocolError("CONNACK of another version", VIOLATION)
        self.connack = packet
        events.append(packet)
        if not packet.reason:
            self.is_open = True
            self.window = min(self._window_max, packet.receive_maximum)
            self._bytes_max = min(self._sent_bytes_max, packet.maximum_packet_size or self._sent_bytes_max)
            self._resume(packet.session_present, events)

    def _resume(self, session_present: bool, events: list[Packet]) -> None:
        """Send again what is unacknowledged, in its order and with the same packet identifiers (4.4).

        A server without the session knows none of it: what it has not taken is new to it, and has no DUP. A message
        whose PUBREC has come is its own already.
        """
        messages = self._unacknowledged
        if not session_present:
            self._received.clear()
            events += [Acknowledged(messages.pop(packet_id), 0) for packet_id in self._released]
            self._released.clear()
        never_sent = self._unsent
        for packet_id, message in messages.items():
            dup = session_present and (message.dup or packet_id not in never_sent)
            messages[packet_id] = _numbered(message, packet_id, dup)
        for packet_id in self._released:
            self._acknowledge(PUBREL, packet_id)
        self._unsent = OrderedDict.fromkeys([packet_id for packet_id in messages if packet_id not in self._released])

    def _send_next(self, events: list[Packet]) -> None:
        """Send messages that wait, as far as the window has places."""
        unsent = self._unsent
        while unsent and self.is_open and len(self._unacknowledged) - len(unsent) < self.window:
            packet_id, _ = unsent.popitem(last=False)
            try:
                self._gather(self._encoded(self._unacknowledged[packet_id]))
            except Refused as refused:
                events.append(Acknowledged(self._unacknowledged.pop(packet_id), refused.reason))

    def _receive(self, packet: Packet, events: list[Packet]) -> None:
        if isinstance(packet, Publish):
            self._receive_message(packet, events)
        elif isinstance(packet, Acknowledgement):
            for packet_id in range(packet.packet_id, packet.packet_id + packet.count):
                self._receive_acknowledgement(packet.packet_type, packet_id, packet.reason, events)
        elif isinstance(packet, Connack):
            raise ProtocolError("a second CONNACK", VIOLATION)
        else:
            if isinstance(packet, Suback):
                self._requests.discard(packet.packet_id)
            elif isinstance(packet, Disconnect):
                self.is_open = False
            events.append(packet)

    def _receive_acknowledgement(self, packet_type: int, packet_id: int, reason: int, events: list[Packet]) -> None:
        if packet_type == PUBREL:
            is_known = self._received.get(packet_id, _UNKNOWN) is None
            if is_known:
                del self._received[packet_id]
            self._acknowledge(PUBCOMP, packet_id, is_known)
            return
        is_sent = self._is_sent(packet_id)
        if packet_type == PUBREC and reason < FAILURE:
            if is_sent:
                self._released[packet_id] = None
            self._acknowledge(PUBREL, packet_id, is_sent)
        elif is_sent:
            self._released.pop(packet_id, None)
            # A reason in PUBCOMP says only that the server has forgotten the identifier: PUBREC told the result.
            result = 0 if packet_type == PUBCOMP else reason
            events.append(Acknowledged(self._unacknowledged.pop(packet_id), result))

    def _is_sent(self, packet_id: int) -> bool:
        """Whether an acknowledgement may name it: a server that names another one is not believed."""
        return packet_id in self._unacknowledged and packet_id not in self._unsent

    def _receive_message(self, message: Publish, events: list[Packet]) -> None:
        packet_id = message.packet_id
        received = self._received
        if message.qos == 2 and packet_id in received:
            if received[packet_id] is None:
                self._acknowledge(PUBREC, packet_id)  # it is answered, and not given out a second time (4.3.3)
            return
        if message.qos:
            received[packet_id] = message
            if len(received) > self._receive_maximum:
                raise ProtocolError(
                    f"more than {self._receive_maximum} messages without acknowledgement",
                    "MQTT-3.3.4-9",
                    ReasonCode.RECEIVE_MAXIMUM_EXCEEDED,
                )
        events.append(message)


def _numbered(message: Publish, packet_id: int, dup: bool) -> Publish:
    return Publish(message.topic_name, message.payload, message.qos, message.retain, dup, packet_id, message.properties)
