"""`ember init`: what it makes serves a TLS client with a password at once, and nothing is overwritten."""

import socket
import ssl
import sys
from pathlib import Path

import pytest
from cryptography import x509

from embermq.config import load
from embermq.embed import Broker, BrokerThread
from support.ember_command import Done, ember, sentence
from support.wire import Connack, Wire

FILES = {"ca.crt", "ca.key", "ember.toml", "passwords", "server.crt", "server.key"}


def init(directory: Path, *options: str) -> Done:
    return ember("init", directory, "--stdin", *options, stdin=b"secret\n")


def test_a_tls_client_with_a_password_can_connect(tmp_path: Path) -> None:
    done = init(tmp_path, "--host", "plant.example", "--host", "10.0.0.7")
    assert (done.code, done.errors) == (0, "")
    assert {path.name for path in tmp_path.iterdir()} == FILES
    assert f"ember serve --config {tmp_path}/ember.toml" in done.text
    for name in FILES - {"ca.crt", "server.crt"}:
        assert (tmp_path / name).stat().st_mode & 0o077 == 0, name
    settings = load(tmp_path / "ember.toml", {"listeners": {"port": 0, "tls_port": 0}, "http": {"port": 0}})
    assert settings.http.operators == ("admin",) and settings.store.directory == tmp_path / "ember-data"
    context = ssl.create_default_context(cafile=tmp_path / "ca.crt")
    context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_STRICT  # as Python 3.13 does by default
    with BrokerThread(Broker.from_settings(settings)) as broker:
        assert broker.port is not None and broker.tls_port is not None
        for host in ("localhost", "plant.example", "10.0.0.7"):
            with (
                socket.create_connection(("127.0.0.1", broker.tls_port)) as plain,
                context.wrap_socket(plain, server_hostname=host) as encrypted,
            ):
                assert encrypted.version() == "TLSv1.3"
        with Wire(("127.0.0.1", broker.port)) as right, Wire(("127.0.0.1", broker.port)) as wrong:
            assert right.connect("c", user_name="admin", password=b"secret") == Connack(0, 0)
            assert wrong.connect("d") == Connack(0, 5)


def test_nothing_is_overwritten_and_a_deleted_certificate_is_renewed(tmp_path: Path) -> None:
    init(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    again = init(tmp_path, "--user", "other")
    assert again.code == 0 and again.text.count("exists, kept") == 4
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    for name in ("server.crt", "server.key"):
        (tmp_path / name).unlink()
    assert init(tmp_path).code == 0
    renewed = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert {name for name in FILES if renewed[name] != before[name]} == {"server.crt", "server.key"}
    authority = x509.load_pem_x509_certificate(before["ca.crt"])
    x509.load_pem_x509_certificate(renewed["server.crt"]).verify_directly_issued_by(authority)


def test_without_tls_the_package_cryptography_is_not_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "embermq.certificates", raising=False)
    monkeypatch.setitem(sys.modules, "cryptography", None)
    missing = "a certificate needs the package cryptography: pip install 'embermq[tls]', or use --no-tls"
    assert sentence(init(tmp_path)) == missing
    assert init(tmp_path, "--no-tls").code == 0
    assert {path.name for path in tmp_path.iterdir()} == {"ember.toml", "passwords"}
    assert load(tmp_path / "ember.toml").listeners.tls_port is None


def test_what_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    assert "a user name" in sentence(init(tmp_path, "--user", "#no"))
    (tmp_path / "file").touch()
    assert sentence(init(tmp_path / "file" / "below")).startswith("cannot write ")
    (tmp_path / "ca.key").touch()
    assert sentence(init(tmp_path)).startswith("there is only one of ")
