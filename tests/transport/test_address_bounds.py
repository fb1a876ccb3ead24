"""Bounds by address: connections at a time, and failed log-ins."""

from pathlib import Path

import pytest

from embermq import Broker
from embermq.access.file_access import FileAccess
from embermq.access.passwords import write_password
from embermq.broker.limits import Limits
from embermq.protocol.reasons import ReasonCode
from embermq.transport.address_bounds import (
    FAILURES_S,
    SHARED_ADDRESSES,
    WAIT_FIRST_S,
    WAIT_MAX_S,
    AddressBounds,
)
from support.wire import Wire

WRONG = ReasonCode.BAD_USER_NAME_OR_PASSWORD


LOGINS = [("good", b"right"), ("x", b"y"), ("good", b"wrong"), ("new", b"right"), ("good", b"right")]


class Clock:
    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.mark.parametrize(
    ("host", "key"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8::1:2", "2001:db8::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("127.0.0.1", ""),
        ("::1", ""),
        ("10.1.2.3", ""),
        ("no address", ""),
    ],
)
def test_what_an_address_counts_as(host: str, key: str) -> None:
    bounds = AddressBounds(1, 1, [*SHARED_ADDRESSES, "10.1.0.0/16"], addresses_max=2)
    assert bounds.key((host, 4711)) == key
    assert [bounds.key((f"192.0.2.{number}", 1)) for number in range(5)] == [f"192.0.2.{number}" for number in range(5)]
    assert bounds.key((host, 4712)) == key
    assert bounds.key((host, 4712)) == key


def test_a_unix_socket_has_no_bounds() -> None:
    bounds = AddressBounds(1, 1, [])
    assert bounds.key("") == bounds.key(None) == ""
    assert bounds.add("") and bounds.add("")


def test_connections_of_an_address_are_bounded_and_make_room_when_they_end() -> None:
    bounds = AddressBounds(2, 0, [])
    assert [bounds.add("a"), bounds.add("a"), bounds.add("a"), bounds.add("b")] == [True, True, False, True]
    bounds.remove("a")
    assert bounds.add("a")
    assert bounds.counts()["connections/refused/address"] == 1
    for key in ("a", "a", "b"):
        bounds.remove(key)
    assert bounds._connections == {}


def test_after_too_many_failures_an_address_waits_longer_and_longer() -> None:
    clock = Clock()
    bounds = AddressBounds(0, 3, [], now_s=clock)
    for _ in range(2):
        bounds.refused_login("a", WRONG)
    bounds.refused_login("a", ReasonCode.SERVER_BUSY)
    assert not bounds.must_wait("a")
    waits = []
    for _ in range(9):
        bounds.refused_login("a", WRONG)
        begun_s = clock.now_s
        while bounds.must_wait("a"):
            clock.now_s += WAIT_FIRST_S
        waits.append(clock.now_s - begun_s)
    assert waits == [1, 2, 4, 8, 16, 32, WAIT_MAX_S, WAIT_MAX_S, WAIT_MAX_S]
    assert not bounds.must_wait("b")
    clock.now_s += FAILURES_S
    bounds.refused_login("a", WRONG)
    assert not bounds.must_wait("a"), "the failures before are forgotten"


def test_the_addresses_that_failed_longest_ago_are_forgotten_first() -> None:
    bounds = AddressBounds(0, 1, [], addresses_max=2, now_s=Clock())
    for key in "abc":
        bounds.refused_login(key, WRONG)
    assert [bounds.must_wait(key) for key in "abc"] == [False, True, True]


def test_a_connection_above_the_bound_of_its_address_is_closed() -> None:
    with Broker.in_thread(limits=Limits(address_connections_max=2), shared_addresses=()) as broker:
        assert broker.port is not None
        first, second = Wire((broker.host, broker.port)), Wire((broker.host, broker.port))
        with first, second:
            first.connect("1")
            second.connect("2")
            with Wire((broker.host, broker.port)) as third:
                third.assert_closed()
        with Wire((broker.host, broker.port)) as again:
            again.connect("3")


def test_an_address_with_failures_waits_but_passwords_that_were_right_before_are_accepted(tmp_path: Path) -> None:
    passwords = tmp_path / "passwords"
    write_password(passwords, "good", b"right", with_scram=False)
    write_password(passwords, "new", b"right", with_scram=False)
    access = FileAccess(password_file=passwords)
    limits = Limits(address_login_failures_max=2)
    with Broker.in_thread(access=access, limits=limits, shared_addresses=()) as broker:
        assert broker.port is not None
        codes: list[int] = []
        for user, password in LOGINS:
            if codes == [0, 4, 4]:  # it has to wait for a second now; a busy machine may need that for the next log-in
                for _ in range(6):
                    broker.server.addresses.refused_login("127.0.0.1", WRONG)
            with Wire((broker.host, broker.port)) as wire:
                codes.append(wire.connect("c", user_name=user, password=password).return_code)
        assert codes == [0, 4, 4, 3, 0]
