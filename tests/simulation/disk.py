"""The disk below the server: real files in memory for what the process sees, and a model of what would survive.

Owns: the stand-ins for the functions of `os` that change files, what of each file and directory is durable, and what a
power cut leaves. Reads, also mapped ones, are real: they see the page cache, which is the real files.

What a power cut may leave is decided in `durable`. After a failed sync the pages count as clean: some have reached the
disk, the others never will unless they are written again. Directories themselves are durable when they are made.
"""

import errno
import os
import shutil
import stat
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any, Final

from simulation import threads
from simulation.clock import CLOCK
from simulation.durable import File, Name, Names

FREE_BYTES: Final = 64 << 30
_BLOCK_BYTES: Final = 4096


class PowerCut(BaseException):
    """The machine has stopped in the middle of a write."""


class Disk:
    """The files below one directory, from one power cut to the next."""

    def __init__(self, root: Path, rng: Random, is_unordered: bool = False) -> None:
        self.root = root
        self.rng: Final = rng
        self.is_unordered: Final = is_unordered
        self.failure = ""  # "full", "write", "sync", "read-only" or "short"; empty: it works
        self.latency_us = 0  # of each write and sync
        self.is_off = False  # the process is gone: what it still does has no effect
        self.cut_in = -1  # the power is cut before so many more writes and syncs; below 0: it is not
        self.operations = 0
        self.synced_operations = 0
        self.lives = 0
        self._files: dict[int, File] = {}  # by inode
        self._names = Names()
        self.descriptors: set[int] = set()
        _make_directory(root)

    # -- what the process does ---------------------------------------------------------------------------------------

    def covers(self, path: str) -> bool:
        return path.startswith(f"{self.root}/")

    def file(self, descriptor: int) -> File | None:
        return self._files.get(_fstat(descriptor).st_ino)

    def step(self, is_change: bool = True, may_wait: bool = False) -> None:
        """One operation begins: the power may be cut, the disk may refuse it, other threads may run meanwhile."""
        if may_wait and not threads.is_main() and not self.is_off:
            threads.pause(CLOCK.now_us + self.latency_us)
        if self.is_off:
            return
        self.operations += 1
        if self.cut_in >= 0:
            self.cut_in -= 1
            if self.cut_in < 0:
                raise PowerCut
        if is_change:
            self.refuse_change()

    def refuse_change(self) -> None:
        if self.failure == "full":
            raise OSError(errno.ENOSPC, "No space left on device")
        if self.failure == "read-only":
            raise OSError(errno.EROFS, "Read-only file system")
        if self.failure == "write":
            raise OSError(errno.EIO, "Input/output error")

    def opened(self, path: str, descriptor: int, is_new: bool) -> None:
        self.descriptors.add(descriptor)
        found = _fstat(descriptor)
        if stat.S_ISREG(found.st_mode) and found.st_ino not in self._files:
            file = self._files[found.st_ino] = File()
            if is_new:
                self.changed_name(None, path, file)

    def changed_name(self, source: str | None, target: str | None, file: File | None) -> None:
        if file is None:
            return
        names = [None if path is None else self._name(path) for path in (source, target)]
        self._names.changed(names[0], names[1], file)

    def named(self, path: str) -> File | None:
        try:
            return self._files.get(os.stat(path).st_ino)
        except FileNotFoundError:
            return None

    def sync(self, descriptor: int) -> None:
        found = _fstat(descriptor)
        if stat.S_ISDIR(found.st_mode):
            path = os.readlink(f"/proc/self/fd/{descriptor}")
            self._sync_directory("" if path == str(self.root) else path[len(str(self.root)) + 1 :])
            return
        file = self._files.get(found.st_ino)
        if file is not None:
            self._notice_writes(file, descriptor, found.st_size)
            if self.failure == "sync":
                file.sync_failed(self.rng)
                raise OSError(errno.EIO, "Input/output error")
            file.synced()

    def _sync_directory(self, directory: str) -> None:
        if self.failure == "sync":
            raise OSError(errno.EIO, "Input/output error")
        self._names.synced(directory)

    def _notice_writes(self, file: File, descriptor: int, size: int) -> None:
        """Python's own files write without `os`; such files only grow."""
        if size > file.size:
            content = Path(f"/proc/self/fd/{descriptor}").read_bytes()
            file.wrote(file.size, content[file.size :])

    def _name(self, path: str) -> Name:
        directory, _, name = path[len(str(self.root)) + 1 :].rpartition("/")
        return directory, name

    # -- how it ends -------------------------------------------------------------------------------------------------

    def process_ended(self) -> None:
        """The process is gone, and its threads have unwound: its descriptors are closed."""
        for descriptor in self.descriptors:
            with suppress(OSError):  # one that Python's own files have closed
                if self.covers(f"{os.readlink(f'/proc/self/fd/{descriptor}')}/"):
                    _close(descriptor)
        self.descriptors.clear()
        self.is_off = False
        self.cut_in = -1

    def cut_power(self) -> None:
        """What is not durable is gone, or is not: the next process finds one of the legal images."""
        self._take_unnoticed()
        names = self._names.after_cut(self.rng, self.is_unordered)
        directories = [str(path.relative_to(self.root)) for path in sorted(self.root.rglob("*")) if path.is_dir()]
        old, self.lives = self.root, self.lives + 1
        self.root = old.with_name(f"life-{self.lives}")
        _make_directory(self.root)
        for directory in directories:
            _make_directory(self.root / directory)
        contents: dict[int, bytes] = {}
        self._files, self._names = {}, Names()
        for directory, found in sorted(names.items()):
            for name, file in sorted(found.items()):
                if id(file) not in contents:
                    contents[id(file)] = bytes(file.after_cut(self.rng))
                self._place(directory, name, contents[id(file)])
        shutil.rmtree(old)

    def _place(self, directory: str, name: str, content: bytes) -> None:
        path = self.root / directory / name
        path.write_bytes(content)
        file = self._files[os.stat(path).st_ino] = File(content)
        self._names.place((directory, name), file)

    def _take_unnoticed(self) -> None:
        for path in self.root.rglob("*"):
            file = self._files.get(os.stat(path).st_ino)
            if file is not None and os.stat(path).st_size > file.size:
                file.wrote(file.size, path.read_bytes()[file.size :])


DISK: Disk | None = None


def use(disk: Disk | None) -> None:
    """The files of this disk are simulated from now on."""
    global DISK
    DISK = disk


# -- in the place of the functions of os -----------------------------------------------------------------------------

_open: Final = os.open
_close: Final = os.close
_fstat: Final = os.fstat
_write: Final = os.write
_pwrite: Final = os.pwrite
_ftruncate: Final = os.ftruncate
_fsync: Final = os.fsync
_fdatasync: Final = os.fdatasync
_rename: Final = os.rename
_unlink: Final = os.unlink
_mkdir: Final = os.mkdir
_statvfs: Final = os.statvfs


def _make_directory(path: Path) -> None:
    _mkdir(path, 0o700) if not path.exists() else None


def install() -> None:
    for name, function in {
        "open": _simulated_open,
        "close": _simulated_close,
        "write": _simulated_write,
        "pwrite": _simulated_pwrite,
        "ftruncate": _simulated_ftruncate,
        "fsync": _simulated_sync,
        "fdatasync": _simulated_sync,
        "rename": _simulated_rename,
        "replace": _simulated_rename,
        "unlink": _simulated_unlink,
        "remove": _simulated_unlink,
        "statvfs": _simulated_statvfs,
    }.items():
        setattr(os, name, function)


def _simulated_open(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
    name = os.fspath(path) if not isinstance(path, int) else ""
    disk = DISK
    if disk is None or not isinstance(name, str) or not disk.covers(name):
        return _open(path, flags, mode, dir_fd=dir_fd)
    is_new = bool(flags & os.O_CREAT) and not os.path.lexists(name)
    if is_new:
        disk.step()
        if disk.is_off:
            raise OSError(errno.EIO, "the process is gone")
    descriptor = _open(path, flags, mode)
    disk.opened(name, descriptor, is_new)
    if flags & os.O_TRUNC and not is_new:
        file = disk.file(descriptor)
        if file is not None:
            file.cut(0)
    return descriptor


def _simulated_close(descriptor: int) -> None:
    if DISK is not None:
        DISK.descriptors.discard(descriptor)
    _close(descriptor)


def _tracked(descriptor: int) -> tuple[Disk, File] | None:
    if DISK is None:
        return None
    file = DISK.file(descriptor)
    return None if file is None else (DISK, file)


def _simulated_write(descriptor: int, data: Any) -> int:
    found = _tracked(descriptor)
    if found is None:
        return _write(descriptor, data)
    written = _simulated_pwrite(descriptor, data, os.lseek(descriptor, 0, os.SEEK_CUR))
    os.lseek(descriptor, written, os.SEEK_CUR)
    return written


def _simulated_pwrite(descriptor: int, data: Any, position: int) -> int:
    found = _tracked(descriptor)
    if found is None:
        return _pwrite(descriptor, data, position)
    disk, file = found
    size = len(data)
    disk.step(is_change=disk.failure != "full", may_wait=True)
    if disk.is_off:
        return size
    if disk.failure == "full" and position + size > file.size:  # what lies inside the file has its place
        room = disk.rng.choice((0, 0, size // 2))
        if not room:
            raise OSError(errno.ENOSPC, "No space left on device")
        data = memoryview(data)[:room]
    elif disk.failure == "short" and size > 1:  # the rest is taken when it is asked for
        data = memoryview(data)[: disk.rng.randint(1, size)]
    written = _pwrite(descriptor, data, position)
    file.wrote(position, bytes(data[:written]))
    return written


def _simulated_ftruncate(descriptor: int, size: int) -> None:
    found = _tracked(descriptor)
    if found is None:
        return _ftruncate(descriptor, size)
    disk, file = found
    disk.step(is_change=disk.failure != "full")
    if not disk.is_off:
        _ftruncate(descriptor, size)
        file.cut(size)
    return None


def _simulated_sync(descriptor: int) -> None:
    disk = DISK
    if disk is None or (disk.file(descriptor) is None and not stat.S_ISDIR(_fstat(descriptor).st_mode)):
        return _fsync(descriptor)
    disk.step(is_change=False, may_wait=True)
    if not disk.is_off:
        disk.sync(descriptor)
    return None


def _simulated_rename(source: Any, target: Any, **options: Any) -> None:
    disk = DISK
    if disk is None or not disk.covers(os.fspath(source)):
        return _rename(source, target, **options)
    disk.step()
    if disk.is_off:
        return None
    file = disk.named(os.fspath(source))
    _rename(source, target)
    disk.changed_name(os.fspath(source), os.fspath(target), file)
    return None


def _simulated_unlink(path: Any, *, dir_fd: int | None = None) -> None:
    disk = DISK
    if disk is None or dir_fd is not None or not disk.covers(os.fspath(path)):
        return _unlink(path, dir_fd=dir_fd)
    disk.step(is_change=disk.failure != "full")
    if disk.is_off:
        return None
    file = disk.named(os.fspath(path))
    _unlink(path)
    disk.changed_name(os.fspath(path), None, file)
    return None


def _simulated_statvfs(path: Any) -> Any:
    disk = DISK
    if disk is None or not isinstance(path, (str, os.PathLike)) or not disk.covers(f"{os.fspath(path)}/"):
        return _statvfs(path)
    real = list(_statvfs(path))
    free = 0 if disk.failure == "full" else FREE_BYTES
    real[0] = real[1] = _BLOCK_BYTES
    real[2] = 2 * FREE_BYTES // _BLOCK_BYTES
    real[3] = real[4] = free // _BLOCK_BYTES
    return os.statvfs_result(real)
