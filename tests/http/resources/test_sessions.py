"""Sessions over HTTP: what each is owed and holds of the log, and ending them."""

from pathlib import Path

from embermq import Broker
from embermq.http.client import HttpClient
from embermq.http.resources.sessions import SessionFacts
from support.ember_command import wire


def test_a_session_that_never_returns_shows_how_much_log_it_holds(tmp_path: Path) -> None:
    with Broker.in_thread(data=tmp_path / "data") as broker, HttpClient(tmp_path / "data" / "control.sock") as http:
        away = wire(broker, "away", clean=False)
        away.subscribe(("a", 1))
        away.disconnect()
        publisher = wire(broker, "publisher")
        for number in range(3):
            publisher.publish("a", b"x%d" % number, qos=1)
        found = {each["client_id"]: SessionFacts.model_validate(each) for each in http.lines("/api/v1/sessions")}
        held = found["away"]
        assert (held.is_connected, held.is_persistent, held.owed, held.subscriptions) == (False, True, 3, 1)
        assert held.oldest_owed_offset and held.oldest_owed_since and held.log_bytes > 0
        assert held.expires and held.disconnected_since and held.expires_s
        assert (held.last_end, found["publisher"].last_end) == ("disconnected", None)
        assert (found["publisher"].log_bytes, found["publisher"].expires) == (0, None)
        page = http.get("/api/v1/sessions", limit=1)
        assert [each["client_id"] for each in page["items"]] == ["away"]
        answer = http.post("/api/v1/sessions/end", {"client_ids": ["away", "nobody"]})
        assert answer == {"ended": 1, "unknown": ["nobody"]}
        assert [each["client_id"] for each in http.lines("/api/v1/sessions")] == ["publisher"]
        assert http.get("/api/v1/sessions", client_id="away") == {"items": []}


def test_it_is_known_why_a_connection_ended_also_when_its_client_is_back(tmp_path: Path) -> None:
    with Broker.in_thread(data=tmp_path / "data") as broker, HttpClient(tmp_path / "data" / "control.sock") as http:
        with wire(broker, "pump", clean=False), wire(broker, "pump", clean=False):
            [session] = http.lines("/api/v1/sessions")
        assert (session["is_connected"], session["last_end"]) == (True, "session taken over")
