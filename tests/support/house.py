"""Access rules for tests of refusals, small enough to know by heart."""

from typing import Final

from embermq.broker.access import Access, Identity
from embermq.protocol.errors import Refused
from embermq.protocol.reasons import ReasonCode

ME: Final = {"user_name": "me", "password": b"secret"}


class House(Access):
    """Only "me" and "guest" with "secret" come in, "you" is known but not wanted.

    All may use open/#, nobody may retain there.
    """

    def __init__(self) -> None:
        super().__init__(slow=False, unrestricted=False)

    def authenticate(
        self, client_id: str, user_name: str | None, password: bytes | None, certificate_name: str | None
    ) -> Identity:
        if user_name == "you":
            raise Refused("not wanted", ReasonCode.NOT_AUTHORIZED)
        if user_name not in ("me", "guest") or password != b"secret":
            raise Refused("wrong password", ReasonCode.BAD_USER_NAME_OR_PASSWORD)
        return Identity(user_name, client_id)

    def may_publish(self, identity: Identity, topic_name: str, retain: bool) -> bool:
        return topic_name.startswith("open/") and not retain

    def may_subscribe(self, identity: Identity, topic_filter: str) -> bool:
        return topic_filter.startswith("open/")
