"""The page in WebKit, the engine of Safari: from the login to an undo, and every view once."""

from pathlib import Path

import pytest

from support.page.served import PageServer
from support.page.webkit import MISSING, is_installed, webkit

pytestmark = [pytest.mark.long, pytest.mark.skipif(not is_installed(), reason=MISSING)]

LEFT = "\ue012"  # the arrow, as WebDriver names it
VIEWS = ("topics", "clients", "sessions", "groups", "tables", "health", "tail", "chart", "sql", "access")


def test_the_page_from_the_login_to_an_undo(server: PageServer, tmp_path: Path) -> None:
    topic = "webkit/value"
    server.publish(topic, "1")
    with webkit(tmp_path) as page:
        page.open(f"{server.url}#topics?topic={topic}")
        page.wait("document.querySelector('#login:not([hidden]) [name=token]')")
        page.run("window.wrong = []; addEventListener('error', (event) => wrong.push(event.message));")
        page.run("addEventListener('unhandledrejection', (event) => wrong.push(String(event.reason)));")
        page.type("#login [name=token]", server.operator)
        page.click("#login button[type=submit]")
        page.wait_for_text("#topic-pane .number", "1")
        assert "AppleWebKit" in page.run("return navigator.userAgent")
        assert "Chrome" not in page.run("return navigator.userAgent")

        server.publish(topic, "2")  # live, through the worker that all pages share
        page.wait_for_text("#topic-pane .number", "2")
        page.wait_for_text(f'#tree .row:has(.name[title="{topic}"]) .value', "2")

        page.run("document.getElementById('handle-at').focus()")
        page.press(LEFT, LEFT)  # two changes back
        page.wait("document.body.dataset.time === 'past'")
        page.wait_for_text("#topic-pane .number", "1")
        page.press("c")
        page.wait("document.querySelectorAll('.side-by-side .side').length === 2")
        page.press("c", "l")
        page.wait("document.body.dataset.time === 'live'")

        page.click(".topic-head .only-live")
        page.type("form.publish [name=payload]", "3")
        page.click("form.publish button[type=submit]")
        page.wait_for_text("#topic-pane .number", "3")
        page.click("#notice button")
        page.wait_for_text("dialog .changes", "3 → 2")
        page.click("dialog button.danger")
        page.wait_for_text("#topic-pane .number", "2")

        for view in VIEWS:
            page.run("location.hash = arguments[0]", view)
            page.wait(f"document.querySelector('#view-{view}:not([hidden])')")
            assert page.run("return document.documentElement.scrollWidth <= innerWidth"), view
        page.run("location.hash = 'sql'")
        page.run("document.querySelector('#view-sql textarea').value = ''")
        page.type("#view-sql textarea", "select 6 * 7 as answer")
        page.click("#view-sql button.primary")
        page.wait_for_text("#view-sql tbody", "42")
        assert page.run("return wrong") == []
    assert server.ask(f"retained/message?topic={topic}")["payload"] == "2"
