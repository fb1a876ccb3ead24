"""Runs of acknowledgements as values."""

from embermq.protocol.acknowledgements import Acknowledgements, parted
from embermq.protocol.packets import PUBACK, PUBCOMP, PUBREC, PUBREL, Pingreq, Puback, Pubcomp, Pubrec, Pubrel


def test_a_run_is_the_packets_that_it_stands_for() -> None:
    runs = [Acknowledgements(PUBACK, [1, 2]), Acknowledgements(PUBREC, [3]), Pingreq()]
    assert parted(runs) == [Puback(1), Puback(2), Pubrec(3), Pingreq()]
    assert parted([Acknowledgements(PUBREL, [4]), Acknowledgements(PUBCOMP, [5])]) == [Pubrel(4), Pubcomp(5)]
