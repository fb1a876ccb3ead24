"""What the server takes from its process, replaced before the server is imported: clock, threads, disk, database.

Owns: the one place where names of other modules are changed. No line of the server knows that it is simulated.
"""

import importlib
import queue
import random
import threading
import time
import uuid
from types import ModuleType

import rocksdict

from simulation import clock, database, disk, threads

_is_installed = False


def install() -> None:
    """Change this process for good. Modules of the server that were imported before would keep the real ones."""
    global _is_installed
    if _is_installed:
        return
    _is_installed = True
    # What others import while these names are changed would be simulated too, so it is imported before.
    for name in ("asyncio", "concurrent.futures", "hashlib", "logging", "multiprocessing", "pydantic", "numpy", "ssl"):
        importlib.import_module(name)
    for name in ("time", "monotonic", "perf_counter", "thread_time", "process_time"):
        setattr(time, name, clock.now_s if name == "time" else clock.monotonic_s)
    time.time_ns = clock.now_ns
    time.sleep = _no_sleep
    disk.install()
    names = random.Random(0)
    uuid.uuid4 = lambda: uuid.UUID(int=names.getrandbits(128), version=4)
    _replace(rocksdict, "WriteBatch", database.WriteBatch)
    _replace(rocksdict, "ReadOptions", database.ReadOptions)
    _replace(importlib.import_module("embermq.named_thread"), "NamedThread", threads.SimulatedThread)
    real = [
        _replace(queue, "SimpleQueue", threads.SimulatedQueue),
        _replace(threading, "Event", threads.SimulatedEvent),
    ]
    importlib.import_module("embermq.store.engines.disk")
    importlib.import_module("embermq.transport.stream")
    for module, attribute, value in real:
        setattr(module, attribute, value)


def _replace(module: ModuleType, name: str, value: object) -> tuple[ModuleType, str, object]:
    real = getattr(module, name)
    setattr(module, name, value)
    return module, name, real


def _no_sleep(_: object) -> None:
    """Nothing in the server waits in its one thread; `sleep(0)` gives way to threads, which the world does itself."""
