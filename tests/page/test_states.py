"""Honest states: login, a server that goes and comes back, a token that is no longer accepted, nothing there."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from support.page.browser import Opened
from support.page.served import PageServer


@pytest.fixture(scope="module")
def server(directory: Path) -> Iterator[PageServer]:
    """A server on which nothing was ever published."""
    with PageServer(directory) as server:
        yield server


def test_login_by_token_and_what_a_wrong_one_gets(opened: Opened, server: PageServer) -> None:
    opened.go("#health", "")
    expect(opened.page.get_by_label("Token", exact=True).last).to_be_focused()
    opened.page.locator("input[name=token]").fill("wrong")
    opened.page.get_by_role("button", name="Log in").click()
    expect(opened.page.locator("#login-reason")).to_have_text("The server does not know this login.")
    opened.page.locator("input[name=token]").fill(server.operator)
    opened.press("Enter")
    expect(opened.page.locator("#who")).to_have_text("ann, operator")
    expect(opened.page.locator("#view-health")).to_contain_text("Everything is made durable.")
    assert opened.page.evaluate("Object.keys(localStorage).concat(document.cookie)") == [""]
    opened.page.get_by_role("button", name="Log out").click()
    expect(opened.page.get_by_role("button", name="Log in")).to_be_visible()
    assert opened.page.evaluate("sessionStorage.length") == 0


def test_nothing_is_retained_yet(opened: Opened) -> None:
    opened.go()
    expect(opened.page.locator("#tree-state")).to_contain_text("Nothing is retained yet.")
    opened.page.get_by_role("link", name="Tables").click()
    expect(opened.page.locator("#view-tables")).to_contain_text("No pipeline has written tables yet.")
    opened.page.get_by_role("link", name="Share groups").click()
    expect(opened.page.locator("#view-groups")).to_contain_text("There is no share group.")


def test_a_server_that_is_killed_and_comes_back(opened: Opened, server: PageServer) -> None:
    server.publish("kept/value", "before")
    opened.go("#topics?topic=kept/value")
    expect(opened.value("kept/value")).to_have_text("before")
    server.kill()
    expect(opened.page.locator("#connection")).to_contain_text("Connection lost.")
    expect(opened.page.locator("#connection")).to_contain_text(re.compile(r"What is shown is [1-9]\d* s old\."))
    expect(opened.page.locator("#moment-state")).to_have_text("Not live")
    expect(opened.value("kept/value")).to_have_text("before")
    server.start()
    expect(opened.page.locator("#connection")).to_be_empty()
    expect(opened.page.locator("#moment-state")).to_have_text("Live")
    server.publish("kept/value", "after")
    expect(opened.value("kept/value")).to_have_text("after")


def test_an_expired_token_leads_to_the_login_and_back_to_the_same_place(opened: Opened, server: PageServer) -> None:
    server.publish("kept/value", "5")
    opened.go("#topics?topic=kept/value")
    expect(opened.page.locator("#topic-pane .number")).to_have_text("5")
    server.replace_tokens()
    expect(opened.page.locator("#login-reason")).to_have_text("The login is no longer accepted. Log in again.")
    opened.page.locator("input[name=token]").fill(server.operator)
    with opened.page.expect_navigation():  # the page loads again; one that is closed in the middle of it may hang
        opened.press("Enter")
    expect(opened.page.locator("#topic-pane .number")).to_have_text("5")
    expect(opened.page.locator("#login")).to_be_hidden()


def test_a_topic_without_a_message_says_so(opened: Opened) -> None:
    opened.go("#topics?topic=never/published")
    expect(opened.page.locator("#topic-pane")).to_contain_text("Nothing is retained on this topic.")
    expect(opened.page.locator("#topic-pane")).to_contain_text("The log has no message of this topic up to here.")
