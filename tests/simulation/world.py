"""One simulated world: a server, its disk, a network, and clients, in one thread and from one seed.

Owns: what happens next, how the server ends and starts again, and the last phase, in which all faults are mended and
everybody gets what they are owed.
"""

import asyncio
import hashlib
import logging
import shutil
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final, Literal, cast

from embermq.broker.access import AllowAll
from embermq.broker.limits import Limits
from embermq.protocol.packets import Will
from embermq.store.engines.disk import DiskStore
from embermq.store.engines.opening import JournalSettings
from embermq.store.errors import StoreError
from embermq.store.log.errors import LogError
from embermq.store.rows import RETAIN_FLAG, Kind
from embermq.store.state.state import StateSettings
from embermq.transport.listener import Listener
from embermq.transport.server import Server
from embermq.transport.stream import StreamConnection
from simulation import disk as disks
from simulation.checker import Checker
from simulation.client import NEVER_S, Client, Habit
from simulation.clock import BEGINNING_US, CLOCK
from simulation.database import Files
from simulation.disk import Disk, PowerCut
from simulation.loop import Loop
from simulation.network import Wire
from simulation.script import Setup, Step
from simulation.threads import THREADS

LONG_TURN_S: Final = 1e6
WILL_GRACE_S: Final = 10
QUIET_US: Final = 3_000_000
PASSES_MAX: Final = 60_000

_PUBLISH: Final = int(Kind.PUBLISH)
_RETAINED_REMOVED: Final = int(Kind.RETAINED_REMOVED)


@dataclass(slots=True)
class Report:
    """What became of a run."""

    violations: list[str] = field(default_factory=list)
    lives: int = 0
    messages: int = 0
    passes: int = 0
    operations: int = 0
    checks: dict[str, int] = field(default_factory=dict)
    digest: str = ""  # equal for equal runs


class Stuck(Exception):
    """The last phase does not come to an end."""


class _Bugs(logging.Handler):
    """What the server logs with a trace is a bug of ours."""

    def __init__(self, report: Callable[[str], None]) -> None:
        super().__init__(logging.ERROR)
        self._report: Final = report

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None:
            error = record.exc_info[1]
            trace = error.__traceback__
            while trace is not None and trace.tb_next is not None:
                trace = trace.tb_next
            place = "" if trace is None else f" at {Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}"
            self._report(f"a bug of the server: {record.getMessage()} {error!r}{place}")


class World:
    """One run."""

    def __init__(self, seed: int, setup: Setup, directory: Path, is_told: bool = False) -> None:
        """`is_told`: what happens is printed."""
        CLOCK.reset()
        self.setup: Final = setup
        self.rng = Random(f"world {seed}")
        self.checker: Final = Checker()
        if is_told:
            self.checker.notes = lambda text: print(f"{(CLOCK.now_us - 10**9) / 1_000_000:12.6f} {text}")
        self.disk: Final = Disk(directory / "life-0", Random(f"disk {seed}"), setup.is_unordered)
        self.disk.latency_us = setup.latency_us
        self.files: Final = Files()
        self.clients: Final = [
            Client(f"c{number}", self.checker, Random(f"client {seed} {number}")) for number in range(setup.clients)
        ]
        self.wires: list[Wire] = []
        self.server: Server | None = None
        self.store: DiskStore | None = None
        self.loop = Loop()  # type: ignore[abstract]  # see there
        self.report: Final = Report()
        self._listener: Listener | None = None
        self._wires_made = 0
        self._is_power_next = False  # what an armed cut is: of the power, or kill -9
        self._trace = hashlib.sha256()

    # -- the server ----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the server; the power may be cut meanwhile."""
        while self.server is None and not self.checker.violations:
            self.disk.failure = ""
            self.files.is_failing = False
            self.report.lives += 1
            self.checker.notes("the server starts")
            try:
                self._start()
            except PowerCut:
                self._ended()
            except (StoreError, LogError, OSError) as error:
                self.checker.wrong(f"the server does not start: {error}")

    def _start(self) -> None:
        self.loop = Loop()  # type: ignore[abstract]  # see there
        asyncio._set_running_loop(self.loop)
        limits = Limits(will_grace_s=WILL_GRACE_S, output_bytes_max=self.setup.output_bytes_max)
        self.store = DiskStore(self.disk.root / "data", self._call_soon, self._journal_settings())
        self.server = Server(
            store=self.store,
            access=AllowAll(),
            limits=limits,
            sys_interval_s=0,
            used_bytes=int,
            give_back=lambda: None,
            long_turn_s=LONG_TURN_S,
        )
        self._listener = Listener(kind="tcp", limits=limits, access=self.server.access)
        self._finish(self.server.start())

    def _call_soon(self, call: Callable[[], None]) -> None:
        self.loop.call_soon(call)

    def _journal_settings(self) -> JournalSettings:
        setup = self.setup
        return JournalSettings(
            durability=cast(Literal["sync", "os"], setup.durability),
            segment_bytes=setup.segment_bytes,
            retention_bytes=setup.retention_bytes,
            disk_reserve_bytes=setup.disk_reserve_bytes,
            state=StateSettings(
                flush_records=setup.flush_records,
                chunk_entries=4,
                clean_every=8,
                forgotten_topics=3,
                stall_waits_max=1,
                buffer_entries_max=setup.buffer_entries_max,
                open_database=lambda _: self.files.open(),  # type: ignore[arg-type,return-value]  # in the place of Rdict
            ),
            merged_records=30,
        )

    def crash(self, is_power: bool) -> None:
        """The process is killed, or the power fails, now."""
        self._is_power_next = is_power and self.setup.durability == "sync"
        self._ended()

    def _ended(self) -> None:
        self.checker.notes("the power is cut" if self._is_power_next else "the server is killed")
        self.server = None
        self.disk.is_off = True
        THREADS.kill()
        self.store = None
        for wire in self.wires:
            wire.server_died()
        self.wires.clear()
        self.disk.process_ended()
        if self._is_power_next:
            self.disk.cut_power()
        self.files.crash(self.disk.rng)
        self.checker.wills_are_unclear()

    def stop(self) -> None:
        """Stop the server in order."""
        if self.server is None:
            return
        try:
            self._finish(self.server.stop())
        except PowerCut:
            self._ended()
            return
        for wire in self.wires:
            wire.server_died()
        self.wires.clear()
        self.server = self.store = None
        self.disk.process_ended()

    def _finish(self, coroutine: Coroutine[Any, Any, None]) -> None:
        try:
            while True:
                future = coroutine.send(None)
                while not future.done():
                    self._pass()
        except StopIteration:
            return

    # -- what happens --------------------------------------------------------------------------------------------------

    def run(self, steps: Sequence[Step]) -> Report:
        handler = _Bugs(self.checker.wrong)
        logger = logging.getLogger("embermq")
        logger.addHandler(handler)
        logger.propagate = False
        logger.setLevel(logging.ERROR)
        disks.use(self.disk)
        try:
            self._run(steps)
        except Stuck as stuck:
            self.checker.wrong(str(stuck))
        except Exception as error:  # of the server, where its shell would have logged it
            self.checker.wrong(f"the run ended with {error!r}")
        finally:
            self.disk.is_off = True
            THREADS.kill()
            self.disk.process_ended()
            disks.use(None)
            asyncio._set_running_loop(None)
            logger.removeHandler(handler)
            shutil.rmtree(self.disk.root, ignore_errors=True)
        report = self.report
        report.violations = self.checker.violations
        report.messages = len(self.checker.messages)
        report.operations = self.disk.operations
        report.checks = dict(self.checker.checks)
        report.digest = self._trace.hexdigest()
        return report

    def _run(self, steps: Sequence[Step]) -> None:
        self.start()
        for step in steps:
            self._note(step.kind)
            self.rng = THREADS.rng = Random(step.seed)
            try:
                getattr(self, f"do_{step.kind}")(self.rng)
                for _ in range(self.rng.choice((0, 3, 10, 30))):
                    self._pass()
            except PowerCut:
                self._ended()
            if self.server is None:
                self.start()
            if self.checker.violations:
                return
        self._finish_run()

    def _note(self, text: str) -> None:
        self.checker.notes(f"-- {text}")
        self._trace.update(f"{text} {CLOCK.now_us} {self.checker.event} {self.disk.operations}\n".encode())

    def _pass(self) -> bool:
        """One small thing happens, of those that can; whether there was any."""
        self.report.passes += 1
        rng = self.rng
        CLOCK.move(CLOCK.now_us + rng.choice((0, 10, 100, 1_000)))
        choice = rng.random()
        if choice < 0.25:
            if self.loop.run_once() or THREADS.run_one():
                return True
        elif choice < 0.5 and (THREADS.run_one() or self.loop.run_once()):
            return True
        wires = [wire for wire in self.wires if wire.can_reach_server() or wire.can_reach_client()]
        if wires:
            self._move(rng.choice(wires), rng)
            return True
        return self.loop.run_once() or THREADS.run_one()

    def _move(self, wire: Wire, rng: Random) -> None:
        size = rng.randint(1, self.setup.packet_bytes)
        if wire.can_reach_server() and (rng.random() < 0.5 or not wire.can_reach_client()):
            wire.to_server(size)
            for client in self.clients:
                client.arrived(wire)
        elif wire.can_reach_client():
            wire.to_client(size)
        if wire.is_done():
            self.wires.remove(wire)

    # -- the steps ------------------------------------------------------------

    def _client(self, rng: Random) -> Client:
        return rng.choice(self.clients)

    def do_run(self, rng: Random) -> None:
        for _ in range(rng.choice((5, 30, 100, 300))):
            self._pass()

    def do_connect(self, rng: Random) -> None:
        client = self._client(rng)
        if client.wire is not None:
            if rng.random() < 0.8:
                return
            client.drop()  # the server does not know yet
        setup = self.setup
        is_clean = setup.has_clean_sessions and rng.random() < 0.3 and not self._is_member(client)
        level = rng.choice((3, 4, 5) if is_clean else (4, 5))  # before 3.1.1 no CONNACK says if a session is present
        habit = Habit(
            level,
            is_clean,
            NEVER_S if level < 5 or rng.random() < 0.7 or self._is_member(client) else rng.choice((20, 200)),
            rng.choice((1, 3, 20, 65_535)) if level == 5 else 65_535,
            rng.choice((0, 0, 2)) if level == 5 else 0,
        )
        self.connect(client, habit, self._will(client, level, rng))

    def _will(self, client: Client, level: int, rng: Random) -> Will | None:
        if not self.setup.has_wills or rng.random() < 0.5:
            return None
        delay_s = rng.choice((0, 0, 5, 30)) if level == 5 else 0
        message = client.new_will(rng.choice((1, 2)), delay_s, bool(self.disk.failure))
        return Will(message.topic_name, message.payload(), message.qos, False, delay_s)

    def connect(self, client: Client, habit: Habit, will: Will | None = None) -> None:
        if self.server is None or self._listener is None:
            return
        for older in list(self.wires):  # a CONNECT that arrives behind a later one would take the session over
            if older.client is client and not older.was_open:
                older.cut()
                self.wires.remove(older)
        self._wires_made += 1
        wire = Wire(self._wires_made, client)
        wire.open(StreamConnection(self.server, self._listener))
        self.wires.append(wire)
        client.connect(wire, habit, will)

    def _is_member(self, client: Client) -> bool:
        """Members of share groups have sessions that last."""
        return self.setup.has_shares and client in self.clients[:2]

    def do_publish(self, rng: Random) -> None:
        client = self._client(rng)
        for _ in range(rng.choice((1, 1, 2, 5))):
            qos = rng.choice((0, 1, 1, 2))
            expiry_s = rng.choice((None, 1, 10)) if self.setup.has_expiry else None
            if rng.random() < 0.5:
                place = rng.randint(0, 2)
                qos = (rng.choice((0, 1)), 1, 2)[place]  # a repetition at QoS 1 may come after a newer one at QoS 2
                topic_name = f"kept/{client.client_id}/{place}"
                is_clear = rng.random() < 0.2
                client.publish(topic_name, qos, retain=True, is_clear=is_clear, expiry_s=expiry_s)
            else:
                client.publish(f"live/{client.client_id}/{rng.randint(0, 1)}", qos, expiry_s=expiry_s)

    def do_subscribe(self, rng: Random) -> None:
        client = self._client(rng)
        if self._is_member(client):  # which copy came would not be told from overlapping filters
            client.subscribe(rng.choice(("$share/g/live/+/1", "kept/#")), rng.choice((1, 2)))
            return
        if self.setup.has_short_writes and rng.random() < 0.3:
            client.subscribe("will/#", 2)
            return
        filters = ["live/#", "kept/#", "live/+/0", f"kept/{rng.choice(self.clients).client_id}/#", "will/#", "kept/+/1"]
        client.subscribe(rng.choice(filters), rng.choice((0, 1, 2, 2)), rng.choice((0, 0, 0, 1, 2)))

    def do_unsubscribe(self, rng: Random) -> None:
        client = self._client(rng)
        if client.session is not None and client.session.subscriptions:
            asked = rng.choice(client.session.subscriptions)
            if asked.share is None:
                client.unsubscribe(asked.topic_filter)

    def do_disconnect(self, rng: Random) -> None:
        self._client(rng).disconnect()

    def do_drop(self, rng: Random) -> None:
        self._client(rng).drop()

    def do_cut(self, rng: Random) -> None:
        if self.wires:
            wire = rng.choice(self.wires)
            wire.cut()
            if wire.is_done():
                self.wires.remove(wire)

    def do_stall(self, rng: Random) -> None:
        for wire in self.wires:
            wire.is_stalled = rng.random() < 0.4

    def do_slow(self, rng: Random) -> None:
        client = self._client(rng)
        client.is_slow = not client.is_slow

    def do_acknowledge(self, rng: Random) -> None:
        self._client(rng).acknowledge_held()

    def do_ping(self, rng: Random) -> None:
        self._client(rng).ping()

    def do_pass(self, rng: Random) -> None:
        """Time passes, and nothing happens meanwhile but what is due."""
        self._let_pass(rng.choice((100_000, 2_000_000, 15_000_000, 3_600_000_000)))

    def _let_pass(self, duration_us: int) -> None:
        end_us = CLOCK.now_us + duration_us
        for _ in range(40):
            wake_us = THREADS.next_wake_us()
            due = [at for at in (self.loop.next_due_us(), wake_us) if at is not None and at > CLOCK.now_us]
            at_us = min(due, default=end_us)
            if at_us >= end_us:
                break
            CLOCK.move(at_us)
            self.loop.run_once()
            THREADS.run_one()
        CLOCK.move(end_us)

    def do_wall(self, rng: Random) -> None:
        """Somebody sets the time of day, also back."""
        self.checker.is_wall_steady = False
        CLOCK.set_wall(BEGINNING_US + rng.choice((-3_600_000_000, 0, 60_000_000, 86_400_000_000)))

    def do_kill(self, rng: Random) -> None:
        self._crash_soon(rng, False)

    def do_power(self, rng: Random) -> None:
        self._crash_soon(rng, True)

    def _crash_soon(self, rng: Random, is_power: bool) -> None:
        """Now, or between two writes of the next ones, which may be those of the next start."""
        self._is_power_next = is_power and self.setup.durability == "sync"
        if rng.random() < 0.3:
            self._ended()
            self.disk.cut_in = rng.choice((-1, rng.randint(0, 20)))
        else:
            self.disk.cut_in = rng.randint(0, 12)

    def do_disk(self, rng: Random) -> None:
        failures = ("full", "write", "sync", "read-only")
        self.disk.failure = rng.choice((*failures, "short", "short") if self.setup.has_short_writes else failures)
        self.checker.wills_are_unclear()
        self.files.is_failing = rng.random() < 0.7

    def do_heal(self, rng: Random) -> None:
        self.disk.failure = ""
        self.files.is_failing = False

    def do_stop(self, rng: Random) -> None:
        if not self.disk.failure:
            self.stop()

    # -- the last phase ------------------------------------------------------------

    def _finish_run(self) -> None:
        self.rng = THREADS.rng = Random("the last phase")
        self.disk.cut_in = -1
        self.do_heal(self.rng)
        self.start()
        for wire in self.wires:
            wire.is_stalled = False
        for client in self.clients:
            client.is_slow = False
        self._until_quiet()
        self._let_pass(60_000_000)  # wills with a delay, and those that a crash has left
        self._until_quiet()
        self._audit()
        if self.checker.violations:
            return
        self.checker.finished()
        self.stop()
        if not self.checker.violations:
            self._check_log()

    def _until_quiet(self) -> None:
        """Everybody is connected, and nothing has happened for a while but what the server does by itself."""
        quiet_from_us = CLOCK.now_us
        for _ in range(PASSES_MAX):
            if self.checker.violations:
                return
            is_busy = False
            for client in self.clients:
                client.acknowledge_held()
                if client.wire is None:
                    self.connect(client, client.lasting_habit())
                    is_busy = True
                is_busy = is_busy or not client.is_idle() or not client.is_open
            if any(wire.can_reach_client() or wire.can_reach_server() for wire in self.wires):
                is_busy = True
            if not self._pass():
                due = [at for at in (self.loop.next_due_us(), THREADS.next_wake_us()) if at is not None]
                CLOCK.move(min(due, default=CLOCK.now_us))
            if is_busy:
                quiet_from_us = CLOCK.now_us
            elif CLOCK.now_us - quiet_from_us > QUIET_US:
                return
        waiting = [client.client_id for client in self.clients if not client.is_idle() or not client.is_open]
        raise Stuck(f"after all faults were mended, {waiting or 'the network'} waits for ever")

    def _audit(self) -> None:
        """What a client that was never here finds retained."""
        audit = Audit(self.checker)
        self.clients.append(audit)
        self.connect(audit, Habit(5, is_clean=True))
        self._until_quiet()
        if audit.session is not None and not self.checker.violations:
            audit.subscribe("kept/#", 2)
            self._until_quiet()
            self.checker.retained(audit.found)
        self.clients.remove(audit)

    def _check_log(self) -> None:
        """The log has what was acknowledged; the state as of any instant is what the log says of it."""
        store = DiskStore(self.disk.root / "data", self._call_soon, self._journal_settings())
        try:
            is_whole = store._log.first_offset == 1
            rows = [row for group in store._log.groups_from(store._log.first_offset) for row in group.rows]
            messages = [
                (row.client_id.decode(), row.topic.decode(), bytes(row.payload)) for row in rows if row.kind == _PUBLISH
            ]
            self.checker.logged(messages, is_whole)
            if is_whole:
                self._check_as_of(store, rows)
            if not self.setup.has_expiry:
                found = store.retained.piece("#", "", 1_000, 1 << 30, 1_000).found()
                totals = len(found), sum(len(kept.topic) + len(kept.payload) for kept in found)
                if store.retained.totals() != totals:
                    self.checker.wrong(f"{store.retained.totals()} is counted as retained, and {totals} is")
        finally:
            store.close()

    def _check_as_of(self, store: DiskStore, rows: Sequence[Any]) -> None:
        instants = sorted({row.timestamp_us for row in rows})
        for instant_us in self.rng.sample(instants, min(3, len(instants))):
            expected: dict[str, bytes] = {}
            for row in rows:
                if row.timestamp_us > instant_us:
                    break
                topic_name = row.topic.decode()
                if row.kind == _PUBLISH and row.flags & RETAIN_FLAG:
                    expected[topic_name] = bytes(row.payload)
                    properties = bytes(row.properties)
                    if properties[:1] == b"\x02":
                        expires_us = row.timestamp_us + int.from_bytes(properties[1:5], "big") * 1_000_000
                        if expires_us <= instant_us:
                            expected[topic_name] = b""
                elif row.kind == _RETAINED_REMOVED:
                    expected[topic_name] = b""
            expected = {name: payload for name, payload in expected.items() if payload}
            past = store.history.as_of("#", "", 1_000, instant_us)
            found = {kept.topic.decode(): bytes(kept.payload) for kept in past}
            self.checker.checks["as of"] += 1
            if found != expected:
                differing = sorted(
                    name for name in found.keys() | expected.keys() if found.get(name) != expected.get(name)
                )
                self.checker.wrong(f"as of {instant_us}, {differing} are not what the log says")


class Audit(Client):
    """A client that only looks at what is retained."""

    def __init__(self, checker: Checker) -> None:
        super().__init__("audit", checker, Random(0))
        self.found: dict[str, bytes] = {}

    def _publish(self, packet: Any) -> None:
        if packet.retain:
            if packet.topic_name in self.found:
                self.checker.wrong(f"audit: {packet.topic_name} came twice as retained")
            self.found[packet.topic_name] = packet.payload
        super()._publish(packet)
