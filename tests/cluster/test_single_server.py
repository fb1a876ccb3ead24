"""A single server has nothing of the cluster: no import, no thread, no file."""

import subprocess
import sys
from pathlib import Path

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
