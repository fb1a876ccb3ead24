"""Reason codes of a server as a person reads them."""

from embermq.protocol.reasons import ReasonCode


def reason_text(reason: int) -> str:
    """A reason code in words."""
    known = reason in ReasonCode.__members__.values()
    return ReasonCode(reason).name.lower().replace("_", " ") if known else f"reason code {reason:#04x}"


def reason_said(reason: int, reason_string: str | None) -> str:
    """What a server says, once."""
    text = reason_text(reason)
    is_new = reason_string and reason_string.lower() != text
    return f"{text} ({reason_string})" if is_new else text
