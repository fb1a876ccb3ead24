"""The decoder that reads a vector: of its sender's peer, as it is after a CONNECT of its level."""

from typing import Final

from embermq.protocol.mqtt.decode import Decoder
from embermq.protocol.mqtt.dialect import MQTT_5
from support.vectors.vector import V5, V31

PACKET_BYTES_MAX: Final = 4_000_000
_CONNECT_31: Final = bytes.fromhex("10 0f 0006 4d5149736470 03 02 0000 0001 63")


def decoder_for(sender: str, level: int = 4) -> Decoder:
    """A decoder that no vector is too large for."""
    if level == V5:
        return Decoder(PACKET_BYTES_MAX, server=sender == "client", levels=(3, 4, 5), dialect=MQTT_5)
    decoder = Decoder(PACKET_BYTES_MAX, server=sender == "client")
    if level == V31 and sender == "client":
        decoder.feed(_CONNECT_31)
    return decoder
