"""The schedule: freshness, cost, and jobs at different offsets. No Spark session is needed."""

from embermq.spark.schedule import Plan, Turn, next_plan, pause_s

FRESH_S = 10.0
MOST = 1_000


def plan(turns: list[Turn], log_end: int, now_s: float) -> Plan | None:
    return next_plan(turns, log_end, MOST, FRESH_S, now_s)


def done(turns: list[Turn], made: Plan, now_s: float, took_s: float = 0.1) -> None:
    for turn in turns:
        if turn.name in made.jobs:
            turn.position, turn.began_s, turn.took_s = made.end, now_s, took_s


def test_all_jobs_share_the_first_batch_and_wait_for_new_records() -> None:
    turns = [Turn("messages", False, 1), Turn("retained", True, 1)]
    first = plan(turns, 501, 0.0)
    assert first == Plan(1, 501, ("messages", "retained"))
    done(turns, first, 0.0)
    assert plan(turns, 501, 100.0) is None
    assert plan(turns, 502, 9.7) is None
    assert plan(turns, 502, 9.9) == Plan(501, 502, ("messages", "retained"))


def test_rows_can_be_read_when_they_are_as_old_as_wanted() -> None:
    turns = [Turn("messages", False, 501, 0.0, 0.25), Turn("air", False, 501, 0.0, 0.15)]
    assert plan(turns, 502, 9.5) is None
    assert plan(turns, 502, 9.6) == Plan(501, 502, ("messages", "air"))


def test_costly_merges_get_rarer_batches_than_appends() -> None:
    turns = [
        Turn("messages", False, 501, 0.0, 0.5),
        Turn("retained", True, 501, 0.0, 0.9),
        Turn("topic_stats", True, 501, 0.0, 0.6),
    ]
    assert plan(turns, 600, 10.0) == Plan(501, 600, ("messages",))
    done(turns, Plan(501, 600, ("messages",)), 10.0, 0.5)
    assert plan(turns, 700, 29.9) == Plan(600, 700, ("messages",))
    costly = [Turn("messages", False, 501, 0.0, 0.8)]
    assert plan(costly, 600, 15.9) is None and plan(costly, 600, 16.1) is not None
    slow = [Turn("retained", True, 501, 0.0, 30.0)]
    assert plan(slow, 600, 179.9) is None and plan(slow, 600, 180.0) is not None
    # One read for all when the merges are due, from where they are.
    assert plan(turns, 700, 30.1) == Plan(501, 700, ("messages", "retained", "topic_stats"))


def test_a_merge_waits_for_the_next_append_so_that_it_does_not_delay_it() -> None:
    turns = [Turn("messages", False, 600, 58.0, 0.2), Turn("retained", True, 501, 0.0, 3.0)]
    assert plan(turns, 700, 61.0) is None
    assert plan(turns, 700, 67.9) == Plan(501, 700, ("messages", "retained"))
    # Nothing new for the append: the merge need not wait.
    assert plan(turns, 600, 61.0) == Plan(501, 600, ("retained",))


def test_a_job_that_is_far_behind_does_not_wait_and_takes_turns_with_the_others() -> None:
    turns = [Turn("messages", False, 5_001, 0.0, 0.1), Turn("new", False, 1)]
    order = []
    for step in range(10):
        made = plan(turns, 5_001 + step, 2.0 * step)
        if made is None:
            break
        order.append((made.jobs, made.start))
        done(turns, made, 2.0 * step)
    assert order[:5] == [(("new",), start) for start in (1, 1_001, 2_001, 3_001, 4_001)]
    assert order[5:] == [(("messages", "new"), 5_001)] or order[5] == (("messages",), 5_001)


def test_the_others_are_not_kept_waiting_by_a_job_that_reads_all_of_the_log() -> None:
    turns = [Turn("messages", False, 9_001, 0.0, 0.1), Turn("new", False, 1, 1.0, 5.0)]
    assert plan(turns, 9_100, 6.0) == Plan(1, 1_001, ("new",))
    done(turns, Plan(1, 1_001, ("new",)), 6.0, 5.0)
    assert plan(turns, 9_100, 11.0) == Plan(9_001, 9_100, ("messages",))


def test_the_log_need_not_be_looked_at_before_the_next_append_is_due() -> None:
    turns = [
        Turn("messages", False, 501, 100.0, 0.25),
        Turn("clients", False, 501, 100.0, 0.25),
        Turn("retained", True, 501, 40.0, 1.0),
    ]
    assert pause_s(turns, FRESH_S, 102.0) == 8.0
    assert plan(turns, 700, 102.0 + 7.9) is None
    assert plan(turns, 700, 102.0 + 8.0) is not None
    assert pause_s(turns, FRESH_S, 110.0) == 0
    assert pause_s([*turns, Turn("new", False, 1)], FRESH_S, 102.0) == 0, "it has had no batch yet"
    assert pause_s(turns[2:], FRESH_S, 41.0) == 0, "there is no append"
