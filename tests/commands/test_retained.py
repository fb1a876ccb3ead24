"""`ember retained` on a running server and on a stopped one's directory: the same answers from both."""

import json
import random
import socket
import threading
import time
from base64 import b64encode
from pathlib import Path

import pytest

from embermq.transport.sockets.addresses import unix_address
from support.ember_command import DataPlace, ember, sentence, server, wire
from support.server_process import ServerProcess

BINARY = bytes(range(256))


def now_s() -> str:
    """An instant between what was done before and what is done next."""
    before = time.time_ns() // 1000
    while time.time_ns() // 1000 == before:
        pass
    instant = time.time_ns() // 1000
    while time.time_ns() // 1000 == instant:
        pass
    return f"{instant // 1_000_000}.{instant % 1_000_000:06}"


# -- looking and changing ----------------------------------------------------------------------------------------------


def test_what_is_set_is_got_listed_and_cleared(place: DataPlace) -> None:
    assert place.retained("set", "a/b", "hello").code == 0
    place.set("a/c", b"there", "--qos", "2")
    place.set("b", "grüße\n".encode())
    assert place.retained("get", "a/b").text == "hello\n"
    assert place.retained("get", "b", "--raw").printed == "grüße\n".encode()
    assert place.topics("a/#") == {"a/b": "hello", "a/c": "there"}
    assert place.topics() == {"a/b": "hello", "a/c": "there", "b": "grüße\n"}
    assert place.retained("clear", "a/b").text == "cleared 1 message\n"
    assert place.topics() == {"a/c": "there", "b": "grüße\n"}
    absent = place.retained("get", "a/b")
    assert (absent.code, absent.printed, absent.errors) == (1, b"", "ember: nothing is retained on a/b\n")


def test_an_empty_listing_says_so_beside_the_output(place: DataPlace) -> None:
    said = "ember: nothing is retained that matches a/#"
    assert place.retained("ls", "a/#") == (0, b"", f"{said}\n")
    place.set("a/b", b"1")
    assert place.retained("ls", "a/#").errors == ""
    assert place.retained("ls", "a/#", "--as-of", "7d") == (0, b"", f"{said} as of 7d\n")
    assert place.retained("ls", "b", "--json") == (0, b"", "")


def test_columns_stand_below_their_names(place: DataPlace) -> None:
    for topic in ("a", "plant/7/line/3/temperature"):
        place.set(topic, b"payload")
    header, *lines = place.retained("ls").lines
    assert [line.index("payload") for line in lines] == [header.index("PAYLOAD")] * 2


def test_the_history_of_a_topic_has_every_change(place: DataPlace) -> None:
    place.set("a", b"one")
    place.set("a", BINARY)
    place.retained("clear", "a")
    place.set("a", b"\x1b[2J")
    found = [json.loads(line) for line in place.retained("history", "a", "--json").lines]
    assert [each.get("payload") for each in found] == ["one", None, None, "\x1b[2J"]
    assert "payload_base64" in found[1] and "payload_base64" not in found[2]
    assert sorted(each["offset"] for each in found) == [each["offset"] for each in found]
    header, *lines = place.retained("history", "a").lines
    assert header.split() == ["TIME", "(UTC)", "OFFSET", "SIZE", "PAYLOAD"]
    assert lines[2].endswith("(cleared)") and lines[3].endswith("\\x1b[2J")
    absent = place.retained("history", "b")
    assert (absent.code, absent.errors) == (1, "ember: nothing was retained on b as far as the log reaches\n")


def test_a_message_is_shown_with_all_that_is_known_of_it(place: DataPlace) -> None:
    place.set("a/b", b"x" * 500, "--qos", "2")
    header, line = place.retained("ls").lines
    assert header.split() == ["TIME", "(UTC)", "QOS", "SIZE", "TOPIC", "PAYLOAD"]
    instant, qos, size, unit, topic_name, payload = line.split()
    assert (qos, size, unit, topic_name, payload) == ("2", "500", "B", "a/b", "x" * 60 + "…")
    shown = json.loads(place.retained("get", "a/b", "--json").text)
    assert shown.items() >= {"topic": "a/b", "payload": "x" * 500, "qos": 2, "client_id": "$operator"}.items()
    assert place.topics("--as-of", instant) == {"a/b": "x" * 500}  # what is shown is understood
    assert place.topics("--as-of", shown["timestamp"]) == {"a/b": "x" * 500}


def test_nothing_that_a_client_sent_reaches_the_terminal_as_it_is(place: DataPlace) -> None:
    place.set("a\x1b[2Jb", b"\x1b[31mred\x07")
    line = place.retained("ls").lines[1]
    assert line.isprintable() and line.endswith(r"a\x1b[2Jb  \x1b[31mred\x07")
    assert place.retained("get", "a\x1b[2Jb").text == "\\x1b[31mred\\x07\n"
    assert place.retained("clear", "#", "--dry-run").lines == [r"a\x1b[2Jb"]


def test_binary_payloads_come_back_as_they_were(place: DataPlace, tmp_path: Path) -> None:
    place.set("binary", BINARY)
    assert place.retained("get", "binary", "--raw").printed == BINARY
    assert place.topics() == {"binary": b64encode(BINARY).decode()}
    assert place.retained("export", tmp_path / "out").code == 0
    assert place.retained("clear", "binary").code == 0
    assert place.retained("import", tmp_path / "out").text == "imported 1 message\n"
    assert place.retained("get", "binary", "--raw").printed == BINARY


def test_properties_move_with_a_message_and_are_shown(place: DataPlace, tmp_path: Path) -> None:
    properties = {
        "message_expiry_interval": 1_000,
        "payload_format_indicator": 1,
        "content_type": "application/json",
        "response_topic": "r",
        "correlation_data_base64": "/wA=",
        "user_properties": [["unit", "°C"], ["a", ""], ["unit", "°C"]],
    }
    line = json.dumps({"topic": "a", "payload": "{}", "properties": properties})
    file = tmp_path / "messages.jsonl"
    file.write_text(line, encoding="utf-8")
    assert place.retained("import", str(file)).text == "imported 1 message\n"
    shown = json.loads(place.retained("get", "a", "--json").text)["properties"]
    assert 900 < shown.pop("message_expiry_interval") <= 1_000
    assert shown == {name: value for name, value in properties.items() if name != "message_expiry_interval"}
    assert "content_type=application/json, response_topic=r" in place.retained("ls").lines[1]
    place.retained("export", str(tmp_path / "again.jsonl"))
    place.retained("clear", "a")
    assert place.retained("import", str(tmp_path / "again.jsonl")).code == 0
    again = json.loads(place.retained("ls", "--json").text)["properties"]
    assert again.pop("message_expiry_interval") > 0
    assert again == shown


def test_a_payload_of_megabytes(place: DataPlace) -> None:
    payload = random.Random(4).randbytes(5_000_000)
    place.set("large", payload)
    assert place.retained("get", "large", "--raw").printed == payload
    for size_bytes in (17_000_000, 40_000_000):
        too_large = place.retained("set", "larger", "--stdin", stdin=bytes(size_bytes))
        assert "limits.packet_bytes_max" in sentence(too_large)


def test_filters_mean_what_they_mean_in_mqtt(place: DataPlace) -> None:
    for topic_name in ("a", "a/b", "a/b/c", "x/b", "$hidden/b"):
        place.set(topic_name, b"1")
    assert list(place.topics("a/#")) == ["a", "a/b", "a/b/c"]
    assert list(place.topics("+/b")) == ["a/b", "x/b"]
    assert sorted(place.topics("#")) == ["a", "a/b", "a/b/c", "x/b"]
    assert list(place.topics("$hidden/#")) == ["$hidden/b"]
    assert list(place.topics("a/b")) == ["a/b"]
    assert place.topics("nothing/#") == {}


def test_the_past_is_answered_for_any_instant(place: DataPlace) -> None:
    empty = now_s()
    place.set("a", b"1")
    place.set("b", b"1")
    first = now_s()
    place.set("a", b"2")
    place.retained("clear", "b")
    second = now_s()
    place.retained("clear", "a")
    for instant, expected in ((empty, {}), (first, {"a": "1", "b": "1"}), (second, {"a": "2"}), (now_s(), {})):
        assert place.topics("--as-of", instant) == expected
    assert place.retained("get", "a", "--as-of", first).text == "1\n"
    assert place.retained("get", "a", "--as-of", second).text == "2\n"
    gone = place.retained("get", "b", "--as-of", second)
    assert (gone.code, gone.errors) == (1, f"ember: nothing is retained on b as of {second}\n")
    exported = place.retained("export", "-", "--as-of", first)
    assert [json.loads(line)["payload"] for line in exported.lines] == ["1", "1"]


def test_a_dry_run_clears_nothing_and_many_are_asked_about(place: DataPlace) -> None:
    for number in range(3):
        place.set(f"a/{number}", b"1")
    assert place.retained("clear", "a/1", "--dry-run").errors == "1 message would be cleared\n"
    dry = place.retained("clear", "a/+", "--dry-run")
    assert (dry.lines, dry.errors) == (["a/0", "a/1", "a/2"], "3 messages would be cleared\n")
    declined = place.retained("clear", "a/+", stdin=b"n\n")
    assert declined.code == 1 and "Clear 3 retained messages?" in declined.errors
    assert place.retained("clear", "a/+").code == 1  # nobody there to answer
    assert len(place.topics()) == 3
    assert place.retained("clear", "a/0").text == "cleared 1 message\n"
    assert place.retained("clear", "a/1", "--dry-run", "--yes").lines == ["a/1"]
    agreed = place.retained("clear", "a/+", stdin=b"y\n")
    assert agreed.code == 0 and agreed.text.endswith("cleared 2 messages\n")
    assert place.topics() == {}
    assert place.retained("clear", "#", "--yes").text == "cleared 0 messages\n"


# -- export and import -------------------------------------------------------------------------------------------------


def test_ten_thousand_messages_move_and_are_the_same(place: DataPlace, tmp_path: Path) -> None:
    rng = random.Random(10_000)
    lines = []
    for number in range(10_000):
        payload = rng.randbytes(rng.randrange(1, 40)) if number % 3 else f"ü {number}\u2028\n".encode()
        encoded = {"topic": f"t/{number % 100}/{number}", "payload_base64": b64encode(payload).decode()}
        lines.append(json.dumps(encoded | {"qos": number % 3}))
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_text("\n".join(lines))
    assert place.retained("import", first).text == "imported 10000 messages\n"
    exported = place.retained("export", second)
    assert (exported.code, exported.errors) == (0, "exported 10000 messages\n")
    assert second.stat().st_mode & 0o777 == 0o600
    other = tmp_path / "other"
    with server(other):
        assert ember("retained", "import", "-", "--data", other, stdin=second.read_bytes()).code == 0
        again = ember("retained", "export", "-", "--data", other)

    def facts(text: str) -> set[tuple[str, str | None, str | None, int]]:
        found = [json.loads(line) for line in text.split("\n") if line]
        assert len(found) == 10_000
        return {(each["topic"], each.get("payload"), each.get("payload_base64"), each["qos"]) for each in found}

    assert facts(second.read_text()) == facts(again.text)
    shown = {(each[0], each[3]) for each in facts(again.text)}
    assert shown == {(f"t/{number % 100}/{number}", number % 3) for number in range(10_000)}
    assert place.retained("clear", "t/#", "--yes").text == "cleared 10000 messages\n"
    assert place.topics() == {}


def test_a_bad_line_is_named_and_what_is_before_it_stays(place: DataPlace, tmp_path: Path) -> None:
    good = '{"topic": "a", "payload": "1"}\n\n'
    for bad, expected in (
        ("nonsense", "expected a JSON object"),
        ("[]", "expected a JSON object"),
        ('{"payload": "1"}', "expected a topic"),
        ('{"topic": "a/#", "payload": "1"}', "expected a topic name: wildcard in a topic name"),
        ('{"topic": "b"}', "expected payload or payload_base64"),
        ('{"topic": "b", "payload": "1", "payload_base64": "MQ=="}', "expected payload or payload_base64"),
        ('{"topic": "b", "payload": 1}', "expected payload as a text"),
        ('{"topic": "b", "payload": "\\ud800"}', "expected payload as a text"),
        ('{"topic": "b", "payload": ""}', "expected a payload that is not empty"),
        ('{"topic": "b", "payload_base64": "?"}', "expected payload_base64 as base64"),
        ('{"topic": "b", "payload": "1", "qos": 3}', "expected qos 0, 1 or 2"),
        ('{"topic": "b", "payload": "1", "qos": true}', "expected qos 0, 1 or 2"),
    ):
        path = tmp_path / "in"
        path.write_text(good + bad + "\n" + good)
        done = place.retained("import", path)
        assert (done.code, done.text) == (2, "imported 1 message\n")
        assert done.errors == f"ember: {path}, line 3: {expected}\n"
    assert place.topics() == {"a": "1"}


def test_only_topics_that_match_are_imported(place: DataPlace) -> None:
    lines = b"".join(b'{"topic": "%s", "payload": "1"}\n' % topic for topic in (b"a/1", b"b/1", b"a/2", b"$x"))
    assert place.retained("import", "-", "--filter", "a/+", stdin=lines).text == "imported 2 messages\n"
    assert place.topics() == {"a/1": "1", "a/2": "1"}
    assert place.retained("import", "-", stdin=lines).text == "imported 4 messages\n"


def test_an_export_that_fails_leaves_what_was_there(place: DataPlace, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.write_text("precious")
    place.set("a", b"1")
    assert "cannot write" in sentence(place.retained("export", tmp_path / "none" / "out"))
    assert "expected a topic filter" in sentence(place.retained("export", out, "--filter", "a#"))
    assert out.read_text() == "precious"
    assert place.retained("export", out, "--filter", "a").code == 0
    assert json.loads(out.read_text())["payload"] == "1"
    assert [path.name for path in tmp_path.iterdir() if "unfinished" in path.name] == []


@pytest.mark.parametrize("runs", [True, False])
def test_what_a_budget_keeps_out_is_said(runs: bool, tmp_path: Path) -> None:
    config = tmp_path / "ember.toml"
    config.write_text(
        f"[listeners]\nport = 0\n[store]\ndirectory = '{tmp_path}/data'\n"
        "[[store.budgets]]\ntopic_filter = 'a/#'\ncount_max = 3\n"
    )
    (tmp_path / "data" / "log").mkdir(parents=True)
    lines = b"".join(b'{"topic": "a/%d", "payload": "1"}\n' % number for number in range(5))

    def check() -> None:
        done = ember("retained", "import", "-", "--config", config, stdin=lines)
        assert (done.code, done.text) == (1, "imported 3 messages, 2 were refused\n")
        refusal = "a/# holds 3 retained messages of at most 3"
        assert done.errors == f"refused a/3: {refusal}\nrefused a/4: {refusal}\n"
        one = ember("retained", "set", "a/9", "1", "--config", config)
        assert sentence(one) == f"not retained on a/9: {refusal}"
        stat = json.loads(ember("store", "stat", "--json", "--config", config).text)
        assert stat["budgets"] == [{"topic_filter": "a/#", "count": 3, "bytes": 12}]

    if runs:
        with ServerProcess(tmp_path / "data", tmp_path / "log", {"store.budgets": _budgets(config)}):
            check()
    else:
        check()


def _budgets(config: Path) -> str:
    import tomllib

    return json.dumps(tomllib.loads(config.read_text())["store"]["budgets"])


# -- with clients ------------------------------------------------------------------------------------------------------


def test_subscribers_get_what_is_set_and_cleared(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with server(data) as broker, wire(broker, "subscriber") as subscriber:
        subscriber.subscribe(("a/#", 1))
        assert ember("retained", "set", "a/b", "1", "--data", data).code == 0
        message = subscriber.receive_message()
        assert (message.topic_name, message.payload, message.qos, message.retain) == ("a/b", b"1", 1, False)
        assert ember("retained", "clear", "a/b", "--data", data).code == 0
        message = subscriber.receive_message()
        assert (message.topic_name, message.payload, message.qos) == ("a/b", b"", 1)


def test_a_session_is_owed_what_was_set_while_the_server_was_stopped(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with server(data) as broker, wire(broker, "away", clean=False) as client:
        client.subscribe(("a/#", 1))
    assert ember("retained", "set", "a/b", "news", "--data", data).code == 0
    assert ember("store", "stat", "--data", data).text.count("sessions      1") == 1
    with server(data) as broker, wire(broker, "away", clean=False) as client:
        message = client.receive_message()
        assert (message.payload, message.qos, message.retain, message.dup) == (b"news", 1, False, False)
        client.assert_silent()


def test_no_access_rule_binds_who_runs_the_server(tmp_path: Path) -> None:
    (tmp_path / "acl").write_text("anonymous\nread #\n")
    settings = {"access.acl_file": str(tmp_path / "acl"), "access.allow_anonymous": "true"}
    data = tmp_path / "data"
    with ServerProcess(data, tmp_path / "log", settings) as process, process.wire() as client:
        client.connect("c")
        client.publish("a", b"refused", qos=1, retain=True)
        assert ember("retained", "get", "a", "--data", data).code == 1
        assert ember("retained", "set", "a", "taken", "--data", data).code == 0
        client.subscribe("a")
        assert client.receive_message().payload == b"taken"


def test_what_a_command_has_set_survives_a_kill(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with ServerProcess(data, tmp_path / "log") as process:
        for number in range(3):
            assert ember("retained", "set", f"a/{number}", "kept", "--data", data).code == 0
            process.kill()
            if number == 1:
                assert ember("retained", "get", "a/1", "--data", data).text == "kept\n"  # past the socket left behind
            process.start()
        assert len(ember("retained", "ls", "--json", "--data", data).lines) == 3
        assert process.stop() == 0
        assert not (data / "control.sock").exists()


def test_commands_and_clients_do_not_stand_in_each_others_way(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with server(data) as broker:
        lines = b"".join(b'{"topic": "kept/%d", "payload": "%d"}\n' % (n, n) for n in range(5_000))
        stop = threading.Event()
        published: list[int] = []

        def publish() -> None:
            with wire(broker, "busy") as client:
                while not stop.is_set():
                    client.publish(f"load/{len(published) % 50}", b"x" * 100, qos=1, retain=True)
                    published.append(1)

        load = threading.Thread(target=publish)
        load.start()
        try:
            assert ember("retained", "import", "-", "--data", data, stdin=lines).text == "imported 5000 messages\n"
            # A reader that does not read: the listing waits, nobody else does.
            with socket.socket(socket.AF_UNIX) as idle, unix_address(data / "control.sock") as path:
                idle.connect(path)
                idle.sendall(b'{"op": "ls", "filter": "#"}\n' * 50)
                before = len(published)
                for number in range(5):
                    assert ember("retained", "set", f"also/{number}", "1", "--data", data).code == 0
                listed = ember("retained", "ls", "kept/#", "--json", "--data", data)
                assert len(listed.lines) == 5_000
                assert len(published) > before
            assert ember("retained", "clear", "kept/#", "--yes", "--data", data).text == "cleared 5000 messages\n"
        finally:
            stop.set()
            load.join()
        assert len(ember("retained", "ls", "load/#", "--json", "--data", data).lines) == min(50, len(published))
