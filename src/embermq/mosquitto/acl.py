"""The access list of Mosquitto, as ours with the same meaning.

Owns: what a line `topic`, `pattern` or `user` becomes, and where the two differ.

    Mosquitto                    here
    topic ... before any user    anonymous
    user NAME, topic ...         user NAME
    pattern ... %u %c            all
    write                        write,retain
    deny                         deny read,write,retain

A `deny` is stronger than any grant in both, with one difference: in Mosquitto a grant by `topic` is stronger than a
`pattern deny`. Such a pair is reported; here the denial wins. A `pattern deny` with %u does not concern clients without
a user name there, and does here.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from embermq.errors import ConfigError
from embermq.mosquitto.conf import read_lines
from embermq.protocol.topics import check_topic_filter, intersection

RIGHTS: Final = {"read": "read", "write": "write,retain", "readwrite": "read,write,retain"}
DENIAL: Final = "deny"


@final
@dataclass(frozen=True)
class _Line:
    """One line `topic` or `pattern`. `user` is None for clients without a user name; of patterns it says nothing."""

    access: str
    topic_filter: str
    is_pattern: bool
    user: str | None
    place: str

    def text(self) -> str:
        """The line as our access list has it."""
        written = self.topic_filter.replace("%", "%%")
        if self.is_pattern:
            written = written.replace("%%u", "%u").replace("%%c", "%c")
        rights = f"deny {RIGHTS['readwrite']}" if self.access == DENIAL else RIGHTS[self.access]
        return f"{rights} {written}"

    def widest(self) -> str:
        """The filter with any name in the place of %u and %c."""
        if not self.is_pattern:
            return self.topic_filter
        levels = self.topic_filter.split("/")
        return "/".join("+" if "%u" in level or "%c" in level else level for level in levels)


@final
@dataclass(frozen=True)
class AccessText:
    """An access list of ours; how many lines it was made of; and what differs, each with file and line."""

    text: str
    lines: int
    differences: list[str]
    has_users: bool


def access_text(file: Path, users: frozenset[str]) -> AccessText:
    """Our access list with the meaning of Mosquitto's in a file. `users`: those of the password file."""
    lines = _read(file)
    written = [f"# Written by `ember migrate` from {file}."]
    sections: dict[str, list[_Line]] = {"all": [], "anonymous": []}
    for line in lines:
        section = "all" if line.is_pattern else "anonymous" if line.user is None else f"user {line.user}"
        sections.setdefault(section, []).append(line)
    for section, found in sections.items():
        if found:
            written += ["", section, *(line.text() for line in found)]
    has_users = any(not line.is_pattern and line.user is not None for line in lines)
    return AccessText("\n".join(written) + "\n", len(lines), _differences(lines, users), has_users)


def _read(file: Path) -> list[_Line]:
    found: list[_Line] = []
    user: str | None = None
    for number, raw in enumerate(read_lines(file), 1):
        place = f"{file}, line {number}"
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        word, _, rest = line.partition(" ")
        rest = rest.strip()
        if word == "user":
            if not rest:
                raise ConfigError(f"{place}: 'user' needs a name")
            user = rest
        elif word in ("topic", "pattern"):
            found.append(_grant(rest, word == "pattern", user, place))
        else:
            raise ConfigError(f"{place}: expected 'user', 'topic' or 'pattern', not {word!r}")
    return found


def _grant(rest: str, is_pattern: bool, user: str | None, place: str) -> _Line:
    access, _, topic_filter = rest.partition(" ")
    topic_filter = topic_filter.strip()
    if not topic_filter:  # without a right it is both
        access, topic_filter = "readwrite", access
    if access not in (*RIGHTS, DENIAL):
        raise ConfigError(f"{place}: expected 'read', 'write', 'readwrite' or 'deny', not {access!r}")
    problem = check_topic_filter(topic_filter)
    if problem:
        raise ConfigError(f"{place}: {topic_filter!r} is no topic filter: {problem}")
    return _Line(access, topic_filter, is_pattern, user, place)


def _differences(lines: list[_Line], users: frozenset[str]) -> list[str]:
    found: list[str] = []
    grants = [line for line in lines if not line.is_pattern and line.access != DENIAL]
    for denial in lines:
        if not denial.is_pattern or denial.access != DENIAL:
            continue
        if "%u" in denial.topic_filter:
            found.append(
                f"{denial.place}: 'pattern deny {denial.topic_filter}' is stronger here for clients without a user"
                " name: it takes everything from the level with %u on"
            )
        for grant in grants:
            if intersection(denial.widest(), grant.topic_filter) is not None:
                found.append(
                    f"{denial.place}: 'pattern deny {denial.topic_filter}' is stronger here than 'topic"
                    f" {grant.topic_filter}' of {grant.place}, which Mosquitto puts first"
                )
    patterns = [line for line in lines if line.is_pattern]
    by_user = next((line for line in patterns if "%u" in line.topic_filter), None)
    slashed = sorted(user for user in users if "/" in user)
    if by_user is not None and slashed:
        found.append(f"{by_user.place}: %u grants nothing here to a user name with '/': {', '.join(slashed)}")
    by_client = next((line for line in patterns if "%c" in line.topic_filter), None)
    if by_client is not None:
        found.append(f"{by_client.place}: %c grants nothing here to a client id with '/'")
    return found
