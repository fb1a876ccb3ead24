"""What the report shows, from the tables of a lake.

Owns: the queries. Their cost follows the number of topics and windows; of `messages` only the newest are read where the
period is long, since `topic_stats` has the sums.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import accumulate
from typing import Any, Final

from embermq.instants import EPOCH
from embermq.lake.duck import LocalTables
from embermq.lake.plots import Axis, Point
from embermq.lake.progress import read_progress

BINS: Final = 120
GROUPS_MAX: Final = 8
TOPICS_MAX: Final = 3
SILENT_MAX: Final = 15
PREFIX_LEVELS_MAX: Final = 4
SIZED_MESSAGES_MAX: Final = 1_000_000
SILENCE_FACTOR: Final = 2.0
"""A topic is silent when it has said nothing for this many times its longest silence before."""
SILENCE_MESSAGES_MIN: Final = 5
"""Fewer messages have no rhythm."""
GAPS_MAX: Final = 20


@dataclass(frozen=True)
class Group:
    """The topics that begin with the same levels."""

    name: str
    messages: int
    topics: int
    payload_bytes: int
    rate: list[Point]
    busiest: list[tuple[str, int]]


@dataclass(frozen=True)
class Silence:
    """A topic that should have said something by now."""

    topic: str
    silence_s: float
    interval_s: float
    longest_s: float


@dataclass(frozen=True)
class ReportData:
    """Everything on the page."""

    axis: Axis
    messages: int
    topics: int
    retained: int
    payload_bytes: int
    clients: int
    rate: list[Point]
    groups: list[Group]
    silent: list[Silence]
    retained_over_time: list[Point]
    connects: list[Point]
    drops: list[tuple[str, int]]
    sizes: list[tuple[str, int]]
    rejects: list[tuple[str, int]]
    gaps: list[str]
    lags: list[str]


@dataclass(frozen=True)
class _Bins:
    """The period of the report in equal parts."""

    first_us: int
    last_us: int

    @property
    def width_us(self) -> int:
        return max(1_000_000, -(-(self.last_us - self.first_us + 1) // BINS))

    def sql(self, column: str) -> str:
        """The number of the part that an instant is in; what is before the period is in the first part."""
        return f"greatest(0, (epoch_us({column}) - {self.first_us}) // {self.width_us})"

    def rates(self, counts: Mapping[int, int]) -> list[Point]:
        """Numbers of each part as numbers a second."""
        return [Point(self.start(number), counts.get(number, 0) * 1e6 / self.width_us) for number in self.numbers()]

    def values(self, found: Mapping[int, int]) -> list[Point]:
        return [Point(self.start(number), found.get(number, 0)) for number in self.numbers()]

    def numbers(self) -> range:
        return range((self.last_us - self.first_us) // self.width_us + 1)

    def start(self, number: int) -> datetime:
        return _instant(self.first_us + self.width_us * number)


def read_report_data(tables: LocalTables) -> ReportData:
    """Ask the tables. A table that is not there counts as one without rows."""
    totals = _one(
        tables,
        "topic_stats",
        "select sum(messages)::bigint as messages, count(distinct topic) as topics, sum(bytes)::bigint as bytes, "
        "epoch_us(min(first_seen)) as first_us, epoch_us(max(last_seen)) as last_us, "
        "epoch_us(max(window_end)) - epoch_us(max(window_start)) as window_us from topic_stats",
    )
    bins = _Bins(totals.get("first_us") or 0, totals.get("last_us") or 0)
    return ReportData(
        axis=Axis(_instant(bins.first_us), _instant(bins.last_us)),
        messages=totals.get("messages") or 0,
        topics=totals.get("topics") or 0,
        retained=_one(tables, "retained", "select count(*) as n from retained").get("n") or 0,
        payload_bytes=totals.get("bytes") or 0,
        clients=_one(tables, "clients", "select count(distinct client_id) as n from clients").get("n") or 0,
        rate=_rate(tables, bins, totals.get("window_us") or 0) if totals.get("messages") else [],
        groups=_groups(tables, bins, totals.get("window_us") or 0),
        silent=_silent(tables, bins.last_us),
        retained_over_time=_retained_over_time(tables, bins) if totals.get("messages") else [],
        connects=_connects(tables, bins),
        drops=_drops(tables),
        sizes=_sizes(tables),
        rejects=_rejects(tables),
        gaps=_gaps(tables),
        lags=[f"{name}: {job['lag']:,} records" for name, job in _jobs(tables).items() if job.get("lag") is not None],
    )


def _instant(micros: int) -> datetime:
    return EPOCH + timedelta(microseconds=micros)


def _one(tables: LocalTables, needed: str, sql: str) -> dict[str, Any]:
    return (_rows(tables, needed, sql) or [{}])[0]


def _rows(tables: LocalTables, needed: str, sql: str) -> list[dict[str, Any]]:
    return tables.rows(sql) if needed in tables.names else []


def _counts_sql(tables: LocalTables, bins: _Bins, window_us: int) -> str:
    """Part of the period, topic and count: from the windows if these are short enough, else from the messages."""
    if window_us <= bins.width_us or "messages" not in tables.names:
        return f"select {bins.sql('first_seen')} as bin, topic, messages as n from topic_stats"
    return f"select {bins.sql('timestamp')} as bin, topic, 1 as n from messages"


def _rate(tables: LocalTables, bins: _Bins, window_us: int) -> list[Point]:
    counted = f"select bin, sum(n)::bigint as n from ({_counts_sql(tables, bins, window_us)}) group by bin"
    return bins.rates({row["bin"]: row["n"] for row in _rows(tables, "topic_stats", counted)})


def _groups(tables: LocalTables, bins: _Bins, window_us: int) -> list[Group]:
    """The groups with the most messages: by the first level, or by as many as it takes to have several groups."""
    level_counts = ", ".join(f"count(distinct {_prefix(n)}) as l{n}" for n in range(1, PREFIX_LEVELS_MAX + 1))
    found = _one(tables, "topic_stats", f"select {level_counts} from topic_stats")
    if not found:
        return []
    levels = next((n for n in range(1, PREFIX_LEVELS_MAX + 1) if found[f"l{n}"] > 1), 1)
    prefix = _prefix(levels)
    sums = tables.rows(
        f"select {prefix} as prefix, sum(messages)::bigint as messages, count(distinct topic) as topics, "
        f"sum(bytes)::bigint as bytes from topic_stats group by 1 order by 2 desc, 1 limit {GROUPS_MAX}"
    )
    binned = tables.rows(
        f"select {prefix} as prefix, bin, sum(n)::bigint as n from ({_counts_sql(tables, bins, window_us)}) "
        "group by 1, 2"
    )
    counts: dict[str, dict[int, int]] = defaultdict(dict)
    for row in binned:
        counts[row["prefix"]][row["bin"]] = row["n"]
    busiest: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for row in tables.rows(
        f"with sums as (select {prefix} as prefix, topic, sum(messages)::bigint as n from topic_stats group by 1, 2) "
        f"select * from sums qualify row_number() over (partition by prefix order by n desc, topic) <= {TOPICS_MAX} "
        "order by n desc, topic"
    ):
        busiest[row["prefix"]].append((row["topic"], row["n"]))
    return [
        Group(
            name=row["prefix"],
            messages=row["messages"],
            topics=row["topics"],
            payload_bytes=row["bytes"],
            rate=bins.rates(counts[row["prefix"]]),
            busiest=busiest[row["prefix"]],
        )
        for row in sums
    ]


def _prefix(levels: int) -> str:
    return f"array_to_string(string_split(topic, '/')[1:{levels}], '/')"


def _silent(tables: LocalTables, last_us: int) -> list[Silence]:
    """Topics whose silence at the end is far longer than any before, the most unusual first."""
    rows = _rows(
        tables,
        "topic_stats",
        f"""
        with windows as (
            select topic, messages, first_seen, last_seen, longest_silence_us,
                   epoch_us(lead(first_seen) over following) - epoch_us(last_seen) as between_us
            from topic_stats window following as (partition by topic order by window_start)),
        topics as (
            select topic, sum(messages)::bigint as messages, epoch_us(min(first_seen)) as first_us,
                   epoch_us(max(last_seen)) as last_us,
                   max(greatest(longest_silence_us, coalesce(between_us, 0))) as longest_us
            from windows group by topic)
        select topic, {last_us} - last_us as silence_us, longest_us,
               (last_us - first_us) // (messages - 1) as interval_us
        from topics
        where messages >= {SILENCE_MESSAGES_MIN} and longest_us > 0 and silence_us > {SILENCE_FACTOR} * longest_us
        order by silence_us / longest_us desc, topic limit {SILENT_MAX}
        """,
    )
    return [
        Silence(row["topic"], row["silence_us"] / 1e6, row["interval_us"] / 1e6, row["longest_us"] / 1e6)
        for row in rows
    ]


def _retained_over_time(tables: LocalTables, bins: _Bins) -> list[Point]:
    """The size of the set at the end of each part: what began minus what ended up to then."""
    if "retained" not in tables.names or "retained_closed" not in tables.names:
        return []
    rows = tables.rows(
        f"select bin, sum(change)::bigint as change from ("
        f"select {bins.sql('valid_from')} as bin, 1 as change from retained_history union all "
        f"select {bins.sql('valid_to')} as bin, -1 as change from retained_history where valid_to is not null) "
        "group by bin"
    )
    changes = {row["bin"]: row["change"] for row in rows}
    sizes = accumulate(changes.get(number, 0) for number in bins.numbers())
    return bins.values(dict(enumerate(sizes))) if changes else []


def _connects(tables: LocalTables, bins: _Bins) -> list[Point]:
    rows = _rows(
        tables,
        "clients",
        f"select {bins.sql('timestamp')} as bin, count(*) as n from clients where event = 'connected' group by 1",
    )
    return bins.values({row["bin"]: row["n"] for row in rows}) if rows else []


def _drops(tables: LocalTables) -> list[tuple[str, int]]:
    return _named(
        _rows(
            tables,
            "clients",
            "select coalesce(nullif(reason, ''), 'no reason recorded') as name, count(*) as n from clients "
            "where event = 'disconnected' group by 1 order by 2 desc, 1 limit 15",
        )
    )


def _sizes(tables: LocalTables) -> list[tuple[str, int]]:
    """How many of the newest messages are in each class of sizes, by powers of four."""
    rows = _rows(
        tables,
        "messages",
        "select case when size = 0 then -1 else floor(log2(size) / 2)::int end as class, count(*) as n from "
        "(select octet_length(payload) as size from messages "
        f'where "offset" > (select max("offset") from messages) - {SIZED_MESSAGES_MAX}) group by 1 order by 1',
    )
    return [
        ("no payload" if row["class"] < 0 else f"{4 ** row['class']:,} to {4 ** (row['class'] + 1) - 1:,}", row["n"])
        for row in rows
    ]


def _rejects(tables: LocalTables) -> list[tuple[str, int]]:
    found: list[tuple[str, int]] = []
    for name in tables.names:
        if name.endswith("_rejects"):
            found += _named(
                tables.rows(
                    f"select '{name.removesuffix('_rejects')}' || coalesce('.' || field, '') || ': ' || reason "
                    f'as name, count(*) as n from "{name}" group by 1 order by 2 desc, 1 limit 10'
                )
            )
    return found


def _named(rows: Iterable[Mapping[str, Any]]) -> list[tuple[str, int]]:
    return [(row["name"], row["n"]) for row in rows]


def _gaps(tables: LocalTables) -> list[str]:
    """The rows of the table `gaps`, which says of itself what its columns are."""
    rows = _rows(tables, "gaps", f"select * from gaps limit {GAPS_MAX}")
    return [", ".join(f"{name} {value}" for name, value in row.items() if value is not None) for row in rows]


def _jobs(tables: LocalTables) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = read_progress(tables.lake).get("jobs", {})
    return found
