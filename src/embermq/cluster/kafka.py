"""The shared log in Kafka: one topic with one partition, whose records are our blocks (docs/nodes.md).

Owns: Kafka's clients, what the topic must be, and Kafka's errors as sentences for an operator.
Never: a consumer group's offsets, a transaction, what is in a block. Positions are Kafka's offsets.

Nothing is reset silently: a position that Kafka no longer has, or never had, raises `SharedLogLost`. Its clients say
nothing when their topic is deleted, and go on with another one of the same name, so its id is asked for all the time.
"""

from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Event
from time import monotonic, sleep
from typing import Any, Final, final

import confluent_kafka
import confluent_kafka.admin

from embermq.cluster.sequencer import (
    BLOCK_BYTES_MAX,
    READ_BYTES_MAX,
    KafkaOptions,
    Sequencer,
    SequencerError,
    SharedLogLost,
)
from embermq.named_thread import NamedThread

# Without their types, which are not complete: what mypy says does not depend on whether the extra is installed.
_client: Final[Any] = confluent_kafka
_admin: Final[Any] = confluent_kafka.admin
KafkaError: Final = _client.KafkaError
KafkaException: Final = _client.KafkaException

ANSWER_TIMEOUT_S: Final = 10
"""How long an answer of Kafka is waited for."""
DELIVERY_TIMEOUT_S: Final = 30
"""How long Kafka may take for a block: longer than the death of a partition's leader, 10 s as Kafka comes."""
CHECK_INTERVAL_S: Final = 2
"""How often the topic's id is asked for."""
MISSING_MAX: Final = 2
"""The topic is lost when it is missing this many times in a row: a broker that starts may not know it yet."""
QUEUED_BLOCKS_MAX: Final = 1_000
QUEUED_BYTES_MAX: Final = 4 * BLOCK_BYTES_MAX
"""What is waiting for Kafka. More is refused."""
RECORD_BYTES_MAX: Final = BLOCK_BYTES_MAX + 64 * 1024
"""A block with what Kafka adds."""
REPLICAS: Final = 3
RETENTION_MS: Final = 7 * 24 * 3600 * 1000

_GROUP: Final = "ember-nodes-have-no-group"  # the client must have one; nothing is committed to it
_POLL_S: Final = 0.1
_CLOSE_TIMEOUT_S: Final = 5
_REFUSED: Final = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
)
_NOT_ACCEPTED: Final = (KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED, KafkaError._SSL)
_MISSING: Final = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)


@final
class _Kafka:
    """Where Kafka is, how it is reached, and what it has last complained of."""

    def __init__(self, options: KafkaOptions) -> None:
        self.options: Final = options
        self.topic: Final = options.topic
        self.partition: Final = _client.TopicPartition(options.topic, 0)
        self.servers: Final = ",".join(options.bootstrap_servers)
        self._complaint: Any = None
        self._refusal: Any = None
        self.admin: Final[Any] = self.client(_admin.AdminClient)

    def client(self, kind: Callable[[dict[str, Any]], Any], settings: dict[str, Any] | None = None) -> Any:
        """A client of Kafka's; SequencerError if the settings are not usable."""
        options = self.options
        common = {
            "bootstrap.servers": self.servers,
            "client.id": "embermq",
            "log_level": 0,  # its log lines are many; its errors come back to us
            "error_cb": self._complain,
            "security.protocol": ("SASL_" if options.sasl_mechanism else "") + ("SSL" if options.tls else "PLAINTEXT"),
            "socket.nagle.disable": True,
            "reconnect.backoff.max.ms": 1_000,
            "topic.metadata.refresh.interval.ms": 10_000,
        }
        files = {
            "ssl.ca.location": options.tls_ca,
            "ssl.certificate.location": options.tls_certificate,
            "ssl.key.location": options.tls_key,
        }
        common |= {name: str(path) for name, path in files.items() if path is not None}
        if options.sasl_mechanism:
            common |= {"sasl.mechanism": options.sasl_mechanism, "sasl.username": options.sasl_user}
            common["sasl.password"] = self._password()
        try:
            return kind(common | (settings or {}))
        except KafkaException as error:
            raise SequencerError(
                f"Kafka's client does not take the settings of [cluster]: {_words(error.args[0])}"
            ) from None

    def _password(self) -> str:
        path = self.options.sasl_password_file
        if path is None:
            raise SequencerError("cluster.sasl_password_file is missing: name a file with the password for Kafka")
        try:
            return path.read_text(encoding="utf-8").rstrip("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise SequencerError(f"cluster.sasl_password_file cannot be read: {error}") from None

    def _complain(self, error: Any) -> None:
        """Called by Kafka's clients, from several threads."""
        if error.code() in _NOT_ACCEPTED:
            self._refusal = error
        self._complaint = error

    def answered(self) -> None:
        """Kafka does answer: what was complained of before is over."""
        self._complaint = self._refusal = None

    def is_away(self) -> bool:
        """Whether no broker has been reached since Kafka answered last."""
        complaint = self._complaint
        return complaint is not None and complaint.code() in (KafkaError._ALL_BROKERS_DOWN, *_NOT_ACCEPTED)

    def ask(self, future: "Future[Any]") -> Any:
        """What a request of the admin client has brought; KafkaException or SequencerError if it failed."""
        until_s = monotonic() + ANSWER_TIMEOUT_S
        while not future.done() and monotonic() < until_s:
            self.admin.poll(0)
            if self._refusal is not None:  # it would be tried again until the timeout
                raise self.error(self._refusal)
            wait((future,), _POLL_S)
        if not future.done():
            raise self.away()
        return future.result()

    def away(self) -> SequencerError:
        refusal = self._refusal
        if refusal is not None:
            return self.error(refusal)
        return SequencerError(
            f"Kafka at {self.servers} does not answer: start it, or correct cluster.bootstrap_servers"
        )

    def error(self, error: Any) -> SequencerError:
        """A sentence for an error of Kafka's."""
        code = error.code()
        if code in _REFUSED:
            return SequencerError(
                f"Kafka does not let {self._principal()} use topic {self.topic}: allow it Read, Write, Describe and"
                " DescribeConfigs there, and Create for `ember cluster init`"
            )
        if code in _NOT_ACCEPTED:
            return SequencerError(
                f"Kafka at {self.servers} does not accept {self._principal()}: check the settings cluster.tls and"
                f" cluster.sasl, and those that begin so ({_words(error)})"
            )
        if code in _MISSING:
            return self.missing()
        if code in (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE):
            return SequencerError(
                f"a block is too large for topic {self.topic}: set its max.message.bytes to {RECORD_BYTES_MAX}, or make"
                " store.group_bytes_max smaller"
            )
        if code in (KafkaError.NOT_ENOUGH_REPLICAS, KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND):
            return SequencerError(
                f"topic {self.topic} has fewer replicas in sync than min.insync.replicas: start Kafka's nodes"
            )
        if code in (
            KafkaError._TRANSPORT,
            KafkaError._TIMED_OUT,
            KafkaError._MSG_TIMED_OUT,
            KafkaError._ALL_BROKERS_DOWN,
        ):
            return self.away()
        return SequencerError(f"Kafka has failed: {_words(error)}")

    def missing(self) -> SharedLogLost:
        return SharedLogLost(
            f"Kafka has no topic {self.topic}: correct cluster.topic, or begin a log with `ember cluster init`"
        )

    def _principal(self) -> str:
        if self.options.sasl_mechanism:
            return f"user {self.options.sasl_user!r}"
        return "this server's certificate" if self.options.tls_certificate else "this server"

    def identity(self) -> str:
        """The ids of cluster and topic. Raises if the topic is not one that a shared log can be in."""
        try:
            cluster = self.ask(self.admin.describe_cluster(request_timeout=ANSWER_TIMEOUT_S))
            topic = self.ask(self.described())
            resource = _admin.ConfigResource(_admin.ConfigResource.Type.TOPIC, self.topic)
            answers = self.admin.describe_configs([resource], request_timeout=ANSWER_TIMEOUT_S)
            settings = {name: entry.value for name, entry in self.ask(answers[resource]).items()}
        except KafkaException as error:
            raise self.error(error.args[0]) from None
        self._check(len(topic.partitions), settings)
        return f"{cluster.cluster_id}/{topic.topic_id}"

    def described(self) -> "Future[Any]":
        """The topic with its id, soon."""
        answers = self.admin.describe_topics(_client.TopicCollection([self.topic]), request_timeout=ANSWER_TIMEOUT_S)
        future: Future[Any] = answers[self.topic]
        return future

    def _check(self, partitions: int, settings: dict[str, str]) -> None:
        """Refuse a topic that would change the order, or drop, keep out or make up blocks."""
        if partitions != 1:
            raise SequencerError(
                f"topic {self.topic} has {partitions} partitions, and the shared log must have 1: name another topic"
                " in cluster.topic, and begin it with `ember cluster init`"
            )
        if "compact" in settings["cleanup.policy"]:
            raise SequencerError(self._unfit("cleanup.policy", "delete", settings["cleanup.policy"]))
        if int(settings["max.message.bytes"]) < RECORD_BYTES_MAX:
            raise SequencerError(
                self._unfit("max.message.bytes", f"at least {RECORD_BYTES_MAX}", settings["max.message.bytes"])
            )
        if settings["unclean.leader.election.enable"] != "false":
            raise SequencerError(self._unfit("unclean.leader.election.enable", "false", "true"))
        if self.options.durability == "sync" and settings["flush.messages"] != "1":
            raise SequencerError(
                self._unfit("flush.messages", '1 with cluster.durability = "sync"', settings["flush.messages"])
            )

    def _unfit(self, name: str, expected: str, found: str) -> str:
        return f"topic {self.topic} has {name} = {found}, expected {expected}: change it with kafka-configs.sh"

    def ends(self, which: Any) -> int:
        """The topic's first or next offset."""
        answers = self.admin.list_offsets({self.partition: which}, request_timeout=ANSWER_TIMEOUT_S)
        try:
            return int(self.ask(answers[self.partition]).offset)
        except KafkaException as error:
            raise self.error(error.args[0]) from None

    def create(self) -> None:
        """The topic, unless it is there."""
        try:
            brokers = len(self.ask(self.admin.describe_cluster(request_timeout=ANSWER_TIMEOUT_S)).nodes)
            replicas = min(REPLICAS, brokers)
            config = {
                "cleanup.policy": "delete",
                "max.message.bytes": str(RECORD_BYTES_MAX),
                "min.insync.replicas": str(max(1, replicas - 1)),
                "retention.ms": str(RETENTION_MS),
                "unclean.leader.election.enable": "false",
            }
            if self.options.durability == "sync":
                config["flush.messages"] = "1"
            topic = _admin.NewTopic(self.topic, 1, replicas, config=config)
            self.ask(self.admin.create_topics([topic], request_timeout=ANSWER_TIMEOUT_S)[self.topic])
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise self.error(error.args[0]) from None
        self._wait_until_known()

    def _wait_until_known(self) -> None:
        """A broker may know a new topic, and the leader of its partition, a little later than the one that made it."""
        until_s = monotonic() + ANSWER_TIMEOUT_S
        while True:
            try:
                self.ask(self.described())
                self.ends(_admin.OffsetSpec.latest())
                return
            except KafkaException as error:
                failure = self.error(error.args[0])
            except SequencerError as error:
                failure = error
            if monotonic() >= until_s:
                raise failure
            sleep(_POLL_S)


def create_topic(options: KafkaOptions) -> None:
    """Make the topic as a shared log needs it, unless it is there: one partition, nothing compacted.

    With three brokers or more there are three copies, and a block is stored when two have it.
    """
    _Kafka(options).create()


@final
class KafkaSequencer(Sequencer):
    """The shared log in a topic of Kafka. SequencerError: Kafka cannot be reached, or the topic is not fit for it."""

    def __init__(self, options: KafkaOptions) -> None:
        self._kafka: Final = _Kafka(options)
        self.identity = self._kafka.identity()
        self._producer: Final[Any] = self._kafka.client(_client.Producer, _PRODUCER)
        self._consumer: Final[Any] = self._kafka.client(_client.Consumer, _CONSUMER)
        self._next = -1  # the position that the consumer will bring next
        self._lost: SharedLogLost | None = None
        self._failed: Final[SimpleQueue[Callable[[], None]]] = SimpleQueue()
        self._stop: Final = Event()
        self._thread: Final = NamedThread(self._serve, "ember-kafka")
        self._thread.start()

    def append(self, block: bytes, done: Callable[[SequencerError | None], None]) -> None:
        def report(error: Any, _: Any) -> None:
            done(None if error is None else self._kafka.error(error))

        try:
            self._raise_if_lost()
            self._producer.produce(self._kafka.topic, value=block, partition=0, on_delivery=report)
        except KafkaException as error:
            failure = self._kafka.error(error.args[0])
            self._failed.put(lambda: done(failure))
        except BufferError:
            late = SequencerError("Kafka does not keep up with this server: see what slows it down")
            self._failed.put(lambda: done(late))
        except SharedLogLost as error:
            lost = error
            self._failed.put(lambda: done(lost))

    def read(self, position: int, wait_s: float) -> list[tuple[int, bytes]]:
        self._raise_if_lost()
        if position != self._next:
            self._consumer.assign([_client.TopicPartition(self._kafka.topic, 0, position)])
            self._next = position
        blocks: list[tuple[int, bytes]] = []
        read_bytes = 0
        message = self._consumer.poll(wait_s)
        while message is not None:
            if message.error() is not None and message.error().code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
                pass  # nothing is needed of the group that the client must name
            elif message.error() is not None:
                self._next = -1  # begins again where it was, once what it had is taken
                if not blocks:
                    raise self._read_error(message.error(), position)
                break
            else:
                value: bytes = message.value() or b""
                blocks.append((message.offset(), value))
                self._next = message.offset() + 1
                read_bytes += len(value)
                if read_bytes >= READ_BYTES_MAX:
                    break
            message = self._consumer.poll(0)
        if not blocks and self._kafka.is_away():
            raise self._kafka.away()
        self._raise_if_lost()  # what was read may be of another topic with this name
        return blocks

    def first(self) -> int:
        self._raise_if_lost()
        return self._kafka.ends(_admin.OffsetSpec.earliest())

    def end(self) -> int:
        self._raise_if_lost()
        return self._kafka.ends(_admin.OffsetSpec.latest())

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        self._producer.flush(_CLOSE_TIMEOUT_S)
        self._consumer.close()

    def _raise_if_lost(self) -> None:
        if self._lost is not None:
            raise self._lost

    def _read_error(self, error: Any, position: int) -> SequencerError:
        code = error.code()
        if code in _MISSING:  # it may be for a moment only; `_watch` decides
            return SequencerError(f"Kafka does not have topic {self._kafka.topic} now")
        if code not in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._LOG_TRUNCATION):
            return self._kafka.error(error)
        first, end = self.first(), self.end()
        if position < first:
            return SharedLogLost(
                f"the shared log begins at position {first}, and this node needs {position}: retention.ms or"
                f" retention.bytes of topic {self._kafka.topic} removed what is between while the node was away"
            )
        if position > end:
            return SharedLogLost(
                f"the shared log ends before position {end}, and this node has read up to {position}: Kafka has lost"
                f" the end of topic {self._kafka.topic}, or it was truncated"
            )
        return SequencerError(f"Kafka does not have position {position} of topic {self._kafka.topic} now")

    def _serve(self) -> None:
        """Have reports delivered, and see that the topic is still the same one."""
        missing, check_s, asked = 0, monotonic() + CHECK_INTERVAL_S, None
        while not self._stop.is_set():
            self._producer.poll(_POLL_S)
            self._report_failed()
            if asked is None and monotonic() >= check_s and self._lost is None:
                asked = self._kafka.described()
            elif asked is not None and asked.done():
                missing = self._watch(asked, missing)
                asked, check_s = None, monotonic() + CHECK_INTERVAL_S

    def _report_failed(self) -> None:
        with suppress(Empty):
            while True:
                self._failed.get_nowait()()

    def _watch(self, asked: "Future[Any]", missing: int) -> int:
        """How often in a row the topic is missing now. It may be missing, another one, or not known at the moment."""
        error = asked.exception()
        if error is None:
            self._kafka.answered()
            if str(asked.result().topic_id) != self.identity.partition("/")[2]:
                self._lost = SharedLogLost(
                    f"topic {self._kafka.topic} was deleted and made again: this node's data directory belongs to the"
                    " one before; begin a log from it with `ember cluster init` and another cluster.topic"
                )
            return 0
        if not isinstance(error, KafkaException) or error.args[0].code() not in _MISSING:
            return missing
        if missing + 1 >= MISSING_MAX:
            self._lost = SharedLogLost(
                f"topic {self._kafka.topic} was deleted: begin another log from the newest data directory with"
                " `ember cluster init`"
            )
        return missing + 1


def _words(error: Any) -> str:
    return f"{error.name()}: {error.str()}"


_PRODUCER: Final = {
    "acks": "all",
    "enable.idempotence": True,
    "linger.ms": 0,  # a block is a group already
    "compression.type": "none",
    "message.max.bytes": RECORD_BYTES_MAX,
    "message.timeout.ms": DELIVERY_TIMEOUT_S * 1000,
    "queue.buffering.max.messages": QUEUED_BLOCKS_MAX,
    "queue.buffering.max.kbytes": QUEUED_BYTES_MAX // 1024,
}
_CONSUMER: Final = {
    "group.id": _GROUP,
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "coordinator.query.interval.ms": 600_000,
    "auto.offset.reset": "error",
    "fetch.message.max.bytes": READ_BYTES_MAX,
    "message.max.bytes": RECORD_BYTES_MAX,
    "queued.max.messages.kbytes": 4 * READ_BYTES_MAX // 1024,
}
