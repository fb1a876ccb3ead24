"""Access by listener: the users and rights of a server, and those that a listener has of its own.

Owns: which rules decide about a client, by the listener that it has logged in at.
Never: a rule; `FileAccess` and others decide.

A listener without a password file and an access list of its own has the users and rights of the server, and may differ
in whether it accepts anonymous clients and certificates (`AtListener`). The users of any other are different persons,
whatever their names are: they are called `listener:name`, also in the store, so nothing mixes them up after a restart.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, final

from embermq.access.file_access import FileAccess, ReadFiles
from embermq.broker.access import Access, Exchange, Identity, Lane, Rights


@final
class AtListener(Access):
    """The users and rights of the server, as one listener offers them."""

    def __init__(self, shared: FileAccess, allow_anonymous: bool, certificate_as_user: bool) -> None:
        super().__init__(slow=shared.slow, unrestricted=shared.unrestricted)
        self._shared: Final = shared
        self._allow_anonymous: Final = allow_anonymous
        self._certificate_as_user: Final = certificate_as_user

    def authenticate(
        self, client_id: str, user_name: str | None, password: bytes | None, certificate_name: str | None
    ) -> Identity:
        used = certificate_name if self._certificate_as_user else None
        return self._shared.identity_of(client_id, user_name, password, used, self._allow_anonymous)

    def queue_for(self, user_name: str | None, password: bytes | None, certificate_name: str | None) -> str | None:
        return self._shared.queue_of(user_name, password, certificate_name if self._certificate_as_user else None)

    def begin_exchange(self, method: str, client_id: str, certificate_name: str | None) -> Exchange:
        used = certificate_name if self._certificate_as_user else None
        return self._shared.exchange_of(method, client_id, used)

    def remembered(
        self, client_id: str, user_name: str | None, password: bytes | None, certificate_name: str | None
    ) -> Identity | None:
        used = certificate_name if self._certificate_as_user else None
        return self._shared.remembered_of(client_id, user_name, password, used)

    def lane_of(self, queue: str) -> Lane | None:
        return self._shared.lane_of(queue)

    def revision(self) -> int:
        return self._shared.revision()

    def may_publish(self, identity: Identity, topic_name: str, retain: bool) -> bool:
        return self._shared.may_publish(identity, topic_name, retain)

    def may_subscribe(self, identity: Identity, topic_filter: str) -> bool:
        return self._shared.may_subscribe(identity, topic_filter)


@final
class AllListeners(Access):
    """What the core asks: the rules of the server, or those of the listener that a user's name begins with."""

    def __init__(self, server: FileAccess, own: Mapping[str, FileAccess]) -> None:
        """`own`: by the names of the listeners that have their own."""
        super().__init__(slow=server.slow, unrestricted=all(each.unrestricted for each in (server, *own.values())))
        self._server: Final = server
        self._own: Final = dict(own)
        self._join()

    def _join(self) -> None:
        lists = {name: each.rights_in_force for name, each in self._own.items()}
        self.access_list = None if self.unrestricted else self._server.rights_in_force.joined(lists)

    def authenticate(
        self, client_id: str, user_name: str | None, password: bytes | None, certificate_name: str | None
    ) -> Identity:
        return self._server.authenticate(client_id, user_name, password, certificate_name)

    def queue_for(self, user_name: str | None, password: bytes | None, certificate_name: str | None) -> str | None:
        return self._server.queue_for(user_name, password, certificate_name)

    def begin_exchange(self, method: str, client_id: str, certificate_name: str | None) -> Exchange:
        return self._server.begin_exchange(method, client_id, certificate_name)

    def _rights(self, identity: Identity) -> Rights | None:
        return None if self.access_list is None else identity.rights(self.access_list)

    def may_publish(self, identity: Identity, topic_name: str, retain: bool) -> bool:
        rights = self._rights(identity)
        return rights is None or rights.may_write(topic_name, retain)

    def may_subscribe(self, identity: Identity, topic_filter: str) -> bool:
        rights = self._rights(identity)
        return rights is None or rights.may_read(topic_filter)

    def may_see_all(self, identity: Identity) -> bool:
        rights = self._rights(identity)
        return rights is None or rights.sees_all

    def may_change_access(self, identity: Identity) -> bool:
        rights = self._rights(identity)
        return rights is None or rights.has_everything

    def read_filters(self, identity: Identity) -> list[str]:
        rights = self._rights(identity)
        return ["#"] if rights is None else rights.read_filters

    def deciding_lines(self, identity: Identity, rights: int, topic_filter: str) -> list[str]:
        if self.access_list is None:
            return []
        return self.access_list.deciding_lines(identity.user_name, identity.client_id, rights, topic_filter)

    def remembered(
        self, client_id: str, user_name: str | None, password: bytes | None, certificate_name: str | None
    ) -> Identity | None:
        return self._server.remembered(client_id, user_name, password, certificate_name)

    def lane_of(self, queue: str) -> Lane | None:
        return self._server.lane_of(queue)

    def counts(self) -> dict[str, int]:
        found: Counter[str] = Counter(self._server.counts())
        for each in self._own.values():
            found.update(each.counts())
        return dict(found)

    def revision(self) -> int:
        return self._server.revision()

    def read_again(self) -> Callable[[], set[str]]:
        """Read all files again; if one is wrong, all old ones stay in use."""
        return partial(self._use, [(each, each.read()) for each in (self._server, *self._own.values())])

    def _use(self, every: list[tuple[FileAccess, ReadFiles]]) -> set[str]:
        revoked: set[str] = set()
        for access, read in every:
            revoked |= access.use(read)
        self._join()
        return revoked
