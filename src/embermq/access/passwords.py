"""The password file: users with their password hashes and SCRAM credentials, read, checked and changed.

Owns: the format of the file, the password hashing, and which users can have a SCRAM credential.
Never: a password, a hash or a credential in a log line or an error.

A line is one of

    user:argon2 hash
    user:argon2 hash:SCRAM-SHA-256$iterations:salt$stored key:server key
    :scram-salt-secret:base64

A hash may also be one of Mosquitto's (`mosquitto_hashes`), until its user logs in. The last line, once in a file, is
the secret from which the SCRAM salts of all user names come, also of names that do not exist. It is there because a
secret of the process would change with a restart: then a salt that stays the same would tell that the user exists.
"""

import fcntl
import os
import re
from base64 import b64decode, b64encode
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, final

from argon2 import PasswordHasher

from embermq.access import scram
from embermq.access.mosquitto_hashes import is_mosquitto_hash
from embermq.access.scram import ScramCredential
from embermq.errors import ConfigError

# argon2id, 19 MiB and 2 passes: a device that reconnects must not cost the server a second of CPU time.
HASHER: Final = PasswordHasher(time_cost=2, memory_cost=19 * 1024, parallelism=1)

# An unknown user's password is checked against this while the file has no users; no password is known for it.
DECOY_HASH: Final = "$argon2id$v=19$m=19456,t=2,p=1$RW1iZXJNUUVtYmVyTVE$0000000000000000000000000000000000000000000"

SALT_SECRET_BYTES: Final = 32

_HASH: Final = re.compile(r"\$argon2(id|i|d)\$(v=[0-9]+\$)?m=[0-9]+,t=[0-9]+,p=[0-9]+\$[A-Za-z0-9+/]+\$[A-Za-z0-9+/]+")
_SCRAM_START: Final = f":{scram.METHOD}$"
_SALT_SECRET_START: Final = ":scram-salt-secret:"


@final
class Credentials:
    """What the file has for one user; `scram` is None for a user that can log in with user name and password only."""

    def __init__(self, password_hash: str, scram: ScramCredential | None) -> None:
        self.password_hash: Final = password_hash
        self.scram: Final = scram

    def is_as(self, other: "Credentials") -> bool:
        """Whether two are the same."""
        mine, others = self.scram, other.scram
        if mine is not None and others is not None:
            return self.password_hash == other.password_hash and mine.text() == others.text()
        return self.password_hash == other.password_hash and mine is others


@final
class PasswordFile:
    """A password file that has been read. `salt_secret` is None while no user has had a SCRAM credential."""

    def __init__(self, users: dict[str, Credentials], salt_secret: bytes | None) -> None:
        self.users: Final = users
        self.salt_secret: Final = salt_secret


def read_text(path: Path, key: str) -> str:
    """The text of a file that a setting names; a ConfigError says why it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{key}: cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{key}: {path} is not UTF-8 text (byte {error.start})") from error


def parse_passwords(text: str, source: str) -> PasswordFile:
    """The users of a file; blank lines and lines that start with '#' are skipped. A ConfigError names the line."""
    users: dict[str, Credentials] = {}
    salt_secret: bytes | None = None
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if _is_skipped(line):
            continue
        try:
            if _is_salt_secret(line):
                if salt_secret is not None:
                    raise ValueError("a second line for the salts of SCRAM")
                salt_secret = _salt_secret_of(line)
                continue
            user_name, credentials = _parse_user(line)
            if user_name in users:
                raise ValueError(f"user {user_name!r} is named twice")
            users[user_name] = credentials
        except ValueError as error:
            raise ConfigError(f"{source}, line {number}: {error}") from None
    return PasswordFile(users, salt_secret)


def _is_skipped(line: str) -> bool:
    return not line or line.startswith("#")


def _is_salt_secret(line: str) -> bool:
    """Not a user whose name begins like that: such a line has a hash, and a hash has '$'."""
    return line.startswith(_SALT_SECRET_START) and "$" not in line


def _split_user(line: str) -> tuple[str, str, str]:
    """User name, password hash and the text of the SCRAM credential ('' for none) of a user's line.

    A user name may have colons. Only a line that ends with a hash has '$' after its last colon: the end of a credential
    is base64.
    """
    rest, credential_text = line, ""
    if not line.rpartition(":")[2].startswith("$"):
        before, start, after = line.rpartition(_SCRAM_START)
        if start:
            rest, credential_text = before, start[1:] + after
    user_name, _, password_hash = rest.rpartition(":")
    return user_name, password_hash, credential_text


def _parse_user(line: str) -> tuple[str, Credentials]:
    """A user's line; a ValueError does not repeat any of it, because what is wrong may be a secret."""
    user_name, password_hash, credential_text = _split_user(line)
    if not user_name:
        raise ValueError("expected 'user:hash' as 'ember passwd' writes it")
    if not is_argon2(password_hash) and not is_mosquitto_hash(password_hash):
        raise ValueError("no argon2 hash after the user name, set the password with 'ember passwd'")
    if not credential_text:
        return user_name, Credentials(password_hash, None)
    try:
        return user_name, Credentials(password_hash, scram.credential_of_text(credential_text))
    except ValueError as error:
        raise ValueError(f"SCRAM credential: {error}; set the password with 'ember passwd'") from None


def _salt_secret_of(line: str) -> bytes:
    text = line.removeprefix(_SALT_SECRET_START)
    try:
        secret = b64decode(text, validate=True)
    except ValueError:
        secret = b""
    if len(secret) != SALT_SECRET_BYTES or b64encode(secret).decode() != text:
        raise ValueError(f"expected {SALT_SECRET_BYTES} bytes in base64 for the salts of SCRAM")
    return secret


def is_argon2(password_hash: str) -> bool:
    """Whether a text has the form of an argon2 hash."""
    return _HASH.fullmatch(password_hash) is not None


def check_user_name(user_name: str) -> str | None:
    """Why the password file cannot have a user of this name, or None."""
    if not user_name or user_name != user_name.strip():
        return "a user name is not empty and has no space at its ends"
    if user_name.startswith("#") or not user_name.isprintable():
        return "a user name does not start with '#' and has printable characters only"
    return None


def scram_problem(user_name: str, password: bytes) -> str | None:
    """Why a user cannot log in with SCRAM, or None. Clients compare and hash what SASLprep (RFC 4013) makes of both."""
    try:
        if scram.saslprep(user_name) != user_name:
            return "SASLprep changes the user name"
    except ValueError as error:
        return f"the user name has {error}"
    try:
        if not scram.saslprep(password.decode()):
            return "SASLprep leaves nothing of the password"
    except UnicodeDecodeError:
        return "the password is not UTF-8 text"
    except ValueError as error:
        return f"the password has {error}"
    return None


def write_password(path: Path, user_name: str, password: bytes | None, *, with_scram: bool = True) -> bool:
    """Set a user's password, or remove the user (None); returns whether the file had the user before.

    The user gets a SCRAM credential too, unless there is a `scram_problem`. Comments and order stay. The file is
    replaced in one step, and only its owner can read it.
    """
    problem = check_user_name(user_name)
    if problem:
        raise ConfigError(f"user {user_name!r}: {problem}")
    with changing(path):
        text = read_text(path, "password file") if path.exists() else ""
        before = parse_passwords(text, str(path))
        lines = text.splitlines()
        new_lines: list[str] = []
        if password is not None:
            new_lines.append(f"{user_name}:{HASHER.hash(password)}")
            if with_scram and scram_problem(user_name, password) is None:
                salt_secret = before.salt_secret
                if salt_secret is None:
                    salt_secret = os.urandom(SALT_SECRET_BYTES)
                    lines.append(_SALT_SECRET_START + b64encode(salt_secret).decode())
                credential = scram.derive_credential(password.decode(), scram.salt_of(user_name, salt_secret))
                new_lines[0] += ":" + credential.text()
        known = user_name in before.users
        _replace_user(path, lines if known else [*lines, *new_lines], user_name, new_lines)
    return known


def replace_hash(path: Path, user_name: str, old_hash: str, new_hash: str) -> bool:
    """Put a new hash of the same password in the place of an old one; nothing else changes.

    False: the file has another hash by now, which stays.
    """
    with changing(path):
        text = read_text(path, "password file")
        user = parse_passwords(text, str(path)).users.get(user_name)
        if user is None or user.password_hash != old_hash:
            return False
        line = f"{user_name}:{new_hash}" + (f":{user.scram.text()}" if user.scram is not None else "")
        _replace_user(path, text.splitlines(), user_name, [line])
    return True


@contextmanager
def changing(path: Path) -> Iterator[None]:
    """Keep other processes and threads that change the file out, from reading it until it is replaced."""
    try:
        descriptor = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror or error}") from error
    try:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _replace_user(path: Path, lines: list[str], user_name: str, new_lines: list[str]) -> None:
    written: list[str] = []
    for line in lines:
        if _is_user(line, user_name):
            written += new_lines
        else:
            written.append(line)
    replace_private(path, "".join(line + "\n" for line in written))


def _is_user(line: str, user_name: str) -> bool:
    stripped = line.strip()
    return not _is_skipped(stripped) and not _is_salt_secret(stripped) and _split_user(stripped)[0] == user_name


def replace_private(path: Path, text: str) -> None:
    """Replace a file in one step by one that only its owner can read.

    The owner stays, and of a new file it is that of the directory: root changes files that a service has to read.
    """
    new_path = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        descriptor = os.open(new_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            if os.geteuid() == 0:
                owner = (path if path.exists() else path.parent).stat()
                os.fchown(descriptor, owner.st_uid, owner.st_gid)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.replace(new_path, path)
            _sync_directory(path.parent)
        except BaseException:
            new_path.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror or error}") from error


def _sync_directory(path: Path) -> None:
    """Make the new name of a file survive a loss of power."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
