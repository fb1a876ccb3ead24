"""An MQTT 5 client of any library, reduced to what the tests ask of one.

Owns: the interface, and the names of properties: those of the standard in lower case with underscores. User Properties
are `user_property`, a list of pairs; Subscription Identifiers that came with a message are a list.
"""

import queue
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, NamedTuple

from support.client_paths import TIMEOUT_S, Ways

Properties = Mapping[str, Any]
WEBSOCKET = "websocket"


class Will(NamedTuple):
    topic_name: str
    payload: bytes
    properties: Properties = {}
    qos: int = 1


class Connack(NamedTuple):
    session_present: bool
    properties: Properties


class Message(NamedTuple):
    topic_name: str
    payload: bytes
    qos: int
    retain: bool
    properties: Properties


class Client(ABC):
    """One client id. Every wait ends after `TIMEOUT_S` with an error."""

    keeps_user_properties_in_order = True
    """Whether the library shows the order of User Properties with different names."""
    shows_publish_reason = True
    """Whether the library shows the reason code of a PUBACK."""
    resolves_topic_aliases = True
    """Whether the library puts the topic name in the place of a Topic Alias of the server."""

    def __init__(self, ways: Ways, way: str, client_id: str) -> None:
        self.host = ways.host
        self.port = ways.ws if way == WEBSOCKET else ways.tcp
        self.way = way
        self.client_id = client_id
        self.messages: queue.Queue[Message] = queue.Queue()
        self.server_reasons: queue.Queue[int] = queue.Queue()
        """The reason codes of the DISCONNECT packets that the server has sent."""

    @abstractmethod
    def connect(self, clean_start: bool = True, will: Will | None = None, **properties: Any) -> Connack:
        """CONNECT with these properties; the server must accept it."""

    @abstractmethod
    def subscribe(self, topic_filter: str, identifier: int = 0, **options: int) -> int:
        """At QoS 1 unless told; `options` as `no_local`, `retain_as_published`, `retain_handling`. The reason code."""

    @abstractmethod
    def unsubscribe(self, topic_filter: str) -> int:
        """The reason code."""

    @abstractmethod
    def publish(self, topic_name: str, payload: bytes, retain: bool = False, **properties: Any) -> int:
        """At QoS 1, until PUBACK; its reason code, or 0 from a library that does not show it."""

    @abstractmethod
    def disconnect(self, reason: int = 0, **properties: Any) -> None: ...

    @abstractmethod
    def vanish(self) -> None:
        """End the connection without DISCONNECT."""

    @abstractmethod
    def close(self) -> None:
        """End whatever is left of the client."""

    def receive(self) -> Message:
        return self.messages.get(timeout=TIMEOUT_S)

    def server_reason(self) -> int:
        """The reason code with which the server has ended the connection."""
        return self.server_reasons.get(timeout=TIMEOUT_S)
