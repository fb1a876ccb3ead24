"""Password hashes as Mosquitto's password file has them, so that users move with their passwords.

Owns: the two forms of Mosquitto 2.0 and before. The argon2id of newer versions is the form of our own file.
Never: making one; at the next log-in with the right password the file gets an argon2 hash instead.

    $7$iterations$salt$hash     PBKDF2 with HMAC-SHA-512; 64 bytes
    $6$salt$hash                SHA-512 of the password and the salt

Salt and hash are base64.
"""

import hashlib
import hmac
import re
from base64 import b64decode
from typing import Final

ITERATIONS_MAX: Final = 1_000_000
"""More would keep a thread busy for a second and longer at each log-in; Mosquitto writes 101 or 1,000."""
_BYTES: Final = 64
_BASE64: Final = r"[A-Za-z0-9+/]+={0,2}"
_FORM: Final = re.compile(rf"\$(?:6|7\$([1-9][0-9]{{0,6}}))\$({_BASE64})\$({_BASE64})")


def is_mosquitto_hash(password_hash: str) -> bool:
    """Whether a text is a hash of one of the two forms, and within the bound."""
    return _parts(password_hash) is not None


def verify_mosquitto(password_hash: str, password: bytes) -> bool:
    """Whether a password belongs to a hash of one of the two forms."""
    parts = _parts(password_hash)
    if parts is None:
        return False
    iterations, salt, expected = parts
    if iterations:
        found = hashlib.pbkdf2_hmac("sha512", password, salt, iterations, _BYTES)
    else:
        found = hashlib.sha512(password + salt).digest()
    return hmac.compare_digest(found, expected)


def _parts(password_hash: str) -> tuple[int, bytes, bytes] | None:
    """Iterations (0: SHA-512 alone), salt and hash; None if it is not of these forms."""
    match = _FORM.fullmatch(password_hash)
    if match is None:
        return None
    iterations = int(match[1] or 0)
    try:
        salt, expected = b64decode(match[2], validate=True), b64decode(match[3], validate=True)
    except ValueError:
        return None
    if len(expected) != _BYTES or iterations > ITERATIONS_MAX:
        return None
    return iterations, salt, expected
