"""What every test may see of the run it is part of."""

from pathlib import Path

import pytest
from hypothesis import settings

# How long one example takes depends on what else the machine does.
settings.register_profile("tests", deadline=None)
settings.load_profile("tests")

COLLECTED = pytest.StashKey[list[pytest.Item]]()


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
