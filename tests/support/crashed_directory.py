"""What a crash at this moment would leave on the disk: a copy of a directory that did not change meanwhile."""

import shutil
from pathlib import Path


def _signature(directory: Path) -> list[tuple[str, int, int]]:
    found = []
    for path in sorted(directory.rglob("*")):
        status = path.stat()
        found.append((str(path), status.st_size, status.st_mtime_ns))
    return found


def copy_as_crashed(directory: Path, to: Path) -> None:
    """Background work may still be going on; what is copied half before and half after it is not a crash."""
    for _ in range(1_000):
        try:
            before = _signature(directory)
            shutil.copytree(directory, to)
            if _signature(directory) == before:
                return
        except (shutil.Error, FileNotFoundError):
            pass
        shutil.rmtree(to, ignore_errors=True)
    raise AssertionError(f"{directory} does not hold still")
