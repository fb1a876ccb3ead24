"""Token buckets: rates with bursts of a second."""

from embermq.broker.limits import Limits
from embermq.broker.rates import Bucket, ClientBuckets
from embermq.protocol.packets import Connack, Suback, Subscribe, SubscriptionRequest
from embermq.protocol.reasons import ReasonCode
from support.core import Bench


def test_a_bucket_allows_a_burst_of_one_second_and_then_the_rate() -> None:
    bucket = Bucket(10, 0)
    assert [bucket.take(1, 0) for _ in range(11)] == [True] * 10 + [False]
    assert not bucket.take(1, 99)
    assert bucket.take(1, 100)
    assert [bucket.take(1, 60_000) for _ in range(11)] == [True] * 10 + [False]


def test_what_has_happened_already_has_to_be_waited_for() -> None:
    bucket = Bucket(10, 0)
    assert bucket.spend(10, 0) == 0
    assert bucket.spend(5, 0) == 501
    assert bucket.spend(0, 300) == 201
    assert bucket.spend(0, 501) == 0


def test_a_clock_that_goes_back_fills_nothing() -> None:
    bucket = Bucket(1, 1_000)
    assert bucket.take(1, 1_000)
    assert not bucket.take(1, 0)
    assert not bucket.take(1, 1_500)


def test_each_client_has_its_own_bucket_and_the_oldest_is_forgotten() -> None:
    buckets = ClientBuckets(1, clients_max=2)
    assert [buckets.take(client, 0) for client in "aab"] == [True, False, True]
    assert not buckets.take("a", 0)
    assert buckets.take("c", 0)
    assert len(buckets) == 2
    assert buckets.take("b", 0), "it was forgotten"
    assert ClientBuckets(0).take("a", 0) and ClientBuckets(0).take("a", 0)


def test_a_client_that_connects_too_often_is_refused_and_keeps_its_session() -> None:
    bench = Bench(limits=Limits(client_connect_rate_max=2))
    first, second = bench.join("c", clean=False), bench.join("c", clean=False)
    bench.join("other")
    third = bench.connect("c")
    assert third.take() == [Connack(False, ReasonCode.CONNECTION_RATE_EXCEEDED)]
    assert third.closed == ReasonCode.CONNECTION_RATE_EXCEEDED
    assert first.closed == ReasonCode.SESSION_TAKEN_OVER
    assert second.closed is None, "a refused CONNECT takes nothing over"
    bench.pass_s(1)
    bench.join("c", clean=False)


def test_topic_filters_beyond_the_rate_are_refused() -> None:
    bench = Bench(limits=Limits(client_subscribe_rate_max=2))
    client, other = bench.join("c"), bench.join("o")
    bench.send(client, Subscribe(1, [SubscriptionRequest(name, 1) for name in "abc"]))
    why = "limits.client_subscribe_rate_max is exceeded"
    assert client.take() == [Suback(1, [1, 1, ReasonCode.QUOTA_EXCEEDED], why)]
    bench.subscribed(other, "a")
    bench.pass_s(1)
    bench.send(client, Subscribe(2, [SubscriptionRequest("c", 1)]))
    assert client.take() == [Suback(2, [1])]
    assert bench.core.counters.subscriptions_refused == 1
