"""Who receives what: four subscribers of a house come at different times, and some messages are retained.

Starts a broker of its own on a free port, in memory, and ends by itself:

    python examples/retain_timeline.py

S1 to S4 print what they received in each step; "kept" marks a message that was waiting for the new subscriber
(RETAIN = 1), anything else came live. The timeline runs twice: as written, where the later messages are not retained,
and with every message retained, where the empty ones clear what was kept.
"""

import queue
import threading
from collections.abc import Sequence
from typing import Final

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion

from embermq import Broker

GARAGE: Final = "house/garage"
ROOM: Final = "house/room"
TIMEOUT_S: Final = 5.0

Step = tuple[int, str, Sequence[str], str | None, bool]
"""When, who, which topics, the payload (None: subscribe), retained or not."""

TIMELINE: Final[list[Step]] = [
    (0, "S1", (GARAGE,), None, False),
    (1, "P", (GARAGE,), "temp", True),
    (3, "P", (GARAGE,), "on", True),
    (5, "S2", (GARAGE,), None, False),
    (6, "P", (GARAGE, ROOM), "off", False),
    (8, "S3", (GARAGE, ROOM), None, False),
    (9, "P", (GARAGE, ROOM), "", False),
    (10, "S4", (GARAGE, ROOM), None, False),
]


class Party:
    """A client that remembers what it received since it was last asked."""

    def __init__(self, name: str, host: str, port: int) -> None:
        self.name: Final = name
        self._client: Final = paho.Client(CallbackAPIVersion.VERSION2, name, protocol=paho.MQTTv311)
        self._received: Final[queue.SimpleQueue[str]] = queue.SimpleQueue()
        self._answered: Final = threading.Event()
        self._client.on_connect = lambda *_: self._answered.set()
        self._client.on_subscribe = lambda *_: self._answered.set()
        self._client.on_unsubscribe = lambda *_: self._answered.set()
        self._client.on_message = self._on_message
        self._client.connect(host, port)
        self._client.loop_start()
        self._wait()

    def _on_message(self, client: paho.Client, data: object, message: paho.MQTTMessage) -> None:
        kept = "kept " if message.retain else ""
        self._received.put(f"{kept}{message.topic}={message.payload.decode()!r}")

    def _wait(self) -> None:
        if not self._answered.wait(TIMEOUT_S):
            raise TimeoutError(f"{self.name}: the broker did not answer")
        self._answered.clear()

    def subscribe(self, topic_filters: Sequence[str]) -> None:
        self._client.subscribe([(topic_filter, 1) for topic_filter in topic_filters])
        self._wait()

    def publish(self, topic_name: str, payload: str, retain: bool) -> None:
        self._client.publish(topic_name, payload, qos=1, retain=retain).wait_for_publish(TIMEOUT_S)

    def received(self) -> list[str]:
        """All since the last call: what the broker sent before it answered this request is here when the answer is."""
        self._client.unsubscribe("nothing")
        self._wait()
        return [self._received.get() for _ in range(self._received.qsize())]

    def leave(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()


def run(timeline: Sequence[Step], host: str, port: int) -> None:
    subscribers = [Party(name, host, port) for name in ("S1", "S2", "S3", "S4")]
    publisher = Party("P", host, port)
    parties = {party.name: party for party in [*subscribers, publisher]}
    for time, name, topics, payload, retain in timeline:
        if payload is None:
            print(f"{time:>3}  {name} subscribes to {', '.join(topics)}")
            parties[name].subscribe(topics)
        else:
            how = "publishes retained" if retain else "publishes"
            print(f"{time:>3}  {name} {how} {payload!r} to {', '.join(topics)}")
            for topic_name in topics:
                parties[name].publish(topic_name, payload, retain)
        for subscriber in subscribers:
            print(f"       {subscriber.name}: {', '.join(subscriber.received()) or '-'}")
    for party in parties.values():
        party.leave()


def main() -> None:
    retained = [(time, name, topics, payload, payload is not None) for time, name, topics, payload, _ in TIMELINE]
    for title, timeline in (("The timeline as written", TIMELINE), ("Every message retained", retained)):
        with Broker.in_thread() as broker:
            assert broker.port is not None
            print(f"{title} (time, step, what each subscriber received)")
            run(timeline, broker.host, broker.port)
            print()


if __name__ == "__main__":
    main()
