"""Users and rights from files: who is let in, reloading, and that an unknown user is refused like a wrong password."""

import logging
import re
from pathlib import Path
from typing import Literal

import pytest
from argon2 import PasswordHasher

from embermq.access import scram
from embermq.access.file_access import FileAccess
from embermq.access.passwords import DECOY_HASH, parse_passwords, write_password
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


def test_an_unknown_user_is_refused_like_a_wrong_password(password_file: Path) -> None:
    tried: list[str | bytes] = []

    class CountingHasher(PasswordHasher):
        def verify(self, hash: str | bytes, password: str | bytes) -> Literal[True]:
            tried.append(hash)
            return super().verify(hash, password)

    access = FileAccess(password_file=password_file, hasher=CountingHasher())
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


def test_no_secret_is_written_anywhere_readable(password_file: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    password_file.chmod(0o640)
    access = FileAccess(password_file=password_file)
    assert "can be read by others" in caplog.text
    with pytest.raises(Refused) as caught:
        access.authenticate("c1", "alice", b"my guess", None)
    with pytest.raises(Refused) as failed:
        exchange = access.begin_exchange(scram.METHOD, "c1", None)
        challenge = exchange.begin(b"n,,n=alice,r=abc", b"n" * 32).data
        assert challenge is not None
        nonce = challenge.partition(b",")[0]
        exchange.proceed(b"c=biws," + nonce + b",p=" + b"bXkgZ3Vlc3M=" * 3 + b"bXkgZ3Vlc3M=")
    secrets = [part for line in password_file.read_text().splitlines() for part in re.split("[:$]", line)]
    secrets = [part for part in secrets if len(part) >= 20]
    assert len(secrets) == 6  # argon2: salt, hash; SCRAM: salt, stored key, server key; the secret of the salts
    for text in (str(caught.value), str(failed.value), caplog.text):
        assert not any(secret in text for secret in ["my guess", "bXkgZ3Vlc3M", *secrets])
    with pytest.raises(ConfigError) as wrong:
        parse_passwords("alice:plain-secret", "p")
    assert "plain-secret" not in str(wrong.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"access\.password_file: cannot read .*missing"):
        FileAccess(password_file=tmp_path / "missing")
    (tmp_path / "binary").write_bytes(b"all\n\xff")
    with pytest.raises(ConfigError, match=r"access\.acl_file: .* is not UTF-8 text \(byte 4\)"):
        FileAccess(acl_file=tmp_path / "binary")


# As `mosquitto_passwd` of Mosquitto 2.0.11 has made them for the password "wonder land", the first with `-H sha512`.
OF_MOSQUITTO = {
    "old": "$6$brUHkIkGngsW7jbB$"
    "Yxmpmtr2eyyZW4qbJ1N/jzJmhNNP32DM4+mpaB147MBlsvXSeCks0QJgpVq80XM1g8+Y3/HnPgAic4BnV6kBYg==",
    "newer": "$7$101$fOYEdT066OWAzl7d$"
    "mKuyKHbuDrRVwE9AWpR6OX3nqOVXm+dJoNMQpMXJPVTBBCvy8Zkt3tr8r4XnmKiJlORC0ma4EYsGgz9YOxx39A==",
    "newest": PasswordHasher(time_cost=1, memory_cost=1024, parallelism=1).hash(b"wonder land"),
}


@pytest.mark.parametrize("user_name", OF_MOSQUITTO)
def test_a_hash_of_mosquitto_is_replaced_at_the_first_right_password(tmp_path: Path, user_name: str) -> None:
    path = tmp_path / "passwords"
    path.write_text("# moved\n" + "".join(f"{name}:{text}\n" for name, text in OF_MOSQUITTO.items()))
    path.chmod(0o644)
    access = FileAccess(password_file=path)
    assert refusal(access, user_name, b"Wonder land") is ReasonCode.BAD_USER_NAME_OR_PASSWORD
    assert OF_MOSQUITTO[user_name] in path.read_text()
    assert access.authenticate("c1", user_name, b"wonder land", None).user_name == user_name
    users = parse_passwords(path.read_text(), "p").users
    assert path.read_text().startswith("# moved\n") and path.stat().st_mode & 0o777 == 0o600
    for name, text in OF_MOSQUITTO.items():
        assert (users[name].password_hash == text) is (name != user_name)
    assert users[user_name].password_hash.startswith("$argon2id$v=19$m=19456,t=2,p=1$")
    for again in (access, FileAccess(password_file=path)):
        assert again.authenticate("c1", user_name, b"wonder land", None).user_name == user_name
        assert refusal(again, user_name, b"Wonder land") is ReasonCode.BAD_USER_NAME_OR_PASSWORD


def test_a_password_that_was_changed_meanwhile_stays_changed(tmp_path: Path) -> None:
    path = tmp_path / "passwords"
    path.write_text(f"newer:{OF_MOSQUITTO['newer']}\n")
    access = FileAccess(password_file=path)
    write_password(path, "newer", b"another")
    changed = path.read_text()
    access.authenticate("c1", "newer", b"wonder land", None)  # the server has not read the file again yet
    assert path.read_text() == changed


def test_a_user_logs_in_although_the_file_cannot_be_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "passwords"
    path.write_text(f"newer:{OF_MOSQUITTO['newer']}\n")
    access = FileAccess(password_file=path)

    def cannot(*_: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("os.replace", cannot)
    assert access.authenticate("c1", "newer", b"wonder land", None).user_name == "newer"
    assert "the old hash of user 'newer' stays in use: cannot write" in caplog.text
    assert [found.name for found in tmp_path.iterdir()] == ["passwords"]


def test_an_unknown_user_costs_an_argon2_hash_as_a_wrong_password_does(tmp_path: Path) -> None:
    tried: list[str | bytes] = []

    class CountingHasher(PasswordHasher):
        def verify(self, hash: str | bytes, password: str | bytes) -> Literal[True]:
            tried.append(hash)
            return super().verify(hash, password)

    path = tmp_path / "passwords"
    path.write_text(f"newer:{OF_MOSQUITTO['newer']}\n")
    access = FileAccess(password_file=path, hasher=CountingHasher())
    for user_name in ("newer", "mallory"):
        assert refusal(access, user_name, b"guess") is ReasonCode.BAD_USER_NAME_OR_PASSWORD
    assert tried == [DECOY_HASH, DECOY_HASH]


@pytest.mark.parametrize(
    "text",
    [
        OF_MOSQUITTO["newer"].replace("$101$", "$0$"),
        OF_MOSQUITTO["newer"].replace("$101$", "$1000001$"),
        OF_MOSQUITTO["newer"].replace("$101$", "$101$$"),
        OF_MOSQUITTO["newer"][:-5],
        OF_MOSQUITTO["old"].replace("$6$", "$5$"),
    ],
)
def test_a_hash_out_of_the_bounds_is_named_by_its_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "passwords"
    path.write_text(f"a:{text}\n")
    with pytest.raises(ConfigError, match="line 1: no argon2 hash"):
        FileAccess(password_file=path)
