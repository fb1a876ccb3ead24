"""Topic aliases of one client's session: which number means which topic name (1.2: sections 6.5 and 6.10).

Owns: the table, its bounds, whether the client knows an alias yet, and which topic name a packet's topic means.
Aliases are drawn at random: a peer that uses one has received it, which proves its address.
"""

from random import Random
from typing import Final, final

from embermq.protocol.sn.settings import SnSettings
from embermq.protocol.sn.wire.fields import PREDEFINED_ALIAS, SESSION_ALIAS
from embermq.protocol.sn.wire.packets import TopicReference

ALIAS_LARGEST: Final = 0x7FFF
"""0000 and FFFF are reserved, and clients that keep the number in a signed field fail above this (mqtt-sn-12 does)."""
NAMES_BYTES_MAX: Final = 128 * 1024
"""The bytes of all names that one client asked for: a name may have 64 KiB, and any client can send REGISTER."""
RESERVED_FOR_SERVER: Final = 16
"""How many aliases a client cannot take, so that the server can still name what it sends."""


@final
class Alias:
    """One entry. `is_known`: the client has been told. `is_requested`: the client asked for it, so it stays."""

    def __init__(self, number: int, topic_name: str) -> None:
        self.number: Final = number
        self.topic_name: Final = topic_name
        self.is_known = False
        self.is_requested = False

    def mark_known(self) -> None:
        """The client has been told the alias."""
        self.is_known = True

    def mark_requested(self) -> None:
        """The client has asked for the alias."""
        self.is_requested = True


@final
class Aliases:
    """The aliases of one session, the least recently used first."""

    def __init__(self, aliases_max: int, random: Random) -> None:
        self._by_number: dict[int, Alias] = {}
        self._by_name: dict[str, Alias] = {}
        self._requested = 0
        self._requested_bytes = 0
        self._offered_bytes = 0
        self._aliases_max: Final = aliases_max
        self._random: Final = random

    def __len__(self) -> int:
        return len(self._by_number)

    def names_bytes(self) -> int:
        """About how much the names take that the client asked for."""
        return self._requested_bytes

    def name_of(self, number: int) -> str | None:
        """The name of an alias that the client used."""
        alias = self._by_number.get(number)
        if alias is None:
            return None
        alias.mark_known()  # its use shows that a missing REGACK was lost
        return alias.topic_name

    def of(self, topic_name: str) -> Alias | None:
        """The alias of a name, now the most recently used."""
        alias = self._by_name.pop(topic_name, None)
        if alias is not None:
            self._by_name[topic_name] = alias
        return alias

    def request(self, topic_name: str) -> int:
        """The client asks for an alias, by REGISTER or by subscribing to one name. 0: it has too many."""
        alias = self.of(topic_name)
        if alias is None or not alias.is_requested:
            size = len(topic_name)
            if (
                self._requested >= self._aliases_max - RESERVED_FOR_SERVER
                or self._requested_bytes + size > NAMES_BYTES_MAX
            ):
                return 0
            if alias is None:
                if not self._drop_unused(0):
                    return 0
                alias = self._add(topic_name)
            alias.mark_requested()
            self._requested += 1
            self._requested_bytes += size
            self._offered_bytes -= size
        alias.mark_known()
        return alias.number

    def offer(self, topic_name: str) -> Alias | None:
        """The server needs an alias to send a message; the least recently used is replaced. None: none can be."""
        alias = self.of(topic_name)
        if alias is None and self._drop_unused(len(topic_name)):
            alias = self._add(topic_name)
        return alias

    def forget(self, number: int) -> None:
        """The client does not know an alias: drop it, so that it is registered again."""
        alias = self._by_number.pop(number, None)
        if alias is not None:
            del self._by_name[alias.topic_name]
            if alias.is_requested:
                self._requested -= 1
                self._requested_bytes -= len(alias.topic_name)
            else:
                self._offered_bytes -= len(alias.topic_name)

    def clear(self) -> None:
        """The client forgets all of them: it sleeps and did not ask to keep them."""
        self._by_number.clear()
        self._by_name.clear()
        self._requested = 0
        self._requested_bytes = 0
        self._offered_bytes = 0

    def _add(self, topic_name: str) -> Alias:
        number = self._random.randint(1, ALIAS_LARGEST)
        while number in self._by_number:
            number = number % ALIAS_LARGEST + 1
        alias = Alias(number, topic_name)
        self._by_number[number] = alias
        self._by_name[topic_name] = alias
        self._offered_bytes += len(topic_name)
        return alias

    def _drop_unused(self, size: int) -> bool:
        """Drop offered aliases until a name of that size fits; a single one always does. False: it does not fit."""
        while len(self._by_number) >= self._aliases_max or (
            self._offered_bytes and self._offered_bytes + size > NAMES_BYTES_MAX
        ):
            oldest = self._oldest_unrequested()
            if oldest is None:
                return False
            self.forget(oldest.number)
        return True

    def _oldest_unrequested(self) -> Alias | None:
        for alias in self._by_name.values():
            if not alias.is_requested:
                return alias
        return None


def topic_name_of(reference: TopicReference, aliases: Aliases | None, settings: SnSettings) -> str | None:
    """The topic name or filter that a packet means; None: an alias that was not given out or defined."""
    if reference.topic_type == SESSION_ALIAS:
        return aliases.name_of(reference.topic_alias) if aliases is not None else None
    if reference.topic_type == PREDEFINED_ALIAS:
        return settings.predefined.get(reference.topic_alias)
    return reference.name
