"""`$replay` over sockets, from a server that takes messages at full speed meanwhile, or is killed."""

import os
import signal
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from support.archives import wait_until
from support.server_process import ServerProcess
from support.wire import PUBACK, Wire, ack, publish
from support.wire_v5 import RECEIVE_MAXIMUM, USER_PROPERTY, Message, WireV5

HOST = "127.0.0.1"
MESSAGES_MAX = 8_000
END = b"end"
MIB = 1024 * 1024


class Publisher:
    """A persistent client that publishes 0, 1, 2... at QoS 1, and what was not acknowledged again after a crash."""

    def __init__(self, server: ServerProcess, window: int, messages_max: int) -> None:
        self.acknowledged = 0  # how many messages, which is the number of the next one
        self.is_enough = threading.Event()
        self.is_served = threading.Event()
        self.is_served.set()
        self._window = window
        self._messages_max = messages_max
        self._server = server
        self._has_progress = threading.Condition()

    def run(self) -> int:
        """Publish until it is enough, and then END; returns how many were before it."""
        while True:
            try:
                with Wire((HOST, self._server.port)) as wire:
                    wire.connect("publisher", clean=False)
                    return self._publish(wire)
            except OSError:  # the server was killed
                assert self.is_served.wait(60)

    def wait_for(self, count: int) -> None:
        with self._has_progress:
            assert self._has_progress.wait_for(lambda: self.acknowledged >= count, 60)

    def _publish(self, wire: Wire) -> int:
        sent = self.acknowledged
        while True:
            if not self.is_enough.is_set():
                numbers = range(sent, max(sent, min(self.acknowledged + self._window, self._messages_max)))
                wire.send(*(publish(f"f/{n % 7}", b"%d" % n, qos=1, packet_id=n % 60_000 + 1) for n in numbers))
                sent = numbers.stop
            if self.acknowledged == sent:
                wire.publish("f/end", END, qos=1)
                return sent
            for number in range(self.acknowledged, min(sent, self.acknowledged + self._window // 2)):
                wire.expect(PUBACK, number % 60_000 + 1)
                with self._has_progress:
                    self.acknowledged = number + 1
                    self._has_progress.notify()


@pytest.mark.parametrize("window", [20, 2_000])
def test_a_replay_beside_a_fast_publisher_has_every_message_once_in_order(tmp_path: Path, window: int) -> None:
    """With the small window the replay becomes live, and goes back to the log while its client does not read."""
    with ServerProcess(tmp_path / "data", tmp_path / "log") as server, ThreadPoolExecutor(1) as pool:
        publisher = Publisher(server, window, MESSAGES_MAX)
        published: Future[int] = pool.submit(publisher.run)
        publisher.wait_for(1_000)
        with Wire((HOST, server.port)) as reader:
            reader.connect("reader")
            assert reader.subscribe(("$replay/../f/#", 1)) == [1]
            pause_at = publisher.acknowledged + 500
            got: list[int] = []
            while (payload := reader.receive_message().payload) != END:
                got.append(int(payload))
                if len(got) == pause_at:
                    publisher.wait_for(min(publisher.acknowledged + 1_500, MESSAGES_MAX))  # not only in flight
                if len(got) == pause_at + 2_000:
                    publisher.is_enough.set()
            reader.assert_silent()
        assert got == list(range(published.result(60)))
        assert len(got) > 3_500


def test_a_replay_from_the_last_time_seen_misses_nothing_after_a_crash(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data", tmp_path / "log") as server, ThreadPoolExecutor(1) as pool:
        publisher = Publisher(server, 200, 5 * MESSAGES_MAX)
        published: Future[int] = pool.submit(publisher.run)
        publisher.wait_for(2_000)
        with WireV5((HOST, server.port)) as reader:
            reader.connect("reader")
            assert reader.subscribe(("$replay/../f/#", 1)) == [1]
            before = [reader.receive_message() for _ in range(1_000)]
            publisher.is_served.clear()
            assert not published.done()
            server.kill()
        server.start()
        at_least = publisher.acknowledged + 500
        publisher.is_served.set()
        after: list[int] = []
        with WireV5((HOST, server.port)) as reader:
            reader.connect("reader")
            assert reader.subscribe((f"$replay/{time_of(before[-1])}/f/#", 1)) == [1]
            while (payload := reader.receive_message().payload) != END:
                after.append(int(payload))
                if after[-1] >= at_least:
                    publisher.is_enough.set()
        got = [int(each.payload) for each in before] + after
        # A message may come twice: those of that very instant, and those that were published again after the crash.
        assert list(dict.fromkeys(got)) == list(range(published.result(60)))


def time_of(message: Message) -> str:
    stamp = dict(pair for pair in message.valued(USER_PROPERTY) if isinstance(pair, tuple))
    return stamp["ember-time"]


def waiting_reader(server: ServerProcess) -> tuple[WireV5, list[bytes]]:
    """A client whose replay waits for ten acknowledgements, which come with it."""
    with Wire((HOST, server.port)) as publisher:
        publisher.connect("publisher")
        for number in range(30):
            publisher.publish("f/a", b"%d" % number, qos=1)
    reader = WireV5((HOST, server.port))
    reader.connect("reader", properties=[(RECEIVE_MAXIMUM, 10)])
    assert reader.subscribe(("$replay/../f/#", 1)) == [1]
    messages = [reader.receive_message(answer=False) for _ in range(10)]
    assert [int(each.payload) for each in messages] == list(range(10))
    return reader, [ack(PUBACK, each.packet_id) for each in messages]


def test_a_replay_under_which_the_log_is_trimmed_ends_the_connection(tmp_path: Path) -> None:
    small = {"store.segment_bytes": str(MIB), "store.retention_bytes": str(MIB)}
    with ServerProcess(tmp_path / "data", tmp_path / "log", small) as server:
        reader, answers = waiting_reader(server)
        with reader, Wire((HOST, server.port)) as publisher:
            publisher.connect("publisher")
            for _ in range(500):
                publisher.publish("other", bytes(MIB // 8), qos=1)
                if "trimmed " in server.log():
                    break
            reader.send(*answers)
            reader.assert_disconnected(0x83)


def test_a_reload_of_the_access_list_that_takes_the_right_ends_the_connection(tmp_path: Path) -> None:
    rights = tmp_path / "acl"
    rights.write_text("all\nread,write #\n")
    with ServerProcess(tmp_path / "data", tmp_path / "log", {"access.acl_file": str(rights)}) as server:
        reader, answers = waiting_reader(server)
        with reader:
            rights.write_text("all\nwrite #\n")
            os.kill(server.pid, signal.SIGHUP)
            wait_until(lambda: "read again" in server.log())
            reader.send(*answers)
            reader.assert_disconnected(0x87)
