"""The files of users and rights, changed while the server runs.

Owns: which file a change is for, and that a file is replaced in one step, with its comments and its order.
Never: putting a file into force; who may ask for a change. Calls take tens of milliseconds: a hash, a sync.
"""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple, final

from embermq.access.access_list import is_section
from embermq.access.access_list_text import LINES_MAX, AccessListText, Rule
from embermq.access.passwords import changing, parse_passwords, read_text, replace_private, write_password
from embermq.errors import ConfigError


class FilePair(NamedTuple):
    """A password file and an access list; None if there is none."""

    password_file: Path | None
    acl_file: Path | None


class KnownUser(NamedTuple):
    """A user of a password file, and how many rules the access list has for it alone."""

    user_name: str
    has_scram: bool
    rules: int
    groups: list[str]


@final
class AccessFiles:
    """The files of a server, under the name "", and of the listeners that have their own, under theirs."""

    def __init__(self, pairs: Mapping[str, FilePair]) -> None:
        self._pairs: Final = dict(pairs)
        self._reserved: Final = tuple(f"{name}:" for name in pairs if name)

    def users(self, listener: str = "") -> list[KnownUser]:
        """All users of a password file, in its order."""
        path = self._password_file(listener)
        rules = self.rules(listener) if self._pairs[listener].acl_file is not None else []
        own = Counter(each.section for each in rules)
        groups: dict[str, list[str]] = {}
        for each in rules:
            word, _, member = each.rule.partition(" ")
            if word == "member":
                groups.setdefault(member.strip(), []).append(each.section.removeprefix("group "))
        users = parse_passwords(read_text(path, "password file"), str(path)).users
        return [
            KnownUser(name, credentials.scram is not None, own[f"user {name}"], groups.get(name, []))
            for name, credentials in users.items()
        ]

    def set_user(self, user_name: str, password: bytes, listener: str = "", *, with_scram: bool = True) -> bool:
        """Add a user or set its password; returns whether there was the user before."""
        path = self._password_file(listener)
        if not password:
            raise ConfigError("expected a password that is not empty")
        if not listener and user_name.startswith(self._reserved):
            raise ConfigError(f"user {user_name!r}: names that begin with a listener's name and a colon are its users'")
        return write_password(path, user_name, password, with_scram=with_scram)

    def delete_user(self, user_name: str, listener: str = "") -> None:
        """Remove a user; its rules stay."""
        path = self._password_file(listener)
        if not write_password(path, user_name, None):
            raise ConfigError(f"{path} has no user {user_name!r}")

    def rules(self, listener: str = "") -> list[Rule]:
        """The rules of an access list."""
        return self._read(self._acl_file(listener)).rules()

    def list_text(self, listener: str = "") -> str:
        """An access list as it stands in its file."""
        return self._read(self._acl_file(listener)).text()

    def replace_rules(self, text: str, listener: str = "") -> int:
        """Put another access list in the place of one; returns how many rules it has."""
        path = self._acl_file(listener)
        if text.count("\n") > LINES_MAX:
            raise ConfigError(f"expected at most {LINES_MAX} lines")
        if "\x00" in text:
            raise ConfigError("the list has a null character")
        new = AccessListText(text, "the list")
        with changing(path):
            replace_private(path, new.text())
        return len(new.rules())

    def add_rule(self, section: str, rule: str, listener: str = "") -> bool:
        """Add a rule to a section such as "user ann"; False: the section has it already."""
        path = self._acl_file(listener)
        _check_line("section", section)
        _check_line("rule", rule)
        if not is_section(section.strip()) or is_section(rule.strip()):
            raise ConfigError(
                "expected a section, which is 'all', 'anonymous', 'user NAME' or 'group NAME', and one rule for it,"
                f" not {section!r}"
            )
        with changing(path):
            text = self._read(path)
            is_new = text.add(section.strip(), rule)
            if is_new:
                replace_private(path, text.text())
        return is_new

    def remove_rule(self, section: str, rule: str | None, listener: str = "") -> int:
        """Remove a rule of a section, or without a rule the whole section; returns how many rules are gone."""
        path = self._acl_file(listener)
        with changing(path):
            text = self._read(path)
            removed = text.remove(section.strip(), rule)
            if not removed:
                raise ConfigError(f"{path} has no such rule" if rule else f"{path} has no rule of {section!r}")
            replace_private(path, text.text())
        return removed

    def _read(self, path: Path) -> AccessListText:
        return AccessListText(read_text(path, "access list"), str(path))

    def _pair(self, listener: str) -> FilePair:
        if listener not in self._pairs:
            raise ConfigError(f"no listener {listener!r} has users or rights of its own")
        return self._pairs[listener]

    def _password_file(self, listener: str) -> Path:
        path = self._pair(listener).password_file
        if path is None:
            raise ConfigError("there is no password file: set access.password_file and restart the server")
        return path

    def _acl_file(self, listener: str) -> Path:
        path = self._pair(listener).acl_file
        if path is None:
            raise ConfigError("there is no access list: set access.acl_file and restart the server")
        return path


def _check_line(what: str, text: str) -> None:
    if not text.strip() or text.splitlines() != [text] or "\x00" in text or text.lstrip().startswith("#"):
        raise ConfigError(f"{what}: expected one line that is no comment")
