"""A source of users beside the password file, and what its answers have in common.

Owns: the bounds of what a source may say about a client: its name, and how many rights it has.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Final

from embermq.access.access_list import parse_rule
from embermq.access.passwords import check_user_name
from embermq.broker.access import Grant, Identity, Lane
from embermq.errors import ConfigError
from embermq.protocol.errors import Refused
from embermq.protocol.reasons import ReasonCode

USER_NAME_LENGTH_MAX: Final = 256
RIGHTS_MAX: Final = 100
"""How many lines of rights one client may have from a source."""
RIGHT_LENGTH_MAX: Final = 1_000


class Source(ABC):
    """Tells who a client is, on threads of its own: one that is slow or dead delays the users of no other source."""

    lane: Lane

    @abstractmethod
    def takes(self, user_name: str | None, password: bytes | None) -> bool:
        """Whether these credentials are for this source; it is asked quickly, and about every CONNECT."""

    @abstractmethod
    def identify(self, client_id: str, user_name: str | None, password: bytes) -> Identity:
        """Who this is; raises `Refused`, also when the source cannot tell."""

    def remembered(self, client_id: str, user_name: str | None, password: bytes) -> Identity | None:
        """Who this is, if that is known at once."""
        return None

    def queue(self, user_name: str | None, password: bytes) -> str:
        """In which queue of the lane these credentials wait."""
        return user_name or ""

    def read(self) -> Callable[[], None]:
        """Read files again; a call of what is returned puts them in force. Raises a `ConfigError`."""
        return _nothing

    def counts(self) -> dict[str, int]:
        """For `$SYS/broker/`."""
        return {}


def _nothing() -> None:
    return


def checked_user_name(value: object, source: str, reserved: Sequence[str]) -> str:
    """A user name that a source has given; raises `Refused`."""
    if not isinstance(value, str) or len(value) > USER_NAME_LENGTH_MAX or check_user_name(value) is not None:
        raise Refused(f"{source}: no user name that may be one", ReasonCode.NOT_AUTHORIZED)
    if value.startswith(tuple(reserved)):
        raise Refused(f"{source}: user {value!r} has the name of a listener's user", ReasonCode.NOT_AUTHORIZED)
    return value


def checked_rights(value: object, source: str) -> list[Grant]:
    """Rights that a source has given, as lines of the access list; raises `Refused`."""
    if not isinstance(value, list) or len(value) > RIGHTS_MAX:
        raise Refused(f"{source}: rights are a list of at most {RIGHTS_MAX} texts", ReasonCode.NOT_AUTHORIZED)
    grants: list[Grant] = []
    for each in value:
        if not isinstance(each, str) or len(each) > RIGHT_LENGTH_MAX:
            raise Refused(f"{source}: a right is no text of at most {RIGHT_LENGTH_MAX}", ReasonCode.NOT_AUTHORIZED)
        try:
            grants.append(parse_rule(each, source))
        except ConfigError as error:
            raise Refused(str(error), ReasonCode.NOT_AUTHORIZED) from None
    return grants
