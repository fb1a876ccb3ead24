"""A disk that the log would fill: it is trimmed first; at the reserve new things are refused, and all else goes on."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.server_process import ServerProcess, client, persistent
from support.wire import publish
from support.wire_v5 import SESSION_EXPIRY, WireV5

MIB = 1024 * 1024
DISK_BYTES = 32 * MIB
PAYLOAD = bytes(200_000)
SETTINGS = {
    "store.segment_bytes": str(2 * MIB),
    "store.disk_reserve_bytes": str(DISK_BYTES),
    "limits.inflight_max": "4",
}
QUOTA_EXCEEDED = 0x97


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    place = tmp_path / "small"
    place.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES},mode=700", "none", str(place)],
        capture_output=True,
        text=True,
    )
    if done.returncode:
        pytest.skip(f"nothing can be mounted here: {done.stderr.strip()}")
    try:
        with ServerProcess(place / "data", tmp_path / "server.log", SETTINGS) as served:
            yield served
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def joined(server: ServerProcess, client_id: str, **options: object) -> WireV5:
    wire = WireV5(("127.0.0.1", server.port))
    assert wire.connect(client_id, **options).reason == 0
    return wire


def test_a_log_larger_than_the_disk_is_trimmed_before_its_retention(server: ServerProcess) -> None:
    with joined(server, "publisher") as publisher:
        publisher.publish("kept", b"1", qos=1, retain=True)
        written = 0
        while written < 2 * DISK_BYTES:
            reason = publisher.publish("t", PAYLOAD, qos=1)
            written += len(PAYLOAD) if reason < 0x80 else 0
    server.restart()
    with joined(server, "reader") as reader:
        reader.subscribe("kept")
        assert reader.receive_message().payload == b"1"
    assert "trimmed" in server.log()
    assert "nothing can be made durable" not in server.log()


def test_at_the_reserve_new_things_are_refused_and_all_goes_on_when_the_log_is_trimmed(server: ServerProcess) -> None:
    persistent(server, "away", "t", 1)
    with (
        joined(server, "publisher") as publisher,
        joined(server, "stored", properties=[(SESSION_EXPIRY, 60)]) as stored,
    ):
        taken = 0
        while publisher.publish("t", PAYLOAD, qos=1) < 0x80:
            taken += 1
        assert 0 < taken * len(PAYLOAD) < DISK_BYTES * 39 // 40
        assert publisher.publish("t", PAYLOAD, qos=2) == QUOTA_EXCEEDED
        publisher.publish("t", PAYLOAD, qos=0)
        assert stored.subscribe(("u", 1)) == [QUOTA_EXCEEDED]
        with client(server, "old") as old:  # it cannot be told, so it keeps its message
            old.send(publish("t", PAYLOAD, qos=1, packet_id=1))
            old.assert_closed()
        with WireV5(("127.0.0.1", server.port)) as new:
            assert new.connect("new", properties=[(SESSION_EXPIRY, 60)]).reason == QUOTA_EXCEEDED
        with client(server, "away", clean=False) as back:
            for _ in range(taken):
                back.receive_message()
            while publisher.publish("t", PAYLOAD, qos=1) >= 0x80:
                back.ping()
    assert "store.disk_reserve_bytes" in server.log()
    assert "Traceback" not in server.log()
