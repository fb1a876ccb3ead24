"""What a poll watches: a file descriptor, and what is done when it is ready."""

from typing import Final

# EPOLLIN and EPOLLOUT. Not from `select`: these modules are loaded where there is no epoll too, and constants that the
# compiler knows cost nothing.
READABLE: Final = 1
WRITABLE: Final = 4
CLOSED: Final = -1


class Watched:
    """A socket, or another file that can be waited for."""

    __slots__ = ("descriptor",)

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def ready(self, events: int) -> None:
        """It can be read from or written to, or it has failed, which reading and writing tell."""
        raise NotImplementedError

    def abort(self) -> None:
        """Our own fault kept it from being looked after: end it, if others can go on without it."""
