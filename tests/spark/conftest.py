"""One Spark session for all tests, and logs written with the server's own writer."""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("delta")

from pyspark.sql import SparkSession

from embermq.spark import build_session, what_is_missing
from support.recorded import Recorder

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
    """All that is in this folder needs Spark and shares its one session: `make test-spark` runs it by itself.

    A busy machine makes Spark slow long before it makes it wrong, hence the patience.
    """
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.spark)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(900))


@pytest.fixture(scope="session", autouse=True)
def spark_leftovers() -> Iterator[None]:
    """What Spark leaves behind where it is killed lies in one directory. Its name is short: sockets lie there too."""
    directory = tempfile.mkdtemp(prefix="ember-")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", directory)
        patch.setenv("SPARK_LOCAL_DIRS", directory)
        yield
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    missing = what_is_missing()
    if missing:
        pytest.skip(missing)
    session = build_session("local[2]", "embermq-tests", TEST_SETTINGS)
    yield session
    session.stop()


@pytest.fixture
def recorder(tmp_path: Path) -> Iterator[Callable[..., Recorder]]:
    """Makes logs: `recorder()` opens the one in `tmp_path / "data"`."""
    opened: list[Recorder] = []

    def open_log(name: str = "data", **options: int) -> Recorder:
        made = Recorder(tmp_path / name, **options)
        opened.append(made)
        return made

    yield open_log
    for made in opened:
        made.close()
