"""One broker with every transport, for real clients that do not know it is new."""

import itertools
import os
from collections.abc import Iterator

import pytest

from embermq import Broker
from embermq.certificates import Authority
from support.client_paths import Ways
from support.v5_clients.mqtt_js_client import VERSION, NotAvailable, Process, install

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def ways(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ways]:
    directory = tmp_path_factory.mktemp("clients")
    authority = Authority(directory)
    server = authority.sign("server")
    with Broker.in_thread(
        port=0,
        tls_port=0,
        ws_port=0,
        wss_port=0,
        certificate=server.certificate,
        key=server.key,
        unix_path=directory / "s",
    ) as broker:
        assert broker.port and broker.tls_port and broker.ws_port and broker.wss_port and broker.unix_path
        yield Ways(
            broker.host,
            broker.port,
            broker.tls_port,
            broker.ws_port,
            broker.wss_port,
            str(broker.unix_path),
            authority.certificate,
        )


@pytest.fixture(scope="session")
def mqtt_js(pytestconfig: pytest.Config) -> Iterator[Process]:
    assert pytestconfig.cache is not None
    directory = pytestconfig.cache.mkdir(f"mqtt-js-{VERSION}")
    try:
        install(directory)
    except NotAvailable as missing:
        pytest.skip(str(missing))
    process = Process(directory)
    yield process
    process.stop()


@pytest.fixture
def space() -> str:
    """A word that no other test uses: the first topic level and the first letters of the client ids."""
    return f"c{os.getpid()}x{next(_numbers)}"
