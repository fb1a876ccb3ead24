"""`ember passwd`: the users of a password file."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from embermq.commands.options import asked_password
from embermq.errors import ConfigError


def passwd(
    file: Annotated[Path, typer.Argument(help="The password file; created if it does not exist.")],
    user: Annotated[str, typer.Argument(help="The user name.")],
    delete: Annotated[bool, typer.Option("--delete", help="Remove the user.")] = False,
    stdin: Annotated[bool, typer.Option("--stdin", help="Read the password from the first line of the input.")] = False,
    scram: Annotated[
        bool, typer.Option("--scram/--no-scram", help="Whether the user can log in with SCRAM-SHA-256 (MQTT 5) too.")
    ] = True,
) -> None:
    """Set a user's password, or remove the user. A running server reads the file again on SIGHUP.

    The file gets an argon2 hash for clients that send the password, and a SCRAM-SHA-256 credential for MQTT 5 clients
    that prove it without sending it.
    """
    from embermq.access.passwords import scram_problem, write_password

    if delete:
        if not file.exists() or not write_password(file, user, None):
            raise ConfigError(f"{file} has no user {user!r}")
        print(f"removed {user} from {file}")
        return
    password = asked_password(stdin)
    known = write_password(file, user, password, with_scram=scram)
    print(f"{'changed the password of' if known else 'added'} {user} in {file}")
    problem = scram_problem(user, password) if scram else None
    if problem:
        print(f"{user} cannot log in with SCRAM-SHA-256: {problem}", file=sys.stderr)
