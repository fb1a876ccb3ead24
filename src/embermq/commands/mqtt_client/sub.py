"""`ember sub`: subscribe, and print the messages that come."""

import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Final

import typer

from embermq.commands.errors import errors_as_sentences, print_error
from embermq.commands.mqtt_client import options
from embermq.commands.output import Json, json_line
from embermq.errors import ConfigError

if TYPE_CHECKING:
    from embermq.commands.mqtt_client.connection import MqttConnection
    from embermq.protocol.packets import Publish


FORMAT_HELP: Final = "%t topic, %p payload, %x in hex, %l bytes, %q QoS, %r RETAIN, %T time, %j JSON"

TopicFilters = Annotated[
    list[str], typer.Argument(metavar="FILTER...", help="Topic filters, such as home/+/temperature or home/#.")
]
Count = Annotated[int | None, typer.Option("--count", "-C", min=1, metavar="N", help="End after this many messages.")]
Wait = Annotated[float | None, typer.Option("--wait", "-W", min=0, metavar="S", help="End after this many seconds.")]
NoRetained = Annotated[bool, typer.Option("--no-retained", help="Leave out retained messages.")]
RetainedOnly = Annotated[bool, typer.Option("--retained-only", help="Show retained messages only.")]
RetainAsPublished = Annotated[
    bool, typer.Option("--retain-as-published", help="Keep RETAIN as the publisher set it (MQTT 5).")
]
FormatText = Annotated[
    str | None, typer.Option("--format", "-F", metavar="TEXT", help=f"Print each message so: {FORMAT_HELP}.")
]
Raw = Annotated[bool, typer.Option("--raw", help="Print only the payloads' bytes, unchanged.")]
SessionExpiry = Annotated[
    int,
    typer.Option("--session-expiry", min=0, max=0xFFFF_FFFF, metavar="S", help="Session Expiry Interval in seconds."),
]


def sub(
    topic_filters: TopicFilters,
    count: Count = None,
    wait: Wait = None,
    qos: options.Qos = 0,
    no_retained: NoRetained = False,
    retained_only: RetainedOnly = False,
    retain_as_published: RetainAsPublished = False,
    format: FormatText = None,
    raw: Raw = False,
    json: Json = False,
    session_expiry: SessionExpiry = 0,
    url: options.Url = None,
    user: options.User = None,
    password_file: options.PasswordFile = None,
    client_id: options.ClientId = None,
    mqtt: options.Mqtt = options.Version.V5,
    ca: options.Ca = None,
    cert: options.Cert = None,
    key: options.Key = None,
    data: options.Data = None,
    config: options.Config = None,
) -> None:
    """Print messages as they come, until Ctrl-C. Exits with 1 if fewer than -C have come within -W.

    A line is the topic and the payload. What a terminal would obey is printed as escapes, except with --raw.
    """
    _check_options(topic_filters, format, raw, json, no_retained and retained_only)
    with errors_as_sentences():
        address = options.server_address(url, config, ca, cert, key, data)
        until_s = None if wait is None else time.monotonic() + wait
        printed = 0
        with (
            suppress(KeyboardInterrupt),
            options.connected(address, user, password_file, client_id, mqtt, session_expiry) as server,
        ):
            handling = 2 if no_retained and mqtt is options.Version.V5 else 0
            _subscribe(server, topic_filters, qos, retain_as_published, handling)
            for message in server.messages(until_s):
                left_out = no_retained and not retain_as_published if message.retain else retained_only
                if not left_out:
                    _print(message, format, raw, json)
                    printed += 1
                if printed == count:
                    break
        if count is not None and printed < count and until_s is not None:
            raise typer.Exit(1)


def _check_options(topic_filters: list[str], format: str | None, raw: bool, json: bool, is_nothing: bool) -> None:
    from embermq.commands.mqtt_client.text import check_format

    if (format is not None) + raw + json > 1:
        raise ConfigError("--format, --raw and --json: expected one of them")
    if is_nothing:
        raise ConfigError("--no-retained and --retained-only: expected one of them, not both")
    if format is not None:
        check_format(format)
    _check_filters(topic_filters)


def _check_filters(topic_filters: list[str]) -> None:
    from embermq.protocol.topics import check_topic_filter

    for topic_filter in topic_filters:
        problem = check_topic_filter(topic_filter)
        if problem:
            raise ConfigError(f"{topic_filter}: expected a topic filter: {problem}")


def _subscribe(server: "MqttConnection", topic_filters: list[str], qos: int, as_published: bool, handling: int) -> None:
    from embermq.client.reasons import reason_text
    from embermq.commands.mqtt_client.connection import REFUSED
    from embermq.protocol.packets import SubscriptionRequest

    requests = [SubscriptionRequest(each, qos, False, as_published, handling) for each in topic_filters]
    suback = server.subscribe(requests)
    refused = [(each, reason) for each, reason in zip(topic_filters, suback.reasons, strict=True) if reason >= REFUSED]
    for topic_filter, reason in refused:
        print_error(f"the server refuses the subscription to {topic_filter}: {reason_text(reason)}")
    if refused and suback.reason_string:
        print_error(f"it says: {suback.reason_string}")
    if len(refused) == len(topic_filters):
        raise typer.Exit(1)


def _print(message: "Publish", format: str | None, raw: bool, json: bool) -> None:
    from embermq.commands.mqtt_client.text import as_line, as_object, formatted

    if raw:
        sys.stdout.flush()
        sys.stdout.buffer.write(message.payload)
        sys.stdout.buffer.flush()
    elif format is not None:
        print(formatted(format, message), flush=True)
    else:
        print(json_line(as_object(message)) if json else as_line(message), flush=True)
