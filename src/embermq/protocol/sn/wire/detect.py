"""Telling the wire profiles apart by the CONNECT (digest section 9).

Owns: which profile a CONNECT-shaped frame belongs to, whatever was spoken from that address before.
Never: keeps a state; a session asks before its own profile's decoder, since a peer may come back with another version.
"""

from typing import Final, final

from embermq.protocol.sn.wire.framing import Frame
from embermq.protocol.sn.wire.layouts import Profile
from embermq.protocol.sn.wire.profiles import V12, A, B, W

_AUTH_REASONS: Final = (0x18, 0x19)


@final
class Detected:
    """A CONNECT of `profile`; not `supported` if it names a version that nobody knows."""

    __slots__ = ("profile", "supported")

    def __init__(self, profile: Profile, supported: bool) -> None:
        self.profile: Final = profile
        self.supported: Final = supported


def detect_connect(frame: Frame, current: Profile | None = None) -> Detected | None:
    """Whether a frame is a CONNECT, and of which profile. `current`: what its sender speaks in this moment."""
    body = frame.body
    if frame.code == 0x04:
        return _detect_four(body, current)
    if frame.code == 0x05 and len(body) >= 12:
        return Detected(A, _version_two(body))
    # A SEARCHGW of 1.2 has the same code and a body of one byte.
    if frame.code == 0x01 and len(body) >= 8:
        return Detected(B, _version_two(body))
    return None


def _version_two(body: bytes) -> bool:
    """2.0 writes the version after the flags, the will's flags if there is a will, and the packet id."""
    return body[3 + ((body[0] >> 1) & 1)] == 2


def _detect_four(body: bytes, current: Profile | None) -> Detected | None:
    """1.2 and W. In B the code is a PUBACK of at most three bytes, in A an AUTH."""
    if len(body) < 4:
        return None
    if current is A and body[2] in _AUTH_REASONS and 4 + body[3] <= len(body):
        return None
    version = body[1]
    if version == 2:
        return Detected(W, True) if len(body) >= 10 else None
    # Some clients of 1.2 leave the version 0.
    return Detected(V12, version <= 1)
