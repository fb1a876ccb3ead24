"""The command line: `ember serve`, `ember passwd`, `ember config`, ...

Owns: the list of commands, the form of their help, and the exit codes: 0 for done, 1 for no, 2 with one sentence for an
error that the user can correct.
Never: what a command does; each has a module in `embermq.commands`.
"""

import sys
from typing import Annotated, Any

import typer
from typer.core import TyperArgument, TyperGroup
from typer.exceptions import TyperException

from embermq import __version__
from embermq.commands import config, log, pipeline, retained, store
from embermq.commands.errors import print_error
from embermq.commands.live.clients import clients, sessions
from embermq.commands.live.reload import reload
from embermq.commands.live.top import top
from embermq.commands.mqtt_client.pub import pub
from embermq.commands.mqtt_client.sub import sub
from embermq.commands.passwd import passwd
from embermq.commands.serve import serve
from embermq.commands.sql import sql
from embermq.commands.token import token
from embermq.commands.up import up
from embermq.compiled import form
from embermq.errors import ConfigError

app = typer.Typer(
    help="EmberMQ: an MQTT server whose retained messages and history are durable, complete and queryable.",
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,  # it imports rich and shows local variables, passwords among them
)
app.command()(serve)
app.command()(up)
app.command()(passwd)
app.command()(token)
app.command()(pub)
app.command()(sub)
app.command()(sql)
app.command()(clients)
app.command()(sessions)
app.command()(top)
app.command()(reload)
app.add_typer(config.app, name="config")
app.add_typer(retained.app, name="retained")
app.add_typer(log.app, name="log")
app.add_typer(store.app, name="store")
app.add_typer(pipeline.app, name="pipeline")


def version_text() -> str:
    """The name and version of this program, and whether the hot modules run compiled or interpreted."""
    return f"ember {__version__} ({form()})"


def _print_version(wanted: bool) -> None:
    if wanted:
        print(version_text())
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """EmberMQ: an MQTT server whose retained messages and history are durable, complete and queryable."""


@app.command()
def version() -> None:
    """Print the version, and whether the hot modules run compiled or interpreted."""
    print(version_text())


def command_tree() -> Any:
    """All commands, as Typer runs them: the root of a tree of commands and groups."""
    root = typer.main.get_command(app)
    _name_values(root)
    return root


def _name_values(command: Any) -> None:
    """Have help name the value of an option after the option, instead of the Python type."""
    command.rich_markup_mode = None
    for parameter in command.params:
        if parameter.metavar is None and not getattr(parameter, "is_flag", False):
            parameter.metavar = parameter.name.upper()
        if isinstance(parameter, TyperArgument):
            setattr(parameter, "display_type_rich", lambda ctx: "")  # noqa: B010
    if isinstance(command, TyperGroup):
        for below in command.commands.values():
            _name_values(below)


def main() -> None:
    """The entry point of the `ember` command."""
    try:
        code = command_tree().main(prog_name="ember", standalone_mode=False)
    except ConfigError as error:
        print_error(str(error))
        code = 2
    except TyperException as error:
        _print_usage_error(error)
        code = 2
    except typer.Abort:  # a question was not answered
        code = 1
    except KeyboardInterrupt:
        code = 130
    sys.exit(code if isinstance(code, int) else 0)


def _print_usage_error(error: TyperException) -> None:
    """The one sentence for wrong arguments; the help, if a group of commands was given none."""
    text = error.format_message().replace(": Input should be", ": expected")
    if "\n" in text:
        print(text, file=sys.stderr)
        return
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "ember"
    print_error(f"{text[:1].lower()}{text[1:].rstrip('.')} (see {path} --help)")
