"""The window of one client: it adapts to how fast the client acknowledges."""

from embermq.broker.limits import Limits
from embermq.broker.window import WINDOW_LONG_US, WINDOW_QUICK_US, WINDOW_START, adapted_window
from support.acknowledgements import puback
from support.core import Bench, ScriptedLink


def acknowledge(bench: Bench, link: ScriptedLink) -> int:
    """The client acknowledges all that it has got; returns how many messages that were."""
    got = link.take_messages()
    bench.send(link, *[puback(message.packet_id) for message in got])
    return len(got)


def waiting(count: int, **limits: int) -> tuple[Bench, ScriptedLink]:
    """A client that is owed some messages."""
    bench = Bench(limits=Limits(**limits))
    link = bench.join("c")
    bench.subscribed(link, "t", 1)
    for _ in range(count):
        bench.publish("t", b"x", qos=1)
    return bench, link


def test_the_window_grows_while_a_client_acknowledges_quickly() -> None:
    bench, link = waiting(8_000, inflight_max=2_500)
    assert [acknowledge(bench, link) for _ in range(4)] == [WINDOW_START, 2 * WINDOW_START, 4 * WINDOW_START, 2_500]


def test_the_window_does_not_grow_for_a_client_that_takes_its_time() -> None:
    bench, link = waiting(8_000)
    counts = []
    for _ in range(3):
        bench.pass_s(0.5)
        counts.append(acknowledge(bench, link))
    assert counts == [WINDOW_START] * 3


def test_the_window_shrinks_when_a_client_has_become_slow() -> None:
    bench, link = waiting(8_000)
    for _ in range(2):
        acknowledge(bench, link)
    counts = []
    for _ in range(4):
        bench.pass_s(2)
        counts.append(acknowledge(bench, link))
    assert counts == [4 * WINDOW_START, 2 * WINDOW_START, WINDOW_START, WINDOW_START]


def test_the_window_is_never_larger_than_the_receive_maximum_of_the_client() -> None:
    bench = Bench()
    link = bench.join("c", receive_maximum=600)
    bench.subscribed(link, "t", 1)
    for _ in range(2_000):
        bench.publish("t", b"x", qos=1)
    assert [acknowledge(bench, link) for _ in range(3)] == [WINDOW_START, 600, 600]


def test_the_window_follows_from_the_time_that_a_full_one_took() -> None:
    for took_us, expected in [
        (WINDOW_QUICK_US, 2_000),
        (WINDOW_QUICK_US + 1, 1_000),
        (WINDOW_LONG_US, 1_000),
        (WINDOW_LONG_US + 1, 500),
    ]:
        assert adapted_window(1_000, 2_500, took_us) == expected
    assert adapted_window(2_000, 2_500, 0) == 2_500
    assert adapted_window(600, 600, WINDOW_LONG_US + 1) == WINDOW_START
    assert adapted_window(100, 100, WINDOW_LONG_US + 1) == 100
