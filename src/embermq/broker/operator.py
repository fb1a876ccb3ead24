"""The operator: what the person who runs a server looks at and does to its retained messages.

Owns: walking through them in pieces, retaining and clearing one, and the sentence that a refusal gets.
Never: a socket, a file. The control socket of a running server and the commands on a stopped one's directory use it.
"""

from collections.abc import Callable, Iterator
from typing import Final

from embermq.broker.access import OPERATOR
from embermq.broker.core import Core
from embermq.broker.limits import Limits
from embermq.protocol.packets import Publish
from embermq.protocol.reasons import ReasonCode
from embermq.protocol.topics import TOPIC_BYTES_MAX, check_topic_filter, check_topic_name, has_wildcard
from embermq.store.interface import Retained, Store

PIECE_MESSAGES: Final = 128
PIECE_BYTES: Final = 1024 * 1024
"""How many messages, and bytes of payload, one piece holds; a message that is larger is a piece of its own."""
PIECE_SEEKS: Final = 1_000
"""How many topics that do not match are looked at for one piece."""


def wrong_topic_name(topic_name: str) -> str:
    """Why a text is no topic name; empty if it is one."""
    return _wrong_text(topic_name) or check_topic_name(topic_name) or ""


def wrong_topic_filter(topic_filter: str) -> str:
    """Why a text is no topic filter; empty if it is one."""
    return _wrong_text(topic_filter) or check_topic_filter(topic_filter) or ""


def _wrong_text(text: str) -> str:
    try:
        size_bytes = len(text.encode())
    except UnicodeEncodeError:
        return "not UTF-8"
    return f"longer than {TOPIC_BYTES_MAX} bytes" if size_bytes > TOPIC_BYTES_MAX else ""


def retained_pieces(store: Store, topic_filter: str, as_of_us: int | None = None) -> Iterator[list[Retained]]:
    """What a filter matches, now or at an instant of the past; a piece may be empty, so that others have their turn.

    Now is the moment of each piece: what changes meanwhile is given as it was or as it is. The past does not change.
    """
    if as_of_us is not None:
        yield from store.retained_as_of_pieces(topic_filter, as_of_us)
        return
    if not has_wildcard(topic_filter):
        only = store.retained_get(topic_filter)
        yield [] if only is None else [only]
        return
    after_topic_name = ""
    while True:
        piece = store.retained_piece(topic_filter, after_topic_name, PIECE_MESSAGES, PIECE_BYTES, PIECE_SEEKS)
        yield piece.found
        if piece.done:
            return
        after_topic_name = piece.after_topic_name


def retained_message(store: Store, topic_name: str, as_of_us: int | None = None) -> Retained | None:
    """The retained message of one topic, now or at an instant of the past."""
    if as_of_us is None:
        return store.retained_get(topic_name)
    return next(iter(store.retained_as_of(topic_name, "", 1, as_of_us)), None)


def retain(core: Core, store: Store, limits: Limits, message: Publish, durable: Callable[[], None]) -> str:
    """Publish a retained message, an empty one to clear its topic.

    Returns why it was refused; if it is empty, the message was taken, and `durable` is called once it is. Raises a
    `StoreError` while nothing can be made durable.
    """
    size_bytes = len(message.topic_name.encode()) + len(message.payload)
    if size_bytes > limits.packet_bytes_max:
        return f"topic and payload are {size_bytes} bytes, limits.packet_bytes_max is {limits.packet_bytes_max}"
    reason = core.publish_unconnected(message, OPERATOR)
    if reason is None:
        core.when_durable(durable)
        return ""
    if reason == ReasonCode.QUOTA_EXCEEDED:
        return store.retained_admits(message.topic_name, len(message.payload)) or "a budget is used up"
    return f"$SYS topics are the server's own, and others have at most {limits.topic_levels_max} levels"


def cleared(retained: Retained) -> Publish:
    """What clears a retained message; whoever gets messages of its topic gets this one as surely as that."""
    return Publish(retained.topic_name, b"", retained.qos, True)
