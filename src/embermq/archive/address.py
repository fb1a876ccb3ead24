"""The address of an archive: which file system it means, and where in it.

Owns: what an address may be. Credentials are no part of it: they come from the environment, as each file system's own
tools take them.
"""

import os
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

from pyarrow import fs

from embermq.archive.errors import ArchiveError

EXPECTED: Final = "expected s3://BUCKET/PREFIX, gs://, abfs://, hdfs:// or a directory"
CONNECT_TIMEOUT_S: Final = 5.0
REQUEST_TIMEOUT_S: Final = 30.0
S3_ATTEMPTS: Final = 3
"""S3 is given up after so many attempts, in each of which nothing came for so long."""
CLIENTS_TIMEOUT_S: Final = 10.0
CLIENTS_ATTEMPTS: Final = 2
"""As above, where clients wait for the answer: those behind them wait as well."""
GS_RETRY_S: Final = 10.0
"""How long a request to Google's store is repeated; by default pyarrow goes on for 15 minutes."""
OPTIONS: Final = {
    "s3": ("endpoint_override", "region", "scheme"),
    "gs": ("anonymous", "endpoint_override", "scheme"),
}

_BY_URI: Final = ("abfs", "abfss", "hdfs", "viewfs")


@dataclass(frozen=True, slots=True)
class Address:
    """Where an archive is. `directory` is set if that is a directory of this machine."""

    shown: str
    filesystem: fs.FileSystem
    root: str
    directory: Path | None


def check_address(text: str) -> str:
    """The address of an archive if its form is right; ArchiveError says what was expected. Connects to nothing."""
    if not text:
        raise ArchiveError(f"the address of an archive is empty: {EXPECTED}")
    parts = _split(text)
    if parts.scheme in ("", "file"):
        return text
    if parts.scheme not in (*OPTIONS, *_BY_URI):
        raise ArchiveError(f"{text} is not the address of an archive: {EXPECTED}")
    # Azure has CONTAINER@ACCOUNT in this place.
    if parts.password is not None or (parts.username is not None and not parts.scheme.startswith("abfs")):
        raise ArchiveError(
            "the address of an archive has credentials in it: leave them out, they are taken from the environment"
        )
    if not parts.hostname and parts.scheme not in ("hdfs", "viewfs"):
        raise ArchiveError(f"{text} names no bucket: {EXPECTED}")
    options = OPTIONS.get(parts.scheme)
    if options is not None and (unknown := set(parse_qs(parts.query)) - set(options)):
        raise ArchiveError(f"{text}: {', '.join(sorted(unknown))} is not known, expected {', '.join(options)}")
    return text


def parse_address(text: str, for_clients: bool = False) -> Address:
    """The file system and the place in it that an address means. `for_clients`: S3 is given up earlier."""
    parts = _split(check_address(text))
    if parts.scheme in ("", "file"):
        directory = Path(os.path.abspath(unquote(parts.path) if parts.scheme else text))
        return Address(str(directory), fs.LocalFileSystem(), str(directory), directory)
    shown = f"{parts.scheme}://{parts.netloc}{parts.path}".rstrip("/")
    try:
        if parts.scheme in OPTIONS:
            filesystem = _s3(parts, for_clients) if parts.scheme == "s3" else _gs(parts)
            return Address(shown, filesystem, (parts.netloc + unquote(parts.path)).rstrip("/"), None)
        filesystem, root = fs.FileSystem.from_uri(text)
    except (OSError, ValueError, ImportError, NotImplementedError) as error:
        raise ArchiveError(f"the archive {shown} cannot be used: {one_line(error)}") from None
    return Address(shown, filesystem, root.rstrip("/"), None)


def one_line(error: Exception) -> str:
    """What a file system says of an error, as a part of a sentence."""
    text = str(getattr(error, "strerror", None) or error).strip() or type(error).__name__
    return " ".join(text.split())[:300].rstrip(". ")


def _split(text: str) -> SplitResult:
    try:
        # A directory may have any name, so only what is before :// is taken for a scheme.
        return urlsplit(text) if "://" in text else SplitResult("", "", text, "", "")
    except ValueError:
        raise ArchiveError(f"{text} is not the address of an archive: {EXPECTED}") from None


def _options(parts: SplitResult) -> dict[str, str]:
    return {name: values[-1] for name, values in parse_qs(parts.query).items()}


def _gs(parts: SplitResult) -> fs.GcsFileSystem:
    options = _options(parts)
    is_anonymous = options.pop("anonymous", "false") == "true"
    return fs.GcsFileSystem(anonymous=is_anonymous, retry_time_limit=timedelta(seconds=GS_RETRY_S), **options)


def _s3(parts: SplitResult, for_clients: bool) -> fs.S3FileSystem:
    options = _options(parts)
    is_elsewhere = "endpoint_override" in options or any(
        os.environ.get(name) for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3")
    )
    if "region" not in options and not any(os.environ.get(name) for name in ("AWS_REGION", "AWS_DEFAULT_REGION")):
        options["region"] = "us-east-1" if is_elsewhere else fs.resolve_s3_region(parts.netloc)
    return fs.S3FileSystem(
        **options,
        connect_timeout=CONNECT_TIMEOUT_S,
        request_timeout=CLIENTS_TIMEOUT_S if for_clients else REQUEST_TIMEOUT_S,
        background_writes=False,
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=CLIENTS_ATTEMPTS if for_clients else S3_ATTEMPTS),
    )
