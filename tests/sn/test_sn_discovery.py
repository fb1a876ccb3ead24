"""How clients find a server: SEARCHGW and ADVERTISE in a multicast group on the loopback network, over real UDP."""

import asyncio
import socket
from collections.abc import Iterator

import pytest

from embermq import Broker
from embermq.errors import ConfigError
from embermq.protocol.sn.settings import SnSettings
from support.sn_client import PROFILES, V12, A, B, SnClient, packet

GROUP = "239.255.18.84"
LOOPBACK = socket.inet_aton("127.0.0.1")

ALL = pytest.mark.parametrize("profile", PROFILES)
GWINFO = {V12: bytes([3, 0x02, 9]), A: bytes([3, 0x03, 9]), B: bytes([3, 0x18, 9])}


def free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def group() -> tuple[str, int]:
    return GROUP, free_port()


@pytest.fixture
def seeker() -> Iterator[socket.socket]:
    """Somebody who speaks to the group on the loopback network."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.bind(("127.0.0.1", 0))
        client.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, LOOPBACK)
        client.settimeout(60)
        yield client


@pytest.fixture
def hearer(group: tuple[str, int]) -> Iterator[socket.socket]:
    """Somebody who hears the group on the loopback network."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        client.bind(group)
        client.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton(group[0]) + LOOPBACK)
        client.settimeout(60)
        yield client


def search(profile: str) -> bytes:
    return packet(profile, "SEARCHGW", b"" if profile == B else b"\0")


@ALL
def test_a_search_in_the_group_is_answered_from_where_the_server_listens(
    profile: str, group: tuple[str, int], seeker: socket.socket
) -> None:
    settings = SnSettings(answer_search=True, gateway_id=9)
    with Broker.in_thread(sn_port=0, sn=settings, sn_group=group) as broker:
        assert broker.sn_port is not None
        seeker.sendto(search(profile), group)
        answer, found = seeker.recvfrom(100)
        assert (answer, found) == (GWINFO[profile], ("127.0.0.1", broker.sn_port))
        with SnClient(profile, found, "found") as client:
            assert client.connect().reason == 0


def test_servers_of_one_machine_share_the_group_and_nothing_but_a_search_is_answered_there(
    group: tuple[str, int], seeker: socket.socket
) -> None:
    one, two = SnSettings(answer_search=True, gateway_id=1), SnSettings(answer_search=True, gateway_id=2)
    with (
        Broker.in_thread(sn_port=0, sn=one, sn_group=group),
        Broker.in_thread(sn_port=0, sn=two, sn_group=group),
    ):
        seeker.sendto(bytes.fromhex("0a 04 04 01 003c 64657631"), group)  # a CONNECT
        seeker.sendto(bytes.fromhex("02 16"), group)
        seeker.sendto(b"\0", group)
        seeker.sendto(search(V12), group)
        assert {seeker.recv(100), seeker.recv(100)} == {bytes([3, 2, 1]), bytes([3, 2, 2])}


def test_a_search_is_not_answered_unless_set(group: tuple[str, int], seeker: socket.socket) -> None:
    with Broker.in_thread(sn_port=0, sn=SnSettings(gateway_id=9)) as broker:
        assert broker.sn_port is not None
        server = ("127.0.0.1", broker.sn_port)
        seeker.sendto(search(V12), group)
        seeker.sendto(search(V12), server)
        seeker.sendto(bytes.fromhex("02 16"), server)
        assert seeker.recv(100) == bytes.fromhex("02 18")  # the answer to the ping is the first that comes


def test_advertise_is_heard_in_the_group_again_and_again(group: tuple[str, int], hearer: socket.socket) -> None:
    settings = SnSettings(advertise_s=1, gateway_id=9)
    with Broker.in_thread(sn_port=0, sn=settings, sn_group=group) as broker:
        heard = [hearer.recvfrom(100) for _ in range(6)]
        assert {address for _, address in heard} == {("127.0.0.1", broker.sn_port)}
        said = [bytes([5, 0x00, 9, 0, 1]), bytes([5, 0x01, 9, 0, 1]), bytes([5, 0x16, 9, 0, 1])]
        assert [data for data, _ in heard] == said * 2


def test_a_group_needs_an_address_of_ipv4() -> None:
    async def start() -> None:
        settings = SnSettings(answer_search=True)
        async with Broker(host="::1", sn_port=0, sn=settings, sn_group=(GROUP, free_port())):
            pass

    with pytest.raises(ConfigError, match=rf"cannot listen on \[::1\]:0 and in the group {GROUP}"):
        asyncio.run(start())
