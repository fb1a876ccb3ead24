"""What of a file and of the names of files is durable, and what a power cut may leave of the rest.

Owns: the rules, for the simulated disk and for `powercut`, which has recorded a real one.

What a power cut leaves of writes that were not synced: any subset of their sectors, and any of a file's lengths since
the last sync. Of changes of a directory that was not synced: the first ones, or any subset if the file system is
unordered; a rename is whole or not at all. A sync covers what was done before it began.
"""

from random import Random
from typing import Final

SECTOR_BYTES: Final = 512

Name = tuple[str, str]
"""A directory below the root, and a name in it."""


class File:
    """One file: what is durable of it, and what was done to it since."""

    def __init__(self, content: bytes = b"") -> None:
        self.durable = bytearray(content)
        self.size = len(content)  # as the process sees it
        self.pending: list[tuple[int, bytes | None]] = []  # writes at a position; None: the length is cut to it
        self.changes = 0  # ever made

    def wrote(self, position: int, data: bytes) -> None:
        self._changed((position, data), max(self.size, position + len(data)))

    def cut(self, size: int) -> None:
        self._changed((size, None), size)

    def _changed(self, change: tuple[int, bytes | None], size: int) -> None:
        self.pending.append(change)
        self.changes += 1
        self.size = size

    def synced(self, changes: int | None = None) -> None:
        """All changes are durable, or those that had been made when there were so many."""
        count = len(self.pending) - (0 if changes is None else self.changes - changes)
        for change in self.pending[: max(0, count)]:
            _apply(self.durable, change)
        del self.pending[: max(0, count)]

    def sync_failed(self, rng: Random) -> None:
        """Nobody will write these pages again."""
        self.durable = self.after_cut(rng)
        self.pending.clear()

    def content(self) -> bytes:
        """As the process sees it."""
        content = bytearray(self.durable)
        for change in self.pending:
            _apply(content, change)
        return bytes(content)

    def after_cut(self, rng: Random) -> bytearray:
        """What a power cut may leave."""
        content = bytearray(self.durable)
        how = rng.choice(("none", "all", "first", "any", "any"))
        if how == "none":
            return content
        pending = self.pending
        if how == "first":
            pending = pending[: rng.randint(0, len(pending))]
        for position, data in pending:
            if data is None or how != "any":
                if how != "any" or rng.random() < 0.5:
                    _apply(content, (position, data))
                continue
            for sector, part in _sectors(position, data):
                if rng.random() < 0.5:
                    _apply(content, (sector, part))
        if how == "any" and len(content) < self.size and rng.random() < 0.5:
            content.extend(bytes(self.size - len(content)))  # the length is there, the data is not
        return content


def _apply(content: bytearray, change: tuple[int, bytes | None]) -> None:
    position, data = change
    if len(content) < position:
        content.extend(bytes(position - len(content)))
    if data is None:
        del content[position:]
    else:
        content[position : position + len(data)] = data


def _sectors(position: int, data: bytes) -> list[tuple[int, bytes]]:
    if len(data) > 16 * 1024:  # zeros that are written ahead
        return [(position, data[:SECTOR_BYTES]), (position + SECTOR_BYTES, data[SECTOR_BYTES:])]
    found = []
    begin = position
    while begin < position + len(data):
        end = min(position + len(data), (begin // SECTOR_BYTES + 1) * SECTOR_BYTES)
        found.append((begin, data[begin - position : end - position]))
        begin = end
    return found


class Names:
    """Which file each name stands for: what is durable of that, and what was changed since."""

    def __init__(self) -> None:
        self._durable: dict[str, dict[str, File]] = {}
        self._pending: dict[str, list[tuple[Name | None, Name | None, File]]] = {}  # from, to; by directory
        self._changes: dict[str, int] = {}  # ever made in a directory

    def place(self, name: Name, file: File) -> None:
        """It is there durably."""
        self._durable.setdefault(name[0], {})[name[1]] = file

    def changed(self, source: Name | None, target: Name | None, file: File) -> None:
        """A file was made (without `source`), removed (without `target`) or renamed."""
        directory = (target or source or ("", ""))[0]
        self._pending.setdefault(directory, []).append((source, target, file))
        self._changes[directory] = self.changes(directory) + 1

    def changes(self, directory: str) -> int:
        return self._changes.get(directory, 0)

    def synced(self, directory: str, changes: int | None = None) -> None:
        """All changes in a directory are durable, or those that had been made when there were so many."""
        pending = self._pending.get(directory, [])
        count = max(0, len(pending) - (0 if changes is None else self.changes(directory) - changes))
        for change in pending[:count]:
            _rename(self._durable, change)
        del pending[:count]
        if not pending:
            self._pending.pop(directory, None)

    def after_cut(self, rng: Random, is_unordered: bool) -> dict[str, dict[str, File]]:
        """What a power cut may leave."""
        names = {directory: dict(found) for directory, found in self._durable.items()}
        for _, changes in sorted(self._pending.items()):
            if is_unordered:
                kept = [change for change in changes if rng.random() < 0.5]
            else:
                kept = changes[: rng.choice((0, len(changes), rng.randint(0, len(changes))))]
            for change in kept:
                _rename(names, change)
        return names


def _rename(names: dict[str, dict[str, File]], change: tuple[Name | None, Name | None, File]) -> None:
    source, target, file = change
    if source is not None and names.get(source[0], {}).get(source[1]) is file:
        del names[source[0]][source[1]]
    if target is not None:
        names.setdefault(target[0], {})[target[1]] = file
