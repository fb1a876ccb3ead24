"""Retained messages as an engine hands them to the broker: one by one, or in pieces of a long answer.

Owns: what is known of a retained message, and whether the messages of a piece can be sent in one way.
"""

from typing import Final, final

MIXED: Final = -1
"""The messages of a piece are not all sent in the same way."""


@final
class Retained:
    """The retained message of one topic name, as it was published; `topic` and `sender` become text when asked for.

    `expires_us`: when its own Message Expiry Interval or its budget's expiry ends, whichever is earlier; 0: never.
    """

    def __init__(
        self,
        topic: bytes,
        payload: bytes,
        qos: int,
        properties: bytes,
        offset: int,
        timestamp_us: int,
        sender: bytes = b"",
        expires_us: int = 0,
    ) -> None:
        self.topic: Final = topic
        self.payload: Final = payload
        self.qos: Final = qos
        self.properties: Final = properties
        self.offset: Final = offset
        self.timestamp_us: Final = timestamp_us
        self.sender: Final = sender
        self.expires_us: Final = expires_us

    @property
    def topic_name(self) -> str:
        return self.topic.decode()

    @property
    def client_id(self) -> str:
        return self.sender.decode()

    def has_expired(self, now_us: int) -> bool:
        """Whether it is no longer retained at an instant."""
        return 0 < self.expires_us <= now_us


class RetainedPiece:
    """Some of the retained messages that a filter matches. Go on after `after_topic_name`, unless it is `done`.

    An engine may keep them in another form (`PackedPiece`) until `found` is asked for.
    """

    def __init__(self, found: list[Retained], after_topic_name: str, done: bool, size_bytes: int, seeks: int) -> None:
        self._found = found
        self.after_topic_name: Final = after_topic_name
        self.done: Final = done
        self.size_bytes: Final = size_bytes  # of topic names and payloads
        self.seeks: Final = seeks  # over topics that did not match: they take time as well

    def __len__(self) -> int:
        return len(self._found)

    def found(self) -> list[Retained]:
        """The messages, each as an object."""
        return self._found

    def topics(self) -> list[bytes]:
        """The topic names of all messages."""
        return [retained.topic for retained in self._found]

    def payloads(self) -> list[bytes]:
        return [retained.payload for retained in self._found]

    def queued_bytes(self, first: int, end: int) -> int:
        """The size of some messages as a queue counts it: characters of topic names, and bytes of payloads."""
        found = self._found[first:end]
        size = len(b"".join([retained.topic for retained in found]).decode())
        for retained in found:
            size += len(retained.payload)
        return size

    def sent_qos(self, before_offset: int, granted: int) -> int:
        """The QoS at which a subscription gets all messages of this piece; `MIXED` if it differs.

        `MIXED`, too, if one has properties, or is not older than an offset and so not sent.
        """
        qos = MIXED
        for retained in self._found:
            sent = min(retained.qos, granted)
            if retained.properties or retained.offset >= before_offset or (qos != sent and qos != MIXED):
                return MIXED
            qos = sent
        return qos
