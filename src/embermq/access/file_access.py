"""Users and rights from files: the `Access` of a server with a password file, certificates or an access list.

Owns: who a client is, by password, certificate, SCRAM or another source, and all files read again together; a better
hash in the place of one that Mosquitto or other parameters made, when its user has logged in.
Never: a secret in a log line or an error. A reload that fails changes nothing.
"""

import hashlib
import hmac
import logging
import os
import stat
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Final, NamedTuple, final

from argon2 import PasswordHasher
from argon2.exceptions import Argon2Error

from embermq.access import scram
from embermq.access.access_list import parse_access_list
from embermq.access.mosquitto_hashes import is_mosquitto_hash, verify_mosquitto
from embermq.access.passwords import (
    DECOY_HASH,
    HASHER,
    SALT_SECRET_BYTES,
    Credentials,
    PasswordFile,
    is_argon2,
    parse_passwords,
    read_text,
    replace_hash,
)
from embermq.access.scram_exchange import PasswordFileExchange
from embermq.access.source import Source
from embermq.broker.access import READ, RETAIN, SEE_ALL, WRITE, Access, AccessList, Exchange, Grant, Identity, Lane
from embermq.errors import ConfigError
from embermq.protocol.errors import Refused
from embermq.protocol.reasons import ReasonCode

logger: Final = logging.getLogger("embermq.access")


def _everything(prefix: str) -> AccessList:
    rights = READ | WRITE | RETAIN
    grants = [Grant(rights, ["#"], []), Grant(rights, ["$SYS/#"], []), Grant(SEE_ALL, ["#"], [])]
    return AccessList(grants, [], {}, prefix=prefix)


class ReadFiles(NamedTuple):
    """What a reload has read; calling all of `sources` puts what they have read in force.

    `revision`: that of the rules in force when the reading began.
    """

    revision: int
    passwords: PasswordFile
    access_list: AccessList
    sources: list[Callable[[], None]]


@final
class FileAccess(Access):
    """Users from a password file or from client certificates, rights from an access list; each of them optional."""

    def __init__(
        self,
        *,
        password_file: Path | None = None,
        acl_file: Path | None = None,
        allow_anonymous: bool = False,
        certificate_as_user: bool = False,
        scope: str = "",
        reserved: Collection[str] = (),
        is_narrowing: bool = False,
        sources: Sequence[Source] = (),
        hasher: PasswordHasher = HASHER,
    ) -> None:
        """`scope`: the listener whose users these are; they are called `scope:name`. `reserved`: the scopes of others,
        with which no name here may begin. `is_narrowing`: as of `AccessList`. `sources`: of users that are not in the
        password file; the first that takes what a client has sent decides.
        """
        super().__init__(slow=password_file is not None or bool(sources), unrestricted=acl_file is None)
        self._password_file: Final = password_file
        self._acl_file: Final = acl_file
        self._allow_anonymous: Final = allow_anonymous
        self._certificate_as_user: Final = certificate_as_user
        self._prefix: Final = f"{scope}:" if scope else ""
        self._reserved: Final = tuple(f"{each}:" for each in reserved)
        self._passwords = PasswordFile({}, None)
        self._is_narrowing: Final = is_narrowing
        self._access_list = AccessList([], [], {})
        self._hasher: Final = hasher
        self._sources: Final = tuple(sources)
        by_password = ["password", "scram"] if password_file is not None else []
        self._failed: Final = Counter(dict.fromkeys([*by_password, *(each.lane.name for each in sources)], 0))
        self._counting: Final = Lock()
        # The last correct password of each user, as a keyed digest: many clients that reconnect after an outage need
        # not wait for argon2. The key exists only in this process.
        self._proven: dict[str, bytes] = {}
        self._proof_key: Final = os.urandom(32)
        self._revision = 0
        # Only for a file without a secret of its own. No user of it has a SCRAM credential, so the salts of all user
        # names change together when the server starts again.
        self._salt_secret: Final = os.urandom(SALT_SECRET_BYTES)
        self.reload()

    @property
    def rights_in_force(self) -> AccessList:
        """The access list; without a file, one that grants everything."""
        return _everything(self._prefix) if self.unrestricted else self._access_list

    def read_again(self) -> Callable[[], set[str]]:
        """Read all files again; on a `ConfigError` nothing changes.

        Connected clients are checked against the new list with their next PUBLISH and SUBSCRIBE.
        """
        return partial(self.use, self.read())

    def revision(self) -> int:
        return self._revision

    def read(self) -> ReadFiles:
        """All files as they are now; raises a `ConfigError`."""
        revision = self._revision
        passwords = self._passwords
        access_list = self._access_list
        if self._password_file is not None:
            text = read_text(self._password_file, "access.password_file")
            passwords = parse_passwords(text, str(self._password_file))
            for user_name in passwords.users:
                if user_name.startswith(self._reserved):
                    raise ConfigError(f"{self._password_file}: {self._not_reserved(user_name)}")
            if stat.S_IMODE(self._password_file.stat().st_mode) & 0o077:
                logger.warning("%s can be read by others than its owner: chmod 600 it", self._password_file)
        if self._acl_file is not None:
            text = read_text(self._acl_file, "access.acl_file")
            access_list = parse_access_list(text, str(self._acl_file), self._prefix, self._is_narrowing)
        return ReadFiles(revision, passwords, access_list, [source.read() for source in self._sources])

    def _not_reserved(self, user_name: str) -> str:
        listener = user_name.partition(":")[0]
        return f"user {user_name!r}: expected another name, the users of listener {listener} are called {listener}:NAME"

    def use(self, read: ReadFiles) -> set[str]:
        """Decide by what was read from now on. Returns the users that are gone or have other credentials."""
        if read.revision != self._revision:  # something newer was put in force in the meantime
            read = self.read()
        before = self._passwords.users
        self._proven = {}
        self._passwords, self._access_list = read.passwords, read.access_list
        for use in read.sources:
            use()
        self.access_list = None if self.unrestricted else self._access_list
        self._revision += 1
        now = self._passwords.users
        return {self._prefix + name for name, each in before.items() if name not in now or not each.is_as(now[name])}

    def authenticate(
        self, client_id: str, user_name: str | None, password: bytes | None, certificate_name: str | None
    ) -> Identity:
        used = certificate_name if self._certificate_as_user else None
        return self.identity_of(client_id, user_name, password, used, self._allow_anonymous)

    def identity_of(
        self,
        client_id: str,
        user_name: str | None,
        password: bytes | None,
        certificate_name: str | None,
        allow_anonymous: bool,
    ) -> Identity:
        """As `authenticate`. A `certificate_name` is the user name, if it is given."""
        source = None if certificate_name else self._source_of(user_name, password)
        try:
            if source is not None and password is not None:
                return source.identify(client_id, user_name, password)
            return self._own_identity(client_id, user_name, password, certificate_name, allow_anonymous)
        except Refused:
            by_file = "certificate" if certificate_name else "anonymous" if user_name is None else "password"
            self._count_failed(source.lane.name if source is not None else by_file)
            raise

    def _source_of(self, user_name: str | None, password: bytes | None) -> Source | None:
        """Who decides about a client without a certificate; None: the password file."""
        if not self._sources or password is None or user_name in self._passwords.users:
            return None
        return next((source for source in self._sources if source.takes(user_name, password)), None)

    def _count_failed(self, name: str) -> None:
        with self._counting:  # threads fail too
            self._failed[name] += 1

    def counts(self) -> dict[str, int]:
        found = {f"logins/failed/{name}": count for name, count in list(self._failed.items())}
        for source in self._sources:
            found |= source.counts()
        return found

    def _own_identity(
        self,
        client_id: str,
        user_name: str | None,
        password: bytes | None,
        certificate_name: str | None,
        allow_anonymous: bool,
    ) -> Identity:
        """By the password file, or a certificate."""
        if certificate_name:
            if certificate_name.startswith(self._reserved):
                raise Refused(self._not_reserved(certificate_name), ReasonCode.NOT_AUTHORIZED)
            return Identity(self._prefix + certificate_name, client_id)
        if self._password_file is not None and user_name is not None:
            self._check_password(user_name, password)
            return Identity(self._prefix + user_name, client_id)
        if self._sources and (user_name is not None or password is not None):
            raise Refused("neither a user name nor a token that is known", ReasonCode.BAD_USER_NAME_OR_PASSWORD)
        if allow_anonymous:
            # Without a password file a user name is only a claim: the client has the rights of an anonymous one.
            return Identity(self._prefix, client_id)
        raise Refused("no user name, and anonymous clients are not allowed", ReasonCode.NOT_AUTHORIZED)

    def queue_for(self, user_name: str | None, password: bytes | None, certificate_name: str | None) -> str | None:
        return self.queue_of(user_name, password, certificate_name if self._certificate_as_user else None)

    def queue_of(self, user_name: str | None, password: bytes | None, certificate_name: str | None) -> str | None:
        """As `queue_for`. A `certificate_name` is the user name, if it is given."""
        if certificate_name or password is None:
            return None
        source = self._source_of(user_name, password)
        if source is not None:
            return f"{source.lane.name} {source.queue(user_name, password)}"
        if self._password_file is None or user_name is None:
            return None
        if hmac.compare_digest(self._proven.get(user_name, b""), self._proof(password)):
            return None
        return f"user {user_name}" if user_name in self._passwords.users else ""

    def remembered(
        self, client_id: str, user_name: str | None, password: bytes | None, certificate_name: str | None
    ) -> Identity | None:
        used = certificate_name if self._certificate_as_user else None
        return self.remembered_of(client_id, user_name, password, used)

    def remembered_of(
        self, client_id: str, user_name: str | None, password: bytes | None, certificate_name: str | None
    ) -> Identity | None:
        """As `remembered`. A `certificate_name` is the user name, if it is given."""
        source = None if certificate_name else self._source_of(user_name, password)
        if source is None or password is None:
            return None
        return source.remembered(client_id, user_name, password)

    def lane_of(self, queue: str) -> Lane | None:
        name = queue.partition(" ")[0]
        return next((source.lane for source in self._sources if source.lane.name == name), None)

    def _proof(self, password: bytes) -> bytes:
        return hashlib.blake2b(password, key=self._proof_key).digest()

    def _check_password(self, user_name: str, password: bytes | None) -> None:
        proven, users = self._proven, self._passwords.users
        refused = Refused(
            f"wrong password for user {user_name!r}, or no such user", ReasonCode.BAD_USER_NAME_OR_PASSWORD
        )
        if password is None:
            raise refused
        proof = self._proof(password)
        if hmac.compare_digest(proven.get(user_name, b""), proof):
            return
        user = users.get(user_name)
        if user is not None and is_mosquitto_hash(user.password_hash):
            is_right = verify_mosquitto(user.password_hash, password)
        else:
            is_right = user is not None and self._has_argon2(user.password_hash, password)
        if not is_right:
            if user is None or not is_argon2(user.password_hash):
                # An unknown user, and one with a hash of Mosquitto's, takes the time of a wrong password for argon2.
                hashes = (known.password_hash for known in list(users.values()))
                self._has_argon2(next(filter(is_argon2, hashes), DECOY_HASH), password)
            raise refused
        assert user is not None
        proven[user_name] = proof
        if not is_argon2(user.password_hash) or self._hasher.check_needs_rehash(user.password_hash):
            self._rehash(users, user_name, user, password)

    def _has_argon2(self, password_hash: str, password: bytes) -> bool:
        try:
            return self._hasher.verify(password_hash, password)
        except Argon2Error:
            return False

    def _rehash(self, users: dict[str, Credentials], user_name: str, user: Credentials, password: bytes) -> None:
        """The password was right: replace its hash by one of ours. Without it the user stays, and is tried again."""
        assert self._password_file is not None
        new_hash = self._hasher.hash(password)
        try:
            is_replaced = replace_hash(self._password_file, user_name, user.password_hash, new_hash)
        except ConfigError as error:
            logger.warning("the old hash of user %r stays in use: %s", user_name, error)
            return
        if is_replaced:
            users[user_name] = Credentials(new_hash, user.scram)
            logger.info("user %r has an argon2 hash now, of the same password", user_name)

    def begin_exchange(self, method: str, client_id: str, certificate_name: str | None) -> Exchange:
        return self.exchange_of(method, client_id, certificate_name if self._certificate_as_user else None)

    def exchange_of(self, method: str, client_id: str, certificate_name: str | None) -> Exchange:
        """As `begin_exchange`. A `certificate_name` is the only user name that is accepted, if it is given."""
        if self._password_file is None or method != scram.METHOD:
            return super().begin_exchange(method, client_id, certificate_name)
        failed = partial(self._count_failed, "scram")
        return PasswordFileExchange(self._scram_credential, client_id, failed, certificate_name or None, self._prefix)

    def _scram_credential(self, user_name: str) -> scram.ScramCredential:
        """The credential of a user, or a dummy one that no password fits; both take the same time."""
        passwords = self._passwords
        dummy = scram.dummy_credential(user_name, passwords.salt_secret or self._salt_secret)
        user = passwords.users.get(user_name)
        return user.scram if user is not None and user.scram is not None else dummy

    def may_publish(self, identity: Identity, topic_name: str, retain: bool) -> bool:
        return self.unrestricted or identity.rights(self._access_list).may_write(topic_name, retain)

    def may_subscribe(self, identity: Identity, topic_filter: str) -> bool:
        return self.unrestricted or identity.rights(self._access_list).may_read(topic_filter)

    def may_see_all(self, identity: Identity) -> bool:
        return self.unrestricted or identity.rights(self._access_list).sees_all

    def may_change_access(self, identity: Identity) -> bool:
        return self.unrestricted or identity.rights(self._access_list).has_everything

    def deciding_lines(self, identity: Identity, rights: int, topic_filter: str) -> list[str]:
        return self._access_list.deciding_lines(identity.user_name, identity.client_id, rights, topic_filter)

    def read_filters(self, identity: Identity) -> list[str]:
        return identity.rights(self._access_list).read_filters
