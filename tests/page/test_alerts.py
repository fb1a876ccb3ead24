"""Alerts on the page: what each rule is, and a word about those that fire on every view."""

import json

from playwright.sync_api import expect

from support.page.browser import Opened
from support.page.scenes import ALERTS
from support.page.served import PageServer


def test_what_fires_is_said_on_every_view_and_shown_with_the_others(opened: Opened, server: PageServer) -> None:
    opened.go("#topics")
    said = opened.page.get_by_role("status").get_by_role("link", name="1 alert")
    expect(said).to_be_visible()
    said.click()
    rows = opened.page.locator(".alerts tbody tr")
    expect(rows).to_have_count(3)
    expect(rows.nth(0)).to_contain_text(ALERTS[0]["name"])
    expect(rows.nth(0).locator("td").nth(2)).to_have_text("firing")
    expect(rows.nth(0)).to_contain_text("webhook at 127.0.0.1")
    expect(rows.nth(1)).to_contain_text("there is no metric embermq_disk_fre_bytes")
    expect(rows.nth(2).locator("td").nth(2)).to_have_text("ok")
    assert "secret" not in opened.page.content()
    told = json.loads(server.ask(f"retained/message?topic={ALERTS[0]['topic']}")["payload"])
    assert (told["state"], told["when"]) == ("firing", ALERTS[0]["when"])
    assert "secret" not in json.dumps(server.ask("settings"))


def test_alerts_are_of_now_and_said_in_the_past_too(opened: Opened) -> None:
    opened.go("#topics?at=2021-03-04T05:06:07Z")
    expect(opened.page.locator("#alerts-firing")).to_have_text("1 alert")
