"""Hostile topic names and payloads are text, whatever they are, and large ones leave the page usable."""

import base64

from playwright.sync_api import expect

from support.page.browser import Opened
from support.page.served import PageServer

MARKUP = "<img src=x onerror=alert(1)>"
SCRIPT = "<script>alert(2)</script><svg onload=alert(3)><b>bold</b>"
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def own_images(opened: Opened) -> int:
    return opened.page.locator("img:not([src='/page/ember.svg'])").count()


def test_markup_in_a_topic_and_a_payload_is_text(opened: Opened, server: PageServer) -> None:
    topic = f"hostile/{MARKUP}"
    server.publish(topic, SCRIPT)
    opened.go("#topics?topic=hostile")
    opened.open_branches("hostile")
    expect(opened.row(topic).locator(".name")).to_have_text(MARKUP)
    opened.row(topic).click()
    expect(opened.page.locator("#topic-pane .payload")).to_have_text(SCRIPT)
    expect(opened.page.locator("#topic-pane h2")).to_have_text(topic)
    opened.page.locator("#search").fill("onerror")
    expect(opened.row(topic)).to_be_visible()
    assert own_images(opened) == 0
    assert (
        opened.page.locator("#tree b, #topic-pane b, #topic-pane svg:not(.plot svg), #topic-pane script").count() == 0
    )


def test_markup_in_a_client_id_is_text(opened: Opened, server: PageServer) -> None:
    client = server.client(MARKUP, clean=False)
    opened.go("#clients")
    expect(opened.page.locator("#view-clients .client", has_text=MARKUP)).to_be_visible()
    opened.page.get_by_role("button", name=f"Disconnect {MARKUP}").click()
    expect(opened.page.get_by_role("dialog")).to_contain_text(f"Disconnect {MARKUP}?")
    opened.press("Escape")
    opened.page.get_by_role("link", name="Sessions").click()
    expect(opened.page.locator("#view-sessions .client", has_text=MARKUP).first).to_be_visible()
    assert own_images(opened) == 0
    client.disconnect()
    client.loop_stop()


def test_invisible_characters_are_shown_as_escapes(opened: Opened, server: PageServer) -> None:
    server.publish("hostile/a\u202eb", "x\u202ey\x1b[31m")
    opened.go("#topics?topic=hostile")
    opened.open_branches("hostile")
    row = opened.page.locator("#tree .row").filter(has_text="a\\u202eb")
    expect(row.locator(".value")).to_have_text("x\\u202ey\\u001b[31m")


def test_bytes_that_are_not_text_are_shown_in_hexadecimal(opened: Opened, server: PageServer) -> None:
    server.publish("bytes/broken", b"\xff\xfeabc\xc3(")
    opened.go("#topics?topic=bytes/broken")
    expect(opened.page.locator("#topic-pane .hex")).to_contain_text("ff fe 61 62 63 c3 28")
    expect(opened.page.get_by_role("button", name="Text")).to_have_count(0)
    expect(opened.value("bytes/broken")).to_contain_text("ff fe 61")


def test_images_are_shown_by_their_first_bytes_and_svg_never(opened: Opened, server: PageServer) -> None:
    server.publish("bytes/png", PIXEL)
    server.publish("bytes/svg", "<svg xmlns='http://www.w3.org/2000/svg' onload='alert(4)'/>")
    opened.go("#topics?topic=bytes/png")
    image = opened.page.locator("img.payload-image")
    expect(image).to_be_visible()
    assert image.evaluate("image => image.decode().then(() => image.naturalWidth)") == 1
    assert str(image.get_attribute("src")).startswith("blob:")
    opened.row("bytes/svg").click()
    expect(opened.page.locator("#topic-pane .payload")).to_contain_text("<svg")
    expect(opened.page.get_by_role("button", name="Image")).to_have_count(0)


def test_a_payload_of_16_mib_is_cut_and_shown_whole_on_demand(opened: Opened, server: PageServer) -> None:
    size = 16 * 1024 * 1024 - 64
    server.publish("bytes/large", b"0123456789abcdef" * (size // 16))
    opened.go("#topics?topic=bytes/large")
    expect(opened.page.locator("#topic-pane .hint", has_text="64.0 KiB of 16.0 MiB are shown.")).to_be_visible()
    opened.row("bytes").locator(".twist").click()
    expect(opened.row("bytes/large")).to_have_count(0)
    opened.page.get_by_role("button", name="Load all of 16.0 MiB").click()
    expect(opened.page.get_by_role("button", name="Load all of 16.0 MiB")).to_have_count(0)
    assert opened.page.locator("#topic-pane").evaluate("pane => pane.textContent.length") < 200_000


def test_the_policy_keeps_scripts_of_others_out(opened: Opened) -> None:
    opened.go()
    expect(opened.row("plant")).to_be_visible()
    ran = opened.page.evaluate(
        """() => new Promise((resolve) => {
            addEventListener("securitypolicyviolation", (event) => resolve(event.effectiveDirective));
            const script = document.createElement("script");
            script.textContent = "window.ran = true";
            document.body.append(script);
        })"""
    )
    assert ran == "script-src-elem"
    assert opened.page.evaluate("window.ran") is None
    opened.wrong.clear()  # the browser has said that it refused the script
