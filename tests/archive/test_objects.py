"""The bytes of an object by ranges, in any order, and by several threads at once."""

import random
from concurrent.futures import ThreadPoolExecutor

import pytest

from embermq.archive.address import parse_address
from embermq.archive.errors import ArchiveDamaged
from embermq.archive.objects import CHUNK_BYTES, Objects
from embermq.archive.remote_place import STREAMS_MAX
from support.archives import BUCKET

SIZE = 3 * CHUNK_BYTES + 17
CONTENT = random.Random(5).randbytes(SIZE)


@pytest.fixture(scope="module", params=["directory", "s3", "gs"])
def objects(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Objects:
    """Once for all tests, which only read: to write them takes long at the server of Google's store."""
    if request.param == "directory":
        place = str(tmp_path_factory.mktemp("archive"))
    else:
        place = f"{request.param}://{BUCKET}/objects?{request.getfixturevalue(f'{request.param}_query')}"
    written = Objects(parse_address(place))
    for number in range(STREAMS_MAX + 2):
        written.write_bytes(f"some/{number}", CONTENT[number:])
    return written


def test_ranges_are_read_one_after_the_other_and_in_any_order(objects: Objects) -> None:
    step = CHUNK_BYTES // 2
    for start in range(0, SIZE - step, step):
        assert objects.read("some/0", start, start + step) == CONTENT[start : start + step]
    chosen = random.Random(7)
    for _ in range(40):
        number, start = chosen.randrange(STREAMS_MAX + 2), chosen.randrange(SIZE - 200)
        assert objects.read(f"some/{number}", start, start + 100) == CONTENT[number + start : number + start + 100]


def test_several_threads_read_the_same_object(objects: Objects) -> None:
    def read(start: int) -> bool:
        return objects.read("some/1", start, start + 1_000) == CONTENT[1 + start : 1 + start + 1_000]

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(read, [number * 50_021 % (SIZE - 2_000) for number in range(60)]))


def test_a_range_behind_the_end_says_where_the_object_ends(objects: Objects) -> None:
    for start, end in ((SIZE - 10, SIZE + 1), (0, SIZE + 1)):
        with pytest.raises(ArchiveDamaged, match="damaged: it ends at byte"):
            objects.read("some/0", start, end)
    assert objects.read("some/0", 0, SIZE) == CONTENT
