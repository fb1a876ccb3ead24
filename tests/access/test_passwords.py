"""The password file: its format, and that only its owner can read it."""

from pathlib import Path

import pytest

from embermq.access.passwords import DECOY_HASH, parse_passwords, write_password
from embermq.errors import ConfigError


@pytest.fixture
def password_file(tmp_path: Path) -> Path:
    path = tmp_path / "passwords"
    write_password(path, "alice", b"wonder land")
    return path


def test_the_password_file_is_private_and_keeps_its_comments(password_file: Path) -> None:
    assert password_file.stat().st_mode & 0o777 == 0o600
    text = password_file.read_text()
    password_file.write_text("# the house\n" + text)
    password_file.chmod(0o644)
    assert write_password(password_file, "bob:builder", b"can we fix it") is False
    assert write_password(password_file, "alice", b"new") is True
    assert password_file.stat().st_mode & 0o777 == 0o600
    lines = password_file.read_text().splitlines()
    assert lines[0] == "# the house" and lines[1].startswith("alice:$argon2id$") and lines[1] != text.strip()
    assert list(parse_passwords(password_file.read_text(), "p")) == ["alice", "bob:builder"]
    assert write_password(password_file, "alice", None) is True
    assert list(parse_passwords(password_file.read_text(), "p")) == ["bob:builder"]
    assert [path.name for path in password_file.parent.iterdir()] == ["passwords"]


@pytest.mark.parametrize("user_name", ["", " alice", "#alice", "a\nb"])
def test_a_user_name_that_would_break_the_file_is_refused(tmp_path: Path, user_name: str) -> None:
    with pytest.raises(ConfigError):
        write_password(tmp_path / "passwords", user_name, b"x")
    assert not (tmp_path / "passwords").exists()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("alice", "p, line 1: expected 'user:hash'"),
        ("# c\n\n:hash", "p, line 3: expected 'user:hash'"),
        ("alice:$argon2id$nonsense", "p, line 1: user 'alice' has no argon2 hash"),
        (f"a:{DECOY_HASH}\na:{DECOY_HASH}", "p, line 2: user 'a' is named twice"),
    ],
)
def test_a_bad_password_file_is_named_by_its_line(text: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_passwords(text, "p")
    assert str(caught.value).startswith(sentence)
