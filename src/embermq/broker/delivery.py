"""Delivery of messages, from the publisher to the receivers (3.1.1 sections 3.3 to 3.7, 4.3 and 4.4).

Owns: the three QoS levels in both directions: a message's record, the queues that it enters, the moment at which it is
delivered, and the acknowledgements from and to clients. What each session is owed is in `queues`.

Messages are handled as runs: those of one client to one topic name that follow each other in a read. A run means what
its messages mean one after the other; tests/broker/test_runs.py compares the two.
"""

from collections.abc import Callable
from typing import Final, final

from embermq.broker.access import Identity
from embermq.broker.admission import Admission
from embermq.broker.context import Context
from embermq.broker.effects import AcknowledgementEffect, Effect, Effects
from embermq.broker.flow import Flow
from embermq.broker.link import Link
from embermq.broker.retained_delivery import RetainedDelivery
from embermq.broker.route_group import RouteGroup
from embermq.broker.routes import Route
from embermq.broker.session import Session, Subscription
from embermq.protocol.packets import (
    PUBACK,
    PUBCOMP,
    PUBREC,
    PUBREL,
    Acknowledgement,
    Delivery,
    Packet,
    Publish,
    RefusedPublish,
)
from embermq.protocol.reasons import ReasonCode
from embermq.protocol.topics import matches
from embermq.store.interface import StoreError
from embermq.store.records import PubrelReceived

RUN_MESSAGES_MAX: Final = 512
"""How many deliveries a run causes at most: it is released in one turn."""

# One empty one for all effects, never changed.
_NONE_LEFT_OUT: Final[list[tuple[Publish, Session]]] = []
_NO_SHARES: Final[list[tuple[RouteGroup, int]]] = []
_NONE_INCLUDED: Final[list[tuple[Publish, Subscription]]] = []


def payload_bytes_of(messages: list[Publish]) -> int:
    """The bytes of all payloads."""
    payload_bytes = 0
    for message in messages:
        payload_bytes += len(message.payload)
    return payload_bytes


def _is_left_out(message: Publish, session: Session, left_out: list[tuple[Publish, Session]]) -> bool:
    return any(other is message and receiver is session for other, receiver in left_out)


def run_of(first: Publish, packets: list[Packet], position: int, most: int) -> list[Publish]:
    """A message, and those that follow it from `position` on and are alike: of one QoS, to one topic name.

    None of them is retained or expires; at QoS 1 and 2 their packet identifiers count up by one.
    """
    messages = [first]
    end = min(len(packets), position + most - 1)
    if first.expires_us:
        return messages
    topic_name, qos, packet_id = first.topic_name, first.qos, first.packet_id
    while position < end:
        packet = packets[position]
        if not isinstance(packet, Publish) or packet.retain or packet.expires_us or packet.qos != qos:
            break
        if qos:
            packet_id += 1
            if packet.packet_id != packet_id:
                break
        if packet.topic_name != topic_name:
            break
        messages.append(packet)
        position += 1
    return messages


@final
class PublishEffect(Effect):
    """The deliveries of a run of messages, and their acknowledgement to the publisher.

    The messages are those of one client to one topic name, of one QoS; their packet identifiers count up by one. If
    nobody receives them they may be of several topic names (`join`): then only their acknowledgement is left to do.
    `left_out`: of a message, a session whose stored queue was full. `shares`: the groups of a lone message, each with
    what `RouteGroup.enqueue` returned.
    """

    __slots__ = (
        "offset",
        "_delivery",
        "_messages",
        "_receivers",
        "_left_out",
        "_shares",
        "_included",
        "_client_id",
    )

    def __init__(
        self,
        delivery: "MessageDelivery",
        messages: list[Publish],
        offset: int,
        receivers: list[Subscription],
        left_out: list[tuple[Publish, Session]],
        shares: list[tuple[RouteGroup, int]],
        client_id: str,
        publisher: Session | None,
        link: Link | None,
    ) -> None:
        count = len(messages)
        super().__init__(publisher, link, count, count * (1 + len(receivers) + len(shares)))
        self._delivery: Final = delivery
        self.offset: Final = offset  # of the first message
        self._messages: Final = messages
        self._receivers: Final = receivers
        self._left_out: Final = left_out
        self._shares: Final = shares
        self._included = _NONE_INCLUDED
        self._client_id: Final = client_id

    def join(self, messages: list[Publish], link: Link | None, run_max: int) -> bool:
        """Take the messages behind the own ones that nobody receives either, if they are alike but for their topics."""
        first, last = messages[0], self._messages[-1]
        if (
            link is None
            or link is not self.link
            or self._receivers
            or self._shares
            or first.qos != last.qos
            or first.retain != last.retain
            or (first.qos and first.packet_id != last.packet_id + 1)
            or self.count + len(messages) > run_max
        ):
            return False
        self._messages.extend(messages)
        self.count += len(messages)
        self.weight += len(messages)
        return True

    def include(self, subscription: Subscription) -> None:
        """A subscription made while retained messages are pending gets them live: the store cannot show them yet."""
        if not self._messages[0].retain:
            return
        session = subscription.session
        # A subscription that replaces another one of the same session is in the route already.
        if any(receiver.session is session for receiver in self._receivers):
            return
        given = {id(message) for message, other in self._included if other.session is session}
        included = list(self._included)
        for message in self._messages:
            is_wanted = message.payload and matches(subscription.topic_filter, message.topic_name)
            if is_wanted and id(message) not in given and self._delivery.may_send(session, message):
                included.append((message, subscription))
        self._included = included

    def release(self) -> None:
        messages = self._messages
        first = messages[0]
        delivery = self._delivery
        if self._receivers:
            delivery.fan_out(messages, self._receivers, self._client_id, self._left_out)
        for group, sequence in self._shares:
            group.offer(first, sequence)
        if first.retain:
            for message in messages:
                if self._included:
                    late = [subscription for other, subscription in self._included if other is message]
                    delivery.fan_out([message], late, self._client_id)
                delivery.retained.publish_durable(message)
        link = self.link
        if link is not None and first.qos:
            # 5.0, 3.4.2.1: the publisher may know that its topic name has no subscriber.
            reason = 0 if self._receivers or self._shares else ReasonCode.NO_MATCHING_SUBSCRIBERS
            packet_type = PUBACK if first.qos == 1 else PUBREC
            link.acknowledge(Acknowledgement(packet_type, first.packet_id, len(messages), reason))


@final
class MessageDelivery:
    """Every message goes through here, and every acknowledgement."""

    def __init__(
        self,
        context: Context,
        admission: Admission,
        effects: Effects,
        retained: RetainedDelivery,
        report_long_queue: Callable[[str], None],
    ) -> None:
        self.dirty: dict[Session, None] = {}  # sessions whose window or link has changed in this turn
        self._store: Final = context.store
        self._access: Final = context.access
        self._admission: Final = admission
        self._admitted: Final = admission.admitted
        self._counters: Final = context.counters
        self._effects: Final = effects
        self.retained: Final = retained
        self.clock: Final = context.clock
        self.flow: Final = Flow(context, report_long_queue)

    def take_dirty(self) -> dict[Session, None]:
        """The sessions whose window or link has changed; from now on there is none."""
        dirty, self.dirty = self.dirty, {}
        return dirty

    def may_send(self, session: Session, message: Publish) -> bool:
        """Whether a client may get a message that it has subscribed to."""
        return self._access.reaches(session.identity, message.topic_name)

    # -- from publishers -------------------------------------------------------------------------------------------

    def receive(
        self, session: Session, link: Link, message: Publish, packets: list[Packet], position: int, run_max: int
    ) -> int:
        """A PUBLISH of a connected client, and what follows it in the read from `position` on.

        How many messages were taken, or refused, as a run: the one, and those behind it that are alike.
        """
        qos = message.qos
        route = self._admitted.get(message.topic_name)
        if route is None or message.retain or not self._access.admits(session.identity, message.topic_name):
            if qos == 2 and self._is_received_again(session, link, message):
                return 1
            refusal = self._admission.refusal(session.client_id, session.identity, message)
            if refusal is not None:
                self._counters.count_received(qos, 1, len(message.payload))
                session.count_received(1)
                if qos:
                    self._answer(link, qos, message.packet_id, 1, refusal)
                return 1
            if route is None:
                route = self._admission.route(message.topic_name)
            messages = [message]
        else:
            messages = [message]
            if position < len(packets) and not route.groups:
                messages = run_of(message, packets, position, run_max // (1 + len(route.receivers)))
            if qos == 2 and session.received_ids.has_any(message.packet_id, len(messages)):
                if self._is_received_again(session, link, message):
                    return 1
                messages = [message]
        count = len(messages)
        self._counters.count_received(qos, count, payload_bytes_of(messages))
        session.count_received(count)
        qos2_session_id = session.session_id if qos == 2 else 0
        is_taken = self._take(messages, route, session.client_id, session, link, qos2_session_id, run_max=run_max)
        if qos == 2 and is_taken:
            session.remember_received(message.packet_id, count, self._effects.added)
        return count

    def _is_received_again(self, session: Session, link: Link, message: Publish) -> bool:
        """MQTT-4.3.3-2: the same message again; the first one may not be durable yet, so the PUBREC waits as well."""
        packet_id = message.packet_id
        if session.received_ids.take(packet_id, 1) is None:
            return False
        self._counters.count_received(2, 1, len(message.payload))
        session.count_received(1)
        self._effects.add(AcknowledgementEffect(link, Acknowledgement(PUBREC, packet_id)))
        session.remember_received(packet_id, 1, self._effects.added)
        return True

    def refuse(self, session: Session, link: Link, packet: RefusedPublish) -> None:
        """A PUBLISH of a connected client that is wrong in itself."""
        self._counters.count_received(packet.qos, 1, packet.payload_bytes)
        session.count_received(1)
        reason: int = 0
        if packet.qos == 1 or not session.received_ids.has_any(packet.packet_id, 1):
            reason = self._admission.refuse_payload(session.client_id, packet)
        self._answer(link, packet.qos, packet.packet_id, 1, reason)

    def _answer(self, link: Link, qos: int, packet_id: int, count: int, reason: int) -> None:
        """PUBACK or PUBREC for messages that are not taken."""
        packet_type = PUBACK if qos == 1 else PUBREC
        self._effects.add(AcknowledgementEffect(link, Acknowledgement(packet_type, packet_id, count, reason)))

    def take_sessionless(
        self, message: Publish, identity: Identity, *, must_be_durable: bool = False, client_id: str = ""
    ) -> int | None:
        """Take a message that no session publishes: a will, PUBWOS or QoS -1 of MQTT-SN, the operator's.

        Returns why it was not taken, None if it was. `must_be_durable`: QoS 0 waits for the commit as well.
        `client_id`: what the log has as its sender, if not that of the identity.
        """
        self._counters.count_received(message.qos, 1, len(message.payload))
        refusal = self._admission.refusal(identity.client_id, identity, message)
        if refusal is None:
            route = self._admission.route(message.topic_name)
            self._take([message], route, client_id or identity.client_id, None, None, 0, must_be_durable)
        return refusal

    def take_own(self, message: Publish, route: Route, client_id: str) -> None:
        """Take a message of the server itself, to a topic that nobody else may publish to.

        The route is not from the cache of admitted topic names, which lets clients publish.
        """
        self._take([message], route, client_id, None, None, 0, True)

    def _take(
        self,
        messages: list[Publish],
        route: Route,
        client_id: str,
        publisher: Session | None,
        link: Link | None,
        qos2_session_id: int,
        must_be_durable: bool = False,
        run_max: int = 1,
    ) -> bool:
        """The server owns the messages from here on: record them, deliver them when that is allowed. False: refused."""
        first = messages[0]
        must_be_durable = must_be_durable or first.qos > 0 or first.retain
        if must_be_durable and self._store.failing():
            return self._refuse_durable(messages, publisher, link)
        if first.retain:
            self.retained.publish_pending(first)
        offset = self._store.append_publish(first, client_id, qos2_session_id)
        left_out = _NONE_LEFT_OUT
        if first.qos and route.persistent:
            left_out = self._enqueue(messages, offset, route, client_id, qos2_session_id)
        else:
            for message in messages[1:]:
                self._store.append_publish(message, client_id, qos2_session_id)
        shares = _NO_SHARES
        if route.groups:  # then the message is alone
            shares = [(group, group.enqueue(first, offset, client_id)) for group in route.groups]
            self._counters.dropped_queue_full += route.groups_left_out
        if must_be_durable or (publisher is not None and publisher.pending):
            if not route.receivers and not shares and self._has_joined(messages, link, run_max):
                return True
            self._effects.add(
                PublishEffect(self, messages, offset, route.receivers, left_out, shares, client_id, publisher, link)
            )
            return True
        # QoS 0 is delivered at once, unless it would overtake something of the same publisher that is pending.
        if route.receivers:
            self.fan_out(messages, route.receivers, client_id)
        for group, sequence in shares:
            group.offer(first, sequence)
        return True

    def _has_joined(self, messages: list[Publish], link: Link | None, run_max: int) -> bool:
        """Whether the newest effect stands for these messages too, which nobody receives."""
        newest = self._effects.newest()
        if not isinstance(newest, PublishEffect) or not newest.join(messages, link, run_max):
            return False
        self._effects.grow(newest, len(messages))
        return True

    def _enqueue(
        self, messages: list[Publish], offset: int, route: Route, client_id: str, qos2_session_id: int
    ) -> list[tuple[Publish, Session]]:
        """Add messages to stored queues, and record those behind the first. Returns what was left out for whom."""
        left_out: list[tuple[Publish, Session]] = []
        for place, message in enumerate(messages):
            if place:
                offset = self._store.append_publish(message, client_id, qos2_session_id)
            for session in route.enqueue(message, offset, client_id):
                left_out.append((message, session))
        if left_out:
            for receiver in route.persistent:
                self.flow.rising[receiver.session] = None
        return left_out

    def _refuse_durable(self, messages: list[Publish], publisher: Session | None, link: Link | None) -> bool:
        """The store cannot keep messages. A client that can be told is told if the disk has reached its reserve; else
        its connection ends without an answer, so that it keeps the messages.
        """
        if publisher is None or link is None or not link.tells_reasons() or not self._store.is_full():
            raise StoreError(f"the store cannot make messages durable now: {self._store.failing()}")
        self._counters.store_refusals += len(messages)
        first = messages[0]
        if first.qos:
            self._answer(link, first.qos, first.packet_id, len(messages), ReasonCode.QUOTA_EXCEEDED)
        return False

    def live_from(self, subscription: Subscription, is_at_once: bool) -> int:
        """From which offset on messages are live for a new subscription; `is_at_once`: rule 5 of retained delivery."""
        offset = self._store.next_offset()
        if is_at_once:
            for effect in self._effects.waiting():
                if isinstance(effect, PublishEffect):
                    offset = min(offset, effect.offset)
                    effect.include(subscription)
        return offset

    # -- to receivers ----------------------------------------------------------------------------------------------

    def fan_out(
        self,
        messages: list[Publish],
        receivers: list[Subscription],
        client_id: str,
        left_out: list[tuple[Publish, Session]] = _NONE_LEFT_OUT,
    ) -> None:
        """Deliver messages of a client, of one QoS, to every receiver, each at the QoS it was granted."""
        first = messages[0]
        if first.expires_us and self.clock.has_expired_live(first):
            self._expire(first, receivers, client_id)
            return
        qos = first.qos
        payload_bytes = payload_bytes_of(messages)
        plain: Delivery | None = None  # the same for all receivers at QoS 0 without options
        for receiver in receivers:
            session = receiver.session
            if receiver.no_local and session.client_id == client_id:
                if receiver.own is None:
                    continue
                receiver = receiver.own
            link = session.link
            retain = first.retain and receiver.retain_as_published
            granted = receiver.qos if receiver.qos < qos else qos
            if granted:
                if not session.has_ended:
                    self._offer(session, messages, granted, retain, receiver.ids, payload_bytes, left_out)
            elif link is not None:
                if retain or receiver.ids:
                    run = Delivery(messages, 0, retain, False, 0, receiver.ids)
                else:
                    if plain is None:
                        plain = Delivery(messages)
                    run = plain
                taken = link.deliver(run)
                session.count_sent(taken)
                if taken == len(messages):
                    self._counters.count_sent(0, taken, payload_bytes)
                else:
                    self._counters.count_sent(0, taken, payload_bytes_of(messages[:taken]))
                    self._counters.dropped_output_full += len(messages) - taken
                    session.outbound.count_dropped(len(messages) - taken)

    def _offer(
        self,
        session: Session,
        messages: list[Publish],
        qos: int,
        retain: bool,
        ids: tuple[int, ...],
        payload_bytes: int,
        left_out: list[tuple[Publish, Session]],
    ) -> None:
        if left_out:
            messages = [message for message in messages if not _is_left_out(message, session, left_out)]
            if not messages:
                return
            payload_bytes = payload_bytes_of(messages)
        outbound = session.outbound
        outbound.offer(session.link, messages, qos, retain, ids)
        if outbound.is_above_high_water():
            self.flow.rising[session] = None
        self._counters.count_sent(qos, len(messages), payload_bytes)
        session.count_sent(len(messages))

    def _expire(self, message: Publish, receivers: list[Subscription], client_id: str) -> None:
        """A message has expired while it waited for its commit. Stored queues have it, and drop it in its turn."""
        for receiver in receivers:
            session = receiver.session
            asked = receiver.for_client(client_id)
            if asked is None:
                continue
            qos = min(asked.qos, message.qos)
            if qos == 0 or session.outbound.queue is None:
                self._counters.dropped_expired += 1
            elif not session.has_ended:
                session.outbound.offer(session.link, [message], qos, False, is_live=False)

    # -- acknowledgements ------------------------------------------------------------------------------------------

    def acknowledge(self, session: Session, link: Link, packet: Acknowledgement) -> None:
        """PUBACK, PUBREC, PUBREL or PUBCOMP of a connected client."""
        packet_type = packet.packet_type
        if packet_type == PUBREL:
            self._pubrel(session, link, packet.packet_id, packet.count)
        elif packet_type == PUBREC and packet.reason < ReasonCode.UNSPECIFIED_ERROR:
            self._pubrec(session, link, packet.packet_id, packet.count)
        else:
            outbound = session.outbound
            if packet_type == PUBREC:
                # Refused (MQTT 5, MQTT-SN): the exchange is over, the identifier is free.
                outbound.pubrec(packet.packet_id, packet.count)
            unknown = outbound.finish(packet.packet_id, packet.count, 1 if packet_type == PUBACK else 2)
            self._counters.acks_unknown += unknown
            if unknown < packet.count and (outbound.is_waiting() or session.streams.waiting or session.share_groups):
                self.dirty[session] = None

    def puback_alone(self, session: Session, packet_id: int) -> bool:
        """Shortcut for `acknowledge` and the rest of a turn: a PUBACK that comes alone, and nothing follows from it.

        If no message waits for the place in the window that it frees, and no store or share group has to know of it.
        False: nothing was done.
        """
        outbound = session.outbound
        if outbound.is_waiting() or session.streams.waiting or session.share_groups or outbound.shared:
            return False
        return outbound.finish(packet_id, 1, 1) == 0

    def _pubrec(self, session: Session, link: Link, packet_id: int, count: int) -> None:
        """PUBREC: the client has QoS 2 messages."""
        outbound = session.outbound
        end_id = packet_id + count
        while packet_id < end_id:
            released = outbound.pubrec(packet_id, end_id - packet_id)
            if not released:
                self._counters.acks_unknown += 1
                link.acknowledge(Acknowledgement(PUBREL, packet_id, 1, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND))
                packet_id += 1
                continue
            pubrel = Acknowledgement(PUBREL, packet_id, released)
            if outbound.queue is None and not self._effects.are_soon():  # nothing was recorded
                link.acknowledge(pubrel)
            else:
                self._effects.add(AcknowledgementEffect(link, pubrel))
            packet_id += released

    def _pubrel(self, session: Session, link: Link, packet_id: int, count: int) -> None:
        """PUBREL: the client may use the identifiers again. One that is not known is confirmed too, with a reason."""
        end_id = packet_id + count
        while packet_id < end_id:
            run = session.received_ids.take(packet_id, end_id - packet_id)
            if run is None:
                pubcomp = Acknowledgement(PUBCOMP, packet_id, 1, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND)
                self._effects.add(AcknowledgementEffect(link, pubcomp))
                packet_id += 1
                continue
            pubcomp = Acknowledgement(PUBCOMP, packet_id, run.count)
            packet_id += run.count
            if session.session_id:
                for released_id in range(run.packet_id, run.packet_id + run.count):
                    self._store.append(PubrelReceived(session.session_id, session.client_id, released_id))
            elif run.effect <= self._effects.released() and not self._effects.are_soon():
                # Nothing is recorded, and PUBCOMP does not overtake the PUBREC of its message.
                link.acknowledge(pubcomp)
                continue
            self._effects.add(AcknowledgementEffect(link, pubcomp))
