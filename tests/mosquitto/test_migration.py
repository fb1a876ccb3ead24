"""`ember migrate` on settings files of Mosquitto: what each option becomes, and what is said of the others."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from embermq.certificates import Authority
from embermq.config import load
from support.ember_command import Done, ember, sentence

PASSWORDS = "alice:$7$101$c2FsdHNhbHQ=$" + "A" * 86 + "==\n"
OPEN = "allow_anonymous true\n"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "passwd").write_text(PASSWORDS)
    (tmp_path / "acl").write_text("user alice\ntopic readwrite home/#\n")
    return tmp_path


def migrate(place: Path, text: str) -> Done:
    (place / "mosquitto.conf").write_text(text)
    return ember("migrate", place / "mosquitto.conf", "-o", place / "out" / "ember.toml")


def settings(place: Path) -> dict[str, Any]:
    return tomllib.loads((place / "out" / "ember.toml").read_text())


def listeners(place: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = settings(place)["listeners"]
    return found


def lines_of(done: Done, heading: str) -> list[str]:
    """The lines under a heading of the report."""
    _, _, rest = done.text.partition(f"\n{heading}:\n")
    return [line.strip() for line in rest.split("\n\n", maxsplit=1)[0].splitlines()]


def test_users_rights_and_listeners(place: Path) -> None:
    Authority(place, "ca").sign("server", ["localhost"])
    done = migrate(
        place,
        "listener 1883 127.0.0.1\nmax_connections 7\n"
        "listener 8883 127.0.0.1\ncafile ca.crt\ncertfile server.crt\nkeyfile server.key\n"
        "require_certificate true\nuse_identity_as_username true\n"
        "listener 9001 127.0.0.1\nprotocol websockets\n"
        f"listener 0 {place}/sock\n"
        "password_file passwd\nacl_file acl\nsys_interval 5\nmax_keepalive 120\nmax_inflight_messages 0\n"
        "max_packet_size 1000\npersistent_client_expiration 2w\nlog_type all\n",
    )
    out = place / "out"
    assert done.code == 0, done
    assert settings(place)["access"] == {
        "password_file": str(out / "passwords"),
        "acl_file": str(out / "access.list"),
        "allow_anonymous": False,
        "wildcards": "narrow",
    }
    assert settings(place)["server"] == {"sys_interval_s": 5, "log_level": "debug"}
    assert settings(place)["limits"] == {
        "keep_alive_max_s": 120,
        "inflight_max": 65_535,
        "packet_bytes_max": 1000,
        "session_expiry_max_s": 14 * 24 * 3600,
    }
    assert listeners(place) == [
        {"kind": "tcp", "host": ["127.0.0.1"], "port": 1883, "limits": {"connections_max": 7}},
        {
            "kind": "tls",
            "host": ["127.0.0.1"],
            "port": 8883,
            "certificate": str(place / "server.crt"),
            "key": str(place / "server.key"),
            "client_ca": str(place / "ca.crt"),
            "require_client_certificate": True,
            "certificate_as_user": True,
        },
        {"kind": "ws", "host": ["127.0.0.1"], "port": 9001},
        {"kind": "unix", "unix_path": f"{place}/sock"},
    ]
    assert (out / "passwords").read_text() == PASSWORDS
    assert (out / "passwords").stat().st_mode & 0o777 == 0o600
    assert "user alice\nread,write,retain home/#\n" in (out / "access.list").read_text()
    load(out / "ember.toml")


def test_without_a_listener_it_is_this_machine_and_everybody(place: Path) -> None:
    assert migrate(place, "sys_interval 10\n").code == 0
    (only,) = listeners(place)
    assert (only["kind"], only["port"], only["host"][0]) == ("tcp", 1883, "127.0.0.1")
    assert settings(place)["access"]["allow_anonymous"] is True


def test_port_and_bind_address_are_the_default_listener(place: Path) -> None:
    assert migrate(place, OPEN + "port 1884\nbind_address 127.0.0.1\nsocket_domain ipv4\n").code == 0
    assert listeners(place) == [{"kind": "tcp", "host": ["127.0.0.1"], "port": 1884}]


def test_a_listener_without_an_address_is_every_address(place: Path) -> None:
    assert migrate(place, OPEN + "listener 1884\nsocket_domain ipv4\nlistener 1885\nsocket_domain ipv6\n").code == 0
    assert [each["host"] for each in listeners(place)] == [["0.0.0.0"], ["::"]]


def test_an_option_above_the_first_listener_opens_the_default_port_too(place: Path) -> None:
    assert migrate(place, OPEN + "max_connections 5\nlistener 1884 127.0.0.1\n").code == 0
    assert [each["port"] for each in listeners(place)] == [1884, 1883]
    assert listeners(place)[1]["limits"] == {"connections_max": 5}


def test_mount_points(place: Path) -> None:
    assert migrate(place, OPEN + "listener 1884 127.0.0.1\nmount_point home/floor 1/\n").code == 0
    assert listeners(place)[0]["mount_point"] == "home/floor 1/"


def test_versions(place: Path) -> None:
    assert migrate(place, OPEN + "listener 1884 127.0.0.1\naccept_protocol_versions 4, 5\n").code == 0
    assert listeners(place)[0]["versions"] == ["3.1.1", "5"]
    load(place / "out" / "ember.toml")


def test_listeners_of_one_kind_and_port_have_names(place: Path) -> None:
    assert migrate(place, OPEN + "listener 1884 127.0.0.1\nlistener 1884 127.0.0.2\n").code == 0
    assert [each.get("name") for each in listeners(place)] == [None, "tcp-1884-2"]
    load(place / "out" / "ember.toml")


def test_per_listener_settings(place: Path) -> None:
    done = migrate(
        place,
        "per_listener_settings true\nlistener 1884 127.0.0.1\nallow_anonymous true\n"
        "listener 1885 127.0.0.1\npassword_file passwd\nacl_file acl\n",
    )
    out = place / "out"
    assert done.code == 0, done
    assert settings(place)["access"] == {"wildcards": "narrow"}
    assert listeners(place) == [
        {"kind": "tcp", "host": ["127.0.0.1"], "port": 1884, "allow_anonymous": True},
        {
            "kind": "tcp",
            "host": ["127.0.0.1"],
            "port": 1885,
            "password_file": str(out / "passwords-tcp-1885"),
            "acl_file": str(out / "access-tcp-1885.list"),
            "allow_anonymous": False,
        },
    ]
    assert "different persons" in done.text


def test_per_listener_settings_that_are_the_same_are_those_of_the_server(place: Path) -> None:
    one = "password_file passwd\nacl_file acl\n"
    done = migrate(
        place,
        f"per_listener_settings true\nlistener 1884 127.0.0.1\n{one}allow_anonymous true\n"
        f"listener 1885 127.0.0.1\n{one}",
    )
    assert done.code == 0, done
    assert settings(place)["access"]["password_file"] == str(place / "out" / "passwords")
    assert [each["allow_anonymous"] for each in listeners(place)] == [True, False]


def test_include_dir(place: Path) -> None:
    (place / "conf.d").mkdir()
    (place / "conf.d" / "b.conf").write_text("listener 1885 127.0.0.1\n")
    (place / "conf.d" / "a.conf").write_text("allow_anonymous true\nlistener 1884 127.0.0.1\nhttp_dir /srv\n")
    (place / "conf.d" / "c.txt").write_text("listener 1886\n")
    done = migrate(place, f"include_dir {place / 'conf.d'}\n")
    assert done.code == 1
    assert [each["port"] for each in listeners(place)] == [1884, 1885]
    assert lines_of(done, "No counterpart") == [
        f"{place / 'conf.d' / 'a.conf'}, line 3: http_dir /srv: no files are served; a web server or a proxy can"
    ]


def test_nothing_is_dropped_silently(place: Path) -> None:
    """Each line of a file is a setting, or is named in the report."""
    text = OPEN + "listener 1884 127.0.0.1\nbind_interface eth0\nqueue_qos0_messages true\nfuture_option 1\n"
    text += "plugin /usr/lib/a.so\nplugin_opt_file /etc/a\nplugin /usr/lib/b.so\nuser mosquitto\nlog_dest syslog\n"
    text += "connection up\naddress 10.0.0.1 10.0.0.2\ntopic # both 1\nthreshold 5\ntry_private true\n"
    done = migrate(place, text)
    assert done.code == 1
    named = [line.split(": ")[1] for line in (*lines_of(done, "No counterpart"), *lines_of(done, "Not needed here"))]
    named += [line.split(": ")[1] for line in lines_of(done, "Different here") if "log_dest" in line]
    settings_of = ("allow_anonymous", "listener", "connection", "topic")
    expected = [line for line in text.splitlines() if not line.startswith(settings_of)]
    assert sorted(named) == sorted(expected)


@pytest.mark.parametrize(
    ("option", "why"),
    [
        ("mount_point home", "a prefix of topics is whole levels here, such as home/"),
        ("psk_hint x", "TLS with a pre-shared key is not offered"),
        ("crlfile x", "lists of revoked certificates are not read"),
        ("use_subject_as_username true", "only the common name of a certificate can be the user name"),
        ("max_qos 1", "every QoS is offered"),
    ],
)
def test_a_listener_that_would_let_in_more_is_left_out(place: Path, option: str, why: str) -> None:
    done = migrate(place, f"{OPEN}listener 1884 127.0.0.1\nlistener 1885 127.0.0.1\n{option}\n")
    conf = place / "mosquitto.conf"
    assert done.code == 1
    assert [each["port"] for each in listeners(place)] == [1884]
    assert lines_of(done, "No counterpart") == [
        f"{conf}, line 4: {option}: {why}; the listener of {conf}, line 3 is left out"
    ]


def test_bridges(place: Path) -> None:
    done = migrate(
        place,
        OPEN + "listener 1884 127.0.0.1\n"
        "connection to.office\naddress broker.example:8883\nremote_username plant7\nremote_password hunter2\n"
        "remote_clientid plant7\nbridge_cafile ca.crt\nbridge_protocol_version mqttv50\nkeepalive_interval 30\n"
        "topic plant/# out 2 here/ there/\ntopic orders/+ in 1\ntopic # both # all of it\ntopic last\n"
        'connection lab\naddress ::1:1885\ntopic a/b both 0 "" x/\n',
    )
    out = place / "out"
    assert settings(place)["bridges"] == [
        {
            "name": "to-office",
            "url": "mqtts://broker.example:8883",
            "mqtt": "5",
            "ca": str(Path.cwd() / "ca.crt"),
            "user": "plant7",
            "client_id": "plant7",
            "keep_alive_s": 30,
            "password_file": str(out / "bridge-to-office.password"),
            "out": [
                {"filter": "plant/#", "local": "here/", "remote": "there/", "qos": 2},
                {"filter": "last", "qos": 0},
            ],
            "in": [{"filter": "orders/+", "qos": 1}],
            "both": [{"filter": "#", "qos": 0}],
        },
        {
            "name": "lab",
            "url": "mqtt://[::1]:1885",
            "mqtt": "3.1.1",
            "both": [{"filter": "a/b", "remote": "x/", "qos": 0}],
        },
    ]
    assert (out / "bridge-to-office.password").read_text() == "hunter2\n"
    assert (out / "bridge-to-office.password").stat().st_mode & 0o777 == 0o600
    assert "hunter2" not in done.text
    assert [each.name for each in load(out / "ember.toml").bridges.each] == ["to-office", "lab"]
    assert done.code == 0, done


def test_a_bridge_that_would_be_less_safe_or_empty_is_left_out(place: Path) -> None:
    done = migrate(
        place,
        OPEN + "listener 1884 127.0.0.1\nconnection a\naddress b\ntopic # out\nbridge_psk 00\n"
        'connection c\naddress d\ntopic "" out 0 x y\n',
    )
    assert done.code == 1
    assert "bridges" not in settings(place)
    conf = place / "mosquitto.conf"
    assert [line.replace(str(conf), "conf") for line in lines_of(done, "No counterpart")] == [
        "conf, line 6: bridge_psk ***: TLS with a pre-shared key is not offered; the bridge of conf, line 3 is"
        " left out",
        'conf, line 9: topic "" out 0 x y: a rule without a pattern: name the topic as filter of [[bridges]]',
        "conf, line 7: connection c: no topic of the bridge can be moved",
    ]


def test_a_listener_that_needs_certificates_of_no_known_authority_is_left_out(place: Path) -> None:
    done = migrate(
        place,
        f"{OPEN}listener 1884 127.0.0.1\nlistener 1885 127.0.0.1\ncertfile passwd\nkeyfile passwd\ncapath /etc/ssl\n"
        "require_certificate true\n",
    )
    assert done.code == 1
    assert [each["port"] for each in listeners(place)] == [1884]


def test_the_rights_of_a_plugin_are_not_replaced_by_all(place: Path) -> None:
    done = migrate(place, "listener 1884 127.0.0.1\npassword_file passwd\nplugin /usr/lib/a.so\n")
    assert done.code == 1
    assert settings(place)["access"]["acl_file"] == str(place / "out" / "access.list")
    assert not [line for line in (place / "out" / "access.list").read_text().splitlines() if line[0] != "#"]


def test_what_keeps_the_server_from_starting_is_said(place: Path) -> None:
    done = migrate(place, "listener 1884\n")
    assert done.code == 1
    assert "Before the server starts, change ember.toml: listener tcp-1884: " in done.text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("listener abc\n", "{conf}, line 1: listener 'abc': expected a port"),
        ("listener 0\n", "{conf}, line 1: listener '0': expected a port from 1 to 65535, or 0 and the path"),
        ("\nallow_anonymous maybe\n", "{conf}, line 2: allow_anonymous 'maybe': expected true or false"),
        ("max_keepalive x\n", "{conf}, line 1: max_keepalive 'x': expected a number"),
        ("password_file none\n", "{conf}, line 1: cannot read "),
        ("password_file wrong\n", "{place}/wrong, line 1: no argon2 hash"),
        ("acl_file passwd\n", "{place}/passwd, line 1: expected 'user', 'topic' or 'pattern'"),
        ("include_dir nowhere\n", "{conf}, line 1: cannot read nowhere: "),
        ("address 10.0.0.1\n", "{conf}, line 1: address is for a bridge: expected 'connection NAME' above it"),
        ("connection a\ntopic #\n", "{conf}, line 1: connection 'a': expected a name, and 'address HOST:PORT'"),
        ("connection a\naddress b:x\n", "{conf}, line 2: address 'b:x': expected HOST or HOST:PORT"),
        ("connection a\naddress b\ntopic # up\n", "{conf}, line 3: topic '# up': expected PATTERN, then out, in"),
        ("connection a\naddress b\ntopic # in 1 a/#/\n", "{conf}, line 3: topic '# in 1 a/#/': expected a prefix"),
        ("connection a\naddress b\nremote_password x\n", "{conf}, line 3: remote_password: expected remote_username"),
        ("port 1\nport 2\n", "{conf}, line 2: port is set already, in {conf}, line 1"),
        ("listener 1\ncertfile a\n", "{conf}, line 2: certfile is set: expected certfile and keyfile as well"),
        (
            "listener 1\naccept_protocol_versions 6\n",
            "{conf}, line 2: accept_protocol_versions '6': expected some of 3",
        ),
        ("listener 1\nprotocol http\n", "{conf}, line 2: protocol 'http': expected mqtt or websockets"),
        ("allow_anonymous true\nper_listener_settings true\n", "{conf}, line 2: per_listener_settings must be above"),
        (
            "persistent_client_expiration 2\n",
            "{conf}, line 1: persistent_client_expiration '2': expected a number with",
        ),
        ("\xff", "{conf} is not UTF-8 text (byte 0)"),
    ],
)
def test_errors_name_file_and_line_and_write_nothing(place: Path, text: str, expected: str) -> None:
    (place / "wrong").write_text("alice:secret\n")
    conf = place / "mosquitto.conf"
    conf.write_bytes(text.encode("latin-1"))
    said = sentence(ember("migrate", conf, "-o", place / "out" / "ember.toml"))
    assert said.startswith(expected.format(conf=conf, place=place))
    assert not (place / "out").exists()


def test_nothing_is_overwritten(place: Path) -> None:
    (place / "out").mkdir()
    (place / "out" / "passwords").write_text("kept")
    said = sentence(migrate(place, "listener 1884 127.0.0.1\npassword_file passwd\n"))
    assert said.startswith(f"{place / 'out' / 'passwords'} exists, and nothing is overwritten")
    assert [each.name for each in (place / "out").iterdir()] == ["passwords"]


@pytest.mark.parametrize("text", ["# mine\n\nlistener 1883\n", "pid_file /run/m.pid\n", "per_listener_settings true\n"])
def test_serve_recognises_the_file_and_names_the_command(place: Path, text: str) -> None:
    conf = place / "mosquitto.conf"
    conf.write_text(text)
    said = sentence(ember("serve", "--config", conf))
    assert said == f"{conf} is a settings file of Mosquitto: `ember migrate {conf}` writes an ember.toml from it"


def test_other_files_are_not_taken_for_mosquittos(place: Path) -> None:
    conf = place / "other"
    conf.write_text("[access\n")
    assert "is not TOML" in sentence(ember("serve", "--config", conf))


def test_a_password_file_in_place_of_the_settings_is_refused_and_not_shown(place: Path) -> None:
    done = ember("migrate", place / "passwd", "-o", place / "out" / "ember.toml")
    assert sentence(done) == f"{place}/passwd, line 1 is no line of a mosquitto.conf: expected an option and its value"
    assert not (place / "out").exists()
