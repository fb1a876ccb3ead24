"""What must be durable at a moment of a recording, and whether what was found after a power cut has it.

Owns: the promises, taken from what the server has sent and received up to that moment.
A message is known by its topic and payload. Each topic has one publisher, and no payload but the empty one comes twice.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import zip_longest

from embermq.protocol.topics import matches
from embermq.store.log.blocks import BLOCK_MAGIC, Block
from embermq.store.log.errors import BadBlock
from embermq.store.rows import Kind
from powercut import conversation
from powercut.conversation import Direction, Message
from powercut.events import Event, Happened
from powercut.opened import Opened
from support.wire import (
    CONNACK,
    CONNECT,
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREC,
    PUBREL,
    SUBACK,
    SUBSCRIBE,
)

Sent = tuple[str, bytes]
"""A message by its topic and payload."""


@dataclass
class Connection:
    """One connection: its bytes, and what the next answers answer."""

    incoming: Direction = field(default_factory=Direction)
    outgoing: Direction = field(default_factory=Direction)
    level: int = 4
    client_id: str = ""
    is_persistent: bool = False
    is_mqtt: bool = True
    asked: dict[int, list[str]] = field(default_factory=dict)


@dataclass
class Client:
    """What a client is owed, across its connections."""

    is_persistent: bool = False
    filters: set[str] = field(default_factory=set)  # whose SUBACK has been sent
    by_packet_id: dict[int, Sent] = field(default_factory=dict)  # what it published last under it
    delivered: dict[int, Sent] = field(default_factory=dict)  # what was sent to it
    done: set[Sent] = field(default_factory=set)  # the client has acknowledged it
    due: set[Sent] = field(default_factory=set)  # received for it while it was subscribed
    freed: set[int] = field(default_factory=set)  # PUBREL has come
    unreleased: set[int] = field(default_factory=set)  # PUBREC was sent, PUBREL has not come
    released: set[int] = field(default_factory=set)  # PUBCOMP was sent, the identifier is free


class Expected:
    """Told of every event of a recording; `missing` compares."""

    def __init__(self) -> None:
        self._connections: dict[int, Connection] = {}  # by inode
        self._clients: defaultdict[str, Client] = defaultdict(Client)
        self._values: defaultdict[str, list[bytes]] = defaultdict(list)  # by topic: what the server has received
        self._retained: set[str] = set()  # topics
        self._acknowledged: defaultdict[str, int] = defaultdict(int)  # by topic: up to how many values
        self._offsets: dict[Sent, int] = {}  # where the server has written it in the log
        self._sent_twice: set[Sent] = set()  # at QoS 2: a new message for the server
        self.promised: set[Sent] = set()  # acknowledged, or delivered at QoS 1 and 2; without empty payloads

    def follow(self, event: Event) -> None:
        if event.kind == Happened.ACCEPT:
            self._connections[event.inode] = Connection()
        elif event.kind == Happened.RECEIVE and event.inode in self._connections:
            self._received(self._connections[event.inode], event.data)
        elif event.kind == Happened.SEND and event.inode in self._connections:
            self._sent(self._connections[event.inode], event.data)
        elif event.kind == Happened.WRITE and ".log" in event.path and event.data.startswith(BLOCK_MAGIC):
            self._written(event.data)

    def _written(self, data: bytes) -> None:
        """Where each message is in the log, so that a trimmed one is not taken for lost."""
        try:
            block = Block(data)
        except BadBlock:  # the first part of a block that was written in parts
            return
        for row in block.group().rows:
            if row.kind == Kind.PUBLISH:
                self._offsets.setdefault((row.topic.decode(), row.payload), row.offset)

    # -- what clients sent ---------------------------------------------------------------------------------------

    def _received(self, connection: Connection, data: bytes) -> None:
        if not connection.client_id and not data.startswith(b"\x10"):
            connection.is_mqtt = False
        if not connection.is_mqtt:
            return
        for packet in connection.incoming.packets(data):
            if packet.kind == CONNECT:
                connection.level = conversation.level_of(packet)
                connection.client_id, is_clean = conversation.connected(packet, connection.level)
                connection.is_persistent = not is_clean
                continue
            client = self._clients[connection.client_id]
            if packet.kind == PUBLISH:
                self._published(client, conversation.message(packet, connection.level))
            elif packet.kind == SUBSCRIBE:
                connection.asked[packet.packet_id] = conversation.topic_filters(packet, connection.level)
            elif packet.kind in (PUBACK, PUBREC) and packet.packet_id in client.delivered:
                client.done.add(client.delivered[packet.packet_id])
            elif packet.kind == PUBREL:
                client.unreleased.discard(packet.packet_id)
                client.freed.add(packet.packet_id)

    def _published(self, publisher: Client, message: Message) -> None:
        sent = message.topic_name, message.payload
        if not message.qos:
            return
        publisher.released.discard(message.packet_id)
        # A repetition has DUP from some clients only; none of these uses a packet identifier for two messages.
        is_repetition = publisher.by_packet_id.get(message.packet_id) == sent
        is_freed = message.packet_id in publisher.freed
        if not is_repetition or message.qos == 1 or is_freed:  # a new message for the server
            self._values[message.topic_name].append(message.payload)
        if is_repetition and is_freed:  # paho forgets that it has sent PUBREL if it must connect twice
            self._sent_twice.add(sent)
        publisher.freed.discard(message.packet_id)
        publisher.by_packet_id[message.packet_id] = sent
        if message.is_retained:
            self._retained.add(message.topic_name)
        if message.payload:
            for client in self._clients.values():
                if any(matches(topic_filter, message.topic_name) for topic_filter in client.filters):
                    client.due.add(sent)

    # -- what the server sent ------------------------------------------------------------------------------------

    def _sent(self, connection: Connection, data: bytes) -> None:
        for packet in connection.outgoing.packets(data) if connection.client_id else []:
            client = self._clients[connection.client_id]
            if packet.kind == CONNACK and packet.body[1] == 0:
                client.is_persistent = connection.is_persistent
            elif packet.kind == SUBACK and connection.is_persistent:
                client.filters.update(connection.asked.pop(packet.packet_id))
            elif packet.kind in (PUBACK, PUBREC):
                self._promise(client.by_packet_id[packet.packet_id])
                if packet.kind == PUBREC:
                    client.unreleased.add(packet.packet_id)
            elif packet.kind == PUBCOMP:
                client.released.add(packet.packet_id)
            elif packet.kind == PUBLISH:
                self._delivered(client, conversation.message(packet, connection.level))

    def _promise(self, sent: Sent) -> None:
        topic_name, payload = sent
        values = self._values[topic_name]
        index = len(values) - values[::-1].index(payload)
        self._acknowledged[topic_name] = max(self._acknowledged[topic_name], index)
        if payload:
            self.promised.add(sent)

    def _delivered(self, client: Client, message: Message) -> None:
        if message.qos:
            client.delivered[message.packet_id] = message.topic_name, message.payload
            if message.payload:
                self.promised.add((message.topic_name, message.payload))

    # -- what was found ------------------------------------------------------------------------------------------

    def missing(self, found: Opened) -> list[str]:
        """What was promised and is not there."""
        wrong = [
            f"lost: {topic_name} {_text(payload)}"
            for topic_name, payload in sorted(self.promised - found.logged)
            if self._offsets.get((topic_name, payload), found.first_offset) >= found.first_offset
        ]
        for topic_name in sorted(self._retained):
            wrong += self._wrong_retained(topic_name, found.retained.get(topic_name, b""))
        for client_id, client in sorted(self._clients.items()):
            if client.is_persistent:
                wrong += self._wrong_session(client_id, client, found)
        return wrong

    def _wrong_retained(self, topic_name: str, payload: bytes) -> list[str]:
        """It is the newest that was acknowledged, or one that was on its way."""
        acknowledged = self._acknowledged[topic_name]
        allowed = self._values[topic_name][max(0, acknowledged - 1) :]
        if payload in allowed or (not payload and not acknowledged):
            return []
        return [f"retained: {topic_name} is {_text(payload)}, expected one of {[_text(value) for value in allowed]}"]

    def _wrong_session(self, client_id: str, client: Client, found: Opened) -> list[str]:
        session = found.sessions.get(client_id)
        if session is None:
            return [f"session: {client_id} is gone"]
        wrong = [
            f"session: {client_id} is not subscribed to {name}" for name in sorted(client.filters - session.filters)
        ]
        owed = set(session.owed)
        wrong += [
            f"owed: {client_id} {topic_name} {_text(payload)}"
            for topic_name, payload in sorted((client.due & self.promised) - client.done - owed)
        ]
        wrong += [f"QoS 2: {client_id} {packet_id} is forgotten" for packet_id in client.unreleased - session.received]
        wrong += [f"QoS 2: {client_id} {packet_id} is in use" for packet_id in client.released & session.received]
        return wrong

    def impossible(self, found: Opened) -> list[str]:
        """What must not be there, whatever is lost."""
        wrong = []
        by_topic: defaultdict[str, list[bytes]] = defaultdict(list)
        for topic_name, payload in found.messages:
            if payload and payload not in by_topic[topic_name]:
                by_topic[topic_name].append(payload)
        for topic_name, payloads in sorted(by_topic.items()):
            values = list(filter(None, dict.fromkeys(self._values[topic_name])))
            begin = values.index(payloads[0]) if payloads[0] in values else len(values)
            for value, payload in zip_longest(values[begin : begin + len(payloads)], payloads):
                if value != payload:
                    wrong.append(f"log: {topic_name} has {_text(payload)} in the place of {_text(value)}")
                    break
        for client_id, session in sorted(found.sessions.items()):
            # A retained message may be owed once more: after a SUBSCRIBE that was repeated.
            once = [sent for sent in session.owed if sent[0] not in self._retained and _published_qos(sent[0]) == 2]
            once = [sent for sent in once if sent not in self._sent_twice]
            if len(once) != len(set(once)):
                wrong.append(f"QoS 2: {client_id} is owed {len(once) - len(set(once))} messages twice")
        return wrong


def _text(payload: bytes | None) -> str:
    """The number of a message."""
    return "nothing" if not payload else payload[:8].split(b" ")[0].decode()


def _published_qos(topic_name: str) -> int:
    """Every topic of the load has one, after the number of its publisher."""
    return int(topic_name.split("/")[2])
