"""Room for connections: by number, by files, which are kept for the store, and by memory."""

import asyncio
import logging
import resource
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from embermq.broker.access import AllowAll
from embermq.broker.counters import Counters
from embermq.broker.limits import Limits
from embermq.protocol.packets import Connect, Publish, Suback, Subscribe, SubscriptionRequest
from embermq.store.engines.memory import MemoryStore
from embermq.transport.capacity import (
    MIB,
    TRIM_BYTES_MIN,
    TRIM_ENDED_MIN,
    Capacity,
    file_number,
    machine_bytes,
    used_bytes,
)
from embermq.transport.rate_limited_log import RateLimitedLog
from embermq.transport.server import HEAVY_BYTES, Server
from support.transports import Peer, joined, run, turn

LOG = RateLimitedLog(logging.getLogger("embermq.test"), "connections")


class Transport:
    """One with a descriptor, and without all else."""

    def __init__(self, number: int | None) -> None:
        self._number = number

    def fileno(self) -> int:
        assert self._number is not None
        return self._number

    def get_extra_info(self, name: str, default: object = None) -> object:
        return self if name == "socket" and self._number is not None else default

    def write(self, data: bytes) -> None: ...
    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def close(self) -> None: ...
    def abort(self) -> None: ...


def test_the_highest_descriptors_are_not_for_connections() -> None:
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    capacity = Capacity(Limits(files_reserved=10), Counters(), LOG, int)
    assert capacity.has_room(0, Transport(files - 11))
    assert capacity.has_room(0, Transport(None))
    assert not capacity.has_room(0, Transport(files - 10))
    assert capacity.counts()["connections/refused/files"] == 1


def test_at_most_half_of_the_files_are_kept() -> None:
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    capacity = Capacity(Limits(files_reserved=files), Counters(), LOG, int)
    assert capacity.has_room(0, Transport(files // 2 - 1))
    assert not capacity.has_room(0, Transport(files // 2))


def test_the_descriptor_of_a_socket_is_found() -> None:
    with socket.socket() as one:
        assert file_number(Transport(one.fileno())) == one.fileno()
    assert file_number(Transport(None)) == -1


def test_the_memory_mark_is_left_only_well_below_it(caplog: pytest.LogCaptureFixture) -> None:
    used = [999]
    capacity = Capacity(Limits(memory_bytes_max=1_000), Counters(), LOG, lambda: used[0])
    seen: list[bool] = []
    with caplog.at_level(logging.WARNING, "embermq"):
        for used[0] in (999, 1_000, 999, 938, 937, 936):
            capacity.look()
            seen.append(capacity.has_room(0, Transport(None)))
    assert seen == [True, False, False, False, False, True]
    assert capacity.counts()["connections/refused/memory"] == 4
    assert [line for line in caplog.messages if "in use" in line][1].endswith("connections are accepted again")


def test_the_machines_memory_is_bounded_by_a_control_group(tmp_path: Path) -> None:
    (tmp_path / "cgroup").write_text("4:memory:/a/b\n0::/\n")
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "memory.max").write_text("max\n")
    files = (str(tmp_path) + "{}/memory.max",)
    whole = machine_bytes(tmp_path / "none", files)
    assert whole == machine_bytes(tmp_path / "cgroup", files) > 1 << 20
    (tmp_path / "a" / "b" / "memory.max").write_text("1000000\n")
    assert machine_bytes(tmp_path / "cgroup", files) == 1_000_000


def test_this_process_uses_memory() -> None:
    assert 1 << 20 < used_bytes() < machine_bytes()


def full_when(is_full: list[bool]) -> Callable[[], int]:
    return lambda: 1_000 if is_full else 0


def test_a_full_memory_refuses_connections_and_subscriptions_and_ends_the_heaviest_client() -> None:
    is_full: list[bool] = []

    async def scenario(server: Server) -> None:
        light, heavy = await joined(server, "light", "t/#"), await joined(server, "heavy", "t/#")
        writer = await joined(server, "w")
        heavy.reads = False
        for _ in range(9):
            writer.send_now(Publish("t/1", bytes(HEAVY_BYTES // 8)))
            while not writer.is_read_from:
                await turn()
        await turn()
        assert len(light.messages()) == 9
        server._look_at_capacity()
        assert heavy.ended == ""
        is_full.append(True)
        server.begin_turn()
        server._look_at_capacity()
        await turn()
        assert (heavy.ended, light.ended) == ("aborted", "")
        assert Peer(server).ended == "aborted"
        await light.send(Subscribe(2, [SubscriptionRequest("other", 0), SubscriptionRequest("t/#", 0)]))
        assert light.packets() == [Suback(2, [0x80, 0])]
        assert server.capacity.counts()["memory/clients-ended"] == 1
        is_full.clear()
        server._look_at_capacity()
        fresh = Peer(server)
        await fresh.send(Connect("fresh"), Subscribe(1, [SubscriptionRequest("other", 0)]))
        assert fresh.packets()[1:] == [Suback(1, [0])]

    run(scenario, used_bytes=full_when(is_full), memory_bytes_max=1_000, all_queue_bytes_max=1 << 30)


def test_freed_memory_is_given_back_near_the_mark_and_after_many_clients_have_left() -> None:
    used = [500 * MIB]
    capacity = Capacity(Limits(memory_bytes_max=1_000 * MIB), Counters(), LOG, lambda: used[0])
    capacity.gave_back()
    assert not capacity.must_give_back()
    used[0] += TRIM_BYTES_MIN
    capacity.look()
    assert not capacity.must_give_back()  # nobody has left
    for _ in range(TRIM_ENDED_MIN):
        capacity.connection_ended()
    assert capacity.must_give_back()
    capacity.gave_back()
    assert not capacity.must_give_back()
    used[0] = 940 * MIB
    capacity.look()
    assert capacity.must_give_back()


def test_connections_are_accepted_again_when_freed_memory_was_given_back() -> None:
    used = [0]

    def give_back() -> None:
        used[0] = 0

    async def scenario() -> None:
        limits = Limits(memory_bytes_max=1_000)
        server = Server(
            store=MemoryStore(), access=AllowAll(), limits=limits, used_bytes=lambda: used[0], give_back=give_back
        )
        await server.start()
        used[0] = 1_000
        server.begin_turn()
        server._look_at_capacity()
        assert Peer(server).ended == "aborted"
        while server.capacity.is_memory_full:
            await asyncio.sleep(0)
        assert Peer(server).ended == ""
        await server.stop()

    asyncio.run(scenario())
