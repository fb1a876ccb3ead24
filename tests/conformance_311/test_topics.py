"""Topic names and topic filters (4.7): what is valid, and what matches what."""

from collections.abc import Callable

import pytest

from support import wire
from support.clauses import v311
from support.wire import Join


@v311("MQTT-4.7.1-1", "MQTT-3.3.2-2")
@pytest.mark.parametrize("topic_name", ["#", "+", "a/#", "a/+/b", "+/a", "a#", "a+b"])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_wildcard_in_a_topic_name_ends_the_connection(join: Join, topic_name: str, qos: int) -> None:
    client = join()
    client.send(wire.publish(topic_name, b"x", qos=qos, packet_id=1))
    client.assert_closed()


@v311("MQTT-4.7.1-2")
@pytest.mark.parametrize("topic_filter", ["a#", "#a", "a/#/b", "#/a", "a/b#", "##", "#/#", "a/#/", "#+", "+#"])
@pytest.mark.parametrize("make", [lambda f: wire.subscribe(1, (f, 0)), lambda f: wire.subscribe(1, ("a", 0), (f, 0))])
def test_a_misplaced_multi_level_wildcard_ends_the_connection(
    join: Join, topic_filter: str, make: Callable[[str], bytes]
) -> None:
    client = join()
    client.send(make(topic_filter))
    client.assert_closed()


@v311("MQTT-4.7.1-3")
@pytest.mark.parametrize("topic_filter", ["a+", "+a", "a/+b", "a+/b", "++", "+/a+", "a/b+/#"])
def test_a_single_level_wildcard_that_shares_its_level_ends_the_connection(join: Join, topic_filter: str) -> None:
    client = join()
    client.send(wire.subscribe(1, (topic_filter, 0)))
    client.assert_closed()


# A filter, names that it matches, names that it does not. Level X stands for the test's own word.
MATCHING = [
    pytest.param(
        "X/#", ["X", "X/", "X/a", "X/a/b", "X//"], ["Xa", "/X"], id="#-and-its-parent", marks=v311("MQTT-4.7.1-2")
    ),
    pytest.param("X/a/#", ["X/a", "X/a/b/c"], ["X", "X/ab", "X/b"], id="#-behind-levels", marks=v311("MQTT-4.7.1-2")),
    pytest.param("X/+", ["X/", "X/a", "X/ "], ["X", "X/a/b", "X//"], id="+-last", marks=v311("MQTT-4.7.1-3")),
    pytest.param("+/X", ["/X", "a/X"], ["X", "a/b/X", "//X"], id="+-first", marks=v311("MQTT-4.7.1-3")),
    pytest.param("X/+/c", ["X/a/c", "X//c"], ["X/c", "X/a/b/c"], id="+-between", marks=v311("MQTT-4.7.1-3")),
    pytest.param("X/+/+", ["X/a/b", "X//"], ["X/a", "X/a/b/c"], id="two-+", marks=v311("MQTT-4.7.1-3")),
    pytest.param("X/+/#", ["X/a", "X/a/b", "X/"], ["X"], id="+-and-#", marks=v311("MQTT-4.7.1-2", "MQTT-4.7.1-3")),
    pytest.param("+/X/#", ["a/X", "/X", "/X/b"], ["X", "X/b"], id="+-first-and-#", marks=v311("MQTT-4.7.1-2")),
    pytest.param("/X", ["/X"], ["X", "/X/", "X/"], id="leading-slash"),
    pytest.param("X/", ["X/"], ["X", "/X"], id="trailing-slash"),
    pytest.param("X//b", ["X//b"], ["X/b", "X/a/b"], id="empty-level"),
    pytest.param("X/Ab", ["X/Ab"], ["X/ab", "X/AB", "x/Ab"], id="case", marks=v311("MQTT-4.7.3-4")),
    pytest.param("X/a b", ["X/a b"], ["X/a  b", "X/ab"], id="spaces", marks=v311("MQTT-4.7.3-4")),
    pytest.param("X/\u00e9", ["X/\u00e9"], ["X/e\u0301", "X/e"], id="composed", marks=v311("MQTT-4.7.3-4")),
    pytest.param("X/e\u0301", ["X/e\u0301"], ["X/\u00e9"], id="decomposed", marks=v311("MQTT-4.7.3-4")),
    pytest.param("X/\ufb01", ["X/\ufb01"], ["X/fi"], id="ligature", marks=v311("MQTT-4.7.3-4")),
    pytest.param("X/\ufeffa", ["X/\ufeffa"], ["X/a"], id="byte-order-mark", marks=v311("MQTT-1.5.3-3", "MQTT-4.7.3-4")),
    pytest.param("X/\U0001f525", ["X/\U0001f525"], ["X/\U0001f526"], id="four-byte-character"),
    pytest.param("X/a/../b", ["X/a/../b"], ["X/b"], id="dots", marks=v311("MQTT-4.7.3-4")),
]


@pytest.mark.parametrize(("topic_filter", "matching", "other"), MATCHING)
def test_a_filter_matches_these_names_and_not_those(
    join: Join, space: str, topic_filter: str, matching: list[str], other: list[str]
) -> None:
    reader, writer = join(), join()
    reader.subscribe((topic_filter.replace("X", space), 0))
    for name in matching + other:
        writer.publish(name.replace("X", space), b"live", retain=True)
    expected = [name.replace("X", space) for name in matching]
    assert [m.topic_name for m in reader.take_messages()] == expected
    # A retained message is found by the same rules.
    late = join()
    late.subscribe((topic_filter.replace("X", space), 0))
    assert sorted(m.topic_name for m in late.take_messages()) == sorted(expected)
    for name in matching + other:
        writer.publish(name.replace("X", space), b"", retain=True)


@v311("MQTT-1.5.3-3")
def test_a_byte_order_mark_is_kept_at_the_start_of_a_topic_name(join: Join, space: str) -> None:
    reader = join()
    reader.subscribe(f"\ufeff{space}/+")
    join().publish(b"\xef\xbb\xbf" + f"{space}/\ufeff".encode(), b"hi")
    assert wire.message_of(reader.receive()).topic_name.encode() == b"\xef\xbb\xbf%b/\xef\xbb\xbf" % space.encode()


@v311("MQTT-4.7.2-1")
@pytest.mark.parametrize("topic_filter", ["#", "+/{}", "+/#", "+/+", "+/{}/#"])
def test_a_leading_wildcard_matches_no_dollar_topic(join: Join, space: str, topic_filter: str) -> None:
    reader, writer = join(), join()
    reader.subscribe((topic_filter.format(space), 0))
    writer.publish(f"$own/{space}", b"hidden", retain=True)
    writer.publish(f"own/{space}", b"seen", retain=True)
    messages = [m for m in reader.take_messages() if space in m.topic_name]
    assert [m.topic_name for m in messages] == [f"own/{space}"]
    late = join()
    late.subscribe((topic_filter.format(space), 0))
    assert not [m for m in late.take_messages() if m.topic_name.startswith("$")]
    writer.publish(f"own/{space}", b"", retain=True)
    writer.publish(f"$own/{space}", b"", retain=True)


@v311("MQTT-4.7.2-1")
def test_the_state_of_the_server_is_found_only_by_its_name(join: Join) -> None:
    reader = join()
    reader.subscribe(("$SYS/#", 0))
    assert all(m.topic_name.startswith("$SYS/") for m in reader.take_messages())
    other = join()
    other.subscribe(("#", 0), ("+/#", 0), ("+/broker/+", 0))
    assert not [m for m in other.take_messages() if m.topic_name.startswith("$")]


def test_a_dollar_inside_a_name_is_nothing_special(join: Join, space: str) -> None:
    reader = join()
    reader.subscribe((f"{space}/#", 0), ("+/$b", 0))
    join().publish(f"{space}/$a", b"hi")
    assert reader.receive_message().topic_name == f"{space}/$a"


@v311("MQTT-4.7.3-1")
@pytest.mark.parametrize(
    "bad",
    [wire.publish("", b"x"), wire.subscribe(1, ("", 0)), wire.subscribe(1, ("a", 0), ("", 0)), wire.unsubscribe(1, "")],
    ids=["publish", "subscribe", "second filter", "unsubscribe"],
)
def test_an_empty_name_or_filter_ends_the_connection(join: Join, bad: bytes) -> None:
    client = join()
    client.send(bad)
    client.assert_closed()


@v311("MQTT-4.7.3-1")
def test_a_name_of_one_character_works(join: Join) -> None:
    client = join()
    client.subscribe("/")
    client.publish("/", b"slash")
    assert client.receive_message()[:2] == ("/", b"slash")


@v311("MQTT-4.7.3-2", "MQTT-1.5.3-2")
@pytest.mark.parametrize(
    "bad",
    [wire.publish("a\0b", b"x"), wire.subscribe(1, ("a/\0", 0)), wire.unsubscribe(1, "\0")],
    ids=["publish", "subscribe", "unsubscribe"],
)
def test_a_null_character_ends_the_connection(join: Join, bad: bytes) -> None:
    client = join()
    client.send(bad)
    client.assert_closed()


@v311("MQTT-4.7.3-3")
def test_the_longest_name_and_filter_work(join: Join, space: str) -> None:
    name = f"{space}/" + "x" * (65_535 - len(space) - 1)
    client = join()
    assert client.subscribe((name, 1)) == [1]
    client.publish(name, b"long", qos=1)
    assert client.receive_message()[:2] == (name, b"long")
    client.unsubscribe(name)


@v311("MQTT-4.7.3-3")
def test_a_name_of_nothing_but_slashes_harms_nobody(join: Join) -> None:
    """As many levels as a name can have: served, or refused by the limit on levels, but never a broken server."""
    bystander, client = join(), join()
    client.send(wire.publish("/" * 65_535, b"x", retain=True), wire.packet(wire.PINGREQ, 0))
    try:
        client.expect(wire.PINGRESP)
    except ConnectionError:
        client = join()
    client.send(wire.subscribe(1, ("/" * 65_535, 0)))
    try:
        assert client.await_reply(wire.SUBACK, 1).body[2] in (0, 0x80)
    except ConnectionError:
        client = join()
    client.send(wire.publish("/" * 65_535, b"", retain=True))
    bystander.assert_silent()


@v311("MQTT-4.7.3-4")
def test_levels_of_a_filter_are_kept_apart_from_similar_ones(join: Join, space: str) -> None:
    readers = {f: join() for f in (f"{space}/a", f"{space}/a/", f"{space}//a", f"/{space}/a", f"{space}/A")}
    for topic_filter, reader in readers.items():
        reader.subscribe((topic_filter, 0))
    writer = join()
    for topic_name in readers:
        writer.publish(topic_name, topic_name.encode())
    for topic_filter, reader in readers.items():
        assert [m.topic_name for m in reader.take_messages()] == [topic_filter]
