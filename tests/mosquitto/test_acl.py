"""Mosquitto's access list as ours, against a model of Mosquitto's rules."""

import re
from itertools import product
from pathlib import Path
from random import Random
from typing import Final

import pytest

from embermq.access.access_list import parse_access_list
from embermq.broker.access import Rights
from embermq.errors import ConfigError
from embermq.mosquitto.acl import access_text
from support.topic_filters import expression

CLIENTS: Final = (("", "c1"), ("ann", "c1"), ("bob", "c2"), ("eve", "c1"))
TOPICS: Final = (
    "$x/a",
    *("/".join(levels) for depth in (1, 2, 3) for levels in product(("a", "b", "ann", "c1"), repeat=depth)),
)
NOBODY: Final[frozenset[str]] = frozenset()


class Mosquitto:
    """What Mosquitto does: the lines of the user first, its denials above its grants; then the patterns likewise."""

    def __init__(self, text: str) -> None:
        self.of_users: dict[str, list[tuple[str, str]]] = {}
        self.patterns: list[tuple[str, str]] = []
        user = ""
        for line in text.splitlines():
            word, rest = line.split(" ", 1)
            if word == "user":
                user = rest
            else:
                access, topic_filter = rest.split(" ", 1)
                lines = self.patterns if word == "pattern" else self.of_users.setdefault(user, [])
                lines.append((access, topic_filter))

    def allows(self, wanted: str, user: str, client_id: str, topic: str) -> bool:
        patterns = [
            (access, topic_filter.replace("%u", user).replace("%c", client_id))
            for access, topic_filter in self.patterns
            if user or "%u" not in topic_filter
        ]
        for lines in (self.of_users.get(user, []), patterns):
            matching = [access for access, each in lines if expression(each).fullmatch(topic)]
            if "deny" in matching:
                return False
            if wanted in matching or "readwrite" in matching:
                return True
        return False


def random_list(random: Random) -> str:
    lines: list[str] = []
    for _ in range(random.randint(1, 8)):
        if random.random() < 0.35:
            lines.append(f"user {random.choice(['ann', 'bob'])}")
        word = random.choice(["topic", "topic", "pattern"])
        names = ["%u", "%c"] if word == "pattern" else []
        levels = [random.choice(["a", "b", "+", *names]) for _ in range(random.randint(1, 3))]
        if random.random() < 0.4:
            levels[-1] = "#"
        lines.append(f"{word} {random.choice(['read', 'write', 'readwrite', 'deny'])} {'/'.join(levels)}")
    return "\n".join(lines)


@pytest.mark.parametrize("seed", range(150))
def test_rights_are_those_of_mosquitto(seed: int, tmp_path: Path) -> None:
    text = random_list(Random(seed))
    file = tmp_path / "acl"
    file.write_text(text)
    made = access_text(file, NOBODY)
    ours, theirs = parse_access_list(made.text, "access.list", is_narrowing=True), Mosquitto(text)
    is_stricter = any("is stronger here" in difference for difference in made.differences)
    for (user, client_id), topic in product(CLIENTS, TOPICS):
        rights: Rights = ours.rights_of(user, client_id)
        read, write = theirs.allows("read", user, client_id, topic), theirs.allows("write", user, client_id, topic)
        found = (rights.may_read_topic(topic), rights.may_write(topic, False), rights.may_write(topic, True))
        if is_stricter:  # it is said which lines, and nothing is granted that was not
            assert all(expected or not granted for granted, expected in zip(found, (read, write, write), strict=True))
        else:
            assert found == (read, write, write), (text, user, client_id, topic)


def test_most_random_lists_are_compared_in_full(tmp_path: Path) -> None:
    file = tmp_path / "acl"
    full = 0
    for seed in range(150):
        file.write_text(random_list(Random(seed)))
        full += not any("is stronger here" in each for each in access_text(file, NOBODY).differences)
    assert full > 100


def test_a_percent_sign_of_a_topic_stays_one(tmp_path: Path) -> None:
    file = tmp_path / "acl"
    file.write_text("topic read 100%/%u\npattern read 100%/%u\n")
    rights = parse_access_list(access_text(file, NOBODY).text, "list").rights_of("", "c")
    assert rights.may_read_topic("100%/%u")
    assert not rights.may_read_topic("100%/c")


def test_what_differs_is_said_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "acl"
    file.write_text("user ann\ntopic a/#\npattern deny a/b\npattern read %u/%c\n")
    assert access_text(file, frozenset({"x/y"})).differences == [
        f"{file}, line 3: 'pattern deny a/b' is stronger here than 'topic a/#' of {file}, line 2, which Mosquitto puts"
        " first",
        f"{file}, line 4: %u grants nothing here to a user name with '/': x/y",
        f"{file}, line 4: %c grants nothing here to a client id with '/'",
    ]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("user", "'user' needs a name"),
        ("topic rw a", "expected 'read', 'write', 'readwrite' or 'deny', not 'rw'"),
        ("topic read a/#/b", "'a/#/b' is no topic filter: "),
        ("topic", "'' is no topic filter: "),
        ("grant a", "expected 'user', 'topic' or 'pattern', not 'grant'"),
    ],
)
def test_errors_name_the_line(line: str, expected: str, tmp_path: Path) -> None:
    file = tmp_path / "acl"
    file.write_text(f"topic read a\n{line}\n")
    with pytest.raises(ConfigError, match=re.escape(f"{file}, line 2: {expected}")):
        access_text(file, NOBODY)
