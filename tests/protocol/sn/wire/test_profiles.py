"""The tables of the wire profiles: every layout is exercised, and every trait is the one intended."""

import pytest

from embermq.protocol.sn.wire.layouts import Profile
from embermq.protocol.sn.wire.profiles import PROFILES, W
from support import sn_packets as sn
from support.sn_vectors import VECTORS


@pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.name)
def test_every_layout_has_a_vector(profile: Profile) -> None:
    covered = {vector.packet.kind for vector in VECTORS if vector.profile is profile}
    wanted = {kind for kind in range(len(sn.NAMES)) if profile.by_kind[kind] is not None}
    if profile is W:
        # W's other layouts are 1.2's or A's own table rows.
        wanted &= {layout.kind for layout in W.by_code if layout is not None and layout.kind in covered}
    assert covered >= wanted


TRAITS = {  # 1.2, W, A, B; docs/mqtt-sn.md, "Wire profiles"
    "version": (1, 2, 2, 2),
    "versions": ((1, 0), (2,), (2,), (2,)),
    "short_names": (True, True, True, False),
    "full_names": (False, True, True, True),
    "will_dialogue": (True, True, False, False),
    "sleeps_by_disconnect": (True, True, True, False),
    "has_session_expiry": (False, True, True, True),
    "assigns_client_ids": (False, True, True, True),
    "refuses_by_puback": (True, False, False, False),
    "subscribe_has_dup": (True, False, False, False),
    "unsuback_has_reason": (False, True, True, True),
    "regack_has_topic_type": (False, True, True, True),
    "acks_omit_alias": (False, False, False, True),
}
RULES = {
    "strict": (False, False, True, True),
    "long_keep_alive_percent": (110, 110, 150, 150),
    "backs_off": (False, False, True, True),
    "aliases_belong_to_session": (False, False, True, True),
    "connect_repeated": (True, True, True, False),
    "disconnect_answered": (True, True, True, False),
    "dup_at_qos_1": (True, True, True, False),
    "sleep_is_session_expiry": (False, False, True, False),
    "tells_lost_connection": (True, False, False, True),
    "alias_0_malformed": (False, False, False, True),
    "unknown_predefined_fatal": (False, False, False, True),
    "has_alias_exists": (False, False, False, True),
    "has_connection_encapsulation": (False, False, False, True),
    "packet_bytes_max_least": (0, 0, 0, 10),
}


@pytest.mark.parametrize("name", TRAITS)
def test_a_trait_that_is_read_off_the_layouts_is_the_one_of_the_standard(name: str) -> None:
    assert tuple(getattr(profile, name) for profile in PROFILES) == TRAITS[name]


@pytest.mark.parametrize("name", RULES)
def test_a_rule_is_the_one_of_the_standard(name: str) -> None:
    assert tuple(getattr(profile.rules, name) for profile in PROFILES) == RULES[name]
