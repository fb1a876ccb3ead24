"""Where the tests of the archive keep one: a directory, an S3 server, and one of Google's store."""

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from pyarrow import fs

from support.archives import BUCKET, gs_server, s3_server


@pytest.fixture(scope="session")
def s3_query(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", "test")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        patch.setenv("AWS_CONFIG_FILE", "none")
        with s3_server() as query:
            filesystem, _ = fs.FileSystem.from_uri(f"s3://{BUCKET}?{query}&allow_bucket_creation=true")
            filesystem.create_dir(BUCKET)
            yield query


@pytest.fixture(scope="session")
def gs_query() -> Iterator[str]:
    with gs_server() as query:
        yield query


@pytest.fixture(params=["directory", "s3", "gs"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty archive."""
    if request.param == "directory":
        return str(tmp_path / "archive")
    query = request.getfixturevalue(f"{request.param}_query")
    return f"{request.param}://{BUCKET}/{uuid4().hex}?{query}"
