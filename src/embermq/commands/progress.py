"""A progress bar on standard error, where a person looks at it."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Step = Callable[[int, int], None]
"""How much is done, of how much; 0 where that is not known."""


@contextmanager
def bar(title: str, unit: str = "") -> Iterator[Step]:
    """A bar for as long as the context lasts; it shows up with the first step, and only on a terminal."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn(title), BarColumn(), MofNCompleteColumn(), TextColumn(unit), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=False) as progress:
        task = progress.add_task(title, total=None, visible=False)
        yield lambda done, total: progress.update(task, completed=done, total=total or None, visible=True)
