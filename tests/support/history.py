"""A core on a journal whose clients subscribe to history, without sockets."""

from collections.abc import Callable
from pathlib import Path
from threading import Event, Semaphore

from embermq.broker.access import Access
from embermq.broker.history.stream import LIVE
from embermq.broker.limits import Limits
from embermq.protocol.packets import Acknowledgement, Delivery, Publish, Suback, Subscribe, SubscriptionRequest
from embermq.store.engines.opening import JournalSettings
from embermq.store.engines.retention import Archiver
from embermq.store.history.trimmed import Fetched, TrimmedLog, TrimmedRetained
from support.acknowledgements import is_pubrel, puback, pubcomp, pubrec
from support.core import DiskBench, ScriptedLink

START_MS = 1_700_000_000_000


class HistoryLink(ScriptedLink):
    """Keeps the properties of messages too."""

    def __init__(self, room: int = 1_000_000, is_v5: bool = False) -> None:
        super().__init__(room, is_v5=is_v5)
        self.properties: list[bytes] = []

    def deliver(self, delivery: Delivery) -> int:
        taken = super().deliver(delivery)
        self.properties += [message.properties for message in delivery.messages[:taken]]
        return taken


class HeldArchive(TrimmedLog):
    """An archive that answers only when it is let, with its own past or another."""

    def __init__(self, archive: TrimmedLog, past: TrimmedRetained | None = None) -> None:
        self._archive = archive
        self._past = past if past is not None else archive.retained()
        self.is_held = False
        self.waiting = Semaphore(0)
        self.go_on = Event()

    def fetch(self, offset: int, from_us: int, log_begins: int) -> Fetched:
        if self.is_held:
            self.waiting.release()
            assert self.go_on.wait(60)
        return self._archive.fetch(offset, from_us, log_begins)

    def in_memory(self, offset: int) -> Fetched | None:
        return self._archive.in_memory(offset)

    def begins_us(self, log_begins: int) -> int:
        return self._archive.begins_us(log_begins)

    def fetched_bytes(self) -> int:
        return self._archive.fetched_bytes()

    def retained(self) -> TrimmedRetained:
        return self._past


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
        trimmed: Callable[[], TrimmedLog] | None = None,
    ) -> None:
        super().__init__(
            directory, limits, access, now_ms=now_ms, settings=settings, archiver=archiver, trimmed=trimmed
        )

    def until(self, condition: Callable[[], bool]) -> None:
        """Run what the store's threads ask for until something is so."""
        self.turn()
        while not condition():
            self.calls.get(timeout=60)()
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
        streams = self.core.history.streams_of(session)
        return bool(streams) and all(stream.state == LIVE for stream in streams)

    def acknowledge(self, link: ScriptedLink) -> list[bytes]:
        """Answer what a client got, until nothing more comes; returns the payloads, each message once."""
        payloads: list[bytes] = []
        while True:
            answers: list[Acknowledgement] = []
            for packet in link.take():
                if isinstance(packet, Publish):
                    payloads.append(packet.payload)
                    if packet.qos:
                        answers.append(puback(packet.packet_id) if packet.qos == 1 else pubrec(packet.packet_id))
                elif is_pubrel(packet):
                    answers.append(pubcomp(packet.packet_id))
            if not answers:
                return payloads
            self.send(link, *answers)
            self.commit()
            self.drain()
            self.commit()  # what a persistent session gets waits for its commit
