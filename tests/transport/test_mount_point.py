"""The mount point of a listener: its clients live below a prefix that they do not see, and everybody else does."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embermq import Broker
from embermq.config import load
from embermq.embed import BrokerThread
from embermq.protocol.packets import Packet, Subscribe, SubscriptionRequest, Unsubscribe
from embermq.transport.mount_point import MountPoint
from support import wire_v5
from support.wire import Will, Wire
from support.wire_v5 import ALIAS_MAXIMUM, RESPONSE_TOPIC, WireV5

SERVER = """
[store]
directory = "{data}"
[access]
acl_file = "{data}.list"
[[listeners]]
kind = "tcp"
name = "whole"
port = 0
[[listeners]]
kind = "tcp"
name = "plant"
port = 0
mount_point = "plant-7/"
"""
RIGHTS = "anonymous\nread,write,retain plant-7/#\nread,write,retain other/#\nread,write,retain plant-7\n"


@pytest.fixture
def ports(tmp_path: Path) -> Iterator[tuple[int, int]]:
    data = tmp_path / "data"
    Path(f"{data}.list").write_text(RIGHTS)
    file = tmp_path / "ember.toml"
    file.write_text(SERVER.format(data=data))
    with BrokerThread(Broker.from_settings(load(file))) as broker:
        whole, plant = (each.port for each in broker.listeners())
        yield whole, plant


def joined(port: int, client_id: str, *filters: str, **options: object) -> Wire:
    wire = Wire(("127.0.0.1", port))
    assert wire.connect(client_id, **options).return_code == 0
    if filters:
        assert set(wire.subscribe(*filters)) <= {0, 1, 2}
    return wire


def names(wire: Wire | WireV5) -> list[str]:
    return [message.topic_name for message in wire.take_messages()]


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_messages_pass_with_and_without_the_prefix(ports: tuple[int, int], qos: int) -> None:
    with joined(ports[0], "w", "plant-7/#", "other/#") as whole, joined(ports[1], "p", "#", "+/1") as plant:
        plant.publish("a/1", b"", qos=qos)
        assert names(whole) == ["plant-7/a/1"]
        whole.publish("plant-7/b/2", b"", qos=qos)
        whole.publish("other/b", b"", qos=qos)
        assert set(names(plant)) == {"a/1", "b/2"}
        plant.unsubscribe("#", "+/1")
        plant.publish("a/1", b"", qos=qos)
        assert names(plant) == []


def test_retained_messages_of_a_large_tree(ports: tuple[int, int]) -> None:
    with joined(ports[0], "w") as whole, joined(ports[1], "p") as plant:
        for number in range(60):
            whole.publish(f"plant-7/t/{number}", b"x", qos=1, retain=True)
        whole.publish("other/t", b"x", qos=1, retain=True)
        plant.subscribe(("#", 0))
        assert sorted(names(plant)) == sorted(f"t/{number}" for number in range(60))
        plant.publish("t/0", b"", qos=1, retain=True)
    with joined(ports[1], "q", "+/0", "t/1") as plant:
        assert names(plant) == ["t/1"]


def test_wills_shares_and_sessions(ports: tuple[int, int]) -> None:
    joined(ports[1], "p", "s/#", clean=False).disconnect()
    with joined(ports[0], "w", "plant-7/will") as whole, joined(ports[1], "m", "$share/g/s/#") as member:
        joined(ports[1], "lost", will=Will("will", b"gone")).drop()
        assert whole.receive_message()[:2] == ("plant-7/will", b"gone")
        whole.publish("plant-7/s/1", b"", qos=1)
        assert names(member) == ["s/1"]
    with Wire(("127.0.0.1", ports[1])) as plant:
        assert plant.connect("p", clean=False).session_present
        assert names(plant) == ["s/1"]


def test_history(ports: tuple[int, int]) -> None:
    with joined(ports[0], "w") as whole, joined(ports[1], "p") as plant:
        whole.publish("plant-7/h/1", b"one", qos=1, retain=True)
        whole.publish("other/h", b"", qos=1)
        plant.subscribe("$replay/../h/#")
        assert plant.receive_message()[:2] == ("h/1", b"one")
        plant.publish("h/2", b"two", qos=1)
        assert plant.receive_message()[:2] == ("h/2", b"two")
        plant.subscribe("$asof/now/+/1")
        assert plant.receive_message()[:2] == ("h/1", b"one")
        plant.unsubscribe("$replay/../h/#")
        plant.publish("h/2", b"", qos=1)
        plant.assert_silent()


def test_rights_are_of_whole_topics_and_nothing_else_is_reached(ports: tuple[int, int]) -> None:
    with Wire(("127.0.0.1", ports[1])) as plant, Wire(("127.0.0.1", ports[0])) as whole:
        assert plant.connect("p").return_code == whole.connect("w").return_code == 0
        assert plant.subscribe("#", "$SYS/#", "$share/g/#", "$share/g/$SYS/#", "plant-7/#") == [2] * 5
        assert plant.subscribe("$replay/x/#", "$share/", "$asof/now/$share/g/#", "$replay/now") == [0x80] * 4
        assert whole.subscribe("#") == [0x80]
        plant.assert_silent()


def test_a_message_to_the_level_above_comes_as_it_is(ports: tuple[int, int]) -> None:
    with joined(ports[0], "w") as whole, joined(ports[1], "p", "#") as plant:
        whole.publish("plant-7", b"", qos=1)
        assert names(plant) == ["plant-7"]


def test_requests_and_aliases_of_mqtt_5(ports: tuple[int, int]) -> None:
    with WireV5(("127.0.0.1", ports[0])) as whole, WireV5(("127.0.0.1", ports[1])) as plant:
        whole.connect("w")
        plant.connect("p", properties=[(ALIAS_MAXIMUM, 5)])
        whole.subscribe("plant-7/ask")
        plant.subscribe("answers/#")
        plant.publish("ask", b"?", qos=1, properties=[(RESPONSE_TOPIC, "answers/1")])
        (asked,) = whole.take_messages()
        assert asked.valued(RESPONSE_TOPIC) == ["plant-7/answers/1"]
        for _ in range(2):
            whole.publish("plant-7/answers/1", b"!", qos=1, properties=[(RESPONSE_TOPIC, "plant-7/more")])
        first, second = plant.take_messages()
        assert first.topic_name == "answers/1"
        assert second.topic_name in ("", "answers/1")
        assert first.valued(RESPONSE_TOPIC) == second.valued(RESPONSE_TOPIC) == ["more"]


@pytest.mark.parametrize("what", ["publish", "subscribe", "will"])
def test_a_topic_that_is_too_long_with_the_prefix_ends_its_connection_only(ports: tuple[int, int], what: str) -> None:
    longest = "x" * 65_530
    with joined(ports[1], "other", "#") as other, WireV5(("127.0.0.1", ports[1])) as plant:
        if what == "will":
            plant.send(wire_v5.connect("p", will=wire_v5.Will(longest, b"")))
            plant.assert_refused(0x90)
        else:
            plant.connect("p")
            plant.send(
                wire_v5.publish(longest, qos=1, packet_id=1)
                if what == "publish"
                else wire_v5.subscribe(1, (longest, 1))
            )
            plant.assert_disconnected(0x90)
        other.publish("a", b"", qos=1)
        assert names(other) == ["a"]


LEVELS = st.text("a+#/$1.-", max_size=6)


@given(
    st.sampled_from(["", "$share/", "$share/g/", "$replay/", "$replay/now/", "$replay/../../", "$asof/-1h/"]), LEVELS
)
def test_no_filter_reaches_what_is_not_below_the_prefix(start: str, rest: str) -> None:
    """Whatever the form: the prefix is added once, before what the filter is about, or the filter is refused."""
    from embermq.broker.history.history_filter import is_history, read_history_filter
    from embermq.protocol.topics import filter_of_share, is_shared

    def plain(topic_filter: str) -> str:
        if is_shared(topic_filter):
            return filter_of_share(topic_filter)
        if not is_history(topic_filter):
            return topic_filter
        try:
            return read_history_filter(topic_filter, 1 << 50).topic_filter
        except ValueError:
            return ""

    mount = MountPoint("m/")
    topic_filter = start + rest
    request: Packet = Subscribe(1, [SubscriptionRequest(topic_filter, 1)])
    (moved, given_up) = mount.received([request, Unsubscribe(2, [topic_filter])])
    assert isinstance(moved, Subscribe) and isinstance(given_up, Unsubscribe)
    found = moved.requests[0].topic_filter
    assert given_up.topic_filters == [found]
    asked = plain(topic_filter)
    assert plain(found) == ("m/" + asked if asked else "")
