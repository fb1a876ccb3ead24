"""Pictures, taken when EMBERMQ_SCREENSHOTS is set (`make screenshots`).

Those that README and docs show go to docs/images, those of every view and state to build/screenshots.
"""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Page, ViewportSize, expect

from support.page.browser import Opened, driver, started
from support.page.plant import write_past
from support.page.scenes import SCENES, instant
from support.page.served import PageServer

pytestmark = pytest.mark.skipif("EMBERMQ_SCREENSHOTS" not in os.environ, reason="pictures are not asked for")

ROOT = Path(__file__).parent.parent.parent
IMAGES = ROOT / "docs" / "images"
SEEN = ROOT / "build" / "screenshots"
WIDTHS = (400, 768, 1280, 1920)
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
PAST_MINUTES = 360
BYTES_MAX = 200_000
MARKS = 30
"""There are more when those of the whole range have come."""
SHOWN = {
    "tree-light-1280",
    "past-light-1280",
    "past-dark-1280",
    "past-dark-400",
    "compare-light-1280",
    "compare-light-400",
}
"""The pictures that README and docs show; the others are not written."""
SIZES: dict[int, ViewportSize] = {1280: {"width": 1280, "height": 800}, 400: {"width": 400, "height": 800}}


@pytest.fixture(scope="module")
def busy_plant(directory: Path) -> Iterator[PageServer]:
    """A plant with some hours of history, and its clients."""
    write_past(directory / "data", time.time_ns() // 1000 - 1_000_000, PAST_MINUTES)
    with PageServer(directory) as server:
        clients = [server.client(f"{site}-{name}") for site in ("hamburg", "lyon") for name in ("scada", "mes", "hmi")]
        yield server
        for client in clients:
            client.disconnect()
            client.loop_stop()


def taken(page: Page, name: str) -> None:
    if name not in SHOWN:
        return
    IMAGES.mkdir(exist_ok=True)
    path = IMAGES / f"{name}.png"
    page.screenshot(path=path, animations="disabled")
    assert path.stat().st_size < BYTES_MAX


@pytest.mark.parametrize("width", SIZES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pictures(busy_plant: PageServer, tmp_path: Path, width: int, scheme: Literal["light", "dark"]) -> None:
    press = "plant/hamburg/line-2/press"
    with (
        driver() as playwright,
        started(playwright, tmp_path, viewport=SIZES[width], color_scheme=scheme, reduced_motion="reduce") as context,
    ):
        opened = Opened(context.new_page(), busy_plant)
        opened.go("#topics" if width == 400 else f"#topics?topic={press}/temperature")
        expect(opened.page.locator("#rates path")).to_have_count(1)
        expect(opened.row("plant")).to_be_visible()
        if width != 400:
            expect(opened.page.locator("#topic-pane .plot")).to_be_visible()
        taken(opened.page, f"tree-{scheme}-{width}")
        opened.page.goto(f"{busy_plant.url}?past#topics?topic={press}/temperature&at={instant(60)}")
        expect(opened.page.locator("#topic-pane .plot")).to_be_visible()
        expect(opened.page.locator("#marks i").nth(MARKS)).to_be_visible()
        taken(opened.page, f"past-{scheme}-{width}")
        opened.page.goto(f"{busy_plant.url}?compared#topics?topic={press}/status&at={instant(60)}&from={instant(150)}")
        expect(opened.page.locator(".side-by-side .payload")).to_have_count(2)
        expect(opened.page.locator("#marks i").nth(MARKS)).to_be_visible()
        taken(opened.page, f"compare-{scheme}-{width}")
        assert opened.wrong == []


@pytest.mark.usefixtures("scada")
@pytest.mark.parametrize("name", SCENES)
def test_every_view_and_state(opened: Opened, name: str) -> None:
    """To be looked at, and compared with the pictures of another revision: `index.html` shows them all."""
    opened.page.emulate_media(reduced_motion="reduce")
    SCENES[name](opened)
    SEEN.mkdir(parents=True, exist_ok=True)
    for scheme in SCHEMES:
        opened.page.emulate_media(color_scheme=scheme)
        for width in WIDTHS:
            opened.page.set_viewport_size({"width": width, "height": 800})
            opened.page.screenshot(path=SEEN / f"{name}-{width}-{scheme}.png", animations="disabled")
    pictures = "".join(f'<h2>{path.stem}</h2><img src="{path.name}">' for path in sorted(SEEN.glob("*.png")))
    (SEEN / "index.html").write_text(f"<!doctype html><title>Every view and state</title>{pictures}")
