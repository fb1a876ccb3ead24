"""A core on a journal whose clients subscribe to history, without sockets."""

from collections.abc import Callable
from pathlib import Path

from embermq.broker.access import Access
from embermq.broker.history.stream import LIVE
from embermq.broker.limits import Limits
from embermq.protocol.packets import (
    Delivery,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    SubscriptionRequest,
)
from embermq.store.opening import JournalSettings
from embermq.store.retention import Archiver
from support.core import DiskBench, ScriptedLink

START_MS = 1_700_000_000_000


class HistoryLink(ScriptedLink):
    """Keeps the properties of messages too."""

    def __init__(self, room: int = 1_000_000) -> None:
        super().__init__(room)
        self.properties: list[bytes] = []

    def deliver(self, delivery: Delivery) -> bool:
        is_sent = super().deliver(delivery)
        if is_sent:
            self.properties.append(delivery.message.properties)
        return is_sent


class HistoryBench(DiskBench):
    """A core on a journal; reads of the past are answered when the bench waits for them."""

    def __init__(
        self,
        directory: Path,
        limits: Limits | None = None,
        access: Access | None = None,
        *,
        now_ms: int = START_MS,
        settings: JournalSettings | None = None,
        archiver: Archiver | None = None,
    ) -> None:
        super().__init__(directory, limits, access, now_ms=now_ms, settings=settings, archiver=archiver)

    def until(self, condition: Callable[[], bool]) -> None:
        """Run what the store's threads ask for until something is so."""
        self.turn()
        while not condition():
            self.calls.get(timeout=30)()
            self.turn()

    def drain(self) -> None:
        """Until no read of the past is under way."""
        self.until(lambda: self.core.history.reading == 0)

    def ask(self, link: ScriptedLink, topic_filter: str, qos: int = 0) -> Suback:
        """Subscribe, and take the SUBACK off."""
        self.send(link, Subscribe(1, [SubscriptionRequest(topic_filter, qos)]))
        self.commit()
        suback = next(packet for packet in link.got if isinstance(packet, Suback))
        link.got.remove(suback)
        return suback

    def is_live(self, link: ScriptedLink) -> bool:
        session = link.session
        assert session is not None
        streams = session.history
        return streams is not None and all(stream.state == LIVE for stream in streams.values())

    def acknowledge(self, link: ScriptedLink) -> list[bytes]:
        """Answer what a client got, until nothing more comes; returns the payloads, each message once."""
        payloads: list[bytes] = []
        while True:
            answers: list[Puback | Pubrec | Pubcomp] = []
            for packet in link.take():
                if isinstance(packet, Publish):
                    payloads.append(packet.payload)
                    if packet.qos:
                        answers.append(Puback(packet.packet_id) if packet.qos == 1 else Pubrec(packet.packet_id))
                elif isinstance(packet, Pubrel):
                    answers.append(Pubcomp(packet.packet_id))
            if not answers:
                return payloads
            self.send(link, *answers)
            self.commit()
            self.drain()
            self.commit()  # what a persistent session gets waits for its commit
