"""The PROXY protocol, version 2: headers as bytes, and connections that begin with one."""

import socket
import ssl
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from embermq.certificates import Authority
from embermq.config import load
from embermq.embed import Broker, BrokerThread
from embermq.errors import ConfigError
from embermq.transport.server import Server
from embermq.transport.sockets.listening_socket import ListeningSocket
from embermq.transport.sockets.poll import Poll
from embermq.transport.sockets.proxy_header import HEAD_BYTES, SIGNATURE, ProxyHeaders, client_of, rest_bytes
from support.polled_server import look, run
from support.transports import connection_of
from support.wire import connect

ACCEPTED = bytes.fromhex("20020000")
PROXY, LOCAL = 0x21, 0x20
TCP4, TCP6, UNIX = 0x11, 0x21, 0x31


def header(rest: bytes, command: int = PROXY, family: int = TCP4) -> bytes:
    return SIGNATURE + bytes((command, family)) + struct.pack(">H", len(rest)) + rest


def of_ipv4(address: str = "192.0.2.7", port: int = 4711) -> bytes:
    return socket.inet_aton(address) + socket.inet_aton("10.0.0.1") + struct.pack(">HH", port, 1883)


IPV6 = socket.inet_pton(socket.AF_INET6, "2001:db8::1") + bytes(16) + struct.pack(">HH", 4712, 1883)


@pytest.mark.parametrize(
    ("whole", "expected"),
    [
        (header(of_ipv4()), ("192.0.2.7", 4711)),
        (header(of_ipv4() + b"\x03\x00\x04abcd"), ("192.0.2.7", 4711)),  # other fields follow
        (header(IPV6, family=TCP6), ("2001:db8::1", 4712)),
        (header(b"", LOCAL), None),
        (header(bytes(216), family=UNIX), None),
        (header(b"", family=0), None),
    ],
)
def test_the_address_of_a_header(whole: bytes, expected: tuple[str, int] | None) -> None:
    head, rest = whole[:HEAD_BYTES], whole[HEAD_BYTES:]
    assert rest_bytes(head) == len(rest)
    assert client_of(head, rest) == expected


@pytest.mark.parametrize(
    "whole",
    [
        b"PROXY TCP4 192.0.2.7 10.0.0.1 4711 1883\r\n",
        connect("a client id that is long enough"),
        header(of_ipv4(), command=0x11),
        header(of_ipv4(), command=0x2F),
        header(bytes(4097)),
    ],
)
def test_what_is_no_header_is_refused(whole: bytes) -> None:
    with pytest.raises(ValueError, match=r"PROXY protocol|longer than"):
        rest_bytes(whole[:HEAD_BYTES])


@pytest.mark.parametrize("cut", range(12))
def test_a_header_without_room_for_its_addresses_is_refused(cut: int) -> None:
    whole = header(of_ipv4()[:cut])
    with pytest.raises(ValueError, match="too short"):
        client_of(whole[:HEAD_BYTES], whole[HEAD_BYTES:])


@contextmanager
def served(directory: Path, more: str = "", proxies: str = "127.0.0.0/8", head: str = "") -> Iterator[Broker]:
    config = directory / "ember.toml"
    config.write_text(
        f"{head}[store]\nmemory = true\n[[listeners]]\nkind = 'tcp'\nname = 'proxied'\nport = 0\n"
        f"allow_anonymous = true\nproxy_protocol = ['{proxies}']\n{more}"
    )
    with BrokerThread(Broker.from_settings(load(config))) as broker:
        yield broker


def port_of(broker: Broker) -> int:
    return broker.listeners()[0].port


def opened(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), 30)


def addresses(broker: Broker) -> list[str]:
    return [session.address for session in broker.server.core.sessions()]


def is_closed(peer: socket.socket) -> bool:
    try:
        return peer.recv(1) == b""
    except ConnectionResetError:
        return True


def test_a_client_has_the_address_that_its_proxy_says(tmp_path: Path) -> None:
    with served(tmp_path) as broker, opened(port_of(broker)) as peer:
        peer.sendall(header(of_ipv4()) + connect("c"))  # at once, as proxies send it
        assert peer.recv(4) == ACCEPTED
        assert addresses(broker) == ["192.0.2.7:4711"]


def test_a_header_in_single_bytes(tmp_path: Path) -> None:
    with served(tmp_path) as broker, opened(port_of(broker)) as peer:
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in header(IPV6, family=TCP6):
            peer.sendall(bytes((byte,)))
        peer.sendall(connect("c"))
        assert peer.recv(4) == ACCEPTED
        assert addresses(broker) == ["2001:db8::1:4712"]


def test_a_check_by_the_proxy_has_its_own_address(tmp_path: Path) -> None:
    with served(tmp_path) as broker, opened(port_of(broker)) as peer:
        peer.sendall(header(b"", LOCAL) + connect("c"))
        assert peer.recv(4) == ACCEPTED
        assert addresses(broker) == ["{}:{}".format(*peer.getsockname())]
        with opened(port_of(broker)):  # and one that says nothing
            pass


def test_connections_of_others_and_without_a_header_are_closed_logged_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with served(tmp_path) as broker:
        with opened(port_of(broker)) as peer:
            peer.sendall(connect("c" * 30))
            assert is_closed(peer)
        before = broker.server.core.counter_values()
    with served(tmp_path, proxies="192.0.2.0/24") as broker, opened(port_of(broker)) as peer:
        peer.sendall(header(of_ipv4()) + connect("c"))
        assert is_closed(peer)
    assert any("refused" in name and value for name, value in before.items()), before
    assert "it does not begin with a header of the PROXY protocol" in caplog.text
    assert "it is no proxy of this listener" in caplog.text


def test_a_header_that_does_not_come_is_waited_for_as_long_as_a_connect(tmp_path: Path) -> None:
    with served(tmp_path, head="[limits]\nconnect_timeout_s = 1\n") as broker, opened(port_of(broker)) as peer:
        peer.sendall(SIGNATURE)
        began_s = time.monotonic()
        assert is_closed(peer)
        assert time.monotonic() - began_s > 0.9


def test_bounds_by_address_are_for_the_clients(tmp_path: Path) -> None:
    head = "[limits]\naddress_connections_max = 1\n"
    with served(tmp_path, head=head) as broker:
        port = port_of(broker)
        with opened(port) as first, opened(port) as same, opened(port) as other:
            first.sendall(header(of_ipv4()) + connect("a"))
            assert first.recv(4) == ACCEPTED
            same.sendall(header(of_ipv4(port=1)) + connect("b"))
            assert is_closed(same)
            other.sendall(header(of_ipv4("192.0.2.8")) + connect("c"))
            assert other.recv(4) == ACCEPTED


def test_the_header_comes_before_tls(tmp_path: Path) -> None:
    Authority(tmp_path, "ca").sign("server", ["localhost"])
    more = "[[listeners]]\nkind = 'tls'\nport = 0\nallow_anonymous = true\nproxy_protocol = ['127.0.0.1']\n"
    more += f"certificate = '{tmp_path}/server.crt'\nkey = '{tmp_path}/server.key'\n"
    with served(tmp_path, more) as broker, opened(broker.listeners()[1].port) as plain:
        plain.sendall(header(of_ipv4()))
        context = ssl.create_default_context(cafile=str(tmp_path / "ca.crt"))
        with context.wrap_socket(plain, server_hostname="localhost") as peer:
            peer.sendall(connect("c"))
            assert peer.recv(4) == ACCEPTED
            assert addresses(broker) == ["192.0.2.7:4711"]


def test_headers_that_do_not_come_are_awaited_up_to_a_bound() -> None:
    async def scenario(server: Server, poll: Poll) -> None:
        bound = socket.create_server(("127.0.0.1", 0))
        bound.setblocking(False)
        said: list[str] = []
        headers = ProxyHeaders(poll, ["127.0.0.1"], 30, said.append, waiting_max=2)
        accepting = ListeningSocket(poll, bound, lambda: connection_of(server), server.handshakes, headers=headers)
        silent = [opened(bound.getsockname()[1]) for _ in range(3)]
        look(poll)
        assert is_closed(silent[2])
        assert len(said) == 1 and "2 connections of proxies have not sent their header" in said[0]
        silent[0].close()  # which makes room
        look(poll)
        with opened(bound.getsockname()[1]) as peer:
            look(poll)
            peer.sendall(header(of_ipv4()) + connect("c"))
            for _ in range(3):
                look(poll)
            assert peer.recv(4) == ACCEPTED
        accepting.close()
        assert is_closed(silent[1])
        silent[1].close()
        silent[2].close()

    run(scenario)


def test_a_listener_for_proxies_is_reachable_from_other_machines(tmp_path: Path) -> None:
    (tmp_path / "ember.toml").write_text("[[listeners]]\nkind = 'tcp'\nport = 0\nproxy_protocol = ['127.0.0.1']\n")
    with pytest.raises(ConfigError, match="reachable from other machines"):
        load(tmp_path / "ember.toml")


@pytest.mark.parametrize(("level", "code"), [(3, 1), (4, 0), (5, 1)])
def test_versions_that_a_listener_does_not_accept(tmp_path: Path, level: int, code: int) -> None:
    config = tmp_path / "ember.toml"
    config.write_text(
        "[store]\nmemory = true\n[[listeners]]\nkind = 'tcp'\nport = 0\nallow_anonymous = true\nversions = ['3.1.1']\n"
    )
    with BrokerThread(Broker.from_settings(load(config))) as broker, opened(port_of(broker)) as peer:
        name = "MQIsdp" if level == 3 else "MQTT"
        raw = connect("c", level=level, name=name)
        peer.sendall(raw if level < 5 else raw[:1] + bytes((raw[1] + 1,)) + raw[2:12] + b"\0" + raw[12:])
        answer = peer.recv(16)
        assert answer[0] == 0x20
        assert answer[3] in ((code, 0x84) if code else (0,)), answer
