"""The wheels in fresh environments without the repository: all that the server does, without pyarrow and numpy."""

import json
import os
import subprocess
import sys
import tarfile
from datetime import UTC, datetime
from http.client import HTTPConnection
from pathlib import Path

import pytest

from embermq.http.client import HttpClient
from support.server_process import ServerProcess, client

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

ROOT = Path(__file__).parent.parent
SITE_BYTES_MAX = 60_000_000
FIXTURE_TEST = """
def test_it(mqtt_broker):
    mqtt_broker.publish("a", b"1", retain=True)
    assert mqtt_broker.wait_for("a").payload == b"1"
"""


def ran(*command: str | Path, cwd: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("EMBERMQ_", "PYTHON"))}
    done = subprocess.run(
        [*map(str, command)],
        cwd=cwd,
        env=environment | {"EMBERMQ_PURE": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with an environment in `venv` that has the wheel and what that asks for."""
    place = tmp_path_factory.mktemp("wheel")
    ran(sys.executable, "-m", "build", "--no-isolation", "--outdir", place, ROOT, cwd=place)
    (wheel,) = place.glob("*.whl")
    ran(sys.executable, "-m", "venv", "--without-pip", place / "venv", cwd=place)
    install(place, str(wheel))
    return place


def install(place: Path, package: str) -> None:
    python = place / "venv/bin/python"
    ran(Path(sys.executable).with_name("uv"), "pip", "install", "--python", python, package, cwd=place)


def ember(place: Path, *arguments: str) -> str:
    return ran(place / "venv/bin/ember", *arguments, cwd=place)


def test_the_base_is_small_and_has_no_pyarrow_and_no_numpy(place: Path) -> None:
    (site,) = (place / "venv/lib").glob("python*/site-packages")
    assert not {"pyarrow", "numpy", "duckdb", "deltalake", "pyspark"} & {path.name for path in site.iterdir()}
    size_bytes = sum(path.lstat().st_size for path in site.rglob("*") if path.is_file())
    assert size_bytes < SITE_BYTES_MAX


def test_the_server_keeps_and_answers_all_that_was(place: Path) -> None:
    data = place / "data"
    settings = {"store.archive": str(place / "archive"), "store.segment_age_s": "1"}
    served = ServerProcess(data, place / "log", settings, ember=(str(place / "venv/bin/python"), "-m", "embermq"))
    with served:
        for number in range(3):
            ember(place, "pub", "-r", "-q", "1", "plant/1", str(number), "--data", str(data))
        assert ember(place, "sub", "-C", "1", "-F", "%p", "plant/#", "--data", str(data)) == "2\n"
        before = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        served.restart()
        ember(place, "pub", "-r", "-q", "1", "plant/1", "later", "--data", str(data))
        as_of = ember(place, "sub", "-C", "1", "-F", "%p", f"$asof/{before}/plant/#", "--data", str(data))
        assert as_of == "2\n"
        replayed = ember(place, "sub", "-C", "4", "-F", "%p", "$replay/-10m/plant/#", "--data", str(data))
        assert replayed.splitlines() == ["0", "1", "2", "later"]
        with HttpClient(data / "control.sock") as client:
            found = client.get("/api/v1/messages?filter=plant/%23")["items"]
            assert [item["payload"] for item in found] == ["0", "1", "2", "later"]
            values = client.get("/api/v1/topic/values?topic=plant/1")["items"]
            assert [item["payload"] for item in values] == ["later", "2", "1", "0"]
            assert sum(client.get("/api/v1/messages/rate")["counts"]) >= 4
            assert client.get("/api/v1/log")["next_offset"] > 4
        assert served.stop() == 0
    assert list((place / "archive/segments").glob("*.json"))
    assert json.loads(ember(place, "log", "stat", "--json", "--data", str(data)).splitlines()[0])
    ember(place, "log", "verify", "--data", str(data))


def test_the_page_is_served(place: Path) -> None:
    tokens = place / "tokens"
    ember(place, "token", str(tokens), "test")
    settings = {"http.port": "0", "http.token_file": str(tokens), "store.memory": "true"}
    python = str(place / "venv/bin/python")
    with ServerProcess(place / "none", place / "log", settings, ember=(python, "-m", "embermq")) as served:
        connection = HTTPConnection("127.0.0.1", served.http_port)
        connection.request("GET", "/")
        answer = connection.getresponse()
        assert answer.status == 200 and b"<html" in answer.read()
        connection.close()


def test_what_needs_an_extra_says_which_command_installs_it(place: Path) -> None:
    done = subprocess.run(
        [place / "venv/bin/ember", "sql", "select 1", "--data", "data"], cwd=place, capture_output=True, text=True
    )
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    assert "pip install 'embermq[sql]'" in done.stderr


def test_the_fixture_gives_a_test_a_broker(place: Path) -> None:
    install(place, "pytest")
    (place / "test_it.py").write_text(FIXTURE_TEST)
    assert "1 passed" in ran(place / "venv/bin/python", "-m", "pytest", "test_it.py", cwd=place)


@pytest.mark.timeout(3_600)
def test_each_python_that_there_is_has_a_compiled_wheel_that_serves(tmp_path: Path) -> None:
    uv = Path(sys.executable).with_name("uv")
    done = subprocess.run(
        [ROOT / "tools" / "wheels"],
        env=os.environ | {"UV": str(uv), "OUT": str(tmp_path / "dist")},
        stdout=subprocess.PIPE,
        text=True,
        timeout=3_000,
    )
    assert done.returncode == 0
    built = [line.split() for line in done.stdout.splitlines()]
    assert len(built) > 1
    for number, (python, wheel) in enumerate(built):
        environment = tmp_path / f"venv-{number}"
        ran(uv, "venv", "--quiet", "--python", python, environment, cwd=tmp_path)
        ran(uv, "pip", "install", "--quiet", "--python", environment, wheel, cwd=tmp_path)
        is_pure = wheel.endswith("-py3-none-any.whl")
        assert is_pure or "manylinux" in wheel
        ember = (str(environment / "bin" / "python"), "-m", "embermq")
        said = subprocess.run([*ember, "version"], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
        assert said.endswith("(interpreted)\n" if is_pure else "(compiled)\n"), wheel
        with (
            ServerProcess(tmp_path / f"data-{number}", tmp_path / "log", ember=ember) as served,
            client(served, "device") as device,
        ):
            device.publish("t", b"acknowledged", qos=1, retain=True)


def test_the_source_distribution_has_what_builds_the_package_and_no_tests(place: Path) -> None:
    (archive,) = place.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        names = {name.partition("/")[2] for name in opened.getnames()}
    assert {"pyproject.toml", "setup.py", "src/embermq/py.typed", "LICENSE", "README.md"} <= names
    assert not [name for name in names if name.startswith("tests")]
