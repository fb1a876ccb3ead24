"""Which wire profile a frame is written in, where no connection tells it (docs/mqtt-sn.md, "Wire profiles").

Owns: the test for a CONNECT, and the readings of a frame that comes without a connection.
Never: keeps state. The test for a CONNECT precedes the decoder of a connection's own profile, since a client may come
back from the same address with another version.
"""

from typing import Final, final

from embermq.protocol.errors import PeerError
from embermq.protocol.sn.wire import kinds
from embermq.protocol.sn.wire.decode import decode_frame
from embermq.protocol.sn.wire.framing import Frame
from embermq.protocol.sn.wire.kinds import SnPacket
from embermq.protocol.sn.wire.layouts import Layout, Profile
from embermq.protocol.sn.wire.profiles import V12, A, B, W

_AUTH_REASONS: Final = (0x18, 0x19)


@final
class DetectedConnect:
    """A CONNECT of `profile`; `is_supported` is False if it names a version that is not defined."""

    __slots__ = ("profile", "is_supported")

    def __init__(self, profile: Profile, is_supported: bool) -> None:
        self.profile: Final = profile
        self.is_supported: Final = is_supported


def detect_connect(frame: Frame, current: Profile | None = None) -> DetectedConnect | None:
    """Whether a frame is a CONNECT, and of which profile. `current` is the profile of its sender's connection."""
    body = frame.body
    if frame.code == 0x04:
        return _detect_code_4(body, current)
    if frame.code == 0x05 and len(body) >= 12:
        return DetectedConnect(A, _is_version_2(body))
    # A SEARCHGW of 1.2 has the same code and a body of one byte.
    if frame.code == 0x01 and len(body) >= 8:
        return DetectedConnect(B, _is_version_2(body))
    return None


def _is_version_2(body: bytes) -> bool:
    """2.0 writes the version after the flags, the will's flags if there is a will, and the packet identifier."""
    return body[3 + ((body[0] >> 1) & 1)] == 2


def _detect_code_4(body: bytes, current: Profile | None) -> DetectedConnect | None:
    """1.2 and W. In B the code is a PUBACK of at most three bytes, in A an AUTH."""
    if len(body) < 4:
        return None
    if current is A and body[2] in _AUTH_REASONS and 4 + body[3] <= len(body):
        return None
    version = body[1]
    if version == 2:
        return DetectedConnect(W, True) if len(body) >= 10 else None
    # Some clients of 1.2 leave the version 0.
    return DetectedConnect(V12, version <= 1)


def read_without_connection(
    frame: Frame, profiles: tuple[Profile, ...], pubwos_profile: Profile
) -> list[tuple[Profile, SnPacket]]:
    """Every reading of a frame that has a meaning without a connection, in the order of `profiles`.

    These are a message without a session, a search for a server, and a PINGREQ. A CONNECT is detected before.
    """
    readings: list[tuple[Profile, SnPacket]] = []
    for profile in profiles:
        layout = profile.by_code[frame.code]
        if layout is None or not _has_meaning(layout, frame.body, profile, pubwos_profile):
            continue
        try:
            readings.append((profile, decode_frame(frame, profile)))
        except PeerError:
            continue
    return readings


def _has_meaning(layout: Layout, body: bytes, profile: Profile, pubwos_profile: Profile) -> bool:
    kind = layout.kind
    if kind == kinds.PUBLISH:
        # 1.2's QoS -1; every other PUBLISH needs a session (MQTT-SN-3.1.11-1).
        return layout.sessionless is not None and bool(body) and (body[0] >> 5) & 3 == 3
    if kind == kinds.PUBWOS:
        # Nothing in the frame tells the profile: B's PUBWOS has the code of SUBSCRIBE in the others.
        return profile is pubwos_profile
    if kind == kinds.SEARCHGW:
        # W and 1.2 search alike, and A's SEARCHGW has the code of their GWINFO, which no client sends to a server.
        return profile is not W
    return kind == kinds.PINGREQ
