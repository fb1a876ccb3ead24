"""Opening a data directory that an older server has written."""

import base64
import zlib
from pathlib import Path

import pytest

from embermq.protocol.packets import SubscriptionRequest
from embermq.store.engines.disk import DiskStore
from embermq.store.engines.opening import JournalSettings, rebuild
from embermq.store.interface import Store
from embermq.store.state.state import StateSettings
from support.store_calls import retained_scan

# The log of a server before MQTT 5: a session with a subscription, three queued messages and a disconnection.
OLDER_LOG = (
    "eNpz9XVyDfLxd48yvHWEkYGBAYSRgauvk/deow+ljAwGDBxI8jxArA5l1wDxBKiEgxM/RbQaEAsAMcguFiBmBmIuIGYFYg0G4gAzGEL0soEh"
    "J5gEy7FyMDLycQONjGUFiSXqKyfqGybqGyXqG6SklmUmpyKTBaVJOZnFGalFyIK+gSEhCsZ6hnqGXIZG5noGQGhoZclVWpxaxFWQWlScWVyS"
    "mlcCc4wAHwMDSIoJys9OLSgpKc+HcdkZ8nNSELKw4FWE0lpQ2hY5PvJcnB6D4gMUPpxwPzNAfQhRfIEBe3w0tMih0AJgNzAwiEHZ2EITBkDm"
    "8zCx8ILYwBCDhAbM5TA6taIgsyg1BV04OSe/GCGKSGUATqdFNQ=="
)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    log = tmp_path / "data" / "log"
    log.mkdir(parents=True)
    (log / f"{1:020d}.log").write_bytes(zlib.decompress(base64.b64decode(OLDER_LOG)))
    return tmp_path / "data"


def ignore(call: object) -> None:
    """Nothing is committed in these tests."""


def check(store: Store) -> None:
    (session,) = store.sessions.load()
    assert (session.client_id, session.user_name, session.session_expiry_s) == ("device", "user", 3600)
    assert (session.ended_us, session.sent, session.received_ids) == (2_000_000, 2, {7})
    assert [request for request, _ in session.subscriptions] == [SubscriptionRequest("a/#", 1, True, True, 1)]
    assert session.queue is not None
    owed = session.queue.read(0, 10)
    assert [(delivery.sequence, delivery.messages[0].payload) for delivery in owed] == [(2, b"two"), (3, b"older")]
    assert [(delivery.released, delivery.subscription_ids) for delivery in owed] == [(True, ()), (False, ())]
    assert [retained.topic_name for retained in retained_scan(store, "#", "", 10)] == ["a/1"]
    assert store.sessions.wills() == []
    assert store.sessions.shared_queues() == []


def test_the_log_of_an_older_server_is_read(data: Path) -> None:
    journal = DiskStore(data, ignore)
    check(journal)
    journal.close()


def test_the_state_of_an_older_server_is_read(data: Path) -> None:
    DiskStore(data, ignore, JournalSettings(state=StateSettings(schema_version=1))).close()
    journal = DiskStore(data, ignore)
    check(journal)
    journal.close()


def test_a_rebuild_from_the_log_of_an_older_server_gives_the_same(data: Path) -> None:
    DiskStore(data, ignore).close()
    rebuild(data, JournalSettings())
    journal = DiskStore(data, ignore)
    check(journal)
    journal.close()
