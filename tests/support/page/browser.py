"""A headless browser, and what a person does in it: Chromium, or Firefox with EMBERMQ_BROWSER=firefox."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import BrowserContext, Dialog, Locator, Page, Playwright, expect, sync_playwright

from support.page.served import PageServer

ARGUMENTS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
BROWSER = os.environ.get("EMBERMQ_BROWSER", "chromium")
NAMES = {"chromium": ("chromium", "chromium-browser", "google-chrome"), "firefox": ("firefox-esr", "firefox")}[BROWSER]
MISSING = f"{BROWSER} is not installed (Debian: apt install {NAMES[0]})"
UNKNOWN_COMMANDS = Path(__file__).parent / "firefox_unknown_commands.cjs"
STORED = "embermq-authorization"

expect.set_options(timeout=60_000)


def browser_path() -> str | None:
    return next((found for name in NAMES if (found := shutil.which(name)) is not None), None)


@contextmanager
def driver() -> Iterator[Playwright]:
    """Playwright; for the Firefox of a distribution without a command that only newer ones know."""
    before = os.environ.get("NODE_OPTIONS")
    if BROWSER == "firefox":
        os.environ["NODE_OPTIONS"] = f"--require {UNKNOWN_COMMANDS}"
    try:
        with sync_playwright() as playwright:
            yield playwright
    finally:
        os.environ.pop("NODE_OPTIONS", None)
        if before is not None:
            os.environ["NODE_OPTIONS"] = before


@contextmanager
def started(playwright: Playwright, directory: Path, **options: Any) -> Iterator[BrowserContext]:
    """A browser with a new profile. `options` are those of a context, such as its size and colour scheme."""
    path = browser_path()
    assert path is not None, MISSING
    kind, arguments, channel = (
        (playwright.firefox, (), "moz-firefox") if BROWSER == "firefox" else (playwright.chromium, ARGUMENTS, None)
    )
    context = kind.launch_persistent_context(
        directory,
        executable_path=path,
        channel=channel,
        args=list(arguments),
        headless=True,
        env={**os.environ, "TZ": "UTC"},
        timezone_id="UTC",
        **{"viewport": {"width": 1280, "height": 800}, **options},
    )
    try:
        yield context
    finally:
        context.close()


class Opened:
    """A page that somebody has opened, and everything that went wrong on it."""

    def __init__(self, page: Page, server: PageServer) -> None:
        self.page = page
        self.server = server
        self.wrong: list[str] = []
        page.set_default_timeout(120_000)
        page.on("pageerror", lambda error: self.wrong.append(f"error: {error}"))
        page.on("dialog", self._asked)
        page.on("console", lambda message: self._said(message.type, message.text))

    def _asked(self, dialog: Dialog) -> None:
        self.wrong.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _said(self, kind: str, text: str) -> None:
        # The browser reports every refused request as an error; tests that cause one look at the page.
        if kind == "error" and not text.startswith("Failed to load resource"):
            self.wrong.append(text)

    def go(self, fragment: str = "", token: str | None = None) -> None:
        """Open the page, logged in as the operator, or with another token; an empty one is no login."""
        given = self.server.operator if token is None else token
        if given:
            self.page.add_init_script(  # a page that is not of the server may have no storage
                f"if (location.href.startsWith('{self.server.url}'))"
                f" sessionStorage.setItem('{STORED}', sessionStorage.getItem('{STORED}') ?? 'Bearer {given}')"
            )
        self.page.goto(f"{self.server.url}{fragment}")

    def row(self, topic: str) -> Locator:
        return self.page.locator("#tree .row").filter(has=self.page.locator(f".name[title={quoted(topic)}]"))

    def open_branches(self, *topics: str) -> None:
        for topic in topics:
            self.row(topic).locator(".twist").click()
            expect(self.row(topic)).to_have_attribute("aria-expanded", "true")

    def wait_until_live(self) -> None:
        """Until live messages come: what is not retained is shown of no others."""
        while not self.row("live-now").count():
            self.server.publish("live-now", "", retain=False)
            self.page.evaluate("() => new Promise(requestAnimationFrame)")

    def value(self, topic: str) -> Locator:
        return self.row(topic).locator(".value")

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)


def quoted(text: str) -> str:
    """A string of CSS."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
