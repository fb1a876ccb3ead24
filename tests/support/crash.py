"""The crash test: a server under load is killed again and again; nothing that it acknowledged may be missing.

Owns: the rounds: who is connected when, when the server dies, and how it all ends.
Run it as long as you like with `make crash ROUNDS=500`. A seed fixes every choice of the test, though not how far the
server gets between two of them.
"""

import argparse
import asyncio
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random, SystemRandom

from support.crash_checker import KEPT, LIVE, Checker
from support.crash_clients import Leaver, Onlooker, Peer, Publisher, Subscriber
from support.crash_clients_v5 import PUBLISHER as PUBLISHER_V5
from support.crash_clients_v5 import PublisherV5, SubscriberV5
from support.crash_v5 import V5Checks
from support.server_process import ServerEnded, ServerProcess

PUBLISHERS = 3
KEPT_TOPICS = 6
"""Retained topics of each publisher and QoS."""
LOAD_MAX = 600
"""The server is killed after up to this many acknowledgements, and a moment more."""
LOAD_TIMEOUT_S = 60.0
MOMENT_S = 0.01
STOP_CHANCE = 0.1
START_KILL_CHANCE = 0.15
LATE_CHANCE = 0.4
LATE_MAX = 3
"""Sessions that are made while the server is under load."""
OFFLINE_ROUNDS = 8
"""How many rounds a session is away before it is let in to catch up."""
DRAIN_TIMEOUT_S = 120.0
QUEUE_MESSAGES_MAX = 40_000
DRAIN_AFTER = 20_000
"""After how many messages all sessions are let in until they have everything: no queue may reach its limit. One round
sends far fewer than the difference between the two."""

# Small segments and little history, so that rolling and trimming happen under the same kills.
SETTINGS = {
    "store.segment_bytes": str(1024 * 1024),
    "store.retention_bytes": str(4 * 1024 * 1024),
    "limits.queue_messages_max": str(QUEUE_MESSAGES_MAX),
    "limits.will_grace_s": "1",
}


@dataclass(slots=True)
class Report:
    """How it went. No violations is what is wanted."""

    seed: int
    kills: int = 0
    stops: int = 0
    drains: int = 0
    acknowledged: int = 0
    deliveries: int = 0
    shared: int = 0
    brief: int = 0
    wills: int = 0
    redeliveries: int = 0
    starts_s: list[float] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        starts = sorted(self.starts_s) or [0.0]
        return (
            f"seed {self.seed}: {self.kills} kills, {self.stops} stops, all sessions drained {self.drains} times;"
            f" {self.acknowledged} messages acknowledged,"
            f" {self.deliveries} delivered, {self.redeliveries} of them again;"
            f" {self.shared} to a share group, {self.brief} before they expired, {self.wills} wills;"
            f" start {starts[len(starts) // 2]:.2f} s, at most {starts[-1]:.2f} s"
        )


class CrashTest:
    """One directory, one set of clients, many servers."""

    def __init__(
        self, directory: Path, seed: int, *, checker: Checker | None = None, drain_after: int = DRAIN_AFTER
    ) -> None:
        self._drain_after = drain_after
        self._random = Random(seed)
        self._moods = Random(seed)  # of the flaky: how often they are asked depends on time, the rest must not
        self._server = ServerProcess(directory / "data", directory / "server.log", SETTINGS)
        self._checker = checker if checker is not None else Checker(QUEUE_MESSAGES_MAX)
        self._report = Report(seed)
        self._publishers = [self._publisher(number) for number in range(PUBLISHERS)]
        # Of each kind one client speaks 3.1.1 and one MQTT 5.
        self._online = [Subscriber("online-1", self._checker, 1), SubscriberV5("online-2", self._checker, 2)]
        self._lagging = [
            SubscriberV5("lagging-1", self._checker, 1, lag=True),
            Subscriber("lagging-2", self._checker, 2, lag=True),
        ]
        self._flaky = [SubscriberV5("flaky-1", self._checker, 1), Subscriber("flaky-2", self._checker, 2)]
        self._offline = [Subscriber("offline-1", self._checker, 1), SubscriberV5("offline-2", self._checker, 2)]
        self._late: list[Subscriber] = []
        self._joined = 0
        self._leaving: list[str] = []
        self._gone: list[str] = []
        self._onlooker = Onlooker(self._checker)
        self.v5 = V5Checks(self._checker, QUEUE_MESSAGES_MAX, seed)

    def _publisher(self, number: int) -> Publisher:
        topic_names = {f"{LIVE}/{number}/{qos}": qos for qos in (1, 2)}
        topic_names |= {f"{KEPT}/{number}/{qos}/{kept}": qos for qos in (1, 2) for kept in range(KEPT_TOPICS)}
        kind = PublisherV5 if str(number) == PUBLISHER_V5 else Publisher
        return kind(f"publisher-{number}", self._checker, Random(self._random.random()), topic_names)

    async def run(self, rounds: int, progress: Callable[[Report], None] | None = None) -> Report:
        """All rounds; now and then, and at the end, all sessions are let in until they have what they are owed."""
        report = self._report
        try:
            await self._start()
            await self._subscribe_all()
            await self.v5.subscribe(self._server.port)
            while report.kills < rounds and not self._checker.violations:
                await self._round()
                if self._checker.owed_max() > self._drain_after and not self._checker.violations:
                    await self._drain_all()
                self._take_stock()
                if progress is not None:
                    progress(report)
            if not self._checker.violations:
                await self._drain_all()
        finally:
            self._server.kill()
        self._take_stock()
        log = self._server.log()
        if "Traceback" in log:
            report.violations.append("the server logged an error of its own:\n" + log[log.index("Traceback") :][:3000])
        return report

    # -- the server's lives --------------------------------------------------------------------------------------

    async def _start(self) -> None:
        """Start the server; now and then it is killed while it starts, and started again."""
        server = self._server
        while self._report.starts_s and self._random.random() < START_KILL_CHANCE:
            server.launch()
            await asyncio.sleep(self._random.uniform(0.1, 1.5) * self._report.starts_s[-1])
            server.kill()
            self._report.kills += 1
        server.launch()
        try:
            await asyncio.to_thread(server.wait_until_ready)
        except ServerEnded as ended:
            self._checker.wrong(f"the server does not start: {ended}")
            raise
        self._report.starts_s.append(server.start_s)

    async def _end(self) -> None:
        """End the server one way or the other, and see that every client has noticed."""
        self._expect_the_end()
        if self._random.random() < STOP_CHANCE:
            exit_code = await asyncio.to_thread(self._server.stop)
            if exit_code != 0:
                self._checker.wrong(f"the server stopped with exit code {exit_code}")
            self._report.stops += 1
        else:
            self._server.kill()
            self._report.kills += 1
        await asyncio.gather(*(peer.gone() for peer in self._all()))

    def _expect_the_end(self) -> None:
        for peer in self._all():
            peer.may_drop = True

    # -- rounds --------------------------------------------------------------------------------------------------

    async def _subscribe_all(self) -> None:
        for subscriber in self._subscribers():
            await subscriber.open(self._server.port)
            await subscriber.subscribed.wait()
            await subscriber.drop()

    async def _round(self) -> None:
        await self._leave()
        if self._random.random() < LATE_CHANCE:
            self._join()
        await self.v5.before_load(self._server.port)
        await self._load(self._random.randrange(LOAD_MAX))
        await self._end()
        await self._start()
        await self._onlooker.look(self._server.port, f"{KEPT}/#")
        await self.v5.after_start(self._server.port)

    def _join(self) -> None:
        """A session more, made under load; in exchange for the oldest of its kind if there are enough."""
        self._joined += 1
        qos = self._random.choice((1, 2))
        self._late.append(Subscriber(f"late-{self._joined}", self._checker, qos, prefix=LIVE))
        if len(self._late) > LATE_MAX:
            self._leaving.append(self._late.pop(0).client_id)

    async def _leave(self) -> None:
        """A session that was ended is gone for good: the next server knows nothing of it."""
        for client_id in self._gone:
            again = Peer(client_id, self._checker)
            await again.open(self._server.port)
            await again.ping()
            await again.drop()
        for client_id in self._leaving:
            leaver = Leaver(client_id, self._checker)
            await leaver.open(self._server.port)
            await leaver.drop()
        self._gone, self._leaving = self._leaving, []

    async def _load(self, acknowledgements: int) -> None:
        """Everybody at once on a server that has just started, until it has acknowledged so much; some come and go."""
        back = self._offline if self._random.randrange(OFFLINE_ROUNDS) == 0 else []
        wanted: list[Peer] = [*self._publishers, *self._online, *self._lagging, *self._late, *back, *self.v5.load()]
        self._random.shuffle(wanted)
        enough = asyncio.Event()

        def count() -> None:
            nonlocal acknowledgements
            acknowledgements -= 1
            if acknowledgements <= 0:
                enough.set()

        self._checker.on_acknowledged = count
        tasks = [asyncio.ensure_future(self._open(peer)) for peer in wanted]
        tasks.append(asyncio.ensure_future(self._come_and_go()))
        try:
            async with asyncio.timeout(LOAD_TIMEOUT_S):
                await enough.wait()
        except TimeoutError:
            self._checker.wrong(f"nothing is acknowledged any more: {acknowledgements} to go")
        await asyncio.sleep(self._random.uniform(0, MOMENT_S))
        self._expect_the_end()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _come_and_go(self) -> None:
        while True:
            flaky = self._moods.choice(self._flaky)
            if flaky.is_open():
                await flaky.drop()
            else:
                await self._open(flaky)
            await asyncio.sleep(self._moods.uniform(0.01, 0.1))

    async def _open(self, peer: Peer) -> None:
        peer.may_drop = False
        await peer.open(self._server.port)

    # -- draining ------------------------------------------------------------------------------------------------

    async def _drain_all(self) -> None:
        """Let every session get and acknowledge all that it is owed, check that, and go on with empty queues."""
        await self._leave()
        await self._drain()
        if self._checker.violations:
            return
        await self._restart_quietly()
        for publisher in self._publishers:
            publisher.sending = True
        self.v5.sending(True)
        self._report.drains += 1
        self._checker.drained()

    async def _drain(self) -> None:
        """Publishers finish what they have begun; every session gets what it is owed.

        A queue may end in clears and in messages that a publisher sent twice, which are not owed. One more message
        follows them: who has got it has got all.
        """
        for publisher in self._publishers:
            publisher.sending = False
        self.v5.sending(False)
        for peer in [*self._publishers, *self._subscribers(), *self.v5.peers()]:
            await self._open(peer)
        deadline = time.monotonic() + DRAIN_TIMEOUT_S
        if await self._until(lambda: not any(publisher.inflight for publisher in self._publishers), deadline):
            self._publishers[0].publish_last()
            await self._until(lambda: not self._publishers[0].inflight and not self._owed(), deadline)
        if not self._checker.violations:
            self._checker.finished()
            self.v5.finished()

    def _owed(self) -> int:
        return sum(self._checker.owed(peer.client_id) for peer in self._subscribers()) or self.v5.owed()

    async def _until(self, condition: Callable[[], bool], deadline: float) -> bool:
        while time.monotonic() < deadline and not self._checker.violations:
            if condition():
                return True
            await asyncio.sleep(0.05)
        return False

    async def _restart_quietly(self) -> None:
        """After an orderly stop nothing is owed, so nothing comes; what is retained is what was acknowledged last."""
        for peer in self._all():
            if peer.is_open():
                await peer.ping()
                await peer.drop()
        if self._server.stop() != 0:
            self._checker.wrong("the server did not stop in order")
        await self._start()
        await self._onlooker.look(self._server.port, f"{KEPT}/#")
        deliveries = self._checker.deliveries + self.v5.group.deliveries
        for peer in [*self._subscribers(), *self.v5.members]:
            await self._open(peer)
            await peer.ping()
            await peer.drop()
        more = self._checker.deliveries + self.v5.group.deliveries - deliveries
        if more:
            self._checker.wrong(f"{more} messages came after all was acknowledged")

    def _take_stock(self) -> None:
        report, checker = self._report, self._checker
        report.acknowledged = checker.messages_acknowledged()
        report.deliveries = checker.deliveries
        report.redeliveries = checker.redeliveries
        report.shared = self.v5.group.deliveries
        report.brief = self.v5.brief_subscriber.taken
        report.wills = len(self.v5.watcher.wills)
        report.violations = checker.violations[:20]

    def _subscribers(self) -> list[Subscriber]:
        return [*self._online, *self._lagging, *self._flaky, *self._offline, *self._late]

    def _all(self) -> list[Peer]:
        return [*self._publishers, *self._subscribers(), *self.v5.all()]


def main() -> None:
    parser = argparse.ArgumentParser(description="Kill a server under load until something is wrong with it.")
    parser.add_argument("--rounds", type=int, default=100, help="how many kills")
    parser.add_argument("--seed", type=int, default=None, help="repeat the choices of an earlier run")
    parser.add_argument("--directory", type=Path, default=None, help="where to keep the data; deleted if not given")
    arguments = parser.parse_args()
    seed = arguments.seed if arguments.seed is not None else SystemRandom().randrange(1_000_000)
    print(f"seed {seed}", flush=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that no server is left behind

    def progress(report: Report) -> None:
        print(f"\r{report}", end="" if sys.stdout.isatty() else "\n", flush=True)

    with tempfile.TemporaryDirectory(prefix="ember-crash-") as temporary:
        directory = arguments.directory or Path(temporary)
        directory.mkdir(parents=True, exist_ok=True)
        report = asyncio.run(CrashTest(directory, seed).run(arguments.rounds, progress))
    print(f"\n{report}")
    for violation in report.violations:
        print(f"VIOLATION {violation}")
    sys.exit(1 if report.violations else 0)


if __name__ == "__main__":
    main()
