"""An archive as its readers see it: what was uploaded, whole, and nothing else."""

import pickle
from pathlib import Path

import pyarrow as pa
import pytest

from embermq.archive.address import parse_address
from embermq.archive.archive import missing, open_archive
from embermq.archive.errors import ArchiveDamaged, ArchiveError, NotArchived
from embermq.archive.objects import Objects
from embermq.store.log.entries import Entries, first_mismatch
from embermq.store.log.identity import read_identity
from embermq.store.log.reader import LogReader
from support.archives import filled_log, upload_closed


def overwrite(place: str, name: str, data: bytes) -> None:
    Objects(parse_address(place)).write_bytes(name, data)


def object_bytes(place: str, name: str) -> bytes:
    return Objects(parse_address(place)).read(name)


def records(directory: Path, end: int) -> pa.Table:
    return pa.Table.from_batches(LogReader(directory).batches(1, end)).combine_chunks()


def test_uploaded_segments_are_listed_with_what_they_hold(place: str, tmp_path: Path) -> None:
    filled_log(tmp_path / "log")
    upload_closed(place, tmp_path / "log")
    archive = open_archive(place)
    identity = read_identity(tmp_path / "log")
    assert identity is not None and archive.log_id == identity.log_id
    closed = LogReader(tmp_path / "log").segments()[:-1]
    assert len(closed) >= 3
    assert [
        (s.first_offset, s.next_offset, s.first_timestamp_us, s.last_timestamp_us, s.blocks) for s in archive.segments()
    ] == [(s.first_offset, s.next_offset, s.first_timestamp_us, s.last_timestamp_us, s.blocks) for s in closed]
    assert archive.bounds() == (1, closed[-1].next_offset)
    assert missing(archive.segments()) == []
    assert pickle.loads(pickle.dumps(archive.segments())) == archive.segments()


def test_fetched_segments_are_a_log(place: str, tmp_path: Path) -> None:
    filled_log(tmp_path / "log")
    upload_closed(place, tmp_path / "log")
    archive = open_archive(place)
    into = tmp_path / "fetched"
    into.mkdir()
    for segment in archive.segments():
        assert archive.fetch(segment, into).stat().st_mode & 0o777 == 0o600
    end = archive.bounds()[1]
    assert records(into, end) == records(tmp_path / "log", end)
    assert list(into.glob("*.new")) == []


def test_blocks_are_read_by_range(place: str, tmp_path: Path) -> None:
    filled_log(tmp_path / "log")
    upload_closed(place, tmp_path / "log")
    archive = open_archive(place)
    segment = archive.segments()[1]
    entries = Entries(archive.read_index(segment))
    assert len(entries) == segment.blocks and entries.first_offset(0) == segment.first_offset
    part = entries.part(1, len(entries))
    data = archive.read(segment, part.position(0), segment.size_bytes)
    assert first_mismatch(data, part, True) is None


def test_a_truncated_object_is_refused(place: str, tmp_path: Path) -> None:
    filled_log(tmp_path / "log")
    segment = upload_closed(place, tmp_path / "log")[0]
    name = f"{segment.name}.log"
    overwrite(place, name, object_bytes(place, name)[:-1])
    archive = open_archive(place)
    with pytest.raises(ArchiveDamaged, match=f"{name} .* is damaged: it has {segment.size_bytes - 1} bytes"):
        archive.fetch(segment, tmp_path)
    with pytest.raises(ArchiveDamaged, match=f"is damaged: it ends at byte {segment.size_bytes - 1}"):
        archive.read(segment, 32, segment.size_bytes)
    assert list(tmp_path.glob("*.log*")) == []


def test_a_changed_object_is_refused(place: str, tmp_path: Path) -> None:
    filled_log(tmp_path / "log")
    segment = upload_closed(place, tmp_path / "log")[0]
    for suffix, file in ((".idx", segment.index), (".log", segment.log)):
        whole = object_bytes(place, segment.name + suffix)
        overwrite(place, segment.name + suffix, whole[:-1] + bytes([whole[-1] ^ 1]))
        with pytest.raises(ArchiveDamaged, match=r"its checksum is not the one that was uploaded"):
            open_archive(place).fetch(segment, tmp_path)
        with pytest.raises(ArchiveDamaged):
            open_archive(place).check(segment)
        overwrite(place, segment.name + suffix, whole)
        assert len(whole) == file.size_bytes
    open_archive(place).check(segment)


def test_an_object_without_a_manifest_does_not_count(place: str, tmp_path: Path) -> None:
    filled_log(tmp_path / "log")
    uploaded = upload_closed(place, tmp_path / "log")
    objects = Objects(parse_address(place))
    objects.delete(f"{uploaded[1].name}.json")
    archive = open_archive(place)
    assert archive.segments() == [uploaded[0], *uploaded[2:]]
    assert missing(archive.segments()) == [(uploaded[1].first_offset, uploaded[1].next_offset)]


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b'{"format": 1}', b'{"format": 1, "first_offset": "x"}'], ids=lambda data: data.decode()
)
def test_a_damaged_manifest_is_refused(tmp_path: Path, data: bytes) -> None:
    place = str(tmp_path / "archive")
    filled_log(tmp_path / "log")
    segment = upload_closed(place, tmp_path / "log")[0]
    overwrite(place, f"{segment.name}.json", data)
    with pytest.raises(ArchiveDamaged, match=r"it is not the manifest that its name says"):
        open_archive(place).segments()


def test_a_manifest_of_a_newer_format_is_refused(tmp_path: Path) -> None:
    place = str(tmp_path / "archive")
    filled_log(tmp_path / "log")
    segment = upload_closed(place, tmp_path / "log")[0]
    overwrite(place, f"{segment.name}.json", b'{"format": 2}')
    with pytest.raises(ArchiveError, match=r"archive format 2; this EmberMQ knows formats up to 1"):
        open_archive(place).segments()


def test_a_place_without_an_archive_is_refused(place: str) -> None:
    with pytest.raises(NotArchived, match=r"is not an archive: no server has written to it"):
        open_archive(place)
