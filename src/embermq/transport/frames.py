"""PUBLISH frames on their way out: encoded once for all receivers of a message, large payloads not copied at all.

Owns: the message that is being fanned out, as bytes; and which parts of a turn's output are joined for one write.
Never: a socket, a connection.
"""

from typing import Final, final

from embermq.protocol.mqtt import encode
from embermq.protocol.packets import Publish

SHARED_BYTES_MIN: Final = 64 * 1024
"""From here on a payload is handed to the socket as it is, for all receivers: a copy for each could fill the memory."""


@final
class Frames:
    """The message that is being fanned out, encoded once for all of its receivers, if it cannot leave as it came."""

    __slots__ = ("_message", "_retain", "_frame", "_head_message", "_head_qos", "_head")

    def __init__(self) -> None:
        self._message: Publish | None = None
        self._retain = False
        self._frame = b""
        self._head_message: Publish | None = None
        self._head_qos = 0
        self._head = b""

    def qos0(self, message: Publish, retain: bool) -> bytes:
        """The whole PUBLISH."""
        if self._message is not message or self._retain is not retain:
            self._message = message
            self._retain = retain
            self._frame = encode.publish_qos0(message.topic_name, message.payload, retain)
        return self._frame

    def head(self, message: Publish, qos: int) -> bytes:
        """What precedes the packet identifier in the PUBLISH at QoS 1 or 2, neither retained nor sent again."""
        if self._head_message is not message or self._head_qos != qos:
            self._head_message = message
            self._head_qos = qos
            self._head = encode.publish_head(message.topic_name, len(message.payload), qos, False, False)
        return self._head


def joined(parts: list[bytes]) -> list[bytes]:
    """One write for what is small; what is large is not copied."""
    writes: list[bytes] = []
    small: list[bytes] = []
    for part in parts:
        if len(part) < SHARED_BYTES_MIN:
            small.append(part)
            continue
        if small:
            writes.append(b"".join(small))
            small.clear()
        writes.append(part)
    if small:
        writes.append(b"".join(small))
    return writes
