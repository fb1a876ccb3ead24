"""The small closed set of errors a peer can cause, each with what the peer gets.

One function per dialect turns a `PeerError` into bytes; anything else raised is our own bug.
"""

from embermq.protocol.reasons import ReasonCode


class PeerError(Exception):
    """A peer broke a rule or may not do what it asked. `detail` is for our log, never for the peer."""

    def __init__(self, detail: str, *, reason: ReasonCode, clause: str = "") -> None:
        super().__init__(f"{detail} [{clause}]" if clause else detail)
        self.reason = reason
        self.clause = clause
        self.detail = detail


class MalformedPacket(PeerError):
    """The bytes are no packet: the connection ends."""

    def __init__(self, detail: str, clause: str = "", reason: ReasonCode = ReasonCode.MALFORMED_PACKET) -> None:
        super().__init__(detail, reason=reason, clause=clause)


class ProtocolError(PeerError):
    """A well-formed packet at a moment or with a value that the standard forbids: the connection ends."""

    def __init__(self, detail: str, clause: str = "", reason: ReasonCode = ReasonCode.PROTOCOL_ERROR) -> None:
        super().__init__(detail, reason=reason, clause=clause)


class Refused(PeerError):
    """A correct request that is not granted: rights, a quota, a size. The session continues."""

    def __init__(self, detail: str, reason: ReasonCode) -> None:
        super().__init__(detail, reason=reason)
