"""Access: what an access list grants, that a client's own names never widen it, and the order of an exchange."""

from collections.abc import Callable
from functools import partial

import pytest

from embermq.access.access_list import parse_access_list
from embermq.broker.access import (
    EXCHANGE_ROUNDS_MAX,
    REMEMBERED_TOPICS_MAX,
    WRITE,
    AccessList,
    AllowAll,
    Exchange,
    ExchangeAnswer,
    Identity,
)
from embermq.protocol.errors import Refused
from embermq.protocol.reasons import ReasonCode

LIST = """
# who may do what
all
  read public/#
anonymous
  write guestbook
user alice
  read,write,retain alice/#
  read +/status
  write,retain shared/%u/%c
user bob
  read $SYS/#
"""


@pytest.fixture(scope="module")
def access_list() -> AccessList:
    return parse_access_list(LIST, "acl")


def may_read(access_list: AccessList, user_name: str, topic_filter: str, client_id: str = "c1") -> bool:
    return Identity(user_name, client_id).rights(access_list).may_read(topic_filter)


def may_write(
    access_list: AccessList, user_name: str, topic_name: str, client_id: str = "c1", retain: bool = False
) -> bool:
    return Identity(user_name, client_id).rights(access_list).may_write(topic_name, retain)


def test_allow_all_takes_every_name_and_allows_everything() -> None:
    access = AllowAll()
    identity = access.authenticate("c1", "alice", b"secret", None)
    assert (identity.user_name, identity.client_id) == ("alice", "c1")
    assert access.authenticate("c1", None, None, None).user_name == ""
    assert access.authenticate("c1", None, None, "device-7").user_name == "device-7"
    assert access.unrestricted and not access.slow
    assert access.may_publish(identity, "$SYS/x", True) and access.may_subscribe(identity, "#")


@pytest.mark.parametrize(
    ("user_name", "topic_filter", "allowed"),
    [
        ("alice", "alice/#", True),
        ("alice", "alice", True),
        ("alice", "alice/+/x", True),
        ("alice", "#", False),
        ("alice", "+/#", False),
        ("alice", "bob/status", True),
        ("alice", "+/status", True),
        ("alice", "+/+", False),
        ("alice", "public/#", True),
        ("alice", "$SYS/#", False),
        ("bob", "$SYS/broker/uptime", True),
        ("bob", "alice/x", False),
        ("", "public/news", True),
        ("", "guestbook", False),
        ("unknown", "public/+", True),
        ("unknown", "guestbook", False),
    ],
)
def test_a_subscription_needs_a_grant_that_covers_it(
    access_list: AccessList, user_name: str, topic_filter: str, allowed: bool
) -> None:
    assert may_read(access_list, user_name, topic_filter) is allowed


def test_a_leading_wildcard_grants_nothing_below_a_dollar() -> None:
    everything = parse_access_list("all\nread,write,retain #", "acl")
    assert may_read(everything, "alice", "#")
    assert not may_read(everything, "alice", "$SYS/#")
    assert not may_write(everything, "alice", "$SYS/broker/version")


@pytest.mark.parametrize(
    ("user_name", "topic_name", "write", "write_retained"),
    [
        ("alice", "alice/x", True, True),
        ("alice", "bob/x", False, False),
        ("alice", "public/x", False, False),
        ("", "guestbook", True, False),
        ("alice", "guestbook", False, False),
    ],
)
def test_retaining_needs_its_own_right(
    access_list: AccessList, user_name: str, topic_name: str, write: bool, write_retained: bool
) -> None:
    assert may_write(access_list, user_name, topic_name) is write
    assert may_write(access_list, user_name, topic_name, retain=True) is write_retained


def test_the_right_to_retain_alone_does_not_let_a_client_publish() -> None:
    retain_only = parse_access_list("all\nretain a", "acl")
    assert not may_write(retain_only, "alice", "a", retain=True)
    assert not may_write(retain_only, "alice", "a")


def test_names_stand_for_parts_of_a_level(access_list: AccessList) -> None:
    assert may_write(access_list, "alice", "shared/alice/c1")
    assert not may_write(access_list, "alice", "shared/alice/c2")
    part = parse_access_list("all\nread dev-%c/#", "acl")
    assert may_read(part, "", "dev-c1/temperature")
    assert not may_read(part, "", "dev-c2/temperature")


@pytest.mark.parametrize("name", ["+", "#", "a+", "x/y", "/", "", "a/#"])
def test_a_name_that_could_widen_a_filter_is_granted_nothing(name: str) -> None:
    by_user = parse_access_list("all\nread,write home/%u/#", "acl")
    assert not may_read(by_user, name, f"home/{name}/#")
    assert not may_read(by_user, name, "home/alice/#")
    assert not may_write(by_user, name, "home/alice/x")
    by_client = parse_access_list("all\nread,write home/%c/#", "acl")
    assert not may_read(by_client, "alice", "home/alice/#", client_id=name)
    assert not may_write(by_client, "alice", f"home/{name}/x", client_id=name)


def test_a_name_cannot_reach_the_servers_own_topics() -> None:
    own = parse_access_list("all\nread %u/#", "acl")
    assert may_read(own, "alice", "alice/#")
    assert not may_read(own, "$SYS", "$SYS/#")


def test_a_name_is_not_read_as_a_pattern_again() -> None:
    own = parse_access_list("all\nread home/%u", "acl")
    assert may_read(own, "%c", "home/%c", client_id="alice")
    assert not may_read(own, "%c", "home/alice", client_id="alice")


def test_a_percent_sign_is_written_twice() -> None:
    assert may_read(parse_access_list("all\nread humidity%%/%u", "acl"), "alice", "humidity%/alice")


GROUPS = """
all
read public/#
deny read public/secret/#
group staff
member alice
member bob
read,write,retain work/#
deny retain work/%u/#
group admins
member bob
read #
user alice
deny write work/x
"""


def test_a_denial_wins_wherever_it_is() -> None:
    found = parse_access_list(GROUPS, "acl")
    assert may_read(found, "carl", "public/a")
    assert not may_read(found, "carl", "public/#")
    assert not may_read(found, "carl", "public/secret/a")
    assert may_read(found, "alice", "work/#")
    assert may_write(found, "alice", "work/y")
    assert not may_write(found, "alice", "work/x")
    assert may_write(found, "bob", "work/x")
    assert may_write(found, "bob", "work/bob/x")
    assert not may_write(found, "bob", "work/bob/x", retain=True)
    assert may_read(found, "bob", "private")
    assert not may_read(found, "bob", "#")
    assert not may_read(found, "", "work/a")


@pytest.mark.parametrize(("user_name", "client_id"), [("a/b", "c"), ("", "c"), ("ann", "a+b"), ("ann", "")])
def test_no_name_escapes_a_denial_that_is_made_of_it(user_name: str, client_id: str) -> None:
    found = parse_access_list("all\nread,write #\ndeny write out/%u/own\ndeny write out/dev-%c/#", "acl")
    assert may_read(found, user_name, "#", client_id)
    assert not may_write(found, user_name, "out/x", client_id=client_id)
    assert not may_write(found, user_name, f"out/{user_name}/own", client_id=client_id)
    assert not may_write(found, user_name, f"out/dev-{client_id}/x", client_id=client_id)
    assert may_write(found, user_name, "in/x", client_id=client_id)


@pytest.mark.parametrize(
    ("user_name", "topic_filter", "granted"),
    [("carl", "#", True), ("carl", "public/secret/+", False), ("carl", "work/#", False), ("", "+/+", True)],
)
def test_a_narrowing_list_grants_a_filter_of_which_something_may_be_read(
    user_name: str, topic_filter: str, granted: bool
) -> None:
    narrowing = parse_access_list(GROUPS, "acl", is_narrowing=True)
    assert narrowing.rights_of(user_name, "c").may_subscribe(topic_filter) is granted
    assert not parse_access_list(GROUPS, "acl").rights_of(user_name, "c").may_subscribe(topic_filter)


def test_the_lines_that_decide_are_of_groups_and_denials_too() -> None:
    found = parse_access_list(GROUPS, "acl")
    assert found.deciding_lines("bob", "c", WRITE, "work/a") == ["acl, line 8: read,write,retain work/#"]
    assert found.deciding_lines("alice", "c", WRITE, "work/x") == ["acl, line 14: deny write work/x"]
    assert found.deciding_lines("carl", "c", WRITE, "work/x") == []


def test_another_list_in_force_is_heeded_at_once(access_list: AccessList) -> None:
    identity = Identity("alice", "c1")
    assert identity.rights(access_list).may_write("alice/x", False)
    assert identity.rights(access_list) is identity.rights(access_list)
    assert not identity.rights(AccessList([], [], {})).may_write("alice/x", False)


def test_remembered_answers_are_bounded_and_stay_right(access_list: AccessList) -> None:
    rights = Identity("alice", "c1").rights(access_list)
    for number in range(REMEMBERED_TOPICS_MAX + 10):
        assert rights.may_write(f"alice/{number}", False)
        assert not rights.may_write(f"bob/{number}", False)
    assert len(rights._may_write) <= REMEMBERED_TOPICS_MAX
    assert rights.may_write("alice/" + "x" * 60_000, False)
    assert max(map(len, rights._may_write)) < 1_000


# -- exchanges: enhanced authentication (MQTT 5, 4.12) ---------------------------------------------------------------


class AskingExchange(Exchange):
    """Asks for more until the client names a user ("user NAME") or sends "bad"; notes what it was asked."""

    def __init__(self, rounds_max: int = EXCHANGE_ROUNDS_MAX) -> None:
        super().__init__("ASKING", rounds_max=rounds_max)
        self.asked: list[bytes | None] = []
        self.nonces: list[bytes] = []

    def first_answer(self, data: bytes | None, nonce: bytes) -> ExchangeAnswer:
        self.nonces.append(nonce)
        return self.next_answer(data)

    def next_answer(self, data: bytes | None) -> ExchangeAnswer:
        self.asked.append(data)
        if data == b"bad":
            raise Refused("wrong", ReasonCode.BAD_USER_NAME_OR_PASSWORD)
        if data == b"broken":
            raise OSError("the directory cannot be reached")
        if data is not None and data.startswith(b"user "):
            return ExchangeAnswer(b"welcome", Identity(data[5:].decode(), "c1"))
        return ExchangeAnswer(b"more")


def reason_of(step: Callable[[], object]) -> ReasonCode:
    with pytest.raises(Refused) as caught:
        step()
    return caught.value.reason


def test_an_exchange_ends_with_an_identity_in_any_round() -> None:
    exchange = AskingExchange()
    assert exchange.method == "ASKING" and not exchange.slow and not exchange.is_in_progress
    answer = exchange.begin(b"user ann", b"n1")
    assert answer.data == b"welcome" and answer.identity is not None and answer.identity.user_name == "ann"
    assert exchange.identity is answer.identity and not exchange.is_in_progress
    for data in (None, b"", b"x"):
        answer = exchange.begin(data, b"n2") if data is None else exchange.proceed(data)
        assert (answer.data, answer.identity) == (b"more", None) and exchange.is_in_progress
    assert exchange.proceed(b"user ann").identity is not None
    assert exchange.asked == [b"user ann", None, b"", b"x", b"user ann"] and exchange.nonces == [b"n1", b"n2"]


def test_messages_of_an_exchange_at_a_wrong_moment_are_protocol_errors() -> None:
    assert reason_of(lambda: AskingExchange().proceed(b"x")) is ReasonCode.PROTOCOL_ERROR
    begun = AskingExchange()
    begun.begin(b"x", b"n")
    assert reason_of(lambda: begun.begin(b"x", b"n")) is ReasonCode.PROTOCOL_ERROR
    ended = AskingExchange()
    ended.begin(b"user ann", b"n")
    assert reason_of(lambda: ended.proceed(b"x")) is ReasonCode.PROTOCOL_ERROR
    assert ended.asked == [b"user ann"]


@pytest.mark.parametrize("data", [b"bad", b"broken"])
def test_after_an_error_an_exchange_takes_nothing_more(data: bytes) -> None:
    for is_first in (True, False):
        exchange = AskingExchange()
        if not is_first:
            exchange.begin(b"x", b"n")
        with pytest.raises((Refused, OSError)):
            _ = exchange.begin(data, b"n") if is_first else exchange.proceed(data)
        assert not exchange.is_in_progress and exchange.identity is None
        assert reason_of(partial(exchange.begin, b"user ann", b"n")) is ReasonCode.PROTOCOL_ERROR
        assert reason_of(partial(exchange.proceed, b"user ann")) is ReasonCode.PROTOCOL_ERROR


def test_an_exchange_has_a_bound_of_rounds_and_each_one_its_own() -> None:
    exchange = AskingExchange(rounds_max=3)
    for _ in range(2):
        exchange.begin(b"x", b"n")
        exchange.proceed(b"x")
        exchange.proceed(b"user ann")
    exchange.begin(b"x", b"n")
    exchange.proceed(b"x")
    exchange.proceed(b"x")
    assert reason_of(lambda: exchange.proceed(b"user ann")) is ReasonCode.NOT_AUTHORIZED
    assert len(exchange.asked) == 9

    by_default = AskingExchange()
    by_default.begin(b"x", b"n")
    for _ in range(EXCHANGE_ROUNDS_MAX - 1):
        by_default.proceed(b"x")
    assert reason_of(lambda: by_default.proceed(b"x")) is ReasonCode.NOT_AUTHORIZED


def test_a_client_stays_the_user_that_it_was() -> None:
    exchange = AskingExchange()
    first = exchange.begin(b"user ann", b"n1").identity
    exchange.begin(b"user ann", b"n2")
    assert exchange.identity is first
    assert reason_of(lambda: exchange.begin(b"user bob", b"n3")) is ReasonCode.NOT_AUTHORIZED
    assert exchange.identity is first


def test_no_authentication_method_is_offered_by_default() -> None:
    with pytest.raises(Refused) as caught:
        AllowAll().begin_exchange("m" * 60_000, "c1", None)
    assert caught.value.reason is ReasonCode.BAD_AUTHENTICATION_METHOD and len(caught.value.detail) < 200
