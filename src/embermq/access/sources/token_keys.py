"""The keys that tokens are verified with: of a file, or of a URL that is asked again from time to time.

Owns: which algorithm a key may be used for, how old keys from a URL may be, and how often it is asked.
Never: a token. A key is bound to its algorithms when it is read, so a token cannot choose what it is verified with.
"""

import json
import logging
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import Any, Final, NamedTuple, final

from jwt import PyJWK, PyJWTError
from jwt.algorithms import get_default_algorithms

from embermq.access.passwords import read_text
from embermq.access.sources.timed_request import RequestFailed, request
from embermq.errors import ConfigError
from embermq.protocol.errors import Refused
from embermq.protocol.reasons import ReasonCode

logger: Final = logging.getLogger("embermq.access")

KEYS_BYTES_MAX: Final = 1024 * 1024
KEYS_MAX: Final = 100
FETCH_TIMEOUT_S: Final = 5.0
FETCH_PAUSE_S: Final = 10.0
"""The URL is asked at most once in this time, whatever tokens come."""
KEYS_AGE_MAX_S: Final = 24 * 3600.0
"""Keys from a URL that does not answer any more are used for this long."""
SECRET_BYTES_MIN: Final = 32
_KEY_TYPES: Final = {"R": "RSA", "P": "RSA", "E": "EC", "H": "oct"}
"""The type of the key of an algorithm, by its first letter."""


class Key(NamedTuple):
    """A key for one algorithm. An empty `key_id` is that of a key without one, which fits every token."""

    key_id: str
    algorithm: str
    key: Any


def _key_type(algorithm: str) -> str:
    return "OKP" if algorithm == "EdDSA" else _KEY_TYPES[algorithm[0]]


def parse_keys(text: str, algorithms: Sequence[str], source: str) -> list[Key]:
    """The keys of a JSON Web Key Set, of a public key in PEM or, for HMAC, of a text that is the secret itself."""
    if text.lstrip().startswith("{"):
        return _of_set(text, algorithms, source)
    is_secret = algorithms[0].startswith("H")
    if "-----BEGIN" not in text:
        if not is_secret:
            raise ConfigError(f"{source}: expected a public key in PEM or a JSON Web Key Set")
        secret = text.strip().encode()
        if len(secret) < SECRET_BYTES_MIN:
            raise ConfigError(f"{source}: expected a secret of at least {SECRET_BYTES_MIN} bytes")
        return [Key("", algorithm, secret) for algorithm in algorithms]
    if is_secret or "PRIVATE KEY" in text:
        what = f"a secret for {algorithms[0]}, not a key in PEM" if is_secret else "the public key, not the private one"
        raise ConfigError(f"{source}: expected {what}")
    found: list[Key] = []
    for algorithm in algorithms:
        try:
            found.append(Key("", algorithm, get_default_algorithms()[algorithm].prepare_key(text)))
        except (PyJWTError, ValueError, TypeError, KeyError):  # a key of another kind
            continue
    return _checked(found, algorithms, source)


def _of_set(text: str, algorithms: Sequence[str], source: str) -> list[Key]:
    try:
        listed = json.loads(text)["keys"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ConfigError(f"{source} is no JSON Web Key Set") from None
    if not isinstance(listed, list) or len(listed) > KEYS_MAX:
        raise ConfigError(f"{source}: expected a list of at most {KEYS_MAX} keys")
    found: list[Key] = []
    for each in listed:
        if not isinstance(each, dict) or each.get("use", "sig") != "sig" or not isinstance(each.get("kid", ""), str):
            continue
        wanted = [name for name in algorithms if each.get("alg", name) == name and each.get("kty") == _key_type(name)]
        for algorithm in wanted:
            try:
                found.append(Key(each.get("kid", ""), algorithm, PyJWK(each, algorithm).key))
            except (PyJWTError, ValueError, TypeError, KeyError):  # one that is wrong does not spoil the others
                logger.warning("%s: a key is left out, it is not one for %s", source, algorithm)
    return _checked(found, algorithms, source)


def _checked(found: list[Key], algorithms: Sequence[str], source: str) -> list[Key]:
    strong: list[Key] = []
    for each in found:
        weak = get_default_algorithms()[each.algorithm].check_key_length(each.key)
        if weak:
            logger.warning("%s: a key is left out: %s", source, weak)
        else:
            strong.append(each)
    if not strong:
        raise ConfigError(f"{source} has no key for {' or '.join(algorithms)}")
    return strong


@final
class FileKeys:
    """The keys of a file."""

    def __init__(self, path: Path, algorithms: Sequence[str]) -> None:
        self._path: Final = path
        self._algorithms: Final = tuple(algorithms)
        self._keys: list[Key] = []

    def read(self) -> Callable[[], None]:
        text = read_text(self._path, "access.jwt_keys")
        return partial(self._use, parse_keys(text, self._algorithms, f"access.jwt_keys: {self._path}"))

    def _use(self, keys: list[Key]) -> None:
        self._keys = keys

    def fitting(self, key_id: str, algorithm: str) -> list[Key]:
        """The keys that may have signed a token."""
        return _fitting(self._keys, key_id, algorithm)

    def counts(self) -> dict[str, int]:
        return {}


@final
class UrlKeys:
    """The keys of a URL, asked for when a token comes: after `refresh_s`, or when none of the known keys fits.

    One thread asks at a time, the others use what is known.
    """

    def __init__(
        self,
        url: str,
        algorithms: Sequence[str],
        refresh_s: float,
        *,
        pause_s: float = FETCH_PAUSE_S,
        timeout_s: float = FETCH_TIMEOUT_S,
        age_max_s: float = KEYS_AGE_MAX_S,
        now_s: Callable[[], float] = monotonic,
    ) -> None:
        self._url: Final = url
        self._algorithms: Final = tuple(algorithms)
        self._refresh_s: Final = refresh_s
        self._pause_s: Final = pause_s
        self._timeout_s: Final = timeout_s
        self._age_max_s: Final = age_max_s
        self._now_s: Final = now_s
        self._keys: list[Key] = []
        self._fetched_s: float | None = None  # when the keys came
        self._asked_s: float | None = None
        self._lock: Final = Lock()
        self._fetched = self._failed = 0

    def read(self) -> Callable[[], None]:
        """Nothing is read now; the next token has the URL asked again."""
        return self._forget_times

    def _forget_times(self) -> None:
        self._asked_s = None
        if self._fetched_s is not None:
            self._fetched_s = min(self._fetched_s, self._now_s() - self._refresh_s)

    def fitting(self, key_id: str, algorithm: str) -> list[Key]:
        """The keys that may have signed a token; raises `Refused` while there are none at all."""
        if self._age_s() >= self._refresh_s:
            self._fetch()
        found = _fitting(self._keys, key_id, algorithm)
        if not found and self._fetch():
            found = _fitting(self._keys, key_id, algorithm)
        if self._age_s() >= self._age_max_s:
            raise Refused("the keys of access.jwt_keys cannot be had now", ReasonCode.SERVER_UNAVAILABLE)
        return found

    def _age_s(self) -> float:
        return float("inf") if self._fetched_s is None else self._now_s() - self._fetched_s

    def _fetch(self) -> bool:
        """Ask the URL, unless it was asked just now, or another thread asks. Whether there may be other keys."""
        if not self._lock.acquire(blocking=self._fetched_s is None):
            return False
        try:
            now_s = self._now_s()
            if self._asked_s is not None and now_s - self._asked_s < self._pause_s:
                return False
            self._asked_s = now_s
            answer = request(self._url, None, self._timeout_s, KEYS_BYTES_MAX)
            if answer.status != 200:
                raise RequestFailed(f"it answers with status {answer.status}")
            self._keys = parse_keys(answer.body.decode(), self._algorithms, self._url)
            self._fetched_s = self._now_s()
            self._fetched += 1
            return True
        except (RequestFailed, ConfigError, UnicodeDecodeError) as error:
            self._failed += 1
            logger.warning("no new keys for tokens: %s", error)
            return False
        finally:
            self._lock.release()

    def counts(self) -> dict[str, int]:
        return {"logins/jwt/keys/fetched": self._fetched, "logins/jwt/keys/failed": self._failed}


def _fitting(keys: list[Key], key_id: str, algorithm: str) -> list[Key]:
    return [
        each
        for each in keys
        if each.algorithm == algorithm and (not key_id or not each.key_id or each.key_id == key_id)
    ]
