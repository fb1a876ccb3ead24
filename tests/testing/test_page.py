"""The page about testing: its program is saved and run as the page says."""

import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parent.parent.parent / "docs" / "testing.md"


def test_the_program_of_the_page_passes(tmp_path: Path) -> None:
    _, program, _ = PAGE.read_text().replace("```python\n", "```\n").split("```\n", 2)
    (tmp_path / "test_device.py").write_text(program)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_device.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert "2 passed" in done.stdout, done.stdout + done.stderr
