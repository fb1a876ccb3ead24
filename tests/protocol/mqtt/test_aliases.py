"""Topic aliases of both directions: what stands for what, and how much one client may have."""

import pytest

from embermq.protocol.errors import ProtocolError
from embermq.protocol.mqtt.aliases import IncomingAliases, OutgoingAliases
from embermq.protocol.mqtt.readers import WirePublish
from embermq.protocol.packets import Publish, RefusedPublish
from embermq.protocol.reasons import ReasonCode
from support.clauses import v5


def incoming(maximum: int = 3, bytes_max: int = 100) -> IncomingAliases:
    return IncomingAliases(maximum, lambda: 5_000_000, bytes_max)


def resolved(aliases: IncomingAliases, topic_name: str, alias: int, properties: bytes = b"") -> Publish:
    message = aliases.resolved(WirePublish(Publish(topic_name, b"x", 1, True, True, 7, properties), alias))
    assert isinstance(message, Publish)
    return message


@v5("MQTT-3.3.2-12")
def test_an_alias_stands_for_the_last_name_it_came_with() -> None:
    aliases = incoming()
    for alias in (1, 2, 3):
        assert resolved(aliases, f"t/{alias}", alias) == Publish(f"t/{alias}", b"x", 1, True, True, 7)
    assert resolved(aliases, "", 2).topic_name == "t/2"
    assert resolved(aliases, "other", 2).topic_name == "other"
    assert resolved(aliases, "", 2).topic_name == "other"
    assert resolved(aliases, "", 1).topic_name == "t/1"


@v5("MQTT-3.3.2-7")
def test_connections_do_not_share_aliases() -> None:
    resolved(incoming(), "t", 1)
    with pytest.raises(ProtocolError) as caught:
        resolved(incoming(), "", 1)
    assert caught.value.reason == ReasonCode.PROTOCOL_ERROR


@v5("MQTT-3.3.2-9")
@pytest.mark.parametrize("maximum", [0, 3])
def test_an_alias_above_the_maximum_is_not_valid(maximum: int) -> None:
    with pytest.raises(ProtocolError) as caught:
        resolved(incoming(maximum), "t", maximum + 1)
    assert caught.value.reason == ReasonCode.TOPIC_ALIAS_INVALID


def test_the_bytes_of_aliases_are_bounded() -> None:
    aliases = incoming(bytes_max=10)
    resolved(aliases, "12345", 1)
    resolved(aliases, "12345", 2)
    resolved(aliases, "54321", 1)
    with pytest.raises(ProtocolError) as caught:
        resolved(aliases, "é", 3)
    assert caught.value.reason == ReasonCode.QUOTA_EXCEEDED


def test_the_expiry_is_counted_from_the_instant_of_the_turn() -> None:
    message = resolved(incoming(), "t", 0, bytes.fromhex("02 0000000a"))
    assert message.expires_us == 15_000_000
    assert message.properties == bytes.fromhex("02 0000000a")


def test_the_least_recently_used_name_gives_way() -> None:
    aliases = OutgoingAliases(2)
    for alias, name in ((1, "a-long-name-1"), (2, "a-long-name-2")):
        assert aliases.known(name) == 0
        assert aliases.proposed(name) == alias
        aliases.sent(name, alias)
    aliases.sent("a-long-name-1", 1)
    assert aliases.proposed("a-long-name-3") == 2
    assert aliases.known("a-long-name-2") == 2, "a proposal changes nothing"
    aliases.sent("a-long-name-3", 2)
    assert [aliases.known(f"a-long-name-{number}") for number in (1, 2, 3)] == [1, 0, 2]


@v5("MQTT-3.1.2-26")
@pytest.mark.parametrize("maximum", [1, 10, 64])
def test_no_more_aliases_are_set_than_the_client_allows(maximum: int) -> None:
    aliases = OutgoingAliases(maximum)
    used = set()
    for number in range(200):
        name = f"a-long-name-{number}"
        alias = aliases.proposed(name)
        aliases.sent(name, alias)
        used.add(alias)
    assert used == set(range(1, maximum + 1))


def test_a_short_name_gets_no_alias() -> None:
    assert OutgoingAliases(10).proposed("12345678") == 0


def test_an_alias_counts_although_its_message_is_refused() -> None:
    aliases = incoming()
    wrong = WirePublish(Publish("t", b"\xff", 2, packet_id=7), 1, (), True)
    refused = aliases.resolved(wrong)
    assert isinstance(refused, RefusedPublish)
    assert (refused.topic_name, refused.qos, refused.packet_id) == ("t", 2, 7)
    assert refused.reason == ReasonCode.PAYLOAD_FORMAT_INVALID
    assert resolved(aliases, "", 1).topic_name == "t"


def test_at_qos_0_a_wrong_payload_ends_the_connection() -> None:
    with pytest.raises(ProtocolError) as caught:
        incoming().resolved(WirePublish(Publish("t", b"\xff"), 0, (), True))
    assert caught.value.reason == ReasonCode.PAYLOAD_FORMAT_INVALID
