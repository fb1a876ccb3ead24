"""A PUBLISH that is wrong in itself, and that the standard has answered rather than the connection ended.

Owns: what is left of such a packet. It is no `Publish`, so that nothing can deliver it.
"""

from typing import Final, final

from embermq.protocol.packets import Packet
from embermq.protocol.reasons import ReasonCode


@final
class RefusedPublish(Packet):
    """A PUBLISH at QoS 1 or 2 whose PUBACK or PUBREC says why it is not taken."""

    __slots__ = ("topic_name", "payload_bytes", "qos", "packet_id", "reason", "detail")

    def __init__(
        self, topic_name: str, payload_bytes: int, qos: int, packet_id: int, reason: ReasonCode, detail: str
    ) -> None:
        self.topic_name: Final = topic_name
        self.payload_bytes: Final = payload_bytes
        self.qos: Final = qos
        self.packet_id: Final = packet_id
        self.reason: Final = reason
        self.detail: Final = detail
