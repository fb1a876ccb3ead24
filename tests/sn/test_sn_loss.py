"""A network that loses, doubles and reorders a tenth of all datagrams each: nothing lost at QoS 1, or twice at 2."""

import select
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from random import Random
from typing import Self

import pytest

from embermq import Broker
from embermq.protocol.sn.settings import SnSettings
from support.sn_client import V12, A, Address, B, SnClient

SHARE = 0.1
MESSAGES = 20
RETRY_S = 0.05
HELD_BACK_S = 0.01


class LossyProxy:
    """A UDP proxy with a socket of its own for each client, so that the server sees them apart."""

    def __init__(self, server: Address, seed: int) -> None:
        self._server = server
        self._random = Random(seed)
        self._front = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._front.bind(("127.0.0.1", 0))
        self._backs: dict[Address, socket.socket] = {}
        self._clients: dict[socket.socket, Address] = {}
        self._held: list[tuple[socket.socket, bytes, Address]] = []
        self._running = True
        self.lost = self.doubled = self.reordered = 0
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def address(self) -> Address:
        host, port = self._front.getsockname()
        return host, port

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._running = False
        self._thread.join()
        for one in (self._front, *self._clients):
            one.close()

    def _run(self) -> None:
        while self._running:
            ready, _, _ = select.select([self._front, *self._clients], [], [], HELD_BACK_S)
            if not ready:
                self._release()
            for one in ready:
                data, sender = one.recvfrom(65_535)
                if one is self._front:
                    if sender not in self._backs:
                        back = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
                        back.bind(("127.0.0.1", 0))
                        self._backs[sender] = back
                        self._clients[back] = sender
                    self._pass_on(self._backs[sender], data, self._server)
                else:
                    self._pass_on(self._front, data, self._clients[one])

    def _pass_on(self, through: socket.socket, data: bytes, to: Address) -> None:
        chance = self._random.random()
        if chance < SHARE:
            self.lost += 1
        elif chance < 2 * SHARE:
            self.doubled += 1
            through.sendto(data, to)
            self._held.append((through, data, to))  # the copy comes late
        elif chance < 3 * SHARE:
            self.reordered += 1
            self._held.append((through, data, to))
            return
        else:
            through.sendto(data, to)
        if self._random.random() < 0.5:
            self._release()

    def _release(self) -> None:
        held, self._held = self._held, []
        for through, data, to in held:
            through.sendto(data, to)


@pytest.fixture
def lossy() -> Iterator[LossyProxy]:
    settings = SnSettings(retry_ms=int(RETRY_S * 1000), retries_max=30, backoff_max_ms=100)
    with Broker.in_thread(sn_port=0, sn=settings) as broker:
        assert broker.sn_port is not None
        with LossyProxy(("127.0.0.1", broker.sn_port), seed=42) as proxy:
            yield proxy


@pytest.mark.parametrize(("publishes", "subscribes"), [(V12, V12), (A, A), (B, B), (V12, A), (A, B), (B, V12)])
def test_nothing_is_lost_at_qos_1_and_nothing_comes_twice_at_qos_2(
    lossy: LossyProxy, publishes: str, subscribes: str
) -> None:
    with ExitStack() as stack:
        publisher = stack.enter_context(SnClient(publishes, lossy.address, "publisher", RETRY_S))
        subscriber = stack.enter_context(SnClient(subscribes, lossy.address, "subscriber", RETRY_S))
        assert publisher.connect().reason == 0
        assert subscriber.connect().reason == 0
        assert subscriber.subscribe("lossy/#", 2).reason == 2
        thread = threading.Thread(target=_publish_all, args=(publisher,))
        thread.start()
        once = [b"%d" % number for number in range(MESSAGES)]
        at_least_once: list[bytes] = []
        exactly_once: list[bytes] = []
        while set(at_least_once) < set(once) or len(exactly_once) < MESSAGES:
            for message in subscriber.await_messages(1, timeout_s=60):
                (at_least_once if message.qos == 1 else exactly_once).append(message.payload)
        thread.join()
        for message in subscriber.drain_lossy():
            (at_least_once if message.qos == 1 else exactly_once).append(message.payload)
    assert exactly_once == once
    assert list(dict.fromkeys(at_least_once)) == once
    assert min(lossy.lost, lossy.doubled, lossy.reordered) > 5


def _publish_all(publisher: SnClient) -> None:
    for number in range(MESSAGES):
        publisher.publish("lossy/one", b"%d" % number, 1)
        publisher.publish("lossy/two", b"%d" % number, 2)
