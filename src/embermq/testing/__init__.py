"""Real brokers for tests: the pytest fixtures `mqtt_broker`, `mqtt_broker_factory` and `async_mqtt_broker`.

`mqtt_broker_session_factory` makes brokers for a whole session.

    def test_it(mqtt_broker):
        device = Device(mqtt_broker.host, mqtt_broker.port)
        device.report(21.5)
        assert mqtt_broker.wait_for("plant/+/temperature").payload == b"21.5"

Each test has its own broker: on a free port, in memory, without access rules. `mqtt_broker_factory` makes brokers with
users, access rules, TLS or data on disk. What they can do is in `embermq.testing.broker` and `embermq.testing.faults`.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Protocol

import pytest

# Everything else is imported in the fixtures, since every pytest run in an environment with EmberMQ loads this file.
if TYPE_CHECKING:
    from pathlib import Path

    from embermq.testing.broker import AsyncTestedBroker, TestedBroker


class BrokerFactory(Protocol):
    """Makes a broker that runs until the end of the test or session; the arguments are those of `TestedBroker`."""

    def __call__(
        self,
        *,
        users: dict[str, str] | None = None,
        access_list: str | None = None,
        tls: bool = False,
        data: "Path | None" = None,
        **options: object,
    ) -> "TestedBroker": ...


@pytest.fixture
def mqtt_broker() -> "Iterator[TestedBroker]":
    """A running broker; it ends with the test."""
    from embermq.testing.broker import TestedBroker

    with TestedBroker() as broker:
        yield broker


@pytest.fixture
def async_mqtt_broker() -> "Iterator[AsyncTestedBroker]":
    """`mqtt_broker` for tests in an event loop: what waits is awaited."""
    from embermq.testing.broker import AsyncTestedBroker, TestedBroker

    with TestedBroker() as broker:
        yield AsyncTestedBroker(broker)


@pytest.fixture
def mqtt_broker_factory() -> Iterator[BrokerFactory]:
    """A function that makes running brokers; they end with the test."""
    yield from _factory()


@pytest.fixture(scope="session")
def mqtt_broker_session_factory() -> Iterator[BrokerFactory]:
    """`mqtt_broker_factory` for fixtures of a wider scope; the brokers end with all tests."""
    yield from _factory()


def _factory() -> Iterator[BrokerFactory]:
    from embermq.testing.broker import TestedBroker

    with ExitStack() as stack:

        def make(**options: object) -> TestedBroker:
            return stack.enter_context(TestedBroker(**options))  # type: ignore[arg-type]  # named by BrokerFactory

        yield make
