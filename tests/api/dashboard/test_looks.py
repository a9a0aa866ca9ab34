"""Every page for every reader: by eye in both themes, narrow, by keyboard, and by ear."""

from __future__ import annotations

import html
import re
import shlex
from typing import Any

import click
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Locator, Page, expect

from leasehold.cli.commands import program
from leasehold.domain.signal_link import SignalLink
from tests.api.dashboard.catalog import REASON
from tests.api.dashboard.conftest import LINK_SECRET, Pages
from tests.api.dashboard.reader import Reader

PATHS = (
    "/",
    "/?deadLettered=true",
    "/?status=nonsense",
    "/runs/{dead}",
    "/runs/{gate}",
    "/runs/{done}",
    "/runs/{asked}",
    "/runs/{items}",
    "/schedules",
    "{link}",
    "/registry",
    "/budgets",
    "/budgets/draft",
    "/deliveries",
    "/workers",
    "/audit",
    "/nowhere",
)


@pytest.fixture(scope="module")
def paths(pages: Pages) -> list[str]:
    """All pages, with runs of each kind on them."""
    runs = {mode: pages.start(mode) for mode in ("dead", "gate", "ok")}
    pages.wait(runs["dead"], lambda run: run["deadLettered"])
    pages.wait(runs["gate"], lambda run: run["status"] == "BLOCKED")
    pages.wait(runs["ok"], lambda run: run["status"] == "COMPLETED")
    asked, items = pages.begin("asked", {}), pages.begin("items", {})
    life = pages.wait(asked, lambda run: run["status"] == "BLOCKED")["life"]
    link = SignalLink(asked, life, "approval", 10**11).address("", LINK_SECRET)
    pages.wait(items, lambda run: run.get("children"))
    pages.post("/pauses:set", {"step": "judge", "why": REASON})
    pages.post("/schedules/nightly:trigger", {})
    names = {"dead": runs["dead"], "gate": runs["gate"], "done": runs["ok"]}
    return [path.format(**names, asked=asked, items=items, link=link) for path in PATHS]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_on_any_page(
    browser: Browser, pages: Pages, paths: list[str], theme: Any
) -> None:
    context = browser.new_context(base_url=pages.api.url, color_scheme=theme)
    tab = context.new_page()
    found = {}
    for path in paths:
        tab.goto(path)
        tab.evaluate("document.querySelectorAll('details').forEach(it => { it.open = true; })")
        assert "owned" not in tab.title(), path  # texts of strangers stand on all of them
        result = Axe().run(tab)
        if result.violations_count:
            found[path] = result.generate_report()
    context.close()

    assert found == {}


def test_no_page_is_wider_than_a_small_screen(
    browser: Browser, pages: Pages, paths: list[str]
) -> None:
    context = browser.new_context(base_url=pages.api.url, viewport={"width": 320, "height": 640})
    tab = context.new_page()
    wide = {}
    for path in paths:
        tab.goto(path)
        tab.evaluate("document.querySelectorAll('details').forEach(it => { it.open = true; })")
        width = tab.evaluate("document.documentElement.scrollWidth")
        if width > 320:
            wide[path] = width
    context.close()

    assert wide == {}


def test_no_text_of_a_stranger_widens_turns_or_hides_what_stands_beside_it(
    browser: Browser, pages: Pages, paths: list[str]
) -> None:
    """Long words are broken where they stand, and what is not seen is spelled out."""
    context = browser.new_context(base_url=pages.api.url, viewport={"width": 900, "height": 640})
    tab = context.new_page()
    wrong = {}
    for path in paths:
        tab.goto(path)
        found = tab.evaluate(
            """() => [...document.querySelectorAll('.scroll')]
              .filter(it => it.scrollWidth > it.clientWidth)
              .map(it => it.querySelector('caption').textContent)
              .concat(document.documentElement.outerHTML
                .match(/[\\u200b\\u202a-\\u202e\\u2066-\\u2069\\x1b\\x80-\\x9f]/g) ?? [])"""
        )
        if found:
            wrong[path] = found
    context.close()

    assert wrong == {}


def test_every_command_of_a_page_is_one(pages: Pages, paths: list[str]) -> None:
    """A person pastes it, with what its capital words stand for."""
    reader = Reader(pages)
    texts = {path: reader.open(path)[2] for path in (*paths, "/?status=BLOCKED")}
    count = {"filter": "status=BLOCKED", "action": "approve", "limit": 1000, "dryRun": "true"}
    texts["batch"] = reader.send("/runs:batch", **count)[2]
    found = {
        html.unescape(command): path
        for path, text in texts.items()
        for command in re.findall(r'<code class="command">(.*?)</code>', text)
    }
    wrong = {}
    for command, path in found.items():
        name, *words = shlex.split(command)[1:]
        words = ["2026-11-20" if one in ("FIRST", "LAST") else one for one in words]
        words = ["1" if one == "VALUE" else one for one in words]
        known = program.get_command(click.Context(program), name)
        try:
            assert known is not None
            known.make_context(name, words)
        except (click.ClickException, AssertionError) as error:
            wrong[f"{path}: {command}"] = str(error)

    assert len(found) > 40
    assert wrong == {}


def test_a_run_is_approved_by_keyboard_alone(pages: Pages, tab: Page) -> None:
    run_id = pages.start("gate")
    pages.wait(run_id, lambda run: run["status"] == "BLOCKED")
    tab.goto(f"/runs/{run_id}")
    tab.keyboard.press("Tab")
    expect(tab.get_by_role("link", name="Skip to the content")).to_be_focused()
    tab.keyboard.press("Enter")

    for _ in range(40):
        tab.keyboard.press("Tab")
        if tab.evaluate("document.activeElement.textContent.trim()") == "Approve this run":
            break
    tab.keyboard.press("Enter")

    expect(tab.get_by_role("status").first).to_have_text("The output is handed off.")


def press(tab: Page, what: Locator, *keys: str, text: str = "") -> None:
    """Go there with the tab key, type the text, and press the keys."""
    for _ in range(200):
        tab.keyboard.press("Tab")
        if what.evaluate("it => it === document.activeElement"):
            break
    expect(what).to_be_focused()
    tab.keyboard.type(text)
    for key in keys:
        tab.keyboard.press(key)


@pytest.mark.parametrize("has_script", [True, False], ids=["script", "no-script"])
def test_all_that_a_person_can_do_is_done_by_keyboard_alone(
    browser: Browser, pages: Pages, *, has_script: bool
) -> None:
    """Also without a script: schedules, overrides, pauses, a signal, and the way to a lane."""
    asked, items = pages.begin("asked", {}), pages.begin("items", {})
    pages.wait(asked, lambda run: run["status"] == "BLOCKED")
    pages.wait(items, lambda run: run.get("children"))
    context = browser.new_context(base_url=pages.api.url, java_script_enabled=has_script)
    tab = context.new_page()
    said = tab.get_by_role("status").first

    tab.goto("/schedules")
    press(tab, tab.locator("summary").filter(has_text="Pause it…"), "Enter")
    press(tab, tab.get_by_label("why"), "Enter", text="a holiday")
    expect(said).to_have_text("The schedule is paused: its times are skipped.")
    press(tab, tab.get_by_role("button", name="Resume nightly"), "Enter")
    expect(said).to_have_text("The schedule is resumed.")
    press(tab, tab.get_by_role("button", name="Start a run now"), "Space")
    expect(said).to_have_text("A run is started.")

    tab.goto("/registry")
    row = tab.get_by_role("row").filter(has=tab.get_by_role("link", name="publish", exact=True))
    press(tab, row.locator("summary"), "Enter")
    press(tab, row.get_by_label("agent timeout"), text="77")
    press(tab, row.get_by_label("why"), "Enter", text="a slow day")
    expect(said).to_contain_text("The override is set")
    expect(row).to_contain_text("timeout 1 min 17 s")
    press(tab, row.get_by_role("button", name="Clear it"), "Enter")
    expect(said).to_contain_text("The override is cleared")
    press(tab, tab.locator("summary").filter(has_text="Pause one, or all…"), "Enter")
    press(tab, tab.locator("form[action='/pauses:set'] select"), text="imp")
    press(tab, tab.locator("form[action='/pauses:set'] input[name=why]").first, text="a look")
    press(tab, tab.get_by_role("button", name="Pause the step"), "Space")
    expect(tab.get_by_text("step improve paused")).to_be_visible()
    press(tab, tab.get_by_role("button", name="Resume step improve"), "Enter")
    expect(tab.get_by_text("step improve paused")).to_have_count(0)

    tab.goto(f"/runs/{items}")
    press(tab, tab.get_by_role("link", name="lane 1"), "Enter")
    expect(tab.get_by_role("heading", level=1)).to_contain_text("Run l-")
    tab.goto(f"/runs/{asked}")
    press(tab, tab.get_by_label("the signal approval"), "Tab", "Enter", text='{"approved": true}')
    expect(said).to_have_text("The signal is sent.")
    pages.wait(asked, lambda run: run["status"] == "COMPLETED")
    context.close()
    pages.let_go(items)


def test_the_first_load_of_fifty_runs_fits_in_40_kilobytes(pages: Pages, tab: Page) -> None:
    for number in range(50):
        pages.start("retry" if number % 5 == 0 else "ok", idempotencyKey=f"first-load-{number}")
    session = tab.context.new_cdp_session(tab)
    session.send("Network.enable")
    sizes: list[int] = []
    session.on("Network.loadingFinished", lambda it: sizes.append(it["encodedDataLength"]))

    tab.goto("/?pipeline=letters", wait_until="networkidle")

    assert tab.get_by_role("row").count() >= 50
    assert 0 < sum(sizes) <= 40 * 1024
