"""What ends `ember pipeline submit` ends its driver: real processes, and a spark-submit that starts one like Spark."""

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

# As Spark does it: the script becomes Java (here: this program), which starts the driver and ends with its exit code.
SUBMIT = """#!/bin/sh
exec {python} -c '
import subprocess, sys
if "--wait" in sys.argv:  # still resolving packages
    print("java waits", flush=True)
    import time; time.sleep(600)
sys.exit(subprocess.run([sys.executable, "-c", open("{driver}").read()]).returncode)
' "$@"
"""
DRIVER = """
import os, signal, sys, time
from embermq.commands.submitted.parent import leave_process_id
leave_process_id()
def stop(*_):
    print("driver stops cleanly", flush=True)
    sys.exit(7)
signal.signal(signal.SIGTERM, stop)
print("driver", os.getpid(), os.getppid(), flush=True)
while True:
    time.sleep(60)
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "driver.py").write_text(DRIVER)
    script = tmp_path / "bin" / "spark-submit"
    script.parent.mkdir()
    script.write_text(SUBMIT.format(python=sys.executable, driver=tmp_path / "driver.py"))
    script.chmod(0o755)
    return tmp_path


def hear_the_end_of_a_terminal() -> None:
    """Tests under `nohup` ignore SIGHUP, and a process that they start would, too."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture
def submitted(home: Path, request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[str]]:
    conf = ["--files", "--wait"] if getattr(request, "param", None) == "waiting" else []
    process = subprocess.Popen(
        [sys.executable, "-m", "embermq", "pipeline", "submit", "--master", "local[2]", *conf, "--", "--once"],
        env={**os.environ, "SPARK_HOME": str(home)},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=hear_the_end_of_a_terminal,
    )
    yield process
    for group in {process.pid, *(GROUPS.pop(process.pid, []))}:
        with suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)
    process.wait(60)


GROUPS: dict[int, list[int]] = {}


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def driver_and_java(process: subprocess.Popen[str]) -> tuple[int, int]:
    word, driver, java = line(process).split()
    assert word == "driver"
    GROUPS[process.pid] = [int(java)]
    return int(driver), int(java)


def gone(pid: int) -> bool:
    """Whether a process that is no child of this one has ended, within a while."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([descriptor], [], [], 30)[0])
    finally:
        os.close(descriptor)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_stops_the_driver_cleanly_and_its_code_is_the_commands(
    submitted: "subprocess.Popen[str]", number: signal.Signals
) -> None:
    driver, java = driver_and_java(submitted)
    submitted.send_signal(number)
    assert line(submitted) == "driver stops cleanly\n"
    assert submitted.wait(60) == 7
    assert gone(driver) and gone(java)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells of the death of a parent")
def test_the_driver_does_not_outlive_a_killed_command(submitted: "subprocess.Popen[str]") -> None:
    driver, java = driver_and_java(submitted)
    submitted.kill()
    assert gone(java) and gone(driver)


@pytest.mark.parametrize("submitted", ["waiting"], indirect=True)
def test_a_signal_before_there_is_a_driver_ends_spark_submit(submitted: "subprocess.Popen[str]") -> None:
    assert line(submitted) == "java waits\n"
    submitted.send_signal(signal.SIGTERM)
    assert submitted.wait(60) == 128 + signal.SIGTERM
