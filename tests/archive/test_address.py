"""The address of an archive: what is one, and what is refused in one sentence."""

import socket
from pathlib import Path

import pytest

from embermq.archive.address import check_address, parse_address
from embermq.archive.errors import ArchiveError
from embermq.archive.remote_place import RemotePlace
from embermq.history.archived_blocks import ArchivedBlocks
from embermq.history.rebuilt import ArchivedPast


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the address of an archive is empty"),
        ("s3a://bucket/x", "s3a://bucket/x is not the address of an archive: expected s3://BUCKET/PREFIX"),
        ("ftp://host/x", "is not the address of an archive"),
        ("s3:///prefix", "names no bucket"),
        ("s3://bucket/x?region=a&colour=red", "colour is not known, expected endpoint_override, region, scheme"),
        ("gs://", "names no bucket"),
        ("gs://bucket/x?region=a", "region is not known, expected anonymous, endpoint_override, scheme"),
    ],
)
def test_what_is_no_address_is_refused(text: str, said: str) -> None:
    with pytest.raises(ArchiveError, match=said):
        check_address(text)


@pytest.mark.parametrize("text", ["s3://key:secret@bucket/x", "s3://key@bucket/x", "gs://key:secret@bucket"])
def test_credentials_are_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(ArchiveError) as refused:
        check_address(text)
    assert "secret" not in str(refused.value) and "key" not in str(refused.value)
    assert "taken from the environment" in str(refused.value)


def test_a_directory_may_be_named_in_two_ways(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for text in ("my archive", f"file://{tmp_path}/my%20archive", str(tmp_path / "my archive")):
        assert parse_address(text).shown == str(tmp_path / "my archive")


def test_an_s3_address_has_bucket_and_prefix() -> None:
    address = parse_address("s3://bucket/some/prefix/?region=eu-west-1&endpoint_override=127.0.0.1:1&scheme=http")
    assert isinstance(address.place, RemotePlace)
    assert (address.shown, address.place.root) == ("s3://bucket/some/prefix", "bucket/some/prefix")


def test_an_address_of_googles_store_has_bucket_and_prefix() -> None:
    address = parse_address("gs://bucket/some%20prefix/?endpoint_override=127.0.0.1:1&scheme=http&anonymous=true")
    assert isinstance(address.place, RemotePlace)
    assert (address.shown, address.place.root) == ("gs://bucket/some%20prefix", "bucket/some prefix")


def test_s3_that_does_not_answer_is_given_up_earlier_for_clients(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("embermq.archive.remote_place.CLIENTS_TIMEOUT_S", 1.0)
    monkeypatch.setattr("embermq.archive.remote_place.CLIENTS_ATTEMPTS", 1)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"s3://b/x?endpoint_override=127.0.0.1:{silent.getsockname()[1]}&scheme=http&region=r"
        blocks = ArchivedBlocks(address, tmp_path)
        with pytest.raises(ArchiveError, match="the archive s3://b/x cannot list log"):
            blocks.first_offset(2)
        past = ArchivedPast(address, tmp_path / "cache")
        with pytest.raises(ArchiveError, match="the archive s3://b/x cannot list log"):
            past.message("a", 1)
        silent.settimeout(0)
        for _ in range(2):
            silent.accept()[0].close()
        with pytest.raises(BlockingIOError):
            silent.accept()  # each has asked once
