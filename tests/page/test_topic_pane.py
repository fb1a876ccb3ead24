"""The pane of a topic: its curve, and its payload in every way it can be shown."""

import json
import re

import pytest
from playwright.sync_api import expect

from support.page.browser import Opened
from support.page.served import PageServer


def test_a_plot_keeps_the_digits_of_its_numbers(opened: Opened, server: PageServer) -> None:
    for value in (1_794_990_338, 1_794_990_341):
        server.publish("shown/counter", str(value))
    opened.go("#topics?topic=shown/counter")
    plot = opened.page.locator("#topic-pane .plot")
    expect(plot.locator(".high")).to_have_text("1,794,990,341")
    expect(plot.locator(".low")).to_have_text("1,794,990,338")
    expect(plot).to_have_attribute("aria-label", re.compile("from 1,794,990,338 to 1,794,990,341"))


def test_the_plot_of_json_is_of_a_measured_value_and_not_of_its_instant(opened: Opened, server: PageServer) -> None:
    for second in range(3):
        payload = {"ts": 1_794_990_338 + second, "sent_at": 1_794_990_338_000 + second, "flow": 2.5 * second}
        server.publish("shown/flow", json.dumps(payload))
    opened.go("#topics?topic=shown/flow")
    expect(opened.page.locator(".path select")).to_have_value("flow")
    expect(opened.page.locator("#topic-pane .plot .high")).to_have_text("5")


@pytest.mark.parametrize("width", [400, 1000, 1280, 1600])
def test_bytes_in_hexadecimal_are_not_cut(opened: Opened, server: PageServer, width: int) -> None:
    server.publish("shown/bytes", bytes(range(128, 192)))
    opened.page.set_viewport_size({"width": width, "height": 800})
    opened.go("#topics?topic=shown/bytes")
    shown = opened.page.locator(".hex pre:visible")
    expect(shown).to_have_count(1)
    expect(shown).to_contain_text("80 81 82 83")
    assert shown.evaluate("(one) => one.scrollWidth - one.clientWidth") == 0


def test_a_payload_that_was_loaded_whole_stays_so(opened: Opened, server: PageServer) -> None:
    server.publish("shown/large", "line\n" * 20_000)
    opened.go("#topics?topic=shown/large")
    button = opened.page.get_by_role("button", name="Load all of 97.7 KiB")
    button.click()
    expect(button).to_have_count(0)
    server.publish("shown/large", "another", retain=False)
    expect(opened.page.locator(".history-mark", has_text="not retained")).to_be_visible()
    expect(button).to_have_count(0)
