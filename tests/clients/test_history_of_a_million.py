"""`$replay` of a million messages from mosquitto_sub and paho, while more are published."""

import queue
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Generator, Iterator
from itertools import islice
from pathlib import Path

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from embermq.protocol.packets import Publish
from support.page.plant import MINUTE_US, open_past
from support.server_process import ServerProcess

MESSAGES = 1_000_000
LIVE = 10_000
TOGETHER = 10_000
TOPIC_FILTER = "$replay/-1h/plant/#"
TIMEOUT_S = 300

pytestmark = [pytest.mark.long, pytest.mark.timeout(2 * TIMEOUT_S)]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    """With a log of numbered messages."""
    engine = open_past(tmp_path / "data", time.time_ns() // 1000 - 10 * MINUTE_US)
    for number in range(MESSAGES):
        engine.store.append_publish(Publish(f"plant/{number % 1000}", b"%d" % number, 1, False), "writer")
        if number % TOGETHER == 0:
            engine.commit()
    engine.commit()
    engine.store.close()
    with ServerProcess(tmp_path / "data", tmp_path / "log.txt") as server:
        yield server


def connected(server: ServerProcess, client_id: str) -> paho.Client:
    client = paho.Client(CallbackAPIVersion.VERSION2, client_id)
    client.connect("127.0.0.1", server.port)
    client.loop_start()
    return client


def by_mosquitto_sub(server: ServerProcess) -> Generator[int, None, None]:
    command = ["mosquitto_sub", "-p", str(server.port), "-q", "1", "-t", TOPIC_FILTER, "-F", "%p"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield from map(int, process.stdout)
        finally:
            process.kill()


def by_paho(server: ServerProcess) -> Generator[int, None, None]:
    got: queue.SimpleQueue[bytes | bytearray] = queue.SimpleQueue()
    client = connected(server, "reader")
    client.on_message = lambda client, data, message: got.put(message.payload)
    client.subscribe(TOPIC_FILTER, 1)
    try:
        while True:
            yield int(got.get(timeout=TIMEOUT_S))
    finally:
        client.disconnect()
        client.loop_stop()


@pytest.mark.parametrize("reader", [by_mosquitto_sub, by_paho])
def test_every_message_comes_once_in_order_and_the_live_ones_follow_without_a_gap(
    server: ServerProcess, reader: Callable[[ServerProcess], Generator[int, None, None]]
) -> None:
    if reader is by_mosquitto_sub and shutil.which("mosquitto_sub") is None:
        pytest.skip("mosquitto_sub is not installed (mosquitto-clients)")
    has_ended = threading.Event()

    def publish() -> None:
        """Beside the replay and after it, one after the other."""
        client = connected(server, "live")
        number = MESSAGES
        while not has_ended.is_set():
            client.publish(f"plant/{number % 1000}", str(number), 1).wait_for_publish(TIMEOUT_S)
            number += 1
        client.disconnect()
        client.loop_stop()

    replayed = reader(server)
    numbers = [next(replayed)]
    live = threading.Thread(target=publish)
    live.start()
    try:
        numbers += islice(replayed, MESSAGES + LIVE - 1)
    finally:
        has_ended.set()
        live.join()
        replayed.close()
    assert numbers == list(range(MESSAGES + LIVE))
