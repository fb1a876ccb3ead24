"""Many topics, and many pages at once."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, expect

from embermq.protocol.packets import Publish
from support.page.browser import Opened
from support.page.plant import MINUTE_US, open_past
from support.page.served import PageServer

pytestmark = pytest.mark.long

TOPICS = 100_000
PAGES = 20
WIDE = 3_000


@pytest.fixture(scope="module")
def server(directory: Path) -> Iterator[PageServer]:
    """100,000 topics, of which each was published twice, and one branch of thousands."""
    engine = open_past(directory / "data", time.time_ns() // 1000 - 20 * MINUTE_US)
    for payload in (b"then", b"now"):
        engine.turn(9 * MINUTE_US)
        for number in range(TOPICS):
            name = f"site/{number // 1000}/sensor-{number % 1000}" if number >= WIDE else f"wide/{number:05}"
            engine.store.append_publish(Publish(name, payload, 1, True), "writer")
            if number % 5_000 == 0:
                engine.commit()
        engine.commit()
    engine.store.close()
    with PageServer(directory) as server:
        yield server


@pytest.mark.timeout(240)
def test_100_000_topics_and_only_the_visible_rows_exist(opened: Opened) -> None:
    opened.go("#topics?topic=wide")
    expect(opened.row("site").locator(".count")).to_have_text("97,000")
    expect(opened.row("wide").locator(".count")).to_have_text("3,000")
    opened.open_branches("wide")
    expect(opened.value("wide/00000")).to_have_text("now")
    tree = opened.page.locator("#tree")
    for _ in range(40):  # it loads on as one scrolls
        tree.evaluate("tree => { tree.scrollTop = tree.scrollHeight }")
        if opened.row("wide/02999").count():
            break
        opened.page.wait_for_timeout(250)
    expect(opened.row("wide/02999")).to_be_visible()
    assert opened.page.locator("#tree .row").count() < 60
    tree.evaluate("tree => { tree.scrollTop = 0 }")
    slider = opened.page.locator("#handle-at")
    slider.focus()
    opened.press("PageDown", "PageDown", "PageDown", "PageDown", "PageDown")
    expect(opened.value("wide/00000")).to_have_text("then")
    opened.press("l")
    expect(opened.value("wide/00000")).to_have_text("now")


@pytest.mark.timeout(240)
def test_twenty_pages_of_one_browser_get_every_change(context: BrowserContext, server: PageServer) -> None:
    pages = [Opened(context.new_page(), server) for _ in range(PAGES)]
    for opened in pages:
        opened.go("#topics?topic=wide/00000")
    for opened in pages:
        expect(opened.page.locator("#topic-pane .payload")).to_be_visible()
    server.publish("wide/00000", "for everybody")
    for opened in pages:
        expect(opened.page.locator("#topic-pane .payload")).to_have_text("for everybody")
        opened.page.close()
        assert opened.wrong == []
