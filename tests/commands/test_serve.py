"""The end of `ember serve`: no request to an archive keeps the process."""

import re
from pathlib import Path

from embermq.commands.serve import ARCHIVE_THREADS

SOURCE = Path(__file__).parent.parent.parent / "src" / "embermq"
LOG_READER = "ember-history"  # waits for the disk only


def test_every_thread_that_may_wait_for_an_archive_is_known() -> None:
    modules = [path for place in ("archive", "http/past", "store/history") for path in (SOURCE / place).rglob("*.py")]
    names = {name for path in modules for name in re.findall(r'"(ember-[a-z-]+)', path.read_text())}
    assert {"ember-archive", "ember-fetch-", "ember-as-of"} <= names
    assert [name for name in sorted(names) if not name.startswith((*ARCHIVE_THREADS, LOG_READER))] == []
