"""What can be wrong with a log, each as a sentence for the operator.

Owns: the errors of the log's writer and of its reader. Each is built from plain values, so that it can cross a process.
"""

from typing import Final, final

from embermq.store.errors import StoreError


class LogError(StoreError):
    """A log that cannot be used as it is."""


@final
class LogCorrupt(LogError):
    """Bytes of the log are not what was written. `position` is where in `file` the bad block begins."""

    def __init__(self, file: str, position: int, detail: str) -> None:
        super().__init__(file, position, detail)
        self.file: Final = file
        self.position: Final = position
        self.detail: Final = detail

    def __str__(self) -> str:
        return f"the log is damaged: {self.file}, position {self.position}: {self.detail}"


@final
class BadBlock(LogError):
    """These bytes are not a whole, undamaged block."""


class LogTrimmed(LogError):
    """The asked offset is older than what the log still keeps."""

    def __init__(self, offset: int, first_available: int) -> None:
        super().__init__(offset, first_available)
        self.offset: Final = offset
        self.first_available: Final = first_available

    def __str__(self) -> str:
        return f"offset {self.offset} is no longer in the log, which now begins at offset {self.first_available}"


@final
class LogLost(LogTrimmed):
    """The asked offset was lost with a machine. Who asks for it has read records that the log does not have."""

    def __str__(self) -> str:
        return (
            f"offset {self.offset} was lost with the machine that wrote it: the log was restored from its archive and"
            f" goes on at offset {self.first_available}"
        )


@final
class NotALog(LogError):
    """A directory without a log in it."""

    def __init__(self, directory: str, detail: str) -> None:
        super().__init__(directory, detail)
        self.directory: Final = directory
        self.detail: Final = detail

    def __str__(self) -> str:
        return f"{self.directory} is not an EmberMQ log: {self.detail}"


@final
class NewerFormat(LogError):
    """A log that a newer EmberMQ wrote."""

    def __init__(self, file: str, found: int, known: int) -> None:
        super().__init__(file, found, known)
        self.file: Final = file
        self.found: Final = found
        self.known: Final = known

    def __str__(self) -> str:
        return (
            f"{self.file} has log format {self.found}; this EmberMQ knows formats up to {self.known}, use a newer one"
        )


@final
class LogInUse(LogError):
    """Another process writes to this log."""

    def __init__(self, directory: str) -> None:
        super().__init__(directory)
        self.directory: Final = directory

    def __str__(self) -> str:
        return f"{self.directory} is in use by another server"
