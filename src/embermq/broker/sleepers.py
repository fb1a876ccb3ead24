"""What a link needs of its session when its client may sleep, and may change its will while connected (MQTT-SN).

Owns: a small question and a change, asked by a transport about its own link only.
"""

from embermq.broker.link import Link
from embermq.protocol.packets import Will


def owed(link: Link) -> int:
    """How many messages the session still holds for its client; retained ones that are being read count as one."""
    session = link.session
    if session is None:
        return 0
    outbound = session.outbound
    newest = outbound.released if outbound.queue is None else outbound.queue.last()
    return max(0, newest - outbound.newest_sent()) + len(outbound.inflight) + len(session.streams)


def replace_will(link: Link, will: Will | None) -> None:
    """The client has another will from now on, or none."""
    if link.session is not None:
        link.session.will = will
