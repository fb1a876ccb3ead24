"""The queue of a persistent session reads no more at a time than fits."""

from pathlib import Path
from random import Random

from embermq.protocol.packets import Delivery, Publish
from embermq.store.engines.disk import DiskStore
from embermq.store.engines.queue import ENTRIES_AHEAD, READ_BYTES
from support.store_calls import open_session
from support.store_contract import Engine


def test_large_messages_are_read_a_few_at_a_time(tmp_path: Path) -> None:
    engine = Engine(lambda call_soon, _: DiskStore(tmp_path, call_soon))
    queue = open_session(engine.store, "device", "", 3600).queue
    assert queue is not None
    engine.turn()
    for number in range(10):
        message = Publish("t", bytes([number]) * (READ_BYTES // 2), 1)
        queue.push(message, engine.store.append_publish(message, "publisher"), 1, False)
    engine.commit()
    found: list[Delivery] = []
    while piece := queue.read(len(found), 100):
        assert len(piece) == 2
        found += piece
    assert [queued.messages[0].payload[0] for queued in found] == list(range(10))
    assert [queued.sequence for queued in found] == list(range(1, 11))
    engine.store.close()


def test_a_queue_names_the_oldest_record_that_it_needs(tmp_path: Path) -> None:
    engine = Engine(lambda call_soon, _: DiskStore(tmp_path, call_soon))
    queue = open_session(engine.store, "device", "", 3600).queue
    assert queue is not None
    engine.turn()
    assert queue.oldest_owed_offset() == 0
    offsets = []
    for _ in range(2):
        message = Publish("t", b"1", 1)
        offsets.append(engine.store.append_publish(message, "publisher"))
        queue.push(message, offsets[-1], 1, False)
    assert queue.oldest_owed_offset() == 0  # not durable yet
    engine.commit()
    assert queue.oldest_owed_offset() == offsets[0]
    queue.acknowledge(1)
    assert queue.oldest_owed_offset() == offsets[1]
    queue.acknowledge(2)
    assert queue.oldest_owed_offset() == 0
    (segment,) = engine.store.history.log_segments()
    assert segment.first_offset <= offsets[0] < segment.next_offset and segment.size_bytes > 0
    engine.store.close()


def test_a_long_queue_is_read_in_pieces_of_any_length(tmp_path: Path) -> None:
    """Entries are read ahead of their messages: what is pushed and acknowledged meanwhile must be seen all the same."""
    random = Random(7)
    engine = Engine(lambda call_soon, _: DiskStore(tmp_path, call_soon))
    queue = open_session(engine.store, "device", "", 3600).queue
    assert queue is not None
    engine.turn()
    pushed: list[Publish] = []

    def push(count: int) -> None:
        for _ in range(count):
            message = Publish(f"t/{random.randrange(3)}", b"%d" % len(pushed), random.choice([1, 2]))
            queue.push(message, engine.store.append_publish(message, "publisher"), message.qos, False)
            pushed.append(message)
        engine.commit()

    push(ENTRIES_AHEAD + 100)
    after = 0
    while after < 3 * ENTRIES_AHEAD:
        limit = random.choice([1, 2, 100, 512, ENTRIES_AHEAD, ENTRIES_AHEAD + 10])
        found = queue.read(after, limit)
        expected = pushed[after : after + limit]
        assert [delivery.messages[0] for delivery in found] == expected
        assert [delivery.sequence for delivery in found] == list(range(after + 1, after + 1 + len(expected)))
        assert [delivery.qos for delivery in found] == [message.qos for message in expected]
        step = random.randrange(4)
        if step == 0 or not found:
            push(random.choice([1, 300, 900]))
        elif step == 1:
            queue.acknowledge(after)
        elif step == 2:
            after = max(after - random.randrange(50), queue.acknowledged())
            continue
        after += len(found)
    engine.store.close()
