"""Options of mosquitto.conf that become no setting, and what is said of them."""

from typing import Final

from embermq.mosquitto.conf import LISTENER_KEYS, Option, is_of_plugin
from embermq.mosquitto.report import Report

CLOSED_WITHOUT: Final = {
    "crlfile": "lists of revoked certificates are not read",
    "max_qos": "every QoS is offered",
    "maximum_qos": "every QoS is offered",
    "psk_file": "TLS with a pre-shared key is not offered",
    "psk_hint": "TLS with a pre-shared key is not offered",
    "tls_engine": "keys are read from files only",
    "use_subject_as_username": "only the common name of a certificate can be the user name",
}
"""Options without which a listener is not opened, and why they are not moved."""
NO_COUNTERPART: Final = {
    "allow_duplicate_messages": "a message that several subscriptions match comes as the standard says",
    "allow_zero_length_clientid": "a client without a client id gets one, as the standard says",
    "auto_id_prefix": "client ids that the server makes begin with 'auto-'",
    "bind_interface": "name the address of the interface instead",
    "check_retain_source": "what is retained stays when its publisher loses the right",
    "ciphers": "those of OpenSSL are used",
    "ciphers_tls1.3": "those of OpenSSL are used",
    "clientid_prefixes": "any client id may connect that its user owns",
    "dhparamfile": "OpenSSL chooses the parameters",
    "enable_control_api": "the HTTP interface has no MQTT topics",
    "enable_proxy_protocol": "name the addresses of the proxies in proxy_protocol of the listener",
    "http_dir": "no files are served; a web server or a proxy can",
    "listener_auto_id_prefix": "client ids that the server makes begin with 'auto-'",
    "max_inflight_bytes": "limits.queue_bytes_max bounds what is in memory for a client",
    "max_topic_alias": "mqtt5.topic_alias_maximum is for all listeners, 64 if it is not set",
    "max_topic_alias_broker": "mqtt5.outgoing_aliases_max is for all listeners, 64 if it is not set",
    "queue_qos0_messages": "messages of QoS 0 are not kept for clients that are away",
    "retain_available": "leave the right `retain` out of the access list instead",
    "upgrade_outgoing_qos": "a message is sent at no higher QoS than it was published",
    "use_username_as_clientid": "client ids stay as clients choose them; a session belongs to its user all the same",
}
FLAGS: Final = frozenset({"use_identity_as_username", "use_subject_as_username", "use_username_as_clientid"})
"""Options that mean nothing if they are false."""
QOS: Final = frozenset({"max_qos", "maximum_qos"})
PLUGIN: Final = "plugins are not loaded, so their users and rights are not moved"
UNKNOWN: Final = "not known to this command"
OF_ANOTHER_KIND: Final = "it has no effect on a listener of this kind"
NOT_OPENING: Final = frozenset({"acl_file", "allow_anonymous", "auto_id_prefix"})
"""Options above the first `listener` that do not make Mosquitto open its default port too."""
UNNEEDED: Final = frozenset(
    {
        "autosave_interval",
        "autosave_on_changes",
        "connection_messages",
        "log_facility",
        "log_timestamp",
        "log_timestamp_format",
        "persistence",
        "persistence_file",
        "persistence_location",
        "pid_file",
        "retained_persistence",
        "retry_interval",
        "set_tcp_nodelay",
        "tls_engine_kpass_sha1",
        "tls_keyform",
        "user",
        "websockets_headers_size",
        "websockets_log_level",
    }
)
"""Everything is stored at once, the log is on standard error, and the service manager chooses the user."""


def report_rest(report: Report, option: Option) -> None:
    """Say what becomes of an option that nobody has taken."""
    key = option.key
    if key in UNNEEDED:
        report.not_needed(option)
    elif is_of_plugin(key):
        report.not_moved(option, PLUGIN)
    else:
        usual = OF_ANOTHER_KIND if key in LISTENER_KEYS else UNKNOWN
        report.not_moved(option, NO_COUNTERPART.get(key) or CLOSED_WITHOUT.get(key) or usual)
