"""The bits of events are epoll's, although they are not taken from there."""

import select

from embermq.transport.sockets.interface import READABLE, WRITABLE


def test_the_events_are_those_of_epoll() -> None:
    assert (READABLE, WRITABLE) == (select.EPOLLIN, select.EPOLLOUT)
