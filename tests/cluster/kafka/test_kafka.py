"""The engine on a real Kafka: order, ends, sizes, and every refusal as one sentence."""

import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cluster.kafka.conftest import ANSWER_S, NO_CLIENT, MakeTopic

pytest.importorskip("confluent_kafka", reason=NO_CLIENT)

from embermq.certificates import Authority
from embermq.cluster.kafka import KafkaSequencer, create_topic
from embermq.cluster.sequencer import BLOCK_BYTES_MAX, KafkaOptions, SequencerError, SharedLogLost
from support.kafka_node import NODE, PASSWORD, STRANGER, TOOL, KafkaNode, kafka_node
from support.ports import free_port

client: Any = pytest.importorskip("confluent_kafka")
client_admin: Any = pytest.importorskip("confluent_kafka.admin")
DEADLINE_S = 60


@contextmanager
def opened(options: KafkaOptions) -> Iterator[KafkaSequencer]:
    sequencer = KafkaSequencer(options)
    try:
        yield sequencer
    finally:
        sequencer.close()


def stored(sequencer: KafkaSequencer, *blocks: bytes) -> None:
    """Append and wait for the reports, which must be good."""
    reports: list[SequencerError | None] = []
    reported = threading.Semaphore(0)

    def done(error: SequencerError | None) -> None:
        reports.append(error)
        reported.release()

    for block in blocks:
        sequencer.append(block, done)
    for _ in blocks:
        assert reported.acquire(timeout=DEADLINE_S)
    assert reports == [None] * len(blocks)


def failure(sequencer: KafkaSequencer, block: bytes) -> SequencerError:
    """What the report of a block says that is not stored; it comes from another thread."""
    reports: list[tuple[SequencerError | None, threading.Thread]] = []
    reported = threading.Event()

    def done(error: SequencerError | None) -> None:
        reports.append((error, threading.current_thread()))
        reported.set()

    sequencer.append(block, done)
    assert reported.wait(DEADLINE_S)
    ((error, thread),) = reports
    assert error is not None and thread is not threading.current_thread()
    return error


def read(sequencer: KafkaSequencer, position: int, number: int) -> list[tuple[int, bytes]]:
    blocks: list[tuple[int, bytes]] = []
    until_s = time.monotonic() + DEADLINE_S
    while len(blocks) < number:
        assert time.monotonic() < until_s, blocks
        blocks += sequencer.read(blocks[-1][0] + 1 if blocks else position, 1)
    return blocks


def raised(act: Callable[[], object]) -> SequencerError:
    """The error that comes sooner or later."""
    until_s = time.monotonic() + DEADLINE_S
    while time.monotonic() < until_s:
        try:
            act()
        except SequencerError as error:
            return error
    raise AssertionError("nothing was raised")


def sentence(error: BaseException) -> str:
    text = str(error)
    assert "\n" not in text and PASSWORD not in text
    return text


def test_blocks_come_back_in_order_with_their_positions(topic: MakeTopic) -> None:
    options = topic()
    with opened(options) as one, opened(options) as other:
        assert one.identity == other.identity and "/" in one.identity
        assert (one.first(), one.end()) == (0, 0)
        blocks = [b"block %d" % number for number in range(50)]
        stored(one, *blocks)
        assert read(other, 0, 50) == list(enumerate(blocks))
        assert read(one, 48, 2) == [(48, b"block 48"), (49, b"block 49")]  # from anywhere, again and again
        assert read(one, 10, 40)[0] == (10, b"block 10")
        stored(other, b"last")
        assert read(one, 50, 1) == [(50, b"last")]
        assert (one.first(), one.end()) == (0, 51)


def test_a_read_waits_for_a_block_and_no_longer(topic: MakeTopic) -> None:
    with opened(topic()) as sequencer:
        assert sequencer.read(0, 0.01) == []
        timer = threading.Timer(0.2, lambda: sequencer.append(b"late", lambda _: None))
        timer.start()
        assert read(sequencer, 0, 1) == [(0, b"late")]
        timer.join()


def test_the_largest_block_passes_and_a_larger_one_is_refused_with_a_sentence(kafka: KafkaNode) -> None:
    options = KafkaOptions((kafka.address,), "ember.log-largest", durability="sync")
    create_topic(options)
    create_topic(options)  # is there already
    block = bytes(1) * BLOCK_BYTES_MAX
    with opened(options) as sequencer:
        stored(sequencer, block, b"small")
        got = read(sequencer, 0, 2)
        assert [position for position, _ in got] == [0, 1]
        assert got[0][1] == block
        assert "too large for topic" in sentence(failure(sequencer, block + bytes(1024 * 1024)))
        stored(sequencer, b"after")
        assert read(sequencer, 2, 1) == [(2, b"after")]


@pytest.mark.parametrize(
    "partitions, config, expected",
    [
        (2, {}, r"has 2 partitions, and the shared log must have 1: name another topic in cluster\.topic"),
        (1, {"cleanup_policy": "compact"}, r"has cleanup\.policy = compact, expected delete: change it"),
        (1, {"cleanup_policy": "compact,delete"}, r"has cleanup\.policy = .*, expected delete: change it"),
        (1, {"max_message_bytes": "1000000"}, r"has max\.message\.bytes = 1000000, expected at least 67\d+: change it"),
        (1, {"unclean_leader_election_enable": "true"}, r"unclean\.leader\.election\.enable = true, expected false"),
    ],
    ids=("partitions", "compacted", "compacted and deleted", "small", "unclean"),
)
def test_a_topic_that_is_not_fit_is_refused(
    topic: MakeTopic, request: pytest.FixtureRequest, partitions: int, config: dict[str, str], expected: str
) -> None:
    options = topic(partitions, suffix=str(abs(hash(request.node.name))), **config)
    with pytest.raises(SequencerError, match=expected) as refused:
        KafkaSequencer(options)
    assert options.topic in sentence(refused.value)


def test_a_topic_without_fsync_is_refused_where_it_was_asked_for(topic: MakeTopic) -> None:
    options = topic()
    with pytest.raises(SequencerError, match=r'flush\.messages = 9\d+, expected 1 with cluster\.durability = "sync"'):
        KafkaSequencer(replace(options, durability="sync"))


def test_a_topic_that_is_not_there_is_lost(kafka: KafkaNode) -> None:
    with pytest.raises(SharedLogLost, match=r"Kafka has no topic none: .*`ember cluster init`"):
        KafkaSequencer(KafkaOptions((kafka.address,), "none"))


def test_kafka_that_is_not_there_is_said_in_one_sentence() -> None:
    address = f"127.0.0.1:{free_port()}"
    begun_s = time.monotonic()
    with pytest.raises(SequencerError, match=f"Kafka at {address} does not answer: start it, or correct") as refused:
        KafkaSequencer(KafkaOptions((address,), "ember.log"))
    assert not isinstance(refused.value, SharedLogLost)
    assert time.monotonic() - begun_s < DEADLINE_S
    sentence(refused.value)


def test_a_topic_that_is_deleted_and_made_again_is_never_taken_for_the_one_before(
    kafka: KafkaNode, topic: MakeTopic
) -> None:
    options = topic()
    admin = kafka.admin()
    with opened(options) as sequencer:
        stored(sequencer, b"one", b"two")
        read(sequencer, 0, 2)
        admin.delete_topics([options.topic])[options.topic].result(ANSWER_S)
        lost = raised(lambda: sequencer.read(2, 0.2))
        while not isinstance(lost, SharedLogLost):  # until then it may be missing for a moment
            lost = raised(lambda: sequencer.read(2, 0.2))
        assert "was deleted" in sentence(lost)
        for act in (sequencer.first, sequencer.end, lambda: sequencer.read(0, 0)):
            with pytest.raises(SharedLogLost, match="was deleted"):
                act()
        assert isinstance(failure(sequencer, b"three"), SharedLogLost)
        identity = sequencer.identity
    topic()
    with opened(options) as another:
        assert another.identity != identity
        assert another.identity.partition("/")[0] == identity.partition("/")[0]


def test_another_topic_of_the_same_name_is_noticed_while_a_node_runs(kafka: KafkaNode, topic: MakeTopic) -> None:
    options = topic()
    admin = kafka.admin()
    with opened(options) as sequencer:
        stored(sequencer, b"one", b"two")
        read(sequencer, 0, 2)
        admin.delete_topics([options.topic])[options.topic].result(ANSWER_S)
        until_s = time.monotonic() + DEADLINE_S
        while time.monotonic() < until_s:
            try:
                topic()
                break
            except Exception as error:  # still being deleted
                assert "EXISTS" in str(error), error
        lost = raised(lambda: sequencer.read(2, 0.2))
        while not isinstance(lost, SharedLogLost):
            lost = raised(lambda: sequencer.read(2, 0.2))
        assert re.search("was deleted|ends before position 0, and this node has read up to 2", sentence(lost))


def test_a_position_that_is_not_kept_any_more_is_never_skipped(kafka: KafkaNode, topic: MakeTopic) -> None:
    options = topic()
    admin = kafka.admin()
    with opened(options) as sequencer:
        stored(sequencer, *(b"%d" % number for number in range(10)))
        partition = client.TopicPartition(options.topic, 0, 6)
        admin.delete_records([partition])[partition].result(ANSWER_S)
        assert (sequencer.first(), sequencer.end()) == (6, 10)
        lost = raised(lambda: sequencer.read(3, 1))
        assert isinstance(lost, SharedLogLost)
        assert "begins at position 6, and this node needs 3: retention" in sentence(lost)
        assert read(sequencer, 6, 4)[0] == (6, b"6")
        lost = raised(lambda: sequencer.read(11, 1))
        assert isinstance(lost, SharedLogLost)
        assert "ends before position 10, and this node has read up to 11" in sentence(lost)


@pytest.fixture
def secured(kafka: KafkaNode, topic: MakeTopic, tmp_path: Path) -> KafkaOptions:
    """As the node's user, who has what the sentence of a refusal names."""
    options = topic()
    password = tmp_path / "password"
    password.write_text(PASSWORD + "\n")
    rights = [
        client_admin.AclBinding(
            client_admin.ResourceType.TOPIC,
            options.topic,
            client_admin.ResourcePatternType.LITERAL,
            f"User:{NODE}",
            "*",
            operation,
            client_admin.AclPermissionType.ALLOW,
        )
        for operation in (
            client_admin.AclOperation.READ,
            client_admin.AclOperation.WRITE,
            client_admin.AclOperation.DESCRIBE,
            client_admin.AclOperation.DESCRIBE_CONFIGS,
        )
    ]
    admin = kafka.admin()
    for given in admin.create_acls(rights).values():
        given.result(ANSWER_S)
    return KafkaOptions(
        (kafka.secured_address,),
        options.topic,
        tls=True,
        tls_ca=kafka.authority,
        sasl_mechanism="PLAIN",
        sasl_user=NODE,
        sasl_password_file=password,
    )


def test_tls_and_a_user_with_the_rights_that_are_asked_for(secured: KafkaOptions) -> None:
    with opened(secured) as sequencer:
        stored(sequencer, b"one", b"two")
        assert read(sequencer, 0, 2) == [(0, b"one"), (1, b"two")]
        assert sequencer.end() == 2


def test_a_principal_that_may_not_is_told_what_to_do(secured: KafkaOptions, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong"
    wrong.write_text("lamp")
    with pytest.raises(
        SequencerError, match=r"user 'stranger' use topic ember.log-.*: allow it Read, Write"
    ) as refused:
        KafkaSequencer(replace(secured, sasl_user=STRANGER))
    sentence(refused.value)
    with pytest.raises(SequencerError, match=r"does not accept user 'node': check .* cluster.sasl") as refused:
        KafkaSequencer(replace(secured, sasl_password_file=wrong))
    sentence(refused.value)
    with pytest.raises(SequencerError, match=r"cluster.sasl_password_file cannot be read"):
        KafkaSequencer(replace(secured, sasl_password_file=tmp_path / "none"))
    with pytest.raises(SequencerError, match=r"cluster.sasl_password_file is missing"):
        KafkaSequencer(replace(secured, sasl_password_file=None))
    with pytest.raises(SequencerError, match="does not take the settings of \\[cluster\\]"):
        KafkaSequencer(replace(secured, tls_ca=tmp_path / "none"))


def test_an_authority_that_did_not_sign_kafkas_certificate_is_refused(secured: KafkaOptions, tmp_path: Path) -> None:
    stranger = Authority(tmp_path).certificate
    with pytest.raises(SequencerError, match=r"does not accept user 'node': check the settings cluster.tls") as refused:
        KafkaSequencer(replace(secured, tls_ca=stranger))
    sentence(refused.value)


def test_kafka_that_dies_and_comes_back_loses_no_block_that_was_reported(kafka: KafkaNode, tmp_path: Path) -> None:
    # A node that comes back within its session must wait until the session has ended.
    short = {"broker.session.timeout.ms": "2000", "broker.heartbeat.interval.ms": "500"}
    with kafka_node(tmp_path / "node", settings=short) as node:
        options = KafkaOptions((node.address,), "ember.log")
        create_topic(options)
        with opened(options) as sequencer:
            stored(sequencer, b"one")
            read(sequencer, 0, 1)
            node.kill(signal.SIGKILL)
            away = raised(lambda: sequencer.read(1, 0.2))
            assert not isinstance(away, SharedLogLost)
            assert f"Kafka at {node.address} does not answer: start it" in sentence(away)
            waiting: list[Any] = []
            sequencer.append(b"two", waiting.append)
            node.start()
            assert read_when_back(sequencer, 1) == [(1, b"two")]
            stored(sequencer, b"three")
            assert waiting == [None]
            assert read(sequencer, 2, 1) == [(2, b"three")]


def read_when_back(sequencer: KafkaSequencer, position: int) -> list[tuple[int, bytes]]:
    until_s = time.monotonic() + DEADLINE_S
    while time.monotonic() < until_s:
        try:
            if blocks := sequencer.read(position, 0.2):
                return blocks
        except SequencerError as error:
            assert "does not answer" in sentence(error)
    raise AssertionError("nothing was read")


def test_a_second_kafka_on_a_directory_is_refused(kafka: KafkaNode) -> None:
    command = [sys.executable, str(TOOL), "run", str(kafka.directory)]
    second = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S)
    assert (second.returncode, second.stdout) == (2, "")
    said = f"{kafka.directory} is in use by another Kafka, which a second one would damage"
    assert second.stderr == f"tools/kafka: {said}\n"
