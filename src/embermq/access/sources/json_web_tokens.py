"""Users by JSON Web Tokens (RFC 7519), which another server has signed, in place of passwords.

Owns: what of a token must be right, and what a right one says about a client.
Never: a part of a token in a log line or an error. It is refused before it is parsed if it is too large.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, final

import jwt

from embermq.access.source import Source, checked_rights, checked_user_name
from embermq.access.sources.token_keys import FileKeys, UrlKeys
from embermq.broker.access import Identity, Lane
from embermq.protocol.errors import Refused
from embermq.protocol.reasons import ReasonCode

TOKEN_BYTES_MAX: Final = 8 * 1024
KEYS_TRIED_MAX: Final = 8
"""How many keys are tried for a token that does not say which one has signed it."""
THREADS: Final = 2
EXPIRES_S_MAX: Final = 1 << 40


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRules:
    """What a token must have. An empty `issuer` is any; with an empty `audience`, a token must have none.

    `rights_claim`: empty for tokens that give no rights.
    """

    algorithms: Sequence[str]
    issuer: str = ""
    audience: str = ""
    user_claim: str = "sub"
    rights_claim: str = ""
    leeway_s: int = 10


@final
class TokenSource(Source):
    """Clients that send a token as their password; the user name of their CONNECT says nothing."""

    def __init__(self, keys: FileKeys | UrlKeys, rules: TokenRules, reserved: Sequence[str] = ()) -> None:
        self.lane = Lane("jwt", THREADS)
        self._keys: Final = keys
        self._rules: Final = rules
        self._reserved: Final = tuple(reserved)
        self._options: Final[Any] = {"require": ["exp", rules.user_claim], "enforce_minimum_key_length": True}

    def takes(self, user_name: str | None, password: bytes | None) -> bool:
        return password is not None and password.startswith(b"ey") and password.count(b".") == 2

    def queue(self, user_name: str | None, password: bytes) -> str:
        """By the end of the signature: checks take little time, and thousands of clients may have one user name."""
        return password[-2:].decode("ascii", "replace")

    def read(self) -> Callable[[], None]:
        return self._keys.read()

    def counts(self) -> dict[str, int]:
        return self._keys.counts()

    def identify(self, client_id: str, user_name: str | None, password: bytes) -> Identity:
        if len(password) > TOKEN_BYTES_MAX:
            raise _refused(f"it is larger than {TOKEN_BYTES_MAX} bytes")
        algorithm, key_id = self._header(password)
        claims = self._claims(password, algorithm, key_id)
        rules = self._rules
        name = checked_user_name(claims.get(rules.user_claim), "token", self._reserved)
        grants = checked_rights(claims.get(rules.rights_claim, []), "token") if rules.rights_claim else None
        expires_us = (int(claims["exp"]) + rules.leeway_s) * 1_000_000
        return Identity(name, client_id, grants, min(expires_us, EXPIRES_S_MAX * 1_000_000))

    def _header(self, token: bytes) -> tuple[str, str]:
        """The algorithm and the key's identifier that a token names; nothing of it is proven."""
        try:
            header = jwt.get_unverified_header(token)
            algorithm, key_id = header.get("alg"), header.get("kid", "")
        except Exception:  # whatever a parser makes of the bytes of a peer
            raise _refused("it is no JSON Web Token") from None
        if not isinstance(algorithm, str) or algorithm not in self._rules.algorithms or not isinstance(key_id, str):
            raise _refused("its algorithm is not one of access.jwt_algorithms")
        return algorithm, key_id

    def _claims(self, token: bytes, algorithm: str, key_id: str) -> dict[str, Any]:
        rules = self._rules
        keys = self._keys.fitting(key_id, algorithm)
        for each in keys[:KEYS_TRIED_MAX]:
            try:
                return jwt.decode(
                    token,
                    each.key,
                    algorithms=[each.algorithm],
                    audience=rules.audience or None,
                    issuer=rules.issuer or None,
                    leeway=rules.leeway_s,
                    options=self._options,
                )
            except jwt.InvalidSignatureError:
                continue
            except jwt.PyJWTError as error:
                raise _refused(_reason(error)) from None
            except Exception:  # whatever a parser makes of the bytes of a peer
                raise _refused("it is no JSON Web Token") from None
        raise _refused("no key fits its signature" if keys else "its key is not known")


def _reason(error: jwt.PyJWTError) -> str:
    """One sentence for the log, which has nothing of the token."""
    reasons: dict[type[jwt.PyJWTError], str] = {
        jwt.ExpiredSignatureError: "it has expired",
        jwt.ImmatureSignatureError: "it is not valid yet",
        jwt.InvalidAudienceError: "it is for another audience than access.jwt_audience",
        jwt.InvalidIssuerError: "it has another issuer than access.jwt_issuer",
        jwt.MissingRequiredClaimError: "it lacks a claim that is needed: exp, or the one of a setting",
    }
    return next((text for kind, text in reasons.items() if isinstance(error, kind)), "it is not as it must be")


def _refused(why: str) -> Refused:
    return Refused(f"the token is refused: {why}", ReasonCode.BAD_USER_NAME_OR_PASSWORD)
