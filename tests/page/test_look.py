"""How the page is laid out: what takes room where, and what stays readable when there is little."""

import re

import pytest
from playwright.sync_api import Locator, expect

from support.page.browser import Opened
from support.page.scenes import CLIENT, SCENES
from support.page.served import PageServer

UNKNOWN = "\N{EN DASH}"
LONG = "a-long-name-of-a-machine-in-the-hall-of-the-northern-building"


def box(found: Locator) -> dict[str, float]:
    shown = found.bounding_box()
    assert shown is not None
    return {"left": shown["x"], "right": shown["x"] + shown["width"], "top": shown["y"], "height": shown["height"]}


@pytest.mark.parametrize("view", ["clients", "sessions", "groups", "tables", "health"])
def test_the_timeline_is_a_thin_line_where_a_view_does_not_use_it(opened: Opened, view: str) -> None:
    opened.go(f"#{view}")
    expect(opened.page.locator("#moment-state")).to_have_text("Live")
    expect(opened.page.locator("#track")).to_be_hidden()
    assert box(opened.page.locator("#timeline"))["height"] < 40
    opened.press("1")
    expect(opened.page.locator("#track")).to_be_visible()


def test_in_the_past_the_thin_line_says_so_and_leads_back(opened: Opened) -> None:
    opened.go("#health?at=2021-03-04T05:06:07Z")
    expect(opened.page.locator("#moment-state")).to_have_text("As of 4 Mar 2021, 05:06:07")
    assert box(opened.page.locator("#timeline"))["height"] < 40
    opened.page.locator("#go-live").click()
    expect(opened.page.locator("#moment-state")).to_have_text("Live")


def test_a_chart_has_a_time_axis_and_its_values_beside_the_line(opened: Opened) -> None:
    opened.go("#topics?topic=plant/hamburg/line-1/press/temperature")
    plot = opened.page.locator("#topic-pane .plot")
    expect(plot.locator(".times span")).to_have_text([re.compile(r"^\d\d:\d\d$")] * 3)
    # In one step: a message that arrives draws the chart again.
    edges = plot.evaluate(
        """(plot) => {
          const box = (name) => plot.querySelector(name).getBoundingClientRect();
          const drawing = box("svg");
          return [box(".high").right, box(".low").right, drawing.left, drawing.bottom, box(".times").top];
        }"""
    )
    high_right, low_right, drawing_left, drawing_bottom, times_top = edges
    assert max(high_right, low_right) <= drawing_left
    assert times_top >= drawing_bottom


def test_the_columns_of_the_tree_have_heads(opened: Opened) -> None:
    opened.go("#topics?topic=energy/grid/power")
    heads = opened.page.locator("#tree-columns")
    expect(heads.locator("span:visible")).to_have_text(["Topic", "Value", "QoS", "Rate", "Age"])
    row = opened.row("energy/grid/power")
    expect(row.locator(".value")).to_be_visible()
    for column in (".value", ".age"):
        assert abs(box(heads.locator(column))["right"] - box(row.locator(column))["right"]) < 12
    opened.page.locator("#search").fill("no such word")
    expect(heads).to_be_hidden()


def test_a_long_name_keeps_its_end(opened: Opened, server: PageServer) -> None:
    server.publish(f"named/{LONG}", "1")
    opened.page.set_viewport_size({"width": 400, "height": 800})
    opened.go()
    opened.open_branches("named")
    name = opened.row(f"named/{LONG}").locator(".name")
    expect(name).to_have_text(LONG)
    end = name.locator(".name-end")
    expect(end).to_have_text("building")
    begin = name.locator(".name-begin")
    assert begin.evaluate("(one) => one.scrollWidth > one.clientWidth")
    assert box(end)["right"] <= box(name)["right"] + 1


def test_no_label_of_the_time_axis_is_cut(opened: Opened) -> None:
    opened.go("#topics")
    expect(opened.page.locator("#axis span").first).to_be_visible()
    for width in range(400, 1300, 53):
        opened.page.set_viewport_size({"width": width, "height": 800})
        opened.page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        cut = opened.page.evaluate(
            """() => {
              const end = document.getElementById("axis").getBoundingClientRect().right;
              const labels = [...document.querySelectorAll("#axis span")];
              const isCut = (label) => label.getBoundingClientRect().right > end;
              return labels.filter(isCut).map((label) => label.textContent);
            }"""
        )
        assert cut == []


def test_an_instant_of_long_ago_has_its_date_and_hides_no_other_words(opened: Opened) -> None:
    opened.go("#topics?at=2021-03-04T05:06:07Z")
    expect(opened.page.locator("#handle-at .flag")).to_have_text("4 Mar 2021 05:06:07")
    expect(opened.page.locator("#rates path")).to_have_count(1)
    expect(opened.page.locator("#rates-hint")).to_be_hidden()
    opened.press("l")
    expect(opened.page.locator("#rates-hint")).to_be_visible()


def test_the_table_of_alerts_needs_no_scrolling_on_a_desk(opened: Opened) -> None:
    opened.go("#health")
    frame = opened.page.locator(".alerts .table-frame")
    expect(frame.locator("tbody tr")).to_have_count(3)
    expect(opened.page.locator(".nodes")).to_have_count(0)  # it is a single server
    assert frame.evaluate("(one) => one.scrollWidth <= one.clientWidth")
    expect(frame.locator("tr", has_text="disk_free").locator("td[data-name=Value]")).to_have_text(
        re.compile(r"^[\d.,]+ [KMGT]iB$")
    )


def test_the_nodes_of_a_cluster_are_part_of_health(opened: Opened) -> None:
    SCENES["nodes"](opened)
    rows = opened.page.locator(".nodes tbody tr")
    expect(rows.nth(0).locator("td")).to_have_text(
        ["1", "active", "mqtt1.hamburg.example:1883", "offset 81,204,917", UNKNOWN, re.compile("ago$")]
    )
    expect(rows.nth(1)).to_contain_text("2 this server")
    expect(rows.nth(1)).to_contain_text("1,813 records")
    expect(rows.nth(3).locator("td")).to_have_text(["9", "expelled", *[UNKNOWN] * 4])
    expect(opened.page.locator(".nodes")).to_contain_text("This node reads nothing from the shared log")


@pytest.mark.usefixtures("scada")
def test_one_client_is_one_client(opened: Opened) -> None:
    opened.go("#topics")
    expect(opened.page.locator("#fact-clients")).to_have_text("1")
    expect(opened.page.locator("#fact-clients-word")).to_have_text("client")
    opened.go("#clients")
    opened.page.get_by_role("button", name=CLIENT, exact=True).click()
    since = opened.page.locator("dialog .details time").first
    expect(since).to_have_text(re.compile(r"^\d\d:\d\d:\d\d$"))
    expect(since).to_have_attribute("title", re.compile(r"Z \(UTC\)$"))


def test_a_plot_of_one_value_shows_it(opened: Opened) -> None:
    opened.go()
    shown = opened.page.evaluate(
        """async () => {
          const { plot } = await import("/page/core/plot.js");
          const drawn = (points) => plot({ series: [{ name: "a", points }], label: "a" });
          return [[[1, 5]], [[1, 5], [2, 6]]].map((points) => drawn(points).querySelectorAll(".dot").length);
        }"""
    )
    assert shown == [1, 0]


def test_two_texts_are_cut_where_they_differ(opened: Opened) -> None:
    opened.go()
    cuts = opened.page.evaluate(
        """async () => {
          const { differingCuts } = await import("/page/core/text.js");
          const long = "x".repeat(100);
          return [["1", "2"], [`${long}1`, `${long}2`], [`1${long}`, `2${long}`], [long, ""], [long, long]]
            .map(([one, other]) => differingCuts(one, other, 12));
        }"""
    )
    ending, beginning = f"…{'x' * 11}", f"{'x' * 11}…"
    assert cuts == [
        ["1", "2"],
        [f"{ending}1", f"{ending}2"],
        [f"1{beginning}", f"2{beginning}"],
        [f"{'x' * 12}…", ""],
        [f"…{'x' * 12}", f"…{'x' * 12}"],
    ]
