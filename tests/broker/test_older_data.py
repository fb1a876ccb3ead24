"""A data directory of an older server opens and serves: sessions, queues, retained messages, wills and share groups.

`data_of_a4e6f90.tar.gz` was written by the core and the store of that commit, where ids of sessions are offsets.
"""

import shutil
import tarfile
from pathlib import Path

import pytest

from embermq.protocol.packets import Publish
from support.core import DiskBench

FIXTURE = Path(__file__).parent.parent / "support" / "data_of_a4e6f90.tar.gz"
IDS = {"away": 9, "publisher": 16, "member": 21, "with session": 40}


@pytest.fixture(params=["with its state", "from its log"])
def data(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    with tarfile.open(FIXTURE) as fixture:
        fixture.extractall(tmp_path, filter="data")
    if request.param == "from its log":
        shutil.rmtree(tmp_path / "data" / "state")
    return tmp_path / "data"


def test_a_directory_whose_session_ids_are_offsets_goes_on(data: Path) -> None:
    bench = DiskBench(data, now_ms=2_000_000)
    assert {session.client_id: session.session_id for session in bench.core.connections.sessions.values()} == IDS
    reader = bench.join("reader", clean=False)
    bench.subscribed(reader, "will/#", 1)
    bench.subscribed(reader, "plant/#", 1)
    assert sorted(reader.payloads()) == [b"retained 0", b"retained 1", b"retained 2", b"retained 3", b"x"]
    bench.pass_s(60)  # clients have this long to come back before their wills are published
    bench.commit()
    assert sorted(reader.payloads()) == [b"gone", b"gone too"]
    away = bench.join("away", clean=False)
    assert away.payloads() == [b"in flight", b"exactly once", b"queued 1", b"queued 2"]
    assert set(away.ids) == {(7,)}
    member = bench.join("member", clean=False)
    bench.turn()
    assert member.payloads() == [b"shared 1"]
    publisher = bench.join("publisher", clean=False)
    bench.send(publisher, Publish("a/once", b"exactly once", 2, dup=True, packet_id=5))
    bench.commit()
    assert away.payloads() == []
    new_id = bench.core.connections.sessions["reader"].session_id
    assert new_id > max(IDS.values())
    again = bench.restarted(after_s=1)
    ids = {session.client_id: session.session_id for session in again.core.connections.sessions.values()}
    assert ids == IDS | {"reader": new_id}
    again.journal.close()
