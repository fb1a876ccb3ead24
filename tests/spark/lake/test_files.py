"""Files of a lake in a directory, and the same ones through Hadoop's file system."""

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from embermq.lake.errors import LakeError
from embermq.lake.files import LakeFiles, LocalFiles, json_object
from embermq.spark.lake.hadoop_files import HadoopFiles

Opened = Callable[[Path], LakeFiles]


@pytest.fixture(params=["local", "hadoop"])
def opened(request: pytest.FixtureRequest) -> Opened:
    if request.param == "local":
        return LocalFiles
    spark: SparkSession = request.getfixturevalue("spark")
    return lambda directory: HadoopFiles(spark, directory.as_uri())


def test_files_are_written_replaced_listed_and_removed(opened: Opened, tmp_path: Path) -> None:
    files = opened(tmp_path / "lake")
    assert files.read("a/b.json") is None and files.names() == [] and files.names("a") == []
    files.write("a/b.json", "one")
    files.write("a/b.json", "zwölf\n")
    files.write("a/c", "")
    assert files.read("a/b.json") == "zwölf\n" and files.read("a/c") == ""
    assert files.names() == ["a"] and [name for name in files.names("a") if name[0] != "."] == ["b.json", "c"]
    files.remove("a/c")
    files.remove("a/c")
    assert files.read("a/c") is None
    files.remove("a")
    assert files.names() == []


def test_a_reader_sees_the_text_before_or_the_one_after(opened: Opened, tmp_path: Path) -> None:
    files = opened(tmp_path)
    texts = ["one" * 2_000, "two" * 3_000]
    files.write("state/a.json", texts[0])
    ended = threading.Event()
    seen: set[str | None] = set()

    def read() -> None:
        reader = opened(tmp_path)
        while not ended.is_set():
            seen.add(reader.read("state/a.json"))

    with ThreadPoolExecutor(2) as pool:
        readers = [pool.submit(read) for _ in range(2)]
        try:
            for number in range(400):
                files.write("state/a.json", texts[number % 2])
        finally:
            ended.set()
        for reader in readers:
            reader.result()
    assert seen and seen <= set(texts)


def test_a_checksum_that_hadoop_wrote_does_not_outlive_its_file(spark: SparkSession, tmp_path: Path) -> None:
    """Versions before this one wrote through Hadoop's file system, and read so again."""
    files = HadoopFiles(spark, tmp_path.as_uri())
    path = files._path("state/a.json")
    stream = files._files.create(path, True)
    stream.write(b"one")
    stream.close()
    assert (tmp_path / "state" / ".a.json.crc").exists()
    files.write("state/a.json", "another")
    stream = files._files.open(path)
    assert files._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8") == "another" == files.read("state/a.json")
    stream.close()


@pytest.mark.skipif(os.getuid() == 0, reason="root may write everywhere")
def test_what_may_not_be_written_is_an_error(opened: Opened, tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(OSError):
        opened(tmp_path).write("a", "")


def test_a_directory_in_the_way_is_an_error(opened: Opened, tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    with pytest.raises(OSError):
        opened(tmp_path).write("a", "text")


def test_a_file_system_that_spark_does_not_know_is_named(spark: SparkSession) -> None:
    with pytest.raises(LakeError, match=r"the lake s3a://bucket/x cannot be opened: .*S3AFileSystem"):
        HadoopFiles(spark, "s3a://bucket/x")


@pytest.mark.parametrize(("text", "found"), [(None, {}), ("", {}), ("[1]", {}), ('{"a": 1}', {"a": 1}), ('{"a"', {})])
def test_what_is_no_object_of_json_counts_as_an_empty_one(text: str | None, found: dict[str, int]) -> None:
    assert json_object(text) == found
