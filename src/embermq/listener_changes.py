"""Listeners at a reload: which are opened, closed, or closed and opened with other settings.

Owns: comparing the `[[listeners]]` in use with those of the file, and which changes wait for a restart.
Never: a socket; `embed` opens and closes them.
"""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from embermq.settings import OneListener, Settings


@final
@dataclass(frozen=True)
class ListenerChanges:
    """`closed` has what is removed or changed, `opened` what is new or changed. `waiting`: sentences of what is not
    changed before a restart; `in_use`: all listeners that there are when the others are changed.
    """

    closed: "list[OneListener]" = field(default_factory=list)
    opened: "list[OneListener]" = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)
    in_use: "list[OneListener]" = field(default_factory=list)

    def done(self, failed: Collection[str]) -> list[str]:
        """What was changed, in sentences. `failed`: the names of listeners that could not be opened."""
        closed, opened = [{each.shown_name() for each in part} for part in (self.closed, self.opened)]
        what = dict.fromkeys(closed - opened, "closed") | dict.fromkeys(opened - closed, "opened")
        what |= dict.fromkeys(opened & closed, "changed")
        return [f"listener {name} was {what[name]}" for name in sorted(what) if name not in failed]


def changes_of(in_use: "Settings", wanted: "Settings") -> ListenerChanges:
    """What a reload changes. Both are in the form `[[listeners]]`, else all waits for a restart.

    Users and rights are those of the start: a listener with its own, and all listeners if `[access]` has changed, wait.
    """
    before = {each.shown_name(): each for each in in_use.listeners.each}
    after = {each.shown_name(): each for each in wanted.listeners.each}
    found = ListenerChanges()
    is_possible = before and after and in_use.access == wanted.access
    for name in (*before, *(name for name in after if name not in before)):
        old, new = before.get(name), after.get(name)
        if old == new:
            found.in_use.extend([old] if old is not None else [])
        elif not is_possible or any(_waits(each) for each in (old, new)):
            if before and after:
                found.waiting.append(f"listener {name} is {_what(old, new)}{_because(old, new)}")
            found.in_use.extend([old] if old is not None else [])
        else:
            found.closed.extend([old] if old is not None else [])
            found.opened.extend([new] if new is not None else [])
            found.in_use.extend([new] if new is not None else [])
    return found


def _waits(each: "OneListener | None") -> bool:
    """Whether a listener is opened and closed with the server only."""
    return each is not None and (each.kind == "udp" or each.has_own_users())


def _what(old: "OneListener | None", new: "OneListener | None") -> str:
    return "new" if old is None else "removed" if new is None else "changed"


def _because(old: "OneListener | None", new: "OneListener | None") -> str:
    for each in (old, new):
        if each is not None and each.kind == "udp":
            return ", and it is for MQTT-SN"
        if each is not None and each.has_own_users():
            return ", and has users or rights of its own"
    return ", and settings of [access] have changed too"
