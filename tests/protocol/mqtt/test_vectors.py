"""Every vector of every level: bytes to the packet and back, and each bad packet with its error."""

import pytest

from embermq.protocol.mqtt.encode import encode
from embermq.protocol.packets import Pingreq, Pingresp
from support import conformance
from support.clauses import of_level
from support.vectors.catalog import REJECTED, VECTORS
from support.vectors.decoders import decoder_for
from support.vectors.vector import V5, Rejected, Vector

PING = {"client": (b"\xc0\x00", Pingreq()), "server": (b"\xd0\x00", Pingresp())}


@pytest.mark.parametrize(
    "vector", [pytest.param(each, id=each.id, marks=[of_level(each.level, *each.proves)]) for each in VECTORS]
)
def test_bytes_become_the_packet_and_the_packet_becomes_the_bytes(vector: Vector) -> None:
    for sender in vector.senders:
        decoder = decoder_for(sender, vector.level)
        assert decoder.feed(vector.wire) == [vector.packet]
        assert decoder.error is None
    if vector.is_written:
        assert encode(vector.packet, vector.dialect) == vector.wire


@pytest.mark.parametrize(
    "case",
    [pytest.param(each, id=each.id, marks=[of_level(each.level, each.clause, *each.proves)]) for each in REJECTED],
)
def test_a_bad_packet_ends_the_stream_with_its_error(case: Rejected) -> None:
    for sender in case.senders:
        decoder = decoder_for(sender, case.level)
        ping_wire, ping = PING[sender]
        assert decoder.feed(ping_wire + case.wire + ping_wire) == [ping]
        ended_by = decoder.error
        assert type(ended_by) is case.error
        assert (ended_by.clause, ended_by.reason) == (case.clause, case.reason_code)
        assert ended_by.detail
        assert decoder.feed(ping_wire) == []
        assert decoder.error is ended_by


def test_a_bad_packet_byte_by_byte_ends_the_stream() -> None:
    for case in REJECTED:
        for sender in case.senders:
            decoder = decoder_for(sender, case.level)
            for value in case.wire:
                assert decoder.feed(bytes((value,))) == [], case.id
            error = decoder.error
            assert type(error) is case.error, case.id
            assert (error.clause, error.reason) == (case.clause, case.reason_code), case.id


def test_no_name_is_used_twice_at_one_level() -> None:
    for ids in ([vector.id for vector in VECTORS], [case.id for case in REJECTED]):
        assert len(ids) == len(set(ids))


def test_nothing_is_both_good_and_rejected() -> None:
    good = {(vector.level, vector.wire, sender) for vector in VECTORS for sender in vector.senders}
    assert not [case.id for case in REJECTED for sender in case.senders if (case.level, case.wire, sender) in good]


def test_the_clauses_of_the_vectors_are_clauses_of_their_standard() -> None:
    for edition, is_5 in (("v311", False), ("v5", True)):
        named = {clause for vector in VECTORS if (vector.level == V5) == is_5 for clause in vector.proves}
        for case in REJECTED:
            if (case.level == V5) == is_5:
                named.update((case.clause, *case.proves))
        assert named <= {clause.id for clause in conformance.read_clauses(edition)}
