"""The operator: what the person who runs a server reads of its retained messages and changes in them.

Owns: reading them in pieces, publishing, retaining and clearing one, and the sentence that a refusal gets.
Never: a socket, a file. The control socket of a running server and the commands on a stopped one's directory use it.
"""

from collections.abc import Callable, Iterator
from typing import Final

from embermq.broker.access import OPERATOR
from embermq.broker.core import Core
from embermq.broker.limits import Limits
from embermq.broker.retained_streams import read_piece
from embermq.protocol.message_expiry import message_expires_us
from embermq.protocol.mqtt.message_fields import message_fields, message_properties
from embermq.protocol.packets import Publish
from embermq.protocol.reasons import ReasonCode
from embermq.protocol.topics import TOPIC_BYTES_MAX, check_topic_filter, check_topic_name
from embermq.store.interface import Retained, Store

NAME_CHARACTERS_MAX: Final = 256
"""How much of the name of a login is in the log: a client identifier has a bound there."""

AUDIT_TOPIC: Final = "$SYS/audit/access"
"""Where changes of users and rights are recorded. Clients cannot publish below `$SYS`."""


def wrong_topic_name(topic_name: str) -> str:
    """Why a text is not a topic name; empty if it is."""
    return _wrong_text(topic_name) or check_topic_name(topic_name) or ""


def wrong_topic_filter(topic_filter: str) -> str:
    """Why a text is not a topic filter; empty if it is."""
    return _wrong_text(topic_filter) or check_topic_filter(topic_filter) or ""


def _wrong_text(text: str) -> str:
    try:
        size_bytes = len(text.encode())
    except UnicodeEncodeError:
        return "not UTF-8"
    return f"longer than {TOPIC_BYTES_MAX} bytes" if size_bytes > TOPIC_BYTES_MAX else ""


def retained_pieces(
    store: Store, topic_filter: str, as_of_us: int | None = None, after_topic_name: str = ""
) -> Iterator[list[Retained]]:
    """What a topic filter matches, now or as of an instant, in pieces between which clients are served; some are empty.

    Those of `after_topic_name` and before, in store order, are left out.

    "Now" is the moment of each piece: what changes in the meantime is given as it was or as it is.
    """
    if as_of_us is not None:
        yield from store.history.as_of_pieces(topic_filter, as_of_us, after_topic_name)
        return
    while True:
        piece = read_piece(store, topic_filter, after_topic_name)
        yield piece.found()
        if piece.done:
            return
        after_topic_name = piece.after_topic_name


def retained_message(store: Store, topic_name: str, as_of_us: int | None = None) -> Retained | None:
    """The retained message of one topic, now or as of an instant."""
    if as_of_us is None:
        return store.retained.get(topic_name)
    return next(iter(store.history.as_of(topic_name, "", 1, as_of_us)), None)


def operator_client_id(name: str) -> str:
    """What the log has as the sender of an operator's message: with a login, its name too."""
    return f"{OPERATOR.client_id}/{name[:NAME_CHARACTERS_MAX]}" if name else OPERATOR.client_id


def publish(
    core: Core, store: Store, limits: Limits, message: Publish, durable: Callable[[], None], name: str = ""
) -> str:
    """Publish a message; an empty retained one clears its topic. `name` is that of the operator's login, if it has one.

    Returns why it was refused; if that is empty, the message was taken, and `durable` is called once it is durable.
    Raises a `StoreError` while nothing can be made durable.
    """
    size_bytes = len(message.topic_name.encode()) + len(message.payload)
    if size_bytes > limits.packet_bytes_max:
        return f"topic and payload are {size_bytes} bytes, limits.packet_bytes_max is {limits.packet_bytes_max}"
    if message.properties:
        try:
            properties = message_properties(message_fields(message.properties))
        except ValueError as error:
            return f"its properties are not those of a message: {error}"
        expires_us = message_expires_us(properties, core.delivery.clock.now_us())
        message = Publish(
            message.topic_name, message.payload, message.qos, message.retain, False, 0, properties, expires_us
        )
    reason = core.publish_sessionless(message, OPERATOR, operator_client_id(name))
    if reason is None:
        core.when_durable(durable)
        return ""
    if reason == ReasonCode.QUOTA_EXCEEDED:
        return store.retained.admits(message.topic_name, len(message.payload)) or "a budget is used up"
    return f"$SYS topics are the server's own, and others have at most {limits.topic_levels_max} levels"


def record_change(core: Core, change: bytes, durable: Callable[[], None], name: str = "") -> None:
    """Record a change of users or rights, before it is made, as a message of the log; `name` as of `publish`.

    `durable` is called once it is durable. Raises a `StoreError` while nothing can be made durable.
    """
    core.publish_own(Publish(AUDIT_TOPIC, change, 1), operator_client_id(name))
    core.when_durable(durable)


def cleared(retained: Retained) -> Publish:
    """The message that clears a retained message, at the same QoS, so that subscribers get it as reliably."""
    return Publish(retained.topic_name, b"", retained.qos, True)
