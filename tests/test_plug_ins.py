"""Access rules of another package, by its entry point."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from embermq.config import load
from embermq.embed import Broker, BrokerThread
from embermq.errors import ConfigError
from support.installed_package import installed_package
from support.user_client import UserClient

RULES = """
from embermq.broker.access import Access, Identity
from embermq.protocol.errors import Refused
from embermq.protocol.reasons import ReasonCode


class Rules(Access):
    def __init__(self):
        super().__init__(slow=True, unrestricted=False)

    def authenticate(self, client_id, user_name, password, certificate_name):
        if password != b"open":
            raise Refused("closed", ReasonCode.NOT_AUTHORIZED)
        return Identity(user_name or "", client_id)

    def may_publish(self, identity, topic_name, retain):
        return topic_name.startswith(identity.user_name)

    def may_subscribe(self, identity, topic_filter):
        return True


class Broken(Rules):
    def __init__(self):
        raise OSError("no database")


def no_class():
    return Rules()
"""
ENTRY_POINTS = """[embermq.access]
doors = ember_doors:Rules
broken = ember_doors:Broken
none = ember_doors:no_class
missing = ember_doors:Missing
"""


@pytest.fixture
def installed(tmp_path: Path) -> Iterator[Path]:
    with installed_package(tmp_path / "site", "ember_doors", RULES, ENTRY_POINTS):
        yield tmp_path


def broker_with(place: Path, access: str) -> Broker:
    (place / "ember.toml").write_text(f"[listeners]\nport = 0\n[store]\nmemory = true\n[access]\n{access}\n")
    return Broker.from_settings(load(place / "ember.toml"))


def test_a_plug_in_decides_about_clients(installed: Path) -> None:
    with BrokerThread(broker_with(installed, 'plugin = "doors"')) as broker:
        with UserClient(broker.port, "c1", "ann", "open") as ann:
            assert ann.connect() == 0
            assert (ann.publish("ann/1", b"") < 0x80, ann.publish("bob/1", b"")) == (True, 0x87)
        with UserClient(broker.port, "c2", "ann", "guess") as ann:
            assert ann.connect() == 0x87


@pytest.mark.parametrize(
    ("access", "expected"),
    [
        (
            'plugin = "door"',
            r"no installed package has the entry point 'door' .*\(there: broken, doors, missing, none\)",
        ),
        ('plugin = "broken"', "broken cannot be made: OSError: no database"),
        ('plugin = "none"', "ember_doors:no_class is no subclass of"),
        ('plugin = "missing"', "missing cannot be imported: AttributeError"),
        ('plugin = "doors"\npassword_file = "p"', "expected it without password_file"),
        ('plugin = "doors"\nwildcards = "narrow"', 'expected it without wildcards = "narrow"'),
    ],
)
def test_one_that_cannot_be_used_is_one_sentence(installed: Path, access: str, expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        broker_with(installed, access)
