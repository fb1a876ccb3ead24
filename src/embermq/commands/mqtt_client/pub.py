"""`ember pub`: publish messages."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from embermq.commands.errors import errors_as_sentences, print_error
from embermq.commands.mqtt_client import options
from embermq.commands.output import Json, json_line
from embermq.errors import ConfigError

if TYPE_CHECKING:
    from embermq.protocol.mqtt.properties import Properties
    from embermq.protocol.packets import Publish


TopicName = Annotated[str, typer.Argument(metavar="TOPIC", help="Topic name, without wildcards.")]
Payload = Annotated[str | None, typer.Argument(metavar="PAYLOAD", help="The payload, as text.")]
File = Annotated[Path | None, typer.Option("--file", "-f", metavar="FILE", help="The payload is a file's content.")]
Stdin = Annotated[bool, typer.Option("--stdin", "-s", help="The payload is the whole input, any bytes.")]
Lines = Annotated[bool, typer.Option("--lines", "-l", help="Each line of the input is a message.")]
Empty = Annotated[bool, typer.Option("--empty", "-n", help="No payload; with -r it clears the topic.")]
Retain = Annotated[bool, typer.Option("--retain", "-r", help="The server keeps it for new subscribers.")]
Expiry = Annotated[
    int | None, typer.Option("--expiry", min=0, max=0xFFFF_FFFF, metavar="S", help="Seconds until it expires.")
]
ContentType = Annotated[str | None, typer.Option("--content-type", help="What the payload is.")]
ResponseTopic = Annotated[str | None, typer.Option("--response-topic", help="Where an answer goes.")]
CorrelationData = Annotated[str | None, typer.Option("--correlation-data", help="What an answer repeats.")]
UserProperties = Annotated[
    list[str] | None, typer.Option("--property", metavar="NAME=VALUE", help="A user property; repeatable.")
]


def pub(
    topic_name: TopicName,
    payload: Payload = None,
    file: File = None,
    stdin: Stdin = False,
    lines: Lines = False,
    empty: Empty = False,
    retain: Retain = False,
    qos: options.Qos = 0,
    expiry: Expiry = None,
    content_type: ContentType = None,
    response_topic: ResponseTopic = None,
    correlation_data: CorrelationData = None,
    user_property: UserProperties = None,
    url: options.Url = None,
    user: options.User = None,
    password_file: options.PasswordFile = None,
    client_id: options.ClientId = None,
    mqtt: options.Mqtt = options.Version.V5,
    ca: options.Ca = None,
    cert: options.Cert = None,
    key: options.Key = None,
    json: Json = False,
    data: options.Data = None,
    config: options.Config = None,
) -> None:
    """Publish a message, or one for each line of the input. Exits with 1 if the server refuses one.

    At QoS 1 and 2 the command ends when the server has acknowledged all messages.
    """
    if sum((payload is not None, file is not None, stdin, lines, empty)) != 1:
        raise ConfigError("expected PAYLOAD, --file, --stdin, --lines or --empty, one of them")
    with errors_as_sentences():
        from embermq.protocol.mqtt.properties import write_properties
        from embermq.protocol.packets import Publish

        _check_name(topic_name)
        given = _properties(expiry, content_type, response_topic, correlation_data, user_property)
        if given and mqtt is not options.Version.V5:
            raise ConfigError("properties: expected --mqtt 5, MQTT 3.1.1 has none")
        properties = write_properties(given)
        payloads = _payloads(payload, file, stdin, lines)
        address = options.server_address(url, config, ca, cert, key, data)
        with options.connected(address, user, password_file, client_id, mqtt) as server:
            messages = (Publish(topic_name, each, qos, retain, False, 0, properties) for each in payloads)
            _show(server.publish(messages), json)


def _check_name(topic_name: str) -> None:
    from embermq.protocol.topics import check_topic_name

    problem = check_topic_name(topic_name)
    if problem:
        raise ConfigError(f"{topic_name}: expected a topic name: {problem}")


def _show(published: "Iterator[tuple[Publish, int]]", json: bool) -> None:
    """Say what became of each message."""
    from embermq.client.reasons import reason_text
    from embermq.commands.mqtt_client.connection import REFUSED

    refused = 0
    for message, reason in published:
        if json:
            shown = {"topic": message.topic_name, "bytes": len(message.payload), "qos": message.qos}
            print(json_line({**shown, "retain": message.retain, "reason": reason_text(reason)}), flush=True)
        if reason >= REFUSED:
            refused += 1
            print_error(f"the server refuses a message to {message.topic_name}: {reason_text(reason)}")
    if refused:
        raise typer.Exit(1)


def _payloads(payload: str | None, file: Path | None, stdin: bool, lines: bool) -> Iterator[bytes]:
    if payload is not None:
        yield os.fsencode(payload)  # bytes of the command line that are not UTF-8 stay as they are
    elif file is not None:
        try:
            yield file.read_bytes()
        except OSError as error:
            raise ConfigError(f"--file: cannot read {file}: {error.strerror or error}") from None
    elif stdin:
        yield sys.stdin.buffer.read()
    elif lines:
        for line in sys.stdin.buffer:
            yield line.rstrip(b"\r\n")
    else:
        yield b""


def _properties(
    expiry_s: int | None,
    content_type: str | None,
    response_topic: str | None,
    correlation_data: str | None,
    user_properties: list[str] | None,
) -> "Properties":
    found: Properties = []
    if expiry_s is not None:
        found.append(("message_expiry_interval", expiry_s))
    if content_type is not None:
        found.append(("content_type", content_type))
    if response_topic is not None:
        found.append(("response_topic", response_topic))
    if correlation_data is not None:
        found.append(("correlation_data", os.fsencode(correlation_data)))
    for pair in user_properties or []:
        name, equals, value = pair.partition("=")
        if not equals:
            raise ConfigError(f"--property {pair}: expected NAME=VALUE")
        found.append(("user_property", (name, value)))
    return found
