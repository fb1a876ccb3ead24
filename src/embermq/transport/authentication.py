"""Authentication: who a client is, asked of the access rules without stopping the event loop.

Owns: the threads on which slow rules (a password hash) run, how many clients may wait for them, and the nonces of
exchanges (enhanced authentication).
Never: what follows from the answer. Streams, UDP and the HTTP interface have one object each, so that a flood of
CONNECTs on one of them does not delay the clients of another.
"""

import asyncio
import logging
import os
import sys
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from secrets import token_urlsafe
from typing import Final, Generic, TypeVar, final

from embermq.broker.access import Access, Exchange, ExchangeAnswer, Identity
from embermq.protocol.errors import Refused
from embermq.protocol.packets import Connect
from embermq.protocol.reasons import ReasonCode
from embermq.transport.address_bounds import AddressBounds
from embermq.transport.rate_limited_log import RateLimitedLog

NONCE_BYTES: Final = 24
"""How many random bytes the nonce of an exchange is made of."""

failures: Final = RateLimitedLog(logging.getLogger("embermq"), "failed authentication", lines_a_second=5)

WAITING_MAX: Final = 1_024
"""How many clients may wait for a thread."""
QUEUE_MAX: Final = 32
"""How many of them may wait in one queue (`Access.queue_for`)."""
THREAD_NICE: Final = 10
"""How much the threads give way to the others."""

T = TypeVar("T")


@final
class Check(Generic[T]):
    """A question that waits for a thread, and what is called with its answer."""

    def __init__(
        self,
        question: Callable[[], T],
        answered: Callable[[T], None],
        refused: Callable[[Refused], None],
        failed: Callable[[], None],
        is_wanted: Callable[[], bool],
    ) -> None:
        self.question: Final = question
        self.answered: Final = answered
        self.refused: Final = refused
        self.failed: Final = failed
        self.is_wanted: Final = is_wanted

    def begin(self, pool: ThreadPoolExecutor, hand_over: Callable[[Callable[[], None]], None]) -> None:
        """Ask on a thread; `hand_over` is called there with what is to be called on the loop."""
        future = pool.submit(self.question)
        future.add_done_callback(lambda done: None if done.cancelled() else hand_over(partial(self._answer, done)))

    def _answer(self, done: "Future[T]") -> None:
        error = done.exception()
        if error is None:
            self.answered(done.result())
        elif isinstance(error, Refused):
            self.refused(error)
        else:
            failures.log(logging.ERROR, "authentication failed", error=error)
            self.failed()


@final
class Authenticator:
    """Asks the access rules about clients; a rule that is slow runs on a thread, and its answer comes to the loop.

    `waiting_max` and `queue_max` are how many clients may wait for a thread, in all and in one queue; one more is
    refused as SERVER_BUSY. The queues take turns. A client that has gone in the meantime is not checked.
    `begin_turn` is called before an answer that comes from a thread.
    """

    def __init__(
        self,
        access: Access,
        begin_turn: Callable[[], int],
        *,
        threads: int,
        waiting_max: int = WAITING_MAX,
        queue_max: int = QUEUE_MAX,
        name: str = "authenticate",
        addresses: AddressBounds | None = None,
    ) -> None:
        self._access: Final = access
        self._addresses: Final = addresses
        self._begin_turn: Final = begin_turn
        self._loop: Final = asyncio.get_running_loop()
        self._threads: Final = threads
        self._waiting_max: Final = waiting_max
        self._queue_max: Final = queue_max
        self._name: Final = name
        self._lanes: Final[dict[str, Waiting]] = {}  # by the names of `Access.lane_of`; "" is that of all others

    def identity_now(self, connect: Connect, certificate_name: str | None) -> Identity | None:
        """Who a client is, where the rules answer quickly; raises `Refused`. None: ask with `authenticate`."""
        access = self._access
        user_name, password = connect.user_name, connect.password
        if access.slow and access.queue_for(user_name, password, certificate_name) is not None:
            return None
        return access.authenticate(connect.client_id, user_name, password, certificate_name)

    def authenticate(
        self,
        connect: Connect,
        certificate_name: str | None,
        accepted: Callable[[Identity], None],
        refused: Callable[[Refused], None],
        failed: Callable[[], None],
        is_wanted: Callable[[], bool],
        address_key: str = "",
    ) -> None:
        """Have one of the three called: at once, or if the rules are slow, later.

        `failed`: a slow rule raised something else than `Refused`, which is logged here. `is_wanted` tells whether the
        client still waits. `address_key`: what its address counts as; a password that was right before is accepted
        although the address has to wait.
        """
        user_name, password = connect.user_name, connect.password
        queue = self._access.queue_for(user_name, password, certificate_name) if self._access.slow else None
        question = partial(self._access.authenticate, connect.client_id, user_name, password, certificate_name)
        revision = self._access.revision()

        def answered(identity: Identity) -> None:
            if self._access.revision() == revision:
                accepted(identity)
            else:  # the users have changed in the meantime
                self.authenticate(
                    connect, certificate_name, accepted, refused, failed, is_wanted, address_key=address_key
                )

        check = Check(question, answered, refused, failed, is_wanted)
        known: Identity | None = None
        if queue is not None:
            known = self._access.remembered(connect.client_id, user_name, password, certificate_name)
        if queue is None:
            _answer_now(check)
        elif known is not None:
            accepted(known)
        elif self._must_wait(address_key):
            refused(_too_many_failures())
        else:
            self._wait(check, queue)

    def _must_wait(self, address_key: str) -> bool:
        return self._addresses is not None and self._addresses.must_wait(address_key)

    def begin_exchange(
        self, method: str, client_id: str, certificate_name: str | None, address_key: str = ""
    ) -> Exchange:
        """The exchange of a CONNECT with an Authentication Method; raises `Refused` if the method is not offered.

        The connection keeps it, for each `step` now and of each re-authentication.
        """
        if self._must_wait(address_key):
            raise _too_many_failures()
        return self._access.begin_exchange(method, client_id, certificate_name)

    def step(
        self,
        exchange: Exchange,
        data: bytes | None,
        is_first: bool,
        answered: Callable[[ExchangeAnswer], None],
        refused: Callable[[Refused], None],
        failed: Callable[[], None],
    ) -> None:
        """Give an exchange the data of CONNECT, AUTH 0x19 (`is_first`) or AUTH 0x18.

        One of the three is called as by `authenticate`; an exchange that is not slow answers at once.
        """
        if exchange.is_busy:
            refused(Refused("a message of authentication before the answer to the last", ReasonCode.PROTOCOL_ERROR))
            return

        def ready(answer: ExchangeAnswer) -> None:
            exchange.answer_done()
            answered(answer)

        exchange.answer_begun()
        if is_first:
            question = partial(exchange.begin, data, token_urlsafe(NONCE_BYTES).encode())
        else:
            question = partial(exchange.proceed, data)
        check = Check(question, ready, refused, failed, _always)
        if exchange.slow:
            self._wait(check, "")
        else:
            _answer_now(check)

    def _wait(self, check: Check[Identity] | Check[ExchangeAnswer], queue: str) -> None:
        lane = self._access.lane_of(queue)
        name = lane.name if lane is not None else ""
        waiting = self._lanes.get(name)
        if waiting is None:
            threads = lane.threads if lane is not None else self._threads
            waiting = self._lanes[name] = Waiting(
                self._loop, self._begin_turn, threads, self._waiting_max, self._queue_max, f"{self._name}{name}"
            )
        waiting.add(check, queue)

    def close(self) -> None:
        """Drop the checks that have not begun; no answer comes any more."""
        for waiting in self._lanes.values():
            waiting.close()


@final
class Waiting:
    """The checks that wait for the threads of one lane, in queues that take turns, and these threads."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        begin_turn: Callable[[], int],
        threads: int,
        waiting_max: int,
        queue_max: int,
        name: str,
    ) -> None:
        self._loop: Final = loop
        self._begin_turn: Final = begin_turn
        self._threads: Final = threads
        self._waiting_max: Final = waiting_max
        self._queue_max: Final = queue_max
        self._name: Final = name
        self._queues: Final[dict[str, deque[Check[Identity] | Check[ExchangeAnswer]]]] = {}
        self._turns: Final[deque[str]] = deque()  # the queues, the next one first
        self._running = 0
        self._pool: ThreadPoolExecutor | None = None
        self._waiting = 0
        self._is_closed = False

    def add(self, check: Check[Identity] | Check[ExchangeAnswer], name: str) -> None:
        """Have a check wait in a queue, or refuse it if too many wait."""
        queue = self._queues.get(name)
        if self._waiting >= self._waiting_max or (queue is not None and len(queue) >= self._queue_max):
            check.refused(
                Refused("too many clients wait for their password to be checked", reason=ReasonCode.SERVER_BUSY)
            )
            return
        if queue is None:
            queue = self._queues[name] = deque()
            self._turns.append(name)
        queue.append(check)
        self._waiting += 1
        self._start()

    def _start(self) -> None:
        """Give free threads the next check of the queue whose turn it is."""
        while self._running < self._threads and self._turns and not self._is_closed:
            name = self._turns.popleft()
            queue = self._queues[name]
            check = queue.popleft()
            self._waiting -= 1
            if queue:
                self._turns.append(name)
            else:
                del self._queues[name]
            if check.is_wanted():
                self._running += 1
                if self._pool is None:
                    self._pool = ThreadPoolExecutor(self._threads, self._name, initializer=_yield_to_others)
                check.begin(self._pool, self._hand_over)

    def close(self) -> None:
        """Drop the checks that have not begun; no answer comes any more."""
        self._is_closed = True
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def _hand_over(self, answer: Callable[[], None]) -> None:
        """On the thread: the answer is there."""
        if not self._is_closed:
            self._loop.call_soon_threadsafe(self._answer, answer)

    def _answer(self, answer: Callable[[], None]) -> None:
        self._running -= 1
        if not self._is_closed:
            self._begin_turn()
            answer()
            self._start()


def _answer_now(check: Check[T]) -> None:
    try:
        answer = check.question()
    except Refused as refusal:
        check.refused(refusal)
    else:
        check.answered(answer)


def _too_many_failures() -> Refused:
    return Refused("too many failed log-ins of its address", ReasonCode.CONNECTION_RATE_EXCEEDED)


def _always() -> bool:
    return True


def _yield_to_others() -> None:
    """On a thread: a password hash takes tens of milliseconds of a core, which the event loop may need."""
    if sys.platform == "linux":  # elsewhere the number is that of a process
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), THREAD_NICE)
