"""Login on TCP: a test for each role and each refusal, and bounds on how often a peer may fail."""

import json
import logging
import ssl
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from embermq import Broker
from embermq.access.file_access import FileAccess
from embermq.access.passwords import write_password
from embermq.access.tokens import ROLES, write_token
from embermq.broker.limits import Limits
from embermq.certificates import Authority
from embermq.config import load
from embermq.errors import ConfigError
from embermq.http import tcp_login
from embermq.http.application import ROLES as NEEDED
from embermq.http.catalog import OPERATIONS
from embermq.http.operation import PUBLIC
from embermq.http.options import HttpOptions
from embermq.http.tcp_login import ROLE_NUMBERS
from embermq.protocol.reasons import ReasonCode
from embermq.transport.address_bounds import WAIT_MAX_S
from embermq.transport.rate_limited_log import RateLimitedLog


class Served(NamedTuple):
    """A broker with the interface on a port, and the tokens to it."""

    broker: Broker
    tokens: dict[str, str]

    def ask(
        self, path: str, who: str = "", method: str = "GET", body: bytes | None = None, **more: str
    ) -> tuple[int, Any, Any]:
        headers = {name.replace("_", "-"): value for name, value in more.items()}
        if who:
            headers["Authorization"] = f"Bearer {self.tokens.get(who, who)}"
        if body is not None:
            headers.setdefault("Content-Type", "application/json")
        url = f"http://127.0.0.1:{self.broker.http_port}{path}"
        request = urllib.request.Request(url, body, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                data = response.read()
                is_json = response.headers.get_content_type() == "application/json"
                return response.status, json.loads(data) if is_json else data, response.headers
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read()), error.headers


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    tokens = {role: write_token(tmp_path / "tokens", f"the {role}", role) for role in ROLES}
    write_password(tmp_path / "passwords", "ann", b"secret:1")
    write_password(tmp_path / "passwords", "bob", b"other")
    http = HttpOptions(
        port=0, token_file=tmp_path / "tokens", operators=("ann",), has_users=True, names=("mq.example",)
    )
    access = FileAccess(password_file=tmp_path / "passwords")
    with Broker.in_thread(http=http, access=access, shared_addresses=()) as broker:
        yield Served(broker, tokens)


def basic(user_name: str, password: str) -> str:
    return "Basic " + b64encode(f"{user_name}:{password}".encode()).decode()


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: f"{operation.method} {operation.path}")
def test_each_operation_is_for_its_role(served: Served, operation: Any) -> None:
    body = b"{}" if operation.method == "POST" else None
    path = operation.path
    if operation.media == "text/event-stream":
        path += "?nonsense=1"  # the stream itself would not end
    answers = {who: served.ask(path, who, operation.method, body)[0] for who in ("", "wrong", *ROLES)}
    if operation.role == PUBLIC:
        assert set(answers.values()) == {200}
        return
    assert (answers[""], answers["wrong"]) == (401, 401)
    for role, number in ROLE_NUMBERS.items():
        if number >= operation.role:
            assert answers[role] not in (401, 403)
            continue
        status, answer, _ = served.ask(path, role, operation.method, body)
        assert (status, answer) == (403, {"error": f"this needs the role {NEEDED[operation.role]}"})


def test_users_of_the_password_file_have_the_role_that_the_settings_give_them(served: Served) -> None:
    assert served.ask("/api/v1/statistics", Authorization=basic("ann", "secret:1"))[0] == 200
    body = b'{"client_ids":["x"]}'
    assert served.ask("/api/v1/clients/disconnect", "", "POST", body, Authorization=basic("ann", "secret:1"))[0] == 200
    for wrong in (basic("ann", "wrong"), basic("bob", "other"), basic("eve", ""), "Basic ?", "Basic", "Digest x"):
        assert served.ask("/api/v1/statistics", Authorization=wrong)[0] == 401
    no_colon = "Basic " + b64encode(b"ann").decode()
    assert served.ask("/api/v1/statistics", Authorization=no_colon)[0] == 401


def test_a_request_without_login_is_told_how_to_log_in(served: Served) -> None:
    status, answer, headers = served.ask("/api/v1/statistics")
    assert (status, answer) == (401, {"error": "expected a token, or a user name and password, that is known"})
    assert headers["WWW-Authenticate"] == 'Bearer realm="ember"'


def test_pages_of_other_origins_and_other_host_names_are_refused(served: Served) -> None:
    own = f"127.0.0.1:{served.broker.http_port}"
    sent: dict[str, Any]
    for sent, expected in (
        ({"Origin": f"http://{own}"}, 200),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://[::"}, 403),
        ({"Sec_Fetch_Site": "cross-site"}, 403),
        ({"Sec_Fetch_Site": "same-origin"}, 200),
        ({"Host": "evil.example"}, 421),
        ({"Host": "evil.example:80"}, 421),
        ({"Host": "["}, 421),
        ({"Host": "localhost"}, 200),
        ({"Host": "MQ.example:8080"}, 200),
        ({"Host": "[::1]:8080"}, 200),
    ):
        status, answer, _ = served.ask("/api/v1/statistics", "viewer", "GET", None, **sent)
        assert status == expected, (sent, answer)
    _, answer, headers = served.ask("/healthz", Origin="https://evil.example")
    assert "Access-Control-Allow-Origin" not in headers and answer.keys() == {"error"}


def failed_logins(served: Served) -> int:
    return int(served.ask("/api/v1/statistics", "viewer")[1]["counters"]["http/logins/failed"])


def test_a_peer_that_fails_too_often_waits_but_what_is_right_is_accepted(served: Served) -> None:
    right = basic("ann", "secret:1")
    assert served.ask("/api/v1/statistics", Authorization=right)[0] == 200
    for _ in range(Limits().address_login_failures_max):
        assert served.ask("/api/v1/statistics", "wrong")[0] == 401
    for _ in range(6):  # it has to wait for a second; a busy machine may need that for the next log-ins
        served.broker.server.addresses.refused_login("127.0.0.1", ReasonCode.NOT_AUTHORIZED)
    for wrong in ("Bearer wrong", basic("ann", "wrong")):
        status, answer, headers = served.ask("/api/v1/statistics", Authorization=wrong)
        assert (status, answer) == (429, {"error": "too many failed logins, try again later"})
        assert 0 < int(headers["Retry-After"]) <= WAIT_MAX_S
    assert served.ask("/api/v1/statistics", "viewer")[0] == 200
    assert served.ask("/api/v1/statistics", Authorization=right)[0] == 200
    assert served.ask("/healthz")[0] == 200


def test_failed_logins_are_counted_and_logged_without_what_was_tried(
    served: Served, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # one that earlier tests have not used up
    monkeypatch.setattr(tcp_login, "failed_logins", RateLimitedLog(logging.getLogger("embermq"), "failed HTTP logins"))
    before = failed_logins(served)
    for wrong in ("Bearer some-secret", "Basic some-secret", basic("ann\n", "some-secret"), "Digest some-secret"):
        assert served.ask("/api/v1/statistics", Authorization=wrong)[0] == 401
    assert served.ask("/api/v1/statistics")[0] == 401  # nobody has tried
    assert failed_logins(served) == before + 4
    lines = [record.getMessage() for record in caplog.records if "failed HTTP login" in record.getMessage()]
    assert lines == [
        "failed HTTP login from 127.0.0.1: an unknown token",
        "failed HTTP login from 127.0.0.1: no user name and password",
        "failed HTTP login from 127.0.0.1: user 'ann\\n'",
        "failed HTTP login from 127.0.0.1: an unknown token",
    ]


def test_addresses_that_many_share_do_not_wait(tmp_path: Path) -> None:
    tokens = {"viewer": write_token(tmp_path / "tokens", "a", "viewer")}
    with Broker.in_thread(http=HttpOptions(port=0, token_file=tmp_path / "tokens")) as broker:
        served = Served(broker, tokens)
        for _ in range(Limits().address_login_failures_max + 2):
            assert served.ask("/api/v1/statistics", "wrong")[0] == 401


def test_new_tokens_count_after_a_reload_and_a_wrong_file_changes_nothing(served: Served, tmp_path: Path) -> None:
    new = write_token(tmp_path / "tokens", "new", "viewer")
    assert served.ask("/api/v1/statistics", new)[0] == 401
    served.broker.reload()
    assert served.ask("/api/v1/statistics", new)[0] == 200
    (tmp_path / "tokens").write_text("nonsense\n")
    with pytest.raises(ConfigError, match="line 1"):
        served.broker.reload()
    assert served.ask("/api/v1/statistics", new)[0] == 200


def test_tls_with_the_certificate_of_the_listeners(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.sign("server")
    token = write_token(tmp_path / "tokens", "a", "viewer")
    http = HttpOptions(port=0, tls=True, token_file=tmp_path / "tokens")
    with Broker.in_thread(http=http, certificate=certificate, key=key) as broker:
        context = ssl.create_default_context(cafile=str(authority.certificate))
        url = f"https://localhost:{broker.http_port}/api/v1/statistics"
        request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
        with urllib.request.urlopen(request, timeout=60, context=context) as response:
            assert response.status == 200


def test_a_port_that_nobody_could_use_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"http\.port needs http\.token_file"):
        load(None, {"http": {"port": 0}})
    with pytest.raises(ConfigError, match=r"http\.tls needs listeners\.certificate"):
        load(None, {"http": {"port": 0, "token_file": tmp_path / "tokens", "tls": True}})
    with pytest.raises(ConfigError, match=r"^--http-port: http\.port: expected"):
        load(None, {"http": {"port": 70_000}})
    missing = Broker.in_thread(http=HttpOptions(port=0, token_file=tmp_path / "none"))
    with pytest.raises(ConfigError, match=r"http\.token_file: cannot read"), missing:
        pass


def test_a_link_elsewhere_may_lead_to_the_page_but_not_to_the_rest(served: Served) -> None:
    link: dict[str, Any] = {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "document"}
    assert served.ask("/", **link)[0] == 200
    assert served.ask("/api/v1/whoami", "viewer", **link)[0] == 403
    assert served.ask("/", **{**link, "Sec_Fetch_Dest": "iframe"})[0] == 403
    assert served.ask("/", **link, Origin="http://other.example")[0] == 403
    assert served.ask("/", **link, Host="other.example")[0] == 421


def test_who_asks_is_told(served: Served) -> None:
    for role in ("viewer", "operator"):
        status, answer, _ = served.ask("/api/v1/whoami", role)
        assert (status, answer["name"], answer["role"]) == (200, f"the {role}", role)
        assert (answer["has_log"], answer["has_lake"]) == (False, False)
