"""The watch: real metrics, real messages, and a webhook that listens."""

import asyncio
import json
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Queue
from typing import Any

import pytest

from embermq.http.alerts.rules import AlertRule, condition
from embermq.http.alerts.watch import AlertWatch
from embermq.http.alerts.webhooks import WAITING_MAX, Webhooks
from embermq.protocol.packets import Publish
from support.http_place import Place, run
from support.transports import joined

DEADLINE_S = 60


class Hook:
    """A webhook: what was posted to it, and the statuses that it answers with, the last one for good."""

    def __init__(self) -> None:
        self.posted: Queue[Any] = Queue()
        self.statuses = [204]
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                hook.posted.put((self.path, self.headers["Content-Type"], json.loads(body)))
                status = hook.statuses.pop(0) if len(hook.statuses) > 1 else hook.statuses[0]
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *given: object) -> None:
                return

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook?key=1"


@pytest.fixture
def hook() -> Iterator[Hook]:
    hook = Hook()
    yield hook
    hook.server.shutdown()
    hook.server.server_close()


def rule(name: str, when: str, topic: str = "", webhook: str = "") -> AlertRule:
    return AlertRule(name, when, condition(when), topic, webhook)


def test_a_metric_above_its_bound_is_shown_published_and_posted(tmp_path: Path, hook: Hook) -> None:
    clients = rule("clients", "embermq_connections > 0", "alerts/clients", hook.url)

    async def test(place: Place) -> None:
        watch = AlertWatch(place.service)
        await watch.begin()
        await watch.check()
        assert (await place.get("/api/v1/retained/message", topic="alerts/clients")).json["payload"].count('"ok"') == 1
        client = await joined(place.server, "p")
        await watch.check()
        [shown] = (await place.get("/api/v1/alerts")).json["items"]
        assert (shown["state"], shown["value"], shown["webhook_host"]) == ("firing", 1, "127.0.0.1")
        assert "key" not in json.dumps(shown)
        assert (await place.get("/api/v1/statistics")).json["alerts_firing"] == 1
        found = (await place.get("/api/v1/retained/message", topic="alerts/clients")).json
        assert found["client_id"] == "$operator/alerts"
        path, kind, told = await asyncio.to_thread(hook.posted.get, timeout=DEADLINE_S)
        assert (path, kind) == ("/hook?key=1", "application/json")
        assert told == json.loads(found["payload"])
        assert told.items() >= {"alert": "clients", "state": "firing", "when": clients.when, "value": 1}.items()
        client.close()
        while place.server.core.counters.clients_connected:
            await asyncio.sleep(0)
        await watch.check()
        _, _, told = await asyncio.to_thread(hook.posted.get, timeout=DEADLINE_S)
        assert told["state"] == "ok" and hook.posted.empty()

    run(tmp_path, test, alerts=[clients])


def test_a_silent_topic_fires_until_there_is_a_message(tmp_path: Path) -> None:
    async def test(place: Place) -> None:
        watch = AlertWatch(place.service)
        await watch.begin()
        publisher = await joined(place.server, "p")
        (alert,) = place.service.alerts

        async def until(state: str) -> None:
            ends_s = time.monotonic() + DEADLINE_S
            while alert.state != state:
                assert time.monotonic() < ends_s
                await asyncio.sleep(0.02)
                await watch.check()

        await until("ok")
        await until("firing")
        assert alert.value is not None and alert.value > 1
        await publisher.send(Publish("other/x", b"1"))
        await watch.check()
        assert str(alert.state) == "firing"
        while alert.state != "ok":  # again where a second has passed before the check
            await publisher.send(Publish("watched/x", b"1"))
            await watch.check()

    run(tmp_path, test, alerts=[rule("silent", "watched/# is silent for 1s")])


def test_a_counter_is_compared_as_its_rate(tmp_path: Path) -> None:
    async def test(place: Place) -> None:
        counters = place.server.core.counters
        counters.protocol_errors = 1_000_000  # from before the watch
        watch = AlertWatch(place.service)
        await watch.begin()
        (alert,) = place.service.alerts
        await watch.check()
        assert (alert.state, alert.value) == ("ok", 0)
        counters.protocol_errors += 1_000
        counters.store_refusals += 1_000  # of another label
        await watch.check()
        assert (alert.state, alert.value is not None and alert.value > 5) == ("firing", True)
        await watch.check()
        assert alert.state == "ok"

    run(tmp_path, test, alerts=[rule("errors", 'embermq_errors_total{kind="protocol"} > 5')])


def test_what_cannot_be_checked_or_told_says_why(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}/secret"
        alerts = [
            rule("unknown", "embermq_no_such_metric > 1"),
            rule("absent", 'embermq_pipeline_lag_records{job="messages"} > 1'),
            rule("refused", "embermq_connections < 1", "$SYS/x", url),
        ]

        async def test(place: Place) -> None:
            watch = AlertWatch(place.service)
            await watch.begin()
            for _ in range(3):
                await watch.check()
            unknown, absent, refused = (await place.get("/api/v1/alerts")).json["items"]
            assert (unknown["state"], unknown["problem"]) == (
                "no value",
                "there is no metric embermq_no_such_metric",
            )
            assert (absent["state"], absent["problem"]) == ("no value", "")
            assert refused["state"] == "firing"
            assert refused["untold"].startswith("not published to $SYS/x: ")

        run(tmp_path, test, alerts=alerts)
    assert caplog.text.count("there is no metric") == 1
    assert "secret" not in caplog.text


def test_a_webhook_is_tried_again_and_given_up(hook: Hook) -> None:
    told: Queue[str] = Queue()
    webhooks = Webhooks(pauses_s=(0.0, 0.0))
    hook.statuses = [500, 302, 200]
    webhooks.send(hook.url, b"{}", told.put)
    assert told.get(timeout=DEADLINE_S) == "" and hook.posted.qsize() == 3
    hook.statuses = [500]
    webhooks.send(hook.url, b"{}", told.put)
    assert told.get(timeout=DEADLINE_S) == "127.0.0.1 answers with status 500" and hook.posted.qsize() == 6
    hook.server.server_close()
    webhooks.close()
    assert (webhooks.sent, webhooks.failed) == (1, 1)


def test_only_so_many_changes_wait_for_a_webhook() -> None:
    told: Queue[str] = Queue()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        webhooks = Webhooks()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        webhooks.send(url, b"{}", told.put)
        silent.accept()  # the thread waits for the answer to this one
        for _ in range(WAITING_MAX):
            webhooks.send(url, b"{}", told.put)
        assert told.empty()
        webhooks.send(url, b"{}", told.put)
        assert told.get_nowait() == f"{WAITING_MAX} changes wait for their webhook already"
        webhooks.close()


def test_a_webhook_that_hangs_delays_no_other(hook: Hook) -> None:
    told: Queue[str] = Queue()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        webhooks = Webhooks()
        webhooks.send(f"http://127.0.0.1:{silent.getsockname()[1]}/", b"{}", told.put)
        silent.accept()  # it gets no answer
        webhooks.send(hook.url, b"{}", told.put)
        assert told.get(timeout=DEADLINE_S) == ""
        assert (webhooks.sent, webhooks.failed) == (1, 0)
        webhooks.close()


def test_a_check_that_fails_is_not_the_last_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(place: Place) -> None:
        watch = AlertWatch(place.service, check_s=0.01)
        again = asyncio.Event()
        checks: list[None] = []

        async def check() -> None:
            checks.append(None)
            if len(checks) == 1:
                raise RuntimeError("planted")
            again.set()

        monkeypatch.setattr(AlertWatch, "check", lambda _: check())
        watching = asyncio.create_task(watch.run())
        await asyncio.wait_for(again.wait(), DEADLINE_S)
        watching.cancel()
        assert place.server.core.counters.internal_errors == 1
        place.server.core.counters.internal_errors = 0

    run(tmp_path, test, alerts=[rule("clients", "embermq_connections > 0")])
