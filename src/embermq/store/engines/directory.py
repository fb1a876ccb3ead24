"""The data directory: where the log and the state live, and which server uses it.

Owns: its layout, its access rights, the lock against a second server, and whether it is still there.
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import Final, final

from embermq.store.errors import StoreBusy, StoreError
from embermq.store.log.segments import check_place, lock_file, make_directory


@final
class DataDirectory:
    """A data directory, locked until it is closed or the process ends."""

    def __init__(self, path: Path) -> None:
        self.path: Final = path
        self.log: Final = path / "log"
        self.state: Final = path / "state"
        self._descriptor = -1
        try:
            for directory in (path, self.log, self.state):
                make_directory(directory)
                directory.chmod(0o700)
            self._descriptor = lock_file(path / "LOCK")
        except BlockingIOError:
            holder = (path / "LOCK").read_text("ascii", "replace").strip()
            raise StoreBusy(f"the data directory {path} is in use by another server, process {holder}") from None
        except FileExistsError as existing:
            raise StoreError(
                f"the data directory {path} cannot be used: {existing.filename} is not a directory"
            ) from existing
        except OSError as error:
            raise StoreError(f"the data directory {path} cannot be used: {error.strerror}") from error
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)
        self._opened: Final = [
            (str(path / "LOCK"), os.fstat(self._descriptor)),
            (str(self.log), os.stat(self.log)),
            (str(self.state), os.stat(self.state)),
        ]

    def check(self) -> None:
        """`DirectoryLost` if a part of it is not at its path any more; OSError if that cannot be told."""
        for path, opened in self._opened:
            check_place(path, opened)

    def keep_private(self) -> None:
        """Take the rights of others away from the files of RocksDB, which makes them as the umask says."""
        for entry in os.scandir(self.state):
            with suppress(FileNotFoundError):  # RocksDB deletes files in the background
                if entry.is_file() and entry.stat().st_mode & 0o077:
                    os.chmod(entry.path, 0o600)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
