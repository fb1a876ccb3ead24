"""Registered readers: what one process writes, another reads, and a file that is damaged holds everything back."""

from pathlib import Path

from embermq.store.log.readers import reader_path, register_reader, registered_readers


def test_readers_are_found_with_how_far_they_are(tmp_path: Path) -> None:
    assert list(registered_readers(tmp_path)) == []
    register_reader(tmp_path, "/lakes/one", 5)
    register_reader(tmp_path, "/lakes/two", 7)
    register_reader(tmp_path, "/lakes/one", 9)
    assert {reader.name: reader.next_offset for reader in registered_readers(tmp_path)} == {
        "/lakes/one": 9,
        "/lakes/two": 7,
    }


def test_a_file_that_cannot_be_read_counts_as_a_reader_of_nothing(tmp_path: Path) -> None:
    register_reader(tmp_path, "/lakes/one", 5)
    path = reader_path(tmp_path, "/lakes/one")
    for content in ("", "{", "[]", '{"name": "x"}', '{"name": "x", "next_offset": "y"}'):
        path.write_text(content)
        (reader,) = registered_readers(tmp_path)
        assert (reader.name, reader.next_offset) == (path.name, 0)
