"""One Kafka node for all tests of this folder, and topics of their own on it."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from embermq.cluster.sequencer import KafkaOptions
from support.kafka_node import KafkaNode, NoKafka, kafka_node

ANSWER_S = 60
NO_CLIENT = "tests with Kafka need pip install 'embermq[cluster]'"
MakeTopic = Callable[..., KafkaOptions]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All tests of this folder share a node: `make test` runs them in one process."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.kafka)


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaNode]:
    """A node with two listeners: one for everybody, one with TLS, users and rights."""
    pytest.importorskip("confluent_kafka", reason=NO_CLIENT)
    try:
        with kafka_node(tmp_path_factory.mktemp("kafka") / "node", secured=True) as node:
            yield node
    except NoKafka as reason:
        pytest.skip(str(reason))


@pytest.fixture
def topic(kafka: KafkaNode, request: pytest.FixtureRequest) -> MakeTopic:
    """Makes a topic of this test's own, by hand and not by `create_topic`; what a node is told of it."""
    client_admin: Any = pytest.importorskip("confluent_kafka.admin")
    admin = kafka.admin()
    name = "ember.log-" + request.node.name.partition("[")[0].removeprefix("test_")[:200]

    def make(partitions: int = 1, suffix: str = "", **config: str) -> KafkaOptions:
        settings = {"max.message.bytes": "70000000"} | {key.replace("_", "."): value for key, value in config.items()}
        made = client_admin.NewTopic(name + suffix, partitions, 1, config=settings)
        admin.create_topics([made])[name + suffix].result(ANSWER_S)
        return KafkaOptions((kafka.address,), name + suffix)

    return make
