"""Tokens as passwords: what a right one gives, and that nothing else is accepted."""

import json
import time
from base64 import b64encode
from collections.abc import Callable
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import jwt
import paho.mqtt.client as paho
import pytest
from hypothesis import given
from hypothesis import strategies as st

from embermq.access.file_access import FileAccess
from embermq.access.sources.json_web_tokens import TOKEN_BYTES_MAX, TokenRules, TokenSource
from embermq.access.sources.token_keys import FileKeys
from embermq.broker.access import Identity
from embermq.config import load
from embermq.embed import Broker, BrokerThread
from embermq.errors import ConfigError
from embermq.protocol.errors import Refused
from embermq.protocol.reasons import ReasonCode
from support.answering_server import answering
from support.signed_tokens import Signer, key_set, unsigned
from support.user_client import UserClient

EC = Signer("ES256", "one")
RSA = Signer("RS256")
ISSUED: dict[str, Any] = {"iss": "https://id.example", "aud": "mqtt"}


def access_with(tmp_path: Path, keys: str = EC.pem, **more: Any) -> FileAccess:
    (tmp_path / "keys").write_text(keys)
    (tmp_path / "acl").write_text("all\nread public/#\nuser ann\nread a/#\ndeny read a/secret\n")
    rules = TokenRules(**({"algorithms": ("ES256",), "issuer": ISSUED["iss"], "audience": "mqtt"} | more))
    source = TokenSource(FileKeys(tmp_path / "keys", rules.algorithms), rules, ["world:"])
    return FileAccess(acl_file=tmp_path / "acl", sources=[source])


def log_in(access: FileAccess, token: str | bytes, user_name: str | None = "unused") -> Identity:
    return access.authenticate("c1", user_name, token.encode() if isinstance(token, str) else token, None)


def test_a_right_token_names_the_user_whatever_the_connect_says(tmp_path: Path) -> None:
    access = access_with(tmp_path)
    for user_name in ("unused", "", None, "root"):
        identity = log_in(access, EC.token(**ISSUED), user_name)
        assert (identity.user_name, identity.client_id) == ("ann", "c1")
    assert access.may_subscribe(identity, "a/x") and not access.may_subscribe(identity, "b")
    assert access.slow and access.queue_for("unused", EC.token().encode(), None) is not None


def forged(change: Callable[[str], str]) -> str:
    return change(EC.token(**ISSUED))


def with_key(key: Any, algorithm: str, **header: Any) -> str:
    claims = {"sub": "ann", "exp": int(time.time()) + 60, **ISSUED}
    return jwt.encode(claims, key, algorithm, headers=header or None)


EXP = int(time.time()) + 600
WRONG: dict[str, str | bytes] = {
    "alg none": unsigned({"alg": "none"}, {"sub": "ann", "exp": EXP, **ISSUED}),
    "alg None in another case": unsigned({"alg": "nOnE"}, {"sub": "ann", "exp": EXP, **ISSUED}, b"x"),
    "no alg": unsigned({"typ": "JWT"}, {"sub": "ann", "exp": EXP, **ISSUED}, b"x"),
    "alg is a list": unsigned({"alg": ["ES256"]}, {"sub": "ann", "exp": EXP, **ISSUED}, b"x"),
    "key id is a number": unsigned({"alg": "ES256", "kid": 7}, {"sub": "ann", "exp": EXP}, b"x"),
    "HMAC with the public key as the secret": unsigned({"alg": "HS256"}, {"sub": "ann", "exp": EXP}, b"x" * 32),
    "another algorithm of the same key": with_key(RSA.key, "RS256"),
    "another key": with_key(Signer().key, "ES256"),
    "another key with the right id": with_key(Signer().key, "ES256", kid="one"),
    "its own key in the header": with_key(Signer().key, "ES256", jwk=Signer().jwk()),
    "expired": EC.token(-60, **ISSUED),
    "without an end": EC.token(exp=None, **ISSUED),
    "an end that is a text": EC.token(exp="tomorrow", **ISSUED),
    "an end that is no number of seconds": unsigned({"alg": "ES256"}, b'{"sub": "ann", "exp": Infinity}', b"x"),
    "not valid yet": EC.token(nbf=int(time.time()) + 600, **ISSUED),
    "wrong audience": EC.token(iss=ISSUED["iss"], aud="web"),
    "no audience": EC.token(iss=ISSUED["iss"]),
    "wrong issuer": EC.token(iss="https://evil.example", aud="mqtt"),
    "no issuer": EC.token(aud="mqtt"),
    "no user": EC.token(sub=None, **ISSUED),
    "empty user": EC.token(sub="", **ISSUED),
    "a user with a line break": EC.token(sub="ann\nuser root", **ISSUED),
    "the user of a listener": EC.token(sub="world:ann", **ISSUED),
    "a user of 257 characters": EC.token(sub="a" * 257, **ISSUED),
    "too large": EC.token(pad="x" * TOKEN_BYTES_MAX, **ISSUED),
    "changed claims": forged(
        lambda token: ".".join([token.split(".")[0], *unsigned({}, {"sub": "root"}).split(".")[1:]])
    ),
    "cut": forged(lambda token: token[:-4]),
    "deep": unsigned(b'{"a":' * 1_100, {}, b"x"),
    "deep claims": unsigned({"alg": "ES256"}, b"[" * 3_000, b"x"),
    "no JSON": b"eyJ.eyJ.eyJ",
    "no base64": b"ey\xff\xfe.\x00.\x01",
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_token_is_refused(tmp_path: Path, name: str) -> None:
    access = access_with(tmp_path)
    with pytest.raises(Refused) as refused:
        log_in(access, WRONG[name])
    assert refused.value.reason in (ReasonCode.BAD_USER_NAME_OR_PASSWORD, ReasonCode.NOT_AUTHORIZED)
    assert len(str(refused.value)) < 200
    assert access.counts() == {"logins/failed/jwt": 1}


@given(st.binary(max_size=200), st.binary(max_size=200), st.binary(max_size=80))
def test_no_bytes_raise_anything_else(tmp_path_factory: pytest.TempPathFactory, a: bytes, b: bytes, c: bytes) -> None:
    access = access_with(tmp_path_factory.getbasetemp())
    for token in (b"ey" + b".".join((a, b, c)), unsigned(a, b, c).encode(), unsigned({"alg": "ES256"}, b, c).encode()):
        with pytest.raises(Refused):
            log_in(access, token)


def test_a_public_key_is_no_secret(tmp_path: Path) -> None:
    """The classic confusion: a token signed by HMAC with the text of the public key as its secret."""
    access = access_with(tmp_path, RSA.pem, algorithms=("RS256",))
    assert log_in(access, RSA.token(**ISSUED)).user_name == "ann"
    token = jwt.api_jws.PyJWS().encode(b"{}", b"x" * 64, "HS256")
    header, _, _ = token.split(".")
    with pytest.raises(Refused, match="algorithm"):
        log_in(access, f"{header}.{RSA.token(**ISSUED).split('.')[1]}.AAAA")


def test_a_name_of_the_password_file_is_decided_by_the_file(tmp_path: Path) -> None:
    from embermq.access.passwords import write_password

    write_password(tmp_path / "passwords", "root", b"right")
    rules = TokenRules(algorithms=("ES256",))
    (tmp_path / "keys").write_text(EC.pem)
    source = TokenSource(FileKeys(tmp_path / "keys", ["ES256"]), rules)
    access = FileAccess(password_file=tmp_path / "passwords", sources=[source])
    with pytest.raises(Refused, match="wrong password"):
        log_in(access, EC.token(), "root")
    assert log_in(access, b"right", "root").user_name == "root"
    assert log_in(access, EC.token(), "device").user_name == "ann"
    with pytest.raises(Refused):
        log_in(access, b"guess", "device")


def test_rights_of_a_claim_add_to_the_list_and_its_denials_are_stronger(tmp_path: Path) -> None:
    access = access_with(tmp_path, rights_claim="rights")
    rights = ["read,write b/%u/%c", "read a/#", "deny read public/private", "read a/secret"]
    ann = log_in(access, EC.token(rights=rights, **ISSUED))
    assert access.may_publish(ann, "b/ann/c1", False) and not access.may_publish(ann, "b/ann/c2", False)
    assert access.may_subscribe(ann, "a/x") and not access.may_subscribe(ann, "a/secret")
    assert access.may_subscribe(ann, "public/x") and not access.may_subscribe(ann, "public/private")
    assert not access.may_subscribe(log_in(access, EC.token(**ISSUED)), "b/ann/c1")
    for wrong in ("read #", [1], ["reed #"], ["read a/#/b"], ["user root"], ["read #"] * 101, ["read " + "x" * 1_000]):
        with pytest.raises(Refused):
            log_in(access, EC.token(rights=wrong, **ISSUED))


def test_a_file_of_keys_is_read_again_with_the_others(tmp_path: Path) -> None:
    access = access_with(tmp_path)
    new = Signer()
    (tmp_path / "keys").write_text("nothing")
    with pytest.raises(ConfigError, match=r"access\.jwt_keys"):
        access.reload()
    assert log_in(access, EC.token(**ISSUED))
    (tmp_path / "keys").write_text(key_set(new.jwk()))
    access.reload()
    assert log_in(access, new.token(**ISSUED))
    with pytest.raises(Refused, match="its signature"):
        log_in(access, EC.token(**ISSUED))


def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: str) -> BrokerThread:
    monkeypatch.chdir(tmp_path)
    text = f'[listeners]\nport = 0\n[store]\nmemory = true\n[access]\nacl_file = "acl"\n{more}\n'
    (tmp_path / "ember.toml").write_text(text)
    (tmp_path / "acl").write_text("user ann\nread,write a/#\n")
    (tmp_path / "keys.pem").write_text(EC.pem)
    return BrokerThread(Broker.from_settings(load(tmp_path / "ember.toml")))


@pytest.mark.parametrize("protocol", [paho.MQTTv5, paho.MQTTv311])
def test_a_connection_ends_when_its_token_expires(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, protocol: Any
) -> None:
    settings = 'jwt_keys = "keys.pem"\njwt_algorithms = ["ES256"]\njwt_leeway_s = 0\njwt_rights_claim = "rights"'
    with served(tmp_path, monkeypatch, settings) as broker:
        with UserClient(broker.port, "c2", "x", EC.token(rights=["write ping"]), protocol) as lasting:
            assert lasting.connect() == 0
            assert lasting.publish("a/1", b"") < 0x80
            for lasts_s in (2.9, 10, 30):  # a slow machine may need longer to connect than a token lasts
                with UserClient(broker.port, "c1", "x", EC.token(lasts_s), protocol) as client:
                    if client.connect() == 0:
                        reason = client.ended()
                        break
            assert reason == 0x87 or protocol != paho.MQTTv5
            assert lasting.is_connected()
        with UserClient(broker.port, "c1", "x", EC.token(-1), protocol) as client:
            assert client.connect() == 0x86
        with UserClient(broker.port, "c1", "ann", "guess", protocol) as client:
            assert client.connect() == 0x86


def test_a_key_set_at_a_url_is_fetched_for_the_first_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with answering(lambda asked: asked.answer(200, key_set(EC.jwk()).encode())) as server:
        settings = f'jwt_keys = "{server.url}"\njwt_algorithms = ["ES256"]'
        with served(tmp_path, monkeypatch, settings) as broker:
            for number in range(3):
                with UserClient(broker.port, f"c{number}", "x", EC.token()) as client:
                    assert client.connect() == 0
            assert len(server.asked) == 1
            server.answer = server.hang
            unknown = Signer("ES256", "unknown")
            with (
                UserClient(broker.port, "c9", "x", unknown.token()) as client,
                UserClient(broker.port, "c1", "x", EC.token()) as known,
            ):
                assert (client.connect(), known.connect()) == (0x86, 0)


def test_over_http_a_token_has_the_role_of_the_user_that_it_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = (
        'jwt_keys = "keys.pem"\njwt_algorithms = ["ES256"]\n[http]\nport = 0\nviewers = ["ann"]\noperators = ["root"]'
    )
    with served(tmp_path, monkeypatch, settings) as broker:

        def whoami(name: str, password: str) -> tuple[int, Any]:
            connection = HTTPConnection("127.0.0.1", broker.http_port, timeout=60)
            header = "Basic " + b64encode(f"{name}:{password}".encode()).decode()
            connection.request("GET", "/api/v1/whoami", headers={"Authorization": header})
            answer = connection.getresponse()
            found = json.loads(answer.read())
            connection.close()
            return answer.status, found.get("name")

        assert whoami("root", EC.token()) == (200, "ann")
        assert whoami("ann", EC.token(sub="bob"))[0] == 401
        assert whoami("ann", EC.token(-60))[0] == 401


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ('jwt_keys = "missing"', "access.jwt_keys: cannot read missing"),
        ('jwt_keys = "keys.pem"', "has no key for RS256"),
        ('jwt_issuer = "x"', "access.jwt_issuer does nothing: set access.jwt_keys"),
        ('jwt_keys = "http://id.example/keys"', "expected a URL that begins with https://"),
        ('jwt_keys = "https://a:b@id.example/keys"', "without user and password"),
        ('jwt_keys = "keys.pem"\njwt_algorithms = ["RS256", "HS256"]', "not both"),
        ('jwt_keys = "keys.pem"\njwt_algorithms = []', "jwt_algorithms"),
        ('jwt_keys = "keys.pem"\njwt_algorithms = ["none"]', "jwt_algorithms"),
    ],
)
def test_wrong_settings_are_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: str, expected: str
) -> None:
    with pytest.raises(ConfigError) as error:
        served(tmp_path, monkeypatch, settings)
    assert expected in str(error.value) and "\n" not in str(error.value)


def test_rights_in_tokens_need_an_access_list(tmp_path: Path) -> None:
    (tmp_path / "ember.toml").write_text('[access]\njwt_keys = "k"\njwt_rights_claim = "rights"\n')
    with pytest.raises(ConfigError, match=r"needs access\.acl_file"):
        load(tmp_path / "ember.toml")
