"""The password file: lines of `user:hash`, read, checked and changed.

Owns: the format of the file, and the password hashing.
Never: a password or a hash in a log line or an error.
"""

import os
from pathlib import Path
from typing import Final

from argon2 import PasswordHasher, extract_parameters
from argon2.exceptions import InvalidHashError

from embermq.errors import ConfigError

# argon2id, 19 MiB and 2 passes: a device that reconnects must not cost the server a second of CPU time.
HASHER: Final = PasswordHasher(time_cost=2, memory_cost=19 * 1024, parallelism=1)

# An unknown user's password is checked against this while the file has no users; no password is known for it.
DECOY_HASH: Final = "$argon2id$v=19$m=19456,t=2,p=1$RW1iZXJNUUVtYmVyTVE$0000000000000000000000000000000000000000000"


def read_text(path: Path, key: str) -> str:
    """The text of a file that a setting names; a ConfigError says why it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{key}: cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{key}: {path} is not UTF-8 text (byte {error.start})") from error


def parse_passwords(text: str, source: str) -> dict[str, str]:
    """`user:hash` lines as a mapping; blank lines and lines that start with '#' are skipped."""
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
    """Why the password file cannot have a user of this name, or None."""
    if not user_name or user_name != user_name.strip():
        return "a user name is not empty and has no space at its ends"
    if user_name.startswith("#") or not user_name.isprintable():
        return "a user name does not start with '#' and has printable characters only"
    return None


def write_password(path: Path, user_name: str, password: bytes | None) -> bool:
    """Set a user's password, or remove the user (None); returns whether the file had the user before.

    Comments and order stay. The file is replaced in one step, and only its owner can read it.
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
    """Replace a file in one step by one that only its owner can read."""
    new_path = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        descriptor = os.open(new_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.replace(new_path, path)
        except BaseException:
            new_path.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror or error}") from error
