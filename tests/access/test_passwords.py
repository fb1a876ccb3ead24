"""The password file: its format, and that only its owner can read it."""

import os
from base64 import b64encode
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embermq.access.passwords import DECOY_HASH, check_user_name, parse_passwords, write_password
from embermq.access.scram import ScramCredential, credential_of_text, salt_of
from embermq.errors import ConfigError

SCRAM = ScramCredential(b"s" * 16, 4096, b"k" * 32, b"v" * 32).text()
SALT_LINE = ":scram-salt-secret:" + b64encode(bytes(range(32))).decode()


@pytest.fixture
def password_file(tmp_path: Path) -> Path:
    path = tmp_path / "passwords"
    write_password(path, "alice", b"wonder land")
    return path


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_root_changes_the_file_of_a_service_and_leaves_it_to_the_service(password_file: Path) -> None:
    os.chown(password_file.parent, 1234, 1235)
    new_file = password_file.with_name("new")
    write_password(new_file, "alice", b"wonder land")
    os.chown(password_file, 1236, 1237)
    write_password(password_file, "bob", b"can we fix it")
    found = [(path.stat().st_uid, path.stat().st_gid) for path in (new_file, password_file)]
    assert found == [(1234, 1235), (1236, 1237)]


def test_the_password_file_is_private_and_keeps_its_comments(password_file: Path) -> None:
    assert password_file.stat().st_mode & 0o777 == 0o600
    text = password_file.read_text()
    password_file.write_text("# the house\n" + text)
    password_file.chmod(0o644)
    assert write_password(password_file, "bob:builder", b"can we fix it") is False
    assert write_password(password_file, "alice", b"new") is True
    assert password_file.stat().st_mode & 0o777 == 0o600
    lines = password_file.read_text().splitlines()
    assert lines[0] == "# the house" and lines[1].startswith(":scram-salt-secret:") and lines[1] in text
    assert lines[2].startswith("alice:$argon2id$") and lines[2] not in text
    assert list(parse_passwords(password_file.read_text(), "p").users) == ["alice", "bob:builder"]
    assert write_password(password_file, "alice", None) is True
    assert list(parse_passwords(password_file.read_text(), "p").users) == ["bob:builder"]
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
        (SCRAM, "p, line 1: no argon2 hash"),
        (f":{SCRAM}", "p, line 1: expected 'user:hash'"),
        ("alice:$argon2id$nonsense", "p, line 1: no argon2 hash after the user name"),
        (f"alice:{DECOY_HASH}=", "p, line 1: no argon2 hash"),
        (f"alice:{DECOY_HASH.rpartition('$')[0]}$", "p, line 1: no argon2 hash"),
        (f"alice:{DECOY_HASH.replace('19456', '1_9')}", "p, line 1: no argon2 hash"),
        (f"alice:{SCRAM}", "p, line 1: expected 'user:hash'"),
        (f"alice:{DECOY_HASH}:", "p, line 1: no argon2 hash"),
        (f"alice:{DECOY_HASH}:SCRAM-SHA-256", "p, line 1: no argon2 hash"),
        (f"alice:{DECOY_HASH}:{SCRAM}:{SCRAM}", "p, line 1: no argon2 hash"),
        (f"alice:{DECOY_HASH}:SCRAM-SHA-256$", "p, line 1: SCRAM credential: expected"),
        (f"alice:{DECOY_HASH}:{SCRAM[:-1]}", "p, line 1: SCRAM credential: "),
        (f"alice:{DECOY_HASH}:{SCRAM}=", "p, line 1: SCRAM credential: "),
        (f"alice:{DECOY_HASH}:{SCRAM.replace('4096', '04096')}", "p, line 1: SCRAM credential: "),
        (f"alice:{DECOY_HASH}:{SCRAM.replace('4096', '1000')}", "p, line 1: SCRAM credential: iterations"),
        (f"alice:{DECOY_HASH}:{SCRAM.replace('SHA-256', 'SHA-1')}", "p, line 1: no argon2 hash"),
        (f"a:{DECOY_HASH}\na:{DECOY_HASH}", "p, line 2: user 'a' is named twice"),
        (f"a:{DECOY_HASH}:{SCRAM}\na:{DECOY_HASH}", "p, line 2: user 'a' is named twice"),
        (f"{SALT_LINE}\n\n{SALT_LINE}", "p, line 3: a second line for the salts"),
        (SALT_LINE[:-4], "p, line 1: expected 32 bytes in base64"),
        (SALT_LINE + "!", "p, line 1: expected 32 bytes in base64"),
        (":scram-salt-secret:", "p, line 1: expected 32 bytes in base64"),
    ],
)
def test_a_bad_password_file_is_named_by_its_line(text: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_passwords(text, "p")
    assert str(caught.value).startswith(sentence)
    assert "a2tra2" not in str(caught.value) and DECOY_HASH not in str(caught.value)


def test_every_kind_of_line_is_read() -> None:
    file = parse_passwords(f"# c\nold:{DECOY_HASH}\n\n  {SALT_LINE}\nnew:er:{DECOY_HASH}:{SCRAM}\n", "p")
    assert list(file.users) == ["old", "new:er"]
    assert file.salt_secret == bytes(range(32))
    old, new = file.users.values()
    assert (old.password_hash, old.scram) == (DECOY_HASH, None)
    assert new.password_hash == DECOY_HASH and new.scram is not None and new.scram.text() == SCRAM


def test_a_file_from_before_is_read_and_kept_when_a_user_changes(tmp_path: Path) -> None:
    path = tmp_path / "passwords"
    path.write_text(f"# old\nalice:{DECOY_HASH}\nbob:{DECOY_HASH}\n")
    before = parse_passwords(path.read_text(), "p")
    assert before.salt_secret is None and [user.scram for user in before.users.values()] == [None, None]
    assert write_password(path, "alice", b"new") is True
    lines = path.read_text().splitlines()
    assert lines[0] == "# old" and lines[2] == f"bob:{DECOY_HASH}" and lines[3].startswith(":scram-salt-secret:")
    after = parse_passwords(path.read_text(), "p")
    assert after.users["alice"].scram is not None and after.users["bob"].scram is None
    assert after.salt_secret is not None and after.users["alice"].scram.salt == salt_of("alice", after.salt_secret)
    write_password(path, "bob", b"new")
    assert parse_passwords(path.read_text(), "p").salt_secret == after.salt_secret


def test_the_secret_of_one_file_is_not_that_of_another(tmp_path: Path) -> None:
    secrets = set()
    for name in ("one", "two"):
        write_password(tmp_path / name, "alice", b"x")
        secrets.add(parse_passwords((tmp_path / name).read_text(), name).salt_secret)
    assert len(secrets) == 2 and None not in secrets


USER_NAMES = st.one_of(
    st.text(min_size=1, max_size=20),
    st.lists(
        st.sampled_from([":", "$", "a", SCRAM, DECOY_HASH, ":scram-salt-secret:", ":SCRAM-SHA-256$"]), min_size=1
    ).map("".join),
).filter(lambda name: check_user_name(name) is None)


@given(names=st.dictionaries(USER_NAMES, st.booleans(), max_size=5), has_secret=st.booleans())
def test_what_is_written_is_read(names: dict[str, bool], has_secret: bool) -> None:
    lines = [f"{name}:{DECOY_HASH}" + (f":{SCRAM}" if with_scram else "") for name, with_scram in names.items()]
    file = parse_passwords("\n".join([*lines, SALT_LINE] if has_secret else lines), "p")
    assert {name: user.scram is not None for name, user in file.users.items()} == names
    assert (file.salt_secret is not None) is has_secret


PIECES = st.sampled_from(
    ["alice", ":", "$", "\n", "#", " ", "=", "9", DECOY_HASH, SCRAM, SALT_LINE, ":SCRAM-SHA-256$", "4096", "\u2028"]
)


@given(st.one_of(st.text(max_size=80), st.lists(PIECES, max_size=12).map("".join)))
def test_any_text_is_read_or_its_line_is_named(text: str) -> None:
    try:
        file = parse_passwords(text, "some file")
    except ConfigError as error:
        assert str(error).startswith("some file, line ")
    else:
        for name, user in file.users.items():
            assert name and f"{name}:{user.password_hash}" in text
            assert user.scram is None or credential_of_text(user.scram.text()).text() in text


@given(st.integers(1, len(SCRAM)), st.integers(0, 3))
def test_a_damaged_credential_is_an_error_and_not_repeated(cut: int, extra: int) -> None:
    damaged = SCRAM[:-cut] + "*" * extra
    with pytest.raises(ConfigError) as caught:
        parse_passwords(f"alice:{DECOY_HASH}:{damaged}", "p")
    assert DECOY_HASH not in str(caught.value) and "a2tra2" not in str(caught.value)  # base64 of the keys
