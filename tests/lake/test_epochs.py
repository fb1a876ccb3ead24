"""The epoch and the offset in one number."""

import pytest

from embermq.lake.epochs import EPOCH_MAX, NOTHING_APPLIED, OFFSET_MAX, epoch_and_offset, transaction_version
from embermq.lake.errors import LakeError


@pytest.mark.parametrize("epoch", [0, 1, 7, EPOCH_MAX])
@pytest.mark.parametrize("through", [NOTHING_APPLIED, 0, 1, 12_345, OFFSET_MAX])
def test_both_come_back_and_a_higher_epoch_is_above_every_offset(epoch: int, through: int) -> None:
    version = transaction_version(epoch, through)
    assert epoch_and_offset(version) == (epoch, through)
    assert version < 1 << 63
    if epoch < EPOCH_MAX:
        assert transaction_version(epoch + 1, NOTHING_APPLIED) > version
    if through < OFFSET_MAX:
        assert transaction_version(epoch, through + 1) > version


def test_an_offset_of_an_earlier_format_is_epoch_0_and_no_transaction_has_applied_nothing() -> None:
    assert epoch_and_offset(41) == (0, 41)
    assert epoch_and_offset(None) == epoch_and_offset(-1) == (0, NOTHING_APPLIED)


@pytest.mark.parametrize(("epoch", "through"), [(EPOCH_MAX + 1, 0), (1, OFFSET_MAX + 1)])
def test_what_does_not_fit_is_refused(epoch: int, through: int) -> None:
    with pytest.raises(LakeError, match="a lake ends at epoch"):
        transaction_version(epoch, through)
