"""Runs of messages: QoS 1 or 2 from one client to the same receivers, one behind the other in a commit group.

Owns: when a message joins the effect of the message before it, and how such an effect is released. All receivers get
the messages in their order, then the client gets its acknowledgements; that is the same for each of them as one effect
after the other, since the client is not among the receivers. tests/broker/test_shortcuts.py compares the two. Retained
messages are in a run if they have no receivers, as most of them: who subscribes meanwhile may be owed some of them.
"""

from typing import TYPE_CHECKING, Final

from embermq.broker.link import Link
from embermq.protocol.packets import PUBACK, PUBREC, Packet, Publish
from embermq.protocol.topics import matches

if TYPE_CHECKING:
    from embermq.broker.core import Core
    from embermq.broker.effects import Effects, PublishEffect
    from embermq.broker.routes import Subscription
    from embermq.broker.session import Session

RUN_WEIGHT_MAX: Final = 512
"""A run of more deliveries than this gets no more messages: a run is released in one turn."""
RUN_MIN: Final = 4
"""Fewer than these are taken one by one: a run has a cost of its own."""


def messages_of_run(packets: list[Packet], position: int, most: int) -> list[Publish]:
    """The messages at QoS 1 or 2 from `position` on that are alike, at most so many: of one QoS, to one topic name.

    None of them is retained or expires; at QoS 2 their packet identifiers count up by one. Empty if there are few.
    """
    run: list[Publish] = []
    end = min(len(packets), position + most)
    if end - position < RUN_MIN:
        return run
    topic_name = ""
    qos = next_id = 0
    while position < end:
        packet = packets[position]
        if not isinstance(packet, Publish) or packet.retain or packet.expires_us:
            break
        if not run:
            topic_name, qos, next_id = packet.topic_name, packet.qos, packet.packet_id
        elif packet.topic_name is not topic_name or packet.qos != qos:
            break
        if qos == 2:
            if packet.packet_id != next_id:
                break
            next_id += 1
        run.append(packet)
        position += 1
    return run


def packet_ids_of(messages: list[Publish]) -> list[int] | range:
    """The packet identifiers of messages; a range if they count up by one."""
    first_id = messages[0].packet_id
    next_id = first_id
    for message in messages:
        if message.packet_id != next_id:
            return [message.packet_id for message in messages]
        next_id += 1
    return range(first_id, next_id)


def join_run(
    effects: "Effects", message: Publish, receivers: "list[Subscription]", publisher: "Session", link: Link
) -> bool:
    """Add a message without share groups to the newest effect that waits, if that is of the same run."""
    effect = effects.newest_publish()
    if (
        effect is None
        or effect.link is not link
        or effect.receivers is not receivers
        or effect.shares
        or effect.weight >= RUN_WEIGHT_MAX
    ):
        return False
    first = effect.message
    if first.qos != message.qos or message.qos == 0:
        return False
    if first.retain != message.retain or (message.retain and receivers):
        return False
    if first.expires_us or message.expires_us:
        return False
    if not effect.more:
        for receiver in receivers:
            if receiver.session is publisher:
                return False
        effect.more = [message]
    else:
        effect.more.append(message)
    effects.joined(effect, 1 + len(receivers))
    publisher.pending += 1
    link.waiting += 1
    return True


def release_run(core: "Core", effect: "PublishEffect") -> None:
    """The messages of a run are durable: deliver them, and acknowledge them to their publisher."""
    more = effect.more
    link = effect.link
    publisher = effect.session
    assert link is not None and publisher is not None
    link.waiting -= len(more)  # the first message has been taken off, as of every effect
    publisher.pending -= len(more)
    messages = [effect.message, *more]
    packet_type = PUBACK if effect.message.qos == 1 else PUBREC
    reason = effect.reason()
    if effect.included:
        for message in messages:
            core.delivery.fan_out(message, _included(effect, message), effect.client_id)
            core.retained.publish_durable(message)
            link.acknowledge(packet_type, message.packet_id, reason)
        return
    if effect.receivers:
        core.delivery.fan_out_run(messages, effect.receivers)
    if effect.message.retain:
        for message in messages:
            core.retained.publish_durable(message)
    link.acknowledge_all(packet_type, packet_ids_of(messages), reason)


def _included(effect: "PublishEffect", message: Publish) -> "list[Subscription]":
    """The subscriptions that were made while a retained message was pending, one of each session."""
    found: list[Subscription] = []
    for subscription in effect.included:
        is_wanted = message.payload and matches(subscription.topic_filter, message.topic_name)
        if is_wanted and all(receiver.session is not subscription.session for receiver in found):
            found.append(subscription)
    return found
