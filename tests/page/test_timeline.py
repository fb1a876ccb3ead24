"""The time slider: the tree at a past instant, play, comparison, and how far back it goes."""

import re
import time
from datetime import UTC, datetime, timedelta

from playwright.sync_api import expect

from page.conftest import PAST_MINUTES
from support.page.browser import Opened
from support.page.served import PageServer

MINUS = "\N{MINUS SIGN}"
# Questions for an instant that the server does not answer, until they are aborted. Held by the driver instead, Firefox
# would not tell it of their end.
HELD_FETCH = """() => {
  const ask = window.fetch;
  Object.assign(window, { isHeld: true, held: [], aborted: [] });
  window.fetch = (url, options) => {
    if (!window.isHeld || !/\\/api\\/v1\\/(tree|retained)\\?/.test(url)) return ask(url, options);
    window.held.push(url);
    return new Promise((_, refuse) => options.signal.addEventListener("abort", () => {
      window.aborted.push(url);
      refuse(options.signal.reason);
    }));
  };
}"""
TEMPERATURE = "plant/hamburg/line-1/press/temperature"


def instant(minutes_ago: float) -> str:
    return datetime.fromtimestamp(time.time() - minutes_ago * 60, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def value_as_of(server: PageServer, topic: str, at: str) -> str:
    return str(server.ask(f"retained/message?topic={topic}&as_of={at}")["payload"])


def wait_for_address(opened: Opened) -> str:
    """The instant in the address, as soon as it is that of the handle, which is drawn in the next frame."""
    opened.page.evaluate("() => new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))")
    opened.page.wait_for_function(
        """() => {
          const at = new URLSearchParams(location.hash.split("?")[1]).get("at");
          const shown = Number(document.getElementById("handle-at").getAttribute("aria-valuenow"));
          return at !== null && Math.abs(Date.parse(at) / 1000 - shown) < 1;
        }"""
    )
    found = re.search(r"at=([^&]+)", opened.page.url)
    assert found is not None
    return found[1]


def test_the_tree_shows_the_values_of_then_and_says_so(opened: Opened, server: PageServer) -> None:
    at = instant(10)
    opened.go(f"#topics?topic={TEMPERATURE}&at={at}")
    expect(opened.value(TEMPERATURE)).to_have_text(value_as_of(server, TEMPERATURE, at))
    expect(opened.page.locator("body")).to_have_attribute("data-time", "past")
    expect(opened.page.locator("#moment-state")).to_have_text(re.compile(r"^As of .*\d\d:\d\d:\d\d$"))
    expect(opened.page.locator("#moment-detail")).to_have_text(re.compile("10 min.* ago, read-only"))
    expect(opened.page.locator("#topic-pane .number")).to_have_text(value_as_of(server, TEMPERATURE, at))
    expect(opened.page.locator("#topic-pane")).to_contain_text("Publish and clear are possible when live.")
    expect(opened.page.get_by_text("Publish a message")).to_have_count(0)
    opened.page.keyboard.press("l")
    expect(opened.page.locator("body")).to_have_attribute("data-time", "live")
    expect(opened.page.locator("#moment-state")).to_have_text("Live")
    expect(opened.page.get_by_text("Publish a message")).to_be_visible()


def test_the_handle_is_dragged_and_the_address_follows(opened: Opened, server: PageServer) -> None:
    opened.go(f"#topics?topic={TEMPERATURE}")
    expect(opened.row(TEMPERATURE)).to_be_visible()
    expect(opened.page.locator("#axis span").first).to_be_visible()
    expect(opened.page.locator("#rates path")).to_have_count(1)
    box = opened.page.locator("#track").bounding_box()
    assert box is not None
    opened.page.mouse.move(box["x"] + box["width"] - 2, box["y"] + 30)
    opened.page.mouse.down()
    opened.page.mouse.move(box["x"] + box["width"] * 0.7, box["y"] + 30, steps=4)
    opened.page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 30, steps=4)
    opened.page.mouse.up()
    at = wait_for_address(opened)
    middle = datetime.fromisoformat(at).timestamp()
    # The log grows while the tests run, so its middle comes nearer to the past.
    assert PAST_MINUTES * 30 - 60 < time.time() - middle < PAST_MINUTES * 60
    expect(opened.value(TEMPERATURE)).to_have_text(value_as_of(server, TEMPERATURE, at))
    opened.page.reload()
    expect(opened.value(TEMPERATURE)).to_have_text(value_as_of(server, TEMPERATURE, at))
    opened.page.get_by_role("button", name="Back to live").click()
    expect(opened.page).not_to_have_url(re.compile("at="))


def test_arrow_keys_step_through_the_changes_of_the_topic(opened: Opened, server: PageServer) -> None:
    tenth = server.ask(f"topic/values?topic={TEMPERATURE}")["items"][10]["timestamp"]
    between = (datetime.fromisoformat(tenth) + timedelta(seconds=30)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    opened.go(f"#topics?topic={TEMPERATURE}&at={between}")
    expect(opened.page.locator("#topic-pane .history li")).not_to_have_count(0)
    expect(opened.page.locator("#marks i")).not_to_have_count(0)
    slider = opened.page.get_by_role("slider", name="Instant that is shown")
    slider.focus()
    before = int(slider.get_attribute("aria-valuenow") or 0)
    opened.press("ArrowLeft")
    expect(slider).not_to_have_attribute("aria-valuenow", str(before))
    first = int(slider.get_attribute("aria-valuenow") or 0)
    opened.press("ArrowLeft")
    expect(slider).to_have_attribute("aria-valuenow", str(first - 60))  # the plant publishes every minute
    opened.press("ArrowRight")
    expect(slider).to_have_attribute("aria-valuenow", str(first))
    opened.press("End")
    expect(slider).to_have_attribute("aria-valuetext", "live")


def test_play_runs_until_it_is_now(opened: Opened) -> None:
    opened.go(f"#topics?at={instant(5)}")
    expect(opened.page.locator("body")).to_have_attribute("data-time", "past")
    opened.page.get_by_label("Speed").select_option("1000")
    before = opened.page.url
    opened.page.get_by_role("button", name="Play").click()
    expect(opened.page).not_to_have_url(before)
    expect(opened.page.locator("body")).to_have_attribute("data-time", "live")
    expect(opened.page.locator("#play")).to_be_disabled()


def test_two_instants_are_compared_by_what_appeared_changed_and_vanished(opened: Opened, server: PageServer) -> None:
    server.publish("changes/first", "1")
    server.publish("changes/gone", "1")
    server.publish("changes/same", "1")
    then = instant(0)
    server.publish("changes/first", '{"a": 1, "b": 2}')
    server.publish("changes/gone", "")
    server.publish("changes/new", "1")
    opened.go(f"#topics?topic=changes/first&from={then}")
    expect(opened.row("changes/first").locator(".sign")).to_have_text("~")
    expect(opened.row("changes/new").locator(".sign")).to_have_text("+")
    expect(opened.row("changes/gone").locator(".sign")).to_have_text(MINUS)
    expect(opened.row("changes").locator(".differences")).to_have_text(f"+1~1{MINUS}1")
    expect(opened.row("changes/same")).to_have_count(0)
    expect(opened.row("plant")).to_have_count(0)
    expect(opened.page.locator(".summary")).to_contain_text(
        f"+ 1 topic appeared~ 1 topic changed{MINUS} 1 topic vanished"
    )
    expect(opened.page.locator(".side.vanished .payload, .side.vanished .number")).to_have_text("1")
    expect(opened.page.locator(".side.appeared .marked")).not_to_have_count(0)
    opened.page.get_by_label("only differences").uncheck()
    expect(opened.row("changes/same")).to_be_visible()
    opened.press("Tab", "c")
    expect(opened.page.locator("body")).to_have_attribute("data-comparing", "false")


def test_an_instant_before_the_log_says_how_far_it_reaches(opened: Opened) -> None:
    opened.go("#topics?at=2001-01-01T00:00:00Z")
    expect(opened.page.locator("#tree-state")).to_contain_text("The log does not reach back that far: it begins at")
    opened.page.get_by_role("button", name="Go to its beginning").click()
    expect(opened.page.locator("#tree .row").first).to_be_visible()


def test_the_range_zooms_by_wheel_and_keys(opened: Opened) -> None:
    opened.go()
    axis = opened.page.locator("#axis")
    expect(axis.locator("span").first).to_be_visible()
    opened.page.get_by_role("button", name="15 min").click()
    before = axis.inner_text()
    box = opened.page.locator("#track").bounding_box()
    assert box is not None
    opened.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 30)
    opened.page.mouse.wheel(0, -400)
    expect(axis).not_to_have_text(before)
    opened.page.get_by_role("button", name="All").click()
    opened.page.locator("#handle-at").focus()
    wide = axis.inner_text()
    opened.press("+", "+", "+")
    expect(axis).not_to_have_text(wide)


def test_a_long_drag_changes_the_address_seldom_and_ends_where_the_handle_is(
    opened: Opened, server: PageServer
) -> None:
    """Safari refuses more than 100 changes of the address in 30 s."""
    opened.page.add_init_script(
        "window.addressChanges = 0;"
        "for (const how of ['pushState', 'replaceState']) {"
        "  const before = history[how].bind(history);"
        "  history[how] = (...given) => { window.addressChanges += 1; return before(...given); };"
        "}"
    )
    opened.go(f"#topics?topic={TEMPERATURE}")
    expect(opened.page.locator("#axis span").first).to_be_visible()
    box = opened.page.locator("#track").bounding_box()
    assert box is not None
    begun_s = time.monotonic()
    opened.page.mouse.move(box["x"] + box["width"] - 2, box["y"] + 30)
    opened.page.mouse.down()
    for place in range(300):
        opened.page.mouse.move(box["x"] + box["width"] * (0.4 + 0.001 * place), box["y"] + 30)
    opened.page.mouse.up()
    wait_for_address(opened)
    changes = opened.page.evaluate("addressChanges")
    assert 0 < changes <= 2 + (time.monotonic() - begun_s) * 2


def test_a_browser_that_refuses_to_change_the_address_gets_it_later(opened: Opened, server: PageServer) -> None:
    opened.page.add_init_script(
        "window.isRefused = true;"
        "for (const how of ['pushState', 'replaceState']) {"
        "  const before = history[how].bind(history);"
        "  history[how] = (...given) => {"
        "    if (window.isRefused) throw new DOMException('too often', 'SecurityError');"
        "    return before(...given);"
        "  };"
        "}"
    )
    opened.go("#topics")
    opened.page.get_by_role("link", name="Health").click()
    expect(opened.page.locator("#view-health")).to_be_visible()
    opened.page.evaluate("isRefused = false")
    expect(opened.page).to_have_url(re.compile("#health$"))


def test_an_instant_that_is_superseded_is_not_asked_for_any_longer(opened: Opened, server: PageServer) -> None:
    at = instant(15)
    opened.go(f"#topics?topic={TEMPERATURE}&at={at}")
    expect(opened.value(TEMPERATURE)).to_have_text(value_as_of(server, TEMPERATURE, at))
    opened.page.evaluate(HELD_FETCH)
    opened.page.locator("#handle-at").focus()
    opened.press("PageUp")
    opened.page.wait_for_function("() => held.length >= 2")  # the first level of the tree, and the topic
    opened.page.evaluate("isHeld = false")
    opened.press("PageUp")
    opened.page.wait_for_function("() => held.every((url) => aborted.includes(url))")
    shown = wait_for_address(opened)
    expect(opened.value(TEMPERATURE)).to_have_text(value_as_of(server, TEMPERATURE, shown))


def test_it_is_said_where_the_marks_of_the_messages_begin(opened: Opened, server: PageServer) -> None:
    client = server.client("many")
    for number in range(430):
        sent = client.publish("marked/often", str(number), 1, True)
    sent.wait_for_publish(60)
    client.disconnect()
    client.loop_stop()
    opened.go("#topics?topic=marked/often")
    hint = opened.page.locator("#marks-hint")
    expect(hint).to_have_text("marks: the newest 400 messages; zoom in for others")
    expect(opened.page.locator(".without-marks")).to_have_count(1)
    opened.page.evaluate(f"location.hash = '#topics?topic={TEMPERATURE}'")
    expect(hint).to_be_hidden()
    expect(opened.page.locator(".without-marks")).to_have_count(0)


def test_the_header_shows_no_rates_of_now_while_the_past_is_shown(opened: Opened) -> None:
    opened.go()
    expect(opened.page.locator("#fact-clients")).to_have_text(re.compile(r"^\d+$"))
    expect(opened.page.locator("#fact-rate")).to_be_visible()
    opened.page.locator("#handle-at").focus()
    opened.press("PageDown")
    expect(opened.page.locator("#fact-rate")).to_be_hidden()
    expect(opened.page.locator("#fact-clients")).to_be_hidden()
    opened.press("l")
    expect(opened.page.locator("#fact-rate")).to_be_visible()


def test_a_date_has_its_year(opened: Opened) -> None:
    opened.go("#topics?at=2021-03-04T05:06:07Z")
    expect(opened.page.locator("#moment-state")).to_have_text("As of 4 Mar 2021, 05:06:07")
    expect(opened.page.locator("#handle-at")).to_have_attribute(
        "aria-valuetext", re.compile("^Thu.? 4 Mar 2021 05:06:07$")
    )


def test_one_key_leads_from_live_to_the_last_change_and_one_more_to_that_before(
    opened: Opened, server: PageServer
) -> None:
    """Also if the changes have just been seen live, when the page knows their instants only about."""
    server.publish("stepped/value", "1")
    opened.go("#topics?topic=stepped/value")
    number = opened.page.locator("#topic-pane .number")
    for payload in ("2", "3", "4"):
        server.publish("stepped/value", payload)
        expect(number).to_have_text(payload)
    opened.page.locator("#handle-at").focus()
    opened.press("ArrowLeft")
    expect(opened.page.locator("body")).to_have_attribute("data-time", "past")
    expect(number).to_have_text("4")
    opened.press("ArrowLeft")
    expect(number).to_have_text("3")
