"""Telling a request that came again from a new one."""

from embermq.protocol.sn.requests import PACKET_IDS_MAX, PUBLISHES_MAX, Duplicates

WINDOW_MS = 10_000


def test_only_the_last_request_within_the_window_is_a_duplicate() -> None:
    duplicates = Duplicates(WINDOW_MS)
    assert not duplicates.is_last_request(b"first", 0)
    duplicates.remember_request(b"first", 0)
    assert duplicates.is_last_request(b"first", WINDOW_MS - 1)
    assert not duplicates.is_last_request(b"first", WINDOW_MS)
    duplicates.remember_request(b"second", 1)
    assert not duplicates.is_last_request(b"first", 2)


def test_an_answer_belongs_to_the_last_request() -> None:
    duplicates = Duplicates(WINDOW_MS)
    duplicates.remember_answer(b"to nothing")
    assert duplicates.last_answer() is None
    duplicates.remember_request(b"first", 0)
    assert duplicates.last_answer() is None
    duplicates.remember_answer(b"granted")
    assert duplicates.last_answer() == b"granted"
    duplicates.remember_request(b"second", 1)
    assert duplicates.last_answer() is None


def test_one_request_at_a_time() -> None:
    duplicates = Duplicates(WINDOW_MS)
    assert duplicates.begin(1)
    assert not duplicates.begin(2)
    duplicates.end(2)
    assert not duplicates.begin(2)
    duplicates.end(1)
    assert duplicates.begin(2)


def test_a_late_copy_breaks_no_rule_and_begins_nothing() -> None:
    duplicates = Duplicates(WINDOW_MS)
    duplicates.begin(1)
    duplicates.end(1)
    assert duplicates.begin(1)
    assert duplicates.begin(2)


def test_packet_ids_are_forgotten_so_that_they_can_be_used_again() -> None:
    duplicates = Duplicates(WINDOW_MS)
    for packet_id in range(1, PACKET_IDS_MAX + 2):
        duplicates.begin(packet_id)
        duplicates.end(packet_id)
    assert duplicates.begin(1)
    assert not duplicates.begin(1_000), "the first id began a request again"


def test_a_qos_2_message_is_late_only_after_its_exchange_and_within_the_window() -> None:
    duplicates = Duplicates(WINDOW_MS)
    duplicates.begin_publish(7, b"content")
    assert not duplicates.is_late_publish(7, b"content", 1)
    duplicates.end_publish(7, 100)
    assert duplicates.is_late_publish(7, b"content", 100 + WINDOW_MS - 1)
    assert not duplicates.is_late_publish(7, b"content", 100 + WINDOW_MS)
    assert not duplicates.is_late_publish(7, b"other", 101)
    assert not duplicates.is_late_publish(8, b"content", 101)


def test_qos_2_messages_are_remembered_in_a_bounded_number() -> None:
    duplicates = Duplicates(WINDOW_MS)
    for packet_id in range(1, PUBLISHES_MAX + 2):
        duplicates.begin_publish(packet_id, b"content")
        duplicates.end_publish(packet_id, 1)
    assert not duplicates.is_late_publish(1, b"content", 2)
    assert duplicates.is_late_publish(2, b"content", 2)
