"""What the engine sends: names, retransmission, pace, sleepers, and what an unproven address may cost."""

import pytest

from embermq.protocol import packets as core
from embermq.protocol.sn.events import ConnectRequest
from embermq.protocol.sn.wire import packets as sn
from embermq.protocol.sn.wire.decode import decode
from embermq.protocol.sn.wire.encode import encode
from embermq.protocol.sn.wire.profiles import PROFILES, V12, A, B, W
from support.sn_harness import ELSEWHERE, HOST, Harness

ALL = pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.name)
TWO = pytest.mark.parametrize("profile", [A, B], ids=lambda profile: profile.name)
FIRST_TWO = pytest.mark.parametrize("profile", [V12, A], ids=lambda profile: profile.name)


def one(packets: list[sn.SnPacket]) -> sn.SnPacket:
    assert len(packets) == 1, packets
    return packets[0]


def registered(harness: Harness, connection, packets: list[sn.SnPacket], reason: int = 0) -> list[sn.SnPacket]:
    """Answer the one REGISTER; returns what follows."""
    register = one(packets)
    assert isinstance(register, sn.Register)
    return harness.ask(connection, sn.Regack(register.packet_id, register.topic_alias, reason))


# -- names -----------------------------------------------------------------------------------------------------------


def test_1_2_is_told_an_alias_before_the_message() -> None:
    harness = Harness()
    connection = harness.connect(V12)
    publish = one(registered(harness, connection, harness.deliver(connection, "a/b", b"1")))
    assert isinstance(publish, sn.Publish)
    assert (publish.payload, publish.reference.topic_alias > 0) == (b"1", True)
    # The next message of that topic needs no REGISTER.
    assert isinstance(one(harness.deliver(connection, "a/b", b"2")), sn.Publish)


def test_nothing_overtakes_a_message_that_waits_for_its_alias() -> None:
    harness = Harness()
    connection = harness.connect(V12)
    register = harness.deliver(connection, "a/b", b"1")
    assert harness.deliver(connection, "ab", b"2") == []
    assert harness.deliver(connection, "c/d", b"3") == []
    sent = registered(harness, connection, register)
    assert [type(packet) for packet in sent] == [sn.Publish, sn.Publish, sn.Register]
    last = registered(harness, connection, sent[2:])
    assert [packet.payload for packet in [*sent[:2], *last] if isinstance(packet, sn.Publish)] == [b"1", b"2", b"3"]


@pytest.mark.parametrize("profile", [W, A, B], ids=lambda profile: profile.name)
def test_2_0_is_sent_the_full_name(profile) -> None:
    harness = Harness()
    publish = one(harness.deliver(harness.connect(profile), "a/b", b"1"))
    assert isinstance(publish, sn.Publish)
    assert publish.reference == sn.full_name("a/b")


@ALL
def test_a_topic_that_the_client_subscribed_to_by_name_has_an_alias(profile) -> None:
    harness = Harness()
    connection = harness.connect(profile)
    suback = one(harness.ask(connection, sn.Subscribe(1, sn.full_name("a/b"))))
    assert isinstance(suback, sn.Suback)
    publish = one(harness.deliver(connection, "a/b", b"1"))
    assert isinstance(publish, sn.Publish)
    assert publish.reference == sn.session_alias(suback.topic_alias)


@pytest.mark.parametrize("profile", [V12, W, A], ids=lambda profile: profile.name)
def test_two_bytes_are_a_short_name(profile) -> None:
    harness = Harness()
    publish = one(harness.deliver(harness.connect(profile), "ab", b"1"))
    assert isinstance(publish, sn.Publish)
    assert publish.reference == sn.short_name("ab")


@ALL
def test_a_predefined_alias_is_used_once_the_client_has(profile) -> None:
    harness = Harness(predefined={7: "pre/defined"})
    connection = harness.connect(profile)
    harness.ask(connection, sn.Subscribe(1, sn.predefined_alias(7)))
    publish = one(harness.deliver(connection, "pre/defined"))
    assert isinstance(publish, sn.Publish)
    assert publish.reference == sn.predefined_alias(7)


def test_a_topic_the_client_will_not_register_is_dropped_from_then_on() -> None:
    harness = Harness()
    connection = harness.connect(V12)
    register = harness.deliver(connection, "a/b", b"1", 1, 11)
    assert registered(harness, connection, register, 0x83) == []
    assert harness.received() == [core.Puback(11)]
    assert harness.deliver(connection, "a/b", b"2", 2, 12) == []
    assert harness.received()[1:] == [core.Pubrec(12, 0x80)]
    assert harness.engine.counters.dropped_unregistered == 2
    # Asking for it brings it back.
    harness.ask(connection, sn.Register(1, "a/b"))
    assert isinstance(one(harness.deliver(connection, "a/b", b"3")), sn.Publish)


def test_congestion_costs_one_message_only() -> None:
    harness = Harness()
    connection = harness.connect(V12)
    registered(harness, connection, harness.deliver(connection, "a/b", b"1"), 0xF1)
    assert isinstance(one(harness.deliver(connection, "a/b", b"2")), sn.Register)


@pytest.mark.parametrize("profile", [V12, A, B], ids=lambda profile: profile.name)
def test_an_alias_that_the_client_forgot_is_registered_again_and_the_message_sent_again(profile) -> None:
    harness = Harness()
    connection = harness.connect(profile)
    harness.ask(connection, sn.Subscribe(1, sn.full_name("a/b"), 1))
    publish = one(harness.deliver(connection, "a/b", b"1", 1, 11))
    assert isinstance(publish, sn.Publish)
    again = harness.ask(connection, sn.Puback(11, 0xF0, publish.reference.topic_alias))
    if profile is V12:
        again = registered(harness, connection, again)
    second = one(again)
    assert isinstance(second, sn.Publish)
    assert (second.payload, second.packet_id) == (b"1", 11)
    assert core.Puback(11) not in harness.received()
    harness.ask(connection, sn.Puback(11, 0, second.reference.topic_alias))
    assert harness.received()[-1] == core.Puback(11)


def test_a_client_that_forgets_every_alias_gets_each_message_once_more_only() -> None:
    harness = Harness()
    connection = harness.connect(V12)
    sent = registered(harness, connection, harness.deliver(connection, "a/b", b"1", 1, 11))
    for _ in range(2):
        publish = one(sent)
        assert isinstance(publish, sn.Publish)
        sent = harness.ask(connection, sn.Puback(11, 0xF0, publish.reference.topic_alias))
        if sent:
            sent = registered(harness, connection, sent)
    assert sent == []
    assert harness.received() == [core.Puback(11, 0xF0)]


def test_more_topics_than_aliases_take_turns() -> None:
    harness = Harness(aliases_max=32, prove_address=False, burst=1_000)
    connection = harness.connect(V12)
    harness.ask(connection, sn.Register(1, "asked/for"))
    for number in range(100):
        publish = one(registered(harness, connection, harness.deliver(connection, f"t/{number}", b"%d" % number)))
        assert isinstance(publish, sn.Publish)
    assert len(connection.outgoing.aliases) == 32
    # What the client asked for is never taken away.
    assert isinstance(one(harness.deliver(connection, "asked/for")), sn.Publish)
    assert isinstance(one(harness.deliver(connection, "t/0")), sn.Register)


def test_a_message_larger_than_the_clients_maximum_counts_as_delivered() -> None:
    for profile in (A, B):
        harness = Harness()
        connection = harness.connect(profile, packet_bytes_max=40)
        assert harness.deliver(connection, "a/b", bytes(60), 1, 3) == []
        assert harness.received() == [core.Puback(3)]
        assert harness.engine.counters.dropped_too_large == 1
        long_name = "a/" + "b" * 22
        packets = harness.deliver(connection, long_name, bytes(15), 0)
        assert isinstance(one(packets), sn.Register)  # the name or the data, but not both in one packet
        publish = one(registered(harness, connection, packets))
        assert isinstance(publish, sn.Publish)


def test_a_message_larger_than_a_datagram_counts_as_delivered_behind_a_forwarder_too() -> None:
    harness = Harness(prove_address=False)
    connect = encode(sn.Connect("dev1", packet_id=1), B)
    node = bytes(200)
    harness.feed(b"\x01" + (5 + len(node) + len(connect)).to_bytes(2, "big") + b"\xfc\xc8" + node + connect)
    connection = harness.connection()
    for packet_id, size in enumerate((65_280, 65_300, 65_500, 65_540), 1):
        connection.deliver(core.Delivery(core.Publish("a/b", bytes(size)), 1, packet_id=packet_id), harness.now_ms)
        harness.settle()
    assert max(len(data) for _, data in harness.sent) == 65_280 + 3 + 5 + 4 + 5 + 200
    assert harness.received() == [core.Puback(2), core.Puback(3), core.Puback(4)]
    assert harness.engine.counters.dropped_too_large == 3


# -- retransmission --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("profile", "dup"), [(V12, True), (W, True), (A, True), (B, False)])
def test_qos_1_is_sent_again_until_acknowledged(profile, dup: bool) -> None:
    harness = Harness(retry_ms=1_000, retries_max=3)
    connection = harness.connect(profile, keep_alive_s=600)
    harness.ask(connection, sn.Subscribe(1, sn.full_name("a/b"), 1))
    first = one(harness.deliver(connection, "a/b", b"1", 1, 11))
    assert isinstance(first, sn.Publish)
    assert not first.dup
    again = [decode(data, profile) for data in harness.pass_ms(1_500)]
    assert again == [sn.Publish(first.reference, b"1", 1, dup=dup, packet_id=11)]
    harness.ask(connection, sn.Puback(11, 0, first.reference.topic_alias))
    assert harness.received()[-1] == core.Puback(11)
    assert harness.pass_ms(60_000) == []


@ALL
def test_after_the_last_try_the_client_is_lost(profile) -> None:
    harness = Harness(retry_ms=1_000, retries_max=3)
    connection = harness.connect(profile, keep_alive_s=6_000)
    harness.ask(connection, sn.Subscribe(1, sn.full_name("a/b"), 1))
    harness.deliver(connection, "a/b", b"1", 1, 11)
    sent = [decode(data, profile) for data in harness.pass_ms(300_000)]
    assert sum(isinstance(packet, sn.Publish) for packet in sent) == 3
    assert harness.lost() == ["no acknowledgement after the last retry"]
    assert harness.engine.counters.retransmissions == 3
    assert harness.engine.counters.clients == 0


def test_2_0_waits_longer_each_time_and_1_2_does_not() -> None:
    gaps = {}
    for profile in (V12, A):
        harness = Harness(retry_ms=1_000, retries_max=4)
        connection = harness.connect(profile, keep_alive_s=6_000)
        harness.ask(connection, sn.Subscribe(1, sn.full_name("a/b"), 1))
        harness.deliver(connection, "a/b", b"1", 1, 11)
        at: list[int] = []
        start_ms = harness.now_ms
        for _ in range(20_000):
            if harness.pass_ms(1):
                at.append(harness.now_ms - start_ms)
        gaps[profile.name] = at[:4]
    assert gaps["1.2"] == [1_000, 2_000, 3_000, 4_000]
    first, second, third, fourth = gaps["2.0-a"]
    assert first == 1_000
    assert second - first < third - second < fourth - third


@ALL
def test_qos_2_repeats_publish_until_pubrec_and_pubrel_until_pubcomp(profile) -> None:
    harness = Harness(retry_ms=1_000)
    connection = harness.connect(profile, keep_alive_s=600)
    harness.ask(connection, sn.Subscribe(1, sn.full_name("a/b"), 2))
    harness.deliver(connection, "a/b", b"1", 2, 11)
    again = decode(harness.pass_ms(1_100)[0], profile)
    assert isinstance(again, sn.Publish)
    assert again.dup
    assert harness.ask(connection, sn.Pubrec(11)) == [sn.Pubrel(11)]
    assert [decode(data, profile) for data in harness.pass_ms(1_100)] == [sn.Pubrel(11)]
    # A PUBREC again gets a PUBREL again.
    assert harness.ask(connection, sn.Pubrec(11)) == [sn.Pubrel(11)]
    harness.ask(connection, sn.Pubcomp(11))
    assert harness.received()[-1] == core.Pubcomp(11)
    assert harness.pass_ms(60_000) == []


def test_a_register_is_repeated_like_a_message() -> None:
    harness = Harness(retry_ms=1_000, retries_max=2)
    connection = harness.connect(V12, keep_alive_s=600)
    register = one(harness.deliver(connection, "a/b", b"1"))
    assert [decode(data, V12) for data in harness.pass_ms(1_000)] == [register]
    harness.pass_ms(5_000)
    assert harness.lost() == ["no acknowledgement after the last retry"]


@ALL
def test_answers_to_nothing_are_counted_or_left_to_the_core(profile) -> None:
    harness = Harness()
    connection = harness.connect(profile)
    assert harness.ask(connection, sn.Puback(99)) == []
    assert harness.ask(connection, sn.Regack(99, 5)) == []
    assert harness.engine.counters.acks_unknown == 2
    assert harness.received() == []


# -- pace and bounds -------------------------------------------------------------------------------------------------


def test_qos_0_leaves_in_bursts() -> None:
    harness = Harness(burst=10, burst_ms=20, prove_address=False, waiting_max=50)
    connection = harness.connect(A)
    taken = [
        connection.deliver(core.Delivery(core.Publish("ab", b"%d" % number)), harness.now_ms) for number in range(70)
    ]
    assert len(harness.settle()) == 10
    assert taken.count(True) == 60
    assert harness.engine.counters.dropped_waiting_full == 10
    assert not connection.has_room()
    assert len(harness.pass_ms(20)) == 10
    assert harness.writable() == 0
    rest = harness.pass_ms(200)
    assert len(rest) == 40
    assert harness.writable() == 1
    assert connection.has_room()


@ALL
def test_large_messages_at_qos_0_leave_in_smaller_bursts(profile) -> None:
    harness = Harness(prove_address=False, burst_ms=10)
    connection = harness.connect(profile)
    harness.ask(connection, sn.Subscribe(1, sn.full_name("a/b")))
    for _ in range(20):
        harness.deliver(connection, "a/b", bytes(20_000))
    bursts = [sum(len(data) for _, data in harness.sent)]
    for _ in range(6):
        bursts.append(sum(map(len, harness.pass_ms(10))))
    assert max(bursts) <= 64 * 1024 + 21_000
    assert sum(bursts) > 20 * 20_000


@ALL
def test_what_waits_for_a_client_is_bounded_in_bytes_awake_and_asleep(profile) -> None:
    harness = Harness()
    connection = harness.connect(profile)
    taken = [connection.deliver(core.Delivery(core.Publish("a/b", bytes(60_000))), harness.now_ms) for _ in range(100)]
    assert 0 < sum(taken) <= 9
    assert harness.engine.counters.dropped_waiting_full == 100 - sum(taken)
    assert not connection.has_room()
    sleeper = harness.connect(profile, "dev2", ELSEWHERE)
    harness.ask(sleeper, sn.Sleepreq(1, 60) if profile is B else sn.Disconnect(session_expiry_s=60))
    kept = [sleeper.deliver(core.Delivery(core.Publish("a/b", bytes(60_000))), harness.now_ms) for _ in range(100)]
    assert 0 < sum(kept) <= 9
    assert harness.engine.counters.dropped_sleeping_full == 100 - sum(kept)


@ALL
def test_an_unproven_address_is_sent_little_more_than_it_sent(profile) -> None:
    """A forged address must not be flooded with what somebody else asked for."""
    harness = Harness(retry_ms=1_000, retries_max=3)
    victim = harness.connect(profile, keep_alive_s=600)
    harness.ask(victim, sn.Subscribe(1, sn.full_name("a/b")))
    for _ in range(500):
        victim.deliver(core.Delivery(core.Publish("a/b", bytes(100))), harness.now_ms)
    harness.settle()
    harness.pass_ms(600_000)
    received = harness.engine.counters.bytes_received
    sent = sum(len(data) for _, data in harness.sent)
    assert sent <= 3 * received + 128 + 4 * 40
    assert harness.lost() == ["no acknowledgement after the last retry"]


@ALL
@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize(("topic_name", "size"), [("a/b", 100), ("a/b", 10_000), ("t" * 10_000, 1), ("t" * 70, 1)])
def test_what_is_sent_again_counts_for_an_unproven_address_and_so_does_a_long_name(
    profile, qos: int, topic_name: str, size: int
) -> None:
    harness = Harness(retry_ms=1_000, retries_max=4)
    victim = harness.connect(profile, keep_alive_s=600)
    harness.ask(victim, sn.Subscribe(1, sn.full_name("#"), qos))
    harness.deliver(victim, topic_name, bytes(size), qos, 1)
    harness.pass_ms(600_000)
    received = harness.engine.counters.bytes_received
    sent = sum(len(data) for _, data in harness.sent)
    assert sent <= 3 * received + 128 + 5 * 64
    assert harness.lost() == ["no acknowledgement after the last retry"]


@ALL
@pytest.mark.parametrize(("topic_name", "size"), [("a/b", 10_000), ("t" * 10_000, 1)])
def test_what_was_withheld_leaves_as_soon_as_the_address_is_proven(profile, topic_name: str, size: int) -> None:
    harness = Harness()
    connection = harness.connect(profile)
    packets = harness.deliver(connection, topic_name, bytes(size), 1, 1)
    for _ in range(3):
        register = one(packets)
        if isinstance(register, sn.Publish):
            break
        assert isinstance(register, sn.Register)
        packets = harness.ask(connection, sn.Regack(register.packet_id, register.topic_alias))
    publish = one(packets)
    assert isinstance(publish, sn.Publish)
    assert len(publish.payload) == size


@pytest.mark.parametrize("profile", [W, A], ids=lambda profile: profile.name)
def test_a_sleeper_that_wakes_elsewhere_is_sent_what_is_unacknowledged_after_it_proved_its_address(profile) -> None:
    harness = Harness()
    sleeper = harness.connect(profile)
    register = one(harness.deliver(sleeper, "a/b", bytes(5_000), 1, 1))
    assert isinstance(register, sn.Register)
    assert isinstance(one(harness.ask(sleeper, sn.Regack(register.packet_id, register.topic_alias))), sn.Publish)
    harness.ask(sleeper, sn.Disconnect(session_expiry_s=60, retain_aliases=True))
    ping = encode(sn.Pingreq(7, "dev1"), profile)
    again = [decode(data, profile) for data in harness.feed(ping, (HOST[0], 4_444))]
    register = one(again)
    assert isinstance(register, sn.Register)
    publish = one(harness.ask(sleeper, sn.Regack(register.packet_id, register.topic_alias)))
    assert isinstance(publish, sn.Publish)
    assert (len(publish.payload), publish.packet_id) == (5_000, 1)


@ALL
def test_an_address_that_answers_a_register_is_proven(profile) -> None:
    harness = Harness(burst=1_000)
    connection = harness.connect(profile)
    harness.ask(connection, sn.Subscribe(1, sn.full_name("a/b")))
    packets: list[sn.SnPacket] = []
    for number in range(40):
        packets += harness.deliver(connection, "a/b", b"%099d" % number)
    register = packets[-1]
    assert isinstance(register, sn.Register)
    assert register.topic_name == "a/b"
    # A guess does not prove anything.
    assert harness.ask(connection, sn.Regack(register.packet_id ^ 1, register.topic_alias)) == []
    packets[-1:] = harness.ask(connection, sn.Regack(register.packet_id, register.topic_alias))
    assert [packet.payload for packet in packets if isinstance(packet, sn.Publish)] == [b"%099d" % n for n in range(40)]


def test_a_client_that_uses_an_alias_it_was_given_is_proven() -> None:
    harness = Harness(burst=1_000)
    connection = harness.connect(V12)
    regack = one(harness.ask(connection, sn.Register(1, "a/b")))
    assert isinstance(regack, sn.Regack)
    harness.ask(connection, sn.Publish(sn.session_alias(regack.topic_alias), b"x"))
    for number in range(40):
        assert isinstance(one(harness.deliver(connection, "a/b", b"%099d" % number)), sn.Publish)


def test_an_alias_that_was_not_given_out_proves_nothing() -> None:
    harness = Harness()
    connection = harness.connect(V12)
    harness.ask(connection, sn.Publish(sn.session_alias(77), b"x"))
    assert not connection.peer.is_proven


# -- silence ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("profile", "keep_alive_s", "lasts_ms"),
    [(V12, 10, 15_000), (V12, 100, 110_000), (W, 10, 15_000), (A, 100, 150_000), (B, 100, 150_000)],
)
def test_silence_beyond_the_keep_alive_loses_the_client(profile, keep_alive_s: int, lasts_ms: int) -> None:
    harness = Harness()
    harness.connect(profile, keep_alive_s=keep_alive_s)
    harness.pass_ms(lasts_ms - 1)
    assert harness.lost() == []
    harness.pass_ms(1)
    assert harness.lost() == ["no packet in time"]
    assert isinstance(decode(harness.sent[-1][1], profile), sn.Disconnect)


@ALL
def test_any_packet_restarts_the_keep_alive(profile) -> None:
    harness = Harness()
    connection = harness.connect(profile, keep_alive_s=10)
    for number in range(1, 6):
        harness.pass_ms(14_000)
        harness.ask(connection, sn.Pingreq(number))
    assert harness.lost() == []


def test_a_keep_alive_of_0_is_not_supervised_in_1_2_unless_there_is_a_cap() -> None:
    harness = Harness()
    harness.connect(V12, keep_alive_s=0)
    harness.pass_ms(10**9)
    assert harness.lost() == []
    harness = Harness(keep_alive_max_s=60)
    harness.connect(V12, keep_alive_s=0)
    harness.pass_ms(100_000)
    assert harness.lost() == ["no packet in time"]


# -- sleepers --------------------------------------------------------------------------------------------------------


def fall_asleep(harness: Harness, connection, seconds: int = 100, retain_aliases: bool = False) -> None:
    profile = connection.peer.profile
    if profile.sleeps_by_disconnect:
        answer = harness.ask(connection, sn.Disconnect(session_expiry_s=seconds, retain_aliases=retain_aliases))
        assert answer == [sn.Disconnect()]
    else:
        assert harness.ask(connection, sn.Sleepreq(9, seconds, retain_aliases)) == [sn.Sleepresp(9)]


def ping_of(connection, packet_id: int = 5) -> sn.Pingreq:
    profile = connection.peer.profile
    return sn.Pingreq(0 if profile in (V12, W) else packet_id, "" if profile is B else connection.client_id)


def pingresp(profile, remaining: int, packet_id: int = 5) -> sn.Pingresp:
    if profile is V12:
        return sn.Pingresp()
    return sn.Pingresp(0 if profile is W else packet_id, remaining)


@ALL
def test_a_sleeper_has_no_room_and_its_qos_0_messages_wait(profile) -> None:
    harness = Harness(sleeping_messages_max=2)
    connection = harness.connect(profile)
    fall_asleep(harness, connection)
    assert not connection.has_room()
    assert harness.deliver(connection, "ab", b"1") == []
    assert harness.deliver(connection, "ab", b"2") == []
    assert not connection.deliver(core.Delivery(core.Publish("ab", b"3")), harness.now_ms)
    assert harness.engine.counters.dropped_sleeping_full == 1
    packets = harness.ask(connection, ping_of(connection))
    assert [packet.payload for packet in packets if isinstance(packet, sn.Publish)] == [b"1", b"2"]
    assert connection.has_room()
    assert harness.writable() == 1
    connection.flushed(0, harness.now_ms)
    assert [decode(data, profile) for data in harness.settle()] == [pingresp(profile, 0)]
    assert not connection.has_room()


@ALL
def test_an_awake_client_sleeps_again_when_all_is_acknowledged(profile) -> None:
    harness = Harness()
    connection = harness.connect(profile)
    fall_asleep(harness, connection)
    harness.ask(connection, ping_of(connection))
    harness.deliver(connection, "ab", b"1", 1, 11)
    connection.flushed(0, harness.now_ms)
    assert harness.settle() == []
    # The PINGREQ again does not begin a second flush.
    assert harness.ask(connection, ping_of(connection, 6)) == []
    harness.ask(connection, sn.Puback(11))
    connection.flushed(3, harness.now_ms)
    assert harness.settle() == []  # the core still owes three
    connection.flushed(0, harness.now_ms)
    assert [decode(data, profile) for data in harness.settle()] == [pingresp(profile, 0, 6)]


@pytest.mark.parametrize("profile", [W, A, B], ids=lambda profile: profile.name)
def test_a_client_may_limit_how_much_it_fetches_at_a_time(profile) -> None:
    harness = Harness()
    connection = harness.connect(profile, awake_messages=2)
    fall_asleep(harness, connection)
    for number in range(3):
        harness.deliver(connection, "ab", b"%d" % number)
    packets = harness.ask(connection, ping_of(connection))
    assert sum(isinstance(packet, sn.Publish) for packet in packets) == 2
    assert not connection.has_room()
    connection.flushed(4, harness.now_ms)
    assert [decode(data, profile) for data in harness.settle()] == [pingresp(profile, 5)]


@ALL
def test_an_awake_client_is_not_kept_waiting_for_ever(profile) -> None:
    harness = Harness()
    connection = harness.connect(profile)
    fall_asleep(harness, connection)
    harness.ask(connection, ping_of(connection))
    connection.flushed(1, harness.now_ms)
    assert [decode(data, profile) for data in harness.pass_ms(2_000)] == [pingresp(profile, 0)]


@ALL
def test_a_sleeper_is_supervised_by_its_sleep(profile) -> None:
    harness = Harness()
    connection = harness.connect(profile, keep_alive_s=1)
    fall_asleep(harness, connection, 60)
    harness.pass_ms(89_999)
    assert harness.engine.counters.clients == 1
    harness.pass_ms(1)
    assert harness.engine.counters.clients == 0
    if profile is A:
        # The sleep was the session's lifetime as well.
        assert harness.received() == [core.Disconnect(4, 0)]
    else:
        assert harness.lost() == ["no packet in time"]


@ALL
def test_waking_restarts_the_sleep(profile) -> None:
    harness = Harness()
    connection = harness.connect(profile, keep_alive_s=1)
    fall_asleep(harness, connection, 60)
    for _ in range(5):
        harness.pass_ms(80_000)
        harness.ask(connection, ping_of(connection))
        connection.flushed(0, harness.now_ms)
        harness.settle()
    assert harness.engine.counters.clients == 1


@ALL
def test_what_was_unacknowledged_before_the_sleep_is_sent_when_awake(profile) -> None:
    harness = Harness(retry_ms=1_000)
    connection = harness.connect(profile)
    harness.deliver(connection, "ab", b"1", 1, 11)
    fall_asleep(harness, connection)
    assert harness.pass_ms(30_000) == []
    packets = harness.ask(connection, ping_of(connection))
    publish = one(packets)
    assert isinstance(publish, sn.Publish)
    assert (publish.packet_id, publish.dup) == (11, profile is not B)


@pytest.mark.parametrize("profile", [V12, W, A], ids=lambda profile: profile.name)
def test_a_sleeper_may_wake_behind_another_port_but_not_another_host(profile) -> None:
    harness = Harness()
    connection = harness.connect(profile)
    fall_asleep(harness, connection)
    harness.deliver(connection, "ab", b"1")
    ping = encode(ping_of(connection), profile)
    assert harness.feed(ping, ELSEWHERE) == []
    assert harness.engine.counters.rebinds_refused == 1
    moved = (HOST[0], 4321)
    assert len(harness.feed(ping, moved)) == 1
    assert connection.peer.address() == moved
    assert not connection.peer.is_proven
    anywhere = Harness(rebind="any")
    sleeper = anywhere.connect(profile)
    fall_asleep(anywhere, sleeper)
    anywhere.feed(ping, ELSEWHERE)
    assert sleeper.peer.address() == ELSEWHERE
    never = Harness(rebind="never")
    sleeper = never.connect(profile)
    fall_asleep(never, sleeper)
    never.feed(ping, moved)
    assert sleeper.peer.address() == HOST


@FIRST_TWO
def test_an_active_client_is_not_moved_by_a_ping_from_elsewhere(profile) -> None:
    harness = Harness(rebind="any")
    connection = harness.connect(profile)
    harness.feed(encode(ping_of(connection), profile), ELSEWHERE)
    assert connection.peer.address() == HOST


@TWO
def test_aliases_survive_a_sleep_only_if_asked(profile) -> None:
    for retain in (False, True):
        harness = Harness()
        connection = harness.connect(profile)
        regack = one(harness.ask(connection, sn.Register(1, "a/b")))
        assert isinstance(regack, sn.Regack)
        fall_asleep(harness, connection, retain_aliases=retain)
        assert (connection.outgoing.aliases.name_of(regack.topic_alias) == "a/b") == retain


@ALL
def test_a_connect_wakes_a_sleeper_without_ending_anything(profile) -> None:
    harness = Harness()
    expiry_s = 0 if profile in (A, B, W) else -1
    connection = harness.connect(profile, session_expiry_s=expiry_s)
    fall_asleep(harness, connection)
    harness.deliver(connection, "ab", b"kept")
    harness.now_ms += 5_000
    connect = sn.Connect("dev1", False, packet_id=7, version=profile.version, session_expiry_s=expiry_s)
    packets = [decode(data, profile) for data in harness.feed(encode(connect, profile))]
    assert isinstance(packets[0], sn.Connack)
    assert [packet.payload for packet in packets if isinstance(packet, sn.Publish)] == [b"kept"]
    assert sum(isinstance(event, ConnectRequest) for event in harness.events) == 1
    assert harness.lost() == []
    assert connection.has_room()


@ALL
def test_a_clean_connect_of_a_sleeper_ends_its_session_without_its_will(profile) -> None:
    harness = Harness()
    connection = harness.connect(profile)
    fall_asleep(harness, connection)
    harness.now_ms += 5_000
    harness.connect(profile, packet_id=9)
    last = harness.events[-1]
    assert isinstance(last, ConnectRequest)
    assert last.sleeper is connection
    assert harness.lost() == []


# -- sessions of 2.0 -------------------------------------------------------------------------------------------------


@TWO
def test_aliases_of_a_session_survive_its_connection(profile) -> None:
    harness = Harness()
    connection = harness.connect(profile, session_expiry_s=100)
    regack = one(harness.ask(connection, sn.Register(1, "a/b")))
    assert isinstance(regack, sn.Regack)
    harness.ask(connection, sn.Disconnect())
    harness.session_present = True
    harness.connect(profile, "other", ELSEWHERE, session_expiry_s=100)
    connection = harness.connect(profile, clean_start=False, session_expiry_s=100, packet_id=2)
    harness.ask(connection, sn.Publish(sn.session_alias(regack.topic_alias), b"x", 1, packet_id=3))
    assert harness.received()[-1] == core.Publish("a/b", b"x", 1, packet_id=3)
    harness.ask(connection, sn.Disconnect())
    harness.session_present = False
    connection = harness.connect(profile, session_expiry_s=100, packet_id=4)
    answer = harness.ask(connection, sn.Publish(sn.session_alias(regack.topic_alias), b"x", 1, packet_id=5))
    assert answer == [sn.Puback(5, 0xF0)]


def test_b_may_change_the_expiry_at_disconnect_but_not_from_nothing() -> None:
    harness = Harness()
    connection = harness.connect(B, session_expiry_s=100)
    assert harness.ask(connection, sn.Disconnect(session_expiry_s=5)) == []
    assert harness.received() == [core.Disconnect(0, 5)]
    connection = harness.connect(B, packet_id=2)
    assert harness.ask(connection, sn.Disconnect(session_expiry_s=5)) == [sn.Disconnect(0x82)]
    assert harness.failed() == [0x82]


@TWO
def test_a_malformed_packet_ends_a_connection_of_2_0(profile) -> None:
    harness = Harness()
    harness.connect(profile)
    answer = harness.feed(bytes.fromhex("03 fd 00"))
    assert [decode(data, profile) for data in answer] == [sn.Disconnect(0x81)]
    assert harness.engine.counters.clients == 0


@pytest.mark.parametrize("profile", [V12, W], ids=lambda profile: profile.name)
def test_a_malformed_packet_of_1_2_is_dropped(profile) -> None:
    harness = Harness()
    connection = harness.connect(profile)
    assert harness.feed(bytes.fromhex("03 fd 00")) == []
    assert harness.feed(bytes.fromhex("00")) == []
    assert harness.engine.counters.protocol_errors == 2
    assert isinstance(one(harness.ask(connection, sn.Pingreq())), sn.Pingresp)
