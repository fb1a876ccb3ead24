"""Nothing runs out of the window, whatever its width."""

import pytest
from playwright.sync_api import expect

from support.page.browser import Opened
from support.page.scenes import SCENES

VIEWS = ("topics", "clients", "sessions", "groups", "tables", "health", "tail", "chart", "sql", "access")
WIDTHS = (400, 560, 700, 760, 768, 820, 900, 1024, 1240, 1280, 1480, 1920)
SCENE_WIDTHS = (400, 768, 1280, 1920)
# What can be seen and reaches beyond the right edge, unless it lies in something that scrolls by itself.
OUTSIDE = """() => [
  ...document.querySelectorAll("header *, #timeline *, main *, dialog, dialog *, #notice, #notice *"),
].filter((element) => {
  const box = element.getBoundingClientRect();
  const isOpen = getComputedStyle(element).overflowX === "visible"; // then words can be wider than their box
  const right = isOpen ? Math.max(box.right, box.left + element.scrollWidth) : box.right;
  if (!box.width || !box.height || right <= innerWidth + 1) return false;
  for (let above = element.parentElement; above; above = above.parentElement) {
    const style = getComputedStyle(above);
    if (style.visibility === "hidden") return false;
    const isCut = ["auto", "scroll", "hidden", "clip"].includes(style.overflowX);
    if (isCut && above.getBoundingClientRect().right <= innerWidth + 1) return false;
  }
  return true;
}).map((element) => `${element.tagName} ${element.id} ${element.className}`)"""

# A button whose words do not fit into it, or are one letter wide.
CRUSHED = """() => [
  ...document.querySelectorAll("main button, dialog button, #notice button, nav a"),
].filter((element) => {
  if (!element.getClientRects().length) return false;
  const range = document.createRange();
  range.selectNodeContents(element);
  const isTall = range.getBoundingClientRect().height > element.clientHeight + 1;
  return isTall || element.clientWidth < 16;
}).map((element) => element.textContent)"""
# Controls that lie on one another. What a table scrolls below its last column is meant to.
OVERLAPPING = """() => {
  const controls = [...document.querySelectorAll(":is(main, dialog) :is(input, select, textarea, button)")]
    .filter((one) => one.checkVisibility() && !one.closest("td, th, .hidden"));
  const area = (a, b) => Math.max(0, Math.min(a.right, b.right) - Math.max(a.left, b.left))
    * Math.max(0, Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top));
  const isScrolling = (one) => getComputedStyle(one).overflowY !== "visible";
  const holder = (one) => { do one = one.parentElement; while (one && !isScrolling(one)); return one; };
  return controls.flatMap((one, place) => controls.slice(place + 1)
    .filter((other) => holder(one) === holder(other))
    .filter((other) => area(one.getBoundingClientRect(), other.getBoundingClientRect()) > 4)
    .map((other) => `${one.name || one.textContent} and ${other.name || other.textContent}`));
}"""
# What a row of a list offers to do, and cannot be clicked.
UNCLICKED = """() => [...document.querySelectorAll(".listing tbody td:last-child > button")].filter((button) => {
  const box = button.getBoundingClientRect();
  if (!box.width || document.querySelector("dialog[open]") || box.bottom > innerHeight * 0.9) return false;
  return [box.left + 3, box.right - 3].some((x) => document.elementFromPoint(x, (box.top + box.bottom) / 2) !== button);
}).map((button) => button.textContent)"""
LOOKS = (CRUSHED, OVERLAPPING, UNCLICKED)
# The views that are out of sight: beyond the window, or below what lies over them.
UNREACHED = """() => [...document.querySelectorAll("#nav a")].filter((link) => {
  const box = link.getBoundingClientRect();
  return [box.left + 2, box.right - 2].some((x) => document.elementFromPoint(x, (box.top + box.bottom) / 2) !== link);
}).map((link) => link.textContent)"""


def resized(opened: Opened, width: int) -> None:
    opened.page.set_viewport_size({"width": width, "height": 800})
    opened.page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def outside(opened: Opened) -> list[str]:
    """What reaches beyond the window, and the page itself if it can be scrolled."""
    found: list[str] = opened.page.evaluate(OUTSIDE)
    if opened.page.evaluate("() => document.documentElement.scrollWidth > innerWidth"):
        found.append("the page")
    return found


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_fits_into_the_window_at_every_width(opened: Opened, view: str) -> None:
    opened.go(f"#{view}")
    expect(opened.page.locator(f"#view-{view}")).to_be_visible()
    if view == "topics":
        expect(opened.page.locator("#axis span").first).to_be_visible()
    found = {}
    for width in WIDTHS:
        resized(opened, width)
        opened.page.locator("#fact-rate").evaluate("(fact) => fact.textContent = '123,456.7'")
        if wrong := outside(opened) + opened.page.evaluate(UNREACHED):
            found[width] = wrong
    assert found == {}


@pytest.mark.usefixtures("scada")
@pytest.mark.parametrize("scene", SCENES)
def test_answers_forms_and_dialogs_fit_into_the_window(opened: Opened, scene: str) -> None:
    SCENES[scene](opened)
    found = {}
    for width in SCENE_WIDTHS:
        resized(opened, width)
        if wrong := outside(opened) + [each for look in LOOKS for each in opened.page.evaluate(look)]:
            found[width] = wrong
    assert found == {}


@pytest.mark.parametrize("width", [400, 460, 768])
def test_what_is_said_of_the_instants_does_not_run_under_the_way_back(opened: Opened, width: int) -> None:
    opened.page.set_viewport_size({"width": width, "height": 800})
    opened.go("#topics?at=2021-12-24T15:16:17Z&from=2021-12-23T15:16:17Z")
    expect(opened.page.locator("#moment-state")).to_have_text("As of 24 Dec 2021, 15:16:17, compared")
    back = opened.page.locator("#go-live").bounding_box()
    assert back is not None
    for part in ("moment-state", "moment-detail"):
        right = opened.page.evaluate(
            f"""() => {{
              const range = document.createRange();
              range.selectNodeContents(document.getElementById("{part}"));
              const whole = document.getElementById("{part}").getBoundingClientRect();
              const isCut = getComputedStyle(document.getElementById("{part}")).overflowX === "hidden";
              return isCut ? whole.right : Math.max(...[...range.getClientRects()].map((box) => box.right));
            }}"""
        )
        assert right <= back["x"]
