"""Where `ember pipeline run` reads the log from."""

from pathlib import Path

import pytest

from embermq.commands.cluster.log_location import log_location
from embermq.errors import ConfigError


def test_the_data_directory_is_the_default(tmp_path: Path) -> None:
    assert log_location(None, None, None, None, None).directory == Path("ember-data").absolute()
    assert log_location(tmp_path, None, None, None, None).directory == tmp_path


def test_an_archive_and_a_server(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret\n")
    found = log_location(None, "s3://bucket/prefix", "https://mq:8080", tmp_path / "token", None)
    assert (found.path, found.server, found.token, found.directory) == (
        "s3://bucket/prefix",
        "https://mq:8080",
        "secret",
        None,
    )
    assert log_location(None, "s3://bucket/prefix", None, None, None).server is None


def test_options_that_do_not_go_together_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--data: expected no --archive and no --server beside it"):
        log_location(tmp_path, "s3://bucket", None, None, None)
    with pytest.raises(ConfigError, match="--token-file and --ca-file: expected --server beside them"):
        log_location(None, "s3://bucket", None, tmp_path, None)
    with pytest.raises(ConfigError, match="option 'server' is 'mq': expected http://HOST:PORT"):
        log_location(None, None, "mq", None, None)
