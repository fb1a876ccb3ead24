"""Authentication: who a client is, asked of the access rules without stopping the event loop.

Owns: the threads on which slow rules (a password hash) run, and how many clients may wait for them.
Never: what follows from the answer. Each listener has an object of its own, so that a flood of CONNECTs on one listener
does not delay the clients of another.
"""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, final

from embermq.broker.access import Access, Identity
from embermq.protocol.errors import Refused
from embermq.protocol.packets import Connect
from embermq.protocol.reasons import ReasonCode

logger: Final = logging.getLogger("embermq")


@final
class Authenticator:
    """Asks the access rules about clients; a rule that is slow runs on a thread, and its answer comes to the loop.

    `waiting_max` is how many clients may wait for a thread, 0 for no bound; one more is refused as SERVER_BUSY.
    `begin_turn` is called before an answer that comes from a thread.
    """

    __slots__ = (
        "_access",
        "_begin_turn",
        "_is_closed",
        "_loop",
        "_name",
        "_pool",
        "_threads",
        "_waiting",
        "_waiting_max",
    )

    def __init__(
        self,
        access: Access,
        begin_turn: Callable[[], int],
        *,
        threads: int,
        waiting_max: int = 0,
        name: str = "authenticate",
    ) -> None:
        self._access: Final = access
        self._begin_turn: Final = begin_turn
        self._loop: Final = asyncio.get_running_loop()
        self._threads: Final = threads
        self._waiting_max: Final = waiting_max
        self._name: Final = name
        self._pool: ThreadPoolExecutor | None = None
        self._waiting = 0
        self._is_closed = False

    def authenticate(
        self,
        connect: Connect,
        certificate_name: str | None,
        accepted: Callable[[Identity], None],
        refused: Callable[[Refused], None],
        failed: Callable[[], None],
        *,
        is_slow: bool,
    ) -> None:
        """Have one of the three called: at once, or if the rules are slow, later.

        `failed`: a slow rule raised something else than `Refused`, which is logged here.
        """
        if not is_slow:
            try:
                identity = self._access.authenticate(
                    connect.client_id, connect.user_name, connect.password, certificate_name
                )
            except Refused as refusal:
                refused(refusal)
            else:
                accepted(identity)
            return
        if self._waiting_max and self._waiting >= self._waiting_max:
            refused(Refused("too many clients wait for their password to be checked", reason=ReasonCode.SERVER_BUSY))
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._threads, self._name)
        self._waiting += 1
        future = self._pool.submit(
            self._access.authenticate, connect.client_id, connect.user_name, connect.password, certificate_name
        )
        future.add_done_callback(lambda done: self._hand_over(done, accepted, refused, failed))

    def close(self) -> None:
        """Drop the checks that have not begun; no answer comes any more."""
        self._is_closed = True
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def _hand_over(
        self,
        done: "Future[Identity]",
        accepted: Callable[[Identity], None],
        refused: Callable[[Refused], None],
        failed: Callable[[], None],
    ) -> None:
        """On the thread: the answer is there."""
        if not self._is_closed and not done.cancelled():
            self._loop.call_soon_threadsafe(self._answer, done, accepted, refused, failed)

    def _answer(
        self,
        done: "Future[Identity]",
        accepted: Callable[[Identity], None],
        refused: Callable[[Refused], None],
        failed: Callable[[], None],
    ) -> None:
        self._waiting -= 1
        if self._is_closed:
            return
        self._begin_turn()
        error = done.exception()
        if error is None:
            accepted(done.result())
        elif isinstance(error, Refused):
            refused(error)
        else:
            logger.error("authentication failed", exc_info=error)
            failed()
