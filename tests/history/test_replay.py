"""`$replay` of messages that only the archive has: complete, in order, and nobody else waits for the archive."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from embermq.archive.archive import open_archive
from embermq.archive.restore import restore
from embermq.broker.access import Access
from embermq.history.stretches import archived_history
from embermq.instants import utc_text
from embermq.protocol.packets import Suback, Unsubscribe
from embermq.protocol.reasons import ReasonCode
from embermq.store.engines.opening import JournalSettings
from embermq.store.errors import instant_text
from embermq.store.history.lanes import FETCHING_THREADS
from embermq.store.log.checkpoint import checkpoint_offsets
from embermq.store.log.segments import first_offsets
from support.archives import BUCKET, uploader, wait_until, writer_of
from support.core import ScriptedAccess, ScriptedLink
from support.history import START_MS, HeldArchive, HistoryBench

SETTINGS = JournalSettings(durability="os", segment_bytes=2_000)
MESSAGES = 600


class ArchivedBench(HistoryBench):
    """A core on a journal whose closed segments are archived; it is trimmed by hand."""

    def __init__(self, directory: Path, place: str, access: Access | None = None, now_ms: int = START_MS) -> None:
        self.place = place
        self.uploader = uploader(place)
        self.archive = HeldArchive(archived_history(place, directory / "log"))
        super().__init__(
            directory,
            None,
            access,
            now_ms=now_ms,
            settings=SETTINGS,
            archiver=self.uploader,
            trimmed=lambda: self.archive,
        )

    def fill(self, count: int = MESSAGES, first: int = 0) -> list[bytes]:
        """Messages at QoS 1, ten in a second and a group."""
        payloads = [b"%d" % number for number in range(first, first + count)]
        for number, payload in enumerate(payloads):
            if number % 10 == 0:
                self.commit()
                self.pass_s(1)
            self.publish(f"plant/{number % 7}", payload, 1)
        self.commit()
        return payloads

    def trim(self, part: float) -> int:
        """Archive the closed segments, and delete those of a part of the log; returns its first offset."""
        log = self.journal._log
        wait_until(lambda: self.uploader.archived_before() >= log.newest_segment)
        log.trim(int(log.next_offset * part))
        assert log.first_offset > log.next_offset * part / 2
        return log.first_offset

    def replayed(self, link: ScriptedLink, topic_filter: str, qos: int = 1) -> list[bytes]:
        """What a replay has sent when all of it was read."""
        assert self.ask(link, topic_filter, qos) == Suback(1, [qos])
        self.drain()
        self.commit()
        return self.acknowledge(link)

    def ended(self, link: ScriptedLink) -> str:
        """What a client is told whose replay cannot go on."""
        self.until(lambda: link.closed is not None)
        assert link.closed == ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR
        assert "\n" not in link.closed_detail
        return link.closed_detail


def at(number: int) -> str:
    """The instant of a message."""
    return utc_text((START_MS + (number // 10 + 1) * 1_000) * 1_000)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[ArchivedBench]:
    bench = ArchivedBench(tmp_path / "data", str(tmp_path / "archive"))
    yield bench
    bench.archive.go_on.set()
    bench.journal.close()


def check_replay(bench: ArchivedBench, qos: int, clean: bool, messages: int = MESSAGES) -> None:
    payloads = bench.fill(messages)
    bench.trim(0.6)
    client = bench.join("reader", clean=clean)
    got = bench.replayed(client, "$replay/-1h/plant/#", qos)
    bench.until(lambda: bench.is_live(client))
    bench.publish("plant/x", b"live", qos)
    bench.commit()
    got += bench.acknowledge(client)
    assert got == [*payloads, b"live"]
    assert bench.journal.counts()["archive/fetched-bytes"] > 0


@pytest.mark.parametrize(("qos", "clean"), [(0, True), (1, True), (1, False), (2, False)])
def test_a_replay_goes_from_the_archive_to_the_log_to_live(bench: ArchivedBench, qos: int, clean: bool) -> None:
    check_replay(bench, qos, clean)


def test_the_archive_may_be_in_an_object_store(s3_query: str, tmp_path: Path) -> None:
    bench = ArchivedBench(tmp_path / "data", f"s3://{BUCKET}/replay?{s3_query}")
    check_replay(bench, 1, True, 200)
    bench.journal.close()


def test_instants_bound_it_wherever_they_lie(bench: ArchivedBench) -> None:
    payloads = bench.fill()
    bench.trim(0.6)
    client = bench.join("reader")
    for first, end in ((0, 10), (55, 130), (200, 580), (570, 580), (0, 580)):
        got = bench.replayed(client, f"$replay/{at(first)}/{at(end)}/plant/#")
        assert got == payloads[first // 10 * 10 : end // 10 * 10]
    assert bench.replayed(client, f"$replay/../{at(130)}/plant/3") == payloads[3:130:7]
    assert bench.replayed(client, f"$replay/../{at(130)}/nothing") == []
    session = client.session
    assert session is not None and session.history_subscriptions == 0, "they have ended"


def test_messages_of_the_instant_at_which_the_log_begins_come_from_the_archive_too(bench: ArchivedBench) -> None:
    payloads = [b"%d" % number for number in range(200)]
    for payload in payloads:  # all of one instant, as where the clock of the machine was set back
        bench.publish("plant/1", payload, 1)
        bench.commit()
    bench.trim(0.6)
    begins = utc_text(bench.journal._log.begins_us())
    assert bench.replayed(bench.join("reader"), f"$replay/{begins}/plant/#") == payloads


def test_what_is_trimmed_while_it_is_read_comes_from_the_archive(bench: ArchivedBench) -> None:
    payloads = bench.fill()
    client = bench.join("reader", room=30)
    assert bench.ask(client, "$replay/../plant/#") == Suback(1, [0])
    bench.drain()
    got = client.payloads()
    for part in (0.3, 0.5, 0.5, 0.8, 0.8):
        bench.trim(part)
        client.room = 100
        bench.core.writable(client)
        bench.drain()
        got += client.payloads()
    client.room = 1_000_000
    bench.core.writable(client)
    bench.until(lambda: bench.is_live(client))
    assert got + client.payloads() == payloads
    assert bench.journal.counts()["archive/fetched-bytes"] > 0


def test_nobody_waits_for_an_archive_that_does_not_answer_but_who_asks_it(bench: ArchivedBench) -> None:
    payloads = bench.fill()
    begins = bench.trim(0.6)
    bench.archive.is_held = True
    waiting = [bench.join(f"w{number}") for number in range(FETCHING_THREADS + 6)]
    for link in waiting:
        bench.ask(link, "$replay/../plant/#")
    bench.until(lambda: len(bench.core.history._of_archive.ready) == len(waiting) - FETCHING_THREADS)
    for _ in range(FETCHING_THREADS):
        assert bench.archive.waiting.acquire(timeout=60)
    others = [bench.join(f"o{number}") for number in range(6)]
    local = begins // 10 * 10 + 20
    for link in others:
        bench.ask(link, f"$replay/{at(local)}/plant/#")
    bench.until(lambda: all(bench.is_live(link) for link in others))
    assert all(link.payloads() == payloads[local:] for link in others)
    bench.publish("plant/1", b"live", 1)
    bench.commit()
    assert all(link.payloads() == [b"live"] for link in others)
    gone, unsubscribed, *rest = waiting
    bench.lose(gone)
    bench.send(unsubscribed, Unsubscribe(2, ["$replay/../plant/#"]))
    bench.commit()
    bench.archive.go_on.set()
    bench.until(lambda: all(bench.is_live(link) for link in rest))
    assert all(link.payloads() == [*payloads, b"live"] for link in rest)
    assert gone.payloads() == unsubscribed.payloads() == []


def test_an_archive_that_is_gone_ends_the_replay_and_nothing_else(bench: ArchivedBench, tmp_path: Path) -> None:
    payloads = bench.fill()
    bench.trim(0.6)
    log = tmp_path / "data" / "log"
    wait_until(lambda: bench.uploader._done == (first_offsets(log), checkpoint_offsets(log)))
    bench.uploader.close()  # it would make the directory again to write into it
    (tmp_path / "archive").rename(tmp_path / "away")
    client, other = bench.join("reader"), bench.join("other")
    bench.ask(client, "$replay/../plant/#")
    begins = instant_text(bench.journal._log.begins_us() + 1)
    assert bench.ended(client) == (
        f"a history subscription: {tmp_path}/archive is not an archive: no server has written to it; from {begins} on"
        " the log itself has everything"
    )
    got = bench.replayed(bench.join("third"), f"$replay/{begins.replace('+00:00', 'Z')}/plant/#")
    assert got and got == payloads[-len(got) :], "which is of use"
    assert bench.replayed(other, f"$replay/{at(550)}/plant/#") == payloads[550:]
    (tmp_path / "away").rename(tmp_path / "archive")
    assert bench.replayed(other, f"$replay/../{at(100)}/plant/#") == payloads[:100]


def test_a_changed_object_ends_the_replay_with_its_name(bench: ArchivedBench) -> None:
    payloads = bench.fill()
    bench.trim(0.6)
    segments = open_archive(bench.place).segments()
    changed, cut = (Path(bench.place) / f"{segments[number].name}.log" for number in (2, 4))
    data = bytearray(changed.read_bytes())
    data[-40] ^= 1
    changed.write_bytes(data)
    cut.write_bytes(cut.read_bytes()[:-100])
    client = bench.join("reader")
    bench.ask(client, "$replay/../plant/#")
    assert f"{segments[2].name}.log of the archive {bench.place} is damaged: the block at byte" in bench.ended(client)
    got = client.payloads()
    assert got == payloads[: len(got)] and len(got) < segments[2].next_offset
    client = bench.join("reader")
    bench.ask(client, f"$replay/{utc_text(segments[4].first_timestamp_us)}/plant/#")
    assert f"{segments[4].name}.log of the archive {bench.place} is damaged: it ends at byte" in bench.ended(client)


def test_what_the_archive_does_not_reach_back_to_is_refused(bench: ArchivedBench) -> None:
    payloads = bench.fill()
    bench.trim(0.6)
    writer = writer_of(bench.place, bench.directory / "log")
    segments = open_archive(bench.place).segments()
    writer.delete(segments[3])  # what is before it does not lead to the log any more
    begins = segments[4].first_timestamp_us
    client = bench.join("reader")
    bench.ask(client, "$replay/-1h/plant/#")  # how far it reaches is not known before it was asked
    assert "a history subscription: the history is kept from 2023-11-14T22:" in bench.ended(client)
    client = bench.join("reader")
    suback = bench.ask(client, "$replay/-1h/plant/#")
    assert suback.reasons == [ReasonCode.TOPIC_FILTER_INVALID]
    assert suback.reason_string == f"the history begins at {utc_text(begins)}"
    got = bench.replayed(client, f"$replay/{utc_text(begins)}/plant/#")
    assert got and got == payloads[-len(got) :]
    other = bench.join("other")
    assert bench.replayed(other, "$replay/../plant/#") == got, "the log begins there, with its archive"


def test_an_archive_that_reaches_nothing_is_asked_again_when_the_log_was_trimmed(bench: ArchivedBench) -> None:
    payloads = bench.fill()
    first = bench.trim(0.3)
    writer = writer_of(bench.place, bench.directory / "log")
    for segment in open_archive(bench.place).segments():
        if segment.first_offset < first:  # as where a log was trimmed before it had an archive
            writer.delete(segment)
    client = bench.join("reader")
    bench.ask(client, f"$replay/{at(0)}/plant/#")
    assert "is no longer in the log" in bench.ended(client)
    client = bench.join("reader")
    assert bench.ask(client, f"$replay/{at(0)}/plant/#").reasons == [ReasonCode.TOPIC_FILTER_INVALID]
    begun = first // 10 * 10 + 10
    assert bench.trim(0.6) > begun + 10
    assert bench.replayed(client, f"$replay/{at(begun)}/plant/#") == payloads[begun:], "the archive has it now"


def test_the_offsets_that_were_lost_with_a_machine_are_passed_over(tmp_path: Path) -> None:
    place = str(tmp_path / "archive")
    old = ArchivedBench(tmp_path / "data", place)
    payloads = old.fill()
    old.trim(0.5)
    old.journal.close()
    restored = restore(place, tmp_path / "new", SETTINGS)
    bench = ArchivedBench(tmp_path / "new", place, now_ms=restored.last_timestamp_us // 1_000)
    payloads += bench.fill(MESSAGES, MESSAGES)
    assert bench.replayed(bench.join("reader"), "$replay/../plant/#") == payloads
    log = bench.journal._log
    wait_until(lambda: bench.uploader.archived_before() >= log.newest_segment)
    log.trim(log.next_offset - 300)
    assert log.first_offset > restored.goes_on_at
    assert bench.replayed(bench.join("reader"), "$replay/../plant/#") == payloads, "now the archive has the hole"
    bench.journal.close()


def test_what_a_persistent_session_has_in_flight_comes_again_after_a_restart(tmp_path: Path) -> None:
    bench = ArchivedBench(tmp_path / "data", str(tmp_path / "archive"))
    payloads = bench.fill()
    bench.trim(0.6)
    client = bench.join("reader", clean=False, receive_maximum=4)
    bench.ask(client, "$replay/../plant/#", 1)
    bench.drain()
    bench.commit()
    assert client.payloads() == payloads[:4]
    later = bench.restarted()
    again = later.connect("reader", clean=False)
    later.commit()
    assert [(each.payload, each.dup) for each in again.take_messages()] == [(each, True) for each in payloads[:4]]
    later.journal.close()


def test_the_rights_are_those_of_the_plain_filter_and_are_asked_for_each_piece(tmp_path: Path) -> None:
    access = ScriptedAccess("plant/")
    bench = ArchivedBench(tmp_path / "data", str(tmp_path / "archive"), access)
    payloads = bench.fill()
    bench.trim(0.9)
    client = bench.join("reader", room=10)
    assert bench.ask(client, "$replay/../secret/#").reasons == [ReasonCode.NOT_AUTHORIZED]
    assert bench.journal.counts()["archive/fetched-bytes"] == 0
    bench.ask(client, "$replay/../plant/#")
    bench.drain()
    assert client.payloads() == payloads[:10]
    access.allowed = "elsewhere/"
    client.room = 1_000
    bench.core.writable(client)
    bench.until(lambda: client.closed is not None)
    assert client.closed == ReasonCode.NOT_AUTHORIZED and client.payloads() == []
    bench.journal.close()
