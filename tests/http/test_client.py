"""The client of the commands: answers, streams, refusals, and servers that end or do not answer."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from embermq import Broker
from embermq.errors import ConfigError
from embermq.http.client import HttpClient, ServerRefusal, connect


@contextmanager
def answering(path: Path, answer: bytes) -> Iterator[HttpClient]:
    """A server that sends bytes to the first client that connects, and ends."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65_536)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        with HttpClient(path) as client:
            yield client
        thread.join()


def test_requests_share_a_connection_and_refusals_are_told(tmp_path: Path) -> None:
    with Broker.in_thread(data=tmp_path / "data"), HttpClient(tmp_path / "data" / "control.sock") as client:
        for number in range(10):
            client.post("/api/v1/retained/set", {"messages": [{"topic": f"a/{number}", "payload": "1"}]})
        assert len(list(client.lines("/api/v1/retained", filter="a/#"))) == 10
        with pytest.raises(ServerRefusal, match="topic filter") as refused:
            client.get("/api/v1/retained", filter="a#")
        assert refused.value.status == 400
        assert "embermq_connections 0.0" in client.text("/metrics").splitlines()
        assert client.get("/api/v1/retained", filter="a/3")["items"][0]["topic"] == "a/3"
        lines = client.lines("/api/v1/retained")
        next(lines)
        lines.close()  # the rest of the answer is not taken for the next one
        assert client.get("/healthz") == {"status": "ok"}
        done = list(client.lines("/api/v1/retained/clear", {"filter": "#"}))[-1]
        assert (done["cleared"], done["is_done"]) == (10, True)


def test_a_stream_that_is_not_complete_is_an_error(tmp_path: Path) -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    for number, (answer, expected) in enumerate(
        (
            (head + b'9\r\n{"a": 1}\n\r\n', "ended before it had answered"),
            (head + b'9\r\n{"a": 1}\n\r\n14\r\n', "ended before it had answered"),
            (b"", "ended before it had answered"),
            (b"SSH-2.0\r\n", "ended before it had answered"),
        )
    ):
        with answering(tmp_path / str(number), answer) as client, pytest.raises(ConfigError, match=expected):
            list(client.lines("/"))
    failed = head + b'9\r\n{"a": 1}\n\r\n14\r\n{"error": "a disk"}\n\r\n'
    with answering(tmp_path / "failed", failed) as client, pytest.raises(ServerRefusal, match="a disk"):
        list(client.lines("/"))


def test_where_nothing_listens_there_is_no_client(tmp_path: Path) -> None:
    assert connect(tmp_path / "none") is None
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / "left"))
    assert connect(tmp_path / "left") is None
