"""`ember init`: the files of a new server: settings, a first user, an authority and a certificate.

Owns: what is made, and that nothing is overwritten.
Never: starting the server.
"""

import json
import os
import re
import socket
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Final

import typer

from embermq.commands.options import asked_password
from embermq.errors import ConfigError

AUTHORITY: Final = "EmberMQ authority"
AUTHORITY_DAYS: Final = 3650
SERVER_DAYS: Final = 825
"""Some clients refuse a server's certificate that is valid for longer."""
TLS_PORT: Final = 8883
HTTP_PORT: Final = 8080


def init(
    directory: Annotated[Path, typer.Argument(metavar="[DIR]", show_default=".", help="Where to.")] = Path(),
    user: Annotated[str, typer.Option(help="The first user, who may do everything.")] = "admin",
    host: Annotated[
        list[str] | None,
        typer.Option(
            show_default="this machine's", help="A name or address by which clients reach the server; repeatable."
        ),
    ] = None,
    stdin: Annotated[bool, typer.Option("--stdin", help="Read the password from the first line of the input.")] = False,
    tls: Annotated[bool, typer.Option("--tls/--no-tls", help="Whether to make a certificate.")] = True,
) -> None:
    """Make the files of a new server: ember.toml, a first user, a certificate.

    Nothing is overwritten: what exists is kept. To renew the certificate, delete server.crt and server.key and run this
    again, then `ember reload`.
    """
    from embermq.access.passwords import check_user_name

    problem = check_user_name(user)
    if problem:
        raise ConfigError(f"--user {user!r}: {problem}")
    directory = directory.absolute()
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if tls:
            _make_certificate(directory, host or [socket.gethostname()])
        _make_user(directory / "passwords", user, stdin)
        is_made = _make_settings(directory, user, tls)
    except OSError as error:
        raise ConfigError(f"cannot write {error.filename}: {error.strerror or error}") from None
    print(f"\nStart the server:  ember serve --config {_shown(directory / 'ember.toml')}")
    if not is_made:
        return
    print(f"Then the page is at http://127.0.0.1:{HTTP_PORT}, for {user}.")
    if tls:
        print(f"Clients trust {_shown(directory / 'ca.crt')} and connect to port {TLS_PORT}.")
        print('To accept other machines, set host = "0.0.0.0" and tcp = false in the section [listeners].')
    else:
        print('To accept other machines, set host = "0.0.0.0" in the section [listeners]; nothing is encrypted then.')


def _make_certificate(directory: Path, hosts: list[str]) -> None:
    try:
        from embermq.certificates import THIS_MACHINE, Authority
    except ImportError:
        raise ConfigError(
            "a certificate needs the package cryptography: pip install 'embermq[tls]', or use --no-tls"
        ) from None
    key, certificate = directory / "ca.key", directory / "ca.crt"
    is_known = _exist_both(certificate, key)
    authority = Authority(directory, "ca", timedelta(days=AUTHORITY_DAYS), key, common_name=AUTHORITY)
    _say(certificate, is_known, f"the authority that clients trust, valid for {AUTHORITY_DAYS} days")
    certificate = directory / "server.crt"
    if _exist_both(certificate, directory / "server.key"):
        _say(certificate, True, "")
        return
    names = list(dict.fromkeys((*hosts, *THIS_MACHINE)))
    authority.sign("server", names, timedelta(days=SERVER_DAYS))
    _say(certificate, False, f"the server's certificate for {', '.join(names)}, valid for {SERVER_DAYS} days")


def _exist_both(certificate: Path, key: Path) -> bool:
    if certificate.exists() != key.exists():
        raise ConfigError(f"there is only one of {certificate} and {key}: put the other one back, or delete it")
    return key.exists()


def _make_user(path: Path, user: str, stdin: bool) -> None:
    from embermq.access.passwords import write_password

    if path.exists():
        _say(path, True, "")
        return
    write_password(path, user, asked_password(stdin, f"Password of {user}"))
    _say(path, False, f"the users, {user} for now; `ember passwd` adds others")


def _make_settings(directory: Path, user: str, tls: bool) -> bool:
    """False: there are settings."""
    path = directory / "ember.toml"
    if path.exists():
        _say(path, True, "")
        return False
    text = settings_text(directory, user, tls)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    _say(path, False, "every setting, explained")
    return True


def settings_text(directory: Path, user: str, tls: bool) -> str:
    """The sample with what the files of a directory need set."""
    from embermq.settings import sample

    wanted: dict[tuple[str, str], object] = {
        ("access", "password_file"): str(directory / "passwords"),
        ("store", "directory"): str(directory / "ember-data"),
        ("http", "port"): HTTP_PORT,
        ("http", "operators"): [user],
    }
    if tls:
        wanted["listeners", "tls_port"] = TLS_PORT
        wanted["listeners", "certificate"] = str(directory / "server.crt")
        wanted["listeners", "key"] = str(directory / "server.key")
    lines: list[str] = []
    section = ""
    for line in sample().splitlines():
        if found := re.fullmatch(r"\[(\w+)\]", line):
            section = found[1]
        elif (found := re.match(r"(?:# )?(\w+) = ", line)) and (section, found[1]) in wanted:
            value = wanted.pop((section, found[1]))
            line = f"{found[1]} = {json.dumps(value, ensure_ascii=False)}"  # for these values TOML is as JSON
        lines.append(line)
    assert not wanted, f"the sample has no line for {wanted}"
    return "\n".join(lines) + "\n"


def _say(path: Path, is_known: bool, what: str) -> None:
    print(f"{_shown(path)}: {'exists, kept' if is_known else what}")


def _shown(path: Path) -> str:
    """A path as somebody in this directory would write it."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)
