"""What every test may see of the run it is part of, and logs written with the server's own writer."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

import embermq
from embermq.compiled import OUT_OF_DATE, form, is_wanted_pure, read_manifest
from support.recorded import Recorder

# How long one example takes depends on what else the machine does.
settings.register_profile("tests", deadline=None)
settings.load_profile("tests")

COLLECTED = pytest.StashKey[list[pytest.Item]]()


@pytest.hookimpl(trylast=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Say at the head which form runs, also with -q: after an edit of a hot module, all run interpreted."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and not hasattr(session.config, "workerinput"):
        _, is_fresh = read_manifest(Path(embermq.__file__).parent)
        is_outdated = not is_fresh and not is_wanted_pure()
        reporter.write_line(f"embermq: {OUT_OF_DATE if is_outdated else form()}", yellow=is_outdated, bold=is_outdated)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep what was collected before -k and -m take tests away."""
    config.stash[COLLECTED] = list(items)
    if hasattr(config, "workerinput"):  # one of several processes
        # What needs a time limit of its own takes long: were it begun last, all would wait for that one process.
        items.sort(key=lambda item: item.get_closest_marker("timeout") is None)


@pytest.fixture
def every_test(pytestconfig: pytest.Config) -> list[pytest.Item]:
    """All tests of the project, whatever -k chose among them; skips where only some files were collected."""
    tests = Path(__file__).resolve().parent
    roots = {(pytestconfig.invocation_params.dir / argument).resolve() for argument in pytestconfig.args}
    if not roots & {tests, tests.parent}:
        pytest.skip("only part of the tests was collected")
    return pytestconfig.stash[COLLECTED]


@pytest.fixture
def recorder(tmp_path: Path) -> Iterator[Callable[..., Recorder]]:
    """Opens logs to write: `recorder()` opens the one in `tmp_path / "data"`."""
    opened: list[Recorder] = []

    def open_log(name: str = "data", **options: int) -> Recorder:
        made = Recorder(tmp_path / name, **options)
        opened.append(made)
        return made

    yield open_log
    for made in opened:
        made.close()
