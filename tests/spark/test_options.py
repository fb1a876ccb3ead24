"""Options are parsed once, and a bad one names itself and what was expected."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from embermq.instants import instant_us, microseconds
from embermq.spark.errors import OptionError
from embermq.spark.options import parse_sink_options, parse_source_options
from embermq.store.rows import Kind


def test_defaults_read_everything_to_the_end() -> None:
    options = parse_source_options({"path": "d"})
    assert (options.starting, options.ending, options.topic_filter, options.kinds) == ("earliest", "latest", None, ())
    assert options.fail_on_data_loss and options.max_records_per_trigger is None and options.min_partitions >= 1


def test_names_are_known_in_any_case() -> None:
    options = parse_source_options({"PATH": "d", "maxrecordspertrigger": "5", "Kinds": "publish, retained_removed"})
    assert options.max_records_per_trigger == 5
    assert options.kinds == (Kind.PUBLISH, Kind.RETAINED_REMOVED)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("filter", "a#", "an MQTT topic filter ('#' does not occupy a whole level)"),
        ("startingOffsets", "soon", "'earliest', 'latest' or an offset (a whole number)"),
        ("endingOffsets", "-1", "'latest' or an offset (a whole number)"),
        ("startingTimestamp", "tuesday", "an instant such as"),
        ("maxRecordsPerTrigger", "0", "a whole number of at least 1"),
        ("minPartitions", "x", "a whole number of at least 1"),
        ("failOnDataLoss", "maybe", "true or false"),
        ("kinds", "publish,nonsense", "a list of publish, retained_removed"),
        ("filtre", "a", "one of the options path, server, token"),
    ],
)
def test_a_bad_source_option_names_itself_and_what_was_expected(name: str, value: str, expected: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse_source_options({"path": "d", name: value})
    assert str(caught.value).startswith(f"option '{name}' is '{value}': expected {expected}")


def test_a_path_is_needed() -> None:
    with pytest.raises(OptionError, match="option 'path' is None: expected the server's data directory"):
        parse_source_options({})


SERVER = {"server": "https://mq.example:8080"}


def test_a_log_is_in_a_directory_in_an_archive_or_at_a_server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("EMBERMQ_TOKEN", raising=False)
    assert parse_source_options({"path": "file:///a/b"}).location.path == "/a/b"
    assert parse_source_options({"path": "s3://bucket/prefix"}).location.path == "s3://bucket/prefix"
    at_server = parse_source_options({**SERVER, "token": " t ", "timeoutSeconds": "5"}).location
    assert (at_server.path, at_server.server, at_server.token, at_server.timeout_s) == (None, SERVER["server"], "t", 5)
    both = parse_source_options({**SERVER, "path": "hdfs://name/prefix"}).location
    assert (both.path, both.server, both.token) == ("hdfs://name/prefix", SERVER["server"], None)
    monkeypatch.setenv("EMBERMQ_TOKEN", "of the environment")
    assert parse_source_options(SERVER).location.token == "of the environment"
    (tmp_path / "token").write_text("in a file\n")
    assert parse_source_options({**SERVER, "tokenFile": str(tmp_path / "token")}).location.token == "in a file"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"server": "mq.example"}, "option 'server' is 'mq.example': expected http://HOST:PORT or https://HOST:PORT"),
        ({"server": "https://a:b@mq.example"}, "option 'server' is '(hidden)': expected http://HOST:PORT or"),
        ({"server": "https://mq.example/?token=x"}, "option 'server' is 'https://mq.example/?token=x': expected http"),
        ({"server": "https://mq.example:x"}, "option 'server' is 'https://mq.example:x': expected http://HOST:PORT"),
        ({**SERVER, "token": "x\ny"}, "option 'token' is '(hidden)': expected a token as `ember token` prints it"),
        ({**SERVER, "token": "secret", "tokenFile": "f"}, "option 'tokenFile' is 'f': expected no token beside it"),
        ({**SERVER, "tokenFile": "/none"}, "option 'tokenFile' is '/none': expected "),
        ({**SERVER, "caFile": "/none"}, "option 'caFile' is '/none': expected "),
        ({**SERVER, "caFile": __file__}, f"option 'caFile' is '{__file__}': expected a file of certificates (PEM)"),
        ({"path": "d", "token": "secret"}, "option 'token' is '(hidden)': expected the option server beside it"),
        ({"path": "d", "tokn": "secret", "serverToken": "x"}, "option 'tokn' is 'secret': expected one of"),
        ({"path": "d", "serverToken": "secret"}, "option 'serverToken' is '(hidden)': expected one of the options"),
        ({"path": "ftp://a/b"}, "option 'path' is 'ftp://a/b': expected a data directory or an archive: ftp://a/b is"),
        (
            {"path": "s3://key:secret@bucket"},
            "option 'path' is '(hidden)': expected a data directory or an archive",
        ),
    ],
)
def test_a_bad_location_is_told_without_its_secrets(options: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse_source_options(options)
    assert str(caught.value).startswith(said)


def test_two_beginnings_or_an_end_before_the_beginning_are_refused() -> None:
    with pytest.raises(OptionError, match="startingTimestamp"):
        parse_source_options({"path": "d", "startingOffsets": "3", "startingTimestamp": "2026-01-01T00:00:00Z"})
    with pytest.raises(OptionError, match="endingOffsets"):
        parse_source_options({"path": "d", "startingOffsets": "9", "endingOffsets": "3"})


def test_a_url_says_where_and_how_to_publish() -> None:
    plain = parse_sink_options({"url": "mqtt://example"})
    assert (plain.host, plain.port, plain.tls, plain.qos, plain.retain) == ("example", 1883, False, 1, False)
    secured = parse_sink_options({"url": "mqtts://u%40x:p%3a@[::1]:99", "qos": "2", "retain": "true"})
    assert (secured.host, secured.port, secured.tls) == ("::1", 99, True)
    assert (secured.username, secured.password, secured.qos, secured.retain) == ("u@x", "p:", 2, True)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("url", "http://x"),
        ("url", "mqtt://x:notaport"),
        ("qos", "3"),
        ("window", "0"),
        ("window", "70000"),
        ("passwordFile", "no/such/file"),
        ("timeoutSeconds", "-1"),
        ("host", "x"),
    ],
)
def test_a_bad_sink_option_names_itself(name: str, value: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse_sink_options({"url": "mqtt://localhost", name: value})
    assert str(caught.value).startswith(f"option '{name}' is '{value}': expected ")


def test_instants_are_exact_and_in_utc_unless_they_say_otherwise() -> None:
    assert instant_us("2026-03-01T14:03:00.000001Z") == microseconds(datetime(2026, 3, 1, 14, 3, 0, 1, UTC))
    assert instant_us("2026-03-01 14:03") == instant_us("2026-03-01T15:03:00+01:00")
    assert instant_us("2262-01-01T00:00:00.999999Z") == 9214646400999999
    now_us = microseconds(datetime(2026, 1, 1, tzinfo=UTC))
    assert instant_us("15m ago", now_us) == microseconds(datetime(2025, 12, 31, 23, 45, tzinfo=UTC))
    assert instant_us("now", now_us) == now_us
