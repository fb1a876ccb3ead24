"""SCRAM-SHA-256: the example of RFC 7677, a client written here, and everything that ends an exchange."""

import hmac
from base64 import b64decode, b64encode
from hashlib import pbkdf2_hmac, sha256

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embermq.access import scram
from embermq.access.scram import (
    ScramCredential,
    ScramError,
    ScramExchange,
    ScramFailure,
    credential_of_text,
    derive_credential,
    dummy_credential,
    saslprep,
)
from embermq.protocol.reasons import ReasonCode

# RFC 7677, section 3.
SALT = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
SERVER_NONCE = b"%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
CLIENT_FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
CLIENT_FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="

CREDENTIAL = derive_credential("pencil", SALT)
NONCE = b"rOprNGfwEbeRWgbNEkqO" + SERVER_NONCE


def challenged(client_first: bytes = CLIENT_FIRST, credential: ScramCredential = CREDENTIAL) -> ScramExchange:
    """An exchange that waits for the client-final message."""
    exchange = ScramExchange()
    exchange.read_client_first(client_first)
    exchange.challenge(credential, SERVER_NONCE)
    return exchange


def client_final(password: str, client_first: bytes, server_first: bytes) -> bytes:
    """What a client answers, worked out from the password as RFC 5802, section 3 says."""
    header_end = client_first.index(b",", client_first.index(b",") + 1) + 1
    nonce, salt, iterations = (part[2:] for part in server_first.split(b","))
    without_proof = b"c=" + b64encode(client_first[:header_end]) + b",r=" + nonce
    salted = pbkdf2_hmac("sha256", saslprep(password).encode(), b64decode(salt), int(iterations))
    client_key = hmac.new(salted, b"Client Key", "sha256").digest()
    auth_message = b",".join((client_first[header_end:], server_first, without_proof))
    signature = hmac.new(sha256(client_key).digest(), auth_message, "sha256").digest()
    proof = (int.from_bytes(client_key, "big") ^ int.from_bytes(signature, "big")).to_bytes(32, "big")
    return without_proof + b",p=" + b64encode(proof)


def test_the_example_of_the_rfc() -> None:
    exchange = ScramExchange()
    assert exchange.read_client_first(CLIENT_FIRST) == "user"
    assert exchange.challenge(CREDENTIAL, SERVER_NONCE) == SERVER_FIRST
    assert not exchange.is_complete
    assert exchange.verify(CLIENT_FINAL) == SERVER_FINAL
    assert exchange.is_complete
    assert exchange.user_name == "user"


def test_the_client_of_these_tests_answers_as_in_the_rfc() -> None:
    assert client_final("pencil", CLIENT_FIRST, SERVER_FIRST) == CLIENT_FINAL


def test_a_wrong_password_is_refused_and_the_exchange_is_over() -> None:
    exchange = challenged()
    with pytest.raises(ScramError) as caught:
        exchange.verify(client_final("pencils", CLIENT_FIRST, SERVER_FIRST))
    assert caught.value.failure is ScramFailure.INVALID_PROOF
    assert caught.value.reason is ReasonCode.NOT_AUTHORIZED
    assert caught.value.server_final() == b"e=invalid-proof"
    assert not exchange.is_complete
    with pytest.raises(ScramError):
        exchange.verify(CLIENT_FINAL)


@pytest.mark.parametrize("bit", [0, 7, 100, 255])
def test_every_bit_of_the_proof_counts(bit: int) -> None:
    without_proof, _, proof = CLIENT_FINAL.rpartition(b",p=")
    wrong = (int.from_bytes(b64decode(proof), "big") ^ 1 << bit).to_bytes(32, "big")
    with pytest.raises(ScramError) as caught:
        challenged().verify(without_proof + b",p=" + b64encode(wrong))
    assert caught.value.failure is ScramFailure.INVALID_PROOF


@pytest.mark.parametrize(
    ("client_first", "user_name"),
    [
        (b"y,,n=user,r=abc", "user"),
        (b"n,a=user,n=user,r=abc", "user"),
        (b"n,,n=user,r=abc,x=an optional extension", "user"),
        (b"n,,n=a=2Cb=3Dc,r=abc", "a,b=c"),
        (b"n,,n==3D2C,r=abc", "=2C"),
        ("n,,n=J\u00f6rg,r=abc".encode(), "J\u00f6rg"),
        ("n,,n=I\u00adX,r=abc".encode(), "IX"),
        (b"n,,n=user,r=" + b"x" * scram.NONCE_BYTES_MAX, "user"),
        (b"n,,n=" + b"u" * (scram.MESSAGE_BYTES_MAX - 9) + b",r=x", "u" * (scram.MESSAGE_BYTES_MAX - 9)),
    ],
)
def test_a_client_first_message_names_its_user(client_first: bytes, user_name: str) -> None:
    exchange = ScramExchange()
    assert exchange.read_client_first(client_first) == user_name
    server_first = exchange.challenge(CREDENTIAL, SERVER_NONCE)
    assert exchange.verify(client_final("pencil", client_first, server_first)).startswith(b"v=")


@pytest.mark.parametrize(
    ("client_first", "failure"),
    [
        (b"", ScramFailure.INVALID_ENCODING),
        (b"n", ScramFailure.INVALID_ENCODING),
        (b"n,", ScramFailure.INVALID_ENCODING),
        (b"n,,", ScramFailure.INVALID_ENCODING),
        (b"x,,n=user,r=abc", ScramFailure.INVALID_ENCODING),
        (b"n,user,n=user,r=abc", ScramFailure.INVALID_ENCODING),
        (b"n,,n=user", ScramFailure.INVALID_ENCODING),
        (b"n,,r=abc,n=user", ScramFailure.INVALID_ENCODING),
        (b"n,,n=user,r=", ScramFailure.INVALID_ENCODING),
        (b"n,,n=user,r=a b", ScramFailure.INVALID_ENCODING),
        (b"n,,n=user,r=a\x7f", ScramFailure.INVALID_ENCODING),
        (b"n,,n=user,r=\xc3\xa4", ScramFailure.INVALID_ENCODING),
        (b"n,,n=user,r=" + b"x" * (scram.NONCE_BYTES_MAX + 1), ScramFailure.INVALID_ENCODING),
        (b"n,,n=user,r=abc,", ScramFailure.INVALID_ENCODING),
        (b"n,,n=user,r=abc,9=z", ScramFailure.INVALID_ENCODING),
        (b"n,,n=" + b"u" * (scram.MESSAGE_BYTES_MAX - 8) + b",r=x", ScramFailure.INVALID_ENCODING),
        (b"n,,m=ext,n=user,r=abc", ScramFailure.EXTENSIONS_NOT_SUPPORTED),
        (b"p=tls-exporter,,n=user,r=abc", ScramFailure.CHANNEL_BINDING_NOT_SUPPORTED),
        (b"n,a=admin,n=user,r=abc", ScramFailure.OTHER_ERROR),
        (b"n,,n=us=er,r=abc", ScramFailure.INVALID_USERNAME_ENCODING),
        (b"n,,n=user=2c,r=abc", ScramFailure.INVALID_USERNAME_ENCODING),
        (b"n,,n=\xff\xfe,r=abc", ScramFailure.INVALID_USERNAME_ENCODING),
        (b"n,,n=\x00,r=abc", ScramFailure.INVALID_USERNAME_ENCODING),
        ("n,,n=\u00ad,r=abc".encode(), ScramFailure.INVALID_USERNAME_ENCODING),
    ],
)
def test_a_bad_client_first_message_ends_the_exchange(client_first: bytes, failure: ScramFailure) -> None:
    exchange = ScramExchange()
    with pytest.raises(ScramError) as caught:
        exchange.read_client_first(client_first)
    assert caught.value.failure is failure
    with pytest.raises(ScramError):
        exchange.read_client_first(CLIENT_FIRST)


@pytest.mark.parametrize(
    ("message", "failure"),
    [
        (b"", ScramFailure.INVALID_ENCODING),
        (b"c=biws,r=" + NONCE, ScramFailure.INVALID_ENCODING),
        (b"r=" + NONCE + b",c=biws,p=" + b64encode(bytes(32)), ScramFailure.INVALID_ENCODING),
        (b"c=biws,r=" + NONCE + b",p=!", ScramFailure.INVALID_ENCODING),
        (b"c=biws,r=" + NONCE + b",p=" + b64encode(bytes(31)), ScramFailure.INVALID_ENCODING),
        (b"c=biws,r=" + NONCE + b",x=" + b"y" * 2048 + b",p=" + b64encode(bytes(32)), ScramFailure.INVALID_ENCODING),
        (b"m=ext,c=biws,r=" + NONCE + b",p=" + b64encode(bytes(32)), ScramFailure.EXTENSIONS_NOT_SUPPORTED),
        # "y,," where the first message had "n,,": somebody changed the header on its way.
        (b"c=eSws,r=" + NONCE + b",p=" + b64encode(bytes(32)), ScramFailure.CHANNEL_BINDINGS_DONT_MATCH),
        (b"c=biws,r=" + NONCE + b"x,p=" + b64encode(bytes(32)), ScramFailure.OTHER_ERROR),
        (b"c=biws,r=" + NONCE[:-1] + b",p=" + b64encode(bytes(32)), ScramFailure.OTHER_ERROR),
        (b"c=biws,r=" + NONCE + b",p=" + b64encode(bytes(32)), ScramFailure.INVALID_PROOF),
    ],
)
def test_a_bad_client_final_message_ends_the_exchange(message: bytes, failure: ScramFailure) -> None:
    exchange = challenged()
    with pytest.raises(ScramError) as caught:
        exchange.verify(message)
    assert caught.value.failure is failure
    assert not exchange.is_complete


def test_messages_out_of_order_are_refused() -> None:
    with pytest.raises(ScramError):
        ScramExchange().challenge(CREDENTIAL, SERVER_NONCE)
    with pytest.raises(ScramError):
        ScramExchange().verify(CLIENT_FINAL)
    with pytest.raises(ScramError):
        challenged().read_client_first(CLIENT_FIRST)
    complete = challenged()
    complete.verify(CLIENT_FINAL)
    with pytest.raises(ScramError):
        complete.verify(CLIENT_FINAL)


@pytest.mark.parametrize("server_nonce", [b"", b"x" * 15, b"x" * 15 + b",", b"x" * 16 + b" "])
def test_a_poor_server_nonce_is_a_fault_of_the_caller(server_nonce: bytes) -> None:
    exchange = ScramExchange()
    exchange.read_client_first(CLIENT_FIRST)
    with pytest.raises(ValueError, match="nonce"):
        exchange.challenge(CREDENTIAL, server_nonce)


def test_an_unknown_user_is_challenged_like_a_known_one_and_fails_at_the_proof() -> None:
    secret = b"of this server"
    dummy = dummy_credential("nobody", secret)
    assert dummy.salt == dummy_credential("nobody", secret).salt
    assert dummy.salt != dummy_credential("nobody else", secret).salt
    assert dummy.salt != dummy_credential("nobody", b"of another server").salt
    assert len(dummy.salt) == scram.SALT_BYTES
    assert dummy.iterations == CREDENTIAL.iterations
    client_first = b"n,,n=nobody,r=abc"
    exchange = ScramExchange()
    exchange.read_client_first(client_first)
    server_first = exchange.challenge(dummy, SERVER_NONCE)
    with pytest.raises(ScramError) as caught:
        exchange.verify(client_final("pencil", client_first, server_first))
    assert caught.value.failure is ScramFailure.INVALID_PROOF


def test_a_credential_keeps_its_text() -> None:
    text = CREDENTIAL.text()
    assert text.startswith("SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$")
    again = credential_of_text(text)
    assert (again.salt, again.iterations) == (CREDENTIAL.salt, CREDENTIAL.iterations)
    assert (again.stored_key, again.server_key) == (CREDENTIAL.stored_key, CREDENTIAL.server_key)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "pencil",
        CREDENTIAL.text().replace("SHA-256", "SHA-1"),
        CREDENTIAL.text().replace("4096", "4095"),
        CREDENTIAL.text().replace("4096", "10000001"),
        CREDENTIAL.text().replace("4096", "9" * 5000),
        CREDENTIAL.text().replace("4096", "\u0664\u0660\u0669\u0666"),
        CREDENTIAL.text().replace("W22ZaJ0SNY7soEsUEjb6gQ==", ""),
        CREDENTIAL.text()[:-4],
        CREDENTIAL.text() + "\u00e4",
        CREDENTIAL.text() + ":x",
    ],
)
def test_a_bad_credential_is_refused_without_being_repeated(text: str) -> None:
    with pytest.raises(ValueError) as caught:
        credential_of_text(text)
    assert not text or text not in str(caught.value)


@pytest.mark.parametrize(("salt", "iterations"), [(b"x" * 7, 4096), (b"x" * 65, 4096), (b"x" * 16, 4095)])
def test_salt_and_iterations_have_bounds(salt: bytes, iterations: int) -> None:
    with pytest.raises(ValueError):
        derive_credential("pencil", salt, iterations)


@pytest.mark.parametrize(
    ("text", "prepared"),
    [  # RFC 4013, section 3
        ("I\u00adX", "IX"),
        ("user", "user"),
        ("USER", "USER"),
        ("\u00aa", "a"),
        ("\u2168", "IX"),
        ("a\u00a0b", "a b"),
        ("\u0627\u0628", "\u0627\u0628"),
        ("", ""),
    ],
)
def test_saslprep_maps_and_normalises(text: str, prepared: str) -> None:
    assert saslprep(text) == prepared


@pytest.mark.parametrize(
    "text",
    ["\u0007", "\u0627\u0031", "a\u0627", "\u0627a\u0627", "\u0085", "\ue000", "\ufdd0", "\u0221", "x\u200e\u00e4"],
)
def test_saslprep_refuses_what_is_prohibited(text: str) -> None:
    with pytest.raises(ValueError):
        saslprep(text)


@settings(max_examples=20, deadline=None)
@given(
    user_name=st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), min_size=1, max_size=40),
    password=st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), max_size=40),
    salt=st.binary(min_size=16, max_size=16),
)
def test_any_user_with_the_right_password_is_let_in(user_name: str, password: str, salt: bytes) -> None:
    escaped = user_name.replace("=", "=3D").replace(",", "=2C").encode()
    client_first = b"n,,n=" + escaped + b",r=abc"
    exchange = ScramExchange()
    assert exchange.read_client_first(client_first) == user_name
    server_first = exchange.challenge(derive_credential(password, salt), SERVER_NONCE)
    exchange.verify(client_final(password, client_first, server_first))
    assert exchange.is_complete


@settings(max_examples=300)
@given(first=st.binary(max_size=100), final=st.binary(max_size=200))
def test_any_bytes_end_in_the_error_of_an_exchange_or_not_at_all(first: bytes, final: bytes) -> None:
    for message in (first, b"n,," + first, b"n,,n=" + first + b",r=x"):
        try:
            ScramExchange().read_client_first(message)
        except ScramError as error:
            assert isinstance(error.failure, ScramFailure)
    for message in (final, b"c=biws,r=" + NONCE + final, b"c=biws,r=" + NONCE + b",p=" + final):
        with pytest.raises(ScramError):
            challenged().verify(message)
