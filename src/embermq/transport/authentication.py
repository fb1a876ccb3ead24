"""Authentication: who a client is, asked of the access rules without stopping the event loop.

Owns: the threads on which slow rules (a password hash) run, how many clients may wait for them, and the nonces of
exchanges (enhanced authentication).
Never: what follows from the answer. Each listener has an object of its own, so that a flood of CONNECTs on one listener
does not delay the clients of another.
"""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from secrets import token_urlsafe
from typing import Final, TypeVar, final

from embermq.broker.access import Access, Exchange, ExchangeAnswer, Identity
from embermq.protocol.errors import Refused
from embermq.protocol.packets import Connect
from embermq.protocol.reasons import ReasonCode

NONCE_BYTES: Final = 24
"""How many random bytes the nonce of an exchange is made of."""

logger: Final = logging.getLogger("embermq")

T = TypeVar("T")


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
        question = partial(
            self._access.authenticate, connect.client_id, connect.user_name, connect.password, certificate_name
        )
        self._ask(question, accepted, refused, failed, is_slow=is_slow)

    def begin_exchange(self, method: str, client_id: str, certificate_name: str | None) -> Exchange:
        """The exchange of a CONNECT with an Authentication Method; raises `Refused` if the method is not offered.

        The connection keeps it, for `begin` and `proceed` now and for each re-authentication.
        """
        return self._access.begin_exchange(method, client_id, certificate_name)

    def begin(
        self,
        exchange: Exchange,
        data: bytes | None,
        answered: Callable[[ExchangeAnswer], None],
        refused: Callable[[Refused], None],
        failed: Callable[[], None],
    ) -> None:
        """Give an exchange the data of CONNECT or AUTH 0x19, and have one of the three called as `authenticate` does.

        An exchange that is not slow answers at once.
        """
        nonce = token_urlsafe(NONCE_BYTES).encode()
        self._step(exchange, partial(exchange.begin, data, nonce), answered, refused, failed)

    def proceed(
        self,
        exchange: Exchange,
        data: bytes | None,
        answered: Callable[[ExchangeAnswer], None],
        refused: Callable[[Refused], None],
        failed: Callable[[], None],
    ) -> None:
        """Give an exchange the data of AUTH 0x18, as `begin` does."""
        self._step(exchange, partial(exchange.proceed, data), answered, refused, failed)

    def _step(
        self,
        exchange: Exchange,
        question: Callable[[], ExchangeAnswer],
        answered: Callable[[ExchangeAnswer], None],
        refused: Callable[[Refused], None],
        failed: Callable[[], None],
    ) -> None:
        if exchange.is_busy:
            refused(Refused("a message of authentication before the answer to the last", ReasonCode.PROTOCOL_ERROR))
            return

        def ready(answer: ExchangeAnswer) -> None:
            exchange.is_busy = False
            answered(answer)

        exchange.is_busy = exchange.slow
        self._ask(question, ready, refused, failed, is_slow=exchange.slow)

    def _ask(
        self,
        question: Callable[[], T],
        answered: Callable[[T], None],
        refused: Callable[[Refused], None],
        failed: Callable[[], None],
        *,
        is_slow: bool,
    ) -> None:
        if not is_slow:
            try:
                answer = question()
            except Refused as refusal:
                refused(refusal)
            else:
                answered(answer)
            return
        if self._waiting_max and self._waiting >= self._waiting_max:
            refused(Refused("too many clients wait for their password to be checked", reason=ReasonCode.SERVER_BUSY))
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._threads, self._name)
        self._waiting += 1
        future = self._pool.submit(question)
        future.add_done_callback(lambda done: self._hand_over(done, answered, refused, failed))

    def close(self) -> None:
        """Drop the checks that have not begun; no answer comes any more."""
        self._is_closed = True
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def _hand_over(
        self,
        done: "Future[T]",
        answered: Callable[[T], None],
        refused: Callable[[Refused], None],
        failed: Callable[[], None],
    ) -> None:
        """On the thread: the answer is there."""
        if not self._is_closed and not done.cancelled():
            self._loop.call_soon_threadsafe(self._answer, done, answered, refused, failed)

    def _answer(
        self,
        done: "Future[T]",
        answered: Callable[[T], None],
        refused: Callable[[Refused], None],
        failed: Callable[[], None],
    ) -> None:
        self._waiting -= 1
        if self._is_closed:
            return
        self._begin_turn()
        error = done.exception()
        if error is None:
            answered(done.result())
        elif isinstance(error, Refused):
            refused(error)
        else:
            logger.error("authentication failed", exc_info=error)
            failed()
