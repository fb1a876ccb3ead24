"""The system knows the names of the server's threads."""

import _thread
import sys
import threading
from pathlib import Path

import pytest

from embermq.named_thread import NamedThread


@pytest.mark.skipif(sys.platform != "linux", reason="where names are shown differs by system")
def test_a_thread_and_those_that_it_starts_have_its_name() -> None:
    found: list[str] = []
    has_looked = threading.Semaphore(0)

    def look() -> None:
        found.append(Path(f"/proc/self/task/{threading.get_native_id()}/comm").read_text())
        has_looked.release()

    def start_another() -> None:
        look()
        _thread.start_new_thread(look, ())  # as a library does that is not written in Python

    NamedThread(start_another, "ember-example-of-a-long-name").start()
    assert all(has_looked.acquire(timeout=60) for _ in range(2))
    assert found == ["ember-example-o\n"] * 2
