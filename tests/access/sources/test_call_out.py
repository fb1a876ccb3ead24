"""The call-out: a real server is asked about clients, and whatever is no answer lets nobody in."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from embermq.access.file_access import FileAccess
from embermq.access.passwords import write_password
from embermq.access.sources.call_out import CallOut
from embermq.broker.access import Identity
from embermq.config import load
from embermq.embed import Broker, BrokerThread
from embermq.errors import ConfigError
from embermq.protocol.errors import Refused
from embermq.protocol.reasons import ReasonCode
from support.answering_server import AnsweringServer, Asked, answering
from support.user_client import UserClient

LONG_S = 30.0


def call_out(url: str, **more: Any) -> CallOut:
    options: dict[str, Any] = {
        "timeout_s": LONG_S,
        "cache_s": 60.0,
        "concurrency": 2,
        "takes_rights": True,
        "reserved": ["world:"],
    }
    return CallOut(url, **(options | more))


def yes(asked: Asked) -> None:
    asked.answer(200)


def says(status: int, body: object = b"") -> Any:
    """An answer with bytes, or with anything else as JSON."""
    return lambda asked: asked.answer(status, body if isinstance(body, bytes) else json.dumps(body).encode())


def refusal(source: CallOut, *credentials: Any) -> ReasonCode:
    with pytest.raises(Refused) as refused:
        source.identify(*(credentials or ("c1", "ann", b"a secret")))
    assert "a secret" not in str(refused.value)
    return refused.value.reason


def test_the_server_is_told_who_asks_and_may_say_more() -> None:
    with answering(yes) as server:
        source = call_out(server.url)
        assert source.identify("c1", "ann", b"x").user_name == "ann"
        assert source.identify("c2", "ann", b"\xff").user_name == "ann"
        assert [json.loads(body) for body in server.asked] == [
            {"client_id": "c1", "user_name": "ann", "password": "x"},
            {"client_id": "c2", "user_name": "ann", "password_base64": "/w=="},
        ]
        server.answer = says(200, {"user_name": "bob", "rights": ["read a/%u"], "expires_s": 60})
        bob = source.identify("c3", None, b"x")
        assert (bob.user_name, bob.client_id, bob.expires_us > 0) == ("bob", "c3", True)


@pytest.mark.parametrize("status", [401, 403])
def test_a_refusal_is_one_of_two_statuses(status: int) -> None:
    with answering(says(status)) as server:
        assert refusal(call_out(server.url)) is ReasonCode.BAD_USER_NAME_OR_PASSWORD


NO_ANSWERS: dict[str, Any] = {
    "redirect": lambda asked: asked.answer(302, Location="/yes") if asked.path != "/yes" else asked.answer(200),
    "no content": says(204),
    "error": says(500),
    "not found": says(404),
    "garbage": says(200, b"<html>ok</html>"),
    "no JSON": says(200, b"\xff\xfe"),
    "deep": says(200, b"[" * 60_000),
    "a list": says(200, []),
    "the refusal of another server": says(200, {"result": "deny"}),
    "huge": says(200, b" " * 100_000),
    "rights are a text": says(200, {"rights": "read #"}),
    "a right that is none": says(200, {"rights": ["reed #"]}),
    "many rights": says(200, {"rights": ["read a"] * 101}),
    "a user name with a line break": says(200, {"user_name": "a\nb"}),
    "a user name that is none": says(200, {"user_name": 7}),
    "the user of a listener": says(200, {"user_name": "world:ann"}),
    "an end that is none": says(200, {"expires_s": True}),
    "an end in the past": says(200, {"expires_s": -1}),
    "no HTTP": lambda asked: asked.write(b"SSH-2.0-x\r\n"),
    "half an answer": lambda asked: asked.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{"),
}


@pytest.mark.parametrize("name", NO_ANSWERS)
def test_what_is_no_answer_is_a_refusal(name: str) -> None:
    with answering(NO_ANSWERS[name]) as server:
        source = call_out(server.url)
        assert refusal(source) in (ReasonCode.SERVER_UNAVAILABLE, ReasonCode.NOT_AUTHORIZED)
        assert source.remembered("c1", "ann", b"a secret") is None


def test_a_server_that_is_gone_hangs_or_drips_is_a_refusal_in_time() -> None:
    def drip(asked: Asked) -> None:
        for byte in b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 1000:
            asked.write(bytes([byte]))
            if server.released.wait(0.05):
                return

    with answering(yes) as server:
        source = call_out(server.url, timeout_s=0.3)
        for answer in (server.hang, drip):
            server.answer = answer
            assert refusal(source) is ReasonCode.SERVER_UNAVAILABLE
        assert source.counts() == {"logins/call-out/asked": 2, "logins/call-out/cached": 0, "logins/call-out/failed": 2}
    assert refusal(source) is ReasonCode.SERVER_UNAVAILABLE


def test_an_answer_is_remembered_for_the_same_credentials_and_a_time() -> None:
    now_s = [100.0]
    with answering(yes) as server:
        source = call_out(server.url, now_s=lambda: now_s[0], remembered_max=3)
        for credentials in [("c1", "ann", b"x"), ("c2", "ann", b"x"), ("c1", "bob", b"x"), ("c1", "ann", b"y")]:
            source.identify(*credentials)
            source.identify(*credentials)
        assert len(server.asked) == 4
        assert source.remembered("c1", "ann", b"x") is None, "the oldest of more than three is forgotten"
        assert source.remembered("c1", "ann", b"y") is not None
        now_s[0] += 60
        assert source.remembered("c1", "ann", b"y") is None
        source.identify("c1", "ann", b"y")
        source.read()()
        assert source.remembered("c1", "ann", b"y") is None, "a reload forgets all"
        server.answer = says(403)
        for _ in range(2):
            assert refusal(source) is ReasonCode.BAD_USER_NAME_OR_PASSWORD
        assert len(server.asked) == 7, "a refusal is not remembered"


def test_no_more_are_asked_at_a_time_than_the_bound() -> None:
    gate = threading.Semaphore(0)
    lock = threading.Lock()
    active: list[int] = [0, 0]  # now, and the most at a time

    def answer_behind_gate(asked: Asked) -> None:
        with lock:
            active[0] += 1
            active[1] = max(active)
        assert gate.acquire(timeout=LONG_S)
        with lock:
            active[0] -= 1
        asked.answer(200)

    with answering(answer_behind_gate) as server:
        source = call_out(server.url, concurrency=2)
        names: list[str] = []
        threads = [
            threading.Thread(target=lambda name: names.append(source.identify("c", name, b"x").user_name), args=(name,))
            for name in "abcdef"
        ]
        for thread in threads:
            thread.start()
        for number in range(6):
            assert server.arrived.acquire(timeout=LONG_S)
            if number:
                gate.release()
        gate.release()
        for thread in threads:
            thread.join()
        assert sorted(names) == list("abcdef") and active == [0, 2]


def test_rights_of_an_answer_add_to_the_list(tmp_path: Path) -> None:
    (tmp_path / "acl").write_text("all\nread public/#\ndeny read a/secret\n")
    with answering(says(200, {"rights": ["read a/#"]})) as server:
        access = FileAccess(acl_file=tmp_path / "acl", sources=[call_out(server.url)])
        ann: Identity = access.authenticate("c1", "ann", b"x", None)
        assert access.may_subscribe(ann, "a/x") and access.may_subscribe(ann, "public/x")
        assert not access.may_subscribe(ann, "a/secret")
        open_to_all = FileAccess(sources=[call_out(server.url, takes_rights=False)])
        with pytest.raises(Refused, match=r"rights, which need access\.acl_file"):
            open_to_all.authenticate("c1", "ann", b"x", None)


def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: AnsweringServer, more: str = "") -> BrokerThread:
    monkeypatch.chdir(tmp_path)
    write_password(tmp_path / "passwords", "root", b"root")
    (tmp_path / "ember.toml").write_text(
        '[listeners]\nport = 0\n[store]\nmemory = true\n[access]\npassword_file = "passwords"\n'
        f'call_out_url = "{server.url}"\n{more}'
    )
    return BrokerThread(Broker.from_settings(load(tmp_path / "ember.toml")))


def test_a_server_that_hangs_delays_no_user_of_the_password_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = "call_out_timeout_s = 30\ncall_out_concurrency = 2\n"
    with answering(yes) as server, served(tmp_path, monkeypatch, server, settings) as broker:
        with UserClient(broker.port, "c0", "ann", "x") as first:
            assert first.connect() == 0
        server.answer = server.hang
        waiting = [UserClient(broker.port, f"w{number}", f"u{number}", "x") for number in range(6)]
        threads = [threading.Thread(target=client.connect) for client in waiting]
        for thread in threads:
            thread.start()
        for _ in range(3):  # the first client, and as many as may ask
            assert server.arrived.acquire(timeout=LONG_S)
        with UserClient(broker.port, "c1", "root", "root") as root, UserClient(broker.port, "c0", "ann", "x") as ann:
            assert (root.connect(), ann.connect()) == (0, 0), "of the file, and remembered"
            assert root.is_connected()
        assert len(server.asked) == 3 and any(thread.is_alive() for thread in threads)
        server.answer = yes
        server.released.set()
        for thread, client in zip(threads, waiting, strict=True):
            thread.join()
            client.paho.disconnect()
            client.paho.loop_stop()


def test_clients_are_refused_when_no_answer_comes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with answering(yes) as server, served(tmp_path, monkeypatch, server, "call_out_timeout_s = 3\n") as broker:
        server.answer = server.hang
        with UserClient(broker.port, "c1", "ann", "x") as client:
            assert client.connect() == ReasonCode.SERVER_UNAVAILABLE
        server.answer = says(403)
        with UserClient(broker.port, "c1", "ann", "x") as client:
            assert client.connect() == ReasonCode.BAD_USER_NAME_OR_PASSWORD
        server.answer = says(200, {"expires_s": 2})
        with UserClient(broker.port, "c1", "ann", "x") as client:
            assert client.connect() == 0
            assert client.ended() == ReasonCode.NOT_AUTHORIZED


def test_plain_http_is_for_this_machine_only(tmp_path: Path) -> None:
    (tmp_path / "ember.toml").write_text('[access]\ncall_out_url = "http://auth.example/mqtt"\n')
    with pytest.raises(ConfigError, match="begins with https://"):
        load(tmp_path / "ember.toml")
