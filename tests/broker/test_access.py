"""Access: what an access list grants, and that a client's own names never widen it."""

import pytest

from embermq.access.access_list import parse_access_list
from embermq.broker.access import REMEMBERED_TOPICS_MAX, AccessList, AllowAll, Identity

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
        ("stranger", "public/+", True),
        ("stranger", "guestbook", False),
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
