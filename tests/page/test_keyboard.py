"""The ten commonest tasks of an operator, with keys only: the pointer is never used."""

import re

from playwright.sync_api import expect

from support.page.browser import Opened
from support.page.served import PageServer

TABS_MAX = 60
"""How far away something may be."""
# The name of what has the focus, about as a screen reader says it.
FOCUSED = """() => {
  const one = document.activeElement;
  const label = one.labels?.[0]?.textContent ?? "";
  return (one.getAttribute("aria-label") || label || one.textContent || one.placeholder || "").trim();
}"""


class Keys:
    """A person at a keyboard."""

    def __init__(self, opened: Opened) -> None:
        self.opened = opened

    def press(self, *keys: str) -> None:
        self.opened.press(*keys)

    def type(self, text: str) -> None:
        self.opened.page.keyboard.type(text)

    def go_to(self, name: str, key: str = "Tab") -> None:
        """Press a key until what has this name is focused.

        Not beyond the end of the page: the browser's own bar follows, and a headless Firefox that was there does not
        let Enter press a button of the page any more.
        """
        passed = []
        for _ in range(TABS_MAX):
            passed.append(str(self.opened.page.evaluate(FOCUSED)))
            if passed[-1] == name:
                return
            self.press(key)
        raise AssertionError(f"{name} is not reached; on the way were {passed}")

    def choose(self, word: str, topic: str) -> None:
        """Search a topic and choose it, which shows its pane."""
        self.press("/", "ControlOrMeta+a")
        self.type(word)
        expect(self.opened.row(topic)).to_be_visible()
        self.press("ArrowDown", "Home")
        while self.opened.row(topic).get_attribute("class") != "row active":
            self.press("ArrowDown")
        self.press("Enter")
        expect(self.opened.page.locator("#topic-pane h2")).to_have_text(topic)


def test_the_ten_commonest_tasks(opened: Opened, server: PageServer) -> None:
    keys = Keys(opened)
    page = opened.page
    notice = page.locator("#notice")
    client = server.client("keyboard-1")
    server.publish("keyboard/setpoint", "20")
    opened.go()
    expect(opened.row("plant")).to_be_visible()

    # 1: find a topic and read its value
    keys.choose("keyboard", "keyboard/setpoint")
    expect(page.locator("#topic-pane .number")).to_have_text("20")

    # 2: change it
    keys.go_to("Publish …")
    keys.press("Enter")
    expect(page.get_by_label("Payload", exact=True)).to_be_focused()
    keys.go_to("Edit the retained value", "Shift+Tab")
    keys.press("Enter")
    expect(page.get_by_label("Payload", exact=True)).to_have_value("20")
    keys.press("ControlOrMeta+a")
    keys.type("25")
    keys.go_to("Publish retained")
    keys.press("Enter")
    expect(page.locator("#topic-pane .number")).to_have_text("25")

    # 3: take that back
    expect(notice.get_by_role("button", name="Undo")).to_be_visible()
    keys.go_to("Undo")
    keys.press("Enter")
    expect(page.get_by_role("dialog")).to_contain_text("25 → 20")
    keys.go_to("Set 1 topic back")
    keys.press("Enter")
    expect(page.locator("#topic-pane .number")).to_have_text("20")

    # 4: see what was before
    keys.press("/")
    keys.go_to("Instant that is shown", "Shift+Tab")
    keys.press("ArrowLeft", "ArrowLeft")
    expect(page.locator("body")).to_have_attribute("data-time", "past")
    expect(page.locator("#topic-pane .number")).to_have_text("25")

    # 5: compare that with another instant
    keys.press("c")
    expect(page.locator(".side-by-side .number")).to_have_text("25")
    keys.press("c", "l")
    expect(page.locator("body")).to_have_attribute("data-time", "live")

    # 6: clear it
    keys.go_to("Clear")
    keys.press("Enter")
    expect(page.get_by_role("dialog")).to_be_visible()
    keys.go_to("Clear")
    keys.press("Enter")
    expect(notice).to_contain_text("1 retained message cleared.")

    # 7: disconnect a client
    keys.press("2")
    client.loop_stop()  # it does not come back
    expect(page.get_by_role("button", name="Disconnect keyboard-1")).to_be_visible()
    keys.go_to("Disconnect keyboard-1")
    keys.press("Enter")
    expect(page.get_by_role("dialog")).to_be_visible()
    keys.go_to("Disconnect")
    keys.press("Enter")
    expect(notice).to_contain_text("keyboard-1 is disconnected.")

    # 8: follow a filter, and pause
    keys.press("7")
    keys.go_to("Topic filter of the tail")
    keys.press("ControlOrMeta+a")
    keys.type("keyboard/#")
    keys.press("Enter")
    expect(page.locator("#view-tail .explanation")).to_have_text("0 messages.")
    server.publish("keyboard/live", "1", retain=False)
    expect(page.locator(".tail li")).to_have_count(1)
    keys.go_to("Pause")
    keys.press("Enter")
    expect(page.locator("#view-tail .explanation")).to_contain_text("Paused")

    # 9: ask in SQL
    keys.press("9")
    keys.go_to("Query")
    keys.press("ControlOrMeta+a")
    keys.type("select 6 * 7 as answer")
    keys.press("ControlOrMeta+Enter")
    expect(page.locator("#view-sql tbody td")).to_have_text("42")

    # 10: ask what a user may do
    keys.go_to("Access", "Shift+Tab")
    keys.press("Enter")
    keys.go_to("Topic or filter")
    keys.type("plant/#")
    keys.press("Enter")
    expect(page.locator(".access-result")).to_contain_text(re.compile("Allowed|Refused"))
