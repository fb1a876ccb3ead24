"""The files of users and rights, changed while a server runs."""

import threading
from pathlib import Path

import pytest

from embermq.access.access_files import AccessFiles, FilePair, KnownUser
from embermq.access.passwords import parse_passwords
from embermq.errors import ConfigError


@pytest.fixture
def files(tmp_path: Path) -> AccessFiles:
    (tmp_path / "acl").write_text("user ann\nread a\nread b\ngroup g\nmember ann\n")
    (tmp_path / "passwords").write_text("# ours\n")
    (tmp_path / "passwords").chmod(0o644)
    return AccessFiles({"": FilePair(tmp_path / "passwords", tmp_path / "acl"), "world": FilePair(None, None)})


def test_users_are_listed_with_their_rules_and_groups(files: AccessFiles, tmp_path: Path) -> None:
    assert not files.set_user("ann", b"first")
    assert files.set_user("ann", b"second", with_scram=False)
    files.set_user("bob", b"b")
    assert files.users() == [KnownUser("ann", False, 2, ["g"]), KnownUser("bob", True, 0, [])]
    assert (tmp_path / "passwords").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "passwords").read_text().startswith("# ours\n")
    files.delete_user("ann")
    assert [user.user_name for user in files.users()] == ["bob"]
    with pytest.raises(ConfigError, match="has no user 'ann'"):
        files.delete_user("ann")


@pytest.mark.parametrize("name", ["", " ann", "#ann", "a\nb", "world:ann", "a\u2028b"])
def test_a_user_name_that_would_break_the_file_is_refused(files: AccessFiles, name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="user"):
        files.set_user(name, b"x")
    assert (tmp_path / "passwords").read_text() == "# ours\n"


@pytest.mark.parametrize(
    ("section", "rule", "expected"),
    [
        ("user ann", "read a\nuser bob\nread #", "rule: expected one line"),
        ("user ann\u2028all", "read #", "section: expected one line"),
        ("user ann", "user bob", "expected a section"),
        ("user ann", "# nothing", "rule: expected one line"),
        ("ann", "read a", "expected a section"),
        ("user ann", "read a/#/b", "is no topic filter"),
        ("user ann", "read a\x00", "rule: expected one line"),
    ],
)
def test_a_rule_that_is_not_one_is_refused(
    files: AccessFiles, tmp_path: Path, section: str, rule: str, expected: str
) -> None:
    before = (tmp_path / "acl").read_text()
    with pytest.raises(ConfigError, match=expected):
        files.add_rule(section, rule)
    assert (tmp_path / "acl").read_text() == before


def test_a_list_with_an_error_replaces_nothing(files: AccessFiles, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the list, line 2"):
        files.replace_rules("all\nreed #\n")
    assert files.replace_rules("# new\nall\nread #") == 1
    assert (tmp_path / "acl").read_text() == "# new\nall\nread #\n"
    assert (tmp_path / "acl").stat().st_mode & 0o777 == 0o600


def test_what_has_no_file_says_which_setting_gives_one(files: AccessFiles) -> None:
    with pytest.raises(ConfigError, match=r"set access\.acl_file"):
        files.rules("world")
    with pytest.raises(ConfigError, match="no listener 'moon'"):
        files.set_user("ann", b"x", "moon")


def test_changes_at_the_same_time_do_not_undo_each_other(files: AccessFiles, tmp_path: Path) -> None:
    def change(number: int) -> None:
        files.add_rule(f"user u{number}", f"read u/{number}")
        files.set_user(f"u{number}", b"x", with_scram=False)

    threads = [threading.Thread(target=change, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    users = parse_passwords((tmp_path / "passwords").read_text(), "p").users
    assert set(users) == {f"u{number}" for number in range(6)}
    assert len(files.rules()) == 3 + 6
