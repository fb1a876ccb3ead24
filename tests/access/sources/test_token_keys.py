"""Keys of tokens: which are taken from a file, and how a URL is asked for them."""

import hashlib
import threading

import pytest

from embermq.access.sources.token_keys import UrlKeys, parse_keys
from embermq.errors import ConfigError
from embermq.protocol.errors import Refused
from embermq.protocol.reasons import ReasonCode
from support.answering_server import Asked, answering
from support.signed_tokens import Signer, key_set

EC = Signer("ES256", "one")
OTHER = Signer("ES256", "two")
RSA = Signer("RS256", "three")
SECRET = hashlib.sha256(b"of a test").hexdigest()


def found(text: str, *algorithms: str) -> list[tuple[str, str]]:
    return [(key.key_id, key.algorithm) for key in parse_keys(text, algorithms, "keys")]


def test_a_key_is_for_the_algorithms_of_its_kind_only() -> None:
    assert found(EC.pem, "ES256", "RS256") == [("", "ES256")]
    assert found(RSA.pem, "ES256", "RS256", "PS256") == [("", "RS256"), ("", "PS256")]
    both = key_set(EC.jwk(), RSA.jwk(), OTHER.jwk(use="enc"))
    assert found(both, "RS256", "ES256") == [("one", "ES256"), ("three", "RS256")]
    assert found(key_set(RSA.jwk(alg="RS512")), "RS256", "RS512") == [("three", "RS512")]
    assert found(SECRET, "HS256") == [("", "HS256")]


@pytest.mark.parametrize(
    ("text", "algorithm", "expected"),
    [
        (RSA.pem, "ES256", "has no key for ES256"),
        (RSA.pem, "HS256", "expected a secret for HS256, not a key in PEM"),
        (EC.private_pem, "ES256", "expected the public key, not the private one"),
        ("secret", "HS256", "at least 32 bytes"),
        (SECRET, "RS256", "expected a public key in PEM or a JSON Web Key Set"),
        ("{", "RS256", "is no JSON Web Key Set"),
        ("{" + "[" * 100_000, "RS256", "is no JSON Web Key Set"),
        ('{"keys": 1}', "RS256", "expected a list"),
        ('{"keys": []}', "RS256", "has no key for RS256"),
        (
            '{"keys": [1, {}, {"kty": "RSA"}, {"kty": "RSA", "n": "AQAB", "e": "AQAB"}]}',
            "RS256",
            "has no key for RS256",
        ),
        (key_set(EC.jwk(kid=5)), "ES256", "has no key for ES256"),
        (key_set({"kty": "oct", "k": "c2hvcnQ"}), "HS256", "has no key for HS256"),
        (key_set(*[EC.jwk()] * 101), "ES256", "at most 100 keys"),
        ("-----BEGIN PUBLIC KEY-----\nnothing\n-----END PUBLIC KEY-----\n", "RS256", "has no key for RS256"),
    ],
)
def test_keys_that_cannot_be_used_are_refused(text: str, algorithm: str, expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        parse_keys(text, [algorithm], "keys")


class Clock:
    """Seconds that a test lets pass."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


def test_a_url_is_asked_when_its_keys_are_old_or_a_key_is_unknown_and_not_more_often() -> None:
    clock = Clock()
    served = [key_set(EC.jwk())]
    with answering(lambda asked: asked.answer(200, served[0].encode())) as server:
        keys = UrlKeys(server.url, ["ES256"], 300, now_s=clock)
        assert [key.key_id for key in keys.fitting("one", "ES256")] == ["one"]
        for _ in range(20):
            assert keys.fitting("two", "ES256") == []
        assert len(server.asked) == 1
        served[0] = key_set(EC.jwk(), OTHER.jwk())
        clock.now_s += 10
        assert [key.key_id for key in keys.fitting("two", "ES256")] == ["two"], "the key set has changed"
        clock.now_s += 299
        keys.fitting("one", "ES256")
        assert len(server.asked) == 2
        served[0] = key_set(OTHER.jwk())
        clock.now_s += 1
        assert keys.fitting("one", "ES256") == [], "a key that is withdrawn is used no more"
        assert len(server.asked) == 3
        assert keys.counts() == {"logins/jwt/keys/fetched": 3, "logins/jwt/keys/failed": 0}


@pytest.mark.parametrize("answer", ["garbage", "redirect", "error", "huge", "hang", "drip", "nothing"])
def test_a_url_that_fails_keeps_the_old_keys_for_a_day_and_none_are_made_up(answer: str) -> None:
    clock = Clock()
    elsewhere: list[Asked] = []

    def bad(asked: Asked) -> None:
        if asked.path == "/elsewhere":
            elsewhere.append(asked)
            asked.answer(200, key_set(OTHER.jwk()).encode())
        elif answer == "redirect":
            asked.answer(302, Location="/elsewhere")
        elif answer == "hang":
            server.hang(asked)
        elif answer == "drip":
            for byte in b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 1000:
                asked.write(bytes([byte]))
                if server.released.wait(0.05):
                    return
        else:
            body = {"garbage": b"<html>", "error": b"{}", "huge": b" " * (1024 * 1024 + 1), "nothing": b""}[answer]
            asked.answer(500 if answer == "error" else 200, body)

    with answering(lambda asked: asked.answer(200, key_set(EC.jwk()).encode())) as server:
        keys = UrlKeys(
            server.url, ["ES256"], 300, now_s=clock, timeout_s=3.0 if answer not in ("hang", "drip") else 1.5
        )
        assert keys.fitting("one", "ES256")
        server.answer = bad
        clock.now_s += 301
        assert [key.key_id for key in keys.fitting("one", "ES256")] == ["one"]
        assert keys.fitting("two", "ES256") == [] and not elsewhere
        assert keys.counts()["logins/jwt/keys/failed"] == 1
        clock.now_s += 24 * 3600
        with pytest.raises(Refused) as refused:
            keys.fitting("one", "ES256")
        assert refused.value.reason is ReasonCode.SERVER_UNAVAILABLE


def test_while_one_thread_asks_the_others_use_the_keys_that_are_known() -> None:
    clock = Clock()
    with answering(lambda asked: asked.answer(200, key_set(EC.jwk()).encode())) as server:
        keys = UrlKeys(server.url, ["ES256"], 300, now_s=clock, timeout_s=20)
        keys.fitting("one", "ES256")
        server.arrived.acquire(timeout=60)
        server.answer = server.hang
        clock.now_s += 301
        thread = threading.Thread(target=keys.fitting, args=("one", "ES256"))
        thread.start()
        assert server.arrived.acquire(timeout=60)
        assert [key.key_id for key in keys.fitting("one", "ES256")] == ["one"], "it does not wait"
        server.released.set()
        thread.join()
