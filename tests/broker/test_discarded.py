"""The queues of sessions and share groups that have ended are freed in pieces."""

from collections import deque

import pytest

from embermq.broker.discarded import FREED_A_TURN, FREED_AT_ONCE, Discarded
from embermq.protocol.packets import Delivery, Publish
from support.core import Bench


def test_a_turn_frees_a_bounded_number_of_messages() -> None:
    discarded = Discarded()
    delivery = Delivery([Publish("t", b"")])
    first, second, small = (deque([delivery] * count) for count in (FREED_A_TURN - 1, FREED_A_TURN, FREED_AT_ONCE))
    for queue in (first, second, small):
        discarded.add(queue)
    assert discarded.free_more()
    assert (len(first), len(second), len(small)) == (0, FREED_A_TURN - 1, FREED_AT_ONCE)
    assert not discarded.free_more()
    assert not second


@pytest.mark.parametrize("topic_filter", ["t", "$share/g/t"])
def test_the_queue_of_a_client_that_goes_is_freed_in_the_next_turns(topic_filter: str) -> None:
    bench = Bench()
    client = bench.join("client", room=0)
    bench.subscribed(client, topic_filter, 1)
    for _ in range(FREED_A_TURN + 1):
        bench.publish("t", b"x", 1)
    bench.core.lost(client, "gone", bench.now_ms)
    assert bench.core.end_turn()
    assert not bench.core.end_turn()
