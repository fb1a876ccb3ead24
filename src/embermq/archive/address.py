"""The address of an archive: which place it means.

Owns: what an address may be. Credentials are no part of it: they come from the environment, as each file system's own
tools take them.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

from embermq.archive.directory_place import DirectoryPlace
from embermq.archive.errors import ArchiveError
from embermq.archive.place import Place
from embermq.extras import missing_extra

EXPECTED: Final = "expected s3://BUCKET/PREFIX, gs://, abfs://, hdfs:// or a directory"
OPTIONS: Final = {
    "s3": ("endpoint_override", "region", "scheme"),
    "gs": ("anonymous", "endpoint_override", "scheme"),
}

_BY_URI: Final = ("abfs", "abfss", "hdfs", "viewfs")


@dataclass(frozen=True, slots=True)
class Address:
    """Where an archive is, and how messages show that."""

    shown: str
    place: Place


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
    """The place that an address means. `for_clients`: S3 is given up earlier."""
    parts = _split(check_address(text))
    if parts.scheme in ("", "file"):
        directory = Path(os.path.abspath(unquote(parts.path) if parts.scheme else text))
        return Address(str(directory), DirectoryPlace(directory))
    shown = f"{parts.scheme}://{parts.netloc}{parts.path}".rstrip("/")
    try:
        from embermq.archive.remote_place import remote_place
    except ModuleNotFoundError as error:
        said = missing_extra(error, "archive")
        if said is None:
            raise
        raise ArchiveError(f"the archive {shown} cannot be used: {said}") from None
    try:
        return Address(shown, remote_place(text, parts, for_clients))
    except (OSError, ValueError, ImportError, NotImplementedError) as error:
        raise ArchiveError(f"the archive {shown} cannot be used: {one_line(error)}") from None


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
