"""Bad input (4.8): the client that sent it is disconnected, its will is published, everybody else goes on."""

from collections.abc import Iterator

import pytest

from support import wire
from support.clauses import v311
from support.wire import (
    CONNACK,
    CONNECT,
    DISCONNECT,
    PINGREQ,
    PINGRESP,
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREC,
    PUBREL,
    SUBACK,
    SUBSCRIBE,
    UNSUBACK,
    UNSUBSCRIBE,
    Dial,
    Join,
    Will,
)

A = wire.string("a")


def bad(name: str, data: bytes, *clause_ids: str) -> object:
    return pytest.param(data, id=name, marks=[v311(*clause_ids)] if clause_ids else [])


def reserved_flags() -> Iterator[object]:
    bodies = {
        PUBACK: b"\x00\x01",
        PUBREC: b"\x00\x01",
        PUBREL: b"\x00\x01",
        PUBCOMP: b"\x00\x01",
        SUBSCRIBE: b"\x00\x01" + A + b"\x00",
        UNSUBSCRIBE: b"\x00\x01" + A,
        PINGREQ: b"",
        DISCONNECT: b"",
    }
    clauses = {
        PUBREL: "MQTT-3.6.1-1",
        SUBSCRIBE: "MQTT-3.8.1-1",
        UNSUBSCRIBE: "MQTT-3.10.1-1",
        DISCONNECT: "MQTT-3.14.1-1",
    }
    for kind, body in bodies.items():
        right = 2 if kind in (PUBREL, SUBSCRIBE, UNSUBSCRIBE) else 0
        for flags in {0, 1, 2, 3, 4, 8, 15} - {right}:
            ids = ["MQTT-2.2.2-2", *([clauses[kind]] if kind in clauses else [])]
            yield bad(f"flags-{flags}-of-type-{kind}", wire.packet(kind, flags, body), *ids)


BAD_PACKETS = [
    # Packet types.
    bad("type-0", wire.packet(0, 0), "MQTT-4.8.0-1"),
    bad("type-15", wire.packet(15, 0), "MQTT-4.8.0-1"),
    bad("second-connect", wire.connect("again"), "MQTT-3.1.0-2"),
    bad("connack-from-a-client", wire.packet(CONNACK, 0, b"\x00\x00"), "MQTT-4.8.0-1"),
    bad("suback-from-a-client", wire.packet(SUBACK, 0, b"\x00\x01\x00"), "MQTT-4.8.0-1"),
    bad("unsuback-from-a-client", wire.packet(UNSUBACK, 0, b"\x00\x01"), "MQTT-4.8.0-1"),
    bad("pingresp-from-a-client", wire.packet(PINGRESP, 0), "MQTT-4.8.0-1"),
    # The remaining length.
    bad("length-of-five-bytes", b"\x30\xff\xff\xff\xff\x01"),
    bad("length-of-five-zero-bytes", b"\x30\x80\x80\x80\x80\x00"),
    bad("length-never-ends", b"\xc0\xff\xff\xff\xff\xff\xff"),
    # PUBLISH.
    bad("qos-3", wire.packet(PUBLISH, 6, A + b"\x00\x01x"), "MQTT-3.3.1-4"),
    bad("qos-3-with-dup-and-retain", wire.packet(PUBLISH, 15, A + b"\x00\x01x"), "MQTT-3.3.1-4"),
    bad("publish-id-zero-qos-1", wire.publish("a", b"x", qos=1, packet_id=0), "MQTT-2.3.1-1"),
    bad("publish-id-zero-qos-2", wire.publish("a", b"x", qos=2, packet_id=0), "MQTT-2.3.1-1"),
    bad("topic-empty", wire.publish("", b"x"), "MQTT-4.7.3-1"),
    bad("topic-hash", wire.publish("a/#", b"x"), "MQTT-3.3.2-2", "MQTT-4.7.1-1"),
    bad("topic-plus", wire.publish("a/+", b"x"), "MQTT-3.3.2-2", "MQTT-4.7.1-1"),
    bad("topic-nul", wire.publish(b"a\x00b", b"x"), "MQTT-1.5.3-2", "MQTT-4.7.3-2"),
    bad("topic-stray-continuation", wire.publish(b"a\x80", b"x"), "MQTT-1.5.3-1", "MQTT-3.3.2-1"),
    bad("topic-overlong", wire.publish(b"\xc0\xaf", b"x"), "MQTT-1.5.3-1", "MQTT-3.3.2-1"),
    bad("topic-overlong-nul", wire.publish(b"\xc0\x80", b"x"), "MQTT-1.5.3-1"),
    bad("topic-surrogate", wire.publish(b"\xed\xa0\x80", b"x"), "MQTT-1.5.3-1"),
    bad("topic-surrogate-pair", wire.publish(b"\xed\xa0\xbd\xed\xb4\xa5", b"x"), "MQTT-1.5.3-1"),
    bad("topic-beyond-unicode", wire.publish(b"\xf4\x90\x80\x80", b"x"), "MQTT-1.5.3-1"),
    bad("topic-cut-character", wire.publish(b"a\xe2\x82", b"x"), "MQTT-1.5.3-1"),
    bad("topic-longer-than-the-packet", wire.packet(PUBLISH, 0, b"\x00\x05abc"), "MQTT-3.3.2-1"),
    # Acknowledgements.
    *(
        bad(f"type-{kind}-without-id", wire.packet(kind, 2 if kind == PUBREL else 0, body))
        for kind in (PUBACK, PUBREC, PUBREL, PUBCOMP)
        for body in (b"", b"\x00")
    ),
    *(
        bad(f"type-{kind}-with-a-byte-behind", wire.packet(kind, 2 if kind == PUBREL else 0, b"\x00\x01\x00"))
        for kind in (PUBACK, PUBREC, PUBREL, PUBCOMP)
    ),
    bad("puback-id-zero", wire.ack(PUBACK, 0)),
    bad("pubrel-id-zero", wire.ack(PUBREL, 0)),
    # SUBSCRIBE.
    bad("subscribe-id-zero", wire.subscribe(0, ("a", 0)), "MQTT-2.3.1-1"),
    bad("subscribe-without-filter", wire.subscribe(1), "MQTT-3.8.3-3"),
    bad("subscribe-without-qos", wire.packet(SUBSCRIBE, 2, b"\x00\x01" + A), "MQTT-3.8.3-3"),
    bad("subscribe-qos-3", wire.subscribe(1, ("a", 3)), "MQTT-3.8.3-4"),
    bad("subscribe-reserved-bits", wire.subscribe(1, ("a", 0x84)), "MQTT-3.8.3-4"),
    bad("subscribe-empty-filter", wire.subscribe(1, ("", 0)), "MQTT-4.7.3-1"),
    bad("subscribe-not-utf8", wire.subscribe(1, (b"\xfe", 0)), "MQTT-3.8.3-1", "MQTT-1.5.3-1"),
    bad("subscribe-nul", wire.subscribe(1, ("\0", 0)), "MQTT-1.5.3-2", "MQTT-4.7.3-2"),
    bad("subscribe-a#", wire.subscribe(1, ("a#", 0)), "MQTT-4.7.1-2"),
    bad("subscribe-+a", wire.subscribe(1, ("+a", 0)), "MQTT-4.7.1-3"),
    bad("subscribe-#/a", wire.subscribe(1, ("#/a", 0)), "MQTT-4.7.1-2"),
    # UNSUBSCRIBE.
    bad("unsubscribe-id-zero", wire.unsubscribe(0, "a"), "MQTT-2.3.1-1"),
    bad("unsubscribe-without-filter", wire.unsubscribe(1), "MQTT-3.10.3-2"),
    bad("unsubscribe-empty-filter", wire.unsubscribe(1, ""), "MQTT-4.7.3-1"),
    bad("unsubscribe-not-utf8", wire.unsubscribe(1, b"\xff"), "MQTT-3.10.3-1", "MQTT-1.5.3-1"),
    bad("unsubscribe-nul", wire.unsubscribe(1, "\0"), "MQTT-1.5.3-2"),
    # Packets that have no body.
    bad("pingreq-with-a-body", wire.packet(PINGREQ, 0, b"x")),
    bad("disconnect-with-a-body", wire.packet(DISCONNECT, 0, b"x")),
    *reserved_flags(),
]


@v311("MQTT-4.8.0-1", "MQTT-3.1.2-8")
@pytest.mark.parametrize("data", BAD_PACKETS)
def test_bad_input_ends_its_own_connection_and_nothing_else(join: Join, space: str, data: bytes) -> None:
    bystander = join()
    bystander.subscribe((f"{space}/#", 1))
    offender = join(will=Will(f"{space}/will", b"gone", 1))
    offender.send(data)
    offender.assert_closed()
    assert bystander.receive_message()[:2] == (f"{space}/will", b"gone")
    bystander.publish(f"{space}/a", b"goes on", qos=1)
    assert bystander.receive_message().payload == b"goes on"
    bystander.assert_silent()


@v311("MQTT-4.8.0-1")
def test_good_packets_before_the_bad_one_count_and_those_behind_it_do_not(join: Join, space: str) -> None:
    bystander = join()
    bystander.subscribe(f"{space}/#")
    offender = join()
    offender.send(wire.publish(f"{space}/a", b"before") + wire.packet(15, 0) + wire.publish(f"{space}/a", b"behind"))
    offender.assert_closed()
    assert [m.payload for m in bystander.take_messages()] == [b"before"]


# A whole packet, and the lengths at which a shorter body is a packet as well.
CUTTABLE = {
    "publish-qos-0": (PUBLISH, 0, wire.string("a/b") + b"xyz", {5, 6, 7}),
    "publish-qos-1": (PUBLISH, 2, wire.string("a/b") + b"\x00\x01xyz", {7, 8, 9}),
    "publish-qos-2": (PUBLISH, 4, wire.string("a/b") + b"\x00\x01xyz", {7, 8, 9}),
    "puback": (PUBACK, 0, b"\x00\x01", set()),
    "pubrec": (PUBREC, 0, b"\x00\x01", set()),
    "pubrel": (PUBREL, 2, b"\x00\x01", set()),
    "pubcomp": (PUBCOMP, 0, b"\x00\x01", set()),
    "subscribe": (SUBSCRIBE, 2, b"\x00\x01" + wire.string("a/b") + b"\x01" + wire.string("c") + b"\x02", {8}),
    "unsubscribe": (UNSUBSCRIBE, 2, b"\x00\x01" + wire.string("a/b") + wire.string("c"), {7}),
}


@v311("MQTT-4.8.0-1")
@pytest.mark.parametrize("name", CUTTABLE)
def test_a_body_cut_inside_a_field_ends_the_connection(join: Join, name: str) -> None:
    kind, flags, body, whole = CUTTABLE[name]
    bystander = join()
    for end in range(len(body)):
        if end not in whole:
            offender = join()
            offender.send(wire.packet(kind, flags, body[:end]))
            offender.assert_closed()
    bystander.assert_silent()


@pytest.mark.parametrize("name", CUTTABLE)
def test_a_stream_that_ends_inside_a_packet_publishes_the_will_and_has_no_other_effect(
    join: Join, space: str, name: str
) -> None:
    kind, flags, body, _ = CUTTABLE[name]
    bystander = join()
    bystander.subscribe((f"{space}/#", 0), ("a/b", 0))
    data = wire.packet(kind, flags, body)
    for end in range(1, len(data)):
        offender = join(will=Will(f"{space}/will", b"%d" % end))
        offender.send(data[:end])
        offender.drop()
        assert bystander.receive_message().payload == b"%d" % end
    bystander.assert_silent()


def test_a_packet_above_the_limit_is_refused_before_its_bytes_are_sent(join: Join) -> None:
    """The largest length that the field can hold, 268,435,455 bytes, announced and never sent."""
    bystander, offender = join(), join()
    offender.send(b"\x30\xff\xff\xff\x7f\x00\x01a")
    offender.assert_closed()
    bystander.assert_silent()


@pytest.mark.parametrize(
    "data",
    [b"\x00", b"\xff" * 64, b"\x10\xff\xff\xff\xff\xff", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"\x10\x00"],
    ids=["zero", "ones", "endless-length", "tls-hello", "empty-connect"],
)
def test_noise_instead_of_a_connect_harms_nobody(dial: Dial, join: Join, data: bytes) -> None:
    bystander, noise = join(), dial()
    noise.send(data)
    noise.drop()
    bystander.assert_silent()


@v311("MQTT-3.1.0-2", "MQTT-3.1.4-5")
def test_a_second_connect_does_not_become_another_client(join: Join, space: str) -> None:
    other = join("other")
    client = join("first")
    client.send(wire.packet(CONNECT, 0, wire.connect(f"{space}other")[2:]))
    client.assert_closed()
    other.assert_silent()
