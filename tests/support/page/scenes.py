"""What can be on the page besides its plain views: their answers, forms and dialogs. Tests of the layout open each."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

from playwright.sync_api import expect

from support.page.browser import Opened

CLIENT = "hamburg-scada-of-the-northern-hall"
"""A client with a long name and subscriptions; the scenes of clients need it connected (the fixture `scada`)."""
ALERTS = [
    {
        "name": "the-press-of-line-1-says-nothing",
        "when": "plant/hamburg/line-1/press/in-the-northern-hall/+/status is silent for 1s",
        "topic": "alerts/the-press-of-line-1-says-nothing",
        "webhook": "http://127.0.0.1:9/secret",
    },
    {"name": "disk", "when": "embermq_disk_free_bytes < 1KiB for 1m"},
    {"name": "misspelt", "when": "embermq_disk_fre_bytes < 1KiB"},
]
"""The rules of the server whose pages are looked at: one fires, one does not, one cannot be checked."""
PRESS = "plant/hamburg/line-1/press"
LONG_TOPIC = "seen/" + "/".join(["a-level-with-a-long-name-of-a-hall"] * 4)
LONG_PAYLOAD = json.dumps({"state": "running", "note": "a-word-that-cannot-be-broken-" * 8})


def instant(minutes_ago: float) -> str:
    return (datetime.now(UTC) - timedelta(minutes=minutes_ago)).strftime("%Y-%m-%dT%H:%M:%SZ")


def node(number: int, state: str, next_offset: int = -1, lag: int = 0) -> dict[str, Any]:
    """A node as `GET /api/v1/nodes` has it; with an offset below 0 it was not heard of."""
    place = f"mqtt{number}.hamburg.example:1883"
    known = {"node": number, "state": state, "is_this": number == 2, "reachable_at": place}
    if next_offset < 0:
        return known | {"reachable_at": ""}
    return known | {"next_offset": next_offset, "lag": lag, "heard": instant(0)}


NODES = [
    node(1, "active", 81_204_917),
    node(2, "gone", 81_203_104, 1_813),
    node(3, "standby", 81_204_917),
    node(9, "expelled"),
]
ROWS = (
    f"select timestamptz '2026-01-01' as timestamp, '{LONG_TOPIC}/' || range as topic, '{LONG_PAYLOAD}' as value,\n"
    f"'{CLIENT}' as client_id, null as nothing, range * 1000003 as number from range(40)"
)
NUMBERS = "select timestamptz '2026-01-01' + to_minutes(range) as minute, range as messages from range(40)"
"""These read no table: that of the lake of these tests has nothing but offsets."""


def publish_anywhere(opened: Opened) -> None:
    """The form for a topic that there is not yet."""
    opened.go("#topics")
    opened.page.get_by_text("Publish a message", exact=True).click()
    expect(opened.page.locator("form.publish").get_by_label("Topic", exact=True)).to_be_visible()


def login(opened: Opened) -> None:
    opened.go(token="")
    expect(opened.page.locator("#login")).to_be_visible()


def topics(opened: Opened) -> None:
    opened.go("#topics")
    expect(opened.row("plant")).to_be_visible()


def number(opened: Opened) -> None:
    opened.go(f"#topics?topic={PRESS}/temperature")
    expect(opened.page.locator("#topic-pane .plot")).to_be_visible()


def past(opened: Opened) -> None:
    opened.go(f"#topics?topic={PRESS}/status&at={instant(10)}")
    expect(opened.page.locator("#topic-pane .history")).to_be_visible()


def compared(opened: Opened) -> None:
    opened.go(f"#topics?topic={PRESS}/status&at={instant(5)}&from={instant(20)}")
    expect(opened.page.locator(".side-by-side .payload")).to_have_count(2)


def nothing_that_far_back(opened: Opened) -> None:
    opened.go("#topics?at=2021-12-24T15:16:17Z")
    expect(opened.page.locator("#tree-state")).to_contain_text("reach")


def clients(opened: Opened) -> None:
    opened.go("#clients")
    expect(opened.page.locator("#view-clients tbody tr").first).to_be_visible()


def sessions(opened: Opened) -> None:
    opened.go("#sessions")
    expect(opened.page.locator("#view-sessions tbody tr").first).to_be_visible()


def groups(opened: Opened) -> None:
    opened.go("#groups")
    expect(opened.page.locator("#view-groups .explanation").first).not_to_be_empty()


def tables(opened: Opened) -> None:
    opened.go("#tables")
    expect(opened.page.locator("#view-tables .card")).to_have_count(2)


def health(opened: Opened) -> None:
    opened.go("#health")
    expect(opened.page.locator("#view-health .explanation").first).not_to_be_empty()


def publish_form(opened: Opened) -> None:
    """With its properties open and a retained value of JSON to edit."""
    opened.go(f"#topics?topic={PRESS}/status")
    expect(opened.page.locator("#topic-pane .payload")).to_be_visible()
    opened.page.get_by_text("Publish a message", exact=True).click()
    form = opened.page.locator("form.publish")
    form.get_by_role("button", name="Edit the retained value").click()
    form.get_by_text("Properties", exact=True).click()
    expect(form.get_by_label("Content type")).to_be_visible()


def file_form(opened: Opened) -> None:
    opened.go(f"#topics?topic={PRESS}/status")
    opened.page.get_by_text("Publish a message", exact=True).click()
    opened.page.locator("form.publish").get_by_role("button", name="File").click()
    expect(opened.page.locator("form.publish input[type=file]")).to_be_visible()


def restore_preview(opened: Opened) -> None:
    opened.server.publish(LONG_TOPIC, LONG_PAYLOAD)
    opened.go(f"#topics?topic={PRESS.split('/')[0]}&at={instant(10)}")
    opened.page.get_by_role("button", name="Set this branch back to this instant").click()
    expect(opened.page.locator("dialog .changes li").first).to_be_visible()


def undo_offer(opened: Opened) -> None:
    opened.server.publish(LONG_TOPIC, LONG_PAYLOAD)
    opened.go(f"#topics?topic={LONG_TOPIC}")
    opened.page.get_by_text("Publish a message", exact=True).click()
    opened.page.get_by_label("Payload", exact=True).fill("1")
    opened.page.get_by_role("button", name="Publish retained").click()
    expect(opened.page.locator("#notice").get_by_role("button", name="Undo")).to_be_visible()


def undo_preview(opened: Opened) -> None:
    undo_offer(opened)
    opened.page.locator("#notice").get_by_role("button", name="Undo").click()
    expect(opened.page.locator("dialog .changes li")).to_have_count(1)


def client_detail(opened: Opened) -> None:
    opened.go("#clients")
    opened.page.get_by_role("button", name=CLIENT, exact=True).click()
    expect(opened.page.locator("dialog .filters li")).to_have_count(2)


def tail(opened: Opened) -> None:
    opened.go("#tail")
    expect(opened.page.locator("#view-tail .explanation")).to_have_text("0 messages.")
    for topic, payload in (("seen/a", "1"), (LONG_TOPIC, LONG_PAYLOAD), ("seen/b", "off")):
        opened.server.publish(topic, payload)
    expect(opened.page.locator(".tail li")).to_have_count(3)
    opened.page.get_by_role("button", name="Pause").click()


def chart(opened: Opened) -> None:
    series = [[f"plant/{site}/line-1/press/temperature", ""] for site in ("hamburg", "lyon")]
    series += [[f"{PRESS}/status", "motor.current"], ["energy/grid/power", ""]]
    series += [[LONG_TOPIC, "motor.current.of.the.second.phase"]]  # it has no numbers
    opened.go(f"#chart?chart={quote(json.dumps(series))}")
    expect(opened.page.locator("#view-chart .curve")).to_have_count(4)
    expect(opened.page.locator("#view-chart .chips li")).to_have_count(5)


def ask_sql(opened: Opened, query: str) -> None:
    opened.go("#sql")
    opened.page.get_by_label("Query").fill(query)
    opened.page.get_by_role("button", name="Run", exact=True).click()


def sql_rows(opened: Opened) -> None:
    ask_sql(opened, ROWS)
    expect(opened.page.locator("#view-sql tbody tr")).to_have_count(40)


def sql_chart(opened: Opened) -> None:
    ask_sql(opened, NUMBERS)
    expect(opened.page.locator("#view-sql .curve")).to_have_count(1)


def sql_failure(opened: Opened) -> None:
    ask_sql(opened, f"select {'a_column_that_is_not_there' * 6}")
    expect(opened.page.locator("#view-sql .failure")).to_contain_text("a_column")


def access(opened: Opened) -> None:
    opened.go("#access")
    opened.page.get_by_label("Topic or filter").fill(LONG_TOPIC)
    opened.page.get_by_role("button", name="Check").click()
    expect(opened.page.locator(".access-result")).to_contain_text("Allowed")


def alerts(opened: Opened) -> None:
    opened.go("#health")
    expect(opened.page.locator(".alerts tbody tr").first).to_contain_text("firing")


def nodes(opened: Opened) -> None:
    """As a node of a cluster answers that reads nothing from the shared log; the server of these tests is alone."""
    opened.page.route("**/api/v1/nodes", lambda route: route.fulfill(json={"items": NODES}))
    opened.go("#health")
    expect(opened.page.locator(".nodes tbody tr")).to_have_count(4)


def keys_help(opened: Opened) -> None:
    opened.go("#sql")
    opened.page.get_by_role("button", name="Help and keys").click()
    expect(opened.page.get_by_role("dialog", name="Keys")).to_be_visible()


SCENES: dict[str, Callable[[Opened], None]] = {
    scene.__name__: scene
    for scene in (
        login,
        topics,
        number,
        past,
        compared,
        nothing_that_far_back,
        clients,
        sessions,
        groups,
        tables,
        health,
        publish_form,
        publish_anywhere,
        file_form,
        restore_preview,
        undo_offer,
        undo_preview,
        client_detail,
        tail,
        chart,
        sql_rows,
        sql_chart,
        sql_failure,
        access,
        alerts,
        nodes,
        keys_help,
    )
}
