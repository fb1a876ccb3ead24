"""Who receives what: four subscribers of a house come at different times, and some messages are retained.

Starts a broker of its own on a free port, in memory, and ends by itself:

    python examples/retain_timeline.py          # MQTT 3.1.1
    python examples/retain_timeline.py --v5     # MQTT 5

S1 to S4 print what they received in each step; "kept" marks a message that came with RETAIN = 1: it was waiting for the
new subscriber. Anything else came live. The timeline runs twice: as written, where the later messages are not retained,
and with every message retained, where the empty ones clear what was kept.

With --v5 a second timeline follows, in which the subscribers choose: Retain Handling 1 asks for the retained message
only when the subscription is new, Retain Handling 2 never asks for it, and with Retain As Published a live message has
the RETAIN flag of its publisher, so that "kept" stands before it too.
"""

import argparse
import queue
import threading
from collections.abc import Sequence
from typing import Final, NamedTuple

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.subscribeoptions import SubscribeOptions

from embermq import Broker

GARAGE: Final = "house/garage"
ROOM: Final = "house/room"
TIMEOUT_S: Final = 5.0


class Step(NamedTuple):
    """One line of a timeline; without a payload it is a subscription. The last two fields are MQTT 5's."""

    time: int
    name: str
    topics: Sequence[str]
    payload: str | None = None
    retain: bool = False
    retain_handling: int = 0
    retain_as_published: bool = False

    def text(self) -> str:
        topics = ", ".join(self.topics)
        if self.payload is not None:
            how = "publishes retained" if self.retain else "publishes"
            return f"{self.name} {how} {self.payload!r} to {topics}"
        options = f", Retain Handling {self.retain_handling}" if self.retain_handling else ""
        options += ", Retain As Published" if self.retain_as_published else ""
        return f"{self.name} subscribes to {topics}{options}"


TIMELINE: Final = [
    Step(0, "S1", (GARAGE,)),
    Step(1, "P", (GARAGE,), "temp", True),
    Step(3, "P", (GARAGE,), "on", True),
    Step(5, "S2", (GARAGE,)),
    Step(6, "P", (GARAGE, ROOM), "off"),
    Step(8, "S3", (GARAGE, ROOM)),
    Step(9, "P", (GARAGE, ROOM), ""),
    Step(10, "S4", (GARAGE, ROOM)),
]

V5_TIMELINE: Final = [
    Step(0, "S1", (GARAGE,), retain_as_published=True),
    Step(1, "P", (GARAGE,), "on", True),
    Step(2, "S2", (GARAGE,), retain_handling=2),
    Step(3, "S3", (GARAGE,), retain_handling=1),
    Step(4, "S3", (GARAGE,), retain_handling=1),
    Step(5, "S3", (GARAGE,)),
    Step(6, "P", (GARAGE,), "off"),
    Step(8, "S4", (GARAGE,)),
    Step(9, "P", (GARAGE,), "", True),
    Step(10, "S4", (GARAGE,)),
]


class Party:
    """A client that remembers what it received since it was last asked."""

    def __init__(self, name: str, host: str, port: int, v5: bool) -> None:
        self.name: Final = name
        self._v5: Final = v5
        protocol = paho.MQTTv5 if v5 else paho.MQTTv311
        self._client: Final = paho.Client(CallbackAPIVersion.VERSION2, name, protocol=protocol)
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

    def subscribe(self, step: Step) -> None:
        if self._v5:
            options = SubscribeOptions(
                qos=1, retainHandling=step.retain_handling, retainAsPublished=step.retain_as_published
            )
            self._client.subscribe([(topic_filter, options) for topic_filter in step.topics])
        else:
            self._client.subscribe([(topic_filter, 1) for topic_filter in step.topics])
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


def run(timeline: Sequence[Step], host: str, port: int, v5: bool) -> None:
    subscribers = [Party(name, host, port, v5) for name in ("S1", "S2", "S3", "S4")]
    publisher = Party("P", host, port, v5)
    parties = {party.name: party for party in [*subscribers, publisher]}
    for step in timeline:
        print(f"{step.time:>3}  {step.text()}")
        if step.payload is None:
            parties[step.name].subscribe(step)
        else:
            for topic_name in step.topics:
                parties[step.name].publish(topic_name, step.payload, step.retain)
        for subscriber in subscribers:
            print(f"       {subscriber.name}: {', '.join(subscriber.received()) or '-'}")
    for party in parties.values():
        party.leave()


def main() -> None:
    parser = argparse.ArgumentParser(description="Who receives which retained message, step by step.")
    parser.add_argument("--v5", action="store_true", help="with MQTT 5, and its subscription options")
    v5 = parser.parse_args().v5
    retained = [step._replace(retain=step.payload is not None) for step in TIMELINE]
    parts = [("The timeline as written", TIMELINE), ("Every message retained", retained)]
    if v5:
        parts.append(("Subscribers that choose", V5_TIMELINE))
    for title, timeline in parts:
        with Broker.in_thread() as broker:
            assert broker.port is not None
            print(f"{title} (time, step, what each subscriber received)")
            run(timeline, broker.host, broker.port, v5)
            print()


if __name__ == "__main__":
    main()
