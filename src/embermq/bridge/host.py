"""What the thread of a bridge asks of the server that it belongs to.

Owns: the way from that thread to the event loop, on which alone the core and the store may be used.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from functools import partial
from pathlib import Path
from typing import Final, TypeVar, final

from embermq.broker.retained_streams import read_piece
from embermq.errors import ConfigError
from embermq.store.interface import Retained
from embermq.store.log.identity import read_identity
from embermq.transport.server import Server

ANSWER_TIMEOUT_S: Final = 30.0

T = TypeVar("T")


@final
class Host:
    """One server. `server_id`: what other servers know it by."""

    __slots__ = ("call", "data", "log_directory", "server", "server_id")

    def __init__(self, server: Server, data: Path, call: Callable[[Callable[[], None]], None]) -> None:
        """`call` has a function called on the event loop, from any thread."""
        self.server: Final = server
        self.data: Final = data
        self.log_directory: Final = data / "log"
        self.call: Final = call
        identity = read_identity(self.log_directory)
        if identity is None:
            raise ConfigError(f"{self.log_directory} has no identity: bridges need it")
        self.server_id: Final = identity.log_id

    def ask(self, question: Callable[[], T]) -> T:
        """The answer of the event loop to a question from another thread."""
        answer: Future[T] = Future()

        def run() -> None:
            try:
                answer.set_result(question())
            except Exception as error:  # it is the question's, and raised where it was asked
                answer.set_exception(error)

        self.call(run)
        try:
            return answer.result(ANSWER_TIMEOUT_S)
        except FutureTimeoutError:
            raise ConfigError(f"this server does not answer its bridge within {ANSWER_TIMEOUT_S:g} s") from None

    def retained(self, topic_filter: str) -> Iterator[Retained | None]:
        """The retained messages that a filter matches, as they are when each piece is read; None between two pieces."""
        after = ""
        while True:
            found, after, is_done = self.ask(partial(self._piece, topic_filter, after))
            yield from found
            if is_done:
                return
            yield None

    def _piece(self, topic_filter: str, after: str) -> tuple[list[Retained], str, bool]:
        self.server.begin_turn()
        piece = read_piece(self.server.store, topic_filter, after)
        return piece.found(), piece.after_topic_name, piece.done
