"""Topic names and topic filters (4.7): what matches what, and nothing is changed on the way."""

import pytest

from support import wire_v5
from support.clauses import v5
from support.wire_v5 import Join

# A filter, names that it matches, names that it does not. Level X stands for the test's own word.
MATCHING = [
    pytest.param("X/#", ["X", "X/", "X/a", "X/a/b", "X//"], ["Xa", "/X"], id="#", marks=v5("MQTT-4.7.1-1")),
    pytest.param("X/+", ["X/", "X/a", "X/ "], ["X", "X/a/b", "X//"], id="+", marks=v5("MQTT-4.7.1-2")),
    pytest.param("+/X/#", ["a/X", "/X", "/X/b"], ["X", "X/b"], id="+-and-#", marks=v5("MQTT-4.7.1-1")),
    pytest.param("/X", ["/X"], ["X", "/X/", "X/"], id="leading-slash", marks=v5("MQTT-4.7.3-4")),
    pytest.param("X//b", ["X//b"], ["X/b", "X/a/b"], id="empty-level", marks=v5("MQTT-4.7.3-4")),
    pytest.param("X/Ab", ["X/Ab"], ["X/ab", "X/AB", "x/Ab"], id="case", marks=v5("MQTT-4.7.3-4")),
    pytest.param("X/a b", ["X/a b"], ["X/a  b", "X/ab"], id="spaces", marks=v5("MQTT-4.7.3-4")),
    pytest.param("X/\u00e9", ["X/\u00e9"], ["X/e\u0301", "X/e"], id="composed", marks=v5("MQTT-4.7.3-4")),
    pytest.param("X/e\u0301", ["X/e\u0301"], ["X/\u00e9"], id="decomposed", marks=v5("MQTT-4.7.3-4")),
    pytest.param("X/\ufb01", ["X/\ufb01"], ["X/fi"], id="ligature", marks=v5("MQTT-4.7.3-4")),
    pytest.param("X/\ufeffa", ["X/\ufeffa"], ["X/a"], id="byte-order-mark", marks=v5("MQTT-1.5.4-3", "MQTT-4.7.3-4")),
    pytest.param("X/a/../b", ["X/a/../b"], ["X/b"], id="dots", marks=v5("MQTT-4.7.3-4")),
]


@pytest.mark.parametrize(("topic_filter", "matching", "other"), MATCHING)
def test_a_filter_matches_these_names_and_not_those(
    join: Join, space: str, topic_filter: str, matching: list[str], other: list[str]
) -> None:
    reader, member, writer = join(), join(), join()
    reader.subscribe((topic_filter.replace("X", space), 0))
    member.subscribe((f"$share/g/{topic_filter}".replace("X", space), 0))
    for name in matching + other:
        writer.publish(name.replace("X", space), b"live", retain=True)
    expected = [name.replace("X", space) for name in matching]
    assert [m.topic_name for m in reader.take_messages()] == expected
    assert [m.topic_name for m in member.take_messages()] == expected
    # A retained message is found by the same rules.
    late = join()
    late.subscribe((topic_filter.replace("X", space), 0))
    assert sorted(m.topic_name for m in late.take_messages()) == sorted(expected)
    for name in matching + other:
        writer.publish(name.replace("X", space), b"", retain=True)


@v5("MQTT-4.7.2-1")
@pytest.mark.parametrize("topic_filter", ["#", "+/{}", "+/#", "+/+", "+/{}/#"])
def test_a_leading_wildcard_matches_no_dollar_topic(join: Join, space: str, topic_filter: str) -> None:
    reader, writer = join(), join()
    reader.subscribe((topic_filter.format(space), 0))
    writer.publish(f"$own/{space}", b"hidden", retain=True)
    writer.publish(f"own/{space}", b"seen", retain=True)
    assert [m.topic_name for m in reader.take_messages() if space in m.topic_name] == [f"own/{space}"]
    late = join()
    late.subscribe((topic_filter.format(space), 0))
    assert not [m for m in late.take_messages() if m.topic_name.startswith("$")]
    writer.publish(f"own/{space}", b"", retain=True)
    writer.publish(f"$own/{space}", b"", retain=True)


@v5("MQTT-4.7.3-3")
def test_the_longest_name_and_filter_work(join: Join, space: str) -> None:
    name = f"{space}/" + "x" * (65_535 - len(space) - 1)
    client = join()
    assert client.subscribe((name, 1)) == [1]
    assert client.publish(name, b"long", qos=1) == 0
    assert client.receive_message()[:2] == (name, b"long")
    assert client.unsubscribe(name) == [0]


@v5("MQTT-4.7.3-3")
def test_a_name_of_nothing_but_slashes_is_refused_by_its_levels(join: Join) -> None:
    bystander, client = join(), join()
    assert client.publish("/" * 65_535, b"x", qos=1, retain=True) == 0x90
    assert client.subscribe(("/" * 65_535, 0)) == [0x8F]
    bystander.assert_silent()


@v5("MQTT-4.7.1-1", "MQTT-4.7.1-2")
@pytest.mark.parametrize("topic_filter", ["a#", "#a", "a/#/b", "##", "a+", "+a", "a/+b", "$share/g/a#"])
def test_a_misplaced_wildcard_ends_the_connection(join: Join, topic_filter: str) -> None:
    client, bystander = join(), join()
    client.send(wire_v5.subscribe(1, ("a", 0), (topic_filter, 0)))
    client.assert_disconnected(0x8F)
    bystander.assert_silent()
