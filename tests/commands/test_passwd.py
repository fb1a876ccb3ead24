"""`ember passwd`: users are added, changed and removed, and both ways of logging in work after one command."""

from pathlib import Path

import pytest

from embermq.access.passwords import parse_passwords
from support.ember_command import ember, sentence


def scram_users(path: Path) -> dict[str, bool]:
    """The users of a file, and whether each has a SCRAM credential."""
    users = parse_passwords(path.read_text(), str(path)).users
    return {name: credentials.scram is not None for name, credentials in users.items()}


def test_passwords_are_set_changed_and_removed(tmp_path: Path) -> None:
    path = tmp_path / "passwords"
    added = ember("passwd", path, "alice", "--stdin", stdin=b"one\n")
    assert (added.code, added.text, added.errors) == (0, f"added alice in {path}\n", "")
    first = path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600
    changed = ember("passwd", path, "alice", "--stdin", stdin=b"two\n")
    assert changed.text == f"changed the password of alice in {path}\n"
    assert scram_users(path) == {"alice": True}
    line_before, line_after = (
        [line for line in text.splitlines() if "$" in line] for text in (first, path.read_text())
    )
    assert line_before != line_after and len(line_after) == 1
    assert ember("passwd", path, "alice", "--delete").text == f"removed alice from {path}\n"
    assert scram_users(path) == {}
    assert path.stat().st_mode & 0o777 == 0o600


def test_without_scram_only_the_hash_is_written(tmp_path: Path) -> None:
    path = tmp_path / "passwords"
    assert ember("passwd", path, "alice", "--stdin", "--no-scram", stdin=b"one\n").code == 0
    assert "SCRAM" not in path.read_text() and "scram" not in path.read_text()
    ember("passwd", path, "alice", "--stdin", stdin=b"one\n")
    assert scram_users(path) == {"alice": True}
    ember("passwd", path, "alice", "--stdin", "--no-scram", stdin=b"one\n")
    assert scram_users(path) == {"alice": False}


@pytest.mark.parametrize(
    ("user_name", "password", "why"),
    [
        ("alice", b"\xff\xfe", "the password is not UTF-8 text"),
        ("alice", b"a\x07b", "the password has a control character"),
        ("alice", "\u00ad".encode(), "SASLprep leaves nothing of the password"),
        ("alice", "\U0001f600".encode(), "the password has a character that SASLprep prohibits"),
        ("\u2168", b"one", "SASLprep changes the user name"),
        ("\U0001f600", b"one", "the user name has a character that SASLprep prohibits"),
    ],
)
def test_a_password_that_scram_cannot_use_is_set_and_explained(
    tmp_path: Path, user_name: str, password: bytes, why: str
) -> None:
    path = tmp_path / "passwords"
    done = ember("passwd", path, user_name, "--stdin", stdin=password + b"\n")
    assert done.code == 0 and done.text == f"added {user_name} in {path}\n"
    assert done.errors == f"{user_name} cannot log in with SCRAM-SHA-256: {why}\n"
    assert scram_users(path) == {user_name: False}


def test_passwords_that_cannot_be_set_are_explained(tmp_path: Path) -> None:
    path = tmp_path / "passwords"
    assert sentence(ember("passwd", path, "alice", "--delete")) == f"{path} has no user 'alice'"
    assert sentence(ember("passwd", path, "alice", "--stdin", stdin=b"\n")) == "expected a password that is not empty"
    assert "cannot write" in sentence(ember("passwd", tmp_path / "none" / "p", "alice", "--stdin", stdin=b"x\n"))
    path.write_text("alice:secret:SCRAM-SHA-256$secret\n")
    refused = sentence(ember("passwd", path, "bob", "--stdin", stdin=b"x\n"))
    assert refused.startswith(f"{path}, line 1: no argon2 hash") and "secret" not in refused
    assert path.read_text() == "alice:secret:SCRAM-SHA-256$secret\n"


def test_the_help_names_both_ways_of_logging_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    text = ember("passwd", "--help").text
    assert "argon2" in text and "SCRAM-SHA-256" in text and "--no-scram" in text


@pytest.mark.parametrize(
    "command", [("passwd", "{}/users", "alice"), ("init", "{}/site", "--no-tls"), ("access", "set", "alice")]
)
def test_without_a_terminal_the_sentence_says_how_to_give_a_password(tmp_path: Path, command: tuple[str, ...]) -> None:
    done = ember(*(part.format(tmp_path) for part in command), stdin=b"one\n")
    assert sentence(done) == "there is no terminal to ask for a password: give it as the input, and --stdin"
