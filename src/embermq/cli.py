"""The command line: `ember serve`, `ember passwd`, `ember config`, ...

Owns: the list of commands, the form of their help, and the exit codes: 0 for done, 1 for no, 2 with one sentence for an
error that the user can correct.
Never: what a command does; each has a module in `embermq.commands`.
"""

import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Annotated, Any, Final

import typer
from typer.core import TyperArgument, TyperGroup
from typer.exceptions import TyperException

from embermq import __version__
from embermq.commands.errors import print_error
from embermq.commands.groups import GroupedCommands
from embermq.compiled import form
from embermq.errors import ConfigError
from embermq.extras import missing_extra

PLACES: Final = {
    "init": "init",
    "migrate": "migrate",
    "serve": "serve",
    "up": "up",
    "passwd": "passwd",
    "access": "access",
    "token": "token",
    "pub": "mqtt_client.pub",
    "sub": "mqtt_client.sub",
    "sql": "sql",
    "clients": "live.clients",
    "sessions": "live.clients",
    "bridges": "live.bridges",
    "top": "live.top",
    "reload": "live.reload",
    "backup": "backup",
    "restore": "backup",
    "config": "config",
    "retained": "retained",
    "log": "log",
    "store": "store",
    "pipeline": "pipeline",
    "cluster": "nodes",
}
"""Each command, and the module in `embermq.commands` that has it as a function of its name, or a group as `app`."""


def version_text() -> str:
    """The name and version of this program, and whether the hot modules run compiled or interpreted."""
    return f"ember {__version__} ({form()})"


def _print_version(wanted: bool) -> None:
    if wanted:
        print(version_text())
        raise typer.Exit


def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """EmberMQ: an MQTT server whose retained messages and history are durable, complete and queryable."""


def version() -> None:
    """Print the version, and whether the hot modules run compiled or interpreted."""
    print(version_text())


def app_of(names: Iterable[str] = PLACES) -> typer.Typer:
    """The commands of some names, of which only the modules are imported."""
    app = typer.Typer(
        cls=GroupedCommands,
        no_args_is_help=True,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
        pretty_exceptions_enable=False,  # it imports rich and shows local variables, passwords among them
    )
    app.callback()(options)
    for name in names:
        module = import_module(f"embermq.commands.{PLACES[name]}")
        if hasattr(module, name):
            app.command(name)(getattr(module, name))
        else:
            app.add_typer(module.app, name=name)
    app.command()(version)
    return app


def command_tree(names: Iterable[str] = PLACES) -> Any:
    """Commands as Typer runs them: the root of a tree of commands and groups."""
    root = typer.main.get_command(app_of(names))
    _name_values(root)
    return root


def _called(arguments: Sequence[str]) -> Iterable[str]:
    """Which commands are needed: the one that is called; all for the help, and for what is no command."""
    first = arguments[0] if arguments else ""
    if first in ("--version", "version"):
        return ()
    return (first,) if first in PLACES else PLACES


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
        code = command_tree(_called(sys.argv[1:])).main(prog_name="ember", standalone_mode=False)
    except ConfigError as error:
        print_error(str(error))
        code = 2
    except ModuleNotFoundError as error:
        said = missing_extra(error)
        if said is None:
            raise
        print_error(said)
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
