"""What an operator sees and changes: connections, sessions, retained messages, tables. Every change asks first."""

import re

from playwright.sync_api import expect

from support.page.browser import Opened
from support.page.served import PageServer


def test_a_client_is_disconnected_after_a_question(opened: Opened, server: PageServer) -> None:
    client = server.client("pump-7")
    try:
        opened.go("#clients")
        button = opened.page.get_by_role("button", name="Disconnect pump-7")
        button.click()
        expect(opened.page.get_by_role("dialog")).to_contain_text("Its session is not persistent")
        opened.page.get_by_role("button", name="Cancel").click()
        assert [one["client_id"] for one in server.ask("clients?client_id=pump-7")["items"]] == ["pump-7"]
        client.loop_stop()  # it does not come back
        button.click()
        opened.page.get_by_role("dialog").get_by_role("button", name="Disconnect").click()
        expect(opened.page.locator("#notice")).to_contain_text("pump-7 is disconnected.")
        expect(button).to_have_count(0)
        assert server.ask("clients?client_id=pump-7")["items"] == []
    finally:
        client.loop_stop()


def test_a_session_is_ended_and_what_is_lost_is_said(opened: Opened, server: PageServer) -> None:
    client = server.client("gone-1", clean=False)
    client.subscribe("owed/#", 1)
    while not server.ask("subscriptions?client_id=gone-1")["items"]:
        pass
    client.disconnect()
    client.loop_stop()
    for number in range(3):
        server.publish("owed/x", str(number), retain=False)
    opened.go("#sessions")
    expect(opened.page.locator("#view-sessions .explanation")).to_contain_text("gone-1 holds most of the log")
    opened.page.get_by_role("button", name="End the session of gone-1").click()
    expect(opened.page.get_by_role("dialog")).to_contain_text("messages that it is owed will never be delivered to it.")
    opened.page.get_by_role("button", name="End the session", exact=True).click()
    expect(opened.page.locator("#notice")).to_contain_text("The session of gone-1 has ended.")
    assert server.ask("sessions?client_id=gone-1")["items"] == []


def test_publish_and_clear(opened: Opened, server: PageServer) -> None:
    server.publish("press/1/setpoint", "20")
    opened.go("#topics?topic=press/1/setpoint")
    expect(opened.page.locator("#topic-pane .number")).to_have_text("20")
    opened.page.get_by_text("Publish a message").click()
    opened.page.get_by_label("Payload", exact=True).fill("25")
    opened.page.get_by_role("button", name="Publish retained").click()
    expect(opened.page.locator("#topic-pane .number")).to_have_text("25")
    expect(opened.value("press/1/setpoint")).to_have_text("25")
    opened.page.get_by_role("button", name="Clear", exact=True).click()
    expect(opened.page.get_by_role("dialog")).to_contain_text("The log keeps the history")
    opened.page.get_by_role("dialog").get_by_role("button", name="Clear").click()
    expect(opened.page.locator("#notice")).to_contain_text("1 retained message cleared.")
    expect(opened.row("press")).to_have_count(0)
    expect(opened.page.locator(".history li").first).to_contain_text("(cleared)")


def test_a_branch_is_cleared_with_its_number_in_the_question(opened: Opened, server: PageServer) -> None:
    for number in range(3):
        server.publish(f"old/{number}", "x")
    opened.go("#topics?topic=old")
    opened.page.get_by_role("button", name="Clear this branch").click()
    opened.page.get_by_role("dialog", name="Clear 3 retained messages?").get_by_role("button", name="Clear 3").click()
    expect(opened.row("old")).to_have_count(0)


def test_a_refused_change_is_said(opened: Opened) -> None:
    opened.go("#topics?topic=weather/hamburg/outside")
    opened.page.get_by_text("Publish a message").click()
    opened.page.locator("form.publish").get_by_label("Topic", exact=True).fill("not/+/allowed")
    opened.page.get_by_label("Payload", exact=True).fill("x")
    opened.page.get_by_role("button", name="Publish retained").click()
    expect(opened.page.locator("#notice")).to_contain_text("Not published: ")


def test_a_viewer_may_only_look(opened: Opened, server: PageServer) -> None:
    opened.go("#topics?topic=weather/hamburg/outside", server.viewer)
    expect(opened.page.locator("#who")).to_have_text("vera, viewer")
    expect(opened.page.locator("#topic-pane")).to_contain_text("to publish and clear takes the role operator")
    client = server.client("looked-at")
    opened.page.get_by_role("link", name="Clients").click()
    expect(opened.page.locator("#view-clients")).to_contain_text("looked-at")
    expect(opened.page.get_by_role("button", name="Disconnect")).to_have_count(0)
    client.disconnect()
    client.loop_stop()


def test_share_groups_are_listed_with_their_members(opened: Opened, server: PageServer) -> None:
    client = server.client("worker-1")
    client.subscribe("$share/workers/jobs/#", 1)
    opened.go("#groups")
    row = opened.page.locator("#view-groups tbody tr").filter(has_text="$share/workers/jobs/#")
    expect(row).to_contain_text("worker-1")
    client.disconnect()
    client.loop_stop()


def test_the_pipeline_is_paused_after_a_question_and_goes_on(opened: Opened, server: PageServer) -> None:
    opened.go("#tables")
    opened.page.get_by_role("button", name="Pause the pipeline").click()
    expect(opened.page.get_by_role("dialog")).to_contain_text("beyond that there will be a gap.")
    opened.page.get_by_role("dialog").get_by_role("button", name="Pause").click()
    expect(opened.page.locator(".pipeline-pause")).to_contain_text("Paused by ann since ")
    assert server.ask("pipeline")["paused"]["by"] == "ann"
    opened.page.get_by_role("button", name="Go on").click()
    expect(opened.page.get_by_role("button", name="Pause the pipeline")).to_be_visible()
    assert "paused" not in server.ask("pipeline")


def test_tables_have_their_rows_last_commit_lag_and_gaps(opened: Opened) -> None:
    opened.go("#tables")
    card = opened.page.locator("#view-tables .card").filter(has=opened.page.get_by_role("heading", name="messages"))
    expect(card.locator(".big")).to_have_text(re.compile(r"^[\d,]+ records behind$"))
    expect(card.locator("dl")).to_contain_text(re.compile(r"^rows3last commit.*\d\d:\d\d:\d\drecords applied3"))
    other = opened.page.locator("#view-tables .card").filter(has_text="retained_closed")
    expect(other.locator("dl")).to_contain_text(re.compile(r"^rows2last commit"))
    expect(opened.page.locator("#view-tables .card")).to_have_count(2)
    gap = opened.page.get_by_role("region", name="Gaps, table").locator("tbody tr")
    expect(gap).to_have_count(1)
    clock_time = re.compile(r"\d\d:\d\d:\d\d$")
    expect(gap.locator("td")).to_have_text(["messages", "0", "5", clock_time, clock_time, "trimmed"])


def test_the_history_says_who_changed_a_topic_over_http(opened: Opened, server: PageServer) -> None:
    server.publish("changed/over/http", "1")
    server.ask("retained/set", {"messages": [{"topic": "changed/over/http", "payload": "2"}]})
    opened.go("#topics?topic=changed/over/http")
    expect(opened.page.locator("#topic-pane .origin")).to_contain_text("by ann (operator, over HTTP)")
    expect(opened.page.locator(".history-client")).to_have_text(["ann (operator, over HTTP)", "publisher"])
