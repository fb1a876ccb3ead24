"""A server with a past, a browser for each module, and a new page for each test."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext

from support.lake_files import write_small_lake
from support.page.browser import MISSING, Opened, browser_path, driver, started
from support.page.plant import write_past
from support.page.scenes import ALERTS, CLIENT
from support.page.served import PageServer

PAST_MINUTES = 30


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrowserContext]:
    """For one module: as long as it runs, no other event loop can run in this thread, and other tests need one."""
    if browser_path() is None:
        pytest.skip(MISSING)
    with (
        driver() as playwright,
        started(playwright, tmp_path_factory.mktemp("profile")) as context,
    ):
        yield context


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("server")


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PageServer]:
    """A plant with half an hour of history and a small lake.

    Tests of several modules publish to it, each below a topic of its own.
    """
    directory = tmp_path_factory.mktemp("plant")
    write_past(directory / "data", time.time_ns() // 1000 - 1_000_000, PAST_MINUTES)
    write_small_lake(directory / "lake")
    with PageServer(directory, {"http.lake": str(directory / "lake"), "server.alerts": json.dumps(ALERTS)}) as server:
        yield server


@pytest.fixture
def opened(context: BrowserContext, server: PageServer) -> Iterator[Opened]:
    page = context.new_page()
    opened = Opened(page, server)
    yield opened
    page.close()
    assert opened.wrong == []


@pytest.fixture
def scada(server: PageServer) -> Iterator[None]:
    """A client that subscribes, for what the page shows of one client."""
    client = server.client(CLIENT)
    client.subscribe([("plant/+/+/press/#", 1), ("a-filter/that-is-long/" + "level/" * 20, 2)])
    while len(server.ask(f"subscriptions?client_id={CLIENT}")["items"]) < 2:
        pass
    yield
    client.disconnect()
    client.loop_stop()
