"""The tree: branches that load as they open, values and counts, search, live changes."""

from playwright.sync_api import Route, expect

from support.page.browser import Opened
from support.page.served import PageServer


def test_branches_open_with_counts_and_values(opened: Opened) -> None:
    opened.go("#topics?topic=energy/grid/power")  # a chosen topic: nothing else is opened on its own
    expect(opened.row("energy/grid/power")).to_have_attribute("aria-selected", "true")
    expect(opened.row("energy/grid/power")).to_have_attribute("aria-level", "3")
    expect(opened.row("plant").locator(".count")).to_have_text("74")
    expect(opened.row("plant/lyon")).to_have_count(0)
    opened.open_branches("plant", "plant/lyon", "plant/lyon/line-1", "plant/lyon/line-1/oven")
    expect(opened.value("plant/lyon/line-1/oven/firmware")).to_have_text("4.2.1")
    opened.row("plant/lyon").locator(".twist").click()
    expect(opened.row("plant/lyon")).to_have_attribute("aria-expanded", "false")
    expect(opened.row("plant/lyon/line-1")).to_have_count(0)


def test_a_first_look_shows_topics_and_not_only_closed_branches(opened: Opened) -> None:
    opened.go()
    expect(opened.value("plant/hamburg/line-1/order")).to_contain_text("H1-1000")


def test_live_values_and_new_topics_appear(opened: Opened, server: PageServer) -> None:
    opened.go()
    opened.open_branches("energy", "energy/grid")
    server.publish("energy/grid/power", "1234")
    expect(opened.value("energy/grid/power")).to_have_text("1234")
    server.publish("energy/grid/frequency", "50.01")
    expect(opened.value("energy/grid/frequency")).to_have_text("50.01")
    expect(opened.row("energy").locator(".count")).to_have_text("2")
    server.publish("energy/grid/frequency", "")
    expect(opened.row("energy/grid/frequency")).to_have_count(0)


def test_a_branch_that_opens_while_the_tree_is_loaded_again_is_loaded_too(opened: Opened, server: PageServer) -> None:
    held: list[Route] = []

    def hold_the_first(route: Route) -> None:
        if held:
            route.continue_()
        held.append(route)

    opened.go("#topics?topic=energy/grid/power")
    opened.page.route("**/tree?below=weather&*", hold_the_first)
    with opened.page.expect_request("**/tree?below=weather&*"):
        opened.open_branches("weather")
    server.publish("appeared/meanwhile", "1")
    expect(opened.row("appeared")).to_be_visible()
    held[0].continue_()
    expect(opened.row("weather/hamburg")).to_be_visible()
    server.publish("appeared/meanwhile", "")


def test_messages_that_are_not_retained_are_shown_as_such(opened: Opened, server: PageServer) -> None:
    opened.go()
    opened.open_branches("energy")
    opened.wait_until_live()
    server.publish("energy/event", "switched", retain=False)
    expect(opened.value("energy/event")).to_have_text("switched")
    expect(opened.row("energy/event").locator(".mark")).to_have_text("not retained")
    opened.page.locator("#handle-at").focus()
    opened.press("PageDown")
    expect(opened.page.locator("body")).to_have_attribute("data-time", "past")
    expect(opened.row("energy/event")).to_have_count(0)


def test_search_by_word_and_by_filter(opened: Opened) -> None:
    opened.go()
    expect(opened.row("plant")).to_be_visible()
    opened.press("/")
    expect(opened.page.locator("#search")).to_be_focused()
    opened.page.keyboard.type("firmware")
    expect(opened.row("plant/hamburg/line-1/oven/firmware")).to_be_visible()
    expect(opened.row("plant")).to_have_count(0)
    opened.page.locator("#search").fill("weather/+/outside")
    expect(opened.page.locator("#tree .row")).to_have_count(1)
    expect(opened.row("weather/hamburg/outside")).to_be_visible()
    opened.page.locator("#search").fill("a/#/b")
    expect(opened.page.locator("#tree-state")).to_contain_text("expected a topic filter")
    opened.page.locator("#search").fill("no such word")
    expect(opened.page.locator("#tree-state")).to_have_text("No retained topic matches the search.")
    opened.press("Escape")
    expect(opened.row("plant")).to_be_visible()


def test_a_topic_that_begins_with_a_slash_has_an_empty_level(opened: Opened, server: PageServer) -> None:
    server.publish("/below/nothing", "1")
    opened.go()
    expect(opened.page.locator("#tree .name.empty")).to_have_text("(empty)")
    opened.page.locator("#tree .row", has=opened.page.locator(".name.empty")).locator(".twist").click()
    expect(opened.row("/below")).to_be_visible()


def test_a_link_and_the_way_back_open_the_branches_above_their_topic(opened: Opened, server: PageServer) -> None:
    first, second = "linked/one/deep/value", "linked/two/deep/value"
    server.publish(first, "1")
    server.publish(second, "2")
    opened.go(f"#topics?topic={first}")
    expect(opened.row(first)).to_be_visible()
    opened.page.evaluate(f"location.hash = '#topics?topic={second}'")
    expect(opened.row(second)).to_be_visible()
    for topic in ("linked/one", "linked/two"):
        opened.row(topic).locator(".twist").click()
        expect(opened.row(topic)).to_have_attribute("aria-expanded", "false")
    opened.page.go_back()
    expect(opened.value(first)).to_have_text("1")
    opened.page.go_forward()
    expect(opened.value(second)).to_have_text("2")
