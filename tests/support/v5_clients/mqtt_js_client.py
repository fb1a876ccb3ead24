"""MQTT.js as a `Client`: one Node process runs all clients, `mqtt_js.js` in it takes commands as JSON lines.

Owns: the package in a directory of its own, the process, and the translation of its events.
"""

import fcntl
import itertools
import json
import os
import queue
import shutil
import subprocess
import threading
from pathlib import Path
from typing import Any

from support.client_paths import TIMEOUT_S, Ways
from support.v5_clients.client import WEBSOCKET, Client, Connack, Message, Will

VERSION = "5.16.0"
INSTALL_TIMEOUT_S = 100
DRIVER = Path(__file__).parent / "mqtt_js.js"


class NotAvailable(Exception):
    """The text says in one sentence what is missing."""


def install(directory: Path) -> None:
    """MQTT.js below a directory, unless it is there: `npm` fetches it by name and version and runs nothing of it."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        raise NotAvailable("MQTT.js needs node and npm (Debian: apt install nodejs npm)")
    with (directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several test processes share the directory
        done = directory / "installed"
        if done.exists():
            return
        command = [npm, "install", "--prefix", str(directory), "--no-save", "--no-package-lock", "--ignore-scripts"]
        command += ["--no-audit", "--no-fund", f"mqtt@{VERSION}"]
        try:
            subprocess.run(command, check=True, capture_output=True, timeout=INSTALL_TIMEOUT_S)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            raise NotAvailable(f"npm cannot install MQTT.js {VERSION} here") from error
        done.touch()


class Process:
    """Sends commands to the driver and hands its events to the clients that they are for."""

    def __init__(self, directory: Path) -> None:
        self._process = subprocess.Popen(
            ["node", str(DRIVER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"NODE_PATH": str(directory / "node_modules")},
        )
        self._names = itertools.count(1)
        self._clients: dict[int, MqttJsClient] = {}
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def add(self, client: "MqttJsClient") -> int:
        name = next(self._names)
        self._clients[name] = client
        return name

    def send(self, name: int, do: str, **fields: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"client": name, "do": do, **fields}, default=_buffer) + "\n")
        self._process.stdin.flush()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            said = json.loads(line, object_hook=_from_buffer)
            self._clients[said["client"]].on_event(said["event"], said)

    def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(TIMEOUT_S)
        self._thread.join()


def _buffer(value: object) -> object:
    assert isinstance(value, bytes)
    return {"type": "Buffer", "data": list(value)}


def _from_buffer(found: dict[str, Any]) -> Any:
    return bytes(found["data"]) if found.get("type") == "Buffer" else found


def to_js(properties: dict[str, Any]) -> dict[str, Any]:
    """MQTT.js has `sessionExpiryInterval` and so on, and an object of User Properties."""
    found: dict[str, Any] = {}
    for name, value in properties.items():
        first, *others = name.split("_")
        found[first + "".join(other.title() for other in others)] = value
    if (pairs := found.pop("userProperty", None)) is not None:
        found["userProperties"] = {key: [v for k, v in pairs if k == key] for key, _ in pairs}
    if "payloadFormatIndicator" in found:
        found["payloadFormatIndicator"] = bool(found["payloadFormatIndicator"])
    return found


def from_js(properties: dict[str, Any] | None) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in (properties or {}).items():
        found["".join(f"_{c.lower()}" if c.isupper() else c for c in name)] = value
    if (pairs := found.pop("user_properties", None)) is not None:
        found["user_property"] = [
            (key, value)
            for key, values in pairs.items()
            for value in (values if isinstance(values, list) else [values])
        ]
    if (identifier := found.get("subscription_identifier")) is not None:
        found["subscription_identifier"] = identifier if isinstance(identifier, list) else [identifier]
    if "payload_format_indicator" in found:
        found["payload_format_indicator"] = int(found["payload_format_indicator"])
    return found


def _auth(code: int, method: str, data: bytes) -> dict[str, Any]:
    given = {"authenticationMethod": method, "authenticationData": data}
    return {"cmd": "auth", "reasonCode": code, "properties": given}


class MqttJsClient(Client):
    keeps_user_properties_in_order = False
    websocket_path = "/mqtt"

    def __init__(self, process: Process, ways: Ways, way: str, client_id: str) -> None:
        super().__init__(ways, way, client_id)
        self._process = process
        self._name = process.add(self)
        self._connacks: queue.Queue[dict[str, Any]] = queue.Queue()
        self._codes: queue.Queue[int] = queue.Queue()
        self._ended = threading.Event()
        self.errors: queue.Queue[int] = queue.Queue()
        """The reason codes of refused connections."""
        self.challenges: queue.Queue[tuple[int, bytes | None]] = queue.Queue()
        """The AUTH packets that came: reason code and Authentication Data."""

    def on_event(self, event: str, said: dict[str, Any]) -> None:
        if event == "message":
            given = from_js(said.get("properties"))
            self.messages.put(Message(said["topic"], said["payload"], said["qos"], said["retain"], given))
        elif event == "connack":
            self._connacks.put(said["packet"])
        elif event == "code":
            self._codes.put(said["code"])
        elif event == "error":
            self.errors.put(said["code"])
        elif event == "disconnect":
            self.server_reasons.put(said["code"])
        elif event == "auth":
            self.challenges.put((said["code"], said.get("data")))
        elif event in ("ended", "close"):
            self._ended.set()

    def send(self, do: str, **fields: object) -> None:
        self._process.send(self._name, do, **fields)

    def open(self, clean_start: bool = True, will: Will | None = None, **properties: Any) -> None:
        """CONNECT; the answer is not waited for."""
        options: dict[str, Any] = {"clientId": self.client_id, "clean": clean_start, "properties": to_js(properties)}
        if will is not None:
            given = to_js(dict(will.properties))
            options["will"] = {"topic": will.topic_name, "payload": will.payload, "qos": 1, "properties": given}
        kind, path = ("ws", self.websocket_path) if self.way == WEBSOCKET else ("mqtt", "")
        self.send("open", url=f"{kind}://{self.host}:{self.port}{path}", options=options)

    def connack(self) -> Connack:
        packet = self._connacks.get(timeout=TIMEOUT_S)
        return Connack(packet["sessionPresent"], from_js(packet.get("properties")))

    def connect(self, clean_start: bool = True, will: Will | None = None, **properties: Any) -> Connack:
        self.open(clean_start, will, **properties)
        return self.connack()

    def subscribe(self, topic_filter: str, identifier: int = 0, **options: int) -> int:
        asked: dict[str, Any] = {
            "qos": options.get("qos", 1),
            "nl": bool(options.get("no_local", 0)),
            "rap": bool(options.get("retain_as_published", 0)),
            "rh": options.get("retain_handling", 0),
        }
        if identifier:
            asked["properties"] = {"subscriptionIdentifier": identifier}
        self.send("subscribe", filter=topic_filter, options=asked)
        return self._codes.get(timeout=TIMEOUT_S)

    def unsubscribe(self, topic_filter: str) -> int:
        self.send("unsubscribe", filter=topic_filter)
        return self._codes.get(timeout=TIMEOUT_S)

    def publish(self, topic_name: str, payload: bytes, retain: bool = False, **properties: Any) -> int:
        options = {"qos": 1, "retain": retain, "properties": to_js(properties)}
        self.send("publish", topic=topic_name, payload=payload, options=options)
        return self._codes.get(timeout=TIMEOUT_S)

    def disconnect(self, reason: int = 0, **properties: Any) -> None:
        self._ended.clear()
        self.send("end", options={"reasonCode": reason, "properties": to_js(properties)})
        assert self._ended.wait(TIMEOUT_S)

    def answer_challenge(self, method: str, data: bytes) -> None:
        """The client's next AUTH of an exchange."""
        self.send("auth", packet=_auth(0x18, method, data))

    def authenticate_again(self, method: str, data: bytes) -> None:
        self.send("reauthenticate", packet=_auth(0x19, method, data))

    def vanish(self) -> None:
        self.send("vanish")

    def close(self) -> None:
        self.send("end", options={})
