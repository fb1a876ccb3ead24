"""Makes `data_served_by_a4e6f90.tar.gz`: `python tests/support/make_older_data.py SOURCES TARGET`.

SOURCES is the folder `src` of that commit, whose server runs interpreted. Clients fill it, then it is killed while one
is connected: the log has several segments and a checkpoint, and the state lacks the end of the log.
"""

import os
import re
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from threading import Event

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

TOPICS = 300
NEVER = 0xFFFF_FFFF
# Segments close after a second; a checkpoint is due with an eighth of the retention.
SETTINGS = {
    "EMBERMQ_STORE__SEGMENT_AGE_S": "1",
    "EMBERMQ_STORE__RETENTION_BYTES": str(1 << 20),
    "EMBERMQ_LIMITS__SESSION_EXPIRY_MAX_S": str(NEVER),
}


def properties(packet: int, **values: object) -> Properties:
    made = Properties(packet)  # type: ignore[no-untyped-call]
    for name, value in values.items():
        setattr(made, name, value)
    return made


def connected(
    port: int, client_id: str, will: str = "", on_message: Callable[[mqtt.MQTTMessage], None] | None = None
) -> mqtt.Client:
    client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id, protocol=mqtt.MQTTv5)
    if will:
        client.will_set(will, b"gone: " + client_id.encode(), 1, properties=properties(PacketTypes.WILLMESSAGE))
    ready = Event()
    client.on_connect = lambda *_: ready.set()
    if on_message is not None:
        client.on_message = lambda _client, _data, message: on_message(message)
    expiry = properties(PacketTypes.CONNECT, SessionExpiryInterval=NEVER)
    client.connect("127.0.0.1", port, clean_start=False, properties=expiry)
    client.loop_start()
    assert ready.wait(60)
    return client


def subscribe(client: mqtt.Client, topic_filter: str, qos: int, subscription_id: int = 0) -> None:
    done = Event()
    client.on_subscribe = lambda *_: done.set()
    ids = {"SubscriptionIdentifier": subscription_id} if subscription_id else {}
    client.subscribe(topic_filter, qos, properties=properties(PacketTypes.SUBSCRIBE, **ids))
    assert done.wait(60)


def fill(port: int) -> None:
    away, member, watcher = (connected(port, name) for name in ("away", "member", "watcher"))
    subscribe(away, "orders/#", 2, 7)
    subscribe(member, "$share/workers/jobs/#", 1)
    subscribe(watcher, "state/#", 1)
    for client in (away, member, watcher):
        client.disconnect()
        client.loop_stop()
    publisher = connected(port, "publisher", "state/publisher")
    for number in range(TOPICS):
        given = properties(PacketTypes.PUBLISH, ContentType="text/plain") if number % 3 == 0 else None
        payload = b"value %d " % number * 100
        sent = publisher.publish(f"plant/{number}/value", payload, number % 3, retain=True, properties=given)
        if number % 50 == 49:
            sent.wait_for_publish(10)
            time.sleep(1.1)  # the next message begins a segment
    for number in range(0, TOPICS, 10):
        publisher.publish(f"plant/{number}/value", b"", 1, retain=True)
    for number in range(20):
        publisher.publish(f"orders/{number}", b"order %d" % number, number % 3)
        sent = publisher.publish(f"jobs/{number}", b"job %d" % number, 1)
    sent.wait_for_publish(10)


def main() -> None:
    sources, target = Path(sys.argv[1]), Path(sys.argv[2])
    with tempfile.TemporaryDirectory() as scratch:
        data = Path(scratch) / "data"
        environment = os.environ | SETTINGS | {"PYTHONPATH": str(sources), "EMBERMQ_PURE": "1"}
        command = [sys.executable, "-m", "embermq", "serve", "--port", "0", "--data", str(data)]
        server = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        assert server.stdout is not None
        port = 0
        for line in server.stdout:
            if found := re.search(r" mqtt://.*?:(\d+)", line):
                port = int(found[1])
            if line == "ready\n":
                break
        fill(port)
        server.send_signal(signal.SIGKILL)
        server.wait()
        with tarfile.open(target, "w:gz") as archive:
            archive.add(data, "data")


if __name__ == "__main__":
    main()
