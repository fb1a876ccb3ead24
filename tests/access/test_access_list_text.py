"""An access list that is changed line by line keeps its comments and its order."""

import pytest

from embermq.access.access_list_text import AccessListText, Rule
from embermq.errors import ConfigError

LIST = """# ours
all
read public/#

# the people
user ann
  read,write  home/#
# until spring
deny write home/lock/#

group family
member ann
"""


def text(given: str = LIST) -> AccessListText:
    return AccessListText(given, "acl")


def test_rules_have_their_sections_and_lines() -> None:
    assert text().rules() == [
        Rule(3, "all", "read public/#"),
        Rule(7, "user ann", "read,write  home/#"),
        Rule(9, "user ann", "deny write home/lock/#"),
        Rule(12, "group family", "member ann"),
    ]


def test_a_rule_is_added_at_the_end_of_its_section() -> None:
    changed = text()
    assert changed.add("user ann", "retain home/lamp")
    assert changed.add("user  bob", "read b")
    assert changed.text() == LIST.replace("lock/#\n", "lock/#\nretain home/lamp\n") + "\nuser bob\nread b\n"
    assert not changed.add("user ann", "write,read  home/#"), "the same rule in other words"
    assert not changed.add("user ann", "deny write  home/lock/#")


def test_a_section_is_found_also_if_it_has_no_rule_yet() -> None:
    changed = text("user ann\n# none\nuser bob\nread b\n")
    assert changed.add("user ann", "read a")
    assert changed.text() == "user ann\nread a\n# none\nuser bob\nread b\n"
    first = text("")
    assert first.add("all", "read #")
    assert first.text() == "all\nread #\n"


def test_rules_and_sections_are_removed_and_comments_stay() -> None:
    changed = text()
    assert changed.remove("user ann", "write,read home/#") == 1
    assert changed.remove("user ann", "read nothing") == 0
    assert "home/#" not in changed.text().replace("lock/#", "") and "# until spring" in changed.text()
    assert changed.remove("group family", None) == 1
    assert "group" not in changed.text() and changed.text().startswith("# ours\nall\nread public/#\n")


@pytest.mark.parametrize("section, rule", [("user bob", "reed b"), ("all", "member ann"), ("user", "read b")])
def test_a_rule_that_makes_the_list_wrong_is_refused(section: str, rule: str) -> None:
    with pytest.raises(ConfigError, match="acl, line"):
        text().add(section, rule)
