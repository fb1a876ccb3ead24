"""SCRAM-SHA-256 against the password file: a client of its own logs in, and all that must be refused is, alike."""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType

import pytest
from argon2 import PasswordHasher
from hypothesis import given, settings
from hypothesis import strategies as st

from embermq.access.file_access import FileAccess
from embermq.access.passwords import write_password
from embermq.access.scram import METHOD, dummy_credential
from embermq.access.scram_exchange import PasswordFileExchange
from embermq.broker.access import Exchange, Identity
from embermq.protocol.errors import Refused
from embermq.protocol.reasons import ReasonCode
from support.scram_client import ScramClient

NONCES = [f"server-nonce-{number:020}".encode() for number in range(10)]


@pytest.fixture
def password_file(tmp_path: Path) -> Path:
    """Alice has both credentials, bob is from a file of before, eve does not exist."""
    path = tmp_path / "passwords"
    write_password(path, "alice", b"wonder land")
    write_password(path, "bob", b"can we", with_scram=False)
    return path


@pytest.fixture
def access(password_file: Path) -> FileAccess:
    return FileAccess(password_file=password_file)


def exchange_of(access: FileAccess, certificate_name: str | None = None) -> Exchange:
    return access.begin_exchange(METHOD, "c1", certificate_name)


def log_in(exchange: Exchange, client: ScramClient, nonce: bytes = NONCES[0]) -> Identity | None:
    challenge = exchange.begin(client.first, nonce)
    assert challenge.identity is None and exchange.is_in_progress
    assert challenge.data is not None
    end = exchange.proceed(client.final(challenge.data))
    assert client.accepts(end.data) and not exchange.is_in_progress
    return end.identity


def refusal(step: Callable[[], object]) -> Refused:
    with pytest.raises(Refused) as caught:
        step()
    return caught.value


def test_the_right_password_gives_the_identity(access: FileAccess) -> None:
    exchange = exchange_of(access)
    assert exchange.method == METHOD and not exchange.slow
    identity = log_in(exchange, ScramClient("alice", "wonder land"))
    assert identity is not None and (identity.user_name, identity.client_id) == ("alice", "c1")
    assert exchange.identity is identity


def test_after_one_command_both_ways_of_logging_in_work(access: FileAccess) -> None:
    assert access.authenticate("c1", "alice", b"wonder land", None).user_name == "alice"
    assert log_in(exchange_of(access), ScramClient("alice", "wonder land")) is not None


@pytest.mark.parametrize("user_name", ["bob:builder", "a=b,c", "J\u00f6rg", ":scram-salt-secret", ":SCRAM-SHA-256$x"])
def test_names_with_special_characters_log_in(tmp_path: Path, user_name: str) -> None:
    path = tmp_path / "passwords"
    write_password(path, user_name, "h\u00f6hle".encode())
    identity = log_in(exchange_of(FileAccess(password_file=path)), ScramClient(user_name, "h\u00f6hle"))
    assert identity is not None and identity.user_name == user_name


@pytest.mark.parametrize(("user_name", "password"), [("alice", "Wonder land"), ("bob", "can we"), ("eve", "x")])
def test_a_wrong_password_an_old_user_and_an_unknown_one_are_refused_alike(
    access: FileAccess, user_name: str, password: str
) -> None:
    exchange = exchange_of(access)
    client = ScramClient(user_name, password)
    challenge = exchange.begin(client.first, NONCES[0]).data
    assert challenge is not None
    reference = exchange_of(access).begin(ScramClient("alice", "").first, NONCES[0]).data
    assert reference is not None
    assert [(part[:2], len(part)) for part in challenge.split(b",")] == [
        (part[:2], len(part)) for part in reference.split(b",")
    ]
    assert challenge.rpartition(b",")[2] == reference.rpartition(b",")[2]  # the iterations
    refused = refusal(lambda: exchange.proceed(client.final(challenge)))
    assert refused.reason is ReasonCode.NOT_AUTHORIZED
    assert refused.detail == f"SCRAM invalid-proof: wrong password or unknown user (user {user_name!r})"
    assert exchange.identity is None


def calls(step: Callable[[], object]) -> list[str]:
    """The functions that a step calls, in order, those written in C included."""
    called: list[str] = []

    def note(frame: FrameType, event: str, argument: object) -> None:
        if "gc_" in frame.f_code.co_qualname:
            return  # the garbage collector may run at any time, and a library of tests is told of it
        if event == "call":
            called.append(frame.f_code.co_qualname)
        elif event == "c_call":
            called.append(getattr(argument, "__qualname__", repr(argument)))

    sys.setprofile(note)
    try:
        step()
    except Refused:
        pass
    finally:
        sys.setprofile(None)
    return called


def test_an_unknown_user_costs_the_same_calls_as_a_wrong_password(access: FileAccess) -> None:
    by_user: dict[str, list[str]] = {}
    for user_name in ("alice", "bob", "eve"):
        exchange = exchange_of(access)
        client = ScramClient(user_name, "guess")
        first = calls(partial(exchange.begin, client.first, NONCES[0]))
        challenge = exchange_of(access).begin(client.first, NONCES[0]).data
        assert challenge is not None
        final = client.final(challenge)
        by_user[user_name] = first + calls(partial(exchange.proceed, final))
    assert "dummy_credential" in by_user["alice"]
    assert by_user["alice"] == by_user["bob"] == by_user["eve"]


def salt(access: FileAccess, user_name: str) -> bytes:
    challenge = exchange_of(access).begin(ScramClient(user_name, "").first, NONCES[0]).data
    assert challenge is not None
    return challenge.split(b",")[1]


def test_no_salt_changes_when_the_server_restarts_or_users_change(password_file: Path) -> None:
    names = ("alice", "bob", "eve")
    before = [salt(FileAccess(password_file=password_file), name) for name in names]
    assert len(set(before)) == 3
    write_password(password_file, "alice", b"looking glass")
    write_password(password_file, "bob", b"now with both")
    write_password(password_file, "eve", b"new here")
    assert [salt(FileAccess(password_file=password_file), name) for name in names] == before
    write_password(password_file, "alice", None)
    assert [salt(FileAccess(password_file=password_file), name) for name in names] == before


def test_in_a_file_from_before_everybody_is_unknown(tmp_path: Path) -> None:
    path = tmp_path / "passwords"
    path.write_text(f"alice:{PasswordHasher().hash('wonder land')}\n")
    access = FileAccess(password_file=path)
    assert access.authenticate("c1", "alice", b"wonder land", None).user_name == "alice"
    assert salt(access, "alice") == salt(access, "alice") != salt(access, "eve")
    client = ScramClient("alice", "wonder land")
    exchange = exchange_of(access)
    challenge = exchange.begin(client.first, NONCES[0]).data
    assert challenge is not None
    assert refusal(lambda: exchange.proceed(client.final(challenge))).reason is ReasonCode.NOT_AUTHORIZED
    write_password(path, "alice", b"wonder land")
    access.reload()
    assert log_in(exchange_of(access), client) is not None


def test_a_recorded_exchange_cannot_be_replayed(access: FileAccess) -> None:
    client = ScramClient("alice", "wonder land")
    recorded = exchange_of(access)
    challenge = recorded.begin(client.first, NONCES[0]).data
    assert challenge is not None
    final = client.final(challenge)
    recorded.proceed(final)
    # On another connection, and as a re-authentication of the same one: the server's nonce differs.
    for exchange in (exchange_of(access), recorded):
        exchange.begin(client.first, NONCES[1])
        refused = refusal(partial(exchange.proceed, final))
        assert "nonce is not the one of this exchange" in refused.detail
        assert refused.reason is ReasonCode.NOT_AUTHORIZED


@pytest.mark.parametrize("gs2", ["y,,", "n,a=alice,"])
def test_a_client_that_could_bind_a_channel_or_names_itself_logs_in(access: FileAccess, gs2: str) -> None:
    assert log_in(exchange_of(access), ScramClient("alice", "wonder land", gs2=gs2)) is not None


@pytest.mark.parametrize("gs2", ["p=tls-unique,,", "p=tls-exporter,,", "n,a=bob,", "x,,", ",,", ""])
def test_channel_binding_and_other_headers_are_refused(access: FileAccess, gs2: str) -> None:
    first = ScramClient("alice", "wonder land", gs2=gs2).first
    assert refusal(lambda: exchange_of(access).begin(first, NONCES[0])).reason is ReasonCode.NOT_AUTHORIZED


def test_a_changed_header_is_refused(access: FileAccess) -> None:
    """The client sent 'y'; somebody on the way made it 'n'."""
    client = ScramClient("alice", "wonder land", gs2="y,,")
    exchange = exchange_of(access)
    challenge = exchange.begin(b"n,," + client.first_bare, NONCES[0]).data
    assert challenge is not None
    assert "channel-bindings-dont-match" in refusal(lambda: exchange.proceed(client.final(challenge))).detail


def test_messages_cut_at_every_byte_are_refused(access: FileAccess) -> None:
    client = ScramClient("alice", "wonder land")
    for length in range(len(client.first)):
        exchange = exchange_of(access)
        try:  # cut within the nonce it is a whole message, of an exchange that fails at its end
            challenge = exchange.begin(client.first[:length], NONCES[0]).data
        except Refused as refused:
            assert refused.reason is ReasonCode.NOT_AUTHORIZED
            continue
        assert challenge is not None and length > client.first.index(b",r=") + 3
    exchange = exchange_of(access)
    challenge = exchange.begin(client.first, NONCES[0]).data
    assert challenge is not None
    final = client.final(challenge)
    for length in range(len(final)):
        exchange = exchange_of(access)
        exchange.begin(client.first, NONCES[0])
        assert refusal(partial(exchange.proceed, final[:length])).reason is ReasonCode.NOT_AUTHORIZED
        assert exchange.identity is None


def test_the_client_has_to_speak_first_and_every_time(access: FileAccess) -> None:
    assert refusal(lambda: exchange_of(access).begin(None, NONCES[0])).reason is ReasonCode.NOT_AUTHORIZED
    exchange = exchange_of(access)
    exchange.begin(ScramClient("alice", "wonder land").first, NONCES[0])
    assert refusal(lambda: exchange.proceed(None)).reason is ReasonCode.NOT_AUTHORIZED


def test_a_client_authenticates_again_as_the_same_user_only(access: FileAccess, password_file: Path) -> None:
    write_password(password_file, "carol", b"carol's own")
    access.reload()
    exchange = exchange_of(access)
    for nonce in NONCES[:3]:
        assert log_in(exchange, ScramClient("alice", "wonder land"), nonce) is not None
    refused = refusal(lambda: log_in(exchange, ScramClient("carol", "carol's own"), NONCES[3]))
    assert refused.reason is ReasonCode.NOT_AUTHORIZED
    assert exchange.identity is not None and exchange.identity.user_name == "alice"


def test_authenticating_again_uses_the_file_that_was_read_last(access: FileAccess, password_file: Path) -> None:
    exchange = exchange_of(access)
    log_in(exchange, ScramClient("alice", "wonder land"))
    write_password(password_file, "alice", b"looking glass")
    access.reload()
    log_in(exchange, ScramClient("alice", "looking glass"), NONCES[1])
    write_password(password_file, "alice", None)
    access.reload()
    assert refusal(lambda: log_in(exchange, ScramClient("alice", "looking glass"), NONCES[2])).reason is (
        ReasonCode.NOT_AUTHORIZED
    )


def test_a_certificate_must_name_the_same_user_where_certificates_name_users(password_file: Path) -> None:
    client = ScramClient("alice", "wonder land")
    both = FileAccess(password_file=password_file, certificate_as_user=True)
    assert log_in(exchange_of(both, "alice"), client) is not None
    assert log_in(exchange_of(both, None), client) is not None
    assert refusal(lambda: exchange_of(both, "bob").begin(client.first, NONCES[0])).reason is ReasonCode.NOT_AUTHORIZED
    assert log_in(exchange_of(FileAccess(password_file=password_file), "bob"), client) is not None


def test_other_methods_are_not_offered_and_none_without_a_password_file(access: FileAccess) -> None:
    for method in ("SCRAM-SHA-1", "SCRAM-SHA-256-PLUS", "scram-sha-256", "PLAIN", ""):
        refused = refusal(partial(access.begin_exchange, method, "c1", None))
        assert refused.reason is ReasonCode.BAD_AUTHENTICATION_METHOD
    without = FileAccess(certificate_as_user=True)
    assert refusal(lambda: exchange_of(without, "alice")).reason is ReasonCode.BAD_AUTHENTICATION_METHOD


@settings(max_examples=200, deadline=None)
@given(first=st.binary(max_size=60), final=st.binary(max_size=120))
def test_any_bytes_end_in_a_refusal(first: bytes, final: bytes) -> None:
    for message in (first, b"n,,n=alice,r=" + first):
        exchange = PasswordFileExchange(
            lambda user_name: dummy_credential(user_name, b"secret"), "c1", lambda: None, None
        )
        try:
            exchange.begin(message, NONCES[0])
        except Refused as refused:
            assert refused.reason is ReasonCode.NOT_AUTHORIZED
        else:
            assert refusal(partial(exchange.proceed, final)).reason is ReasonCode.NOT_AUTHORIZED
