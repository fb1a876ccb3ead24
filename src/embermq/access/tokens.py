"""The token file: names with a role and the hash of a token, for the HTTP interface.

Owns: the format of the file, making tokens, and finding the name of one.
Never: a token. The file has SHA-256 hashes: a token is 256 random bits, so a slow hash would protect nothing more.

A line is `name:role:hash`; the role is `viewer`, `reader` or `operator`.
"""

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from secrets import token_urlsafe
from typing import Final

from embermq.access.passwords import check_user_name, read_text, replace_private
from embermq.errors import ConfigError

ROLES: Final = ("viewer", "reader", "operator")
TOKEN_BYTES: Final = 32
TOKEN_PREFIX: Final = "ember_"

_HASH: Final = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class TokenHolder:
    """Whom a token belongs to."""

    name: str
    role: str


def token_hash(token: str) -> str:
    """What the file has for a token."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def read_tokens(path: Path, key: str = "http.token_file") -> dict[str, TokenHolder]:
    """The holders by the hash of their token; a ConfigError names the line that is wrong."""
    return parse_tokens(read_text(path, key), str(path))


def parse_tokens(text: str, source: str) -> dict[str, TokenHolder]:
    """The lines of a file; blank ones and those that start with '#' are skipped."""
    holders: dict[str, TokenHolder] = {}
    names: set[str] = set()
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        name, role, hashed = _split(line)
        if not name or role not in ROLES or not _HASH.fullmatch(hashed):
            raise ConfigError(f"{source}, line {number}: expected 'name:role:hash' as `ember token` writes it")
        if name in names:
            raise ConfigError(f"{source}, line {number}: {name!r} is named twice")
        names.add(name)
        holders[hashed] = TokenHolder(name, role)
    return holders


def write_token(path: Path, name: str, role: str) -> str:
    """Give a name a new token, in place of one it had; returns the token, which is stored nowhere."""
    problem = check_user_name(name)
    if problem or ":" in name:
        raise ConfigError(f"name {name!r}: expected printable characters without ':', '#' at the start or outer spaces")
    token = TOKEN_PREFIX + token_urlsafe(TOKEN_BYTES)
    kept = _lines_without(path, name) if path.exists() else []
    replace_private(path, "".join(f"{line}\n" for line in [*kept, f"{name}:{role}:{token_hash(token)}"]))
    return token


def delete_token(path: Path, name: str) -> bool:
    """Remove a name's token; returns whether there was one."""
    if not path.exists() or name not in {holder.name for holder in read_tokens(path, "token file").values()}:
        return False
    replace_private(path, "".join(f"{line}\n" for line in _lines_without(path, name)))
    return True


def _lines_without(path: Path, name: str) -> list[str]:
    text = read_text(path, "token file")
    parse_tokens(text, str(path))
    return [line for line in text.splitlines() if line.startswith("#") or _split(line.strip())[0] != name]


def _split(line: str) -> tuple[str, str, str]:
    rest, _, hashed = line.rpartition(":")
    name, _, role = rest.rpartition(":")
    return name, role, hashed
