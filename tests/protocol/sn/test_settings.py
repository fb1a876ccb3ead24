"""The settings of a listener: which profiles it speaks, and in which a PUBWOS is read."""

import pytest

from embermq.protocol.sn.settings import SnSettings
from embermq.protocol.sn.wire.profiles import PROFILES, A, B, W


def test_profiles_by_name() -> None:
    assert SnSettings().profiles == PROFILES
    assert SnSettings(profile="2.0").profiles == (A, B)
    for profile in PROFILES:
        assert SnSettings(profile=profile.name).profiles == (profile,)
    with pytest.raises(ValueError, match="no MQTT-SN profile"):
        SnSettings(profile="3.0")


@pytest.mark.parametrize(
    ("profile", "sessionless_profile", "read_in"),
    [("auto", "2.0-a", A), ("auto", "2.0-b", B), ("1.2", "2.0-w", W), ("2.0-b", "2.0-a", B), ("2.0-w", "2.0-a", W)],
)
def test_a_pubwos_is_read_in_the_one_profile_of_2_0_or_as_set(
    profile: str, sessionless_profile: str, read_in: object
) -> None:
    assert SnSettings(profile=profile, sessionless_profile=sessionless_profile).pubwos_profile is read_in


def test_predefined_aliases_are_found_by_their_names() -> None:
    assert SnSettings(predefined={7: "a/b"}).predefined_aliases == {"a/b": 7}
