"""The access list: which users may read, write and retain which topics.

Owns: the format of the file (docs/access.md).
Never: a decision; `embermq.broker.access.AccessList` answers from what is read here.
"""

from typing import Final, final

from embermq.broker.access import READ, RETAIN, SEE_ALL, WRITE, AccessList, Grant
from embermq.errors import ConfigError
from embermq.protocol.topics import check_topic_filter

RIGHTS: Final = {"read": READ, "write": WRITE, "retain": RETAIN}


def parse_grant(rights: int, pattern: str, source: str, line: str = "", is_denial: bool = False) -> Grant:
    """The grant of a filter with `%u`, `%c` and `%%` in it."""
    literals = [""]
    names: list[str] = []
    position = 0
    while position < len(pattern):
        character = pattern[position]
        if character == "%":
            position += 1
            name = pattern[position : position + 1]
            if name == "%":
                literals[-1] += "%"
            elif name in ("u", "c"):
                names.append(name)
                literals.append("")
            else:
                raise ConfigError(f"{source}: '%{name}' is unknown, expected %u, %c, or %% for a percent sign")
        else:
            literals[-1] += character
        position += 1
    problem = check_topic_filter("x".join(literals))  # what %u and %c stand for has no wildcard
    if problem:
        raise ConfigError(f"{source}: {pattern!r} is no topic filter: {problem}")
    return Grant(rights, literals, names, f"{source}: {line}", is_denial)


def is_section(line: str) -> bool:
    """Whether a line begins a section."""
    return line in ("all", "anonymous") or line.partition(" ")[0] in ("user", "group")


@final
class _Sections:
    """The sections of an access list while it is read."""

    def __init__(self) -> None:
        self.everybody: Final[list[Grant]] = []
        self.anonymous: Final[list[Grant]] = []
        self.users: Final[dict[str, list[Grant]]] = {}
        self.groups: Final[dict[str, list[Grant]]] = {}
        self._members: Final[dict[str, dict[str, None]]] = {}  # the groups of each user
        self._current: list[Grant] | None = None
        self._group = ""  # the one whose section this is

    def read(self, line: str, where: str) -> None:
        """One line that is no comment."""
        word, _, rest = line.partition(" ")
        rest = rest.strip()
        if line in ("all", "anonymous"):
            self._begin(self.everybody if line == "all" else self.anonymous)
        elif word in ("user", "group"):
            if not rest:
                raise ConfigError(f"{where}: '{word}' needs a name")
            named = self.users if word == "user" else self.groups
            self._begin(named.setdefault(rest, []), rest if word == "group" else "")
        elif self._current is None:
            raise ConfigError(
                f"{where}: expected 'all', 'anonymous', 'user NAME' or 'group NAME' before the first grant"
            )
        elif word == "member":
            if not self._group or not rest:
                raise ConfigError(f"{where}: expected 'member USER' in a section 'group NAME'")
            self._members.setdefault(rest, {})[self._group] = None
        else:
            self._current.append(parse_rule(line, where))

    def _begin(self, section: list[Grant], group: str = "") -> None:
        self._current = section
        self._group = group

    def grants_of_groups(self) -> dict[str, list[list[Grant]]]:
        """By user name, the grants of each of its groups."""
        return {user: [self.groups[name] for name in names] for user, names in self._members.items()}


def parse_rule(line: str, where: str) -> Grant:
    """A grant or a denial: a line of a section."""
    word, _, rest = line.partition(" ")
    rest = rest.strip()
    if word == "see":
        if rest != "all":
            raise ConfigError(f"{where}: expected 'see all'; single topics are granted by 'read'")
        return parse_grant(SEE_ALL, "#", where, line)
    is_denial = word == "deny"
    if is_denial:
        word, _, rest = rest.partition(" ")
        rest = rest.strip()
    rights = 0
    for right in word.split(","):
        if right not in RIGHTS or not rest:
            raise ConfigError(
                f"{where}: expected 'read', 'write', 'retain' joined by commas, then a filter, or 'deny' and these"
            )
        rights |= RIGHTS[right]
    return parse_grant(rights, rest, where, line, is_denial)


def parse_access_list(text: str, source: str, prefix: str = "", is_narrowing: bool = False) -> AccessList:
    """Sections `all`, `anonymous`, `user NAME` and `group NAME`; in each, lines like `read,write FILTER` and `see all`.

    `prefix`: what the names of its users begin with, which the list does not say. `is_narrowing`: as of `AccessList`.
    """
    sections = _Sections()
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if line and not line.startswith("#"):
            sections.read(line, f"{source}, line {number}")
    return AccessList(
        sections.everybody,
        sections.anonymous,
        sections.users,
        sections.grants_of_groups(),
        prefix=prefix,
        is_narrowing=is_narrowing,
    )
