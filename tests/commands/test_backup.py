"""`ember backup` and `ember restore`."""

from pathlib import Path

from support.ember_command import DataPlace, ember, sentence, server


def test_a_backup_is_made_added_to_and_restored(place: DataPlace, tmp_path: Path) -> None:
    place.set("plant/1", b"on")
    kept = tmp_path / "backup"
    done = ember("backup", kept, "--data", place.data)
    assert (done.code, done.errors) == (0, "")
    assert done.text.startswith("copied ") and f"; {kept} has offsets 1 to " in done.text
    assert ember("backup", kept, "--data", place.data).text.startswith("nothing is new; ")
    place.set("plant/2", b"off")
    assert ember("backup", kept, "--data", place.data).text.startswith("copied ")
    restored = tmp_path / "restored"
    said = ember("restore", kept, "--data", restored)
    assert said.code == 0 and said.lines[0].startswith("restored offsets 1 to ")
    assert DataPlace(restored, None).topics() == {"plant/1": "on", "plant/2": "off"}
    assert ember("log", "verify", "--archive", kept).lines[-1].endswith("undamaged")


def test_a_log_without_a_record_is_said(tmp_path: Path) -> None:
    with server(tmp_path / "data"):
        pass
    done = ember("backup", tmp_path / "backup", "--data", tmp_path / "data")
    assert (done.code, done.text) == (0, "nothing is new: the log is empty\n")


def test_what_cannot_be_a_backup_is_one_sentence(tmp_path: Path) -> None:
    with server(tmp_path / "data"):
        pass
    config = tmp_path / "ember.toml"
    config.write_text(f'[store]\ndirectory = "{tmp_path}/data"\narchive = "{tmp_path}/archive"\n')
    wanted = f"{tmp_path}/archive is this server's store.archive: expected another place for a backup"
    assert sentence(ember("backup", tmp_path / "archive", "--config", config)) == wanted
    inside = tmp_path / "data" / "log"
    wanted = f"{inside} is in the data directory that it is a backup of: expected another place"
    assert sentence(ember("backup", inside, "--data", tmp_path / "data")) == wanted
    assert "is not the address of an archive" in sentence(ember("backup", "ftp://host/a", "--data", tmp_path / "data"))
    assert "is not the data directory of a server" in sentence(ember("backup", "b", "--data", tmp_path / "none"))
    assert "is not an archive" in sentence(ember("restore", tmp_path / "none", "--data", tmp_path / "new"))
