"""Three real servers on one real Kafka: killed, paused, restarted, emptied, and the topic gone."""

import os
import re
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster.kafka.conftest import ANSWER_S, NO_CLIENT
from cluster.kafka.servers import NODES, Publisher, Servers, all_there, servers, until
from embermq.cluster.sequencer import KafkaOptions
from embermq.http.client import HttpClient
from support.kafka_node import KafkaNode
from support.server_process import client, owed, persistent
from support.wire import Will

pytest.importorskip("confluent_kafka", reason=NO_CLIENT)

pytestmark = pytest.mark.timeout(480)


@pytest.fixture
def cluster(kafka: KafkaNode, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Servers]:
    name = "servers-" + request.node.name.removeprefix("test_")[:80]
    with servers(tmp_path, KafkaOptions((kafka.address,), name)) as running:
        yield running


def assert_equal(cluster: Servers, acknowledged: list[bytes]) -> None:
    """Every acknowledged message is in the log, in order; the logs are equal, and so are the retained messages.

    At the end of one log there may be records that nobody waits for, such as that a client has gone.
    """
    logs = {node: cluster.records(node) for node in NODES}
    end = min(len(records) for records in logs.values())
    first = logs[1][:end]
    assert all(records[:end] == first for records in logs.values())
    payloads = [record[5] for record in logs[1] if record[4].startswith(b"plant/")]
    in_log = set(payloads)
    assert [payload for payload in acknowledged if payload not in in_log] == []
    firsts = [number for at, number in enumerate(payloads) if number not in payloads[max(0, at - 50) : at]]
    assert [int(number) for number in firsts] == sorted(int(number) for number in firsts)
    assert cluster.retained(1) == cluster.retained(2) == cluster.retained(3) != b""


def test_nothing_acknowledged_is_lost_whatever_happens_to_the_active_server(cluster: Servers) -> None:
    cluster.active()
    with Publisher(cluster) as publisher:
        publisher.gets_on()
        killed = cluster.active()
        cluster.processes[killed].kill()
        publisher.gets_on()
        others = [node for node in NODES if node != killed]

        paused = cluster.active(*others)
        cluster.processes[paused].process.send_signal(signal.SIGSTOP)  # type: ignore[union-attr]
        (last,) = (node for node in others if node != paused)
        assert cluster.active(last) == last
        publisher.gets_on()
        cluster.processes[paused].process.send_signal(signal.SIGCONT)  # type: ignore[union-attr]
        until(lambda: "starts again as a standby" in cluster.processes[paused].log(), "the paused node steps down")

        shutil.rmtree(cluster.data(killed))  # its machine is lost: it joins with an empty directory
        cluster.start(killed)
        for node in NODES:  # a rolling restart
            until(lambda: all_there(cluster), "all are there")
            assert cluster.processes[node].stop() == 0
            publisher.gets_on()
            cluster.start(node)
        until(lambda: all_there(cluster), "all are there")
        publisher.gets_on()
    until(lambda: len({each.next_offset for each in cluster.nodes().values()}) == 1, "all have applied all")
    for process in cluster.processes.values():
        process.kill()
    assert_equal(cluster, publisher.acknowledged)


def test_sessions_what_they_are_owed_and_wills_go_to_the_next_active_server(cluster: Servers) -> None:
    first = cluster.active()
    server = cluster.processes[first]
    persistent(server, "away", "plant/+", 2)
    last_words = client(server, "doomed")
    last_words.close()
    doomed = server.wire()
    assert doomed.connect("doomed", will=Will("plant/will", b"gone", qos=1, retain=True)).return_code == 0
    with client(server, "speaker") as speaker:
        speaker.publish("plant/1", b"twice asked, once told", qos=2, retain=True)
    server.kill()
    others = [node for node in NODES if node != first]
    second = cluster.processes[cluster.active(*others)]
    doomed.close()
    received: list[bytes] = []

    def has_all() -> bool:
        received[:] = owed(second, "away")
        return b"gone" in received

    until(has_all, "the will was published")
    assert received == [b"twice asked, once told", b"gone"]
    with client(second, "looker") as looker:
        looker.subscribe(("plant/#", 0))
        assert {message.payload for message in looker.take_messages()} == {b"twice asked, once told", b"gone"}


def known(http: HttpClient) -> list[tuple[int, str, bool]]:
    """The nodes as a server tells them over HTTP: number, state, and whether it is the node itself."""
    return [(each["node"], each["state"], each["is_this"]) for each in http.get("/api/v1/nodes")["items"]]


def test_a_standby_names_the_active_server_and_an_expelled_one_stops(cluster: Servers) -> None:
    active = cluster.active()
    standby = next(node for node in NODES if node != active)
    with cluster.processes[standby].wire() as wire:
        assert wire.connect("lost").return_code == 3
    is_active = f'"node": {active}, "state": "active"'
    until(
        lambda: is_active in cluster.command("status", "--json", node=standby).text, "the command sees the active one"
    )
    with HttpClient(cluster.data(standby) / "control.sock") as http:
        until(lambda: (active, "active", False) in known(http), "the standby has heard of the active one")
    assert cluster.command("expel", str(active), node=standby).code == 0
    process = cluster.processes[active].process
    assert process is not None and process.wait(60) == 2
    assert f"node {active} was expelled: start it again" in cluster.processes[active].log()
    assert cluster.active(*(node for node in NODES if node != active)) != active
    assert cluster.nodes()[active].state == "expelled"
    assert "there is no node 9: expected one of 1, 2, 3" in cluster.command("expel", "9").errors


@pytest.mark.long
def test_while_kafka_does_not_answer_nothing_is_acknowledged_and_then_it_goes_on(
    cluster: Servers, kafka: KafkaNode
) -> None:
    active = cluster.active()
    with Publisher(cluster) as publisher:
        publisher.gets_on()
        os.kill(kafka.pid, signal.SIGSTOP)
        try:
            until(lambda: "read nothing of its own" in cluster.processes[active].log(), "the active node steps down")
            acknowledged = len(publisher.acknowledged)
        finally:
            os.kill(kafka.pid, signal.SIGCONT)
        publisher.gets_on()
    assert acknowledged < len(publisher.acknowledged)
    until(lambda: all_there(cluster), "all are there")
    until(lambda: len({each.next_offset for each in cluster.nodes().values()}) == 1, "all have applied all")
    for process in cluster.processes.values():
        process.kill()
    assert_equal(cluster, publisher.acknowledged)


def test_all_nodes_stop_with_one_sentence_when_the_topic_is_deleted(cluster: Servers, kafka: KafkaNode) -> None:
    active = cluster.active()
    with client(cluster.processes[active], "speaker") as speaker:
        speaker.publish("plant/1", b"kept", qos=1, retain=True)
    admin: Any = kafka.admin()
    admin.delete_topics([cluster.options.topic])[cluster.options.topic].result(ANSWER_S)
    for server in cluster.processes.values():
        assert server.process is not None and server.process.wait(60) == 2
        said = [line for line in server.log().splitlines() if line.startswith("ember: ")]
        assert said == [
            f"ember: topic {cluster.options.topic} was deleted: begin another log from the newest data directory with"
            " `ember cluster init`"
        ]
    assert cluster.command("init", node=4).code == 0  # the same name: another topic, and directories of the one before
    for node in (2, 3):
        assert re.search("belongs to another shared log|not of this cluster", cluster.processes[node].refused())


@pytest.mark.long
def test_a_directory_with_records_becomes_a_cluster_and_a_single_server_again(kafka: KafkaNode, tmp_path: Path) -> None:
    cluster = Servers(tmp_path, KafkaOptions((kafka.address,), "servers-from-a-directory"))
    from support.server_process import ServerProcess

    with ServerProcess(cluster.data(1), tmp_path / "single.log") as single:
        persistent(single, "away", "plant/#", 1)
        with client(single, "speaker") as speaker:
            speaker.publish("plant/1", b"before", qos=1, retain=True)
        assert single.stop() == 0
    done = cluster.command("init")
    assert done.code == 0 and "records of" in done.text
    try:
        cluster.start(1, 2)
        active = cluster.active(1, 2)
        with client(cluster.processes[active], "speaker") as speaker:
            speaker.publish("plant/2", b"in the cluster", qos=1, retain=True)
        until(lambda: len({each.next_offset for each in cluster.nodes().values()}) == 1, "all have applied all")
        cluster.processes[1].kill()
        assert cluster.processes[2].stop() == 0
        with ServerProcess(cluster.data(2), tmp_path / "single.log") as single:
            assert owed(single, "away") == [b"before", b"in the cluster"]
            with client(single, "speaker") as speaker:
                speaker.publish("plant/3", b"alone", qos=1, retain=True)
            assert single.stop() == 0
        cluster.start(2)  # it has what the shared log has not
        process = cluster.processes[2].process
        assert process is not None and process.wait(60) == 2
        assert "its directory was used by a server outside of the cluster" in cluster.processes[2].log()
    finally:
        for server in cluster.processes.values():
            server.kill()
