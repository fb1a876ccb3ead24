"""Which wire profile a frame is written in, where no connection tells it (docs/mqtt-sn.md, "Wire profiles").

Owns: the test for a CONNECT, and the readings of a frame that comes without a connection.
Never: keeps state, or knows the place of a byte: the layouts tell it. The test for a CONNECT precedes the decoder of a
connection's own profile, since a client may come back from the same address with another version.
"""

from typing import Final, final

from embermq.protocol.errors import PeerError
from embermq.protocol.sn.wire import fields as f
from embermq.protocol.sn.wire import packets as sn
from embermq.protocol.sn.wire.codec import decode_frame
from embermq.protocol.sn.wire.framing import Frame
from embermq.protocol.sn.wire.layouts import CODES, Layout, Profile
from embermq.protocol.sn.wire.packets import SnPacket
from embermq.protocol.sn.wire.profiles import PROFILES

_AUTH_REASONS: Final = (0x18, 0x19)


@final
class DetectedConnect:
    """A CONNECT of `profile`; `is_supported` is False if it names a version that is not defined."""

    def __init__(self, profile: Profile, is_supported: bool) -> None:
        self.profile: Final = profile
        self.is_supported: Final = is_supported


def _connect_profiles(code: int) -> list[Profile]:
    return [profile for profile in PROFILES if profile.layout(sn.CONNECT).code == code]


_CONNECT_PROFILES: Final = [_connect_profiles(code) for code in range(CODES)]
"""The profiles whose CONNECT has a type code: one, or two (1.2 and W), or for most codes none."""


def detect_connect(frame: Frame, current: Profile | None = None) -> DetectedConnect | None:
    """Whether a frame is a CONNECT, and of which profile. `current` is the profile of its sender's connection.

    Other profiles have other packets with the same codes; those are shorter than a CONNECT, but for A's AUTH.
    """
    profiles = _CONNECT_PROFILES[frame.code]
    if not profiles or (current is not None and _is_auth(frame, current)):
        return None
    body = frame.body
    unsupported: DetectedConnect | None = None
    for profile in profiles:
        layout = profile.layout(sn.CONNECT)
        is_whole = len(body) >= layout.bytes_min
        if layout.number(body, f.VERSION) in profile.versions:
            return DetectedConnect(profile, True) if is_whole else None
        if is_whole and unsupported is None:
            unsupported = DetectedConnect(profile, False)
    return unsupported


def _is_auth(frame: Frame, profile: Profile) -> bool:
    """Whether a frame has the form of an AUTH that a client may send; its text may be malformed even so."""
    layout = profile.by_code[frame.code]
    if layout is None or layout.kind != sn.AUTH or layout.number(frame.body, f.REASON) not in _AUTH_REASONS:
        return False
    return layout.bytes_min + layout.number(frame.body, f.AUTH_METHOD) <= len(frame.body)


def read_without_connection(
    frame: Frame, profiles: tuple[Profile, ...], pubwos_profile: Profile
) -> list[tuple[Profile, SnPacket]]:
    """Every reading of a frame that has a meaning without a connection, in the order of `profiles`.

    These are a message without a session, a search for a server, and a PINGREQ. A CONNECT is detected before.
    """
    readings: list[tuple[Profile, SnPacket]] = []
    for profile in profiles:
        layout = profile.by_code[frame.code]
        if layout is None or not _has_meaning(layout.of(frame.body), profile, pubwos_profile):
            continue
        try:
            readings.append((profile, decode_frame(frame, profile)))
        except PeerError:
            continue
    return readings


def _has_meaning(layout: Layout, profile: Profile, pubwos_profile: Profile) -> bool:
    """Any other packet needs a session (MQTT-SN-3.1.11-1)."""
    if layout.kind == sn.PUBWOS:
        # 1.2's is known by its QoS. Nothing in a frame of 2.0 tells the profile: B's PUBWOS has the code of SUBSCRIBE
        # in the others.
        return profile is pubwos_profile or layout is not profile.by_code[layout.code]
    return layout.kind in (sn.SEARCHGW, sn.PINGREQ)
