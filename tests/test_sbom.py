"""The bill of materials beside the wheel names what the package asks for, and nothing that only its tests need."""

import json
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent


def test_the_bill_has_every_dependency_with_its_version_and_no_tool_of_the_tests(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "tools/sbom", tmp_path], capture_output=True, text=True, timeout=60, check=True
    )
    bill = json.loads(Path(done.stdout.strip()).read_text())
    components = {component["name"]: component for component in bill["components"]}
    asked = map(Requirement, tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"])
    normal = runpy.run_path(str(ROOT / "tools/sbom"))["normal"]
    for requirement in asked:
        if requirement.marker is None or requirement.marker.evaluate():
            component = components[normal(requirement.name)]
            assert component["scope"] == "required"
            assert requirement.specifier.contains(component["version"])
    assert not components.keys() & {"pytest", "ruff", "mypy", "hypothesis", "mkdocs-material", "embermq"}
    references = {component["bom-ref"] for component in bill["components"]}
    for dependency in bill["dependencies"]:
        assert set(dependency["dependsOn"]) <= references
    assert bill["dependencies"][0]["ref"] == bill["metadata"]["component"]["bom-ref"]
