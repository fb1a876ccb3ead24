"""Requests to a server: asked again while it restarts, one sentence when it does not answer, and no token anywhere."""

import json
import logging
import pickle
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from embermq import Broker
from embermq.access.tokens import write_token
from embermq.certificates import Authority
from embermq.history.errors import ServerRefused, ServerUnreachable
from embermq.history.location import LogLocation
from embermq.history.opening import open_log
from embermq.history.requests import Requests
from embermq.history.server import ServerLog
from embermq.http.options import HttpOptions
from embermq.spark.options import parse_source_options
from embermq.store.log.errors import LogCorrupt, NotALog
from embermq.store.log.readers import registered_readers
from support.log_server import TOKEN, LogServer
from support.recorded import Recorder

Recorders = Callable[..., Recorder]


def filled(recorder: Recorders, records: int = 500) -> Recorder:
    made = recorder(segment_bytes=2_000)
    for number in range(records):
        made.publish(f"a/{number}", b"%d" % number)
    return made.flush()


def location(server: LogServer, **more: str) -> LogLocation:
    return parse_source_options(server.options | more).location


class Waits:
    """A clock that moves only when somebody waits, and calls a function then."""

    def __init__(self, meanwhile: Callable[[int], None] = lambda count: None) -> None:
        self.now_s = 0.0
        self.pauses: list[float] = []
        self._meanwhile = meanwhile

    def monotonic_s(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        self.pauses.append(seconds)
        self._meanwhile(len(self.pauses))


def test_a_server_that_restarts_is_asked_again(recorder: Recorders) -> None:
    made = filled(recorder)
    with LogServer(made.data) as server:
        waits = Waits(lambda count: server.start() if count == 3 else None)
        requests = Requests(location(server), waits.monotonic_s, waits.sleep)
        assert requests.get_json("/api/v1/log")["next_offset"] == 501
        server.stop()
        assert requests.get_json("/api/v1/log")["next_offset"] == 501
        assert waits.pauses == [0.1, 0.2, 0.4]


def test_a_server_that_restarts_while_rows_are_read(recorder: Recorders) -> None:
    made = filled(recorder)
    with LogServer(made.data) as server:
        log = open_log(location(server))
        seen: list[int] = []
        for batch in log.batches(1, 501, 10, ["offset"]):
            seen += batch["offset"].to_pylist()
            if len(seen) in (100, 300):
                server.stop()
                server.start()
        assert seen == list(range(1, 501))


def test_a_server_that_stays_away_is_one_sentence(recorder: Recorders) -> None:
    made = filled(recorder)
    with LogServer(made.data) as server:
        there = location(server, timeoutSeconds="5")
    waits = Waits()
    with pytest.raises(ServerUnreachable) as caught:
        Requests(there, waits.monotonic_s, waits.sleep).get_json("/api/v1/log")
    assert str(caught.value) == f"{there.server} does not answer since 5 s: Connection refused"
    assert sum(waits.pauses) >= 5 and max(waits.pauses) == 2.0
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_a_refusal_is_told_at_once_and_crosses_processes(recorder: Recorders) -> None:
    made = filled(recorder)
    with LogServer(made.data) as server:
        waits = Waits()
        requests = Requests(location(server, token="wrong"), waits.monotonic_s, waits.sleep)
        with pytest.raises(ServerRefused) as caught:
            requests.get_json("/api/v1/log")
        sentence = "expected a token, or a user name and password, that is known"
        assert str(pickle.loads(pickle.dumps(caught.value))) == f"{server.url} refuses: {sentence}"
        assert waits.pauses == []


def test_a_viewer_reads_and_is_not_waited_for(recorder: Recorders, caplog: pytest.LogCaptureFixture) -> None:
    made = filled(recorder)
    with LogServer(made.data, "viewer") as server:
        log = open_log(location(server))
        for offset in (5, 6):
            log.register_reader("lake", offset)
        assert list(registered_readers(made.data)) == []
        assert log.bounds() == (1, 501)
    said = "the server does not wait for this pipeline before it trims its log: this needs the role reader"
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == [said]


def test_a_reader_registers_with_the_server(recorder: Recorders) -> None:
    made = filled(recorder)
    with LogServer(made.data) as server:
        open_log(location(server)).register_reader("hdfs://lake", 77)
    assert [(each.name, each.next_offset) for each in registered_readers(made.data)] == [("hdfs://lake", 77)]


def test_tls_with_an_authority_of_ones_own(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.sign("server")
    token = write_token(tmp_path / "tokens", "spark", "reader")
    (tmp_path / "token").write_text(f"{token}\n")
    http = HttpOptions(port=0, tls=True, token_file=tmp_path / "tokens")
    with Broker.in_thread(data=tmp_path / "data", http=http, certificate=certificate, key=key) as broker:
        options = {"server": f"https://localhost:{broker.http_port}", "tokenFile": str(tmp_path / "token")}
        trusted = pickle.loads(
            pickle.dumps(parse_source_options(options | {"caFile": str(authority.certificate)}).location)
        )
        assert open_log(trusted).bounds()[0] == 1
        with pytest.raises(ServerUnreachable, match=r"its certificate is not trusted: .*; caFile names the authority"):
            open_log(parse_source_options(options).location).bounds()


def test_a_server_in_memory_is_no_log(tmp_path: Path) -> None:
    token = write_token(tmp_path / "tokens", "spark", "viewer")
    with Broker.in_thread(http=HttpOptions(port=0, token_file=tmp_path / "tokens")) as broker:
        options = {"server": f"http://127.0.0.1:{broker.http_port}", "token": token}
        with pytest.raises(NotALog, match="is not an EmberMQ log: a store in memory keeps no log"):
            open_log(parse_source_options(options).location).bounds()


@pytest.fixture
def liar() -> Iterator[tuple[str, dict[str, bytes]]]:
    """A server that answers each path with given bytes."""
    answers: dict[str, bytes] = {}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            data = answers[self.path.partition("?")[0]]
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", answers
    server.shutdown()
    server.server_close()


def test_damage_on_the_way_is_found(liar: tuple[str, dict[str, bytes]], recorder: Recorders) -> None:
    made = filled(recorder, 20)
    with LogServer(made.data) as server:
        requests = Requests(location(server))
        whole = requests.get_bytes("/api/v1/log/blocks", {"from_offset": 1, "to_offset": 21})
    url, answers = liar
    answers["/api/v1/log"] = json.dumps({"first_offset": 1, "next_offset": 21, "checkpoints": []}).encode()
    log = ServerLog(LogLocation(server=url, timeout_s=60))
    answers["/api/v1/log/blocks"] = whole
    assert sum(batch.num_rows for batch in log.batches(1, 21, 100, ["offset"])) == 20
    damaged = [b"", whole[:4], whole[:-1], whole + b"\0", whole[:3] + b"\xff" + whole[4:]]
    damaged += [whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :] for at in range(0, len(whole), 61)]
    for data in damaged:
        answers["/api/v1/log/blocks"] = data
        with pytest.raises(LogCorrupt, match="the log is damaged: the log of http://"):
            list(log.batches(1, 21, 100, ["offset", "payload"]))


def test_the_token_is_shown_nowhere(recorder: Recorders) -> None:
    made = filled(recorder)
    with LogServer(made.data) as server:
        there = location(server)
        assert there.token == TOKEN
        options = parse_source_options(server.options)
        for text in (repr(there), str(there), repr(options), repr(open_log(there)), open_log(there).name):
            assert TOKEN not in text
