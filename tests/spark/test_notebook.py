"""The notebook of the tutorial: its cells run from top to bottom beside a server."""

import json
from pathlib import Path
from typing import Any

import pytest

from embermq import Broker
from support.ember_command import wire

NOTEBOOK = Path(__file__).parent.parent.parent / "examples" / "lake.ipynb"


def test_the_cells_of_the_notebook_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    with Broker.in_thread(data=tmp_path / "ember-data") as broker:
        with wire(broker, "c") as client:
            client.publish("plant/7", b"21.5", qos=1, retain=True)
            client.publish("plant/8", b"19.0", qos=1)
            client.publish("plant/7", b"22.0", qos=1, retain=True)
        for cell in cells:
            if cell["cell_type"] == "code":
                exec("".join(cell["source"]), names)
    assert names["by_topic"] == [("plant/7", 2), ("plant/8", 1)]
    assert names["now"] == {"plant/7": "22.0"}
    assert names["at_first"] == {"plant/7": "21.5"}
    assert names["newest"].num_rows == 3
