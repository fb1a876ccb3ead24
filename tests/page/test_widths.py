"""Nothing runs out of the window, whatever its width."""

import pytest
from playwright.sync_api import expect

from support.page.browser import Opened

VIEWS = ("topics", "clients", "sessions", "groups", "tables", "health")
WIDTHS = (400, 560, 700, 768, 820, 900, 1024, 1280)
# What can be seen and reaches beyond the right edge, unless it lies in something that scrolls by itself.
OUTSIDE = """() => [...document.querySelectorAll("header *, #timeline *, main *")].filter((element) => {
  const box = element.getBoundingClientRect();
  if (!box.width || !box.height || box.right <= innerWidth + 1) return false;
  for (let above = element.parentElement; above; above = above.parentElement) {
    const style = getComputedStyle(above);
    if (style.visibility === "hidden") return false;
    const isCut = ["auto", "scroll", "hidden", "clip"].includes(style.overflowX);
    if (isCut && above.getBoundingClientRect().right <= innerWidth + 1) return false;
  }
  return true;
}).map((element) => `${element.tagName} ${element.id} ${element.className}`)"""


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_fits_into_the_window_at_every_width(opened: Opened, view: str) -> None:
    opened.go(f"#{view}")
    expect(opened.page.locator(f"#view-{view}")).to_be_visible()
    expect(opened.page.locator("#axis span").first).to_be_visible()
    found = {}
    for width in WIDTHS:
        opened.page.set_viewport_size({"width": width, "height": 800})
        opened.page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        opened.page.locator("#fact-rate").evaluate("(fact) => fact.textContent = '123,456.7'")
        outside = opened.page.evaluate(OUTSIDE)
        scrolled = opened.page.evaluate("() => document.documentElement.scrollWidth - innerWidth")
        if outside or scrolled > 0:
            found[width] = (scrolled, outside)
    assert found == {}
