"""The clients of one test, which speak MQTT 3.1.1."""

from collections.abc import Iterator

import pytest

from support.served_broker import (  # noqa: F401  # fixtures and a hook, found by their names
    addresses,
    broker_address,
    numbers,
    pytest_generate_tests,
    space,
    websocket_address,
)
from support.wire import Address, Connack, Dial, Join, Wire


@pytest.fixture
def dial(broker_address: Address) -> Iterator[Dial]:  # noqa: F811  # a fixture
    """Opens connections on which nothing has been sent, and closes them after the test."""
    opened: list[Wire] = []

    def open_wire() -> Wire:
        opened.append(Wire(broker_address))
        return opened[-1]

    yield open_wire
    for wire in opened:
        wire.close()


@pytest.fixture
def join(dial: Dial, space: str) -> Join:  # noqa: F811  # a fixture
    """Opens connections that are accepted: join("name", clean=False, session_present=1, ...)."""

    def connected(name: str = "", *, session_present: int = 0, **options: object) -> Wire:
        wire = dial()
        assert wire.connect(f"{space}{name or next(numbers)}", **options) == Connack(session_present, 0)
        return wire

    return connected
