"""`[[listeners]]`: what they say, what is refused, and that the server does what they say."""

import asyncio
from pathlib import Path

import pytest

from embermq.access.passwords import write_password
from embermq.config import load
from embermq.embed import Broker
from embermq.errors import ConfigError
from embermq.settings import OneListener, sample
from support.wire import connect

CONNACK_ACCEPTED = bytes.fromhex("20020000")
CONNACK_BAD_PASSWORD = bytes.fromhex("20020004")
CONNACK_NOT_AUTHORIZED = bytes.fromhex("20020005")


def written(directory: Path, text: str) -> Path:
    path = directory / "ember.toml"
    path.write_text(text)
    return path


def sentence(directory: Path, text: str, flags: dict[str, dict[str, int]] | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        load(written(directory, text), flags)
    return str(caught.value)


def test_the_sample_shows_every_key(tmp_path: Path) -> None:
    shown = "\n".join(line[6:] for line in sample().splitlines() if line.startswith("#     "))
    (tmp_path / "world-passwords").write_text("")
    each = load(written(tmp_path, shown)).listeners.each
    assert [one.kind for one in each] == ["wss", "unix"]
    assert each[0].model_fields_set | each[1].model_fields_set == set(OneListener.model_fields)
    assert each[0].limits.model_fields_set == set(type(each[0].limits).model_fields)


def test_the_short_form_is_the_same_as_a_table_of_each(tmp_path: Path) -> None:
    short = load(written(tmp_path, "[listeners]\nws_port = 9001\nws_path = '/mqtt'\nunix_path = 'a.sock'\n"))
    long = load(
        written(
            tmp_path,
            "[[listeners]]\nkind = 'tcp'\nname = 'tcp'\nport = 1883\n"
            "[[listeners]]\nkind = 'ws'\nname = 'ws'\nport = 9001\nws_paths = ['/mqtt']\n"
            "[[listeners]]\nkind = 'unix'\nname = 'unix'\nunix_path = 'a.sock'\n",
        )
    )
    assert short.listeners.every(None) == long.listeners.every(None)


TCP = "[[listeners]]\nkind = 'tcp'\nport = 1883\n"
PAIR = "certificate = 'c'\nkey = 'k'\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[[listeners]]\nkind = 'tcp'", "a listener of kind tcp needs a port (listener tcp)"),
        ("[[listeners]]\nkind = 'unix'", "a listener of kind unix needs unix_path"),
        ("[[listeners]]\nkind = 'tls'\nport = 1", "a listener of kind tls needs certificate and key (listener tls-1)"),
        (TCP + "prt = 1", "there is no setting listeners.0.prt, did you mean port?"),
        (TCP + "ws_paths = ['/a']", "ws_paths is for listeners of kind ws or wss, not tcp"),
        (TCP + PAIR, "certificate is for listeners of kind tls or wss, not tcp"),
        (TCP + "unix_mode = '600'", "unix_mode is for listeners of kind unix, not tcp"),
        (TCP + "mount_point = 'a'", "listeners.0.mount_point: expected whole levels without wildcards"),
        (TCP + "mount_point = 'a/+/'", "listeners.0.mount_point: expected whole levels without wildcards"),
        (TCP + "mount_point = '$SYS/'", "listeners.0.mount_point: expected whole levels without wildcards"),
        (TCP + "mount_point = 'now/'", "listeners.0.mount_point: now is an instant in $replay/"),
        (
            "[[listeners]]\nkind = 'udp'\nport = 1\nmount_point = 'a/'",
            "mount_point is for listeners of kind tcp or tls or ws or wss or unix, not udp",
        ),
        (TCP + "host = []", "listeners.0.host: expected an address, or a list of them"),
        (TCP + "limits = { inflight_max = 1 }", "there is no setting listeners.0.limits.inflight_max"),
        (TCP + "limits = { connection_max = 1 }", "did you mean connections_max?"),
        ("[listeners]\nport = 1\n" + TCP, "expected one form, remove the section [listeners]"),
        (
            TCP + TCP + "name = 'b'",
            "listeners tcp-1883 and b are both at 127.0.0.1:1883: expected another port or path",
        ),
        (
            "[[listeners]]\nkind = 'unix'\nunix_path = 'a.sock'\n" * 2 + "name = 'b'",
            "listeners unix and b are both at a.sock",
        ),
        (TCP + "name = 'a b'", "listeners.0.name"),
        (TCP + TCP, "two listeners are called tcp-1883: expected a name of its own for each"),
        (TCP + "[sn]\nport = 1884", 'expected a listener of kind = "udp" in place of sn.port'),
        (TCP + "allow_anonymous = false", "listener tcp-1883: anonymous clients are refused and there are no users"),
        (TCP + "host = ['127.0.0.1', '0.0.0.0']", "listener tcp-1883: 0.0.0.0 is reachable from other machines"),
        (TCP + "host = '0.0.0.0'", "listener tcp-1883: 0.0.0.0 is reachable from other machines"),
        (
            "[[listeners]]\nkind = 'tls'\nport = 1\ncertificate_as_user = true\n" + PAIR,
            "need client_ca, the authority that signs the clients' certificates (listener tls-1)",
        ),
        (
            "[[listeners]]\nkind = 'udp'\nport = 1\n[[listeners]]\nkind = 'udp'\nport = 2",
            "there are several listeners of kind udp",
        ),
    ],
)
def test_a_wrong_listener_is_one_sentence(tmp_path: Path, text: str, expected: str) -> None:
    found = sentence(tmp_path, text)
    assert expected in found
    assert "\n" not in found


def test_both_forms_together_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = "listeners.port and [[listeners]] are given: expected one form, set port in a listener"
    assert sentence(tmp_path, TCP, {"listeners": {"port": 1884}}) == expected
    monkeypatch.setenv("EMBERMQ_LISTENERS__PORT", "1884")
    assert sentence(tmp_path, TCP) == expected


async def answer(port: int, client_id: str, user: str | None = None, password: bytes | None = None) -> bytes:
    """The CONNACK; the connection stays until its writer is collected."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(connect(client_id, user_name=user, password=password))
    try:
        return await asyncio.wait_for(reader.readexactly(4), 60)
    finally:
        writer.close()


def test_listeners_of_one_kind_differ_in_users_and_limits(tmp_path: Path) -> None:
    write_password(tmp_path / "users", "ann", b"one", with_scram=False)
    write_password(tmp_path / "own", "ann", b"two", with_scram=False)
    path = written(
        tmp_path,
        f"""
        [access]
        password_file = "{tmp_path / "users"}"
        [store]
        memory = true
        [[listeners]]
        kind = "tcp"
        name = "here"
        port = 0
        allow_anonymous = true
        [[listeners]]
        kind = "tcp"
        name = "users"
        port = 0
        limits = {{ connections_max = 1 }}
        [[listeners]]
        kind = "tcp"
        name = "own"
        port = 0
        password_file = "{tmp_path / "own"}"
        """,
    )

    async def test() -> None:
        async with Broker.from_settings(load(path)) as broker:
            ports = {each.name: each.port for each in broker.listeners()}
            assert await answer(ports["here"], "a") == CONNACK_ACCEPTED
            assert await answer(ports["here"], "b", "ann", b"one") == CONNACK_ACCEPTED
            assert await answer(ports["users"], "c") == CONNACK_NOT_AUTHORIZED
            assert await answer(ports["users"], "d", "ann", b"two") == CONNACK_BAD_PASSWORD
            assert await answer(ports["own"], "e", "ann", b"one") == CONNACK_BAD_PASSWORD
            assert await answer(ports["own"], "f", "ann", b"two") == CONNACK_ACCEPTED
            full = await asyncio.open_connection("127.0.0.1", ports["users"])
            full[1].write(connect("g", user_name="ann", password=b"one"))
            assert await full[0].readexactly(4) == CONNACK_ACCEPTED
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                await answer(ports["users"], "h", "ann", b"one")
            own = await asyncio.open_connection("127.0.0.1", ports["own"])
            own[1].write(connect("i", user_name="ann", password=b"two"))
            assert await own[0].readexactly(4) == CONNACK_ACCEPTED
            names = {each.client_id: each.identity.user_name for each in broker.server.core.sessions()}
            assert (names["g"], names["i"]) == ("ann", "own:ann")
            # The other `ann` may not take over this client.
            assert await answer(ports["here"], "i", "ann", b"one") != CONNACK_ACCEPTED

    asyncio.run(test())


def test_a_name_that_belongs_to_a_listener_is_refused(tmp_path: Path) -> None:
    write_password(tmp_path / "users", "own:ann", b"one", with_scram=False)
    (tmp_path / "own.list").write_text("all\nread #\n")
    path = written(
        tmp_path,
        f"[access]\npassword_file = '{tmp_path / 'users'}'\n{TCP}name = 'own'\nacl_file = '{tmp_path / 'own.list'}'\n",
    )
    with pytest.raises(ConfigError, match=r"users: user 'own:ann': expected another name, the users of listener own"):
        Broker.from_settings(load(path))
