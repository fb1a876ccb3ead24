"""The password file and the access list: read, checked, and put in force as a whole.

Owns: both file formats (docs/access.md), the password hashing, and the `Access` that answers from them.
Never: a secret in a log line or an error. A reload that fails leaves what was in force.
"""

import hashlib
import hmac
import logging
import os
import stat
from pathlib import Path
from typing import Final, final

from argon2 import PasswordHasher, extract_parameters
from argon2.exceptions import Argon2Error, InvalidHashError

from embermq.broker.access import READ, RETAIN, WRITE, Access, AccessList, Grant, Identity
from embermq.errors import ConfigError
from embermq.protocol.errors import Refused
from embermq.protocol.reasons import ReasonCode
from embermq.protocol.topics import check_topic_filter

logger = logging.getLogger("embermq.access")

RIGHTS: Final = {"read": READ, "write": WRITE, "retain": RETAIN}

# argon2id, 19 MiB and 2 passes: a device that reconnects must not cost the server a second of its CPU.
HASHER: Final = PasswordHasher(time_cost=2, memory_cost=19 * 1024, parallelism=1)

# What an unknown user's password is checked against while the file names nobody: no password is known for it.
DECOY_HASH: Final = "$argon2id$v=19$m=19456,t=2,p=1$RW1iZXJNUUVtYmVyTVE$0000000000000000000000000000000000000000000"


def read_text(path: Path, key: str) -> str:
    """A setting's file as text, or the sentence that says why not."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{key}: cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{key}: {path} is not UTF-8 text (byte {error.start})") from error


# -- passwords -------------------------------------------------------------------------------------------------------


def parse_passwords(text: str, source: str) -> dict[str, str]:
    """`user:hash` lines to a mapping; blank lines and lines that start with '#' say nothing."""
    users: dict[str, str] = {}
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        user_name, colon, password_hash = line.rpartition(":")
        if not colon or not user_name:
            raise ConfigError(f"{source}, line {number}: expected 'user:hash' as 'ember passwd' writes it")
        if user_name in users:
            raise ConfigError(f"{source}, line {number}: user {user_name!r} is named twice")
        try:
            extract_parameters(password_hash)
        except InvalidHashError:
            raise ConfigError(
                f"{source}, line {number}: user {user_name!r} has no argon2 hash, set the password with 'ember passwd'"
            ) from None
        users[user_name] = password_hash
    return users


def check_user_name(user_name: str) -> str | None:
    """Why a user cannot be named so in the password file, or None."""
    if not user_name or user_name != user_name.strip():
        return "a user name is not empty and has no space at its ends"
    if user_name.startswith("#") or not user_name.isprintable():
        return "a user name does not start with '#' and has printable characters only"
    return None


def write_password(path: Path, user_name: str, password: bytes | None) -> bool:
    """Set a user's password, or remove the user (None); returns whether the file named the user before.

    Comments and order stay. The new file takes the old one's place in one step and only its owner can read it.
    """
    problem = check_user_name(user_name)
    if problem:
        raise ConfigError(f"user {user_name!r}: {problem}")
    text = read_text(path, "password file") if path.exists() else ""
    known = user_name in parse_passwords(text, str(path))
    new_line = None if password is None else f"{user_name}:{HASHER.hash(password)}"
    lines: list[str] = []
    for line in text.splitlines():
        if not line.lstrip().startswith("#") and line.strip().rpartition(":")[0] == user_name:
            if new_line is not None:
                lines.append(new_line)
        else:
            lines.append(line)
    if new_line is not None and not known:
        lines.append(new_line)
    replace_private(path, "".join(line + "\n" for line in lines))
    return known


def replace_private(path: Path, text: str) -> None:
    """Write a file that only its owner reads, whole or not at all."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.replace(fresh, path)
        except BaseException:
            fresh.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror or error}") from error


# -- the access list -------------------------------------------------------------------------------------------------


def parse_grant(rights: int, pattern: str, source: str) -> Grant:
    """A filter with `%u`, `%c` and `%%` in it."""
    literals = [""]
    names: list[str] = []
    position = 0
    while position < len(pattern):
        character = pattern[position]
        if character == "%":
            position += 1
            name = pattern[position : position + 1]
            if name == "%":
                literals[-1] += "%"
            elif name in ("u", "c"):
                names.append(name)
                literals.append("")
            else:
                raise ConfigError(f"{source}: '%{name}' is unknown, expected %u, %c, or %% for a percent sign")
        else:
            literals[-1] += character
        position += 1
    problem = check_topic_filter("x".join(literals))  # any name that is granted is like "x" here
    if problem:
        raise ConfigError(f"{source}: {pattern!r} is no topic filter: {problem}")
    return Grant(rights, literals, names)


def parse_access_list(text: str, source: str) -> AccessList:
    """Sections `all`, `anonymous` and `user NAME`, each with lines like `read,write FILTER`."""
    everybody: list[Grant] = []
    anonymous: list[Grant] = []
    users: dict[str, list[Grant]] = {}
    section: list[Grant] | None = None
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        where = f"{source}, line {number}"
        word, _, rest = line.partition(" ")
        rest = rest.strip()
        if line == "all":
            section = everybody
        elif line == "anonymous":
            section = anonymous
        elif word == "user":
            if not rest:
                raise ConfigError(f"{where}: 'user' needs a name")
            section = users.setdefault(rest, [])
        else:
            if section is None:
                raise ConfigError(f"{where}: expected 'all', 'anonymous' or 'user NAME' before the first grant")
            rights = 0
            for right in word.split(","):
                if right not in RIGHTS or not rest:
                    raise ConfigError(f"{where}: expected 'read', 'write', 'retain' joined by commas, then a filter")
                rights |= RIGHTS[right]
            section.append(parse_grant(rights, rest, where))
    return AccessList(everybody, anonymous, users)


# -- in force --------------------------------------------------------------------------------------------------------


@final
class FileAccess(Access):
    """Users from a password file or from client certificates, rights from an access list; each of them optional."""

    __slots__ = (
        "_password_file",
        "_acl_file",
        "_allow_anonymous",
        "_certificate_as_user",
        "_users",
        "_access_list",
        "_proven",
        "_proof_key",
    )

    def __init__(
        self,
        *,
        password_file: Path | None = None,
        acl_file: Path | None = None,
        allow_anonymous: bool = False,
        certificate_as_user: bool = False,
    ) -> None:
        super().__init__(slow=password_file is not None, unrestricted=acl_file is None)
        self._password_file: Final = password_file
        self._acl_file: Final = acl_file
        self._allow_anonymous: Final = allow_anonymous
        self._certificate_as_user: Final = certificate_as_user
        self._users: dict[str, str] = {}
        self._access_list = AccessList([], [], {})
        # The last password that was right for each user, as a keyed digest: a fleet that reconnects after an outage
        # is not held up by argon2. The key is of this process and is written nowhere.
        self._proven: dict[str, bytes] = {}
        self._proof_key: Final = os.urandom(32)
        self.reload()

    def reload(self) -> None:
        """Read both files again and put them in force together; on a `ConfigError` nothing changes.

        Connected clients stay: their next PUBLISH and SUBSCRIBE are judged by the new list.
        """
        users = self._users
        access_list = self._access_list
        if self._password_file is not None:
            users = parse_passwords(read_text(self._password_file, "access.password_file"), str(self._password_file))
            if stat.S_IMODE(self._password_file.stat().st_mode) & 0o077:
                logger.warning("%s can be read by others than its owner: chmod 600 it", self._password_file)
        if self._acl_file is not None:
            access_list = parse_access_list(read_text(self._acl_file, "access.acl_file"), str(self._acl_file))
        self._proven = {}
        self._users = users
        self._access_list = access_list

    def authenticate(
        self, client_id: str, user_name: str | None, password: bytes | None, certificate_name: str | None
    ) -> Identity:
        if self._certificate_as_user and certificate_name:
            return Identity(certificate_name, client_id)
        if self._password_file is not None and user_name is not None:
            self._check_password(user_name, password)
            return Identity(user_name, client_id)
        if self._allow_anonymous:
            # Without a password file a user name is only a claim: it gets the rights of nobody in particular.
            return Identity("", client_id)
        raise Refused("no user name, and anonymous clients are not allowed", ReasonCode.NOT_AUTHORIZED)

    def _check_password(self, user_name: str, password: bytes | None) -> None:
        proven, users = self._proven, self._users
        refused = Refused(
            f"wrong password for user {user_name!r}, or no such user", ReasonCode.BAD_USER_NAME_OR_PASSWORD
        )
        if password is None:
            raise refused
        proof = hashlib.blake2b(password, key=self._proof_key).digest()
        if hmac.compare_digest(proven.get(user_name, b""), proof):
            return
        password_hash = users.get(user_name)
        # An unknown user costs the same time as a wrong password: another user's hash is tried in vain.
        tried = password_hash if password_hash is not None else next(iter(users.values()), DECOY_HASH)
        try:
            HASHER.verify(tried, password)
        except Argon2Error:
            raise refused from None
        if password_hash is None:
            raise refused
        proven[user_name] = proof

    def may_publish(self, identity: Identity, topic_name: str, retain: bool) -> bool:
        return self.unrestricted or identity.rights(self._access_list).may_write(topic_name, retain)

    def may_subscribe(self, identity: Identity, topic_filter: str) -> bool:
        return self.unrestricted or identity.rights(self._access_list).may_read(topic_filter)
