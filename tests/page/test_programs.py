"""The views of the whole server that an operator asks: SQL, access, charts, a live tail, and one client."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from support.page.browser import Opened
from support.page.served import PageServer


@pytest.fixture(scope="module")
def server(directory: Path) -> Iterator[PageServer]:
    with PageServer(directory) as server:
        yield server


def test_a_tail_shows_what_comes_and_waits_while_it_is_paused(opened: Opened, server: PageServer) -> None:
    opened.go("#tail", server.viewer)
    opened.page.get_by_label("Topic filter of the tail").fill("tailed/#")
    with opened.page.expect_response(lambda response: "tailed" in response.url):
        opened.page.get_by_role("button", name="Follow").click()
    rows = opened.page.locator(".tail li")
    server.publish("tailed/a", "1", retain=False)
    expect(rows).to_have_count(1)
    expect(rows.first).to_contain_text("tailed/a")
    opened.page.get_by_role("button", name="Pause").click()
    server.publish("tailed/a", "2")
    expect(opened.page.locator("#view-tail .explanation")).to_have_text("2 messages. Paused, 1 new message since.")
    expect(rows).to_have_count(1)
    opened.page.get_by_role("button", name="Go on").click()
    expect(rows).to_have_count(2)
    expect(rows.first.locator(".tail-value")).to_have_text("2")
    rows.first.get_by_role("button").click()
    expect(opened.page.locator("#topic-pane h2")).to_have_text("tailed/a")


def test_a_tail_says_that_its_filter_is_not_followed_yet(opened: Opened, server: PageServer) -> None:
    opened.go("#tail", server.viewer)
    summary = opened.page.locator("#view-tail .explanation")
    expect(summary).to_have_text("0 messages.")
    opened.page.route("**/messages/tail?*", lambda route: None)  # no answer
    opened.page.get_by_role("button", name="Follow").click()
    assert summary.inner_text() == "Waiting for the server …"


def test_several_series_are_in_one_chart_and_in_the_address(opened: Opened, server: PageServer) -> None:
    for number in range(5):
        server.publish("charted/number", str(20 + number))
        server.publish("charted/json", json.dumps({"motor": {"current": number}}))
    opened.go("#topics?topic=charted/number")
    opened.page.get_by_role("button", name="Add to the chart").click()
    expect(opened.page.locator("#view-chart .curve")).to_have_count(1)
    opened.page.get_by_label("Topic", exact=True).last.fill("charted/json")
    opened.page.get_by_label("Field of JSON").fill("motor.current")
    opened.page.get_by_role("button", name="Add", exact=True).click()
    expect(opened.page.locator("#view-chart .curve")).to_have_count(2)
    expect(opened.page.locator("#view-chart .explanation")).to_contain_text("10 values")
    assert "charted" in opened.page.evaluate("location.hash")
    opened.page.reload()
    expect(opened.page.locator("#view-chart .curve")).to_have_count(2)
    opened.page.get_by_label("each on a scale of its own").check()
    expect(opened.page.locator("#view-chart .scale .high")).to_have_text("100 %")
    before = opened.page.locator("#view-chart .explanation").text_content()
    opened.page.get_by_role("button", name="Zoom in").last.click()
    expect(opened.page.locator("#view-chart .explanation")).not_to_have_text(before or "")
    opened.page.get_by_role("button", name="Remove charted/json: motor.current").click()
    expect(opened.page.locator("#view-chart .chips li")).to_have_count(1)


def test_a_query_shows_its_rows_and_saves_them(opened: Opened, server: PageServer, tmp_path: Path) -> None:
    for number in range(3):
        server.publish("asked/<b>", str(20 + number))
    opened.go("#sql")
    query = opened.page.get_by_label("Query")
    query.fill("select topic, decode(payload) as value, \"offset\" from messages where topic like 'asked/%'")
    query.press("Control+Enter")
    expect(opened.page.locator("#view-sql td").first).to_have_text("asked/<b>")
    expect(opened.page.locator("#view-sql .explanation")).to_contain_text("3 rows, in ")
    with opened.page.expect_download() as download:
        opened.page.locator("#view-sql").get_by_role("button", name="CSV").click()
    download.value.save_as(tmp_path / "rows.csv")
    assert (tmp_path / "rows.csv").read_text().startswith("topic,value,offset\nasked/<b>,20,")
    opened.page.get_by_label("Example").select_option(label="Messages a minute")
    expect(query).to_have_value(re.compile("time_bucket"))
    query.fill("select timestamptz '2026-01-01' + to_minutes(range) as t, range as n from range(5)")
    opened.page.get_by_role("button", name="Run", exact=True).click()
    expect(opened.page.locator("#view-sql .curve")).to_have_count(1)
    query.fill("select topc from messages")
    opened.page.get_by_role("button", name="Run", exact=True).click()
    expect(opened.page.locator("#view-sql .failure")).to_contain_text("Referenced column")
    query.fill("select count(*) from range(10000000000000) where sqrt(range) < 0")
    opened.page.get_by_role("button", name="Run", exact=True).click()
    opened.page.get_by_role("button", name="Cancel").click()
    expect(opened.page.locator("#view-sql .explanation")).to_have_text("Cancelled.")


def test_access_is_simulated(opened: Opened) -> None:
    opened.go("#access")
    opened.page.get_by_label("Topic or filter").fill("plant/#")
    opened.page.get_by_role("button", name="Check").click()
    result = opened.page.locator(".access-result")
    expect(result).to_have_text("Allowedthere is no access list: every client may do everything")
    opened.page.get_by_label("May").select_option("write")
    opened.page.get_by_role("button", name="Check").click()
    expect(result).to_contain_text("expected a topic name, without wildcards")


def test_a_viewer_is_told_that_sql_and_access_are_for_operators(opened: Opened, server: PageServer) -> None:
    opened.go("#sql", server.viewer)
    expect(opened.page.locator("#view-sql")).to_contain_text("This takes the role operator.")


def test_a_client_is_shown_with_its_session_and_subscriptions(opened: Opened, server: PageServer) -> None:
    client = server.client("shown-1", clean=False)
    client.subscribe("shown/#", 1)
    while not server.ask("subscriptions?client_id=shown-1")["items"]:
        pass
    opened.go("#clients")
    opened.page.get_by_role("button", name="shown-1", exact=True).click()
    dialog = opened.page.get_by_role("dialog", name="shown-1")
    expect(dialog).to_contain_text("MQTT 3.1.1")
    expect(dialog).to_contain_text("the window is")
    expect(dialog.locator(".filters li")).to_have_text(["shown/#QoS 1"])
    server.publish("shown/1", "x")
    expect(dialog).to_contain_text("0 from it, 1 to it")
    expect(dialog).to_contain_text(re.compile(r"rates now[\d.]+ in, [\d.]+ out per second"))
    dialog.get_by_role("button", name="Close").click()
    client.disconnect()
    client.loop_stop()
    opened.go("#sessions")
    opened.page.get_by_role("button", name="shown-1", exact=True).click()
    expect(dialog).to_contain_text("Not connected.")
    expect(dialog).to_contain_text("last connection ended by" + "disconnected")
