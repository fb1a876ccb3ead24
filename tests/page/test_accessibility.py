"""The page without a mouse, for a screen reader, in light and dark, on a small screen."""

import json
from typing import Any, Literal

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import BrowserContext, expect

from support.page.browser import BROWSER, Opened
from support.page.scenes import SCENES
from support.page.served import PageServer

# What the system wishes, in place of what the browser knows.
ANSWER = """((isReduced) => (query) => query.includes("reduced-motion") ? { matches: isReduced } : ask(query))"""
TOPIC = "plant/hamburg/line-1/robot/status"


def serious(opened: Opened) -> list[Any]:
    """What axe-core finds that is serious or worse: rule, and the first elements."""
    found = Axe().run(opened.page, options={"resultTypes": ["violations"]}).response["violations"]
    return [
        (rule["id"], [node["target"] for node in rule["nodes"][:4]])
        for rule in found
        if rule["impact"] in ("serious", "critical")
    ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(opened: Opened, scheme: Literal["light", "dark"]) -> None:
    opened.page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    opened.go(f"#topics?topic={TOPIC}")
    expect(opened.page.locator("#topic-pane .payload")).to_be_visible()
    expect(opened.page.locator("#topic-pane .history")).to_be_visible()
    assert serious(opened) == []
    opened.page.locator("#handle-at").focus()
    opened.press("PageDown", "c")
    expect(opened.page.locator(".side-by-side .payload")).to_have_count(2)
    expect(opened.page.locator(".summary")).to_be_visible()
    assert serious(opened) == []
    for view in ("Clients", "Tables", "Health"):
        opened.page.get_by_role("link", name=view).click()
        expect(opened.page.locator(f"#view-{view.lower()} .explanation").first).not_to_be_empty()
        assert serious(opened) == []


@pytest.mark.usefixtures("scada")
@pytest.mark.parametrize("scene", SCENES)
def test_axe_finds_nothing_serious_in_answers_forms_and_dialogs(opened: Opened, scene: str) -> None:
    opened.page.emulate_media(reduced_motion="reduce")
    SCENES[scene](opened)
    found: dict[tuple[str, int], list[Any]] = {}
    schemes: tuple[Literal["light", "dark"], ...] = ("light", "dark")
    for scheme in schemes:
        opened.page.emulate_media(color_scheme=scheme)
        for width in (400, 1280):
            opened.page.set_viewport_size({"width": width, "height": 800})
            if wrong := serious(opened):
                found[scheme, width] = wrong
    assert found == {}


def test_a_walk_with_keys_only(opened: Opened, server: PageServer) -> None:
    opened.go()
    expect(opened.row("plant/hamburg/line-1/order")).to_be_visible()
    opened.press("/")
    opened.page.keyboard.type("firmware")
    expect(opened.row("plant/hamburg/line-1/oven/firmware")).to_be_visible()
    opened.press("Escape")
    expect(opened.row("weather")).to_be_visible()
    opened.press("ArrowDown")  # from the search into the tree
    tree = opened.page.get_by_role("tree", name="Topics")
    expect(tree).to_be_focused()
    opened.press("End")
    expect(opened.row("weather")).to_have_class("row active")
    expect(tree).to_have_attribute("aria-activedescendant", str(opened.row("weather").get_attribute("id")))
    opened.press("ArrowRight")
    expect(opened.row("weather/hamburg")).to_be_visible()
    opened.press("ArrowRight")
    expect(opened.row("weather/hamburg")).to_have_class("row active")
    opened.press("ArrowRight")
    expect(opened.row("weather/hamburg/outside")).to_be_visible()
    opened.press("ArrowRight", "Enter")
    expect(opened.page.locator("#topic-pane h2")).to_have_text("weather/hamburg/outside")
    opened.press("c")
    expect(opened.page.locator("body")).to_have_attribute("data-comparing", "true")
    opened.press("c")
    expect(opened.page.locator("body")).to_have_attribute("data-comparing", "false")
    while opened.page.evaluate("document.activeElement.id") != "handle-at":
        opened.press("Shift+Tab")
    opened.press("Home")
    expect(opened.page.locator("body")).to_have_attribute("data-time", "past")
    opened.press("Space")
    expect(opened.page.locator("#play")).to_have_attribute("aria-pressed", "true")
    opened.press("Space")
    expect(opened.page.locator("#play")).to_have_attribute("aria-pressed", "false")
    opened.press("l")
    expect(opened.page.locator("body")).to_have_attribute("data-time", "live")
    opened.press("?")
    expect(opened.page.get_by_role("dialog", name="Keys")).to_be_visible()
    opened.press("Escape", "2")
    expect(opened.page.locator("#view-clients")).to_be_visible()


def test_what_a_screen_reader_is_told(opened: Opened) -> None:
    opened.go(f"#topics?topic={TOPIC}")
    item = opened.page.get_by_role("treeitem", name="status", exact=False).first
    expect(item).to_have_attribute("aria-selected", "true")
    expect(item).to_have_attribute("aria-level", "5")
    slider = opened.page.get_by_role("slider", name="Instant that is shown")
    expect(slider).to_have_attribute("aria-valuetext", "live")
    slider.focus()
    opened.press("PageDown")
    expect(opened.page.locator("#moment-state[role=status]")).to_contain_text("As of ")
    expect(slider).not_to_have_attribute("aria-valuetext", "live")


def test_at_400_pixels_the_panes_follow_one_another(opened: Opened) -> None:
    opened.page.set_viewport_size({"width": 400, "height": 800})
    opened.go()
    expect(opened.value("plant/hamburg/line-1/order")).to_be_visible()
    expect(opened.page.locator("#track")).to_be_visible()
    expect(opened.page.locator("#topic-pane")).to_be_hidden()
    opened.row("plant/hamburg/line-1/order").click()
    expect(opened.page.locator("#topic-pane .payload")).to_be_visible()
    expect(opened.page.locator("#tree")).to_be_hidden()
    expect(opened.page.locator("#track")).to_be_visible()
    for view in ("Clients", "Sessions", "Tables", "Health", "Topics"):
        opened.page.get_by_role("link", name=view).click()
        assert opened.page.evaluate("document.documentElement.scrollWidth") == 400
    opened.page.locator("button.back").click()
    expect(opened.page.locator("#tree")).to_be_visible()


def test_rows_flash_unless_motion_is_unwanted(context: BrowserContext, server: PageServer) -> None:
    for motion, is_flashing in (("no-preference", True), ("reduce", False)):
        page = context.new_page()
        if BROWSER == "firefox":  # it cannot be told (`firefox_unknown_commands.cjs`)
            page.add_init_script(f"const ask = matchMedia; matchMedia = {ANSWER} ({json.dumps(not is_flashing)})")
        page.emulate_media(reduced_motion=motion)  # type: ignore[arg-type]  # one of two literals
        opened = Opened(page, server)
        opened.go("#topics?topic=energy/grid/power")
        expect(opened.row("energy/grid/power")).to_be_visible()
        opened.wait_until_live()  # what is loaded does not flash
        page.evaluate(
            """() => {
                window.flashes = 0;
                const animate = Element.prototype.animate;
                Element.prototype.animate = function (...given) {
                    window.flashes += 1;
                    return animate.apply(this, given);
                };
            }"""
        )
        server.publish("energy/grid/power", motion)
        expect(opened.value("energy/grid/power")).to_have_text(motion)
        assert (page.evaluate("window.flashes") > 0) == is_flashing
        page.close()


def test_help_opens_with_its_way_out_focused(opened: Opened) -> None:
    opened.go()
    expect(opened.row("plant")).to_be_visible()
    opened.press("?")
    expect(opened.page.locator("dialog.help").get_by_role("button", name="Close")).to_be_focused()
    opened.press("Enter")
    expect(opened.page.locator("dialog")).to_have_count(0)
    expect(opened.page.locator("#login")).to_be_hidden()
