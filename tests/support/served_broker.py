"""The fixtures of the conformance tests that do not depend on a version: the broker under test.

EMBER_TEST_ADDRESS=host:port:websocket-port runs these tests against another server, to see which is wrong: a test or
the product.
"""

import itertools
import os
from collections.abc import Iterator
from typing import Final

import pytest

from embermq import Broker
from support.wire import Address

numbers: Final = itertools.count(1)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A module whose clauses are about what is kept names the engines that have to keep it in `ENGINES`."""
    if "addresses" in metafunc.fixturenames:
        engines = getattr(metafunc.module, "ENGINES", ("memory",))
        metafunc.parametrize("addresses", engines, indirect=True, scope="module")


@pytest.fixture(scope="module")
def addresses(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Address, Address]]:
    """Where the broker listens: for TCP and for WebSockets."""
    given = os.environ.get("EMBER_TEST_ADDRESS")
    if given:
        host, port, ws_port = given.split(":")
        yield (host, int(port)), (host, int(ws_port))
        return
    data = tmp_path_factory.mktemp("data") if request.param == "directory" else None
    with Broker.in_thread(port=0, ws_port=0, data=data) as broker:
        assert broker.port and broker.ws_port
        yield (broker.host, broker.port), (broker.host, broker.ws_port)


@pytest.fixture(scope="module")
def broker_address(addresses: tuple[Address, Address]) -> Address:
    return addresses[0]


@pytest.fixture(scope="module")
def websocket_address(addresses: tuple[Address, Address]) -> Address:
    return addresses[1]


@pytest.fixture
def space() -> str:
    """A word that no other test uses: the first topic level and the first letters of the client ids."""
    return f"t{os.getpid()}x{next(numbers)}"
