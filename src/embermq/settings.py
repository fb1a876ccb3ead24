"""The settings: one typed tree with every setting's name, type and default.

What each setting does is described once, in `ember.sample.toml`.
Never: where a value comes from; `config` reads files, the environment and flags.
"""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from ipaddress import IPv4Address, ip_network
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from embermq.access.access_list import parse_grant
from embermq.bridge.plan import BRIDGES_MAX, RULES_MAX, BridgePlan, Rule
from embermq.broker.access import READ
from embermq.broker.history.history_filter import NOW, REPLAY_PREFIX, plain_filter
from embermq.broker.limits import Count, CountOrNone, Limits, OutputBytes, PacketBytes
from embermq.client.address import address_of_url
from embermq.errors import ConfigError
from embermq.history.location import is_url
from embermq.http.alerts.rules import AlertRule, condition, hears_itself, wrong_webhook
from embermq.http.topic_metrics import TOPIC_METRICS_MAX, TopicMetric
from embermq.lake.settings import PipelineSettings
from embermq.protocol.mqtt import settings as mqtt5_settings
from embermq.protocol.sn import settings as sn_settings
from embermq.protocol.topics import check_topic_filter, check_topic_name
from embermq.transport.address_bounds import SHARED_ADDRESSES
from embermq.transport.listener import Kind
from embermq.transport.sockets.addresses import is_loopback, shown
from embermq.units import without_unit

ENVIRONMENT_PREFIX: Final = "EMBERMQ_"
GIB: Final = 1024 * 1024 * 1024
DAY_S: Final = 24 * 3600
ALERTS_MAX: Final = 100
MOUNT_POINT_MAX: Final = 1_024


def _topic_filter(text: str) -> str:
    problem = check_topic_filter(text)
    if problem:
        raise ValueError(f"expected a topic filter ({problem})")
    return text


def _prefix(text: str) -> str:
    if "+" in text or "#" in text or text.startswith("$share/"):
        raise ValueError("expected a prefix without wildcards, such as plant-7/")
    return text


def _mount_point(text: str) -> str:
    """`$replay/-1h/now/a` has an end and no prefix, so the first level of a prefix may not be an instant."""
    problem = check_topic_name(text) if text else None
    if text and (problem or not text.endswith("/") or text.startswith("$")):
        raise ValueError("expected whole levels without wildcards, not of $ topics, such as plant-7/")
    if text and plain_filter(f"{REPLAY_PREFIX}{NOW}/{text}#") != f"{text}#":
        raise ValueError(f"{text.partition('/')[0]} is an instant in $replay/: expected another name")
    return text


def _topic_name(text: str) -> str:
    problem = check_topic_name(text)
    if problem:
        raise ValueError(f"expected a topic name ({problem})")
    return text


def _response_information(text: str) -> str:
    if text and ("+" in text or "#" in text or text.endswith("/")):
        raise ValueError("expected a topic name to which levels can be added, such as responses/%c")
    try:
        if text:
            parse_grant(READ, text, "response_information")
    except ConfigError as error:
        raise ValueError(f"expected a topic name with %u, %c or %% ({error})") from None
    return text


def _multicast_group(text: str) -> str:
    host, _, port = text.rpartition(":")
    try:
        right = IPv4Address(host).is_multicast and 0 < int(port) <= 65_535
    except ValueError:
        right = False
    if not right:
        raise ValueError("expected a multicast address of IPv4 (224.0.0.0 to 239.255.255.255) and a port")
    return text


def _archive(text: str) -> str:
    if not text:
        return text
    from embermq.archive.address import check_address
    from embermq.archive.errors import ArchiveError

    try:
        return check_address(text)
    except ArchiveError as error:
        raise ValueError(str(error)) from None


def _alert_condition(text: str) -> str:
    condition(text)
    return text


def _webhook(text: str) -> str:
    problem = wrong_webhook(text) if text else ""
    if problem:
        raise ValueError(problem)
    return text


def _alerts(alerts: "tuple[AlertSettings, ...]") -> "tuple[AlertSettings, ...]":
    if len(alerts) > ALERTS_MAX:
        raise ValueError(f"expected at most {ALERTS_MAX} alerts")
    names: set[str] = set()
    for alert in alerts:
        if alert.name in names:
            raise ValueError(f"the name {alert.name!r} is used twice")
        names.add(alert.name)
        if hears_itself(alert.rule()):
            raise ValueError(
                f"{alert.name}: what it publishes to {alert.topic} would end the silence; use another topic"
            )
    return alerts


def _topic_metrics(metrics: "tuple[TopicMetricSettings, ...]") -> "tuple[TopicMetricSettings, ...]":
    if len(metrics) > TOPIC_METRICS_MAX:
        raise ValueError(f"expected at most {TOPIC_METRICS_MAX} topic filters with metrics")
    names: set[str] = set()
    for metric in metrics:
        if metric.name in names:
            raise ValueError(f"the name {metric.name!r} is used twice")
        names.add(metric.name)
    return metrics


def _network(text: str) -> str:
    try:
        return str(ip_network(text, strict=False))
    except ValueError:
        raise ValueError("expected an address or a network, such as 10.0.0.7 or 10.1.0.0/16") from None


def _secure_url(text: str) -> str:
    """Why a URL cannot be asked about users; empty if it can. Over plain HTTP anybody on the way could answer."""
    problem = wrong_webhook(text)
    if problem:
        return problem.replace("https://alerts.example.com/hook", "https://auth.example.com/mqtt")
    parts = urlsplit(text)
    if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
        return "expected a URL that begins with https://, or one of this machine"
    return ""


def _call_out(text: str) -> str:
    problem = _secure_url(text) if text else ""
    if problem:
        raise ValueError(problem)
    return text


def _source_of_keys(text: str) -> str:
    problem = _secure_url(text) if text.startswith(("http://", "https://")) else ""
    if problem:
        raise ValueError(problem)
    return text


def _directory(value: object) -> object:
    if value == "":  # `Path` takes it for the current directory; it is rather a variable that was not set
        raise ValueError("expected a directory")
    return value


def _without_units(values: Any) -> Any:
    """Sizes and durations with a unit as numbers; what is none is left for the message about numbers."""
    if not isinstance(values, Mapping):
        return values
    return {key: without_unit(key, value) if isinstance(value, str) else value for key, value in values.items()}


Version = Literal["3.1", "3.1.1", "5"]
VERSIONS: Final[tuple[Version, ...]] = ("3.1", "3.1.1", "5")
Port = Annotated[int, Field(ge=0, le=65_535)]
Directory = Annotated[Path, BeforeValidator(_directory)]
TopicFilter = Annotated[str, AfterValidator(_topic_filter)]
Network = Annotated[str, AfterValidator(_network)]
TopicName = Annotated[str, AfterValidator(_topic_name)]
UnixMode = Annotated[str, Field(pattern="^0?[0-7]{3}$")]
JwtAlgorithm = Literal[
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "HS256", "HS384", "HS512"
]
WsPath = Annotated[str, Field(pattern="^/")]
MountPrefix = Annotated[str, AfterValidator(_mount_point), Field(max_length=MOUNT_POINT_MAX)]


class Section(BaseModel):
    """A table of the file. An unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _read_units(cls, values: Any) -> Any:
        return _without_units(values)


class ListenerLimits(Section):
    """Limits of one listener, in place of those of the server."""

    connections_max: Count | None = None
    packet_bytes_max: PacketBytes | None = None
    output_bytes_max: OutputBytes | None = None
    client_publish_rate_max: CountOrNone | None = None
    client_bytes_rate_max: CountOrNone | None = None
    client_retained_rate_max: CountOrNone | None = None


class OneListener(Section):
    """One of `[[listeners]]`."""

    name: Annotated[str, Field(pattern="^[A-Za-z0-9_.-]{1,64}$")] = ""
    kind: Kind
    host: tuple[str, ...] = ("127.0.0.1",)
    port: Port | None = None
    unix_path: Path | None = None
    unix_mode: UnixMode = "660"
    certificate: Path | None = None
    key: Path | None = None
    client_ca: Path | None = None
    require_client_certificate: bool = False
    certificate_as_user: bool | None = None
    allow_anonymous: bool | None = None
    password_file: Path | None = None
    acl_file: Path | None = None
    ws_paths: tuple[WsPath, ...] = ()
    ws_origins: tuple[str, ...] = ()
    versions: Annotated[tuple[Version, ...], Field(min_length=1)] = VERSIONS
    proxy_protocol: tuple[Network, ...] = ()
    mount_point: MountPrefix = ""
    shared_addresses: tuple[Network, ...] = SHARED_ADDRESSES
    limits: ListenerLimits = ListenerLimits()

    @field_validator("host", mode="before")
    @classmethod
    def _several(cls, value: object) -> object:
        hosts = (value,) if isinstance(value, str) else value
        if not hosts:
            raise ValueError("expected an address, or a list of them")
        return hosts

    @model_validator(mode="after")
    def _belongs_to_its_kind(self) -> Self:
        """A setting that would do nothing is refused."""
        kind = self.kind
        if kind == "unix" and self.unix_path is None:
            raise ValueError(f"a listener of kind unix needs unix_path {self._which()}")
        if kind != "unix" and self.port is None:
            raise ValueError(f"a listener of kind {kind} needs a port {self._which()}")
        if kind in ("tls", "wss") and (self.certificate is None or self.key is None):
            raise ValueError(f"a listener of kind {kind} needs certificate and key {self._which()}")
        if kind == "udp" and len(self.host) > 1:
            raise ValueError(f"a listener of kind udp has one host {self._which()}")
        for keys, kinds in _KEYS_OF_KINDS.items():
            for key in keys:
                if key in self.model_fields_set and kind not in kinds:
                    raise ValueError(f"{key} is for listeners of kind {' or '.join(kinds)}, not {kind}")
        needs_ca = self.require_client_certificate or self.certificate_as_user
        if needs_ca and self.client_ca is None:
            raise ValueError(
                f"require_client_certificate and certificate_as_user need client_ca, the authority that signs the"
                f" clients' certificates {self._which()}"
            )
        return self

    def _which(self) -> str:
        return f"(listener {self.shown_name()})"

    def shown_name(self) -> str:
        """The name; if it has none, its kind and port."""
        return self.name or (self.kind if self.port is None else f"{self.kind}-{self.port}")

    def only_this_machine(self) -> bool:
        """Whether no other machine can connect by it, also not by a proxy."""
        return self.kind == "unix" or (not self.proxy_protocol and all(is_loopback(host) for host in self.host))

    def places(self) -> list[str]:
        """The addresses that no other listener can have."""
        if self.kind == "unix":
            return [str(self.unix_path)]
        network = "UDP " if self.kind == "udp" else ""
        return [network + shown(host, self.port) for host in self.host] if self.port else []

    def has_own_users(self) -> bool:
        """Whether its users are others than those of the server, whatever their names are."""
        return self.password_file is not None or self.acl_file is not None


_KEYS_OF_KINDS: Final = {
    ("port", "host", "shared_addresses"): ("tcp", "tls", "ws", "wss", "udp"),
    ("unix_path", "unix_mode"): ("unix",),
    ("certificate", "key", "client_ca", "require_client_certificate", "certificate_as_user"): ("tls", "wss"),
    ("ws_paths", "ws_origins"): ("ws", "wss"),
    ("proxy_protocol",): ("tcp", "tls", "ws", "wss"),
    ("limits", "mount_point", "versions"): ("tcp", "tls", "ws", "wss", "unix"),
}


class ListenerSettings(Section):
    """Where clients reach the server, in short: at most one listener of each kind. Port 0 is a free port; a port that
    is not set has no listener. `each` are `[[listeners]]`, in place of all the other settings here.
    """

    each: tuple[OneListener, ...] = ()
    host: str = "127.0.0.1"
    tcp: bool = True
    port: Port = 1883
    tls_port: Port | None = None
    certificate: Path | None = None
    key: Path | None = None
    client_ca: Path | None = None
    require_client_certificate: bool = False
    ws_port: Port | None = None
    wss_port: Port | None = None
    ws_path: WsPath | None = None
    ws_origins: tuple[str, ...] = ()
    shared_addresses: tuple[Network, ...] = SHARED_ADDRESSES
    unix_path: Path | None = None
    unix_mode: UnixMode = "660"

    @model_validator(mode="after")
    def _have_names(self) -> Self:
        names: set[str] = set()
        for listener in self.each:
            name = listener.shown_name()
            if name in names:
                raise ValueError(f"two listeners are called {name}: expected a name of its own for each")
            names.add(name)
        self._have_places()
        if len([listener for listener in self.each if listener.kind == "udp"]) > 1:
            raise ValueError("there are several listeners of kind udp: expected one at most")
        return self

    def _have_places(self) -> None:
        places: dict[str, str] = {}
        for listener in self.each:
            name = listener.shown_name()
            for place in listener.places():
                if places.setdefault(place, name) != name:
                    raise ValueError(
                        f"listeners {places[place]} and {name} are both at {place}: expected another port or path"
                    )

    def beside_each(self) -> list[str]:
        """The settings of the short form that are given although `[[listeners]]` are."""
        return sorted(self.model_fields_set - {"each"}) if self.each else []

    def only_this_machine(self) -> bool:
        """Whether no other machine can connect by these."""
        if self.each:
            return all(listener.only_this_machine() for listener in self.each)
        return not self.on_network() or is_loopback(self.host)

    def on_network(self) -> bool:
        """Whether anything but the unix socket listens."""
        if self.each:
            return any(listener.kind != "unix" for listener in self.each)
        return self.tcp or self.tls_port is not None or self.ws_port is not None or self.wss_port is not None

    def every(self, sn_port: int | None) -> tuple[OneListener, ...]:
        """`[[listeners]]`, or the short form as such; `sn_port` is the UDP port beside the short form."""
        if self.each:
            return self.each
        found: list[OneListener] = []
        ports: tuple[tuple[Kind, int | None], ...] = (
            ("tcp", self.port if self.tcp else None),
            ("tls", self.tls_port),
            ("ws", self.ws_port),
            ("wss", self.wss_port),
            ("udp", sn_port),
        )
        tls = {
            "certificate": self.certificate,
            "key": self.key,
            "client_ca": self.client_ca,
            "require_client_certificate": self.require_client_certificate,
        }
        websocket = {"ws_paths": () if self.ws_path is None else (self.ws_path,), "ws_origins": self.ws_origins}
        for kind, port in ports:
            if port is not None:
                values: dict[str, Any] = {"kind": kind, "name": kind, "host": self.host, "port": port}
                values |= {"shared_addresses": self.shared_addresses}
                values |= tls if kind in ("tls", "wss") else {}
                values |= websocket if kind in ("ws", "wss") else {}
                found.append(OneListener(**values))
        if self.unix_path is not None:
            found.append(OneListener(kind="unix", name="unix", unix_path=self.unix_path, unix_mode=self.unix_mode))
        return tuple(found)

    def certificate_and_key(self) -> tuple[Path | None, Path | None]:
        """What the HTTP interface shows browsers: of the first listener that has one."""
        for listener in self.each:
            if listener.certificate is not None:
                return listener.certificate, listener.key
        return self.certificate, self.key


class AccessSettings(Section):
    """Who may connect, and what they may do."""

    password_file: Path | None = None
    acl_file: Path | None = None
    wildcards: Literal["refuse", "narrow"] = "refuse"
    certificate_as_user: bool = False
    allow_anonymous: bool | None = None
    jwt_keys: Annotated[str, AfterValidator(_source_of_keys)] = ""
    jwt_algorithms: Annotated[tuple[JwtAlgorithm, ...], Field(min_length=1)] = ("RS256",)
    jwt_issuer: str = ""
    jwt_audience: str = ""
    jwt_user_claim: Annotated[str, Field(min_length=1)] = "sub"
    jwt_rights_claim: str = ""
    jwt_leeway_s: Annotated[int, Field(ge=0, le=600)] = 10
    jwt_refresh_s: Annotated[int, Field(ge=10, le=DAY_S)] = 300

    call_out_url: Annotated[str, AfterValidator(_call_out)] = ""
    call_out_timeout_s: Annotated[int, Field(ge=1, le=30)] = 3
    call_out_cache_s: Annotated[int, Field(ge=0, le=DAY_S)] = 60
    call_out_concurrency: Annotated[int, Field(ge=1, le=64)] = 8
    plugin: str = ""

    @field_validator("jwt_algorithms")
    @classmethod
    def _of_one_kind(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if len({name.startswith("HS") for name in value}) > 1:
            raise ValueError("expected algorithms with public keys, or with a shared secret (HS...), not both")
        return value

    def has_sources(self) -> bool:
        """Whether there are users that neither the password file nor a certificate names."""
        return bool(self.jwt_keys or self.call_out_url or self.plugin)

    def has_users(self) -> bool:
        """Whether clients can log in with a user name or a token."""
        return self.password_file is not None or self.has_sources()


class Mqtt5Section(Section):
    """What only clients of MQTT 5 are told or bounded by."""

    receive_maximum: Annotated[int, Field(ge=1, le=65_535)] = mqtt5_settings.RECEIVE_MAXIMUM
    topic_alias_maximum: Annotated[int, Field(ge=0, le=65_535)] = mqtt5_settings.TOPIC_ALIAS_MAXIMUM
    topic_alias_bytes_max: Annotated[int, Field(ge=65_535)] = mqtt5_settings.TOPIC_ALIAS_BYTES_MAX
    outgoing_aliases_max: Annotated[int, Field(ge=0, le=65_535)] = mqtt5_settings.OUTGOING_ALIASES_MAX
    properties_max: Annotated[int, Field(ge=16, le=mqtt5_settings.PROPERTIES_MAX)] = mqtt5_settings.PROPERTIES_MAX
    properties_bytes_max: Annotated[int, Field(ge=1024, le=mqtt5_settings.PROPERTIES_BYTES_MAX)] = (
        mqtt5_settings.PROPERTIES_BYTES_MAX
    )
    reauthentications_max: Annotated[int, Field(ge=0)] = mqtt5_settings.REAUTHENTICATIONS_MAX
    server_reference: Annotated[str, Field(max_length=1_000)] = ""
    response_information: Annotated[str, AfterValidator(_response_information)] = ""

    def settings(self) -> mqtt5_settings.Mqtt5Settings:
        """The settings as a connection takes them."""
        return mqtt5_settings.Mqtt5Settings(**self.model_dump(exclude={"response_information"}))


class BudgetSettings(Section):
    """A budget: how many retained messages and bytes some topics may have together, and how long each message lives."""

    topic_filter: TopicFilter
    count_max: Annotated[int, Field(ge=0)] = 0
    bytes_max: Annotated[int, Field(ge=0)] = 0
    expiry_s: Annotated[int, Field(ge=0)] = 0


class StoreSettings(Section):
    """Where data is stored, how durably, and for how long."""

    directory: Directory = Path("ember-data")
    memory: bool = False
    durability: Literal["sync", "os", "none"] = "sync"
    recording: Literal["everything", "acknowledged", "filters"] = "everything"
    recording_filters: tuple[TopicFilter, ...] = ()
    segment_bytes: Annotated[int, Field(ge=1024 * 1024)] = 128 * 1024 * 1024
    segment_age_s: Count = 3600
    retention_bytes: Annotated[int, Field(ge=1024 * 1024)] = 10 * GIB
    retention_age_s: Count = 7 * DAY_S
    unread_bytes_max: Annotated[int, Field(ge=0)] = 4 * GIB
    archive: Annotated[str, AfterValidator(_archive)] = ""
    unarchived_bytes_max: Annotated[int, Field(ge=0)] = 4 * GIB
    archive_retention_bytes: Annotated[int, Field(ge=0)] = 0
    archive_retention_age_s: Annotated[int, Field(ge=0)] = 0
    disk_reserve_bytes: Annotated[int, Field(ge=0)] = 256 * 1024 * 1024
    group_bytes_max: Annotated[int, Field(ge=4096)] = 32 * 1024 * 1024
    budgets: tuple[BudgetSettings, ...] = ()


class SnListenerSettings(Section):
    """MQTT-SN over UDP; without a port there is no listener."""

    port: Port | None = None
    profile: Literal["auto", "1.2", "2.0", "2.0-a", "2.0-b", "2.0-w"] = "auto"
    sessionless: bool = True
    sessionless_profile: Literal["2.0-a", "2.0-b", "2.0-w"] = "2.0-a"
    predefined: dict[Annotated[int, Field(ge=1, le=65_534)], TopicName] = {}
    retry_ms: Count = sn_settings.RETRY_MS
    retries_max: Annotated[int, Field(ge=0)] = sn_settings.RETRIES_MAX
    clients_max: Count = sn_settings.CLIENTS_MAX
    aliases_max: Annotated[int, Field(ge=32, le=32_767)] = sn_settings.ALIASES_MAX
    sleeping_messages_max: Annotated[int, Field(ge=0)] = sn_settings.SLEEPING_MESSAGES_MAX
    window: Annotated[int, Field(ge=1, le=1_000)] = sn_settings.WINDOW
    prove_address: bool = True
    rebind: Literal["never", "same-host", "any"] = "same-host"
    gateway_id: Annotated[int, Field(ge=0, le=255)] = 1
    answer_search: bool = False
    advertise_s: Annotated[int, Field(ge=0, le=65_535)] = 0
    multicast_group: Annotated[str, AfterValidator(_multicast_group)] = "225.1.1.1:1883"

    def engine(self, keep_alive_max_s: int) -> sn_settings.SnSettings:
        """The settings as the session engine takes them."""
        values = self.model_dump(exclude={"port", "multicast_group"})
        return sn_settings.SnSettings(**values, keep_alive_max_s=keep_alive_max_s)

    def group(self) -> tuple[str, int] | None:
        """The multicast group in which clients search for servers; None if the server does not answer there."""
        if not self.answer_search and not self.advertise_s:
            return None
        host, port = self.multicast_group.split(":")
        return host, int(port)


class HttpSettings(Section):
    """The HTTP interface on TCP; without a port it is on the socket in the data directory only."""

    host: str = "127.0.0.1"
    port: Port | None = None
    tls: bool = False
    names: tuple[str, ...] = ()
    token_file: Path | None = None
    viewers: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()
    lake: Directory | None = None


class ClusterSettings(Section):
    """The other nodes, and the shared log in Kafka; without bootstrap servers this is a single server."""

    bootstrap_servers: tuple[str, ...] = ()
    topic: Annotated[str, Field(pattern="^[a-zA-Z0-9._-]{1,249}$")] = "ember.log"
    node: Annotated[int, Field(ge=0, le=65_535)] = 0
    reachable_at: str = ""
    durability: Literal["os", "sync"] = "os"
    node_timeout_ms: Annotated[int, Field(ge=500)] = 6_000
    tls: bool = False
    tls_ca: Path | None = None
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    sasl_mechanism: Literal["", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = ""
    sasl_user: str = ""
    sasl_password_file: Path | None = None

    @model_validator(mode="after")
    def _has_a_node(self) -> "ClusterSettings":
        if self.bootstrap_servers and not self.node:
            raise ValueError("expected cluster.node, a number from 1 on that no other node of the cluster has")
        return self


class BridgeRule(Section):
    """Topics that pass a bridge: `filter` is what follows the prefixes `local` here and `remote` there."""

    filter: TopicFilter
    local: Annotated[str, AfterValidator(_prefix)] = ""
    remote: Annotated[str, AfterValidator(_prefix)] = ""
    qos: Annotated[int, Field(ge=0, le=2)] = 2

    @model_validator(mode="after")
    def _is_filter(self) -> Self:
        for prefix in (self.local, self.remote):
            problem = check_topic_filter(prefix + self.filter)
            if problem:
                raise ValueError(f"expected a prefix and a filter that make a topic filter ({problem})")
        return self

    def rule(self) -> Rule:
        return Rule(self.filter, self.local, self.remote, self.qos)


class OneBridge(Section):
    """One of `[[bridges]]`."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    name: Annotated[str, Field(pattern="^[A-Za-z0-9_-]{1,64}$")]
    url: str
    mqtt: Literal["5", "3.1.1"] = "5"
    user: str | None = None
    password_file: Path | None = None
    client_id: Annotated[str, Field(max_length=256)] = ""
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    keep_alive_s: Annotated[int, Field(ge=1, le=65_535)] = 60
    rate_max: Annotated[int, Field(ge=0)] = 0
    out: Annotated[tuple[BridgeRule, ...], Field(max_length=RULES_MAX)] = ()
    into: Annotated[tuple[BridgeRule, ...], Field(max_length=RULES_MAX, alias="in")] = ()
    both: Annotated[tuple[BridgeRule, ...], Field(max_length=RULES_MAX)] = ()

    @model_validator(mode="after")
    def _can_be_made(self) -> Self:
        if not self.out and not self.into and not self.both:
            raise ValueError(f"expected rules in out, in or both (bridge {self.name})")
        if (self.certificate is None) != (self.key is None):
            raise ValueError(f"certificate and key are given together or not at all (bridge {self.name})")
        if self.password_file is not None and self.user is None:
            raise ValueError(f"password_file needs user (bridge {self.name})")
        self.plan()
        return self

    def plan(self) -> BridgePlan:
        """The bridge as it is run; ValueError if its URL is wrong."""
        names = ("ca", "certificate", "key")
        try:
            address, user, has_password = address_of_url(self.url, self.ca, self.certificate, self.key, names)
        except ValueError as error:  # without the URL, which may have a password
            raise ValueError(f"url of bridge {self.name}: {error}") from None
        if not address.tls and (self.ca is not None or self.certificate is not None):
            raise ValueError(
                f"ca, certificate and key of bridge {self.name} need TLS: expected mqtts:// or wss:// in url"
            )
        if has_password or user is not None:
            raise ValueError(f"the URL of bridge {self.name} has a user: set user and password_file in its place")
        both = tuple(each.rule() for each in self.both)
        return BridgePlan(
            name=self.name,
            address=address,
            outgoing=(*(each.rule() for each in self.out), *both),
            incoming=(*(each.rule() for each in self.into), *both),
            user_name=self.user,
            password_file=self.password_file,
            client_id=self.client_id,
            is_mqtt5=self.mqtt == "5",
            keep_alive_s=self.keep_alive_s,
            rate_max=self.rate_max,
        )


class BridgeSettings(Section):
    """`each` are `[[bridges]]`."""

    each: Annotated[tuple[OneBridge, ...], Field(max_length=BRIDGES_MAX)] = ()

    @model_validator(mode="after")
    def _have_names(self) -> Self:
        names = [bridge.name for bridge in self.each]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"two bridges are called {name}: expected a name of its own for each")
        return self

    def plans(self) -> list[BridgePlan]:
        return [bridge.plan() for bridge in self.each]


class AlertSettings(Section):
    """An alert: a rule in one sentence, and where its changes are told."""

    name: Annotated[str, Field(pattern="^[A-Za-z0-9._-]{1,64}$")]
    when: Annotated[str, AfterValidator(_alert_condition)]
    topic: TopicName | None = None
    webhook: Annotated[str, AfterValidator(_webhook)] = ""

    def rule(self) -> AlertRule:
        """The rule as it is checked."""
        return AlertRule(self.name, self.when, condition(self.when), self.topic or "", self.webhook)


class TopicMetricSettings(Section):
    """A topic filter with metrics of its own."""

    name: Annotated[str, Field(pattern="^[A-Za-z0-9._-]{1,64}$")]
    topic_filter: TopicFilter

    def metric(self) -> TopicMetric:
        """The filter as it is counted."""
        return TopicMetric(self.name, self.topic_filter)


class ServerSettings(Section):
    """The server as a whole."""

    sys_interval_s: Annotated[int, Field(ge=0)] = 10
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    alerts: Annotated[tuple[AlertSettings, ...], AfterValidator(_alerts)] = ()
    topic_metrics: Annotated[tuple[TopicMetricSettings, ...], AfterValidator(_topic_metrics)] = ()
    hooks: tuple[str, ...] = ()


class Settings(BaseSettings):
    """All settings."""

    model_config: ClassVar[SettingsConfigDict] = SettingsConfigDict(
        env_prefix=ENVIRONMENT_PREFIX, env_nested_delimiter="__", extra="forbid", frozen=True
    )

    server: ServerSettings = ServerSettings()
    listeners: ListenerSettings = ListenerSettings()
    access: AccessSettings = AccessSettings()
    limits: Annotated[Limits, BeforeValidator(_without_units)] = Limits()
    mqtt5: Mqtt5Section = Mqtt5Section()
    store: StoreSettings = StoreSettings()
    sn: SnListenerSettings = SnListenerSettings()
    http: HttpSettings = HttpSettings()
    pipeline: PipelineSettings = PipelineSettings()
    bridges: BridgeSettings = BridgeSettings()
    cluster: ClusterSettings = ClusterSettings()

    def lake_place(self) -> str:
        """Where the tables are: `pipeline.lake`, or `http.lake` of files that have only that."""
        return self.pipeline.lake if self.http.lake is None else str(self.http.lake)

    def lake_directory(self) -> Path | None:
        """The same for the page; None if the tables are at a URL."""
        place = self.lake_place()
        return None if is_url(place) else Path(place)

    def anonymous_allowed(self) -> bool:
        """The setting; if it is not set, only where no other machine can connect and there are no users."""
        asked = self.access.allow_anonymous
        if asked is not None:
            return asked
        named = self.access.has_users() or self.access.certificate_as_user
        return not named and (
            self.listeners.only_this_machine() if self.sn.port is None else is_loopback(self.listeners.host)
        )

    def anonymous_allowed_at(self, listener: OneListener) -> bool:
        """The same for one of `[[listeners]]`, which may have users of its own."""
        if listener.allow_anonymous is not None:
            return listener.allow_anonymous
        if self.access.allow_anonymous is not None and listener.password_file is None:
            return self.access.allow_anonymous
        return not self.has_users_at(listener) and listener.only_this_machine()

    def has_users_at(self, listener: OneListener) -> bool:
        """Whether clients can say who they are at this listener."""
        if listener.certificate_as_user or listener.password_file is not None:
            return True
        has_sources = self.access.has_sources() and not listener.has_own_users()
        return (
            self.access.password_file is not None
            or has_sources
            or (self.access.certificate_as_user and listener.certificate_as_user is not False)
        )


def sample() -> str:
    """The sample file: every setting, what it does, and its default."""
    return Path(__file__).with_name("ember.sample.toml").read_text(encoding="utf-8")


def all_keys() -> list[str]:
    """Every setting as `section.key`, in the order of the sample."""
    return [f"{section}.{key}" for section in Settings.model_fields for key in keys_of(section)]


def keys_of(section: str) -> list[str]:
    """The settings of a section."""
    kind = Settings.model_fields[section].annotation
    if is_dataclass(kind):
        return [field.name for field in fields(kind)]
    if not (isinstance(kind, type) and issubclass(kind, BaseModel)):
        return []
    return [name for name in kind.model_fields if name != "each"]  # that is written as [[listeners]]
