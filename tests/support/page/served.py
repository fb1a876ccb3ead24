"""A real server with the HTTP interface on a port, and tokens to it."""

import json
import signal
import urllib.request
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion

from embermq.access.tokens import write_token
from support.ports import free_port
from support.server_process import ServerProcess


class PageServer(ServerProcess):
    """Listens on the same port when it is started again."""

    def __init__(self, directory: Path, settings: dict[str, str] | None = None) -> None:
        self.tokens = directory / "tokens"
        self.operator = write_token(self.tokens, "ann", "operator")
        self.viewer = write_token(self.tokens, "vera", "viewer")
        given = {"http.port": str(free_port()), "http.token_file": str(self.tokens), **(settings or {})}
        super().__init__(directory / "data", directory / "log.txt", given)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.http_port}/"

    def replace_tokens(self) -> None:
        """A new operator's token; those before are not accepted any more."""
        self.tokens.unlink()
        self.operator = write_token(self.tokens, "ann", "operator")
        assert self.process is not None
        self.process.send_signal(signal.SIGHUP)

    def ask(self, path: str, body: dict[str, Any] | None = None) -> Any:
        headers = {"Authorization": f"Bearer {self.operator}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}api/v1/{path}", data, headers)
        with urllib.request.urlopen(request, timeout=60) as response:
            return json.loads(response.read())

    def client(self, client_id: str, *, clean: bool = True) -> paho.Client:
        """A connected MQTT client with a thread of its own."""
        client = paho.Client(CallbackAPIVersion.VERSION2, client_id, clean_session=clean)
        client.connect("127.0.0.1", self.port)
        client.loop_start()
        return client

    def publish(self, topic: str, payload: str | bytes, *, retain: bool = True) -> None:
        """Published, and acknowledged by the server."""
        client = self.client("publisher")
        client.publish(topic, payload, 1, retain).wait_for_publish(60)
        client.disconnect()
        client.loop_stop()
