"""An uploader whose archive a test reads in its own way."""

from collections.abc import Callable
from pathlib import Path

from embermq.archive.uploader import Uploader, UploadSettings
from embermq.store.engines.retention import Archiver
from embermq.store.history.trimmed import TrimmedLog


class WrappedUploader(Archiver):
    """An uploader whose archive is read through what `wrap` makes of it."""

    def __init__(self, place: str, wrap: Callable[[TrimmedLog], TrimmedLog]) -> None:
        self.uploader = Uploader(UploadSettings(place, check_s=0.02, retry_first_s=0.02))
        self._wrap = wrap

    def trimmed(self, log_directory: Path) -> TrimmedLog:
        return self._wrap(self.uploader.trimmed(log_directory))

    def begin(self, log_directory: Path) -> None:
        self.uploader.begin(log_directory)

    def wake(self) -> None:
        self.uploader.wake()

    def archived_before(self) -> int:
        return self.uploader.archived_before()

    def counts(self) -> dict[str, int]:
        return self.uploader.counts()

    def close(self) -> None:
        self.uploader.close()
