"""The bridges on the page: a part of Health that a server without bridges does not have."""

import json
import re
import socket
from pathlib import Path

from playwright.sync_api import BrowserContext, expect

from support.page.browser import Opened
from support.page.served import PageServer


def test_a_bridge_is_shown_with_its_state_its_lag_and_what_went_wrong(context: BrowserContext, tmp_path: Path) -> None:
    with socket.socket() as nobody:  # bound, so that nobody else listens there
        nobody.bind(("127.0.0.1", 0))
        url = f"mqtt://127.0.0.1:{nobody.getsockname()[1]}"
        bridge = {"name": "office", "url": url, "out": [{"filter": "plant/#"}]}
        with PageServer(tmp_path, {"bridges.each": json.dumps([bridge])}) as server:
            server.publish("plant/1", "on")
            opened = Opened(context.new_page(), server)
            opened.go("#health")
            row = opened.page.locator(".bridges tbody tr")
            expect(row).to_have_count(1)
            expect(row.locator("[data-name=Bridge]")).to_have_text(f"office to {url}")
            expect(row.locator("[data-name=State]")).to_have_text(re.compile("waiting for|connecting for"))
            expect(row.locator("[data-name=Lag]")).to_have_text(re.compile("^[1-9]"))
            expect(row.locator("[data-name='Last error']")).to_have_text(f"cannot connect to {url}: Connection refused")
            opened.page.close()
            assert opened.wrong == []


def test_a_server_without_bridges_does_not_show_the_table(opened: Opened) -> None:
    opened.go("#health")
    expect(opened.page.locator("#view-health .alerts")).to_be_visible()
    expect(opened.page.locator(".bridges")).to_have_count(0)
