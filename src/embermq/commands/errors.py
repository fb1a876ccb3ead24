"""Errors of commands: each becomes one sentence and an exit code, here for all commands.

Exit codes: 0 for done, 1 for no (nothing found, damage found, refused), 2 for an error that the user can correct.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from embermq.errors import ConfigError


def print_error(sentence: str) -> None:
    """Print the sentence of an error, which may quote a client's text."""
    from embermq.commands.output import printable

    print(f"ember: {printable(sentence)}", file=sys.stderr)


@contextmanager
def errors_as_sentences() -> Iterator[None]:
    """Turns the errors of the store, of the log and of the pipeline into the one sentence of a command.

    An output that is closed early, as by `| head`, is no error.
    """
    from embermq.lake.errors import PipelineError
    from embermq.store.errors import StoreError
    from embermq.store.log.errors import LogCorrupt

    try:
        yield
        sys.stdout.flush()
    except LogCorrupt as error:
        print_error(str(error))
        raise typer.Exit(1) from None
    except (StoreError, PipelineError) as error:
        raise ConfigError(str(error)) from None
    except PermissionError as error:
        raise ConfigError(f"{error.filename}: not accessible for this user") from None
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
