"""Subscriptions and share groups over HTTP."""

from pathlib import Path

from embermq.http.resources.subscriptions import ShareGroupFacts, SubscriptionFacts
from support.http_place import Place, run
from support.transports import joined


def test_subscriptions_are_found_by_filter_topic_and_client(tmp_path: Path) -> None:
    async def test(place: Place) -> None:
        await joined(place.server, "b", "x/#", "y/+", "$share/g/x/1", qos=1)
        await joined(place.server, "a", "x/1", "z")

        async def filters(**query: str) -> list[tuple[str, str]]:
            items = (await place.get("/api/v1/subscriptions", **query)).json["items"]
            return [(item["client_id"], item["filter"]) for item in items]

        everything = [("a", "x/1"), ("a", "z"), ("b", "$share/g/x/1"), ("b", "x/#"), ("b", "y/+")]
        assert await filters() == everything
        assert await filters(topic="x/1") == [("a", "x/1"), ("b", "$share/g/x/1"), ("b", "x/#")]
        assert await filters(filter="y/#") == [("b", "y/+")]
        assert await filters(client_id="a", filter="x/#") == [("a", "x/1")]
        assert await filters(client_id="nobody") == []
        page = (await place.get("/api/v1/subscriptions", limit=3)).json
        rest = (await place.get("/api/v1/subscriptions", cursor=page["next"])).json
        assert [(item["client_id"], item["filter"]) for item in page["items"] + rest["items"]] == everything
        lines = [SubscriptionFacts.model_validate(line) for line in await place.lines("/api/v1/subscriptions")]
        assert [line.is_shared for line in lines].count(True) == 1 and all(line.is_connected for line in lines)
        (group,) = (await place.get("/api/v1/share-groups")).json["items"]
        assert ShareGroupFacts.model_validate(group).members == ["b"]
        assert (group["filter"], group["connected"], group["owed"]) == ("$share/g/x/1", 1, 0)

    run(tmp_path, test)
