"""A user with rights on some topics: the page shows these, and says in a sentence what is not shown."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from embermq.access.passwords import write_password
from support.page.browser import Opened
from support.page.served import PageServer


@pytest.fixture(scope="module")
def server(directory: Path) -> Iterator[PageServer]:
    write_password(directory / "passwords", "olive", b"secret")
    (directory / "acl").write_text("anonymous\nread,write,retain #\n\nuser olive\nread,write,retain a/#\n")
    settings = {
        "access.password_file": str(directory / "passwords"),
        "access.acl_file": str(directory / "acl"),
        "access.allow_anonymous": "true",
        "http.operators": '["olive"]',
    }
    with PageServer(directory, settings) as server:
        yield server


def test_a_user_with_rights_on_some_topics(opened: Opened, server: PageServer) -> None:
    for topic, payload in (("a/x", "1"), ("b/secret", "2")):
        server.publish(topic, payload)
    refused: list[str] = []
    page = opened.page
    page.on("response", lambda response: refused.append(response.url) if response.status >= 400 else None)
    opened.go("", "")
    page.get_by_label("User and password").check()
    page.locator("input[name=user]").fill("olive")
    page.locator("input[name=password]").fill("secret")
    page.get_by_role("button", name="Log in").click()
    expect(page.locator("#who")).to_have_text("olive, operator")
    expect(opened.value("a/x")).to_have_text("1")
    expect(page.locator("#rates-hint")).to_have_text("rates are shown to users who may see everything")
    for name in ("Clients", "Sessions", "Share groups", "Tables", "Health"):
        page.get_by_role("link", name=name).click()
        expect(page.locator("main")).to_contain_text("This is shown to users who may see everything")
    page.get_by_role("link", name="Topics").click()
    server.publish("b/secret", "3")
    server.publish("a/x", "4")
    expect(opened.value("a/x")).to_have_text("4")
    expect(opened.row("b")).to_have_count(0)
    assert "secret" not in page.content()
    page.wait_for_timeout(6_000)  # longer than what is loaded again and again takes to come round
    assert len(refused) == 1 and "/messages/rate" in refused[0]
