"""All MQTT-SN packets under one name: one model for every wire profile.

Owns: nothing of its own; `from embermq.protocol.sn import packets as sn` keeps them apart from the core's packets.
"""

from embermq.protocol.sn.wire.connect_packets import Auth, Connack, Connect, Disconnect
from embermq.protocol.sn.wire.discovery_packets import Advertise, Gwinfo, Searchgw
from embermq.protocol.sn.wire.kinds import SnPacket
from embermq.protocol.sn.wire.liveness_packets import Pingreq, Pingresp, Sleepreq, Sleepresp, Wakeup
from embermq.protocol.sn.wire.message_packets import (
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Pubwos,
    Regack,
    Register,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
)
from embermq.protocol.sn.wire.references import (
    TopicReference,
    full_name,
    predefined_alias,
    session_alias,
    short_name,
)
from embermq.protocol.sn.wire.will_packets import ConnectWill, WillMsg, WillRequest, WillResponse, WillTopic

__all__ = [
    "Advertise",
    "Auth",
    "Connack",
    "Connect",
    "ConnectWill",
    "Disconnect",
    "Gwinfo",
    "Pingreq",
    "Pingresp",
    "Puback",
    "Pubcomp",
    "Publish",
    "Pubrec",
    "Pubrel",
    "Pubwos",
    "Regack",
    "Register",
    "Searchgw",
    "Sleepreq",
    "Sleepresp",
    "SnPacket",
    "Suback",
    "Subscribe",
    "TopicReference",
    "Unsuback",
    "Unsubscribe",
    "Wakeup",
    "WillMsg",
    "WillRequest",
    "WillResponse",
    "WillTopic",
    "full_name",
    "predefined_alias",
    "session_alias",
    "short_name",
]
