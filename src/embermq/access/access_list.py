"""The access list: which users may read, write and retain which topics.

Owns: the format of the file (docs/access.md).
Never: a decision; `embermq.broker.access.AccessList` answers from what is read here.
"""

from typing import Final

from embermq.broker.access import READ, RETAIN, SEE_ALL, WRITE, AccessList, Grant
from embermq.errors import ConfigError
from embermq.protocol.topics import check_topic_filter

RIGHTS: Final = {"read": READ, "write": WRITE, "retain": RETAIN}


def parse_grant(rights: int, pattern: str, source: str, line: str = "") -> Grant:
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
    return Grant(rights, literals, names, f"{source}: {line}")


def parse_access_list(text: str, source: str, prefix: str = "") -> AccessList:
    """`prefix`: what the names of its users begin with, which the list does not say.

    Sections `all`, `anonymous` and `user NAME`, each with lines like `read,write FILTER`, and the line `see all`."""
    everybody: list[Grant] = []
    anonymous: list[Grant] = []
    users: dict[str, list[Grant]] = {}
    section: list[Grant] | None = None
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        where = f"{source}, line {number}"
        word, _, rest = line.partition(" ")
        rest = rest.strip()
        if line == "all":
            section = everybody
        elif line == "anonymous":
            section = anonymous
        elif word == "user":
            if not rest:
                raise ConfigError(f"{where}: 'user' needs a name")
            section = users.setdefault(rest, [])
        else:
            if section is None:
                raise ConfigError(f"{where}: expected 'all', 'anonymous' or 'user NAME' before the first grant")
            if word == "see":
                if rest != "all":
                    raise ConfigError(f"{where}: expected 'see all'; single topics are granted by 'read'")
                section.append(parse_grant(SEE_ALL, "#", where, line))
                continue
            rights = 0
            for right in word.split(","):
                if right not in RIGHTS or not rest:
                    raise ConfigError(f"{where}: expected 'read', 'write', 'retain' joined by commas, then a filter")
                rights |= RIGHTS[right]
            section.append(parse_grant(rights, rest, where, line))
    return AccessList(everybody, anonymous, users, prefix)
