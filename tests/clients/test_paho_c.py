"""paho C, where its library and a compiler are installed: it needs a WebSocket frame for each packet."""

import shutil
import subprocess
from pathlib import Path

import pytest

from support.client_paths import Ways

SOURCE = Path(__file__).with_name("paho_c.c")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    made = tmp_path_factory.mktemp("paho-c") / "client"
    done = subprocess.run(
        [compiler, str(SOURCE), "-o", str(made), "-lpaho-mqtt3c"], capture_output=True, text=True, timeout=60
    )
    if done.returncode:
        pytest.skip("paho C (libpaho-mqtt-dev) is not installed")
    return made


@pytest.mark.parametrize("path", ["/mqtt", ""])
def test_over_websocket_it_gets_messages_and_acknowledgements(program: Path, ways: Ways, space: str, path: str) -> None:
    done = subprocess.run(
        [str(program), f"ws://{ways.host}:{ways.ws}{path}", space], capture_output=True, text=True, timeout=60
    )
    assert (done.stdout, done.returncode) == ("ok\n", 0)


def test_over_tcp_as_well(program: Path, ways: Ways, space: str) -> None:
    done = subprocess.run(
        [str(program), f"tcp://{ways.host}:{ways.tcp}", space], capture_output=True, text=True, timeout=60
    )
    assert (done.stdout, done.returncode) == ("ok\n", 0)
