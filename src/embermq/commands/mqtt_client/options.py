"""Options that `ember pub` and `ember sub` share: which server, and who the client is.

The server is the one of --url, or the one that runs on --data, which says where it listens; else the one that the
settings describe (--config, the environment, the defaults). A password is never an option: every user of the machine
can read a command line.
"""

import os
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from embermq.client import URL_EXPECTED
from embermq.commands.options import config_option, directory_option
from embermq.errors import ConfigError

if TYPE_CHECKING:
    from embermq.client.address import ServerAddress
    from embermq.commands.mqtt_client.connection import MqttConnection

PASSWORD_VARIABLE: Final = "EMBERMQ_PASSWORD"
KEEP_ALIVE_S: Final = 60
_EVERY_ADDRESS: Final = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}


class Version(StrEnum):
    """The versions of MQTT that the client speaks."""

    V5 = "5"
    V311 = "3.1.1"


Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        metavar="URL",
        envvar="EMBERMQ_URL",
        show_default="the listener of the settings",
        help=f"The server: {URL_EXPECTED}, with user@ before the host.",
    ),
]
User = Annotated[
    str | None,
    typer.Option("--user", "-u", metavar="NAME", help=f"The user name; the password is in {PASSWORD_VARIABLE}."),
]
PasswordFile = Annotated[
    Path | None, typer.Option("--password-file", metavar="FILE", help="Read the password from a file's first line.")
]
Ca = Annotated[Path | None, typer.Option("--ca", metavar="FILE", help="The authority of the certificate, PEM.")]
Cert = Annotated[Path | None, typer.Option("--cert", metavar="FILE", help="The client's certificate, PEM.")]
Key = Annotated[Path | None, typer.Option("--key", metavar="FILE", help="The certificate's private key, PEM.")]
ClientId = Annotated[
    str | None, typer.Option("--id", "-i", metavar="ID", show_default="of the server's choice", help="The client id.")
]
Mqtt = Annotated[Version, typer.Option("--mqtt", metavar="5|3.1.1", help="The version of MQTT.")]
Qos = Annotated[int, typer.Option("--qos", "-q", min=0, max=2, metavar="QOS", help="The QoS.")]
Data = Annotated[
    Path | None,
    directory_option("--data", "The directory of a running server, which says where it listens.", False),
]
Config = Annotated[Path | None, config_option("The server's settings file, TOML.")]


def server_address(
    url: str | None,
    config: Path | None,
    ca: Path | None,
    certificate: Path | None,
    key: Path | None,
    data: Path | None = None,
) -> "tuple[ServerAddress, str | None]":
    """The address of the server, and the user name in its URL."""
    from embermq.client.address import address_of_url

    if url is not None and data is not None:
        raise ConfigError("--url and --data: expected one of them, not both")
    if data is not None:
        url = _listener_of(data, config)
    if url is None:
        return _address_of_settings(config, ca, certificate, key), None
    try:
        address, user, has_password = address_of_url(url, ca, certificate, key)
    except ValueError:
        raise ConfigError(f"--url: expected {URL_EXPECTED}") from None
    if has_password:
        raise ConfigError(f"--url: expected no password, every user can read it; set {PASSWORD_VARIABLE}")
    return address, user


def _listener_of(data: Path, config: Path | None) -> str:
    """Where the server that runs on a directory listens."""
    from embermq.commands.live.running_server import running_server

    with running_server(data, config) as server:
        listeners: list[str] = server.get("/api/v1/statistics")["listeners"]
    if not listeners:
        raise ConfigError(f"the server that runs on {data} has no listener that this command can use")
    url = listeners[0]
    for every, reachable in (("//0.0.0.0:", "//127.0.0.1:"), ("//[::]:", "//[::1]:")):
        url = url.replace(every, reachable)
    return url


def _address_of_settings(
    config: Path | None, ca: Path | None, certificate: Path | None, key: Path | None
) -> "ServerAddress":
    from embermq.client.address import WS_PATH, ServerAddress
    from embermq.config import load_unchecked

    every = load_unchecked(config).listeners.every(None)
    for kind in ("tcp", "tls", "ws", "wss"):
        for listener in every:
            if listener.kind == kind and listener.port:
                host = _EVERY_ADDRESS.get(listener.host[0], listener.host[0])
                ws_path = (listener.ws_paths[0] if listener.ws_paths else WS_PATH) if kind.startswith("ws") else ""
                if kind in ("tls", "wss"):
                    return ServerAddress(host, listener.port, True, None, ca, certificate, key, ws_path)
                return ServerAddress(host, listener.port, ws_path=ws_path)
    for listener in every:
        if listener.unix_path is not None:
            return ServerAddress(unix_path=listener.unix_path)
    raise ConfigError("the settings have no listener with a port: expected --url")


def password_of(file: Path | None) -> bytes | None:
    """The password in a file or in the environment; None if there is none."""
    if file is not None:
        try:
            return file.read_bytes().split(b"\n", 1)[0].rstrip(b"\r")
        except OSError as error:
            raise ConfigError(f"--password-file: cannot read {file}: {error.strerror or error}") from None
    found = os.environ.get(PASSWORD_VARIABLE)
    return os.fsencode(found) if found is not None else None


def connected(
    address: "tuple[ServerAddress, str | None]",
    user: str | None,
    password_file: Path | None,
    client_id: str | None,
    mqtt: Version,
    session_expiry_s: int = 0,
) -> "MqttConnection":
    """A connection to the server. A session that is to outlive it needs a client id."""
    from embermq.commands.mqtt_client.connection import MqttConnection
    from embermq.protocol.packets import Connect

    server, url_user = address
    user_name = user if user is not None else url_user
    password = password_of(password_file) if user_name is not None else None
    if session_expiry_s and client_id is None:
        raise ConfigError("--session-expiry: expected --id, the client id by which the session is found again")
    connect = Connect(
        client_id or "",
        not session_expiry_s,
        KEEP_ALIVE_S,
        None,
        user_name,
        password,
        session_expiry_s,
        protocol_level=5 if mqtt is Version.V5 else 4,
    )
    return MqttConnection(server, connect, f"set {PASSWORD_VARIABLE}, or use --password-file")
