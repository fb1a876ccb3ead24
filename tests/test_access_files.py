"""The password file and the access list: formats, reloading, and that nothing tells a wrong password from no user."""

import logging
from pathlib import Path

import pytest

from embermq import access_files
from embermq.access_files import FileAccess, parse_access_list, parse_passwords, write_password
from embermq.errors import ConfigError
from embermq.protocol.errors import Refused
from embermq.protocol.reasons import ReasonCode


@pytest.fixture
def password_file(tmp_path: Path) -> Path:
    path = tmp_path / "passwords"
    write_password(path, "alice", b"wonder land")
    return path


def refusal(access: FileAccess, user_name: str | None, password: bytes | None) -> ReasonCode:
    with pytest.raises(Refused) as caught:
        access.authenticate("c1", user_name, password, None)
    return caught.value.reason


def test_the_right_password_makes_a_user(password_file: Path) -> None:
    access = FileAccess(password_file=password_file)
    assert access.slow and access.unrestricted
    for _ in range(2):  # the second time by the remembered proof
        assert access.authenticate("c1", "alice", b"wonder land", None).user_name == "alice"
    assert refusal(access, "alice", b"Wonder land") is ReasonCode.BAD_USER_NAME_OR_PASSWORD
    assert refusal(access, "alice", None) is ReasonCode.BAD_USER_NAME_OR_PASSWORD
    assert refusal(access, "alice", b"") is ReasonCode.BAD_USER_NAME_OR_PASSWORD
    assert refusal(access, "", b"wonder land") is ReasonCode.BAD_USER_NAME_OR_PASSWORD


def test_an_unknown_user_is_refused_like_a_wrong_password(password_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    access = FileAccess(password_file=password_file)
    tried: list[str] = []

    class Watched:
        def verify(self, password_hash: str, password: bytes) -> bool:
            tried.append(password_hash)
            return hasher.verify(password_hash, password)

    hasher = access_files.HASHER
    monkeypatch.setattr(access_files, "HASHER", Watched())
    # Even with the password of another user, whose hash is the decoy.
    assert refusal(access, "mallory", b"wonder land") is ReasonCode.BAD_USER_NAME_OR_PASSWORD
    assert refusal(access, "alice", b"guess") is ReasonCode.BAD_USER_NAME_OR_PASSWORD
    assert len(tried) == 2 and tried[0] == tried[1]


def test_an_empty_password_file_lets_nobody_in(tmp_path: Path) -> None:
    path = tmp_path / "passwords"
    path.write_text("# nobody yet\n")
    assert refusal(FileAccess(password_file=path), "alice", b"x") is ReasonCode.BAD_USER_NAME_OR_PASSWORD


def test_anonymous_clients_come_in_only_when_allowed(password_file: Path) -> None:
    assert refusal(FileAccess(password_file=password_file), None, None) is ReasonCode.NOT_AUTHORIZED
    open_access = FileAccess(password_file=password_file, allow_anonymous=True)
    assert open_access.authenticate("c1", None, None, None).user_name == ""
    assert refusal(open_access, "alice", b"guess") is ReasonCode.BAD_USER_NAME_OR_PASSWORD


def test_without_a_password_file_a_user_name_is_only_a_claim(tmp_path: Path) -> None:
    acl_file = tmp_path / "acl"
    acl_file.write_text("user alice\nread #\n")
    access = FileAccess(acl_file=acl_file, allow_anonymous=True)
    identity = access.authenticate("c1", "alice", b"anything", None)
    assert identity.user_name == ""
    assert not access.may_subscribe(identity, "a")


def test_a_certificate_names_the_user_only_when_set(password_file: Path) -> None:
    by_certificate = FileAccess(certificate_as_user=True)
    assert by_certificate.authenticate("c1", "alice", None, "device-7").user_name == "device-7"
    assert refusal(by_certificate, "alice", b"wonder land") is ReasonCode.NOT_AUTHORIZED
    with pytest.raises(Refused):
        FileAccess(password_file=password_file).authenticate("c1", None, None, "device-7")


def test_a_reload_puts_both_files_in_force_or_neither(password_file: Path, tmp_path: Path) -> None:
    acl_file = tmp_path / "acl"
    acl_file.write_text("user alice\nwrite a\n")
    access = FileAccess(password_file=password_file, acl_file=acl_file)
    alice = access.authenticate("c1", "alice", b"wonder land", None)
    assert access.may_publish(alice, "a", False) and not access.may_publish(alice, "b", False)
    assert not access.may_publish(alice, "a", True)

    write_password(password_file, "alice", b"looking glass")
    acl_file.write_text("user alice\nwrote b\n")
    with pytest.raises(ConfigError, match="line 2"):
        access.reload()
    assert access.authenticate("c1", "alice", b"wonder land", None)
    assert access.may_publish(alice, "a", False)

    acl_file.write_text("user alice\nwrite b\n")
    access.reload()
    assert refusal(access, "alice", b"wonder land") is ReasonCode.BAD_USER_NAME_OR_PASSWORD
    assert access.authenticate("c1", "alice", b"looking glass", None)
    assert access.may_publish(alice, "b", False) and not access.may_publish(alice, "a", False)
    assert not access.may_subscribe(alice, "b")


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


def test_no_secret_is_written_anywhere_readable(password_file: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    password_file.chmod(0o640)
    access = FileAccess(password_file=password_file)
    assert "can be read by others" in caplog.text
    with pytest.raises(Refused) as caught:
        access.authenticate("c1", "alice", b"my guess", None)
    hash_text = password_file.read_text().strip().rpartition(":")[2]
    for text in (str(caught.value), caplog.text):
        assert "my guess" not in text and hash_text not in text
    with pytest.raises(ConfigError) as wrong:
        parse_passwords("alice:plain-secret", "p")
    assert "plain-secret" not in str(wrong.value)


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
        (f"a:{access_files.DECOY_HASH}\na:{access_files.DECOY_HASH}", "p, line 2: user 'a' is named twice"),
    ],
)
def test_a_bad_password_file_is_named_by_its_line(text: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_passwords(text, "p")
    assert str(caught.value).startswith(sentence)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("read a", "acl, line 1: expected 'all', 'anonymous' or 'user NAME'"),
        ("all\nreed a", "acl, line 2: expected 'read', 'write', 'retain'"),
        ("all\nread", "acl, line 2: expected 'read', 'write', 'retain'"),
        ("all\nread a#", "acl, line 2: 'a#' is no topic filter"),
        ("all\nread +%u", "acl, line 2: '+%u' is no topic filter"),
        ("all\nread %x", "acl, line 2: '%x' is unknown"),
        ("all\nread a%", "acl, line 2: '%' is unknown"),
        ("user", "acl, line 1: 'user' needs a name"),
    ],
)
def test_a_bad_access_list_is_named_by_its_line(text: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_access_list(text, "acl")
    assert str(caught.value).startswith(sentence)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"access\.password_file: cannot read .*missing"):
        FileAccess(password_file=tmp_path / "missing")
    (tmp_path / "binary").write_bytes(b"all\n\xff")
    with pytest.raises(ConfigError, match=r"access\.acl_file: .* is not UTF-8 text \(byte 4\)"):
        FileAccess(acl_file=tmp_path / "binary")
