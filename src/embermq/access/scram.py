"""SCRAM-SHA-256, the server's side of one exchange (RFC 5802, RFC 7677).

Owns: the four messages, the credential that a server stores in place of a password, and SASLprep (RFC 4013).
Never: randomness, a password file, a packet. Nonce and salt are arguments; the credential is looked up by the caller.

The messages in their order, each the Authentication Data of an MQTT 5 packet (MQTT 5, 4.12):

    client-first   CONNECT or AUTH 0x19      read_client_first -> the user name; the caller finds its credential
    server-first   AUTH 0x18                 challenge(credential, server_nonce)
    client-final   AUTH 0x18                 verify
    server-final   CONNACK 0x00 or AUTH 0x00 what verify returns

Restrictions: no channel binding (SCRAM-SHA-256-PLUS is not offered), and no authorization identity other than the
user name itself. For a user name that is not known, `dummy_credential` gives a salt that is the same each time, and
the exchange fails at the proof like that of a wrong password: its messages do not tell which user names exist.
"""

import hmac
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from enum import IntEnum, StrEnum
from hashlib import pbkdf2_hmac, sha256
from stringprep import (
    in_table_a1,
    in_table_b1,
    in_table_c3,
    in_table_c4,
    in_table_c5,
    in_table_c6,
    in_table_c7,
    in_table_c8,
    in_table_c9,
    in_table_c12,
    in_table_c21_c22,
    in_table_d1,
    in_table_d2,
)
from typing import Final, final
from unicodedata import ucd_3_2_0

from embermq.protocol.errors import PeerError
from embermq.protocol.reasons import ReasonCode

METHOD: Final = "SCRAM-SHA-256"
"""The Authentication Method of MQTT 5 that asks for this exchange."""

MESSAGE_BYTES_MAX: Final = 2_048
"""The longest message that is read from a client."""
NONCE_BYTES_MAX: Final = 256
"""The longest nonce that is taken from a client."""
SERVER_NONCE_BYTES_MIN: Final = 16
SALT_BYTES: Final = 16
"""How long the salt of a new credential is. One of another length tells that its user exists."""
SALT_BYTES_MIN: Final = 8
SALT_BYTES_MAX: Final = 64
ITERATIONS_MIN: Final = 4_096  # RFC 7677, section 4
ITERATIONS_MAX: Final = 10_000_000

_KEY_BYTES: Final = 32
_NONCE_BYTES: Final = frozenset(range(0x21, 0x7F)) - {0x2C}  # printable, without the comma
_CREDENTIAL_PREFIX: Final = METHOD + "$"


class ScramFailure(StrEnum):
    """Why an exchange failed, in the words of RFC 5802, section 7 (server-error-value)."""

    INVALID_ENCODING = "invalid-encoding"
    EXTENSIONS_NOT_SUPPORTED = "extensions-not-supported"
    INVALID_PROOF = "invalid-proof"
    CHANNEL_BINDINGS_DONT_MATCH = "channel-bindings-dont-match"
    CHANNEL_BINDING_NOT_SUPPORTED = "channel-binding-not-supported"
    INVALID_USERNAME_ENCODING = "invalid-username-encoding"
    OTHER_ERROR = "other-error"


class ScramError(PeerError):
    """The exchange failed and cannot continue. CONNACK and DISCONNECT both have the reason code."""

    def __init__(self, failure: ScramFailure, detail: str) -> None:
        super().__init__(f"SCRAM {failure.value}: {detail}", reason=ReasonCode.NOT_AUTHORIZED)
        self.failure = failure

    def server_final(self) -> bytes:
        """The server-final message that tells the failure."""
        return b"e=" + self.failure.value.encode()


@final
class ScramCredential:
    """What a server keeps in place of a password. It proves a client and cannot be used to log in as that client."""

    def __init__(self, salt: bytes, iterations: int, stored_key: bytes, server_key: bytes) -> None:
        """Raises ValueError for values that no credential of this server has."""
        if not SALT_BYTES_MIN <= len(salt) <= SALT_BYTES_MAX:
            raise ValueError(f"a salt has {SALT_BYTES_MIN} to {SALT_BYTES_MAX} bytes, not {len(salt)}")
        if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
            raise ValueError(f"iterations are {ITERATIONS_MIN} to {ITERATIONS_MAX}, not {iterations}")
        if len(stored_key) != _KEY_BYTES or len(server_key) != _KEY_BYTES:
            raise ValueError(f"stored key and server key have {_KEY_BYTES} bytes each")
        self.salt: Final = salt
        self.iterations: Final = iterations
        self.stored_key: Final = stored_key
        self.server_key: Final = server_key

    def text(self) -> str:
        """The form of RFC 5803: SCRAM-SHA-256$iterations:salt$stored key:server key."""
        salt, stored_key, server_key = (
            b64encode(part).decode() for part in (self.salt, self.stored_key, self.server_key)
        )
        return f"{_CREDENTIAL_PREFIX}{self.iterations}:{salt}${stored_key}:{server_key}"


def credential_of_text(text: str) -> ScramCredential:
    """A credential from its text; raises ValueError without repeating the text, which is a secret."""
    parts = text.removeprefix(_CREDENTIAL_PREFIX).replace("$", ":").split(":")
    if not text.startswith(_CREDENTIAL_PREFIX) or len(parts) != 4 or not _is_number(parts[0]):
        raise ValueError(f"expected '{_CREDENTIAL_PREFIX}iterations:salt$stored key:server key'")
    try:
        salt, stored_key, server_key = (b64decode(part, validate=True) for part in parts[1:])
    except ValueError:
        raise ValueError("salt, stored key and server key are base64") from None
    credential = ScramCredential(salt, int(parts[0]), stored_key, server_key)
    if credential.text() != text:
        raise ValueError("salt, stored key and server key are base64, and iterations have no leading 0")
    return credential


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= len(str(ITERATIONS_MAX))


def derive_credential(password: str, salt: bytes, iterations: int = ITERATIONS_MIN) -> ScramCredential:
    """The credential of a password. Slow by design: never call it on the event loop.

    Raises ValueError for a password that SASLprep prohibits, and for a salt or iterations out of bounds.
    """
    salted_password = pbkdf2_hmac("sha256", saslprep(password).encode(), salt, iterations)
    client_key = _hmac(salted_password, b"Client Key")
    return ScramCredential(salt, iterations, sha256(client_key).digest(), _hmac(salted_password, b"Server Key"))


def salt_of(user_name: str, secret: bytes) -> bytes:
    """The salt for a user name, known or not: it stays the same when a user is added, changed or removed."""
    return _hmac(secret, b"salt" + user_name.encode())[:SALT_BYTES]


def dummy_credential(user_name: str, secret: bytes, iterations: int = ITERATIONS_MIN) -> ScramCredential:
    """A credential for a user name that does not exist: no proof fits it, and its salt is the same each time.

    `secret` belongs to this server and is kept across restarts. `iterations` must be what real users have, else it
    tells the two apart.
    """
    name = user_name.encode()
    salt = salt_of(user_name, secret)
    return ScramCredential(salt, iterations, _hmac(secret, b"stored" + name), _hmac(secret, b"server" + name))


class _Step(IntEnum):
    """What an exchange waits for."""

    CLIENT_FIRST = 0
    CREDENTIAL = 1
    CLIENT_FINAL = 2
    NOTHING = 3


@final
class ScramExchange:
    """One exchange. Call `read_client_first`, `challenge` and `verify` once each, in this order.

    After an error nothing more is accepted. `is_complete` tells that the client has proved who it is.
    """

    def __init__(self) -> None:
        self.user_name = ""
        self.is_complete = False
        self._step = _Step.CLIENT_FIRST
        self._gs2_header = b""
        self._client_first_bare = b""
        self._server_first = b""
        self._nonce = b""
        self._credential: ScramCredential | None = None

    def read_client_first(self, message: bytes) -> str:
        """The user name that the client claims. Find its credential, or make a dummy one, and `challenge`."""
        self._take_step(_Step.CLIENT_FIRST)
        gs2_header, client_first_bare = _split_gs2_header(message)
        attributes = _attributes(client_first_bare)
        _expect_names(attributes, b"nr")
        user_name = _user_name(attributes[0][1])
        authorization_name = gs2_header[2:-1]
        if authorization_name:
            if not authorization_name.startswith(b"a="):
                raise ScramError(ScramFailure.INVALID_ENCODING, "authorization identity")
            if _user_name(authorization_name[2:]) != user_name:
                raise ScramError(ScramFailure.OTHER_ERROR, "authorization identity is not the user name")
        nonce = attributes[1][1]
        if not nonce or len(nonce) > NONCE_BYTES_MAX or not _NONCE_BYTES.issuperset(nonce):
            raise ScramError(ScramFailure.INVALID_ENCODING, "nonce")
        self._gs2_header = gs2_header
        self._client_first_bare = client_first_bare
        self._nonce = nonce
        self.user_name = user_name
        self._step = _Step.CREDENTIAL
        return user_name

    def challenge(self, credential: ScramCredential, server_nonce: bytes) -> bytes:
        """The server-first message. `server_nonce` is printable, without a comma, and fresh for every exchange."""
        self._take_step(_Step.CREDENTIAL)
        if len(server_nonce) < SERVER_NONCE_BYTES_MIN or not _NONCE_BYTES.issuperset(server_nonce):
            raise ValueError(f"a server nonce has at least {SERVER_NONCE_BYTES_MIN} printable bytes and no comma")
        self._credential = credential
        self._nonce += server_nonce
        iterations = str(credential.iterations).encode()
        self._server_first = b"r=" + self._nonce + b",s=" + b64encode(credential.salt) + b",i=" + iterations
        self._step = _Step.CLIENT_FINAL
        return self._server_first

    def verify(self, message: bytes) -> bytes:
        """The server-final message, if the client-final message proves that the client knows the password."""
        self._take_step(_Step.CLIENT_FINAL)
        credential = self._credential
        assert credential is not None
        without_proof, separator, proof_text = message.rpartition(b",p=")
        if len(message) > MESSAGE_BYTES_MAX or not separator:
            raise ScramError(ScramFailure.INVALID_ENCODING, "client-final message")
        attributes = _attributes(without_proof)
        _expect_names(attributes, b"cr")
        if _base64(attributes[0][1]) != self._gs2_header:
            raise ScramError(ScramFailure.CHANNEL_BINDINGS_DONT_MATCH, "channel binding")
        if not hmac.compare_digest(attributes[1][1], self._nonce):
            raise ScramError(ScramFailure.OTHER_ERROR, "nonce is not the one of this exchange")
        proof = _base64(proof_text)
        if len(proof) != _KEY_BYTES:
            raise ScramError(ScramFailure.INVALID_ENCODING, "proof")
        auth_message = self._client_first_bare + b"," + self._server_first + b"," + without_proof
        client_signature = _hmac(credential.stored_key, auth_message)
        client_key = bytes([a ^ b for a, b in zip(proof, client_signature, strict=True)])
        server_signature = _hmac(credential.server_key, auth_message)
        if not hmac.compare_digest(sha256(client_key).digest(), credential.stored_key):
            raise ScramError(ScramFailure.INVALID_PROOF, "wrong password or unknown user")
        self.is_complete = True
        return b"v=" + b64encode(server_signature)

    def _take_step(self, step: _Step) -> None:
        """Whatever is wrong from here on ends the exchange: a step that succeeds sets the next one itself."""
        current = self._step
        self._step = _Step.NOTHING
        if current != step:
            raise ScramError(ScramFailure.OTHER_ERROR, "message at a wrong moment")


# -- the grammar of the messages (RFC 5802, section 7) ---------------------------------------------------------------


def _split_gs2_header(message: bytes) -> tuple[bytes, bytes]:
    """GS2 header, its last comma included, and client-first-message-bare."""
    if len(message) > MESSAGE_BYTES_MAX:
        raise ScramError(ScramFailure.INVALID_ENCODING, "client-first message is too long")
    parts = message.split(b",", 2)
    if len(parts) != 3:
        raise ScramError(ScramFailure.INVALID_ENCODING, "client-first message")
    flag = parts[0]
    if flag.startswith(b"p="):
        raise ScramError(ScramFailure.CHANNEL_BINDING_NOT_SUPPORTED, "channel binding")
    # "y": the client could bind, and believes that the server cannot. It is right.
    if flag not in (b"n", b"y"):
        raise ScramError(ScramFailure.INVALID_ENCODING, "GS2 header")
    return flag + b"," + parts[1] + b",", parts[2]


def _attributes(message: bytes) -> list[tuple[bytes, bytes]]:
    """The attributes of a message in their order, each a letter and a value that is not empty."""
    attributes: list[tuple[bytes, bytes]] = []
    for part in message.split(b","):
        name, separator, value = part[:1], part[1:2], part[2:]
        if not name.isalpha() or separator != b"=" or not value:
            raise ScramError(ScramFailure.INVALID_ENCODING, "attribute")
        attributes.append((name, value))
    return attributes


def _expect_names(attributes: list[tuple[bytes, bytes]], names: bytes) -> None:
    """The attributes begin with these; optional extensions may follow, and are ignored."""
    if attributes[0][0] == b"m":
        raise ScramError(ScramFailure.EXTENSIONS_NOT_SUPPORTED, "mandatory extension")
    if b"".join([name for name, _ in attributes[: len(names)]]) != names:
        raise ScramError(ScramFailure.INVALID_ENCODING, "attributes are missing or out of order")


def _user_name(saslname: bytes) -> str:
    """A name with its escapes undone, prepared for comparison."""
    try:
        text = saslname.decode()
    except UnicodeDecodeError:
        raise ScramError(ScramFailure.INVALID_USERNAME_ENCODING, "user name is not UTF-8") from None
    # The only escapes are =2C and =3D: a name in which any other = stands is invalid.
    if text.count("=") != text.count("=2C") + text.count("=3D"):
        raise ScramError(ScramFailure.INVALID_USERNAME_ENCODING, "escape in user name")
    try:
        user_name = saslprep(text.replace("=2C", ",").replace("=3D", "="))
    except ValueError as error:
        raise ScramError(ScramFailure.INVALID_USERNAME_ENCODING, str(error)) from None
    if not user_name:
        raise ScramError(ScramFailure.INVALID_USERNAME_ENCODING, "user name is empty")
    return user_name


def _base64(text: bytes) -> bytes:
    try:
        return b64decode(text, validate=True)
    except Base64Error:
        raise ScramError(ScramFailure.INVALID_ENCODING, "base64") from None


def _hmac(key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, "sha256")


def saslprep(text: str) -> str:
    """A user name or password as it is compared and hashed (RFC 4013); raises ValueError for a prohibited one.

    Characters that Unicode 3.2 did not have are refused, as RFC 4013 asks for stored strings.
    """
    if text.isascii():
        # Nothing to map or normalise; only control characters are prohibited.
        if not text.isprintable():
            raise ValueError("a control character")
        return text
    mapped = "".join([" " if in_table_c12(char) else char for char in text if not in_table_b1(char)])
    prepared = ucd_3_2_0.normalize("NFKC", mapped)
    if any(_is_prohibited(char) for char in prepared):
        raise ValueError("a character that SASLprep prohibits")
    if any(in_table_d1(char) for char in prepared) and (
        any(in_table_d2(char) for char in prepared) or not in_table_d1(prepared[0]) or not in_table_d1(prepared[-1])
    ):
        raise ValueError("right-to-left and left-to-right characters mixed")
    return prepared


def _is_prohibited(char: str) -> bool:
    return (
        in_table_a1(char)
        or in_table_c12(char)
        or in_table_c21_c22(char)
        or in_table_c3(char)
        or in_table_c4(char)
        or in_table_c5(char)
        or in_table_c6(char)
        or in_table_c7(char)
        or in_table_c8(char)
        or in_table_c9(char)
    )
