"""All MQTT-SN packets under one name: one model for every wire profile.

Owns: nothing. `from embermq.protocol.sn.wire import packets as sn` keeps these packets apart from the core's, which
have the same names: a session engine handles both in nearly every function.
"""

from embermq.protocol.sn.wire.connect_packets import Auth as Auth
from embermq.protocol.sn.wire.connect_packets import Connack as Connack
from embermq.protocol.sn.wire.connect_packets import Connect as Connect
from embermq.protocol.sn.wire.connect_packets import Disconnect as Disconnect
from embermq.protocol.sn.wire.discovery_packets import Advertise as Advertise
from embermq.protocol.sn.wire.discovery_packets import Gwinfo as Gwinfo
from embermq.protocol.sn.wire.discovery_packets import Searchgw as Searchgw
from embermq.protocol.sn.wire.kinds import SnPacket as SnPacket
from embermq.protocol.sn.wire.message_packets import Puback as Puback
from embermq.protocol.sn.wire.message_packets import Pubcomp as Pubcomp
from embermq.protocol.sn.wire.message_packets import Publish as Publish
from embermq.protocol.sn.wire.message_packets import Pubrec as Pubrec
from embermq.protocol.sn.wire.message_packets import Pubrel as Pubrel
from embermq.protocol.sn.wire.message_packets import Pubwos as Pubwos
from embermq.protocol.sn.wire.message_packets import Regack as Regack
from embermq.protocol.sn.wire.message_packets import Register as Register
from embermq.protocol.sn.wire.message_packets import Suback as Suback
from embermq.protocol.sn.wire.message_packets import Subscribe as Subscribe
from embermq.protocol.sn.wire.message_packets import Unsuback as Unsuback
from embermq.protocol.sn.wire.message_packets import Unsubscribe as Unsubscribe
from embermq.protocol.sn.wire.ping_sleep_packets import Pingreq as Pingreq
from embermq.protocol.sn.wire.ping_sleep_packets import Pingresp as Pingresp
from embermq.protocol.sn.wire.ping_sleep_packets import Sleepreq as Sleepreq
from embermq.protocol.sn.wire.ping_sleep_packets import Sleepresp as Sleepresp
from embermq.protocol.sn.wire.ping_sleep_packets import Wakeup as Wakeup
from embermq.protocol.sn.wire.references import TopicReference as TopicReference
from embermq.protocol.sn.wire.references import full_name as full_name
from embermq.protocol.sn.wire.references import predefined_alias as predefined_alias
from embermq.protocol.sn.wire.references import session_alias as session_alias
from embermq.protocol.sn.wire.references import short_name as short_name
from embermq.protocol.sn.wire.will_packets import ConnectWill as ConnectWill
from embermq.protocol.sn.wire.will_packets import WillMsg as WillMsg
from embermq.protocol.sn.wire.will_packets import WillRequest as WillRequest
from embermq.protocol.sn.wire.will_packets import WillResponse as WillResponse
from embermq.protocol.sn.wire.will_packets import WillTopic as WillTopic
