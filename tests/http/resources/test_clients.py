"""Clients over HTTP: who is connected, how each is served, and ending connections."""

from pathlib import Path

from embermq.http.resources.clients import Client
from embermq.protocol.packets import Publish
from support.http_place import Place, run
from support.transports import joined, turn


def test_clients_are_listed_with_what_is_known_of_them(tmp_path: Path) -> None:
    async def test(place: Place) -> None:
        peer = await joined(place.server, "b", "x/#", "y", qos=1)
        await joined(place.server, "a")
        page = (await place.get("/api/v1/clients", limit=1)).json
        assert [client["client_id"] for client in page["items"]] == ["a"]
        rest = (await place.get("/api/v1/clients", cursor=page["next"])).json
        (found,) = rest["items"]
        assert Client.model_validate(found).subscriptions == 2 and "next" not in rest
        assert (found["received"], found["sent"]) == (0, 0)
        assert (found["protocol"], found["is_persistent"], found["slowed_by"]) == ("MQTT 3.1.1", False, [])
        assert found["listener"] == "tcp"
        peer.reads = False
        await (await joined(place.server, "c")).send(Publish("y", b"12345", 1, packet_id=1))
        (found,) = (await place.get("/api/v1/clients", client_id="b")).json["items"]
        assert (found["in_flight"], found["queued"], found["queued_bytes"]) == (1, 0, 6)
        assert (found["received"], found["sent"]) == (0, 1)
        (sender,) = (await place.get("/api/v1/clients", client_id="c")).json["items"]
        assert (sender["received"], sender["sent"]) == (1, 0)
        assert found["unread_bytes"] > 0
        assert [client["client_id"] for client in await place.lines("/api/v1/clients")] == ["b", "a", "c"]
        assert (await place.get("/api/v1/clients", client_id="nobody")).json == {"items": []}

    run(tmp_path, test)


def test_clients_are_disconnected(tmp_path: Path) -> None:
    async def test(place: Place) -> None:
        peers = [await joined(place.server, name) for name in ("a", "b")]
        answer = await place.post("/api/v1/clients/disconnect", client_ids=["a", "nobody"])
        assert answer.json == {"disconnected": 1, "unknown": ["nobody"]}
        await turn()
        assert peers[0].ended and not peers[1].ended
        assert [client["client_id"] for client in await place.lines("/api/v1/clients")] == ["b"]
        empty = await place.post("/api/v1/clients/disconnect", client_ids=[])
        assert empty.status == 400 and empty.error.startswith("client_ids: ")

    run(tmp_path, test)


def test_a_thousand_clients_are_paged_in_order(tmp_path: Path) -> None:
    async def test(place: Place) -> None:
        names = [f"c{number * 7919 % 1500:04}" for number in range(1500)]
        for name in names:
            await joined(place.server, name)
        found: list[str] = []
        cursor = ""
        while True:
            page = (await place.get("/api/v1/clients", limit=400, cursor=cursor)).json
            found += [client["client_id"] for client in page["items"]]
            if "next" not in page:
                break
            cursor = page["next"]
        assert found == sorted(names)

    run(tmp_path, test)
