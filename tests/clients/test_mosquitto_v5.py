"""mosquitto_pub, mosquitto_sub and mosquitto_rr with `-V 5`: the clients that people have at hand in a shell."""

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from support.client_paths import TIMEOUT_S, Ways
from support.v5_clients.paho_client import PahoClient

pytestmark = pytest.mark.skipif(
    shutil.which("mosquitto_rr") is None, reason="the clients of Mosquitto are not installed (mosquitto-clients)"
)

SHARED_MESSAGES = 20

Run = Callable[..., str]


@pytest.fixture
def run(ways: Ways) -> Run:
    """Runs one of the commands as an MQTT 5 client to its end; what it printed."""

    def whole(command: str, *arguments: str) -> str:
        ended = subprocess.run(
            [command, "-h", ways.host, "-p", str(ways.tcp), "-V", "5", *arguments],
            capture_output=True,
            text=True,
            timeout=4 * TIMEOUT_S,
        )
        assert (ended.returncode, ended.stderr) == (0, ""), ended
        return ended.stdout

    return whole


class Listening:
    """A mosquitto_sub that has subscribed."""

    def __init__(self, ways: Ways, *arguments: str) -> None:
        # It tells of its SUBACK with -d; without a terminal it would keep the line to itself.
        command = ["stdbuf", "-oL", "mosquitto_sub", "-h", ways.host, "-p", str(ways.tcp), "-V", "5", "-q", "1", "-d"]
        self.process = subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, text=True)
        self.line_with("Subscribed (mid")

    def line_with(self, text: str) -> str:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if text in line:
                return line
        raise AssertionError(f"mosquitto_sub ended without {text!r}")

    def stop(self) -> None:
        """As a crash of the client."""
        self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


Listen = Callable[..., Listening]


@pytest.fixture
def listen(ways: Ways) -> Iterator[Listen]:
    with ExitStack() as stack:

        def make(*arguments: str) -> Listening:
            listening = Listening(ways, *arguments)
            stack.callback(listening.stop)
            return listening

        yield make


@pytest.fixture
def paho(ways: Ways, space: str) -> Iterator[PahoClient]:
    client = PahoClient(ways, "tcp", f"{space}paho")
    client.connect()
    yield client
    client.close()


def test_properties_through_the_queue_of_a_session(run: Run, space: str) -> None:
    session = ["-i", space, "-c", "-x", "60", "-q", "1", "-t", f"{space}/#"]
    run("mosquitto_sub", *session, "-E", "-D", "subscribe", "subscription-identifier", "7")
    said = [
        "payload-format-indicator 1",
        "message-expiry-interval 600",
        "content-type text/plain",
        f"response-topic {space}/answers",
        "correlation-data xy",
        "user-property k 1",
        "user-property a b",
        "user-property k 2",
    ]
    properties = [word for line in said for word in ("-D", "publish", *line.split())]
    run("mosquitto_pub", "-q", "1", "-t", f"{space}/a", "-m", "hi", *properties)
    line = run("mosquitto_sub", *session, "-C", "1", "-F", "%j")
    found = json.loads(line, object_pairs_hook=lambda pairs: pairs if pairs[0][0] == "k" else dict(pairs))
    assert (found["topic"], found["payload"], found["qos"]) == (f"{space}/a", "hi", 1)
    assert 590 <= found["properties"].pop("message-expiry-interval") <= 600
    assert found["properties"] == {
        "subscription-identifier": 7,
        "payload-format-indicator": 1,
        "content-type": "text/plain",
        "response-topic": f"{space}/answers",
        "correlation-data": "xy",
        "user-properties": [("k", "1"), ("a", "b"), ("k", "2")],
    }


def test_a_topic_alias_of_mosquitto_pub(run: Run, paho: PahoClient, space: str) -> None:
    paho.subscribe(f"{space}/#")
    alias = ["-D", "publish", "topic-alias", "3", "--repeat", "3", "--repeat-delay", "0.01"]
    run("mosquitto_pub", "-q", "1", "-t", f"{space}/a", "-m", "hi", *alias)
    assert [paho.receive().topic_name for _ in range(3)] == [f"{space}/a"] * 3


def test_mosquitto_rr_gets_the_response_to_its_request(ways: Ways, paho: PahoClient, space: str) -> None:
    paho.subscribe(f"{space}/requests")
    server = ["-h", ways.host, "-p", str(ways.tcp), "-V", "5"]
    request_options = ["-q", "1", "-t", f"{space}/requests", "-e", f"{space}/answers", "-m", "what?", "-W", "60"]
    shown = ["-D", "publish", "correlation-data", "n1", "-F", "%t %p %D"]
    asking = subprocess.Popen(["mosquitto_rr", *server, *request_options, *shown], stdout=subprocess.PIPE, text=True)
    request = paho.receive()
    assert (request.payload, request.properties["response_topic"]) == (b"what?", f"{space}/answers")
    assert request.properties["correlation_data"] == b"n1"
    paho.publish(request.properties["response_topic"], b"that", correlation_data=b"n1")
    answer, _ = asking.communicate(timeout=4 * TIMEOUT_S)
    assert (asking.returncode, answer) == (0, f"{space}/answers that n1\n")


def test_a_share_group_of_mosquitto_sub(run: Run, listen: Listen, paho: PahoClient, space: str) -> None:
    half = SHARED_MESSAGES // 2
    members = [listen("-t", f"$share/{space}/{space}/#", "-C", str(half), "-F", "got %p") for _ in range(2)]
    for number in range(SHARED_MESSAGES):
        paho.publish(f"{space}/a", b"%d" % number)
    found: list[int] = []
    for member in members:
        printed, _ = member.process.communicate(timeout=TIMEOUT_S)
        found += [int(line.split()[1]) for line in printed.splitlines() if line.startswith("got ")]
    assert sorted(found) == list(range(SHARED_MESSAGES))


def test_expiry_in_the_queue_and_a_will_after_its_delay(run: Run, listen: Listen, paho: PahoClient, space: str) -> None:
    session = ["-i", space, "-c", "-x", "60", "-q", "1", "-t", f"{space}/#"]
    run("mosquitto_sub", *session, "-E")
    paho.subscribe(f"{space}/will")
    for payload, interval in (("gone", "1"), ("there", "600")):
        expiry = ["-D", "publish", "message-expiry-interval", interval]
        run("mosquitto_pub", "-q", "1", "-t", f"{space}/a", "-m", payload, *expiry)
    will = ["--will-topic", f"{space}/will", "--will-payload", "left", "--will-qos", "1"]
    delay = ["-D", "will", "will-delay-interval", "1"]
    device = listen("-i", f"{space}d", "-c", "-x", "60", "-t", f"{space}d/#", *will, *delay)
    device.stop()
    assert paho.receive().payload == b"left"
    assert run("mosquitto_sub", *session, "-C", "2", "-F", "%p") == "there\nleft\n"
