"""A single server has nothing of the cluster: no import, no thread, no file."""

import subprocess
import sys
from pathlib import Path

import pytest

from support.ember_command import ember, sentence

CODE = """
import sys, threading
from pathlib import Path
from embermq import Broker
with Broker.in_thread(data=Path(sys.argv[1])):
    loaded = [name for name in sys.modules if name.startswith(("embermq.cluster", "confluent_kafka"))]
    threads = [thread.name for thread in threading.enumerate() if thread.name in ("ember-node", "ember-kafka")]
print(loaded, threads, (Path(sys.argv[1]) / "cluster.json").exists())
"""


def test_a_single_server_loads_nothing_of_the_cluster(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", CODE, str(tmp_path / "data")], capture_output=True, text=True)
    assert done.stdout == "[] [] False\n", done.stderr


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "expected cluster.node, a number from 1 on that no other node of the cluster has"),
        ({"CLUSTER__NODE": "1", "STORE__MEMORY": "true"}, "needs a data directory: expected store.memory = false"),
        ({"CLUSTER__NODE": "1", "STORE__ARCHIVE": "/archive"}, "nodes of a cluster do not archive in this version"),
    ],
)
def test_settings_that_a_node_cannot_have_are_refused(settings: dict[str, str], said: str) -> None:
    names = {"CLUSTER__BOOTSTRAP_SERVERS": '["127.0.0.1:1"]'} | settings
    done = ember("serve", "--port", "0", environment={f"EMBERMQ_{name}": text for name, text in names.items()})
    assert said in sentence(done)
