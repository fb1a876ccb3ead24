"""Other MQTT servers that the benchmark measures where they are installed: rumqttd and NATS.

Owns: their command lines and settings.
Both run with settings with which they drop as little as they can. NATS keeps what QoS 1 and 2 need in files, without a
sync for each message, and has no way to keep it in memory. rumqttd keeps all in memory.
"""

import shutil
import subprocess
from pathlib import Path
from typing import Final

from bench.machine import Cores
from bench.servers import Server, free_port

RUMQTTD: Final = """\
id = 0
[router]
id = 0
max_connections = 20000
max_outgoing_packet_count = 1000
max_segment_size = 104857600
max_segment_count = 10
[v4.1]
name = "v4-1"
listen = "127.0.0.1:{port}"
next_connection_delay_ms = 0
[v4.1.connections]
connection_timeout_ms = 60000
max_payload_size = 262144
max_inflight_count = 1000
dynamic_filters = true
[console]
listen = "127.0.0.1:{console_port}"
"""

COMMANDS: Final = {"rumqttd": "rumqttd", "NATS": "nats-server"}

NATS: Final = """\
server_name: bench
listen: "127.0.0.1:{client_port}"
jetstream {{ store_dir: "{data}" }}
mqtt {{ listen: "127.0.0.1:{port}", max_ack_pending: 65535 }}
"""


def installed() -> list[str]:
    """The names of those that are on the path."""
    return [name for name, command in COMMANDS.items() if shutil.which(command)]


def version_of(name: str) -> str:
    shown = subprocess.run([COMMANDS[name], "--version"], capture_output=True, text=True, check=False).stdout
    return shown.split()[-1] if shown else "unknown"


def peer(name: str, cores: Cores) -> Server:
    return Server(name, _rumqttd if name == "rumqttd" else _nats, cores)


def _rumqttd(port: int, directory: Path) -> list[str]:
    config = directory / "rumqttd.toml"
    config.write_text(RUMQTTD.format(port=port, console_port=free_port()), encoding="utf-8")
    return ["rumqttd", "--config", str(config), "-q"]


def _nats(port: int, directory: Path) -> list[str]:
    config = directory / "nats.conf"
    config.write_text(NATS.format(port=port, client_port=free_port(), data=directory / "data"), encoding="utf-8")
    return ["nats-server", "--config", str(config)]
