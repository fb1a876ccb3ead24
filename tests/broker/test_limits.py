"""Limits that cap what a client asks for."""

import pytest

from embermq.broker.limits import Limits
from embermq.protocol.packets import KEEP_ALIVE_UNCAPPED_S, SESSION_NEVER_EXPIRES


@pytest.mark.parametrize(
    ("cap_s", "asked_s", "got_s"),
    [(KEEP_ALIVE_UNCAPPED_S, 0, 0), (KEEP_ALIVE_UNCAPPED_S, 65_535, 65_535), (60, 0, 60), (60, 61, 60), (60, 59, 59)],
)
def test_with_a_cap_a_client_without_a_keep_alive_has_the_cap(cap_s: int, asked_s: int, got_s: int) -> None:
    assert Limits(keep_alive_max_s=cap_s).keep_alive_s(asked_s) == got_s


@pytest.mark.parametrize(
    ("cap_s", "asked_s", "got_s"),
    [
        (60, SESSION_NEVER_EXPIRES, 60),
        (60, 61, 60),
        (60, 0, 0),
        (SESSION_NEVER_EXPIRES, SESSION_NEVER_EXPIRES, SESSION_NEVER_EXPIRES),
    ],
)
def test_a_session_expires_no_later_than_the_cap(cap_s: int, asked_s: int, got_s: int) -> None:
    assert Limits(session_expiry_max_s=cap_s).session_expiry_s(asked_s) == got_s
