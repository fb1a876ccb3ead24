"""What all clients together are owed in memory: how it is added up, and who gets less when it is too much."""

import pytest

from embermq.broker.limits import Limits
from embermq.broker.outbound import THROTTLED_BYTES
from embermq.broker.owed import ENDED_MAX, THROTTLED_MS, heaviest
from embermq.broker.session import Session
from support.core import Bench, ScriptedLink

KIB = 1_024
MAX = 1024 * KIB


class UnreadLink(ScriptedLink):
    """A client that leaves bytes unread."""

    def __init__(self, unread: int) -> None:
        super().__init__()
        self.unread = unread
        self.shared = 0
        self.is_throttled = False

    def unread_bytes(self) -> int:
        return self.unread + self.shared

    def own_unread_bytes(self) -> int:
        return self.unread

    def throttle(self, is_throttled: bool) -> None:
        self.is_throttled = is_throttled


def bench_with(**unread: int) -> tuple[Bench, dict[str, UnreadLink], dict[str, Session]]:
    """Clients with so many unread bytes."""
    bench = Bench(limits=Limits(all_queue_bytes_max=MAX))
    links: dict[str, UnreadLink] = {}
    for name, size in unread.items():
        bench.join(name)
        links[name] = session_link = UnreadLink(size)
        session = bench.core.connections.sessions[name]
        session.link = session_link
        session_link.session = session
    return bench, links, bench.core.connections.sessions


def look(bench: Bench, unsent: int = 0) -> list[str]:
    ended = bench.core.connections.owed.look(bench.core.sessions(), unsent, bench.now_ms)
    return [session.client_id for session in ended]


def test_messages_that_many_clients_are_owed_count_once() -> None:
    bench = Bench(limits=Limits(all_queue_bytes_max=MAX))
    for number in range(50):
        bench.subscribed(bench.join(f"c{number}", receive_maximum=1), "t", 1)
    for _ in range(20):
        bench.publish("t", bytes(10 * KIB), qos=1)
    assert sum(session.outbound.memory_bytes for session in bench.core.sessions()) > 50 * 200 * KIB
    assert look(bench) == []
    assert 200 * KIB < bench.core.connections.owed.size_bytes < 2 * 200 * KIB + 50 * 20 * 256


def test_messages_that_one_client_alone_is_owed_count_in_full() -> None:
    bench = Bench(limits=Limits(all_queue_bytes_max=100 * MAX))
    for number in range(50):
        bench.subscribed(bench.join(f"c{number}", receive_maximum=1), f"t/{number}", 1)
        for _ in range(20):
            bench.publish(f"t/{number}", bytes(10 * KIB), qos=1)
    look(bench)
    assert 50 * 200 * KIB * 3 // 4 < bench.core.connections.owed.size_bytes < 50 * 200 * KIB * 5 // 4


def test_it_is_looked_at_before_the_limit_can_be_passed() -> None:
    bench = Bench(limits=Limits(all_queue_bytes_max=MAX))
    bench.subscribed(bench.join("c", receive_maximum=1), "t", 1)
    assert not bench.core.connections.owed.is_due()
    sent = 0
    while not bench.core.connections.owed.is_due():
        bench.publish("t", bytes(10 * KIB), qos=1)
        sent += 1
    look(bench)
    assert 0 < bench.core.connections.owed.size_bytes <= MAX + 11 * KIB
    assert sent > 90
    assert not bench.core.connections.owed.is_due()


def test_the_clients_that_hold_most_get_no_more_and_are_then_disconnected() -> None:
    bench, links, sessions = bench_with(most=900 * KIB, much=600 * KIB, little=10 * KIB)
    assert look(bench) == []
    assert [link.is_throttled for link in links.values()] == [True, False, False]
    assert look(bench) == []  # it has a second to read
    bench.now_ms += THROTTLED_MS
    assert look(bench) == ["most"]
    counts = bench.core.connections.owed.counts()
    assert (counts["queues/clients-throttled"], counts["queues/clients-ended"]) == (3, 1)
    assert sessions["most"].outbound.memory_bytes_max > THROTTLED_BYTES, "its next connection begins unthrottled"


def test_what_waits_in_share_groups_leads_to_a_look_too() -> None:
    bench = Bench(limits=Limits(all_queue_bytes_max=MAX))
    bench.subscribed(bench.join("c", receive_maximum=1), "$share/g/t", 1)
    sent = 0
    while not bench.core.connections.owed.is_due() and sent < 200:
        bench.publish("t", bytes(10 * KIB), qos=1)
        sent += 1
    look(bench)
    assert 90 < sent < 110
    assert 0 < bench.core.connections.owed.size_bytes <= MAX + 11 * KIB


def test_a_client_that_has_read_is_no_longer_throttled() -> None:
    bench, links, sessions = bench_with(most=900 * KIB, much=600 * KIB)
    look(bench)
    outbound = sessions["most"].outbound
    assert (links["most"].is_throttled, outbound.memory_bytes_max) == (True, THROTTLED_BYTES)
    links["most"].unread = 0
    bench.now_ms += THROTTLED_MS
    assert look(bench) == []
    assert not links["most"].is_throttled
    assert outbound.memory_bytes_max > THROTTLED_BYTES
    assert not bench.core.connections.owed.has_throttled()


def test_a_throttled_client_that_leaves_is_forgotten_and_comes_back_unthrottled() -> None:
    bench, links, sessions = bench_with(most=2_000 * KIB)
    sessions["most"].session_expiry_s = 60
    outbound = sessions["most"].outbound
    look(bench)
    assert bench.core.connections.owed.has_throttled()
    bench.lose(links["most"])
    assert not bench.core.connections.owed.has_throttled()
    assert outbound.memory_bytes_max > THROTTLED_BYTES


def test_of_clients_that_share_all_they_hold_more_are_throttled_each_time() -> None:
    bench, links, _ = bench_with(**{f"c{number}": 0 for number in range(100)})
    for link in links.values():
        link.shared = 100 * MAX
    throttled: list[int] = []
    for _ in range(5):
        look(bench, unsent=MAX + 1)
        throttled.append(sum(link.is_throttled for link in links.values()))
    assert throttled == [26, 52, 78, 100, 100]


def test_output_that_clients_share_counts_as_well() -> None:
    bench, links, _ = bench_with(most=200 * KIB, little=1)
    assert look(bench, unsent=MAX - 300 * KIB) == []
    assert not links["most"].is_throttled
    look(bench, unsent=MAX)
    assert links["most"].is_throttled


@pytest.mark.parametrize("receive_maximum", [1, 65_535])
def test_a_throttled_client_drops_what_its_queue_has_no_place_for(receive_maximum: int) -> None:
    bench = Bench(limits=Limits(all_queue_bytes_max=MAX))
    bench.subscribed(bench.join("c", receive_maximum=receive_maximum), "t", 1)
    for _ in range(110):
        bench.publish("t", bytes(10 * KIB), qos=1)
    look(bench)
    session = bench.core.connections.sessions["c"]
    before = session.outbound.memory_bytes
    bench.publish("t", bytes(10 * KIB), qos=1)
    assert (session.outbound.memory_bytes, session.outbound.dropped) == (before, 1)


def test_the_heaviest_clients_are_named_until_they_hold_enough() -> None:
    _, _, sessions = bench_with(a=100, b=300, c=200, d=50)
    names = [session.client_id for session in heaviest(sessions.values(), 60, 450)]
    assert names == ["b", "c"]
    assert [session.client_id for session in heaviest(sessions.values(), 60, 10_000)] == ["b", "c", "a"]


def test_no_more_connections_are_ended_at_a_time_than_the_bound() -> None:
    _, _, sessions = bench_with(**{f"c{number}": 100 for number in range(ENDED_MAX + 5)})
    assert len(heaviest(sessions.values(), 1, 1 << 40)) == ENDED_MAX
