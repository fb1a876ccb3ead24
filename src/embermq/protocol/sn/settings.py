"""The settings of an MQTT-SN listener: what it speaks, its timers, and a bound for everything a datagram can grow.

Owns: name, unit and default of each. What each one does to a client is said in docs/mqtt-sn.md.
"""

from collections.abc import Mapping
from typing import Final, final

from embermq.protocol.sn.wire.layouts import Profile
from embermq.protocol.sn.wire.profiles import PROFILES, V12, A, B, W

PROFILE_NAMES: Final = tuple(profile.name for profile in PROFILES)

RETRY_MS: Final = 5_000
RETRIES_MAX: Final = 4
BACKOFF_MAX_MS: Final = 60_000
CLIENTS_MAX: Final = 10_000
HANDSHAKES_MAX: Final = 256
HANDSHAKE_MS: Final = 30_000
ALIASES_MAX: Final = 1_000
WAITING_MAX: Final = 256
SLEEPING_MESSAGES_MAX: Final = 64
WINDOW: Final = 1
DATAGRAM_BYTES_MAX: Final = 65_507
BURST: Final = 64
BURST_MS: Final = 10
UNPROVEN_BYTES: Final = 128
REPEAT_MS: Final = 10_000
ANSWERS_A_SECOND: Final = 100
CONNECT_BYTES_MAX: Final = 4_096
"""Of a CONNECT, and of each part of a will: anybody can send one, and all of it is kept while its sender is there."""
CLIENT_ID_LENGTH_MAX: Final = 256

REBIND_NEVER: Final = "never"
REBIND_SAME_HOST: Final = "same-host"
REBIND_ANY: Final = "any"


@final
class SnSettings:
    """One listener's settings."""

    __slots__ = (
        "profiles",
        "sessionless_profile",
        "sessionless",
        "predefined",
        "predefined_of",
        "retry_ms",
        "retries_max",
        "backoff_max_ms",
        "clients_max",
        "handshakes_max",
        "handshake_ms",
        "aliases_max",
        "waiting_max",
        "sleeping_messages_max",
        "window",
        "datagram_bytes_max",
        "burst",
        "burst_ms",
        "prove_address",
        "unproven_bytes",
        "repeat_ms",
        "rebind",
        "gateway_id",
        "answer_search",
        "advertise_s",
        "keep_alive_max_s",
    )

    def __init__(
        self,
        *,
        profile: str = "auto",
        sessionless_profile: str = "2.0-a",
        sessionless: bool = True,
        predefined: Mapping[int, str] | None = None,
        retry_ms: int = RETRY_MS,
        retries_max: int = RETRIES_MAX,
        backoff_max_ms: int = BACKOFF_MAX_MS,
        clients_max: int = CLIENTS_MAX,
        handshakes_max: int = HANDSHAKES_MAX,
        handshake_ms: int = HANDSHAKE_MS,
        aliases_max: int = ALIASES_MAX,
        waiting_max: int = WAITING_MAX,
        sleeping_messages_max: int = SLEEPING_MESSAGES_MAX,
        window: int = WINDOW,
        datagram_bytes_max: int = DATAGRAM_BYTES_MAX,
        burst: int = BURST,
        burst_ms: int = BURST_MS,
        prove_address: bool = True,
        unproven_bytes: int = UNPROVEN_BYTES,
        repeat_ms: int = REPEAT_MS,
        rebind: str = REBIND_SAME_HOST,
        gateway_id: int = 1,
        answer_search: bool = False,
        advertise_s: int = 0,
        keep_alive_max_s: int = 65_535,
    ) -> None:
        self.profiles: Final = profiles_of(profile)
        # A PUBWOS comes without a CONNECT that tells the profile; one that is pinned decides, else this setting.
        self.sessionless_profile: Final = _named(
            profile if profile in ("2.0-a", "2.0-b", "2.0-w") else sessionless_profile
        )
        self.sessionless: Final = sessionless  # whether PUBWOS and QoS -1 are taken at all
        self.predefined: Final = dict(predefined or {})
        self.predefined_of: Final = {name: alias for alias, name in self.predefined.items()}
        self.retry_ms: Final = retry_ms  # until an unacknowledged packet is sent again
        self.retries_max: Final = retries_max  # then the client is lost
        self.backoff_max_ms: Final = backoff_max_ms
        self.clients_max: Final = clients_max  # virtual connections
        self.handshakes_max: Final = handshakes_max  # CONNECTs whose will is still being asked for
        self.handshake_ms: Final = handshake_ms
        self.aliases_max: Final = aliases_max  # of one client
        self.waiting_max: Final = waiting_max  # messages that wait for one client's REGACK or for its pace
        self.sleeping_messages_max: Final = sleeping_messages_max  # QoS 0 messages kept for one sleeping client
        self.window: Final = window  # unacknowledged QoS 1 and 2 messages to one client
        self.datagram_bytes_max: Final = datagram_bytes_max
        self.burst: Final = burst  # QoS 0 messages to one client in `burst_ms`
        self.burst_ms: Final = burst_ms
        self.prove_address: Final = prove_address
        self.unproven_bytes: Final = unproven_bytes  # sent beyond three times what came from an unproven address
        self.repeat_ms: Final = repeat_ms  # how long the same request again counts as a retransmission
        self.rebind: Final = rebind  # whether a sleeping client may wake at another address
        self.gateway_id: Final = gateway_id
        self.answer_search: Final = answer_search
        self.advertise_s: Final = advertise_s  # 0: no ADVERTISE
        self.keep_alive_max_s: Final = keep_alive_max_s


def profiles_of(name: str) -> tuple[Profile, ...]:
    """The profiles a listener speaks: one, the two drafts of 2.0, or all."""
    if name == "auto":
        return (V12, W, A, B)
    if name == "2.0":
        return (A, B)
    return (_named(name),)


def _named(name: str) -> Profile:
    for profile in PROFILES:
        if profile.name == name:
            return profile
    raise ValueError(f"no MQTT-SN profile {name!r}")
