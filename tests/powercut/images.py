"""The files of a recorded process as they are at each moment, and what a power cut may leave of them.

Owns: following the recorded changes. What is durable is decided in `simulation.durable`; a directory is a file there,
whose name must be durable as well.
"""

import re
from pathlib import Path
from random import Random

from powercut.events import Event, Happened
from simulation.durable import File, Name, Names


class NotFollowed(Exception):
    """The process changed a file in a way that the recorder does not follow."""


class Images:
    """`ignoring`: syncs of paths below the root that fit this count for nothing, as if the server had left them out."""

    def __init__(self, root: Path, ignoring: str = "") -> None:
        self._root = str(root)
        self._ignoring = re.compile(ignoring or "(?!)")
        self._names = Names()
        self._present: dict[Name, File] = {}  # as the process sees it
        self._directories: set[str] = {""}
        self._files: dict[int, File] = {}  # by inode
        self._begun: dict[int, tuple[File | None, int]] = {}  # by inode: how many changes the sync that runs covers
        self.syncs = 0

    def follow(self, event: Event) -> None:
        if event.kind == Happened.UNSUPPORTED:
            raise NotFollowed(f"{event.data.decode()} of {event.path}")
        if event.kind in (Happened.SEND, Happened.RECEIVE, Happened.ACCEPT):
            return
        name = self._name(event.path)
        if event.kind == Happened.WRITE:
            self._files[event.inode].wrote(event.position, event.data)
        elif event.kind == Happened.TRUNCATE:
            self._files[event.inode].cut(event.position)
        elif event.kind == Happened.SYNC_BEGINS:
            self._sync_begins(event)
        elif event.kind == Happened.SYNC_DONE:
            self._sync_done(event)
        elif event.kind in (Happened.CREATE, Happened.MKDIR):
            file = self._files[event.inode] = File()
            self._changed(None, name, file)
            if event.kind == Happened.MKDIR:
                self._directories.add("/".join(filter(None, name)))
        elif event.kind == Happened.RENAME:
            self._changed(name, self._name(event.data.decode()), self._present[name])
        elif event.kind == Happened.UNLINK and name in self._present:  # else it was a socket
            self._changed(name, None, self._present[name])

    def _changed(self, source: Name | None, target: Name | None, file: File) -> None:
        self._names.changed(source, target, file)
        if source is not None:
            del self._present[source]
        if target is not None:
            self._present[target] = file

    def _sync_begins(self, event: Event) -> None:
        directory = self._inner(event.path)
        if directory in self._directories:
            self._begun[event.inode] = None, self._names.changes(directory)
        else:
            file = self._files[event.inode]
            self._begun[event.inode] = file, file.changes

    def _sync_done(self, event: Event) -> None:
        file, changes = self._begun[event.inode]
        if self._ignoring.fullmatch(self._inner(event.path)):
            return
        self.syncs += 1
        if file is None:
            self._names.synced(self._inner(event.path), changes)
        else:
            file.synced(changes)

    def _inner(self, path: str) -> str:
        return path[len(self._root) + 1 :]

    def _name(self, path: str) -> Name:
        directory, _, name = self._inner(path).rpartition("/")
        return directory, name

    def present(self) -> dict[str, bytes]:
        """All files by path, as the process sees them."""
        return {
            "/".join(filter(None, name)): file.content()
            for name, file in self._present.items()
            if "/".join(filter(None, name)) not in self._directories
        }

    def make(self, to: Path, rng: Random, is_unordered: bool = False) -> None:
        """Fill a directory with what a power cut may leave now."""
        self._make("", to, self._names.after_cut(rng, is_unordered), rng)

    def _make(self, directory: str, to: Path, names: dict[str, dict[str, File]], rng: Random) -> None:
        to.mkdir(mode=0o700)
        for name, file in sorted(names.get(directory, {}).items()):
            inner = f"{directory}/{name}" if directory else name
            if inner in self._directories:
                self._make(inner, to / name, names, rng)
            else:
                (to / name).write_bytes(file.after_cut(rng))
