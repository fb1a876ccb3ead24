"""Topic aliases of one client's session: which number stands for which name (digest section 11).

Owns: the table, its bound, and whether the client knows an alias yet.
Aliases are drawn at random: a peer that uses one has received it, which proves its address.
"""

from random import Random
from typing import Final, final

ALIAS_LARGEST: Final = 0x7FFF
"""0000 and FFFF are reserved; above this, clients that keep the number in a signed field fail (mqtt-sn-12 does)."""
NAMES_BYTES_MAX: Final = 128 * 1024
"""What the names that one client asked for may hold together: a name may have 64 KiB, and anybody can send REGISTER."""
KEPT_FOR_SERVER: Final = 16
"""How many aliases a client cannot take, so that the server can still name what it publishes."""


@final
class Alias:
    """One entry. `known`: the client has been told. `asked`: the client asked for it, so it stays."""

    __slots__ = ("number", "topic_name", "known", "asked")

    def __init__(self, number: int, topic_name: str, known: bool, asked: bool) -> None:
        self.number: Final = number
        self.topic_name: Final = topic_name
        self.known = known
        self.asked = asked


@final
class Aliases:
    """The aliases of one session, the least recently used first."""

    __slots__ = ("_by_number", "_by_name", "_asked", "_asked_bytes", "_offered_bytes", "_most", "_random")

    def __init__(self, most: int, random: Random) -> None:
        self._by_number: dict[int, Alias] = {}
        self._by_name: dict[str, Alias] = {}
        self._asked = 0
        self._asked_bytes = 0
        self._offered_bytes = 0
        self._most: Final = most
        self._random: Final = random

    def __len__(self) -> int:
        return len(self._by_number)

    def name_of(self, number: int) -> str | None:
        """The name behind an alias that a client used."""
        alias = self._by_number.get(number)
        if alias is None:
            return None
        alias.known = True  # it uses it, so the REGACK that is missing was lost
        return alias.topic_name

    def of(self, topic_name: str) -> Alias | None:
        """The alias of a name, now the most recently used."""
        alias = self._by_name.pop(topic_name, None)
        if alias is not None:
            self._by_name[topic_name] = alias
        return alias

    def ask(self, topic_name: str) -> int:
        """The client asks for an alias, by REGISTER or by subscribing to one name. 0: it has too many."""
        alias = self.of(topic_name)
        if alias is None or not alias.asked:
            size = len(topic_name)
            if self._asked >= self._most - KEPT_FOR_SERVER or self._asked_bytes + size > NAMES_BYTES_MAX:
                return 0
            if alias is None:
                if not self._make_room(0):
                    return 0
                alias = self._add(topic_name)
            alias.asked = True
            self._asked += 1
            self._asked_bytes += size
            self._offered_bytes -= size
        alias.known = True
        return alias.number

    def offer(self, topic_name: str) -> Alias | None:
        """The server needs an alias to publish by; the one least recently used makes room. None: there is no room."""
        alias = self.of(topic_name)
        if alias is None and self._make_room(len(topic_name)):
            alias = self._add(topic_name)
        return alias

    def forget(self, number: int) -> None:
        """The client does not know it: drop it, so that it is registered again."""
        alias = self._by_number.pop(number, None)
        if alias is not None:
            del self._by_name[alias.topic_name]
            if alias.asked:
                self._asked -= 1
                self._asked_bytes -= len(alias.topic_name)
            else:
                self._offered_bytes -= len(alias.topic_name)

    def clear(self) -> None:
        """The client forgets all of them, as it does when it sleeps without keeping them."""
        self._by_number.clear()
        self._by_name.clear()
        self._asked = 0
        self._asked_bytes = 0
        self._offered_bytes = 0

    def _add(self, topic_name: str) -> Alias:
        number = self._random.randint(1, ALIAS_LARGEST)
        while number in self._by_number:
            number = number % ALIAS_LARGEST + 1
        alias = Alias(number, topic_name, False, False)
        self._by_number[number] = alias
        self._by_name[topic_name] = alias
        self._offered_bytes += len(topic_name)
        return alias

    def _make_room(self, size: int) -> bool:
        """Room for one more alias that the server offers, of a name of that size; a single one is never too large."""
        while len(self._by_number) >= self._most or (
            self._offered_bytes and self._offered_bytes + size > NAMES_BYTES_MAX
        ):
            oldest = next((alias for alias in self._by_name.values() if not alias.asked), None)
            if oldest is None:
                return False
            self.forget(oldest.number)
        return True
