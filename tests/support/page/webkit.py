"""WebKit, the engine of Safari, as WebKitGTK has it: driven by WebDriver (W3C), on a display of its own."""

import json
import os
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from support.ports import free_port

PROGRAMS = ("WebKitWebDriver", "Xvfb")
MISSING = "WebKit is not installed (Debian: apt install webkit2gtk-driver xvfb)"
BROWSERS = sorted(Path("/usr/lib").glob("*/webkit2gtk-4.*/MiniBrowser"))
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # the name that the protocol gives the identifier of an element
WAIT_S = 60


class WebKit:
    """A browser with one page."""

    def __init__(self, driver_url: str) -> None:
        self._driver_url = driver_url
        options = {"binary": str(BROWSERS[-1]), "args": ["--automation"]}
        made = self._ask("POST", "/session", {"capabilities": {"alwaysMatch": {"webkitgtk:browserOptions": options}}})
        self._session = f"/session/{made['sessionId']}"

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self._driver_url + path, data, {"Content-Type": "application/json"}, method=method
        )
        with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
            return json.loads(answer.read())["value"]

    def open(self, url: str) -> None:
        self._ask("POST", f"{self._session}/url", {"url": url})

    def run(self, script: str, *given: Any) -> Any:
        """What a script returns."""
        return self._ask("POST", f"{self._session}/execute/sync", {"script": script, "args": list(given)})

    def wait(self, expression: str) -> None:
        """Wait until an expression is true."""
        deadline_s = time.monotonic() + WAIT_S
        while not self.run(f"return Boolean({expression})"):
            assert time.monotonic() < deadline_s, f"{expression}: {self.run('return document.body.innerText')}"

    def wait_for_text(self, selector: str, text: str) -> None:
        self.wait(f"document.querySelector({json.dumps(selector)})?.textContent.includes({json.dumps(text)})")

    def click(self, selector: str) -> None:
        self._ask("POST", f"{self._session}/element/{self._element(selector)}/click", {})

    def type(self, selector: str, text: str) -> None:
        self._ask("POST", f"{self._session}/element/{self._element(selector)}/value", {"text": text})

    def press(self, *keys: str) -> None:
        """Keys for what has the focus."""
        actions = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        self._ask("POST", f"{self._session}/actions", {"actions": [{"type": "key", "id": "keys", "actions": actions}]})

    def _element(self, selector: str) -> str:
        found = self._ask("POST", f"{self._session}/element", {"using": "css selector", "value": selector})
        return str(found[ELEMENT])

    def close(self) -> None:
        with suppress(urllib.error.URLError):
            self._ask("DELETE", self._session)


def is_installed() -> bool:
    return bool(BROWSERS) and all(shutil.which(name) for name in PROGRAMS)


@contextmanager
def webkit(directory: Path) -> Iterator[WebKit]:
    """A browser, without anything of the user's own settings."""
    reading, writing = os.pipe()
    # Xvfb chooses a free display and writes its number.
    display = subprocess.Popen(
        ["Xvfb", "-displayfd", str(writing), "-screen", "0", "1280x900x24", "-nolisten", "tcp"],
        pass_fds=(writing,),
        stderr=subprocess.DEVNULL,
    )
    os.close(writing)
    with os.fdopen(reading) as named:
        number = named.readline().strip()
    port = free_port()
    places = {"DISPLAY": f":{number}", "HOME": str(directory), "XDG_RUNTIME_DIR": str(directory)}
    drawing = {"GDK_BACKEND": "x11", "LIBGL_ALWAYS_SOFTWARE": "1", "WEBKIT_DISABLE_COMPOSITING_MODE": "1"}
    driver = subprocess.Popen(
        [PROGRAMS[0], f"--port={port}"], env=os.environ | places | drawing, stderr=subprocess.DEVNULL
    )
    try:
        _wait_until_it_listens(port)
        opened = WebKit(f"http://127.0.0.1:{port}")
        try:
            yield opened
        finally:
            opened.close()
    finally:
        for process in (driver, display):
            process.terminate()
            process.wait()


def _wait_until_it_listens(port: int) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            assert time.monotonic() < deadline_s
            continue
        return
