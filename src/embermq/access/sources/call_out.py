"""Users by a call-out: another server is asked over HTTP who a client is and what it may do.

Owns: what is sent, what an answer means, how many are asked for at a time, and the answers that are remembered.
Never: a password in a log line or an error. What is no answer is a refusal.
"""

import hashlib
import json
import os
import time
from base64 import b64encode
from collections import OrderedDict
from collections.abc import Callable, Sequence
from threading import BoundedSemaphore, Lock
from typing import Any, Final, NamedTuple, final

from embermq.access.source import Source, checked_rights, checked_user_name
from embermq.access.sources.timed_request import RequestFailed, request
from embermq.broker.access import Grant, Identity, Lane
from embermq.protocol.errors import Refused
from embermq.protocol.reasons import ReasonCode

ANSWER_BYTES_MAX: Final = 64 * 1024
REMEMBERED_MAX: Final = 10_000
"""How many answers are remembered; the one that was used longest ago is forgotten first."""
EXPIRES_S_MAX: Final = 100 * 365 * 24 * 3600
MEMBERS: Final = frozenset({"user_name", "rights", "expires_s"})


class _Accepted(NamedTuple):
    """What an answer says about a client, and until when it is remembered."""

    user_name: str
    grants: list[Grant] | None
    expires_us: int
    until_s: float


@final
class CallOut(Source):
    """Clients with a password that is neither a token nor that of a user of the password file."""

    def __init__(
        self,
        url: str,
        *,
        timeout_s: float,
        cache_s: float,
        concurrency: int,
        takes_rights: bool,
        reserved: Sequence[str] = (),
        remembered_max: int = REMEMBERED_MAX,
        now_s: Callable[[], float] = time.monotonic,
        wall_us: Callable[[], int] = lambda: time.time_ns() // 1000,
    ) -> None:
        """`takes_rights`: whether there is an access list; without one an answer with rights is refused."""
        self.lane = Lane("call-out", concurrency)
        self._url: Final = url
        self._timeout_s: Final = timeout_s
        self._cache_s: Final = cache_s
        self._takes_rights: Final = takes_rights
        self._reserved: Final = tuple(reserved)
        self._remembered_max: Final = remembered_max
        self._now_s: Final = now_s
        self._wall_us: Final = wall_us
        self._places: Final = BoundedSemaphore(concurrency)  # of all listeners together
        self._remembered: Final[OrderedDict[bytes, _Accepted]] = OrderedDict()
        self._revision = 0  # of what is remembered
        self._key: Final = os.urandom(32)
        self._lock: Final = Lock()
        self._asked = self._cached = self._failed = 0

    def takes(self, user_name: str | None, password: bytes | None) -> bool:
        return password is not None

    def read(self) -> Callable[[], None]:
        return self._forget

    def _forget(self) -> None:
        with self._lock:
            self._revision += 1
            self._remembered.clear()

    def counts(self) -> dict[str, int]:
        return {
            "logins/call-out/asked": self._asked,
            "logins/call-out/cached": self._cached,
            "logins/call-out/failed": self._failed,
        }

    def remembered(self, client_id: str, user_name: str | None, password: bytes) -> Identity | None:
        digest = self._digest(client_id, user_name, password)
        with self._lock:
            found = self._remembered.get(digest)
            if found is None:
                return None
            if found.until_s <= self._now_s() or 0 < found.expires_us <= self._wall_us():
                del self._remembered[digest]
                return None
            self._remembered.move_to_end(digest)
            self._cached += 1
        return Identity(found.user_name, client_id, found.grants, found.expires_us)

    def identify(self, client_id: str, user_name: str | None, password: bytes) -> Identity:
        known = self.remembered(client_id, user_name, password)
        if known is not None:
            return known
        revision = self._revision
        found = self._accepted(self._answer(client_id, user_name, password), user_name)
        if self._cache_s > 0:
            with self._lock:
                if self._revision == revision:
                    self._remembered[self._digest(client_id, user_name, password)] = found
                    if len(self._remembered) > self._remembered_max:
                        self._remembered.popitem(last=False)
        return Identity(found.user_name, client_id, found.grants, found.expires_us)

    def _digest(self, client_id: str, user_name: str | None, password: bytes) -> bytes:
        """Of the credentials, keyed: no password is remembered."""
        digest = hashlib.blake2b(key=self._key, digest_size=32)
        given = (client_id.encode(), b"" if user_name is None else b"=" + user_name.encode(), password)
        for part in given:
            digest.update(len(part).to_bytes(4) + part)
        return digest.digest()

    def _answer(self, client_id: str, user_name: str | None, password: bytes) -> bytes:
        """The body of an answer that accepts the client."""
        sent: dict[str, Any] = {"client_id": client_id, "user_name": user_name}
        try:
            sent["password"] = password.decode()
        except UnicodeDecodeError:
            sent["password_base64"] = b64encode(password).decode()
        begun_s = time.monotonic()
        if not self._places.acquire(timeout=self._timeout_s):
            raise self._unavailable("too many clients wait for it")
        try:
            left_s = max(0.001, self._timeout_s - (time.monotonic() - begun_s))
            with self._lock:
                self._asked += 1
            answer = request(self._url, json.dumps(sent).encode(), left_s, ANSWER_BYTES_MAX)
        except RequestFailed as error:
            raise self._unavailable(str(error)) from None
        finally:
            self._places.release()
        if answer.status in (401, 403):
            raise Refused(f"the call-out refuses user {user_name!r}", ReasonCode.BAD_USER_NAME_OR_PASSWORD)
        if answer.status != 200:
            raise self._unavailable(f"it answers with status {answer.status}, expected 200, 401 or 403")
        return answer.body

    def _accepted(self, body: bytes, user_name: str | None) -> _Accepted:
        """What the body of an answer says. A member that is not known may be a refusal as other servers expect one."""
        try:
            given = json.loads(body) if body.strip() else {}
        except (ValueError, RecursionError):
            given = None
        if not isinstance(given, dict) or not given.keys() <= MEMBERS:
            raise self._unavailable("its answer is not an object of JSON with user_name, rights and expires_s only")
        grants: list[Grant] | None = None
        if "rights" in given:
            if not self._takes_rights:
                raise self._unavailable("its answer has rights, which need access.acl_file")
            grants = checked_rights(given["rights"], "call-out")
        expires_s = given.get("expires_s")
        if expires_s is not None and (type(expires_s) is not int or not 0 < expires_s <= EXPIRES_S_MAX):
            raise self._unavailable("expires_s of its answer is not a number of seconds")
        expires_us = 0 if expires_s is None else self._wall_us() + expires_s * 1_000_000
        name = checked_user_name(given.get("user_name", user_name), "call-out", self._reserved)
        return _Accepted(name, grants, expires_us, self._now_s() + self._cache_s)

    def _unavailable(self, why: str) -> Refused:
        with self._lock:
            self._failed += 1
        return Refused(f"the call-out gives no answer that can be used: {why}", ReasonCode.SERVER_UNAVAILABLE)
