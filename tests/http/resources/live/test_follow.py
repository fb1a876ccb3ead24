"""A tail that follows the log: it goes on where its reader was, and leaves nothing out."""

import http.client
import json
import socket
from pathlib import Path
from typing import Any

import pytest

from embermq import Broker
from embermq.access.tokens import write_token
from embermq.http.options import HttpOptions
from support.ember_command import wire


class Follower:
    """A reader of the events of a tail."""

    def __init__(self, broker: Broker, token: str, query: str, headers: dict[str, str] | None = None) -> None:
        assert broker.http_port is not None
        self.connection = http.client.HTTPConnection("127.0.0.1", broker.http_port, timeout=60)
        given = {"Authorization": f"Bearer {token}", **(headers or {})}
        self.connection.request("GET", f"/api/v1/messages/tail?{query}", headers=given)
        self.response = self.connection.getresponse()

    def events(self, count: int) -> list[tuple[int, Any]]:
        """The next events: their ids and their data."""
        found: list[tuple[int, Any]] = []
        number = 0
        while len(found) < count:
            line = self.response.readline().decode()
            if line.startswith("id: "):
                number = int(line[4:])
            elif line.startswith("data: "):
                found.append((number, json.loads(line[6:])))
        return found

    def close(self) -> None:
        if self.connection.sock is not None:
            self.connection.sock.shutdown(socket.SHUT_RDWR)
        self.connection.close()


def test_a_reader_that_comes_back_gets_what_it_has_missed(tmp_path: Path) -> None:
    token = write_token(tmp_path / "tokens", "vera", "viewer")
    options = HttpOptions(port=0, token_file=tmp_path / "tokens")
    with Broker.in_thread(data=tmp_path / "data", http=options) as broker, wire(broker, "device") as device:
        for number in range(3):
            device.publish("a/x", b"%d" % number, qos=1)
            device.publish("b/x", b"other", qos=1)
        first = Follower(broker, token, "filter=a/%23&from_offset=1")
        events = first.events(3)
        assert [data["payload"] for _, data in events] == ["0", "1", "2"]
        assert all(number == data["offset"] for number, data in events)
        device.publish("a/x", b"live", qos=1)
        [(last, data)] = first.events(1)
        assert (data["payload"], data["client_id"]) == ("live", "device")
        first.close()
        for number in range(3, 6):
            device.publish("a/x", b"%d" % number, qos=1)
        again = Follower(broker, token, "filter=a/%23", {"Last-Event-ID": str(last)})
        assert [data["payload"] for _, data in again.events(3)] == ["3", "4", "5"]
        again.close()


@pytest.mark.parametrize(
    ("query", "last", "status"), [("from_offset=999999", "", 422), ("", "x", 400), ("", "9" * 30, 400)]
)
def test_a_wrong_place_is_refused(tmp_path: Path, query: str, last: str, status: int) -> None:
    token = write_token(tmp_path / "tokens", "vera", "viewer")
    options = HttpOptions(port=0, token_file=tmp_path / "tokens")
    with Broker.in_thread(data=tmp_path / "data", http=options) as broker:
        headers = {"Last-Event-ID": last} if last else {}
        follower = Follower(broker, token, query, headers)
        assert follower.response.status == status
        follower.close()
