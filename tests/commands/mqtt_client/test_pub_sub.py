"""`ember pub` and `ember sub` against a server, as processes and in a terminal."""

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from embermq import Broker
from embermq.access.passwords import write_password
from embermq.certificates import Authority
from embermq.config import load
from embermq.embed import BrokerThread
from support.ember_command import Done, ember, sentence, server, wire
from support.terminal import Terminal


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with server(tmp_path_factory.mktemp("data") / "data") as running:
        yield running


@pytest.fixture(params=["5", "3.1.1"])
def version(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


WORD = "EMBERMQ_PASSWORD"


def url(broker: Broker) -> str:
    return f"mqtt://127.0.0.1:{broker.port}"


def pub(broker: Broker, *arguments: str | Path, stdin: bytes = b"") -> Done:
    done = ember("pub", *arguments, "--url", url(broker), stdin=stdin)
    assert (done.code, done.errors) == (0, ""), done
    return done


def sub(broker: Broker, *arguments: str | Path) -> Done:
    return ember("sub", *arguments, "--url", url(broker))


@pytest.mark.parametrize("qos", ["0", "1", "2"])
def test_a_retained_message_is_published_and_seen(broker: Broker, version: str, qos: str) -> None:
    topic = f"round/{version}/{qos}"
    pub(broker, topic, "grüße", "-r", "-q", qos, "--mqtt", version)
    done = sub(broker, topic, "-C", "1", "-W", "60", "-q", qos, "--mqtt", version)
    assert (done.code, done.text) == (0, f"{topic}  grüße\n")
    shown = json.loads(sub(broker, topic, "-C", "1", "-W", "60", "-q", qos, "--json", "--mqtt", version).text)
    assert (shown["topic"], shown["payload"], shown["qos"], shown["retain"]) == (topic, "grüße", int(qos), True)
    pub(broker, topic, "--empty", "-r")
    assert sub(broker, topic, "-C", "1", "-W", "0.3").code == 1


def test_payloads_come_from_the_input_and_from_files(broker: Broker, tmp_path: Path) -> None:
    path = tmp_path / "payload"
    path.write_bytes(bytes(range(256)))
    pub(broker, "from/file", "--file", path, "-r")
    assert sub(broker, "from/file", "-C", "1", "--raw").printed == bytes(range(256))
    assert "payload_base64" in json.loads(sub(broker, "from/file", "-C", "1", "--json").text)
    pub(broker, "from/stdin", "--stdin", "-r", stdin=b"a\nb\n")
    assert sub(broker, "from/stdin", "-C", "1", "--raw").printed == b"a\nb\n"
    done = pub(broker, "from/lines", "--lines", "-q", "1", "--json", stdin=b"one\ntwo\n" * 200)
    assert len(done.lines) == 400
    assert json.loads(done.lines[0]) == {
        "topic": "from/lines",
        "bytes": 3,
        "qos": 1,
        "retain": False,
        "reason": "no matching subscribers",
    }


def test_properties_go_and_come(broker: Broker) -> None:
    properties = ["--expiry", "600", "--content-type", "text/plain", "--response-topic", "answers"]
    properties += ["--correlation-data", "7", "--property", "k=v", "--property", "k=v=2"]
    pub(broker, "with/properties", "x", "-r", *properties)
    shown = json.loads(sub(broker, "with/properties", "-C", "1", "--json").text)["properties"]
    assert shown["user_properties"] == [["k", "v"], ["k", "v=2"]]
    assert (shown["content_type"], shown["response_topic"], shown["correlation_data"]) == ("text/plain", "answers", "7")
    assert 590 <= shown["message_expiry_interval"] <= 600


def test_formats(broker: Broker) -> None:
    pub(broker, "fmt", "a\x1b[2Jb", "-r", "-q", "1")
    line = sub(broker, "fmt", "-C", "1", "-q", "1", "-F", r"%t|%p|%x|%l|%q|%r|%%\t|").text
    assert line == "fmt|a\\x1b[2Jb|611b5b324a62|6|1|1|%\t|\n"
    assert "there is no field %z" in sentence(sub(broker, "fmt", "-F", "%z"))


def test_retained_messages_can_be_left_out_or_be_all(broker: Broker, version: str) -> None:
    pub(broker, "kept", "old", "-r")
    assert sub(broker, "kept", "-W", "0.3", "--no-retained", "--mqtt", version).printed == b""
    done = sub(broker, "kept", "-C", "1", "-W", "60", "--retained-only", "--mqtt", version)
    assert (done.code, done.text) == (0, "kept  old\n")


def test_a_session_is_found_again(broker: Broker) -> None:
    session = ["--id", "finder", "--session-expiry", "600", "-q", "1"]
    assert sub(broker, "later", "-W", "0.1", *session).code == 0
    pub(broker, "later", "queued", "-q", "1")
    assert sub(broker, "later", "-C", "1", "-W", "60", *session).text == "later  queued\n"
    assert "expected --id" in sentence(sub(broker, "later", "--session-expiry", "5"))


def test_what_is_wrong_is_one_sentence(broker: Broker, tmp_path: Path) -> None:
    wrong: list[tuple[Callable[[], Done], str]] = [
        (lambda: ember("pub", "a/#", "x", "--url", url(broker)), "a/#: expected a topic name"),
        (lambda: ember("pub", "a"), "expected PAYLOAD, --file, --stdin, --lines or --empty"),
        (lambda: ember("pub", "a", "x", "--empty"), "expected PAYLOAD, --file"),
        (lambda: ember("pub", "a", "x", "--url", "http://x"), "--url: expected mqtt://host:1883"),
        (lambda: ember("pub", "a", "x", "--url", "mqtt://u:secret@x"), "--url: expected no password"),
        (lambda: ember("pub", "a", "x", "--property", "k", "--url", url(broker)), "--property k: expected NAME=VALUE"),
        (lambda: ember("pub", "a", "x", "--expiry", "3", "--mqtt", "3.1.1"), "properties: expected --mqtt 5"),
        (lambda: ember("pub", "a", "x", "--url", "mqtt://127.0.0.1:1"), "cannot connect to mqtt://127.0.0.1:1: "),
        (lambda: ember("pub", "a", "-f", tmp_path / "no", "--url", url(broker)), "--file: cannot read"),
        (lambda: sub(broker, "a#"), "a#: expected a topic filter"),
        (lambda: sub(broker, "a", "--json", "--raw"), "--format, --raw and --json: expected one of them"),
        (lambda: sub(broker, "a", "-u", "x", "--password-file", tmp_path / "no"), "--password-file: cannot read"),
    ]
    for run, expected in wrong:
        assert sentence(run()).startswith(expected)


def test_the_server_is_that_of_the_settings(broker: Broker, tmp_path: Path) -> None:
    config = tmp_path / "ember.toml"
    config.write_text(f"[listeners]\nhost = '0.0.0.0'\nport = {broker.port}\n")
    assert ember("pub", "from/settings", "x", "-r", "--config", config).code == 0
    assert ember("sub", "from/settings", "-C", "1", environment={"EMBERMQ_CONFIG": str(config)}).code == 0
    assert ember("sub", "from/settings", "-C", "1", environment={"EMBERMQ_URL": url(broker)}).code == 0


def test_the_server_that_runs_on_a_directory_says_where_it_listens(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with server(data):
        assert ember("pub", "a", "1", "-r", "-q", "1", "--data", data).code == 0
        assert ember("sub", "a", "-C", "1", "-W", "60", "--data", data).text == "a  1\n"
        both = ember("pub", "a", "1", "--data", data, "--url", "mqtt://localhost")
        assert sentence(both) == "--url and --data: expected one of them, not both"
    assert sentence(ember("pub", "a", "1", "--data", data)) == f"no server runs on {data}"


def test_users_rights_and_certificates(tmp_path: Path) -> None:
    passwords, acl = tmp_path / "passwords", tmp_path / "acl"
    write_password(passwords, "ann", b"secret")
    acl.write_text("user ann\nread open/#\nwrite open/#\nretain open/#\n")
    authority = Authority(tmp_path)
    pair = authority.sign("localhost")
    config = tmp_path / "ember.toml"
    config.write_text(
        f"[listeners]\nport = 0\ntls_port = 0\ncertificate = '{pair.certificate}'\nkey = '{pair.key}'\n"
        f"[access]\npassword_file = '{passwords}'\nacl_file = '{acl}'\n[store]\nmemory = true\n"
    )
    secret = tmp_path / "secret"
    secret.write_text("secret\n")
    with BrokerThread(Broker.from_settings(load(config))) as broker:
        plain, tls = url(broker), f"mqtts://ann@localhost:{broker.tls_port}"
        assert "not authorized" in sentence(ember("pub", "open/a", "x", "--url", plain))
        said = sentence(ember("pub", "open/a", "x", "-u", "ann", "--url", plain, environment={WORD: "wrong"}))
        assert said == f"{plain} refuses the connection: bad user name or password"
        for mqtt in ("5", "3.1.1"):
            by_url = plain.replace("//", "//ann@")
            assert sentence(ember("pub", "open/a", "x", "--mqtt", mqtt, "--url", by_url)) == (
                f"{plain} refuses the connection: no password was given for the user ann: set EMBERMQ_PASSWORD, or use"
                " --password-file"
            )
        good: list[str | Path] = ["-u", "ann", "--password-file", secret, "--url", plain]
        assert ember("pub", "open/a", "x", "-r", "-q", "1", *good).code == 0
        refused = ember("pub", "closed", "x", "-q", "1", *good)
        assert refused.code == 1
        assert refused.errors == "ember: the server refuses a message to closed: not authorized\n"
        refused = ember("sub", "closed", *good)
        assert (refused.code, refused.printed) == (1, b"") and "refuses the subscription to closed" in refused.errors
        environment = {"EMBERMQ_PASSWORD": "secret"}
        done = ember("sub", "open/#", "-C", "1", "--url", tls, "--ca", authority.certificate, environment=environment)
        assert (done.code, done.text) == (0, "open/a  x\n")
        assert "no TLS connection" in sentence(ember("sub", "open/#", "--url", tls, environment=environment))
        assert "--ca none: there is no such file" in sentence(ember("sub", "open/#", "--url", tls, "--ca", "none"))


@pytest.mark.parametrize("secure", [False, True])
def test_over_websockets(tmp_path: Path, version: str, secure: bool) -> None:
    authority = Authority(tmp_path)
    pair = authority.sign("localhost")
    with Broker.in_thread(ws_port=0, wss_port=0, certificate=pair.certificate, key=pair.key, port=None) as broker:
        address = f"wss://localhost:{broker.wss_port}" if secure else f"ws://127.0.0.1:{broker.ws_port}"
        more: list[str | Path] = ["--mqtt", version, "-q", "2", "--ca", authority.certificate]
        payload = bytes(range(256)) * 300  # longer than the sizes of frames that fit into two bytes
        for place, size in enumerate((0, 1, 125, 126, 65_000, len(payload))):
            path = tmp_path / "payload"
            path.write_bytes(payload[:size] + b"x")
            done = ember("pub", f"a/{place}", "--file", path, "-r", "--url", f"{address}/mqtt", *more)
            assert (done.code, done.errors) == (0, "")
            done = ember("sub", f"a/{place}", "-C", "1", "-W", "60", "--raw", "--url", address, *more)
            assert (done.code, done.printed) == (0, path.read_bytes())
        if secure:
            assert "no TLS connection to wss://" in sentence(ember("sub", "a", "--url", address))


def test_the_websocket_of_the_settings_is_used_if_there_is_no_other_listener(tmp_path: Path) -> None:
    config = tmp_path / "ember.toml"
    with Broker.in_thread(ws_port=0, port=None) as broker:
        config.write_text(f"[listeners]\ntcp = false\nws_port = {broker.ws_port}\n")
        done = ember("pub", "a", "1", "-q", "1", "--config", config)
        assert (done.code, done.errors) == (0, "")


def test_in_a_terminal_messages_appear_as_they_come_until_ctrl_c(broker: Broker) -> None:
    with Terminal(["sub", "live/#", "seen", "--url", url(broker), "-q", "1"]) as terminal:
        found = threading.Event()

        def keep_publishing() -> None:
            while not found.wait(0.2):
                pub(broker, "live/1", "\x1b]0;title\x07\u202eabc", "-q", "1")

        publisher = threading.Thread(target=keep_publishing)
        publisher.start()
        try:
            terminal.read_until("live/1  \\x1b]0;title\\x07\\u202eabc\r\n")
        finally:
            found.set()
            publisher.join()
        assert "\x1b]" not in terminal.output and "\x07" not in terminal.output and "\u202e" not in terminal.output
        with wire(broker, "other") as other:
            other.publish("seen", b"too", qos=1)
        terminal.read_until("seen  too\r\n")
        terminal.press("\x03")
        assert terminal.process.wait(60) == 0
