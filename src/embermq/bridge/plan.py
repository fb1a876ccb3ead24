"""What a bridge is to do: the other broker, and which topics go where.

Owns: the rules, how they rewrite topic names, and the names that a bridge has.
Never: a connection.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Final, final

from embermq.broker.access import BRIDGE_CLIENT_PREFIX
from embermq.client.address import ServerAddress
from embermq.errors import ConfigError
from embermq.protocol.topics import TOPIC_BYTES_MAX, intersection, matches

BRIDGES_MAX: Final = 32
"""How many bridges a server has at most: each has a thread."""
RULES_MAX: Final = 100
"""How many rules a bridge has at most, of each direction."""


@final
@dataclass(frozen=True, slots=True)
class Rule:
    """Topics that pass: `filter` is what follows the prefixes `local` here and `remote` at the other broker."""

    filter: str
    local: str
    remote: str
    qos: int

    @property
    def local_filter(self) -> str:
        return self.local + self.filter

    @property
    def remote_filter(self) -> str:
        return self.remote + self.filter

    def to_remote(self, topic_name: str) -> str | None:
        """The name of a local topic at the other broker; None if the rule is not about it."""
        return _moved(topic_name, self.local_filter, self.local, self.remote)

    def to_local(self, topic_name: str) -> str | None:
        """The same for a topic of the other broker."""
        return _moved(topic_name, self.remote_filter, self.remote, self.local)


def _moved(topic_name: str, topic_filter: str, prefix: str, new_prefix: str) -> str | None:
    # `a/#` matches `a` as well, which does not begin with the prefix `a/`.
    if not matches(topic_filter, topic_name) or not topic_name.startswith(prefix) or topic_name == prefix:
        return None
    moved = new_prefix + topic_name[len(prefix) :]
    return moved if len(moved.encode()) <= TOPIC_BYTES_MAX else None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class BridgePlan:
    """One bridge. Of the rules of a direction the first that is about a topic decides."""

    name: str
    address: ServerAddress
    outgoing: tuple[Rule, ...] = ()
    incoming: tuple[Rule, ...] = ()
    user_name: str | None = None
    password_file: Path | None = None
    client_id: str = ""
    is_mqtt5: bool = True
    keep_alive_s: int = 60
    rate_max: int = 0

    def password(self) -> bytes | None:
        """The first line of the password file; a `ConfigError` if it cannot be read."""
        if self.password_file is None:
            return None
        try:
            return self.password_file.read_bytes().split(b"\n", 1)[0].rstrip(b"\r")
        except OSError as error:
            raise ConfigError(f"cannot read password_file {self.password_file}: {error.strerror or error}") from None

    def check_files(self) -> None:
        """A `ConfigError` names a file that cannot be used. A bridge that runs says so too, and tries again."""
        try:
            self.password()
            self.address.check_files()
        except ConfigError as error:
            raise ConfigError(f"bridge {self.name}: {error}") from None

    @property
    def local_client_id(self) -> str:
        """Who has published, in our log, what came over the bridge."""
        return self.client_id_of(self.name)

    @staticmethod
    def client_id_of(name: str) -> str:
        return BRIDGE_CLIENT_PREFIX + name

    def remote_client_id(self, server_id: str) -> str:
        """The client id at the other broker; without a setting one that no other server has."""
        return self.client_id or f"ember-{server_id[:12]}-{self.name}"

    def outgoing_digest(self, server_id: str) -> str:
        """What decides which message has which packet identifier: after a change they may not be used again."""
        what = [self.remote_client_id(server_id), str(self.address), *(astuple(rule) for rule in self.outgoing)]
        return hashlib.sha256(repr(what).encode()).hexdigest()[:32]

    def has_loop(self) -> bool:
        """Whether what goes out may come back by itself, from a broker that does not tell who has published it."""
        return any(
            intersection(out.remote_filter, into.remote_filter) is not None
            for out in self.outgoing
            for into in self.incoming
        )


def first_moved(rules: Sequence[Rule], topic_name: str, is_outgoing: bool) -> tuple[str, Rule] | None:
    """Where the first rule that is about a topic moves it; None if none is."""
    for rule in rules:
        moved = rule.to_remote(topic_name) if is_outgoing else rule.to_local(topic_name)
        if moved is not None:
            return moved, rule
    return None
