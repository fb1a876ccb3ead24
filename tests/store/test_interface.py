"""The words between the broker and the engines."""

from embermq.store.interface import PACKET_IDS, packet_id_of


def test_packet_ids_go_round_and_never_are_0() -> None:
    assert [packet_id_of(sequence) for sequence in (1, 2, PACKET_IDS, PACKET_IDS + 1)] == [1, 2, PACKET_IDS, 1]
