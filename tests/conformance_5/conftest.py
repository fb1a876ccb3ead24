"""The clients of one test, which speak MQTT 5."""

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
from support.wire import Address
from support.wire_v5 import MAXIMUM_PACKET_SIZE, Dial, Join, Pairs, WireV5


@pytest.fixture
def dial(broker_address: Address) -> Iterator[Dial]:  # noqa: F811  # a fixture
    """Opens connections on which nothing has been sent, and closes them after the test."""
    opened: list[WireV5] = []

    def open_wire() -> WireV5:
        opened.append(WireV5(broker_address))
        return opened[-1]

    yield open_wire
    for wire in opened:
        wire.close()


@pytest.fixture
def join(dial: Dial, space: str) -> Join:  # noqa: F811  # a fixture
    """Opens connections that are accepted: join("name", clean=False, expiry=100, session_present=1, ...).

    `maximum_packet_size` is named in CONNECT and checked from then on.
    """

    def connected(
        name: str = "",
        *,
        session_present: int = 0,
        maximum_packet_size: int = 0,
        properties: Pairs = (),
        **options: object,
    ) -> WireV5:
        wire = dial()
        if maximum_packet_size:
            wire.maximum_packet_size = maximum_packet_size
            properties = [*properties, (MAXIMUM_PACKET_SIZE, maximum_packet_size)]
        connack = wire.connect(f"{space}{name or next(numbers)}", properties=properties, **options)
        assert (connack.session_present, connack.reason) == (session_present, 0)
        return wire

    return connected
