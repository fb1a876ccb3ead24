"""The table of topic aliases and its bounds."""

from random import Random

import pytest

from embermq.protocol.sn.aliases import RESERVED_FOR_SERVER, Aliases, topic_name_of
from embermq.protocol.sn.settings import SnSettings
from embermq.protocol.sn.wire.layouts import Profile
from embermq.protocol.sn.wire.profiles import V12, A
from support import sn_packets as sn
from support.sn_harness import (
    ALL,
    Harness,
    one,
    registered,
)


@ALL
def test_names_that_a_client_registers_are_bounded_in_bytes(profile: Profile) -> None:
    harness = Harness()
    connection = harness.connect(profile)
    refused = harness.ask(connection, sn.register(1, "n" * 10_000))[-1]
    assert refused.kind == sn.REGACK and refused.reason  # before its address is proven it may have less
    connection.peer.is_proven = True
    given = 0
    for number in range(1, 60):
        regack = harness.ask(connection, sn.register(number, f"{number}/" + "n" * 10_000))[0]
        assert regack.kind == sn.REGACK
        given += regack.reason == 0
    assert given == 13
    for number in range(60):
        connection.outgoing.aliases.offer(f"{number}/" + "s" * 10_000)
    assert 13 < len(connection.outgoing.aliases) <= 13 + 14
    huge = connection.outgoing.aliases.offer("h" * 60_000)
    assert huge is not None
    small = harness.ask(connection, sn.register(61, "small"))[0]
    assert small.kind == sn.REGACK
    assert small.reason == 0


def test_aliases_of_one_client_are_bounded() -> None:
    harness = Harness(aliases_max=20)
    connection = harness.connect(A)
    codes = []
    for number in range(1, 7):
        (answer,) = harness.ask(connection, sn.register(number, f"t/{number}"))
        assert answer.kind == sn.REGACK
        codes.append(answer.reason)
    assert codes == [0, 0, 0, 0, 0x97, 0x97]
    (answer,) = harness.ask(connection, sn.register(9, "t/1"))
    assert answer.kind == sn.REGACK and answer.reason == 0


def test_more_topics_than_aliases_take_turns() -> None:
    harness = Harness(aliases_max=32, prove_address=False, burst=1_000)
    connection = harness.connect(V12)
    harness.ask(connection, sn.register(1, "asked/for"))
    for number in range(100):
        publish = one(registered(harness, connection, harness.deliver(connection, f"t/{number}", b"%d" % number)))
        assert publish.kind == sn.PUBLISH
    assert len(connection.outgoing.aliases) == 32
    # What the client asked for is never taken away.
    assert one(harness.deliver(connection, "asked/for")).kind == sn.PUBLISH
    assert one(harness.deliver(connection, "t/0")).kind == sn.REGISTER


def test_an_alias_is_known_once_the_client_uses_it() -> None:
    aliases = Aliases(32, Random(1))
    offered = aliases.offer("a/b")
    assert offered is not None
    assert not offered.is_known
    assert aliases.name_of(offered.number) == "a/b"
    assert offered.is_known
    assert aliases.name_of(offered.number ^ 1) is None


def test_a_forgotten_alias_gives_its_place_back() -> None:
    aliases = Aliases(RESERVED_FOR_SERVER + 1, Random(1))
    number = aliases.request("a/b")
    assert number
    assert aliases.request("a/c") == 0
    aliases.forget(number)
    assert aliases.request("a/c")
    aliases.clear()
    assert len(aliases) == 0
    assert aliases.request("a/d")


@pytest.mark.parametrize(
    ("reference", "name"),
    [
        (sn.full_name("a/b"), "a/b"),
        (sn.short_name("ab"), "ab"),
        (sn.predefined_alias(7), "pre/defined"),
        (sn.predefined_alias(8), None),
        (sn.session_alias(7), None),
    ],
)
def test_the_topic_name_of_a_reference(reference: sn.TopicReference, name: str | None) -> None:
    settings = SnSettings(predefined={7: "pre/defined"})
    assert topic_name_of(reference, Aliases(32, Random(1)), settings) == name
    assert topic_name_of(reference, None, settings) == name


def test_a_session_alias_has_a_name_only_in_its_session() -> None:
    aliases = Aliases(32, Random(1))
    reference = sn.session_alias(aliases.request("a/b"))
    assert topic_name_of(reference, aliases, SnSettings()) == "a/b"
    assert topic_name_of(reference, None, SnSettings()) is None
