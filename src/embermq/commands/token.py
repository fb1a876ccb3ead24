"""`ember token`: who may use the HTTP interface on its port."""

from pathlib import Path
from typing import Annotated

import typer

from embermq.errors import ConfigError


def token(
    file: Annotated[Path, typer.Argument(help="The token file; created if it does not exist.")],
    name: Annotated[str, typer.Argument(help="Who gets the token, for the audit log.")],
    role: Annotated[
        str,
        typer.Option(help="viewer: may ask; reader: also register what it has read; operator: may change all."),
    ] = "viewer",
    delete: Annotated[bool, typer.Option("--delete", help="Remove the token.")] = False,
) -> None:
    """Make a token for the HTTP interface, or remove one. It is printed once; the file has its hash.

    A running server reads the file again on SIGHUP.
    """
    import sys

    from embermq.access.tokens import ROLES, delete_token, write_token

    if delete:
        if not delete_token(file, name):
            raise ConfigError(f"{file} has no token of {name!r}")
        print(f"removed {name} from {file}")
        return
    if role not in ROLES:
        raise ConfigError(f"--role {role}: expected viewer, reader or operator")
    made = write_token(file, name, role)
    print(made)
    print(f"the token of {name}, {role}: it cannot be shown again", file=sys.stderr)
