"""The command line: `ember serve`, `ember passwd`, `ember config`, ...

Owns: the list of commands, and the exit codes: 0 for done, 2 with one sentence for an error that the user can correct.
Never: what a command does; each has a module in `embermq.commands`.
"""

import sys

import typer

from embermq import __version__
from embermq.commands import config, log, pipeline, retained, store
from embermq.commands.passwd import passwd
from embermq.commands.serve import serve
from embermq.commands.token import token
from embermq.commands.up import up
from embermq.compiled import form
from embermq.errors import ConfigError

app = typer.Typer(
    help="EmberMQ: an MQTT server whose retained messages and history are durable, complete and queryable.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,  # it imports rich and shows local variables, passwords among them
)
app.command()(serve)
app.command()(up)
app.command()(passwd)
app.command()(token)
app.add_typer(config.app, name="config")
app.add_typer(retained.app, name="retained")
app.add_typer(log.app, name="log")
app.add_typer(store.app, name="store")
app.add_typer(pipeline.app, name="pipeline")


@app.command()
def version() -> None:
    """Print the version, and whether the hot modules run compiled or interpreted."""
    print(f"ember {__version__} ({form()})")


def main() -> None:
    """The entry point of the `ember` command."""
    try:
        app()
    except ConfigError as error:
        print(f"ember: {error}", file=sys.stderr)
        sys.exit(2)
