"""Sparkplug B 3.0: a row for each metric. Births say the names and data types that later messages leave out.

Owns: what the certificates of an edge node and its devices make known, and the rows of each message. A death
certificate gives a row without a value for each metric that it ends (`is_stale`).
Never: a topic filter, a table. The messages of one edge node come in the order of their offsets.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, Final, NamedTuple, final

import pyarrow as pa

from embermq.lake.payloads.values import TOO_LARGE, Misfit, text
from embermq.lake.schema import BINARY, BOOLEAN, LONG, STRING, TIMESTAMP

COLUMNS: Final = pa.schema(
    [
        ("group_id", STRING),
        ("edge_node_id", STRING),
        ("device_id", STRING),
        ("message_type", STRING),
        ("seq", LONG),
        ("metric", STRING),
        ("alias", LONG),
        ("datatype", STRING),
        ("measured", TIMESTAMP),
        ("is_historical", BOOLEAN),
        ("is_stale", BOOLEAN),
        ("value_long", LONG),
        ("value_double", pa.float64()),
        ("value_boolean", BOOLEAN),
        ("value_string", STRING),
        ("value_bytes", BINARY),
    ]
)
RESULT: Final = pa.schema(
    [("parsed", pa.list_(pa.field("element", pa.struct(COLUMNS)))), ("field", STRING), ("reason", STRING)]
)
"""What is read of each message."""
CERTIFICATE_PATTERN: Final = "^spBv1[.]0/[^/]+/[ND](BIRTH|DEATH)/"
"""Of the topics of certificates."""
METRICS_MAX: Final = 10_000
"""The most metrics of one message."""
NODE_METRICS_MAX: Final = 100_000
"""The most metrics that are known of an edge node with its devices."""

Row = dict[str, Any]

_TOPIC: Final = re.compile(r"spBv1\.0/([^/]+)/(N|D)(BIRTH|DEATH|DATA|CMD)/([^/]+)(?:/([^/]+))?")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SIMPLE: Final = (
    *("Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64"),
    *("Float", "Double", "Boolean", "String", "DateTime"),
)
_OTHERS: Final = ("Text", "UUID", "DataSet", "Bytes", "File", "Template", "PropertySet", "PropertySetList")
_TYPE_NAMES: Final = ("Unknown", *_SIMPLE, *_OTHERS, *(f"{name}Array" for name in _SIMPLE))
"""By their numbers."""
_BITS: Final = {"Int8": 8, "Int16": 16, "Int32": 32, "Int64": 64}
_WHOLE: Final = (*_BITS, "UInt8", "UInt16", "UInt32", "UInt64", "DateTime")
_SEQUENCE: Final = "bdSeq"

# The fields of a payload and of a metric that are read: name, number, type of Protobuf. The values of a data set and of
# a template are messages, which are kept as the bytes that they are.
_UINT64, _BOOL, _STRING, _BYTES, _UINT32 = 4, 8, 9, 12, 13
_PAYLOAD_FIELDS: Final = (("timestamp", 1, _UINT64), ("seq", 3, _UINT64))
_METRIC_FIELDS: Final = (
    ("name", 1, _STRING),
    ("alias", 2, _UINT64),
    ("timestamp", 3, _UINT64),
    ("datatype", 4, _UINT32),
    ("is_historical", 5, _BOOL),
    ("is_null", 7, _BOOL),
    ("int_value", 10, _UINT32),
    ("long_value", 11, _UINT64),
    ("float_value", 12, 2),
    ("double_value", 13, 1),
    ("boolean_value", 14, _BOOL),
    ("string_value", 15, _STRING),
    ("bytes_value", 16, _BYTES),
    ("dataset_value", 17, _BYTES),
    ("template_value", 18, _BYTES),
)
_VALUE_FIELDS: Final = tuple(name for name, _, _ in _METRIC_FIELDS if name.endswith("_value"))


class Metric(NamedTuple):
    """What a birth certificate says of a metric."""

    name: str
    alias: int | None
    datatype: str


class Answer(NamedTuple):
    """The rows of a message, and whether it is a certificate that later messages need."""

    rows: list[Row]
    is_certificate: bool


@cache
def _payload_class() -> Any:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="sparkplug_read.proto", package="sparkplug_read", syntax="proto2")
    payload, metric = file.message_type.add(name="Payload"), file.message_type.add(name="Metric")
    for message, fields in ((payload, _PAYLOAD_FIELDS), (metric, _METRIC_FIELDS)):
        for name, number, kind in fields:
            message.field.add(name=name, number=number, type=kind, label=1)
    payload.field.add(name="metrics", number=2, type=11, label=3, type_name=".sparkplug_read.Metric")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("sparkplug_read.Payload"))


@final
class EdgeNode:
    """What is known of one edge node, from its certificates."""

    __slots__ = ("_births", "_sequence")

    def __init__(self) -> None:
        self._births: Final[dict[str | None, dict[str, Metric]]] = {}  # by device; None is the node itself
        self._sequence: int | None = None

    def read(self, topic: str, payload: bytes) -> Answer:
        """The rows of a message, the next one of this edge node. Misfit if it cannot be read."""
        found = _TOPIC.fullmatch(topic)
        if found is None or (found[2] == "D") != (found[5] is not None):
            raise Misfit("not a topic of an edge node or a device of Sparkplug B")
        group, scope, kind, node, device = found.groups()
        message = _parsed(payload)
        around = {
            "group_id": group,
            "edge_node_id": node,
            "device_id": device,
            "message_type": scope + kind,
            "seq": _long(message.seq) if message.HasField("seq") else None,
            "measured": _instant(message.timestamp) if message.HasField("timestamp") else None,
        }
        if kind == "BIRTH":
            return Answer(self._born(device, message, around), is_certificate=True)
        if kind == "DEATH":
            return self._dead(device, message, around)
        known = self._births.get(device, {})
        by_alias = {metric.alias: metric for metric in known.values()}
        return Answer([_row(each, around, _resolved(each, known, by_alias)) for each in message.metrics], False)

    def _born(self, device: str | None, message: Any, around: Row) -> list[Row]:
        """The certificate of a node ends what was known of its devices."""
        known: dict[str, Metric] = {}
        aliases: set[int] = set()
        rows: list[Row] = []
        for each in message.metrics:
            if not each.HasField("name"):
                raise Misfit("a metric without a name in a birth certificate")
            metric = _resolved(each, {}, {})
            if metric.name in known:
                raise Misfit("a name that is there twice", metric.name)
            if metric.alias is not None and metric.alias in aliases:
                raise Misfit(f"the alias {metric.alias} is there twice", metric.name)
            known[metric.name] = metric
            if metric.alias is not None:
                aliases.add(metric.alias)
            rows.append(_row(each, around, metric))
        others = 0 if device is None else sum(len(one) for key, one in self._births.items() if key != device)
        if others + len(known) > NODE_METRICS_MAX:
            raise Misfit(f"more than {NODE_METRICS_MAX} metrics of one edge node")
        if device is None:
            self._births.clear()
            self._sequence = _sequence_of(rows)
        self._births[device] = known
        return rows

    def _dead(self, device: str | None, message: Any, around: Row) -> Answer:
        """A death certificate of an earlier connection of the node (another `bdSeq`) ends nothing."""
        rows = [_row(each, around, _resolved(each, {}, {})) for each in message.metrics]
        sequence = _sequence_of(rows)
        if device is None and None not in (sequence, self._sequence) and sequence != self._sequence:
            return Answer(rows, is_certificate=False)
        ended = [device] if device is not None else list(self._births)
        for one in ended:
            for metric in self._births.pop(one, {}).values():
                if metric.name != _SEQUENCE:
                    row = {**around, "device_id": one, "is_stale": True, "is_historical": False}
                    rows.append({**row, "metric": metric.name, "alias": metric.alias, "datatype": metric.datatype})
        if device is None:
            self._sequence = None
        return Answer(rows, is_certificate=True)


@final
@dataclass(frozen=True)
class Certificates:
    """Certificates of edge nodes, each with its offset, topic and payload, in the order of their offsets."""

    by_node: Mapping[str, Sequence[tuple[int, str, bytes]]]

    @classmethod
    def among(cls, messages: Iterable[tuple[int, str, bytes]]) -> "Certificates":
        """Those messages that later ones of the same node need."""
        nodes: dict[str, dict[int, tuple[int, str, bytes]]] = {}
        for message in messages:
            nodes.setdefault(_node_of(message[1]), {})[message[0]] = message
        by_node = {}
        for name, of_node in nodes.items():
            ordered = [of_node[offset] for offset in sorted(of_node)]
            found = read_messages((topic, payload, True) for _, topic, payload in ordered)
            by_node[name] = [one for one, answer in zip(ordered, found, strict=True) if answer[1]]
        return cls(by_node)

    def newest(self) -> list[tuple[int, str, bytes]]:
        """The newest of each topic, which say what is known after all of them."""
        return list({one[1]: one for of_node in self.by_node.values() for one in of_node}.values())

    def read_array(self, offsets: pa.Array, topics: pa.Array, payloads: pa.Array) -> pa.Array:
        """The rows, or the field and the reason, of each message."""
        messages = list(zip(offsets.to_pylist(), topics.to_pylist(), payloads.to_pylist(), strict=True))
        nodes: dict[str, list[int]] = {}
        for number, message in enumerate(messages):
            nodes.setdefault(_node_of(message[1]), []).append(number)
        rows: list[list[Row]] = [[] for _ in messages]
        misfits: list[Misfit | None] = [None] * len(messages)
        for name, numbers in nodes.items():
            own = {messages[number][0]: number for number in numbers}
            ordered = sorted([*self._needed(name, own), *(messages[number] for number in numbers)])
            found = read_messages((topic, payload, offset not in own) for offset, topic, payload in ordered)
            for (offset, _, _), (rows_of_it, _, misfit) in zip(ordered, found, strict=True):
                if offset in own:
                    rows[own[offset]], misfits[own[offset]] = rows_of_it, misfit
        columns = [
            pa.array(rows, RESULT.field("parsed").type),
            pa.array([misfit.field or None if misfit else None for misfit in misfits], STRING),
            pa.array([misfit.reason if misfit else None for misfit in misfits], STRING),
        ]
        return pa.StructArray.from_arrays(columns, fields=list(RESULT))

    def _needed(self, name: str, own: Collection[int]) -> list[tuple[int, str, bytes]]:
        """The certificates that messages of a node need: its last birth before them ends all earlier ones."""
        first, last = min(own), max(own)
        found: list[tuple[int, str, bytes]] = []
        for one in self.by_node.get(name, ()):
            if one[0] < first and "/NBIRTH/" in one[1]:
                found = []
            if one[0] < last and one[0] not in own:
                found.append(one)
        return found


def _node_of(topic: str) -> str:
    """The group and the name of the edge node."""
    levels = topic.split("/", 4)
    return "/".join(levels[1:4:2])


def read_messages(
    messages: Iterable[tuple[str, bytes, bool]],
) -> Iterator[tuple[list[Row], bool, Misfit | None]]:
    """What each message of one edge node gives: rows, whether it is a certificate, and why it does not fit.

    A message is its topic, its payload, and whether it is only to be known: a certificate of an earlier batch.
    """
    node = EdgeNode()
    for topic, payload, is_known in messages:
        try:
            answer = node.read(topic, payload)
        except Misfit as misfit:
            yield [], False, misfit
        else:
            yield ([] if is_known else answer.rows), answer.is_certificate, None


def _parsed(payload: bytes) -> Any:
    from google.protobuf.message import DecodeError

    try:
        message = _payload_class().FromString(payload)
    except DecodeError as error:
        raise Misfit(f"not a payload of Sparkplug B ({str(error).rpartition(': ')[2]})") from None
    if len(message.metrics) > METRICS_MAX:
        raise Misfit(f"{len(message.metrics)} metrics, of which at most {METRICS_MAX} are read from one payload")
    return message


def _resolved(metric: Any, known: dict[str, Metric], by_alias: dict[int | None, Metric]) -> Metric:
    """The name, alias and type of a metric: its own, or those that the birth certificate gives."""
    alias = _long(metric.alias) if metric.HasField("alias") else None
    if metric.HasField("name"):
        name = text(metric.name)
        born = known.get(name)
    elif alias is not None and (found := by_alias.get(alias)) is not None:
        name, born = found.name, found
    else:
        what = "a metric without a name and an alias" if alias is None else f"the alias {alias} without a birth"
        raise Misfit(what)
    if metric.HasField("datatype"):
        if metric.datatype >= len(_TYPE_NAMES):
            raise Misfit(f"the data type {metric.datatype} is not known", name)
        datatype = _TYPE_NAMES[metric.datatype]
    elif born is not None:
        datatype = born.datatype
    else:
        raise Misfit("no data type, and no birth that has it", name)
    return Metric(name, alias if alias is not None or born is None else born.alias, datatype)


def _row(metric: Any, around: Row, known: Metric) -> Row:
    """The row of a metric."""
    row = {**around, "metric": known.name, "alias": known.alias, "datatype": known.datatype}
    row["is_historical"], row["is_stale"] = metric.is_historical, False
    try:
        if metric.HasField("timestamp"):
            row["measured"] = _instant(metric.timestamp)
        given = [name for name in _VALUE_FIELDS if metric.HasField(name)]
        if given and not metric.is_null:
            column, value = _value(known.datatype, given[0], getattr(metric, given[0]))
            row[column] = value
    except Misfit as misfit:
        raise misfit.within(known.name) from None
    return row


def _value(datatype: str, field: str, value: Any) -> tuple[str, Any]:
    """The column that a value belongs to, and the value there."""
    if datatype in _WHOLE and field in ("int_value", "long_value"):
        bits = _BITS.get(datatype)
        if bits is not None:  # in two's complement
            value &= (1 << bits) - 1
            value -= (value >> (bits - 1)) << bits
        return "value_long", _long(value)
    if datatype in ("Float", "Double") and field in ("float_value", "double_value"):
        return "value_double", value
    if datatype == "Boolean" and field == "boolean_value":
        return "value_boolean", value
    if datatype in ("String", "Text", "UUID") and field == "string_value":
        return "value_string", text(value)
    is_whole = datatype in _WHOLE or datatype in ("Float", "Double", "Boolean", "String", "Text", "UUID")
    if not is_whole and field in ("bytes_value", "dataset_value", "template_value"):
        return "value_bytes", value
    raise Misfit(f"a {field} for the data type {datatype}")


def _long(value: int) -> int:
    if value >= 1 << 63:
        raise Misfit(TOO_LARGE.format("bigint"))
    return value


def _instant(milliseconds: int) -> datetime:
    try:
        return _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        raise Misfit("a timestamp after the year 9999") from None


def _sequence_of(rows: Iterable[Row]) -> int | None:
    """The number of the node's connection that its birth and its death certificate have."""
    return next((row.get("value_long") for row in rows if row["metric"] == _SEQUENCE), None)
