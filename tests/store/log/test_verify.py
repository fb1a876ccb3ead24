"""Verification: what is missing, damaged or wrong is named, whatever the index says."""

from pathlib import Path

from embermq.store.log.segments import encode_segment_header, log_path
from embermq.store.log.verify import verify
from embermq.store.rows import Group, Kind
from support.log_samples import block_positions, encode_block, fill, flipped, open_log, segment_files


def findings(directory: Path) -> list[str]:
    return [str(finding) for report in verify(directory) for finding in report.findings]


def test_verify_finds_what_is_missing_or_wrong(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=1500)
    fill(log, [3] * 20)
    log.close()
    paths = segment_files(tmp_path)
    whole = {path: path.read_bytes() for path in tmp_path.iterdir()}
    assert findings(tmp_path) == []

    def damaged(path: Path, content: bytes | None) -> list[str]:
        if content is None:
            path.unlink()
        else:
            path.write_bytes(content)
        found = findings(tmp_path)
        path.write_bytes(whole[path])
        return found

    (gap,) = damaged(paths[1], None)
    assert f"{paths[0]}, position {len(whole[paths[0]])}: offsets" in gap
    assert "are missing at the end of the segment" in gap
    (header,) = damaged(paths[0], flipped(whole[paths[0]], 3))
    assert "position 0: the segment's header is missing" in header
    index = paths[0].with_suffix(".idx")
    (wrong,) = damaged(index, flipped(whole[index], 100))
    assert "1 entries of its index are wrong" in wrong
    (short,) = damaged(index, whole[index][:-48])
    assert "entries for" in short
    (cut,) = damaged(paths[-1], whole[paths[-1]][:-1])
    assert "does not match its checksum" in cut
    (gone,) = damaged(paths[-1], whole[paths[-1]][: list(block_positions(tmp_path, -1))[-1][0]])
    assert "are missing at the end" in gone


def test_verify_finds_timestamps_that_run_backwards(tmp_path: Path) -> None:
    data = encode_segment_header(1)
    offset = 1
    for timestamps_us in ([5, 4], [7], [6]):
        group = Group(offset)
        for timestamp_us in timestamps_us:
            offset = group.append(timestamp_us, Kind.PUBLISH, 0, b"t", b"", b"") + 1
        data += encode_block(group)[1]
    log_path(tmp_path, 1).write_bytes(data)
    assert [finding.rpartition(": ")[2] for finding in findings(tmp_path)] == ["the timestamps run backwards"] * 2
