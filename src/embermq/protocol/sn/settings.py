"""The settings of an MQTT-SN listener: what it speaks, its timers, and a bound for everything a datagram can grow.

Owns: name, unit and default of each. docs/mqtt-sn.md tells what each one does to a client.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, final

from embermq.protocol.sn.wire.layouts import Profile
from embermq.protocol.sn.wire.profiles import PROFILES, V12, A, B, W

RETRY_MS: Final = 5_000
RETRIES_MAX: Final = 4
CLIENTS_MAX: Final = 10_000
ALIASES_MAX: Final = 1_000
SLEEPING_MESSAGES_MAX: Final = 64
WINDOW: Final = 1
ANSWERS_A_SECOND: Final = 100
CONNECT_BYTES_MAX: Final = 4_096
"""Of a CONNECT, and of each part of a will: any peer can send one, and all of it is kept while the client is there."""
CLIENT_ID_LENGTH_MAX: Final = 256

REBIND_NEVER: Final = "never"
REBIND_SAME_HOST: Final = "same-host"
REBIND_ANY: Final = "any"


@final
@dataclass(kw_only=True)
class SnSettings:
    """One listener's settings."""

    profile: str = "auto"
    sessionless: bool = True  # whether messages without a session are taken
    sessionless_profile: str = "2.0-a"  # in which PUBWOS is read, unless `profile` is one of 2.0
    predefined: Mapping[int, str] = field(default_factory=dict)  # alias -> topic name
    retry_ms: int = RETRY_MS  # until an unacknowledged packet is sent again
    retries_max: int = RETRIES_MAX  # then the client is lost
    backoff_max_ms: int = 60_000
    clients_max: int = CLIENTS_MAX  # virtual connections
    handshakes_max: int = 256  # CONNECTs whose will is being asked for
    handshake_ms: int = 30_000
    aliases_max: int = ALIASES_MAX  # of one client
    waiting_max: int = 256  # messages to one client that wait for its REGACK or for the next burst
    sleeping_messages_max: int = SLEEPING_MESSAGES_MAX  # QoS 0 messages buffered for one sleeping client
    window: int = WINDOW  # unacknowledged QoS 1 and 2 messages to one client
    datagram_bytes_max: int = 65_507
    burst: int = 64  # QoS 0 messages to one client in `burst_ms`
    burst_ms: int = 10
    prove_address: bool = True
    unproven_bytes: int = 128  # sent to an unproven address beyond three times what came from it
    repeat_ms: int = 10_000  # how long an equal request counts as a duplicate
    rebind: str = REBIND_SAME_HOST  # where a client may move that names itself
    gateway_id: int = 1
    answer_search: bool = False
    advertise_s: int = 0  # 0: no ADVERTISE
    keep_alive_max_s: int = 65_535

    profiles: tuple[Profile, ...] = field(init=False)
    pubwos_profile: Profile = field(init=False)
    predefined_aliases: dict[str, int] = field(init=False)  # topic name -> alias

    def __post_init__(self) -> None:
        self.profiles = profiles_of(self.profile)
        # A PUBWOS comes without a CONNECT that tells its profile.
        name = self.profile if self.profile in ("2.0-a", "2.0-b", "2.0-w") else self.sessionless_profile
        self.pubwos_profile = _profile_of(name)
        self.predefined_aliases = {name: alias for alias, name in self.predefined.items()}


def profiles_of(name: str) -> tuple[Profile, ...]:
    """The profiles that a listener speaks: one, the two drafts of 2.0, or all."""
    if name == "auto":
        return (V12, W, A, B)
    if name == "2.0":
        return (A, B)
    return (_profile_of(name),)


def _profile_of(name: str) -> Profile:
    for profile in PROFILES:
        if profile.name == name:
            return profile
    raise ValueError(f"no MQTT-SN profile {name!r}")
