"""The rate: counts of records from the index, over any span."""

from pathlib import Path

import pytest

from embermq import Broker
from embermq.http.client import HttpClient, ServerRefusal
from embermq.http.resources.rate import Rate
from support.ember_command import wire
from support.http_place import Place, run


def test_every_record_is_counted_in_one_part(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with Broker.in_thread(data=data) as broker, HttpClient(data / "control.sock") as http:
        empty = Rate.model_validate(http.get("/api/v1/messages/rate", buckets=3))
        assert (empty.counts, empty.begins, empty.ends) == ([0, 0, 0], None, None)
        with wire(broker, "c") as client:
            for number in range(20):
                client.publish(f"a/{number}", b"x", qos=1)
        end = http.get("/api/v1/statistics")["log"]["next_offset"]
        for buckets in (1, 7, 1_000):
            found = Rate.model_validate(http.get("/api/v1/messages/rate", buckets=buckets))
            assert len(found.counts) == buckets and 20 <= sum(found.counts) < end
            assert found.begins == found.since and found.ends is not None and found.begins <= found.ends <= found.until
        assert http.get("/api/v1/messages/rate", since="2h", until="1h")["counts"] == [0] * 200
        for status, query in (
            (422, {"since": "1h", "until": "2h"}),
            (400, {"buckets": "1001"}),
            (400, {"buckets": "0"}),
        ):
            with pytest.raises(ServerRefusal) as refused:
                http.get("/api/v1/messages/rate", **query)
            assert refused.value.status == status


def test_a_server_in_memory_has_no_rate(tmp_path: Path) -> None:
    async def test(place: Place) -> None:
        assert (await place.get("/api/v1/messages/rate")).status == 409
        assert (await place.get("/api/v1/topic/values", topic="a")).status == 409

    run(tmp_path, test)
