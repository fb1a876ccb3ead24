"""One Spark session for all tests."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("delta")

from pyspark.sql import SparkSession

from embermq.spark import build_session, what_is_missing

TEST_SETTINGS = {
    "spark.sql.shuffle.partitions": "2",
    # Compiling each small query to Java costs more than running it.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    # A test run is over before the second compiler would pay off; with one, the default code cache is too small.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=256m",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All tests of this folder need Spark and share a session: `make test-spark` runs them alone.

    On a busy machine Spark is slow, hence the long timeout.
    """
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.spark)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(900))


@pytest.fixture(scope="session", autouse=True)
def scratch() -> Iterator[Path]:
    """A directory for all that Spark writes, also when it is killed. Its name is short: it has unix sockets too."""
    directory = tempfile.mkdtemp(prefix="ember-")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", directory)
        patch.setenv("SPARK_LOCAL_DIRS", directory)
        yield Path(directory)
    shutil.rmtree(directory, ignore_errors=True)
    root = Path(__file__).parent.parent.parent
    left = [name for name in ("spark-warehouse", "metastore_db", "derby.log", "artifacts") if (root / name).exists()]
    assert not left, f"a test of Spark has left {left} in the project"


@pytest.fixture(scope="session")
def spark(scratch: Path) -> Iterator[SparkSession]:
    missing = what_is_missing()
    if missing:
        pytest.skip(missing)
    # By default the warehouse is made in the current directory.
    settings = {**TEST_SETTINGS, "spark.sql.warehouse.dir": str(scratch / "warehouse")}
    session = build_session("local[2]", "embermq-tests", settings)
    yield session
    session.stop()
