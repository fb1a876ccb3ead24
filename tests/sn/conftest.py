"""A broker that speaks MQTT and MQTT-SN, and clients for it."""

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from embermq import Broker
from embermq.protocol.sn.settings import SnSettings
from embermq.store.interface import Store
from support.sn_client import V12, SnClient
from support.wire import Wire
from support.wire_v5 import WireV5

PREDEFINED = {1: "predefined/one", 7: "predefined/seven"}

_numbers = itertools.count(1)


@pytest.fixture
def sn_options() -> dict[str, object]:
    """What a test file changes about the listener."""
    return {}


@pytest.fixture
def sn_store() -> Store | None:
    """The store that a test brings."""
    return None


@pytest.fixture
def sn_broker(sn_options: dict[str, object], sn_store: Store | None) -> Iterator[Broker]:
    settings = SnSettings(predefined=PREDEFINED, **sn_options)  # type: ignore[arg-type]  # named by the test
    with Broker.in_thread(sn_port=0, sn=settings, store=sn_store) as broker:
        yield broker


@pytest.fixture
def sn(sn_broker: Broker) -> Iterator[Callable[..., SnClient]]:
    """Makes clients of a profile: sn(A, "name", clean=False, ...), connected unless `connect=False`."""
    assert sn_broker.sn_port is not None
    address = ("127.0.0.1", sn_broker.sn_port)
    with ExitStack() as stack:

        def make(profile: str, client_id: str = "", *, connect: bool = True, **options: object) -> SnClient:
            if not client_id and profile == V12:
                client_id = f"client{next(_numbers)}"
            client = stack.enter_context(SnClient(profile, address, client_id))
            client.predefined.update(PREDEFINED)
            if connect:
                connack = client.connect(**options)  # type: ignore[arg-type]  # the options are those of `connect`
                assert connack.reason == 0
            return client

        yield make


@pytest.fixture
def mqtt(sn_broker: Broker) -> Iterator[Callable[..., Wire]]:
    """Makes MQTT 3.1.1 clients of the same broker."""
    assert sn_broker.port is not None
    address = (sn_broker.host, sn_broker.port)
    with ExitStack() as stack:

        def make(client_id: str = "", **options: object) -> Wire:
            client = stack.enter_context(Wire(address))
            client.connect(client_id or f"mqtt{next(_numbers)}", **options)
            return client

        yield make


@pytest.fixture
def mqtt5(sn_broker: Broker) -> Iterator[Callable[..., WireV5]]:
    """Makes MQTT 5 clients of the same broker."""
    assert sn_broker.port is not None
    address = (sn_broker.host, sn_broker.port)
    with ExitStack() as stack:

        def make(client_id: str, **options: object) -> WireV5:
            client = stack.enter_context(WireV5(address))
            assert client.connect(client_id, **options).reason == 0
            return client

        yield make
