"""The text of an access list, changed line by line: comments and order stay.

Owns: where a new line goes, and which lines belong to a section.
Never: a file; the meaning of a line (`access_list`).
"""

from typing import Final, NamedTuple, final

from embermq.access.access_list import is_section, parse_access_list

LINES_MAX: Final = 100_000
"""How many lines a list may have that is changed by a running server."""


class Rule(NamedTuple):
    """A line of the list that is no comment. `section`: "all", "anonymous", "user NAME" or "group NAME"."""

    number: int
    section: str
    rule: str


@final
class AccessListText:
    """An access list as its lines. Raises a `ConfigError` that names the first wrong line."""

    def __init__(self, text: str, source: str) -> None:
        self._source: Final = source
        self._lines = text.splitlines()
        self._check()

    def _check(self) -> None:
        parse_access_list(self.text(), self._source)

    def text(self) -> str:
        return "".join(f"{line}\n" for line in self._lines)

    def rules(self) -> list[Rule]:
        """All rules in order, with the numbers of their lines."""
        found: list[Rule] = []
        section = ""
        for number, raw in enumerate(self._lines, 1):
            line = raw.strip()
            if is_section(line):
                section = _words(line)
            elif line and not line.startswith("#"):
                found.append(Rule(number, section, line))
        return found

    def add(self, section: str, rule: str) -> bool:
        """Add a rule at the end of a section, which is added if it is not there. False: it has the rule already."""
        section, rule = _words(section), rule.strip()
        if any(_is_same(each, section, rule) for each in self.rules()):
            return False
        places = [number for number, name in self._section_of_lines() if name == section]
        if places:
            self._lines.insert(places[-1], rule)
        else:
            self._lines += [*([""] if self._lines and self._lines[-1].strip() else []), section, rule]
        self._check()
        return True

    def remove(self, section: str, rule: str | None) -> int:
        """Remove a rule of a section, or without a rule the whole section. How many rules are gone."""
        section = _words(section)
        rules = [each for each in self.rules() if each.section == section]
        gone = [each for each in rules if rule is None or _is_same(each, section, rule.strip())]
        numbers = {each.number for each in gone}
        if rule is None:
            numbers |= {number for number, raw in enumerate(self._lines, 1) if _words(raw.strip()) == section}
        self._lines = [line for number, line in enumerate(self._lines, 1) if number not in numbers]
        self._check()
        return len(gone)

    def _section_of_lines(self) -> list[tuple[int, str]]:
        """The number of each line that begins a section or is a rule, and its section."""
        found: list[tuple[int, str]] = []
        section = ""
        for number, raw in enumerate(self._lines, 1):
            line = raw.strip()
            if is_section(line):
                section = _words(line)
            if line and not line.startswith("#"):
                found.append((number, section))
        return found


def _words(line: str) -> str:
    """A line with one space between its first word and the rest, as it is read."""
    word, _, rest = line.partition(" ")
    return f"{word} {rest.strip()}".strip()


def _normal(rule: str) -> str:
    """A rule in one form: its rights in one order."""
    word, _, rest = _words(rule).partition(" ")
    if word == "deny":
        return f"deny {_normal(rest)}"
    return f"{','.join(sorted(word.split(',')))} {rest.strip()}"


def _is_same(each: Rule, section: str, rule: str) -> bool:
    return each.section == section and _normal(each.rule) == _normal(rule)
