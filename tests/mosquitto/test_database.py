"""mosquitto.db: formats 5 and 6, and files that are refused."""

import random
import time
from pathlib import Path
from struct import pack
from typing import Final

import pytest

from embermq.broker.limits import Limits
from embermq.errors import ConfigError
from embermq.mosquitto.database import MAGIC, Database, Owed, StoredSubscription
from support.ember_command import Done, ember, sentence, server, wire
from support.wire import PUBLISH, message_of

CONFIG, MESSAGE, OWED, RETAINED, SUBSCRIPTION, CLIENT = range(1, 7)
NEVER: Final = 0xFFFF_FFFF
QUEUED, WAIT_FOR_PUBCOMP = 11, 9
USER_PROPERTY: Final = b"\x09\x26\x00\x01k\x00\x03val"


def chunk(kind: int, data: bytes) -> bytes:
    return pack(">II", kind, len(data)) + data


def config(is_complete: bool = True, id_bytes: int = 8) -> bytes:
    return chunk(CONFIG, pack("<QBB6x", 99, is_complete, id_bytes))


def message(
    number: int, topic: bytes, payload: bytes, qos: int = 1, expires_s: int = 0, properties: bytes = b""
) -> bytes:
    lengths = pack(">IHHHHHBB", len(payload), 7, 3, 5, len(topic), 1883, qos, 0)
    return chunk(MESSAGE, pack("<Qq", number, expires_s) + lengths + b"pubalice" + topic + payload + properties)


def client(name: bytes, expiry_s: int = NEVER, user: bytes = b"alice", expires_s: int = 0, port: int = 1883) -> bytes:
    fixed = pack("<q", expires_s) + pack(">IHHHH4x", expiry_s, 3, len(name), port, len(user))
    return chunk(CLIENT, fixed + name + user)


def client_5(name: bytes, expiry_s: int = NEVER) -> bytes:
    return chunk(CLIENT, pack("<q", 0) + pack(">IHH", expiry_s, 3, len(name)) + name)


def owed(
    number: int, name: bytes, state: int = QUEUED, qos: int = 1, outgoing: int = 1, properties: bytes = b""
) -> bytes:
    return chunk(
        OWED, pack("<Q", number) + pack(">HHBBBB", number, len(name), qos, state, 0x10, outgoing) + name + properties
    )


def subscription(name: bytes, topic: bytes, qos: int = 1, options: int = 0, number: int = 0) -> bytes:
    return chunk(SUBSCRIPTION, pack(">IHHBB2x", number, len(name), len(topic), qos, options) + name + topic)


def retained(number: int) -> bytes:
    return chunk(RETAINED, pack("<Q", number))


def database(place: Path, *chunks: bytes, form: int = 6) -> Path:
    file = place / "mosquitto.db"
    file.write_bytes(MAGIC + pack(">II", 0, form) + b"".join(chunks))
    return file


def move(place: Path, *chunks: bytes, form: int = 6) -> Done:
    return ember("migrate", database(place, *chunks, form=form), "--data", place / "data")


def test_what_a_file_has(tmp_path: Path) -> None:
    read = Database(
        database(
            tmp_path,
            config(),
            message(1, b"a/b", b"hi", 2, 123, USER_PROPERTY),
            client(b"c1", 60, b"", 456),
            owed(1, b"c1", properties=b"\x02\x0b\x07"),
            subscription(b"c1", b"a/+", 2, 0b1100, 5),
            retained(1),
        )
    )
    assert (read.format, read.is_complete, read.retained) == (6, True, [1])
    (stored,) = read.messages.values()
    assert (stored.topic_name, stored.payload, stored.qos, stored.expires_s) == ("a/b", b"hi", 2, 123)
    assert stored.properties == USER_PROPERTY[1:]
    found = read.clients["c1"]
    assert (found.user_name, found.port, found.expiry_s, found.expires_s) == ("", 1883, 60, 456)
    assert found.owed == [Owed(1, 1, 1, True, QUEUED, True, (7,))]
    assert found.subscriptions == [StoredSubscription("a/+", 2, True, True, 5)]


def test_format_5_does_not_say_the_user(tmp_path: Path) -> None:
    read = Database(database(tmp_path, config(), client_5(b"c1", 60), form=5))
    assert (read.clients["c1"].user_name, read.clients["c1"].expiry_s) == (None, 60)


def test_retained_messages_and_a_session_are_moved(tmp_path: Path) -> None:
    done = move(
        tmp_path,
        config(),
        message(1, b"a/1", b"one", 2, 0, USER_PROPERTY),
        message(2, b"a/2", b"two"),
        client(b"c1"),
        owed(1, b"c1", qos=2),
        owed(2, b"c1"),
        subscription(b"c1", b"a/#", 2),
        retained(1),
    )
    assert done == (0, done.printed, "")
    assert done.text.endswith("format 6: 1 retained message, 1 session, 1 subscription, 2 queued messages\n")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["data", "mosquitto.db"]
    with server(tmp_path / "data") as broker:
        reader = wire(broker, "c1", clean=False)
        found = [message_of(reader.expect(PUBLISH)) for _ in range(2)]
        assert [(each.topic_name, each.payload, each.qos, each.dup) for each in found] == [
            ("a/1", b"one", 2, False),
            ("a/2", b"two", 1, False),
        ]
        for each in found:
            reader.answer(each)
        with wire(broker, "writer") as writer:
            writer.publish("a/3", b"live", qos=1)
        assert reader.receive_message().payload == b"live"
        with wire(broker, "late") as late:
            late.subscribe("a/#")
            assert late.receive_message()[:2] == ("a/1", b"one")
        reader.close()


def test_a_shared_subscription_works_on(tmp_path: Path) -> None:
    assert move(tmp_path, config(), client(b"c1"), subscription(b"c1", b"$share/g/a/#")).code == 0
    with server(tmp_path / "data") as broker:
        with wire(broker, "writer") as writer:
            writer.publish("a/1", b"while away", qos=1)
        with wire(broker, "c1", clean=False) as reader:
            assert reader.receive_message().payload == b"while away"


def test_what_is_not_moved_is_counted(tmp_path: Path) -> None:
    done = move(
        tmp_path,
        config(),
        message(1, b"a", b"gone", expires_s=int(time.time()) - 5),
        message(2, b"b", b"here", expires_s=int(time.time()) + 1000),
        client(b"c1"),
        owed(1, b"c1"),
        owed(2, b"c1", qos=0),
        owed(2, b"c1", WAIT_FOR_PUBCOMP, 2),
        owed(2, b"c1"),
        client(b"old", 60, expires_s=1),
        client(b"local.host.bridge", 0),
        owed(2, b"local.host.bridge"),
        client(b"clean", 0),
        retained(1),
        retained(2),
        retained(3),
    )
    assert done.code == 1
    assert done.lines[0].endswith(": 1 retained message, 1 session, 0 subscriptions, 1 queued message")
    assert sorted(done.lines[1:]) == [
        "not moved, messages in queues that have expired: 1",
        "not moved, messages of QoS 0 in queues: 1",
        "not moved, messages of QoS 2 that clients have and did not complete: 1",
        "not moved, messages owed to bridges of Mosquitto: 1",
        "not moved, sessions that have expired: 1",
    ]


@pytest.mark.parametrize("users", ['password_file = "passwords"', 'call_out_url = "http://127.0.0.1:1/"'])
def test_sessions_of_unknown_users_are_not_moved_where_there_are_users(tmp_path: Path, users: str) -> None:
    (tmp_path / "passwords").write_text("")
    (tmp_path / "ember.toml").write_text(f"[access]\n{users}\n")
    file = database(tmp_path, config(), client_5(b"c1"), form=5)
    done = ember("migrate", file, "--data", tmp_path / "data", "--config", tmp_path / "ember.toml")
    assert done.code == 1
    assert done.lines[1:] == ["not moved, sessions of which format 5 does not say the user: 1"]


def test_the_user_of_a_listener_with_its_own_users_is_the_one_of_that_listener(tmp_path: Path) -> None:
    (tmp_path / "passwords").write_text("")
    (tmp_path / "ember.toml").write_text(
        '[[listeners]]\nkind = "tcp"\nport = 1884\nallow_anonymous = true\n'
        f'[[listeners]]\nkind = "tcp"\nport = 1885\npassword_file = "{tmp_path}/passwords"\n'
    )
    file = database(tmp_path, config(), client(b"c1", port=1884), client(b"c2", port=1885))
    done = ember("migrate", file, "--data", tmp_path / "data", "--config", tmp_path / "ember.toml")
    assert done.code == 0, done
    users = ember("log", "cat", "--json", "--data", tmp_path / "data").text
    assert users.count('"user_name":"tcp-1885:alice"') + users.count('"user_name": "tcp-1885:alice"') == 1, users


def test_a_file_from_before_the_stop_is_moved_with_a_word(tmp_path: Path) -> None:
    done = move(tmp_path, config(is_complete=False), message(1, b"a", b"x"), retained(1))
    assert done.code == 0
    assert "was written while Mosquitto ran" in done.errors


def test_more_messages_than_one_group_are_moved(tmp_path: Path) -> None:
    count = 2_500
    messages = [message(number, b"t/%d" % number, b"x") for number in range(1, count + 1)]
    clients = [
        part for number in range(1, count + 1) for part in (client(b"c%d" % number), owed(number, b"c%d" % number))
    ]
    done = move(tmp_path, config(), *messages, *clients, *(retained(number) for number in range(1, count + 1)))
    assert done.code == 0, done
    assert f"{count} retained messages, {count} sessions, 0 subscriptions, {count} queued messages" in done.text


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (MAGIC + pack(">II", 0, 4), "has format 4: expected 5 or 6"),
        (MAGIC + pack(">II", 0, 7), "has format 7: expected 5 or 6"),
        (MAGIC + b"\0\0", "is not a database of Mosquitto"),
        (MAGIC + pack(">II", 0, 6) + b"\0\0\0", "ends within a chunk, at byte 23: it is damaged"),
        (MAGIC + pack(">II", 0, 6) + message(1, b"a", b"x")[:-1], "ends within a chunk, at byte 23: it is damaged"),
        (
            MAGIC + pack(">II", 0, 6) + pack(">II", 2, 1 << 31),
            "the chunk at byte 23 has 2147483648 bytes: it is damaged",
        ),
        (MAGIC + pack(">II", 0, 6) + chunk(7, b""), "the chunk at byte 23 is not understood: its kind is 7"),
        (MAGIC + pack(">II", 0, 6) + config(id_bytes=4), "not understood: identifiers of messages have 4 bytes"),
        (MAGIC + pack(">II", 0, 6) + message(1, b"a/#", b"x"), "not understood: "),
        (MAGIC + pack(">II", 0, 6) + message(1, b"\xff", b"x"), "not understood: 'utf-8' codec"),
        (MAGIC + pack(">II", 0, 6) + message(1, b"a", b"x", 3), "not understood: QoS 3"),
        (
            MAGIC + pack(">II", 0, 6) + message(1, b"a", b"x", properties=b"\x02\x7f\x00"),
            "not understood: property 0x7f",
        ),
        (MAGIC + pack(">II", 0, 6) + owed(1, b"c1"), "not understood: there is no client 'c1' above it"),
        (MAGIC + pack(">II", 0, 6) + client(b"c1") + subscription(b"c1", b"a/#/b"), "not understood: "),
        (MAGIC + pack(">II", 0, 6) + client(b"c1") * 2, "not understood: client id 'c1' is there twice"),
        (MAGIC + pack(">II", 0, 6) + chunk(CLIENT, b"\0" * 5), "not understood: "),
    ],
)
def test_what_is_not_understood_is_refused_in_a_sentence(tmp_path: Path, content: bytes, expected: str) -> None:
    file = tmp_path / "mosquitto.db"
    file.write_bytes(content)
    assert expected in sentence(ember("migrate", file, "--data", tmp_path / "data"))
    assert [each.name for each in tmp_path.iterdir()] == ["mosquitto.db"]


@pytest.mark.parametrize("seed", range(200))
def test_damaged_files_raise_nothing_else(tmp_path: Path, seed: int) -> None:
    chosen = random.Random(seed)
    parts = (config(), message(1, b"a/b", b"hi", properties=USER_PROPERTY), client(b"c1"), owed(1, b"c1"))
    file = database(tmp_path, *parts, subscription(b"c1", b"a/+"), retained(1))
    content = bytearray(file.read_bytes())
    for _ in range(chosen.randint(1, 4)):
        content[chosen.randrange(len(MAGIC) + 8, len(content))] = chosen.randrange(256)
    del content[chosen.choice([len(content), chosen.randrange(len(MAGIC), len(content))]) :]
    file.write_bytes(content)
    try:
        Database(file)
    except ConfigError as error:
        assert str(file) in str(error)


def test_a_directory_with_data_stays_as_it_is(tmp_path: Path) -> None:
    with server(tmp_path / "data"):
        pass
    said = sentence(move(tmp_path, config()))
    assert said == f"{tmp_path}/data has data already: name a directory that does not exist yet with --data"


def test_a_message_above_the_limit_is_refused_and_counted(tmp_path: Path) -> None:
    (tmp_path / "ember.toml").write_text("[limits]\npacket_bytes_max = 128\n")
    file = database(tmp_path, config(), message(1, b"a", b"x" * 200), message(2, b"b", b"y"), retained(1), retained(2))
    done = ember("migrate", file, "--data", tmp_path / "data", "--config", tmp_path / "ember.toml")
    assert (done.code, done.lines[1:]) == (1, ["not moved, messages that are refused: 1"])
    assert "refused a: topic and payload are 201 bytes" in done.errors
    assert Limits().packet_bytes_max > 201


def test_options_of_the_other_file_are_refused(tmp_path: Path) -> None:
    file = database(tmp_path, config())
    assert "--output is for a mosquitto.conf" in sentence(ember("migrate", file, "-o", tmp_path / "x.toml"))
    (tmp_path / "m.conf").write_text("port 1883\n")
    assert "--data is for a mosquitto.db" in sentence(
        ember("migrate", tmp_path / "m.conf", "--data", tmp_path / "data")
    )
    assert "cannot read" in sentence(ember("migrate", tmp_path / "none"))
