"""What `deploy` has: entry script and health check with a real server, and files that their own tools accept."""

import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import yaml

from embermq.access.passwords import parse_passwords
from embermq.access.tokens import read_tokens
from embermq.config import load
from support.ember_command import ember
from support.wire import Connack, Wire

DEPLOY = Path(__file__).parent.parent.parent / "deploy"
CONTAINER = DEPLOY / "container"
BIN = Path(sys.executable).parent
TIMEOUT_S = 60


def environment(files: Path, **more: str | Path) -> dict[str, str]:
    """That of a container, with the folder of its files elsewhere."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("EMBERMQ_")}
    path = f"{BIN}{os.pathsep}{clean['PATH']}"
    return clean | {"PATH": path, "EMBERMQ_FILES": str(files)} | {name: str(value) for name, value in more.items()}


def entry(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(CONTAINER / "entrypoint"), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S)


def health(data: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(CONTAINER / "health")]
    settings = {"EMBERMQ_STORE__DIRECTORY": str(data)}
    return subprocess.run(command, env=os.environ | settings, capture_output=True, text=True, timeout=TIMEOUT_S)


def test_the_setup_makes_a_user_and_a_token_once(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("secret\n")
    token = tmp_path / "token"
    given = environment(
        tmp_path,
        EMBERMQ_FIRST_USER="ann",
        EMBERMQ_FIRST_PASSWORD_FILE=tmp_path / "password",
        EMBERMQ_FIRST_TOKEN_FILE=token,
    )
    assert entry(given, "setup").returncode == 0
    before = (tmp_path / "passwords").read_text(), (tmp_path / "tokens").read_text(), token.read_text()
    assert list(parse_passwords(before[0], "passwords").users) == ["ann"]
    assert [holder.role for holder in read_tokens(tmp_path / "tokens").values()] == ["viewer"]
    assert before[2].startswith("ember_") and before[2].count("\n") == 1
    assert entry(given, "setup").returncode == 0
    assert before == ((tmp_path / "passwords").read_text(), (tmp_path / "tokens").read_text(), token.read_text())


def test_a_container_serves_is_healthy_and_stops_cleanly(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("secret\n")
    data = tmp_path / "data"
    given = environment(
        tmp_path,
        EMBERMQ_FIRST_PASSWORD_FILE=tmp_path / "password",
        EMBERMQ_STORE__DIRECTORY=data,
        EMBERMQ_LISTENERS__PORT="0",
    )
    assert "no server answers on" in health(data).stderr
    command = [str(CONTAINER / "entrypoint"), "serve"]
    with subprocess.Popen(command, env=given, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            said: list[str] = []
            for line in process.stdout:
                said.append(line.strip())
                if said[-1] == "ready":
                    break
            assert f"access: users of {tmp_path}/passwords; everything allowed" in said
            port = next(int(line.rsplit(":", 1)[1]) for line in said if "mqtt://" in line)
            assert (health(data).returncode, health(data).stderr) == (0, "")
            with Wire(("127.0.0.1", port)) as client:
                assert client.connect("c", user_name="admin", password=b"secret") == Connack(0, 0)
            process.send_signal(signal.SIGTERM)  # it reaches the server, whose process the script has become
            assert process.wait(TIMEOUT_S) == 0
            assert process.stdout.read() == "stopped\n"
        finally:
            process.kill()
    assert "no server answers on" in health(data).stderr


def test_a_server_that_makes_nothing_durable_is_not_healthy(tmp_path: Path) -> None:
    """What /readyz says of such a server is tested with it; here is only its answer."""
    (tmp_path / "data").mkdir()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "data" / "control.sock"))
        server.listen()

        def refuse() -> None:
            with server.accept()[0] as peer:
                peer.recv(4096)
                peer.sendall(b"HTTP/1.1 503 Service Unavailable\r\n\r\nnothing can be made durable")

        thread = threading.Thread(target=refuse)
        thread.start()
        done = health(tmp_path / "data")
        thread.join()
    assert (done.returncode, done.stderr) == (1, "nothing can be made durable\n")


def test_other_commands_run_too(tmp_path: Path) -> None:
    assert entry(environment(tmp_path), "version").stdout.startswith("ember ")
    assert entry(environment(tmp_path), "no-such").returncode == 2


def composed() -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load((DEPLOY / "compose" / "compose.yaml").read_text())
    return read


def test_the_compose_file_names_what_exists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compose = composed()
    services = compose["services"]
    assert set(services) == {"setup", "server", "pipeline", "prometheus", "grafana"}
    targets = [
        line.split()[-1] for line in (CONTAINER / "Containerfile").read_text().splitlines() if line.startswith("FROM ")
    ]
    for service in services.values():
        assert set(service.get("depends_on", {})) <= set(services)
        if "build" in service:
            assert service["build"]["target"] in targets
            assert (DEPLOY / "compose" / service["build"]["context"] / service["build"]["dockerfile"]).exists()
        for volume in service.get("volumes", []):
            source = volume.partition(":")[0]
            assert source in compose["volumes"] or (DEPLOY / "compose" / source).exists(), volume
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))
    given = {**services["server"]["environment"], "EMBERMQ_ACCESS__PASSWORD_FILE": "passwords"}
    for name, value in {**given, "EMBERMQ_LISTENERS__HOST": "0.0.0.0"}.items():
        monkeypatch.setenv(name, value)
    settings = load(None)
    assert (settings.http.port, settings.http.names, settings.http.operators) == (8080, ("server",), ("admin",))


def test_prometheus_finds_the_server_its_token_and_the_alerts() -> None:
    config = yaml.safe_load((DEPLOY / "monitoring" / "prometheus.yml").read_text())
    (job,) = config["scrape_configs"]
    services = composed()["services"]
    assert job["static_configs"] == [{"targets": [f"server:{services['server']['environment']['EMBERMQ_HTTP__PORT']}"]}]
    assert job["authorization"]["credentials_file"] == services["setup"]["environment"]["EMBERMQ_FIRST_TOKEN_FILE"]
    for name in config["rule_files"]:
        rules = yaml.safe_load((DEPLOY / "monitoring" / name).read_text())
        assert all({"alert", "expr"} <= set(rule) for group in rules["groups"] for rule in group["rules"])
    assert json.loads((DEPLOY / "monitoring" / "grafana-dashboard.json").read_text())["uid"] == "embermq"
    for name in ("datasources", "dashboards"):
        assert yaml.safe_load((DEPLOY / "monitoring" / "grafana" / f"{name}.yml").read_text())["apiVersion"] == 1


@pytest.mark.parametrize(
    "command",
    [
        (BIN / "hadolint", CONTAINER / "Containerfile"),
        (BIN / "shellcheck", CONTAINER / "entrypoint"),
        ("systemd-analyze", "security", "--offline=true", "--threshold=20", DEPLOY / "systemd" / "embermq.service"),
    ],
    ids=lambda command: Path(command[0]).name,
)
def test_the_tools_of_the_formats_find_nothing(command: tuple[str | Path, ...]) -> None:
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_unit_waits_for_the_server_and_watches_it() -> None:
    """The parts of the unit that the server must serve; `test_service_manager` shows that it does."""
    unit = (DEPLOY / "systemd" / "embermq.service").read_text().splitlines()
    assert {"Type=notify", "WatchdogSec=30", "StateDirectory=embermq", "ProtectSystem=strict"} <= set(unit)
    command = next(line.partition("=")[2].split() for line in unit if line.startswith("ExecStart="))
    assert command[1:] == ["serve", "--config", "/etc/embermq/ember.toml"]


def test_commands_find_the_data_of_the_service_by_its_settings(tmp_path: Path) -> None:
    """The commands in the unit's head, run for another directory."""
    unit = (DEPLOY / "systemd" / "embermq.service").read_text()
    assert not [line for line in unit.splitlines() if line.startswith("Environment=")]
    assert ember("init", tmp_path, "--no-tls", "--stdin", stdin=b"secret\n").code == 0
    (command,) = (line for line in unit.splitlines() if line.startswith("#   sudo sed "))
    arguments = shlex.split(command.removeprefix("#   sudo").replace("/etc/embermq", str(tmp_path)))
    subprocess.run(arguments, check=True, timeout=TIMEOUT_S)
    assert str(load(tmp_path / "ember.toml").store.directory) == "/var/lib/embermq/data"
