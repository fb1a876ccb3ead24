"""The memory of a real server: what a fresh one has loaded, and what comes back after clients have filled it."""

import time
from contextlib import ExitStack
from pathlib import Path

from embermq.embed import Broker
from embermq.engines import CONTROL_SOCKET
from embermq.http.client import HttpClient
from support.server_process import ServerProcess, client
from support.wire import PUBACK, Wire, publish

MIB = 1024 * 1024
MEMORY_BYTES = 100 * MIB
READERS = 24
WAIT_S_MAX = 60.0


def used_bytes(server: ServerProcess) -> int:
    fields = Path(f"/proc/{server.pid}/statm").read_text(encoding="utf-8").split()
    return (int(fields[1]) - int(fields[2])) * 4096


def can_connect(server: ServerProcess) -> bool:
    try:
        with Wire(("127.0.0.1", server.port)) as wire:
            wire.connect("after")
            return True
    except (OSError, AssertionError, EOFError):
        return False


def test_a_fresh_server_has_not_loaded_what_only_queries_of_the_log_need(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data", tmp_path / "server.log") as server, client(server, "c") as wire:
        wire.publish("t", b"x", qos=1)
        maps = Path(f"/proc/{server.pid}/maps").read_text(encoding="utf-8")
        assert "rocksdict" in maps
        assert "libarrow" not in maps


def test_what_answers_commands_is_loaded_when_one_asks(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with ServerProcess(data, tmp_path / "server.log") as server:
        maps = Path(f"/proc/{server.pid}/maps")
        assert "aiohttp" not in maps.read_text(encoding="utf-8")
        with HttpClient(data / CONTROL_SOCKET) as http:
            assert http.get("/api/v1/statistics")
        assert "aiohttp" in maps.read_text(encoding="utf-8")


def test_clients_connect_again_after_the_memory_was_full(tmp_path: Path) -> None:
    """Clients that never acknowledge fill the memory with messages of their own, and leave.

    One stays, whose messages lie between theirs: the C library keeps all that is before the last of them.
    """
    settings = {
        "store.memory": "true",
        "limits.memory_bytes_max": str(MEMORY_BYTES),
        "limits.all_queue_bytes_max": str(4 * MEMORY_BYTES),
    }
    with (
        ServerProcess(tmp_path / "data", tmp_path / "server.log", settings) as server,
        client(server, "stays") as stays,
        ExitStack() as stack,
    ):
        stays.subscribe(("stays", 1))
        publisher = stack.enter_context(client(server, "publisher"))
        for number in range(READERS):
            reader = stack.enter_context(client(server, f"reader-{number}"))
            reader.subscribe((f"to/{number}", 1))
        round_of = [*((f"to/{number}", 4_000) for number in range(READERS)), ("stays", 600)]
        packets = [publish(name, bytes(size), qos=1, packet_id=at + 1) for at, (name, size) in enumerate(round_of)]
        while can_connect(server):
            for _ in range(20):
                publisher.send(*packets)
                for packet_id in range(1, len(packets) + 1):
                    publisher.await_reply(PUBACK, packet_id)
        stack.close()
        deadline_s = time.monotonic() + WAIT_S_MAX
        while not can_connect(server):
            in_use = f"{used_bytes(server) // MIB} MiB are in use, and nobody can connect"
            assert time.monotonic() < deadline_s, in_use
            time.sleep(0.05)


def test_the_control_socket_ends_with_the_server_also_if_nobody_has_asked(tmp_path: Path) -> None:
    path = tmp_path / "data" / CONTROL_SOCKET
    with Broker.in_thread(data=tmp_path / "data"):
        assert path.is_socket()
    assert not path.exists()
