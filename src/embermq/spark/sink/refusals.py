"""The rows of one task that the server has refused, in a file.

Owns: the file and its format: a JSON object a line with topic, payload (or payload_base64), reason_code and reason.
"""

import json
from base64 import b64encode
from collections import Counter
from pathlib import Path
from typing import Any, Final, TextIO, final

from embermq.spark.sink.publisher import PublishFailed, Refused


@final
class Refusals:
    """Gathers refused rows. The file is made with the first one; an attempt of the same task replaces it."""

    __slots__ = ("counts", "_path", "_file")

    def __init__(self, directory: str, name: str) -> None:
        self.counts: Final[Counter[str]] = Counter()  # by reason
        self._path: Final = Path(directory) / f"{name}.jsonl"
        self._file: TextIO | None = None
        if self._path.exists():
            self._path.unlink()

    def add(self, refused: Refused) -> None:
        """Count a row, and write it."""
        reason = refused.why()
        self.counts[reason] += 1
        shown: dict[str, Any] = {"topic": refused.topic.decode()}
        try:
            shown["payload"] = refused.payload.decode()
        except UnicodeDecodeError:
            shown["payload_base64"] = b64encode(refused.payload).decode()
        shown |= {"reason_code": refused.reason, "reason": reason}
        try:
            if self._file is None:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._file = self._path.open("w", encoding="utf-8")
            self._file.write(json.dumps(shown, ensure_ascii=False) + "\n")
        except OSError as error:
            raise PublishFailed(f"cannot write the refused rows to {self._path}: {error}") from None

    def close(self) -> None:
        """No more rows come."""
        if self._file is not None:
            self._file.close()
