"""A bridge of Mosquitto as `[[bridges]]`.

Owns: which setting of a bridge each option becomes, and what keeps a bridge from being moved.
Never: a password in the settings or the report; it goes into a file of its own.
"""

import re
from collections.abc import Callable
from typing import Final, final

from embermq.mosquitto.conf import Option, Options
from embermq.mosquitto.report import Report
from embermq.protocol.topics import check_topic_filter

PORT: Final = 1883
DIRECTIONS: Final = ("out", "in", "both")
VERSIONS: Final = {"mqttv31": "3.1.1", "mqttv311": "3.1.1", "mqttv50": "5"}
NO_NAME: Final = '""'
"""How an empty prefix or pattern is written."""

CLOSED_WITHOUT: Final = {
    "bridge_identity": "TLS with a pre-shared key is not offered",
    "bridge_psk": "TLS with a pre-shared key is not offered",
    "bridge_insecure": "the certificate of the other broker is always checked",
}
NO_COUNTERPART: Final = {
    "bridge_capath": "one file with the authorities is needed: join them and use bridge_cafile",
    "bridge_bind_address": "the system chooses the address",
    "bridge_max_packet_size": "the other broker says what it takes",
    "bridge_outgoing_retain": "retained messages are sent as such",
    "idle_timeout": "a bridge is always connected",
    "notifications": "the state of bridges is in metrics and `ember bridges`",
    "notifications_local_only": "the state of bridges is in metrics and `ember bridges`",
    "notification_topic": "the state of bridges is in metrics and `ember bridges`",
    "threshold": "a bridge is always connected",
}
UNNEEDED: Final = frozenset(
    {
        "bridge_attempt_unsubscribe",
        "bridge_tls_version",
        "cleansession",
        "local_cleansession",
        "local_clientid",
        "local_password",
        "local_username",
        "restart_timeout",
        "round_robin",
        "try_private",
    }
)
OTHER: Final = "it has no counterpart"


@final
class BridgeMigrator:
    """One bridge after the other."""

    def __init__(self, report: Report, write: Callable[[str, str], str]) -> None:
        """`write` has a file of this name and text written, and returns its path."""
        self._report: Final = report
        self._write: Final = write

    def bridge(self, part: Options) -> dict[str, object] | None:
        """The settings of a bridge; None if it is left out, which is reported."""
        assert part.head is not None
        name = re.sub("[^A-Za-z0-9_-]", "-", part.head.word())[:64]
        addresses = [option for key in ("address", "addresses") for option in part.take_all(key)]
        if not name or not addresses or not addresses[0].words():
            raise part.head.wrong("a name, and 'address HOST:PORT' below it")
        for other in (*(" ".join(option.words()) for option in addresses[1:]), *addresses[0].words()[1:]):
            self._report.not_moved(addresses[0], f"a bridge has one address, {other} is not used")
        made: dict[str, object] = {"name": name, "url": ""}
        made["url"] = self._url(addresses[0], self._tls(part, made))
        password = self._login(part, made)
        self._rules(part, made)
        if not any(direction in made for direction in DIRECTIONS):
            self._report.not_moved(part.head, "no topic of the bridge can be moved")
            return None
        if not self._rest(part):
            return None
        if password is not None:
            made["password_file"] = self._write(f"bridge-{name}.password", password.text() + "\n")
        return made

    def _url(self, address: Option, is_tls: bool) -> str:
        host, separator, port = address.words()[0].rpartition(":")
        if not separator:
            host, port = port, str(PORT)
        if not port.isdigit() or not 0 < int(port) <= 65_535 or not host:
            raise address.wrong("HOST or HOST:PORT")
        if ":" in host and not host.startswith("["):
            host = f"[{host}]"
        return f"{'mqtts' if is_tls else 'mqtt'}://{host}:{port}"

    def _tls(self, part: Options, made: dict[str, object]) -> bool:
        system = part.take("bridge_use_os_certs")
        is_tls = system is not None and system.flag()
        for key, setting in (("bridge_cafile", "ca"), ("bridge_certfile", "certificate"), ("bridge_keyfile", "key")):
            option = part.take(key)
            if option is not None:
                made[setting] = str(option.path())
                is_tls = True
        return is_tls

    def _login(self, part: Options, made: dict[str, object]) -> Option | None:
        """Version, user and client id; returns the password."""
        version = part.take("bridge_protocol_version")
        if version is not None and version.word() not in VERSIONS:
            raise version.wrong("mqttv31, mqttv311 or mqttv50")
        made["mqtt"] = VERSIONS[version.word()] if version is not None else "3.1.1"
        user = part.take("remote_username") or part.take("username")
        client_id = part.take("remote_clientid") or part.take("clientid")
        for option, setting in ((user, "user"), (client_id, "client_id")):
            if option is not None:
                made[setting] = option.text()
        keep_alive = part.take("keepalive_interval")
        if keep_alive is not None:
            made["keep_alive_s"] = max(5, keep_alive.number(0, 65_535))
        password = part.take("remote_password") or part.take("password")
        if password is not None and user is None:
            raise password.wrong("remote_username as well")
        return password

    def _rules(self, part: Options, made: dict[str, object]) -> None:
        """`topic PATTERN [out|in|both [QOS [LOCAL-PREFIX [REMOTE-PREFIX]]]]`."""
        for option in part.take_all("topic"):
            words = option.text().split()
            for place, word in enumerate(words[1:], 1):  # the pattern itself may be "#"
                if word.startswith("#"):
                    del words[place:]
                    break
            pattern, direction, qos, local, remote = (*words, *("", "out", "0", "", "")[len(words) :])[:5]
            direction = direction.lower()
            if direction not in DIRECTIONS or qos not in ("0", "1", "2"):
                raise option.wrong("PATTERN, then out, in or both, then 0, 1 or 2, then two prefixes")
            pattern, local, remote = ("" if word == NO_NAME else word for word in (pattern, local, remote))
            if not pattern:
                self._report.not_moved(option, "a rule without a pattern: name the topic as filter of [[bridges]]")
                continue
            for prefix in (local, remote):
                problem = check_topic_filter(prefix + pattern)
                if problem:
                    raise option.wrong(f"a prefix and a pattern that make a topic filter ({problem})")
            rule: dict[str, object] = {"filter": pattern}
            rule |= {"local": local} if local else {}
            rule |= {"remote": remote} if remote else {}
            rule["qos"] = int(qos)
            rules = made.setdefault(direction, [])
            assert isinstance(rules, list)
            rules.append(rule)

    def _rest(self, part: Options) -> bool:
        """Report what is left of a bridge; returns whether it can be opened without it."""
        assert part.head is not None
        is_complete = True
        start = part.take("start_type")
        if start is not None and start.word() == "automatic":
            self._report.not_needed(start)
        elif start is not None:
            self._report.not_moved(start, "a bridge is always connected")
        for option in part.untaken():
            why = CLOSED_WITHOUT.get(option.key)
            if option.key in UNNEEDED or (option.key == "bridge_insecure" and not option.flag()):
                self._report.not_needed(option)
            elif why is not None:
                self._report.not_moved(option, f"{why}; the bridge of {part.head.place()} is left out")
                is_complete = False
            else:
                self._report.not_moved(option, NO_COUNTERPART.get(option.key, OTHER))
        return is_complete
