"""`$asof` an instant that only the archive has: the retained set of then, and nobody else waits for the archive."""

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from threading import Event, Semaphore

import pytest

from embermq.archive.archive import open_archive
from embermq.broker.history.delivery import PAST_READS_MAX
from embermq.history.stretches import archived_history
from embermq.instants import utc_text
from embermq.protocol.packets import Publish, Suback, Unsubscribe
from embermq.protocol.reasons import ReasonCode
from embermq.store.engines.opening import JournalSettings
from embermq.store.history.trimmed import TrimmedRetained
from embermq.store.interface import RetainedPiece
from embermq.store.log.checkpoint import checkpoint_offsets
from embermq.store.log.segments import first_offsets
from support.archives import BUCKET, uploader, wait_until, writer_of
from support.core import ScriptedLink
from support.history import HeldArchive, HistoryBench
from support.trimmed_log import SETTINGS

STEP_S = 20
"""More than the time between two checks of the retention."""

Retained = dict[str, bytes]


class HeldPast(TrimmedRetained):
    """A past that answers only when it is let."""

    def __init__(self, past: TrimmedRetained) -> None:
        self._past = past
        self.held_us: set[int] = set()
        self.waiting = Semaphore(0)
        self.go_on = Event()
        self.asked: list[int] = []
        self.was_wanted: list[bool] = []

    def piece(
        self,
        topic_filter: str,
        instant_us: int,
        after_topic_name: str,
        limit: int,
        bytes_max: int,
        is_wanted: Callable[[], bool],
    ) -> RetainedPiece:
        self.asked.append(instant_us)
        if instant_us in self.held_us:
            self.waiting.release()
            assert self.go_on.wait(60)
            self.was_wanted.append(is_wanted())
        return self._past.piece(topic_filter, instant_us, after_topic_name, limit, bytes_max, is_wanted)

    def is_made(self, instant_us: int) -> bool:
        return self._past.is_made(instant_us)

    def begins_us(self) -> int:
        return self._past.begins_us()

    def close(self) -> None:
        self._past.close()


class AsOfBench(HistoryBench):
    """A core on a journal that is archived and trimmed; it remembers the retained set of every instant."""

    def __init__(self, directory: Path, place: str, settings: JournalSettings = SETTINGS) -> None:
        self.place = place
        self.uploader = uploader(place)
        archive = archived_history(place, directory / "log")
        self.past = HeldPast(archive.retained())
        self.truth: dict[int, Retained] = {}
        self._current: Retained = {}
        held = HeldArchive(archive, self.past)
        super().__init__(directory, settings=settings, archiver=self.uploader, trimmed=lambda: held)

    def fill(self, rounds: int = 150, topics: int = 12) -> None:
        """Publish, replace and clear retained messages, one round an instant."""
        random = Random(1)
        for number in range(rounds):
            self.pass_s(STEP_S)
            for _ in range(4):
                topic = f"t/{random.randrange(topics)}"
                payload = b"" if random.random() < 0.2 else b"%d" % number + bytes(random.choice([1, 400]))
                self.publish(topic, payload, 1, retain=True)
                self._current.pop(topic, None)
                if payload:
                    self._current[topic] = payload
            self.commit()
            self.truth[self.now_ms * 1_000] = dict(self._current)
            if number % 10 == 0:
                wait_until(lambda: self.journal.counts()["archive/pending-bytes"] == 0)
        log = self.directory / "log"
        wait_until(lambda: self.uploader._done == (first_offsets(log), checkpoint_offsets(log)))

    @property
    def archived(self) -> list[int]:
        """The instants that only the archive has."""
        begins_us = self.journal.history.begins_us()
        return [instant_us for instant_us in self.truth if instant_us < begins_us]

    def taken(self, link: ScriptedLink) -> Retained:
        """The retained messages that a client got, each topic once."""
        found: Retained = {}
        for packet in link.take():
            assert isinstance(packet, Publish) and packet.retain and packet.topic_name not in found
            found[packet.topic_name] = packet.payload
        return found

    def as_of(self, link: ScriptedLink, instant_us: int, topic_filter: str = "#") -> Retained:
        assert self.ask(link, f"$asof/{utc_text(instant_us)}/{topic_filter}") == Suback(1, [0])
        self.drain()
        return self.taken(link)

    def ended(self, link: ScriptedLink) -> str:
        """What a client is told whose subscription cannot go on."""
        self.until(lambda: link.closed is not None)
        assert link.closed == ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR
        assert "\n" not in link.closed_detail
        return link.closed_detail


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[AsOfBench]:
    bench = AsOfBench(tmp_path / "data", str(tmp_path / "archive"))
    bench.fill()
    yield bench
    bench.past.go_on.set()
    bench.journal.close()


def test_the_archive_may_be_in_an_object_store(s3_query: str, tmp_path: Path) -> None:
    bench = AsOfBench(tmp_path / "data", f"s3://{BUCKET}/as-of?{s3_query}")
    bench.fill(100)
    client = bench.join("reader")
    for instant_us in bench.archived[::15]:
        assert bench.as_of(client, instant_us) == bench.truth[instant_us]
    bench.journal.close()


def test_a_client_that_reads_slowly_gets_all_also_if_the_history_is_trimmed_meanwhile(tmp_path: Path) -> None:
    bench = AsOfBench(tmp_path / "data", str(tmp_path / "archive"))
    bench.fill(60, topics=200)
    instant_us = list(bench.truth)[-1]
    assert instant_us not in bench.archived and len(bench.truth[instant_us]) > 60
    client = bench.join("reader", room=10)
    bench.ask(client, f"$asof/{utc_text(instant_us)}/#")
    bench.drain()
    found = bench.taken(client)
    bench.fill(120, topics=200)
    assert instant_us in bench.archived
    while client.session is not None and client.session.history_subscriptions > 0:
        client.room = 10
        bench.core.writable(client)
        bench.drain()
        found |= bench.taken(client)
    assert found == bench.truth[instant_us]
    bench.journal.close()


def test_nobody_waits_for_the_past_but_who_asks_for_it(bench: AsOfBench) -> None:
    first_us, second_us = bench.archived[3], bench.archived[-1]
    local_us = list(bench.truth)[-2]
    assert bench.as_of(bench.join("warm"), second_us) == bench.truth[second_us]
    bench.past.held_us = {first_us}
    waiting = [bench.join(f"w{number}") for number in range(PAST_READS_MAX + 6)]
    for link in waiting:
        bench.ask(link, f"$asof/{utc_text(first_us)}/#")
    bench.until(lambda: bench.core.history._of_past.reading == PAST_READS_MAX)
    assert bench.past.waiting.acquire(timeout=60)
    other, replay = bench.join("other"), bench.join("replay")
    bench.ask(other, f"$asof/{utc_text(local_us)}/#")
    bench.ask(replay, f"$replay/{utc_text(first_us)}/#")
    bench.until(
        lambda: bench.is_live(replay) and other.session is not None and other.session.history_subscriptions == 0
    )
    assert bench.taken(other) == bench.truth[local_us]
    gone, unsubscribed, *rest = waiting
    bench.lose(gone)
    bench.send(unsubscribed, Unsubscribe(2, [f"$asof/{utc_text(first_us)}/#"]))
    bench.commit()
    bench.past.go_on.set()
    bench.until(lambda: all(link.session is not None and link.session.history_subscriptions == 0 for link in rest))
    assert all(bench.taken(link) == bench.truth[first_us] for link in rest)
    assert gone.payloads() == unsubscribed.payloads() == []
    assert bench.past.was_wanted[0] is False, "what nobody waits for is given up"


def test_an_archive_that_is_gone_ends_the_subscription_and_nothing_else(bench: AsOfBench, tmp_path: Path) -> None:
    instant_us, local_us = bench.archived[5], list(bench.truth)[-2]
    (tmp_path / "archive").rename(tmp_path / "away")
    client, other = bench.join("reader"), bench.join("other")
    bench.ask(client, f"$asof/{utc_text(instant_us)}/#")
    assert bench.ended(client) == (
        f"a history subscription: {tmp_path}/archive is not an archive: no server has written to it"
    )
    assert bench.as_of(other, local_us) == bench.truth[local_us]
    (tmp_path / "away").rename(tmp_path / "archive")
    assert bench.as_of(other, instant_us) == bench.truth[instant_us]


def test_a_changed_object_ends_the_subscription_with_its_name(bench: AsOfBench) -> None:
    instant_us = bench.archived[5]
    segment = open_archive(bench.place).segments()[0]
    path = Path(bench.place) / f"{segment.name}.log"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    client = bench.join("reader")
    bench.ask(client, f"$asof/{utc_text(instant_us)}/#")
    assert f"{segment.name}.log of the archive {bench.place} is damaged" in bench.ended(client)


def test_the_archive_of_another_log_is_not_read(bench: AsOfBench, tmp_path: Path) -> None:
    instant_us = bench.archived[5]
    other = AsOfBench(tmp_path / "other", str(tmp_path / "elsewhere"))
    other.fill(30)
    other.journal.close()
    (tmp_path / "archive").rename(tmp_path / "away")
    (tmp_path / "elsewhere").rename(tmp_path / "archive")
    client = bench.join("reader")
    bench.ask(client, f"$asof/{utc_text(instant_us)}/#")
    assert bench.ended(client) == f"a history subscription: {bench.place} is the archive of another log"


def test_what_the_archive_does_not_reach_back_to_is_refused(bench: AsOfBench) -> None:
    writer = writer_of(bench.place, bench.directory / "log")
    archive = open_archive(bench.place)
    second = archive.checkpoints()[1]
    for segment in archive.segments():
        if segment.next_offset <= second.offset:
            writer.delete(segment)
    writer.delete(archive.checkpoints()[0])
    client = bench.join("reader")
    text = f"$asof/{utc_text(bench.archived[2])}/#"
    bench.ask(client, text)  # how far it reaches is not known before it was asked
    assert "a history subscription: the history is kept from 2023-11-14T22:" in bench.ended(client)
    client = bench.join("reader")
    suback = bench.ask(client, text)
    assert suback.reasons == [ReasonCode.TOPIC_FILTER_INVALID]
    assert suback.reason_string == f"the history begins at {utc_text(second.timestamp_us)}"
    assert bench.as_of(client, second.timestamp_us) == bench.truth[second.timestamp_us]


def test_what_was_made_is_removed_with_the_server(tmp_path: Path) -> None:
    bench = AsOfBench(tmp_path / "data", str(tmp_path / "archive"))
    bench.fill(100)
    bench.as_of(bench.join("reader"), bench.archived[5])
    cache = bench.directory / "archive-cache"
    made = list(cache.glob("as-of-*"))
    assert len(made) == 1
    bench.journal.close()
    assert not made[0].exists() and (cache / "segments").exists()
    (made[0] / "state").mkdir(parents=True)  # as a server leaves it that is killed
    bench = AsOfBench(tmp_path / "data", str(tmp_path / "archive"))
    assert not made[0].exists()
    bench.journal.close()
