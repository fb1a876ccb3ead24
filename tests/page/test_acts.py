"""What an operator does to retained messages: publish, edit, set back, undo, export and import."""

import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, expect

from support.page.browser import Opened
from support.page.served import PageServer


def retained(server: PageServer, topic_filter: str) -> dict[str, Any]:
    found = server.ask(f"retained?filter={topic_filter.replace('#', '%23').replace('+', '%2B')}")["items"]
    return {each["topic"]: each for each in found}


def payloads(server: PageServer, topic_filter: str) -> dict[str, str]:
    return {topic: each["payload"] for topic, each in retained(server, topic_filter).items()}


def text_now() -> str:
    return datetime.fromtimestamp(time.time(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def dialog(opened: Opened) -> Locator:
    return opened.page.get_by_role("dialog")


def form(opened: Opened) -> Locator:
    opened.page.get_by_text("Publish a message", exact=True).click()
    return opened.page.locator("form.publish")


def test_a_message_is_published_with_its_properties_and_not_retained(opened: Opened, server: PageServer) -> None:
    server.publish("act/form", "1")
    opened.go("#topics?topic=act/form")
    published = form(opened)
    published.get_by_label("Payload", exact=True).fill("live")
    published.get_by_label("retain").uncheck()
    published.get_by_text("Properties", exact=True).click()
    published.get_by_label("Content type").fill("text/plain")
    published.get_by_label("User properties").fill("a=b=c\nd=")
    published.get_by_role("button", name="Publish", exact=True).click()
    expect(opened.page.locator("#notice")).to_contain_text("Published to act/form.")
    assert payloads(server, "act/form") == {"act/form": "1"}
    newest = server.ask("topic/values?topic=act/form")["items"][0]
    assert (newest["payload"], newest["retain"], newest["client_id"]) == ("live", False, "$operator/ann")
    assert newest["properties"] == {"content_type": "text/plain", "user_properties": [["a", "b=c"], ["d", ""]]}


def test_json_is_checked_and_a_file_is_published_as_it_is(opened: Opened, server: PageServer, tmp_path: Path) -> None:
    server.publish("act/kinds", "1")
    opened.go("#topics?topic=act/kinds")
    published = form(opened)
    published.get_by_role("button", name="JSON").click()
    published.get_by_label("Payload", exact=True).fill('{"a": }')
    published.get_by_role("button", name="Publish retained").click()
    expect(opened.page.locator("#notice")).to_contain_text("Not published: ")
    assert payloads(server, "act/kinds") == {"act/kinds": "1"}
    published.get_by_role("button", name="File").click()
    (tmp_path / "bytes").write_bytes(bytes(range(256)))
    published.get_by_label("File", exact=True).set_input_files(tmp_path / "bytes")
    published.get_by_role("button", name="Publish retained").click()
    expect(opened.page.locator("#topic-pane .facts-part")).to_contain_text("256 B")
    assert retained(server, "act/kinds")["act/kinds"]["payload_bytes"] == 256


def test_a_retained_value_is_edited_and_the_edit_is_undone(opened: Opened, server: PageServer) -> None:
    server.ask("retained/set", {"messages": [{"topic": "act/edit", "payload": '{"set": 20}', "qos": 2}]})
    opened.go("#topics?topic=act/edit")
    expect(opened.page.locator("#topic-pane .payload")).to_be_visible()
    published = form(opened)
    published.get_by_role("button", name="Edit the retained value").click()
    payload = published.get_by_label("Payload", exact=True)
    expect(payload).to_have_value('{"set": 20}')
    payload.fill('{"set": 25}')
    published.get_by_role("button", name="Publish retained").click()
    expect(opened.page.locator("#topic-pane .payload")).to_contain_text("25")
    assert retained(server, "act/edit")["act/edit"]["qos"] == 2
    opened.page.locator("#notice").get_by_role("button", name="Undo").click()
    expect(dialog(opened).locator(".changes li")).to_have_text(['~act/edit{"set": 25} → {"set": 20}'])
    dialog(opened).get_by_role("button", name="Set 1 topic back").click()
    expect(opened.page.locator("#topic-pane .payload")).to_contain_text("20")
    expect(opened.page.locator(".history-client").first).to_have_text("ann (operator, over HTTP)")


def test_a_branch_is_set_back_with_a_preview_and_that_is_undone(opened: Opened, server: PageServer) -> None:
    for topic, payload in (("a", "1"), ("b", "1"), ("same", "1")):
        server.publish(f"act/branch/{topic}", payload)
    then = text_now()
    for topic, payload in (("a", "2"), ("b", ""), ("new", "2")):
        server.publish(f"act/branch/{topic}", payload)
    opened.go(f"#topics?topic=act/branch&at={then}")
    opened.page.get_by_role("button", name="Set this branch back to this instant").click()
    asked = dialog(opened)
    expect(asked).to_contain_text("2 topics set, 1 cleared; 1 are as they were.")
    expect(asked.locator(".changes li")).to_have_text(
        ["~act/branch/a2 → 1", "+act/branch/bnothing → 1", "-act/branch/new2 → nothing"]
    )
    assert payloads(server, "act/branch/#") == {"act/branch/a": "2", "act/branch/new": "2", "act/branch/same": "1"}
    asked.get_by_role("button", name="Set 3 topics back").click()
    expect(opened.page.locator("#notice")).to_contain_text("3 topics set back.")
    expect(opened.page.locator("body")).to_have_attribute("data-time", "live")
    assert payloads(server, "act/branch/#") == dict.fromkeys(("act/branch/a", "act/branch/b", "act/branch/same"), "1")
    opened.page.locator("#notice").get_by_role("button", name="Undo").click()
    dialog(opened).get_by_role("button", name="Set 3 topics back").click()
    expect(opened.page.locator("#notice")).to_contain_text("3 topics set back.")
    assert payloads(server, "act/branch/#") == {"act/branch/a": "2", "act/branch/new": "2", "act/branch/same": "1"}


def test_a_cleared_branch_comes_back_by_undo(opened: Opened, server: PageServer) -> None:
    for number in range(3):
        server.publish(f"act/cleared/{number}", "x")
    opened.go("#topics?topic=act/cleared")
    opened.page.get_by_role("button", name="Clear this branch").click()
    dialog(opened).get_by_role("button", name="Clear 3").click()
    opened.page.locator("#notice").get_by_role("button", name="Undo").click()
    dialog(opened).get_by_role("button", name="Set 3 topics back").click()
    expect(opened.page.locator("#notice")).to_contain_text("3 topics set back.")
    assert len(payloads(server, "act/cleared/#")) == 3


def test_what_was_exported_is_imported_again(opened: Opened, server: PageServer, tmp_path: Path) -> None:
    hostile = {"=1-1": "=cmd", 'a,"b"': 'x,"y"\nz', "number": "-5", "apostrophe": "'=x", "plain": "1"}
    messages = [{"topic": f"act/moved/{name}", "payload": payload, "qos": 1} for name, payload in hostile.items()
                ]  # fmt: skip
    messages.append({"topic": "act/moved/bytes", "payload_base64": "/wA=", "properties_base64": "AwABdA=="})
    server.ask("retained/set", {"messages": messages})
    before = retained(server, "act/moved/#")
    opened.go("#topics?topic=act/moved")
    expect(opened.page.locator(".transfer")).to_contain_text("Export this branch")
    for word, suffix in (("JSON", "ndjson"), ("CSV", "csv")):
        with opened.page.expect_download() as download:
            opened.page.get_by_role("button", name=word, exact=True).last.click()
        path = tmp_path / f"exported.{suffix}"
        download.value.save_as(path)
        assert download.value.suggested_filename == f"act-moved-now.{suffix}"
        server.ask("retained/clear", {"filter": "act/moved/#"})
        with opened.page.expect_file_chooser() as chooser:
            opened.page.get_by_role("button", name="Import a file …").click()
        chooser.value.set_files(path)
        dialog(opened).get_by_role("button", name="Retain 6").click()
        expect(opened.page.locator("#notice")).to_contain_text("6 messages retained.")
        for topic, message in retained(server, "act/moved/#").items():
            for name in ("payload", "payload_base64", "qos", "properties_base64"):
                assert message.get(name) == before[topic].get(name), (word, topic, name)
        assert len(retained(server, "act/moved/#")) == len(before)
    assert "'=cmd" in path.read_text() and "\n-5" not in path.read_text()


def test_an_export_as_of_an_instant_has_what_was_then(opened: Opened, server: PageServer, tmp_path: Path) -> None:
    server.publish("act/past/a", "1")
    then = text_now()
    server.publish("act/past/a", "2")
    opened.go(f"#topics?topic=act/past&at={then}", server.viewer)
    expect(opened.page.locator(".transfer")).to_contain_text("Export this branch")
    with opened.page.expect_download() as download:
        opened.page.get_by_role("button", name="JSON", exact=True).last.click()
    download.value.save_as(tmp_path / "exported")
    lines = [json.loads(line) for line in (tmp_path / "exported").read_text().splitlines()]
    assert [(each["topic"], each["payload"]) for each in lines] == [("act/past/a", "1")]
    expect(opened.page.get_by_role("button", name="Set this")).to_have_count(0)


def test_a_message_is_published_to_a_topic_that_there_is_not_yet(opened: Opened, server: PageServer) -> None:
    opened.go("#topics")
    published = form(opened)
    expect(published.get_by_role("button", name="Edit the retained value")).to_have_count(0)
    published.get_by_label("Topic", exact=True).fill("act/new/one")
    published.get_by_label("Payload", exact=True).fill("7")
    published.get_by_role("button", name="Publish retained").click()
    expect(opened.page.locator("#notice")).to_contain_text("Published to act/new/one and retained.")
    assert payloads(server, "act/new/one") == {"act/new/one": "7"}
    expect(opened.row("act")).to_be_visible()


def test_the_form_is_one_click_away_from_a_long_history(opened: Opened, server: PageServer) -> None:
    opened.go("#topics?topic=plant/hamburg/line-1/press/status")
    expect(opened.page.locator("#topic-pane .history")).to_be_visible()
    expect(opened.page.locator("#topic-pane")).to_contain_text("To set it back to what it was, move the slider")
    opened.page.get_by_role("button", name="Publish …").click()
    expect(opened.page.locator("form.publish").get_by_label("Payload", exact=True)).to_be_focused()
    expect(opened.page.locator("form.publish").get_by_label("Payload", exact=True)).to_be_in_viewport()
    opened.page.locator("#handle-at").focus()
    opened.press("PageDown")
    expect(opened.page.get_by_role("button", name="Publish …")).to_be_hidden()


def test_a_preview_shows_where_long_payloads_differ(opened: Opened, server: PageServer) -> None:
    long = "the-same-in-both-of-them-" * 6
    server.publish("act/long", json.dumps({"note": long, "speed": 1, "more": long}))
    then = text_now()
    server.publish("act/long", json.dumps({"note": long, "speed": 2, "more": long}))
    opened.go(f"#topics?topic=act/long&at={then}")
    opened.page.get_by_role("button", name="Set this topic back").click()
    change = dialog(opened).locator(".changes li")
    expect(change).to_contain_text('"speed": 2')
    expect(change).to_contain_text('"speed": 1')


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "the first line has no column named topic"),
        (bytes(range(256)) * 50, "the first line has no column named topic"),
        (b"\x89PNG\r\n\x1a\n", "the first line has no column named topic"),
        (b"[null]", "message 1 has no topic"),
        (b"[" * 20_000, "Not imported: "),
        (
            b'{"topic": "act/ok", "payload": "1"}\n{"topic": "act/ok", "payload": 5}',
            "message 2 has no topic, or no payload",
        ),
        (b'{"topic": "act/ok"', "Not imported: "),
        (b"topic,payload\n", "the file has no message"),
        (b'"topic,payload\nact/ok,1', "the first line has no column named topic"),
    ],
)
def test_a_file_of_garbage_is_not_imported(opened: Opened, tmp_path: Path, content: bytes, sentence: str) -> None:
    (tmp_path / "garbage.ndjson").write_bytes(content)
    opened.go("#topics")
    with opened.page.expect_file_chooser() as chooser:
        opened.page.get_by_role("button", name="Import a file …").click()
    chooser.value.set_files(tmp_path / "garbage.ndjson")
    expect(opened.page.locator("#notice")).to_contain_text(sentence)
    assert payloads(opened.server, "act/ok") == {}


def test_an_import_that_ends_half_way_says_so_and_can_be_undone(
    opened: Opened, server: PageServer, tmp_path: Path
) -> None:
    lines = [json.dumps({"topic": f"act/half/{number}", "payload": "x"}) for number in range(1_500)]
    lines[1_200] = json.dumps({"topic": "act/half/wrong", "payload": "x", "qos": 7})
    (tmp_path / "half.ndjson").write_text("\n".join(lines))
    opened.go("#topics")
    with opened.page.expect_file_chooser() as chooser:
        opened.page.get_by_role("button", name="Import a file …").click()
    chooser.value.set_files(tmp_path / "half.ndjson")
    dialog(opened).get_by_role("button", name="Retain 1500").click()
    notice = opened.page.locator("#notice")
    expect(notice).to_contain_text("1,000 messages retained. The other 500 are not: messages.200.qos")
    notice.get_by_role("button", name="Undo").click()
    dialog(opened).get_by_role("button", name="Set 1,000 topics back").click()
    expect(notice).to_contain_text("1,000 topics set back.")
    assert payloads(server, "act/half/#") == {}
