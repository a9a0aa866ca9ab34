"""A real browser, and a real server whose pages it opens."""

from __future__ import annotations

import json
import os
import shutil
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import (
    Browser,
    BrowserContext,
    Page,
    Request,
    expect,
    sync_playwright,
)

from tests.api.dashboard.catalog import HOSTILE, MARKUP
from tests.worlds.bundles import Api
from tests.worlds.servers import servers
from tests.worlds.waiting import until

expect.set_options(timeout=30_000)  # a busy machine is slow, and not wrong

#: The same engine in less of a browser comes first: no profile, extensions or windows.
_NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
#: Longer than a page waits before it looks again, in milliseconds of its clock.
LATER = 12_000
LINK_SECRET = "-".join(["of", "links"] * 4)
#: A tab shares little memory in a container. All tabs have a process, and nothing draws for itself.
_OPTIONS = [
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--in-process-gpu",
    "--renderer-process-limit=1",
]


@pytest.fixture(scope="module")  # its loop of asyncio would run beside the tests of other files
def browser() -> Iterator[Browser]:
    """Chromium as the system has it."""
    path = next(filter(None, map(shutil.which, _NAMES)), None)
    if path is None:
        words = "there is no Chromium: NO PAGE OF THE DASHBOARD IS TESTED; apt install chromium"
        if os.environ.get("LEASEHOLD_REQUIRE_EMULATORS") == "1":
            pytest.fail(words)
        pytest.skip(words)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=_OPTIONS)
        yield browser
        browser.close()


class Pages:
    """A server, its runs, and tabs of a browser on it."""

    def __init__(self, api: Api, folder: Path, text: str) -> None:
        self.api, self.folder, self.text = api, folder, text

    def start(self, mode: str, **options: Any) -> str:
        """Start a run; labels are a stranger's, too."""
        labels = {"mode": mode, "team": self.text[:60]}
        return self.api.start({"mode": mode}, pipeline="letters", labels=labels, **options)

    def begin(self, pipeline: str, given: Any) -> str:
        """Start a run of another pipeline."""
        return self.api.start(given, pipeline=pipeline)

    def let_go(self, run_id: str) -> None:
        """Let the handler of a run that is held end."""
        (self.folder / f"go-{run_id}").touch()

    def run(self, run_id: str) -> Any:
        return self.api.call(f"/runs/{run_id}")

    def wait(self, run_id: str, fits: Callable[[Any], object]) -> Any:
        """Wait until the run is as it is wanted; return its manifest."""
        return until(lambda: run if fits(run := self.run(run_id)) else None)

    def post(self, path: str, body: Any) -> Any:
        request = urllib.request.Request(  # noqa: S310 - our own server
            f"{self.api.url}{path}",
            json.dumps(body).encode(),
            {"Content-Type": "application/json", "X-Leasehold-Actor": f"ann {MARKUP}"},
        )
        with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
            return json.load(answer)


@contextmanager
def serve(folder: Path, **environ: str) -> Iterator[Pages]:
    """Give a server with its runs; none of what it was asked may have failed within it."""
    names = {
        "LEASEHOLD_CATALOG": "tests.api.dashboard.catalog",
        "LEASEHOLD_LINK_SECRET": LINK_SECRET,
        "LEASEHOLD_ISOLATION": "",  # some handlers kill their process
        "PIPELINE_HEARTBEAT_S": "0.5",
    }
    with servers(folder) as begin:
        process, api = begin(**names | environ)
        yield Pages(api, folder, environ.get("DASHBOARD_TEST_TEXT", HOSTILE))
        process.kill()
        _, said = process.communicate()
        assert "Traceback" not in said, said


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pages]:
    """A server that all tests of a file share; each has runs of its own."""
    with serve(tmp_path_factory.mktemp("dashboard")) as pages:
        yield pages


@pytest.fixture
def context(browser: Browser, pages: Pages) -> Iterator[BrowserContext]:
    """A person's browser: no page of it may ask another host, or have an error in its script."""
    context = browser.new_context(base_url=pages.api.url)
    asked: list[str] = []
    wrong: list[str] = []

    def note(request: Request) -> None:
        if not request.url.startswith((pages.api.url, "data:")):
            asked.append(request.url)

    context.on("request", note)
    context.on("weberror", lambda error: wrong.append(str(error.error)))
    yield context
    context.close()
    assert (asked, wrong) == ([], [])


@pytest.fixture
def tab(context: BrowserContext) -> Page:
    """A tab."""
    page = context.new_page()
    page.set_default_timeout(20_000)
    return page
