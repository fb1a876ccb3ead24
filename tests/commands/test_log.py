"""`ember log`: what it prints and with what it exits."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from embermq.commands.log import app
from embermq.errors import ConfigError
from embermq.instants import instant_us, utc_text
from embermq.store.records import SESSION, SESSION_EXPIRY, SESSION_PACKET, SESSION_POSITION, SESSION_SEQUENCE, WILL
from embermq.store.rows import DUP_FLAG, RETAIN_FLAG, Group, Kind
from support.log_samples import NOW_US, block_positions, fill, flipped, open_log, segment_files

RECORDS = [
    (Kind.CONNECTED, 0, b"", b"MQTT 3.1.1\n127.0.0.1\nann\nclean", b"sensor-1"),
    (Kind.PUBLISH, 1, b"plant/a/temp", b"21.5", b"sensor-1"),
    (Kind.PUBLISH, 2 | RETAIN_FLAG | DUP_FLAG, b"plant/b/temp", b"\xff\x00", b"sensor-1"),
    (Kind.SUBSCRIBED, 1, b"plant/#", SESSION.pack(0), b"screen"),
    (Kind.SESSION_OPENED, 0, b"", SESSION_EXPIRY.pack(0, 60) + b"ann", b"screen"),
    (Kind.QUEUED, 0, b"", SESSION_SEQUENCE.pack(5, 1) + bytes(16), b""),
    (Kind.RECEIVED, 0, b"", SESSION_PACKET.pack(5, 77), b"screen"),
    (Kind.POSITION, 0, b"plant/#", SESSION_POSITION.pack(5, 40, 1, 0) + b"plant/a", b"screen"),
    (Kind.DISCONNECTED, 0, b"", SESSION_SEQUENCE.pack(5, 3) + b"keep alive", b"screen"),
    (Kind.PUBLISH, 0, "plant/größe".encode(), b"\x1b[31mred\nline", "gerät".encode()),
]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The data directory of a server with a few records."""
    log = open_log(tmp_path / "log")
    for number, (kind, flags, topic, payload, client_id) in enumerate(RECORDS):
        group = Group(log.next_offset)
        properties = b"\x01\x02" if number == 1 else b""
        group.append(NOW_US + number * 1_000_000, kind, flags, topic, payload, client_id, properties)
        log.append(group, NOW_US)
    log.close()
    return tmp_path


def run(command: str, directory: Path, *arguments: object) -> str:
    options = ["--data", str(directory), *map(str, arguments)]
    result = CliRunner().invoke(app, [command, *options], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def objects(command: str, directory: Path, *arguments: object) -> list[dict[str, object]]:
    return [json.loads(line) for line in run(command, directory, *arguments, "--json").splitlines()]


def offsets(command: str, directory: Path, *arguments: object) -> list[object]:
    return [record["offset"] for record in objects(command, directory, *arguments)]


def test_cat_shows_every_record_as_json(data: Path) -> None:
    shown = objects("cat", data)
    assert [record["offset"] for record in shown] == list(range(1, 11))
    assert shown[1] == {
        "offset": 2,
        "timestamp": "2023-11-14T22:13:21.000000Z",
        "kind": "publish",
        "topic": "plant/a/temp",
        "client_id": "sensor-1",
        "qos": 1,
        "retain": False,
        "dup": False,
        "payload": "21.5",
        "properties_base64": "AQI=",
    }
    assert (shown[2]["qos"], shown[2]["retain"], shown[2]["dup"]) == (2, True, True)
    assert shown[2]["payload_base64"] == "/wA="
    assert "payload" not in shown[2]
    details = [
        {
            key: value
            for key, value in record.items()
            if key not in ("offset", "timestamp", "topic", "client_id", "flags")
        }
        for record in shown
    ]
    assert details[0] == {
        "kind": "connected",
        "protocol": "MQTT 3.1.1",
        "address": "127.0.0.1",
        "user_name": "ann",
        "persistent": False,
    }
    assert details[3:9] == [
        {"kind": "subscribed", "session_id": 0},
        {"kind": "session-opened", "session_id": 0, "session_expiry_s": 60, "user_name": "ann"},
        {"kind": "queued", "session_id": 5, "sequence": 1, "messages": 2},
        {"kind": "received", "session_id": 5, "packet_id": 77},
        {"kind": "position", "session_id": 5, "before_offset": 40, "qos": 1, "done": 0, "after_topic_name": "plant/a"},
        {"kind": "disconnected", "session_id": 5, "sequence": 3, "reason": "keep alive"},
    ]


def test_cat_shows_wills_and_the_queues_of_share_groups(tmp_path: Path) -> None:
    log = open_log(tmp_path / "log")
    group = Group(1)
    will = WILL.pack(5, 30, 3) + b"ann"
    group.append(NOW_US, Kind.WILL_SET, 1, b"gone/screen", will + b"bye", b"screen")
    group.append(NOW_US, Kind.WILL_SET, 1, b"gone/screen", will[:4], b"screen")
    group.append(NOW_US, Kind.WILL_CLEARED, 0, b"", b"", b"screen")
    group.append(NOW_US, Kind.SESSION_EXPIRY_CHANGED, 0, b"", SESSION_EXPIRY.pack(5, 60), b"screen")
    group.append(NOW_US, Kind.SHARED_QUEUE_OPENED, 0, b"$share/g/a", b"", b"")
    group.append(NOW_US, Kind.SHARED_QUEUE_ENDED, 0, b"$share/g/a", SESSION.pack(4), b"")
    log.append(group, NOW_US)
    log.close()
    shown = objects("cat", tmp_path)
    for record in shown:
        for name in ("offset", "timestamp", "flags"):
            del record[name]
    client = {"topic": "", "client_id": "screen"}
    share = {"topic": "$share/g/a", "client_id": ""}
    assert [shown[0], *shown[2:]] == [
        {
            "kind": "will-set",
            "topic": "gone/screen",
            "client_id": "screen",
            "session_id": 5,
            "delay_s": 30,
            "user_name": "ann",
            "payload": "bye",
        },
        {"kind": "will-cleared", **client, "payload": ""},
        {"kind": "session-expiry-changed", **client, "session_id": 5, "session_expiry_s": 60},
        {"kind": "shared-queue-opened", **share, "payload": ""},
        {"kind": "shared-queue-ended", **share, "queue_id": 4},
    ]
    assert "session_id" not in shown[1]  # one that is cut short is shown as it is


def test_lines_cannot_speak_to_the_terminal(data: Path) -> None:
    lines = run("cat", data).splitlines()
    assert len(lines) == 11
    assert lines[0].split() == ["OFFSET", "TIME", "(UTC)", "KIND", "QOS", "CLIENT", "TOPIC", "PAYLOAD"]
    assert lines[-1].split() == [
        "10",
        "2023-11-14T22:13:29.000000Z",
        "publish",
        "0",
        "gerät",
        "plant/größe",
        r"\x1b[31mred\nline",
    ]
    assert lines[3].split()[3:5] == ["2", "r"]
    assert "session_id=5 sequence=3 reason=keep alive" in lines[9]


def test_a_long_payload_is_cut_in_a_line_and_whole_in_json(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    group = Group(1)
    group.append(NOW_US, Kind.PUBLISH, 0, b"t", b"x" * 500, b"c")
    log.append(group, NOW_US)
    assert run("cat", tmp_path).splitlines()[1].endswith("x" * 60 + "… (500 B)")
    assert objects("cat", tmp_path)[0]["payload"] == "x" * 500


def test_ranges_filters_and_kinds_choose(data: Path) -> None:
    assert offsets("cat", data, "--from", 4, "--to", 6) == [4, 5, 6]
    assert offsets("cat", data, "--from", 9, "--to", 99) == [9, 10]
    assert offsets("cat", data, "--since", "2023-11-14T22:13:28") == [9, 10]
    assert offsets("cat", data, "--since", "2023-11-14T23:13:27.5+01:00") == [9, 10]
    assert offsets("cat", data, "--since", "1s") == []
    assert offsets("cat", data, "--filter", "plant/+/temp") == [2, 3]
    assert offsets("cat", data, "--kind", "publish", "--kind", "Session_Opened") == [2, 3, 5, 10]
    assert offsets("cat", data, "--kind", "subscribed", "--filter", "#") == [4]
    assert offsets("tail", data, "-n", 3) == [8, 9, 10]
    assert offsets("tail", data, "-n", 2, "--filter", "plant/+/temp") == [2, 3]
    assert offsets("tail", data, "-n", 1, "--kind", "connected") == [1]
    assert offsets("tail", data, "-n", 0) == []


def test_tail_looks_back_as_far_as_it_must(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=20_000)
    group = Group(1)
    for number in range(5000):
        group.append(NOW_US, Kind.PUBLISH, 0, b"rare" if number in (3, 1700, 1701) else b"common", b"", b"")
        if len(group) == 50:
            log.append(group, NOW_US)
            group = Group(log.next_offset)
    assert offsets("tail", tmp_path, "--filter", "rare") == [4, 1701, 1702]
    assert offsets("tail", tmp_path, "-n", 2, "--filter", "rare") == [1701, 1702]
    assert len(offsets("tail", tmp_path, "-n", 3000)) == 3000


def test_stat_sums_the_segments(tmp_path: Path) -> None:
    log = open_log(tmp_path / "log", segment_bytes=1500)
    fill(log, [3] * 20)
    infos = log.segments()
    shown = objects("stat", tmp_path)
    assert [(s["first_offset"], s["next_offset"], s["blocks"], s["bytes"]) for s in shown] == [
        (info.first_offset, info.next_offset, info.blocks, info.size_bytes) for info in infos
    ]
    assert shown[0]["first_timestamp"] == utc_text(infos[0].first_timestamp_us)
    assert shown[-1]["last_timestamp"] == utc_text(log.last_timestamp_us)
    table = run("stat", tmp_path)
    assert f"{len(infos)} segments" in table
    assert " 60 " in table


def test_stat_of_an_empty_log(tmp_path: Path) -> None:
    open_log(tmp_path / "log").close()
    assert objects("stat", tmp_path)[0]["first_timestamp"] is None
    assert "1 segment " in run("stat", tmp_path)


def test_verify_of_a_good_log(data: Path) -> None:
    assert run("verify", data).splitlines()[-1] == "10 records in 10 blocks: undamaged"


def test_verify_names_every_damaged_place_and_exits_with_1(tmp_path: Path) -> None:
    log = open_log(tmp_path / "log", segment_bytes=3000)
    fill(log, [3] * 20)
    log.close()
    first, *_, last = segment_files(tmp_path / "log")
    blocks = list(block_positions(tmp_path / "log"))
    damaged = flipped(flipped(first.read_bytes(), blocks[1][1] - 1), blocks[4][0])
    first.write_bytes(damaged)
    last.write_bytes(last.read_bytes() + b"a write under way")
    result = CliRunner().invoke(app, ["verify", "--data", str(tmp_path)])
    assert result.exit_code == 1
    lines = result.output.splitlines()
    assert [line for line in lines if line.startswith("damaged")] == [
        f"damaged: {first}, position {blocks[1][0]}: the block of offset 4 does not match its checksum; "
        "7 is the next good one",
        f"damaged: {first}, position {blocks[4][0]}: the block of offset 13 does not match its checksum; "
        "16 is the next good one",
    ]
    assert lines[-1] == "54 records in 18 blocks: 2 places damaged"
    assert "17 bytes of an incomplete block" in lines[-2]


@pytest.mark.parametrize("command", ["verify", "stat", "tail", "cat"])
def test_what_is_no_log_is_one_sentence(tmp_path: Path, command: str) -> None:
    for directory in (tmp_path, tmp_path / "none"):
        with pytest.raises(ConfigError, match=f"^{directory} is not an EmberMQ log: there is no"):
            run(command, directory)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["cat", "--kind", "nonsense"], "--kind nonsense: expected one of publish, retained-removed"),
        (["cat", "--filter", "a/#/b"], "--filter a/#/b: expected a topic filter: '#' is not the last"),
        (["cat", "--since", "yesterday"], "--since yesterday: expected an instant such as"),
        (["cat", "--since", "1h", "--from", "3"], "--from and --since: expected one of them, not both"),
        (["cat", "--from", "0"], "offset 0 is no longer in the log, which now begins at offset 1"),
        (["tail", "--kind", "nonsense"], "--kind nonsense"),
    ],
)
def test_a_wrong_option_is_one_sentence(data: Path, arguments: list[str], sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        run(arguments[0], data, *arguments[1:])
    assert str(caught.value).startswith(sentence)


def test_damage_met_while_reading_exits_with_1(data: Path) -> None:
    path = segment_files(data / "log")[0]
    start, end = list(block_positions(data / "log"))[4]
    path.write_bytes(flipped(path.read_bytes(), end - 1))
    result = CliRunner().invoke(app, ["cat", "--data", str(data)])
    assert result.exit_code == 1
    assert f"ember: the log is damaged: {path}, position {start}: " in result.stderr


def test_an_instant_ago_is_counted_from_now() -> None:
    now_us = time.time_ns() // 1000
    for text, seconds in (("90s", 90), ("15m", 900), ("2h", 7200), ("7d", 604_800)):
        assert now_us - seconds * 1_000_000 <= instant_us(text) <= time.time_ns() // 1000 - seconds * 1_000_000
    assert instant_us(utc_text(NOW_US + 123)) == NOW_US + 123


def test_tail_follows_a_running_server_until_it_is_told_to_stop(tmp_path: Path) -> None:
    log = open_log(tmp_path / "log")
    fill(log, [3])
    program = "from embermq.commands.log import app; app()"
    following = subprocess.Popen(
        [sys.executable, "-c", program, "tail", "-f", "-n", "1", "--json", "--data", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        # Whoever runs in the background of a shell is told to ignore Ctrl-C, and so are its children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert following.stdout is not None
    try:
        assert json.loads(following.stdout.readline())["offset"] == 3
        fill(log, [2])
        assert [json.loads(following.stdout.readline())["offset"] for _ in range(2)] == [4, 5]
        log.roll()
        fill(log, [1])
        assert json.loads(following.stdout.readline())["offset"] == 6
        following.send_signal(signal.SIGINT)
        assert following.communicate(timeout=60) == ("", "")
        assert following.returncode == 0
    finally:
        following.kill()
        following.wait()


def test_a_reader_that_has_seen_enough_is_no_error(tmp_path: Path) -> None:
    log = open_log(tmp_path / "log")
    for _ in range(20):
        fill(log, [1000])
    program = "from embermq.commands.log import app; app()"
    reading = subprocess.Popen(
        [sys.executable, "-c", program, "cat", "--data", str(tmp_path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert reading.stdout is not None
    assert reading.stderr is not None
    assert b"OFFSET" in reading.stdout.readline()
    reading.stdout.close()
    assert reading.stderr.read() == b""
    assert reading.wait(timeout=60) == 0
    reading.stderr.close()
