"""The incident of docs/dashboard.md, as an operator goes through it; `make pictures` draws it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.api.dashboard.conftest import Pages, serve
from tests.worlds.waiting import until

#: The other pages, by the names of their pictures.
PLACES = {
    "limits": "/registry",
    "budget": "/budgets/draft?whatIf=1",
    "announcements": "/deliveries",
    "schedules": "/schedules",
    "workers": "/workers",
    "audit": "/audit",
}

Picture = Callable[[str], None]


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pages]:
    """A server whose runs say what such runs say."""
    with serve(tmp_path_factory.mktemp("incident"), DASHBOARD_TEST_TEXT="letters of May") as it:
        yield it


@pytest.fixture
def tab(browser: Browser, pages: Pages) -> Iterator[Page]:
    context = browser.new_context(base_url=pages.api.url, viewport={"width": 1100, "height": 720})
    yield context.new_page()
    context.close()


@pytest.fixture
def picture(tab: Page) -> Picture:
    """Takes a picture for the documentation, where one is asked for."""
    folder = os.environ.get("DASHBOARD_PICTURES")

    def take(name: str) -> None:
        if folder:
            tab.screenshot(path=Path(folder) / f"{name}.png", animations="disabled")

    return take


@pytest.mark.nightly  # what it does is done in test_forms.py and test_open_pages.py, each by itself
def test_an_incident_goes_from_the_skull_to_the_new_run(
    pages: Pages, tab: Page, picture: Picture
) -> None:
    blocked, killed, held = (pages.start(mode) for mode in ("gate", "kill", "hold"))
    away = pages.folder / "desk-is-away"
    away.touch()
    dead, retrying = pages.start("dead"), pages.start("retry")
    done = [pages.start("ok", idempotencyKey=f"done-{number}") for number in range(3)]
    pages.wait(dead, lambda run: run["deadLettered"])
    until(lambda: pages.api.call("/deliveries?state=given_up")["deliveries"])
    away.unlink()
    pages.wait(blocked, lambda run: run["status"] == "BLOCKED")
    pages.wait(retrying, lambda run: run["status"] == "ERROR")
    pages.wait(killed, lambda run: run["steps"]["draft"]["attempts"]["failed"])
    for run_id in done:
        pages.wait(run_id, lambda run: run["status"] == "COMPLETED")
    pages.let_go(killed)
    tab.goto("/schedules")
    tab.get_by_role("button", name="Start a run now").click()
    pages.wait(killed, lambda run: run["status"] == "COMPLETED")

    tab.goto("/")
    expect(tab.locator(".chip.dead svg.skull").first).to_be_visible()
    picture("runs")
    tab.goto(f"/runs/{killed}")
    expect(tab.locator("rect.spared").first).to_be_attached()
    picture("run")
    for name, path in PLACES.items():
        tab.goto(path)
        picture(name)

    tab.goto("/?deadLettered=true")
    tab.get_by_role("button", name="Count first").click()
    expect(tab.get_by_role("button", name="Recreate 1 run")).to_be_visible()
    picture("batch")
    tab.goto("/?deadLettered=true")
    picture("incident-1")
    tab.get_by_role("link", name=dead).click()
    expect(tab.get_by_text("Traceback", exact=True)).to_be_visible()
    tab.get_by_label("why").first.fill("The source has moved")
    tab.get_by_label("another input").fill('{"mode": "ok"}')
    picture("incident-2")
    tab.get_by_role("button", name="Recreate this run").click()
    expect(tab.locator(".headline .chip")).to_contain_text("completed")
    expect(tab.get_by_role("link", name=dead)).to_be_visible()
    picture("incident-3")
    pages.let_go(held)
