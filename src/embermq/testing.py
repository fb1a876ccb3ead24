"""A real broker for a test: the `mqtt_broker` pytest fixture.

    def test_it(mqtt_broker):
        client.connect(mqtt_broker.host, mqtt_broker.port)

Each test has its own broker: on a free port, in memory, without access rules.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from embermq.embed import Broker


@pytest.fixture
def mqtt_broker() -> "Iterator[Broker]":
    """A running broker with `host` and `port`; it ends with the test."""
    # Imported here, since every pytest run in an environment with EmberMQ loads this file.
    from embermq.embed import Broker

    with Broker.in_thread() as broker:
        yield broker
