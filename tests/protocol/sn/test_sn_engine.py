"""The session engine without sockets: connecting, requests, aliases, presence and time, with a clock moved by hand."""

import pytest

from embermq.protocol import packets as core
from embermq.protocol.sn.events import ConnectRequest, SendDatagram
from embermq.protocol.sn.wire import packets as sn
from embermq.protocol.sn.wire.decode import decode
from embermq.protocol.sn.wire.encode import encode
from embermq.protocol.sn.wire.fields import PREDEFINED_ALIAS
from embermq.protocol.sn.wire.framing import wrap_connection
from embermq.protocol.sn.wire.profiles import PROFILES, V12, A, B, W
from embermq.protocol.sn.wire.will_packets import ConnectWill
from support.sn_harness import ELSEWHERE, HOST, Harness

ALL = pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.name)
TWO = pytest.mark.parametrize("profile", [A, B], ids=lambda profile: profile.name)


def opened(harness: Harness) -> list[core.Connect]:
    return [event.connect for event in harness.events if isinstance(event, ConnectRequest)]


# -- CONNECT ---------------------------------------------------------------------------------------------------------


@ALL
def test_a_connect_becomes_the_cores(profile) -> None:
    harness = Harness()
    harness.connect(profile, keep_alive_s=30)
    connect = opened(harness)[0]
    assert (connect.client_id, connect.clean_start, connect.keep_alive_s) == ("dev1", True, 30)
    assert (connect.receive_maximum, connect.protocol_level) == (1, profile.protocol_level)
    assert len(harness.sent) == 1


def test_sessions_of_1_2_that_are_not_clean_never_expire() -> None:
    harness = Harness()
    harness.connect(V12, clean_start=False)
    assert opened(harness)[0].session_expiry_s == core.SESSION_NEVER_EXPIRES


@TWO
def test_an_empty_client_id_is_assigned_and_told(profile) -> None:
    harness = Harness()
    connection = harness.connect(profile, "")
    connack = decode(harness.sent[0][1], profile)
    assert isinstance(connack, sn.Connack)
    assert connack.assigned_client_id == connection.client_id != ""
    assert opened(harness)[0].client_id == connection.client_id


def test_1_2_has_no_way_to_tell_an_assigned_client_id() -> None:
    harness = Harness()
    assert harness.feed(encode(sn.Connect("", version=1), V12)) == [bytes.fromhex("03 05 03")]
    assert opened(harness) == []


@pytest.mark.parametrize(
    ("data", "answer"),
    [
        ("0a 04 04 07 00 3c 64 65 76 31", "03 05 03"),
        ("12 05 01 00 01 03 00 3c 00 00 00 00 00 00 64 65 76 31", "0a 06 00 00 01 84 00 00 00 00"),
        ("0e 01 01 00 01 09 00 3c 00 00 64 65 76 31", "06 02 00 00 01 84"),
    ],
)
def test_an_unknown_version_is_refused_and_leaves_nothing(data: str, answer: str) -> None:
    harness = Harness()
    assert harness.feed(bytes.fromhex(data)) == [bytes.fromhex(answer)]
    assert harness.engine.counters.clients == 0
    assert opened(harness) == []


def test_a_pinned_profile_refuses_the_others() -> None:
    harness = Harness(profile="2.0-a")
    assert harness.feed(encode(sn.Connect("dev1", version=1), V12)) == [bytes.fromhex("03 05 03")]
    harness.connect(A)
    assert harness.engine.counters.clients == 1


def test_an_unknown_authentication_method_is_refused() -> None:
    harness = Harness()
    answer = harness.feed(encode(sn.Connect("dev1", packet_id=3, auth_method="KERBEROS"), B))
    assert answer == [encode(sn.Connack(0x8C, 3), B)]


def test_basic_authentication_carries_user_and_password() -> None:
    harness = Harness()
    harness.connect(B, auth_method="MQTT-BASIC", auth_data=b"\0\3ada\0\2pw")
    assert (opened(harness)[0].user_name, opened(harness)[0].password) == ("ada", b"pw")
    assert harness.feed(encode(sn.Connect("x", auth_method="MQTT-BASIC", auth_data=b"\0\3ad"), B), ELSEWHERE) == [
        encode(sn.Connack(0x81), B)
    ]


def test_the_will_of_2_0_is_in_the_connect() -> None:
    for profile in (A, B):
        harness = Harness(predefined={9: "pre/defined"})
        harness.connect(profile, will=sn.ConnectWill(sn.full_name("w/t"), b"bye", 1, True))
        assert opened(harness)[0].will == core.Will("w/t", b"bye", 1, True)
        harness.connect(profile, "dev2", ELSEWHERE, will=sn.ConnectWill(sn.predefined_alias(9), b"bye"))
        assert opened(harness)[1].will == core.Will("pre/defined", b"bye")
        answer = harness.feed(encode(sn.Connect("x", will=sn.ConnectWill(sn.predefined_alias(8), b"")), profile))
        assert isinstance(decode(answer[0], profile), sn.Connack)
        assert len(opened(harness)) == 2


# -- the will's dialogue of 1.2 --------------------------------------------------------------------------------------


def dialogue(harness: Harness, clean: bool, topic: str, message: bytes = b"bye") -> core.Will | None:
    """CONNECT with a will, as 1.2 asks for it; an empty topic deletes it."""
    connect = sn.Connect("dev1", clean, version=1, will_flag=True, keep_alive_s=len(harness.sent) + 1)
    assert harness.feed(encode(connect, V12)) == [bytes.fromhex("02 06")]
    answer = harness.feed(encode(sn.WillTopic(topic, 1, True), V12))
    if topic:
        assert answer == [bytes.fromhex("02 08")]
        answer = harness.feed(encode(sn.WillMsg(message), V12))
    assert answer == [bytes.fromhex("03 05 00")]
    return opened(harness)[-1].will


def test_1_2_asks_for_topic_and_message() -> None:
    assert dialogue(Harness(), True, "w/t") == core.Will("w/t", b"bye", 1, True)


def test_an_empty_will_topic_ends_the_dialogue_without_a_will() -> None:
    assert dialogue(Harness(), True, "") is None


def test_a_connect_that_comes_again_restarts_the_question() -> None:
    harness = Harness()
    connect = encode(sn.Connect("dev1", version=1, will_flag=True), V12)
    assert harness.feed(connect) == harness.feed(connect) == [bytes.fromhex("02 06")]
    harness.feed(encode(sn.WillTopic("w/t"), V12))
    assert harness.feed(connect) == [bytes.fromhex("02 08")]
    assert harness.engine.counters.repeats == 2


def test_a_will_message_before_its_topic_is_asked_for_again() -> None:
    harness = Harness()
    harness.feed(encode(sn.Connect("dev1", version=1, will_flag=True), V12))
    assert harness.feed(encode(sn.WillMsg(b"bye"), V12)) == [bytes.fromhex("02 06")]


def test_dialogues_are_bounded_in_number_and_time() -> None:
    harness = Harness(handshakes_max=2, handshake_ms=1_000)
    connect = encode(sn.Connect("dev1", version=1, will_flag=True), V12)
    for port in range(3):
        harness.feed(connect, ("192.0.2.1", port))
    assert harness.engine.counters.handshakes_dropped == 1
    harness.pass_ms(1_001)
    assert harness.engine.counters.handshakes_dropped == 3
    assert harness.feed(encode(sn.WillTopic("w/t"), V12), ("192.0.2.1", 2)) == []


def test_1_2_keeps_the_will_of_a_session_that_is_not_clean() -> None:
    harness = Harness()
    dialogue(harness, False, "w/t")
    harness.feed(encode(sn.Disconnect(), V12))
    harness.connect(V12, clean_start=False)
    assert opened(harness)[-1].will == core.Will("w/t", b"bye", 1, True)
    harness.feed(encode(sn.Disconnect(), V12))
    harness.connect(V12, clean_start=True)
    assert opened(harness)[-1].will is None
    harness.feed(encode(sn.Disconnect(), V12))
    harness.connect(V12, clean_start=False)
    assert opened(harness)[-1].will is None


def test_1_2_updates_the_will_in_two_parts() -> None:
    harness = Harness()
    dialogue(harness, True, "w/t")
    connection = harness.connection()
    assert harness.ask(connection, sn.WillTopic("w/u", 0, False, update=True)) == [sn.WillResponse(True)]
    assert harness.ask(connection, sn.WillMsg(b"moved", update=True)) == [sn.WillResponse(False)]
    assert harness.ask(connection, sn.WillTopic("", update=True)) == [sn.WillResponse(True)]
    assert harness.wills() == [core.Will("w/u", b"bye"), core.Will("w/u", b"moved"), None]


# -- a CONNECT that comes again --------------------------------------------------------------------------------------


@ALL
def test_a_copy_of_the_connect_is_answered_again_and_changes_nothing(profile) -> None:
    harness = Harness()
    connect = encode(sn.Connect("dev1", packet_id=1, version=profile.version), profile)
    first = harness.feed(connect)
    connection = harness.connection()
    harness.ask(connection, sn.Subscribe(1, sn.full_name("a/b")))
    harness.now_ms += 1_000
    assert harness.feed(connect) == first
    assert len(opened(harness)) == 1


@ALL
def test_the_same_connect_later_is_a_new_one(profile) -> None:
    harness = Harness()
    connect = encode(sn.Connect("dev1", packet_id=1, version=profile.version), profile)
    harness.feed(connect)
    harness.now_ms += 500
    harness.ask(harness.connection(), sn.Pingreq(2))
    harness.now_ms += 5_000
    harness.feed(connect)
    assert len(opened(harness)) == 2


@TWO
def test_a_client_id_that_connects_elsewhere_takes_over_and_the_old_address_is_told(profile) -> None:
    harness = Harness()
    harness.connect(profile, packet_id=1)
    harness.connect(profile, packet_id=1, address=ELSEWHERE)
    assert (HOST, encode(sn.Disconnect(0x8E), profile)) in harness.sent
    assert harness.engine.counters.clients == 1
    # From the same address there is nobody left to tell.
    harness.now_ms += 5_000
    before = len(harness.sent)
    harness.connect(profile, packet_id=2, address=ELSEWHERE)
    assert len(harness.sent) == before + 1


def test_another_client_at_the_same_address_ends_the_first() -> None:
    harness = Harness()
    harness.connect(V12, "first")
    harness.connect(B, "second")
    assert harness.lost() == ["its address belongs to another client now"]
    assert harness.engine.counters.clients == 1
    # Nothing was said to the first: it would have reached the second.
    assert len(harness.sent) == 2


def test_a_refused_connect_leaves_who_was_there_before() -> None:
    harness = Harness()
    first = harness.connect(A, "first")
    events = harness.engine.receive(encode(sn.Connect("second", packet_id=1), B), HOST, harness.now_ms)
    second = events[0]
    assert isinstance(second, ConnectRequest)
    second.connection.send(core.Connack(False, 0x86), harness.now_ms)
    second.connection.close(0x86, harness.now_ms)
    assert [decode(data, B) for data in harness.settle()] == [sn.Connack(0x86, 1)]
    assert harness.ask(first, sn.Pingreq(5)) == [sn.Pingresp(5)]
    assert harness.engine.counters.clients == 1


def test_clients_are_bounded() -> None:
    harness = Harness(clients_max=2)
    for number in range(2):
        harness.connect(V12, f"dev{number}", ("192.0.2.1", number))
    assert harness.feed(encode(sn.Connect("dev9", version=1), V12), ELSEWHERE) == [bytes.fromhex("03 05 01")]
    answer = harness.feed(encode(sn.Connect("dev9", packet_id=3), B), ELSEWHERE)
    assert answer == [encode(sn.Connack(0xF1, 3), B)]
    assert harness.engine.counters.clients == 2


def test_a_client_that_said_nothing_after_its_connect_makes_room_when_all_places_are_taken() -> None:
    harness = Harness(clients_max=3)
    speaks = harness.connect(V12, "speaks", ("192.0.2.1", 1), keep_alive_s=0)
    harness.ask(speaks, sn.Pingreq())
    for number in (2, 3):
        harness.connect(V12, f"forged{number}", ("192.0.2.1", number), keep_alive_s=0)
    connect = encode(sn.Connect("comes", keep_alive_s=0, version=1), V12)
    assert harness.feed(connect, ELSEWHERE) == [bytes.fromhex("03 05 01")]
    harness.pass_ms(5_000)
    assert harness.feed(connect, ELSEWHERE)[-1] == bytes.fromhex("03 05 00")
    harness.ask(harness.connection(), sn.Pingreq())
    harness.pass_ms(60_000)
    assert harness.feed(encode(sn.Connect("too", keep_alive_s=0, version=1), V12), HOST)[-1] == bytes.fromhex(
        "03 05 00"
    )
    harness.ask(harness.connection(), sn.Pingreq())
    harness.pass_ms(60_000)
    assert harness.feed(encode(sn.Connect("no", version=1), V12), ("198.51.100.9", 5)) == [bytes.fromhex("03 05 01")]
    assert len(harness.lost()) == 2
    assert harness.engine.counters.clients == 3
    assert len(harness.ask(speaks, sn.Pingreq())) == 1


@ALL
def test_what_a_connect_can_have_kept_is_bounded(profile) -> None:
    harness = Harness()
    version = profile.version
    long_id = sn.Connect("x" * 257, packet_id=5, version=version)
    refused = harness.feed(encode(long_id, profile))
    assert refused == [encode(sn.Connack(0x85, 5), profile)]
    large = sn.Connect("x" * 5_000, packet_id=5, version=version)
    if not profile.will_dialogue:
        will = ConnectWill(sn.full_name("a/b"), bytes(5_000))
        large = sn.Connect("dev1", packet_id=5, will=will)
    assert [decode(data, profile).reason for data in harness.feed(encode(large, profile))] == [  # type: ignore[attr-defined]
        0x83 if version == 1 else 0x95
    ]
    assert harness.engine.counters.clients == 0
    harness.connect(profile, "x" * 256)
    assert harness.engine.counters.clients == 1


@pytest.mark.parametrize("profile", [V12, W], ids=lambda profile: profile.name)
@pytest.mark.parametrize("topic_too", [True, False])
def test_parts_of_a_will_are_bounded_in_the_dialogue_and_as_updates(profile, topic_too: bool) -> None:
    harness = Harness()
    harness.feed(encode(sn.Connect("dev1", will_flag=True, version=profile.version), profile))
    if not topic_too:
        harness.feed(encode(sn.WillTopic("a/b"), profile))
    part = sn.WillTopic("t" * 5_000) if topic_too else sn.WillMsg(bytes(5_000))
    connack = decode(harness.feed(encode(part, profile))[0], profile)
    assert isinstance(connack, sn.Connack)
    assert connack.reason >= 0x80
    connection = harness.connect(profile)
    harness.ask(connection, sn.WillTopic("will/t", update=True))
    for update in (sn.WillTopic("t" * 5_000, update=True), sn.WillMsg(bytes(5_000), True)):
        answer = harness.ask(connection, update)
        assert [packet.reason >= 0x80 for packet in answer if isinstance(packet, sn.WillResponse)] == [True]
    will = connection.will
    assert will is not None
    assert (will.topic_name, will.payload) == ("will/t", b"")


@ALL
def test_names_that_a_client_registers_are_bounded_in_bytes(profile) -> None:
    harness = Harness()
    connection = harness.connect(profile)
    given = 0
    for number in range(1, 60):
        regack = harness.ask(connection, sn.Register(number, f"{number}/" + "n" * 10_000))[0]
        assert isinstance(regack, sn.Regack)
        given += regack.reason == 0
    assert given == 13
    for number in range(60):
        connection.outgoing.aliases.offer(f"{number}/" + "s" * 10_000)
    assert 13 < len(connection.outgoing.aliases) <= 13 + 14
    huge = connection.outgoing.aliases.offer("h" * 60_000)
    assert huge is not None
    small = harness.ask(connection, sn.Register(61, "small"))[0]
    assert isinstance(small, sn.Regack)
    assert small.reason == 0


@ALL
def test_a_second_client_from_one_address_waits_until_the_first_is_decided(profile) -> None:
    harness = Harness()
    engine = harness.engine
    first, second = (encode(sn.Connect(name, packet_id=5, version=profile.version), profile) for name in ("one", "two"))
    opened = [event for event in engine.receive(first, HOST, harness.now_ms) if isinstance(event, ConnectRequest)]
    for _ in range(100):
        events = engine.receive(second, HOST, harness.now_ms)
        answers = [event.datagram for event in events if isinstance(event, SendDatagram)]
        assert answers == ([encode(sn.Connack(0xF1, 5), B)] if profile is B else [])
        assert len(answers) == len(events)
    assert engine.counters.connects_refused == 100
    opened[0].connection.send(core.Connack(False), harness.now_ms)
    engine.take_events()
    events = engine.receive(second, HOST, harness.now_ms)
    assert any(isinstance(event, ConnectRequest) for event in events)


@ALL
def test_connections_that_are_over_are_not_held_until_their_keep_alive_would_have_run_out(profile) -> None:
    harness = Harness()
    for number in range(5_000):
        harness.connect(profile, f"dev{number}", keep_alive_s=65_535)
    assert len(harness.engine.timers) < 2_000
    assert harness.engine.counters.clients == 1


@ALL
def test_timers_of_one_busy_client_do_not_pile_up(profile) -> None:
    harness = Harness(retry_ms=10, retries_max=4)
    connection = harness.connect(profile, keep_alive_s=65_535)
    for number in range(1, 3_000):
        harness.deliver(connection, "ab" if profile is not B else "a/b", b"x", 1, number)
        harness.ask(connection, sn.Puback(number))
        harness.pass_ms(20)
    assert len(harness.engine.timers) < 2_000
    assert harness.lost() == []
    harness.pass_ms(65_535 * 1_500)
    assert harness.lost() == ["no packet in time"]


@ALL
def test_packets_that_run_ahead_of_connack_wait_for_it(profile) -> None:
    harness = Harness()
    events = harness.engine.receive(encode(sn.Connect("dev1", packet_id=1, version=profile.version), profile), HOST, 0)
    assert isinstance(events[0], ConnectRequest)
    for number in range(1, 30):
        assert harness.engine.receive(encode(sn.Pingreq(number), profile), HOST, 1) == []
    connection = events[0].connection
    connection.send(core.Connack(False), 2)
    connection.opened(2)
    answers = [decode(data, profile) for data in harness.settle()]
    assert isinstance(answers[0], sn.Connack)
    assert len(answers) == 1 + 16


# -- requests --------------------------------------------------------------------------------------------------------


@ALL
def test_register_gives_the_same_alias_for_the_same_name(profile) -> None:
    harness = Harness()
    connection = harness.connect(profile)
    (first,) = harness.ask(connection, sn.Register(1, "a/b"))
    (again,) = harness.ask(connection, sn.Register(2, "a/b"))
    (other,) = harness.ask(connection, sn.Register(3, "a/c"))
    assert isinstance(first, sn.Regack) and isinstance(again, sn.Regack) and isinstance(other, sn.Regack)
    assert first.reason == 0
    assert first.topic_alias == again.topic_alias != other.topic_alias
    assert 0 < first.topic_alias < 0xFFFF
    harness.ask(connection, sn.Publish(sn.session_alias(first.topic_alias), b"hi", 1, packet_id=4))
    assert harness.received() == [core.Publish("a/b", b"hi", 1, packet_id=4)]


@ALL
def test_a_name_with_wildcards_is_not_registered(profile) -> None:
    harness = Harness()
    (answer,) = harness.ask(harness.connect(profile), sn.Register(1, "a/+"))
    assert isinstance(answer, sn.Regack)
    assert (answer.topic_alias, answer.reason >= 0x80) == (0, True)


def test_aliases_of_one_client_are_bounded() -> None:
    harness = Harness(aliases_max=20)
    connection = harness.connect(A)
    codes = []
    for number in range(1, 7):
        (answer,) = harness.ask(connection, sn.Register(number, f"t/{number}"))
        assert isinstance(answer, sn.Regack)
        codes.append(answer.reason)
    assert codes == [0, 0, 0, 0, 0x97, 0x97]
    (answer,) = harness.ask(connection, sn.Register(9, "t/1"))
    assert isinstance(answer, sn.Regack) and answer.reason == 0


def test_a_predefined_name_is_answered_with_its_alias() -> None:
    for profile, reason in ((A, 0), (B, 0x1A)):
        harness = Harness(predefined={7: "a/b"})
        answer = harness.ask(harness.connect(profile), sn.Register(1, "a/b"))
        assert answer == [sn.Regack(1, 7, reason, PREDEFINED_ALIAS)]


@pytest.mark.parametrize(
    ("profile", "qos", "answer"),
    [
        (V12, 0, [sn.Puback(0, 0xF0, 0x1234)]),
        (V12, 1, [sn.Puback(5, 0xF0, 0x1234)]),
        (V12, 2, [sn.Puback(5, 0xF0, 0x1234)]),
        (A, 0, []),
        (A, 1, [sn.Puback(5, 0xF0)]),
        (A, 2, [sn.Pubrec(5, 0xF0)]),
        (B, 0, []),
        (B, 1, [sn.Puback(5, 0xF0)]),
        (B, 2, [sn.Pubrec(5, 0xF0)]),
    ],
)
def test_an_unknown_alias_is_answered_as_each_profile_says(profile, qos: int, answer: list[sn.SnPacket]) -> None:
    harness = Harness()
    packet = sn.Publish(sn.session_alias(0x1234), b"hi", qos, packet_id=5 if qos else 0)
    assert harness.ask(harness.connect(profile), packet) == answer
    assert harness.received() == []
    assert harness.engine.counters.unknown_aliases == 1


def test_an_unknown_predefined_alias_ends_a_connection_of_b_only() -> None:
    for profile, failed in ((V12, []), (A, []), (B, [0x82])):
        harness = Harness()
        harness.ask(harness.connect(profile), sn.Publish(sn.predefined_alias(5), b"hi", 1, packet_id=3))
        assert harness.failed() == failed


@TWO
def test_a_second_request_before_the_first_is_answered_ends_the_connection(profile) -> None:
    harness = Harness()
    harness.connect(profile)
    first = encode(sn.Publish(sn.full_name("a"), b"1", 1, packet_id=1), profile)
    harness.engine.receive(first, HOST, harness.now_ms)  # nobody answers it
    harness.feed(first)  # the same again is no second one
    assert harness.failed() == []
    harness.engine.receive(encode(sn.Publish(sn.full_name("a"), b"2", 1, packet_id=2), profile), HOST, harness.now_ms)
    harness.feed(encode(sn.Publish(sn.full_name("a"), b"3", 1, packet_id=3), profile))
    assert harness.failed() == [0x93]
    assert harness.engine.counters.clients == 0


def test_1_2_sets_no_penalty_on_a_second_request() -> None:
    harness = Harness()
    harness.connect(V12)
    for packet_id in (1, 2, 3):
        data = encode(sn.Publish(sn.short_name("ab"), b"x", 1, packet_id=packet_id), V12)
        harness.engine.receive(data, HOST, harness.now_ms)
    assert harness.failed() == []


@ALL
def test_a_subscribe_that_comes_again_is_only_answered_again(profile) -> None:
    harness = Harness()
    connection = harness.connect(profile)
    first = harness.ask(connection, sn.Subscribe(1, sn.full_name("a/b"), 1))
    harness.now_ms += 3_000
    again = harness.ask(connection, sn.Subscribe(1, sn.full_name("a/b"), 1, dup=profile is V12))
    assert first == again
    assert len(harness.received()) == 1
    harness.ask(connection, sn.Subscribe(2, sn.full_name("a/b"), 1))
    assert len(harness.received()) == 2


def test_1_2_may_use_one_packet_id_for_ever() -> None:
    harness = Harness()
    connection = harness.connect(V12)
    for _ in range(3):
        harness.ask(connection, sn.Subscribe(1, sn.full_name("a/b")))
    assert len(harness.received()) == 3


@ALL
def test_a_late_copy_of_a_finished_qos_2_message_is_not_handed_on(profile) -> None:
    harness = Harness()
    connection = harness.connect(profile)
    reference = sn.short_name("ab") if profile.short_names else sn.full_name("ab")
    publish = sn.Publish(reference, b"once", 2, packet_id=9)
    harness.ask(connection, publish)
    harness.ask(connection, sn.Pubrel(9))
    harness.now_ms += 500
    assert harness.ask(connection, publish) == [sn.Pubrec(9)]
    assert harness.ask(connection, sn.Publish(reference, b"once", 2, dup=True, packet_id=9)) == [sn.Pubrec(9)]
    assert [type(packet) for packet in harness.received()] == [core.Publish, core.Pubrel]
    harness.ask(connection, sn.Publish(reference, b"another", 2, packet_id=9))
    assert len(harness.received()) == 3


def test_suback_tells_the_alias_of_an_exact_topic_only() -> None:
    harness = Harness(predefined={7: "pre/defined"})
    for number, profile in enumerate((V12, A, B)):
        connection = harness.connect(profile, f"dev{number}", ("192.0.2.1", number))
        (exact,) = harness.ask(connection, sn.Subscribe(1, sn.full_name("a/b"), 1))
        (wildcard,) = harness.ask(connection, sn.Subscribe(2, sn.full_name("a/+"), 2))
        (named,) = harness.ask(connection, sn.Subscribe(3, sn.predefined_alias(7), 0))
        assert isinstance(exact, sn.Suback) and isinstance(wildcard, sn.Suback) and isinstance(named, sn.Suback)
        assert (exact.reason, wildcard.reason, named.reason) == (1, 2, 0)
        assert (exact.topic_alias > 0, wildcard.topic_alias) == (True, 0)
        assert named.topic_alias == (0 if profile is B else 7)


@ALL
def test_a_bad_filter_is_refused_without_asking_the_core(profile) -> None:
    harness = Harness()
    (answer,) = harness.ask(harness.connect(profile), sn.Subscribe(1, sn.full_name("a/#/b")))
    assert isinstance(answer, sn.Suback)
    assert answer.reason >= 0x80
    assert harness.received() == []


def test_subscribe_options_reach_the_core() -> None:
    for profile in (W, A, B):
        harness = Harness()
        harness.ask(harness.connect(profile), sn.Subscribe(1, sn.full_name("a"), 2, True, True, 1))
        assert harness.received() == [core.Subscribe(1, [core.SubscriptionRequest("a", 2, True, True, 1)])]


# -- wrappers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("profile", [V12, A], ids=lambda profile: profile.name)
def test_clients_behind_one_forwarder_are_told_apart_and_answered_through_it(profile) -> None:
    harness = Harness()

    def wrapped(node: bytes, packet: sn.SnPacket) -> bytes:
        return bytes([3 + len(node), 0xFE, 0]) + node + encode(packet, profile)

    for node in (b"n1", b"n2"):
        harness.feed(wrapped(node, sn.Connect(node.decode(), packet_id=1, version=profile.version)))
    assert harness.engine.counters.clients == 2
    assert [data[:5] for _, data in harness.sent] == [b"\x05\xfe\x00n1", b"\x05\xfe\x00n2"]
    assert harness.feed(wrapped(b"n2", sn.Pingreq(3))) == [wrapped(b"n2", sn.Pingresp(3))]


def test_bs_forwarder_frame_is_answered_alike() -> None:
    harness = Harness()
    connect = encode(sn.Connect("dev1", packet_id=1), B)
    wrapped = bytes([5 + len(connect), 0xFC, 2, 1, 2]) + connect
    answer = harness.feed(wrapped)
    assert answer == [bytes([11, 0xFC, 2, 1, 2]) + encode(sn.Connack(0, 1), B)]


def test_connection_encapsulation_moves_a_client_that_allowed_it() -> None:
    harness = Harness(rebind="any")
    connection = harness.connect(B, address_change=True)
    harness.connect(B, "fixed", ("192.0.2.1", 2))
    answer = harness.feed(wrap_connection("dev1", encode(sn.Pingreq(5), B)), ELSEWHERE)
    assert answer == [encode(sn.Pingresp(5), B)]
    assert connection.peer.address() == ELSEWHERE
    assert harness.feed(wrap_connection("fixed", encode(sn.Pingreq(5), B)), ELSEWHERE) == []
    assert harness.feed(wrap_connection("nobody", encode(sn.Pingreq(5), B)), ELSEWHERE) == []
    assert harness.feed(wrap_connection("dev1", encode(sn.Puback(5), B)), ELSEWHERE) == []
    assert harness.engine.counters.rebinds_refused == 2
    assert harness.lost() == []


@pytest.mark.parametrize(
    ("rebind", "port_may", "host_may"), [("never", False, False), ("same-host", True, False), ("any", True, True)]
)
def test_where_connection_encapsulation_moves_a_client_to_is_a_setting(
    rebind: str, port_may: bool, host_may: bool
) -> None:
    harness = Harness(rebind=rebind)
    connection = harness.connect(B, address_change=True)
    ping = wrap_connection("dev1", encode(sn.Pingreq(5), B))
    assert len(harness.feed(ping, HOST)) == 1
    assert len(harness.feed(ping, (HOST[0], 4_444))) == port_may
    assert len(harness.feed(ping, ELSEWHERE)) == host_may
    assert (connection.peer.address() == ELSEWHERE) == host_may
    assert harness.engine.counters.rebinds_refused == 2 - port_may - host_may


# -- without a connection --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "data", "expected"),
    [
        ({}, "09 0c 61 00 01 00 00 68 69", core.Publish("pre/defined", b"hi")),
        ({}, "09 0c 72 61 62 00 00 68 69", core.Publish("ab", b"hi", retain=True)),
        ({}, "0c 0c 60 00 03 00 00 61 2f 62 68 69", core.Publish("a/b", b"hi")),
        ({}, "0a 11 13 00 03 61 2f 62 68 69", core.Publish("a/b", b"hi", retain=True)),
        ({"sessionless_profile": "2.0-b"}, "09 12 03 00 03 61 2f 62 78", core.Publish("a/b", b"x")),
        ({"profile": "2.0-b"}, "07 12 11 00 01 68 69", core.Publish("pre/defined", b"hi", retain=True)),
        ({"profile": "2.0-w"}, "0b 11 02 73 00 03 61 2f 62 68 69", core.Publish("a/b", b"hi", retain=True)),
    ],
)
def test_messages_without_a_session_are_taken_at_qos_0_and_never_answered(options, data: str, expected) -> None:
    harness = Harness(predefined={1: "pre/defined"}, **options)
    assert harness.feed(bytes.fromhex(data)) == []
    assert harness.sessionless() == [expected]


@pytest.mark.parametrize(
    ("options", "data"),
    [
        ({"sessionless": False}, "0a 11 13 00 03 61 2f 62 68 69"),
        ({}, "07 11 11 00 09 68 69"),  # a predefined alias that nobody defined
        ({}, "09 12 03 00 03 61 2f 62 78"),  # B's, but 2.0-a is set: it may be a SUBSCRIBE
        ({"profile": "2.0-b"}, "09 0c 61 00 01 00 00 68 69"),
        ({}, "09 0c 20 00 05 00 07 68 69"),  # QoS 1 needs a session
        ({}, "07 11 00 00 05 68 69"),  # a session alias
    ],
)
def test_other_messages_without_a_session_are_not_taken(options, data: str) -> None:
    harness = Harness(predefined={1: "pre/defined"}, **options)
    assert harness.feed(bytes.fromhex(data)) == []
    assert harness.sessionless() == []


def test_a_search_is_answered_only_if_set() -> None:
    for data, answer in (("03 01 01", "03 02 09"), ("03 02 01", "03 03 09"), ("02 17", "03 18 09")):
        assert Harness().feed(bytes.fromhex(data)) == []
        assert Harness(answer_search=True, gateway_id=9).feed(bytes.fromhex(data)) == [bytes.fromhex(answer)]


def test_an_advertisement_says_it_on_every_wire() -> None:
    harness = Harness(advertise_s=900, gateway_id=7)
    assert harness.engine.advertisement() == [bytes.fromhex(f"05 {code} 07 03 84") for code in ("00", "01", "16")]


def test_strangers_that_ping_are_told_and_not_too_often() -> None:
    harness = Harness()
    assert harness.feed(bytes.fromhex("02 16")) == [bytes.fromhex("02 18")]
    assert harness.feed(bytes.fromhex("04 0c 12 34")) == [bytes.fromhex("06 0e 05 12 34 f4")]
    answers = sum(len(harness.feed(bytes.fromhex("02 16"), ("192.0.2.7", port))) for port in range(300))
    assert answers == 98
    harness.now_ms += 1_000
    assert len(harness.feed(bytes.fromhex("02 16"))) == 1


def test_noise_from_strangers_is_counted_and_nothing_is_kept() -> None:
    harness = Harness()
    for data in ("07 0d 00 05 00 07 00", "04 10 00 08", "08 12 20 00 02 61 2f 2b", "02 18", "07 0b 00 05 00 01 00"):
        assert harness.feed(bytes.fromhex(data)) == []
    assert harness.engine.counters.without_connection == 5
    for data in ("", "00", "01", "03 16", "02 fd 00"):
        assert harness.feed(bytes.fromhex(data)) == []
    assert harness.engine.counters.malformed == 5
    assert harness.engine.counters.clients == 0
    assert harness.events == []
