"""Every page for every reader: by eye in both themes, narrow, by keyboard, and by ear."""

from __future__ import annotations

import html
import re
import shlex
from typing import Any, NamedTuple

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

#: The width of a small screen.
_SMALL = 320
#: The captions of tables that are wider than the page, and characters that turn or hide a text.
_OUT_OF_PLACE = """() => [...document.querySelectorAll('.scroll')]
  .filter(it => it.scrollWidth > it.clientWidth)
  .map(it => it.querySelector('caption').textContent)
  .concat(document.documentElement.outerHTML
    .match(/[\\u200b\\u202a-\\u202e\\u2066-\\u2069\\x1b\\x80-\\x9f]/g) ?? [])"""


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


class Look(NamedTuple):
    """What is wrong with a page, as it was looked at in one tab: nothing, if all is well."""

    path: str
    light: str
    dark: str
    too_wide: int
    out_of_place: list[str]


@pytest.fixture(scope="module")
def looks(browser: Browser, pages: Pages, paths: list[str]) -> list[Look]:
    """A look at each page: by axe in both themes, on a small screen, and for long texts."""
    context = browser.new_context(base_url=pages.api.url)
    tab = context.new_page()
    looks = []
    for path in paths:
        tab.set_viewport_size({"width": 900, "height": 640})
        tab.emulate_media(color_scheme="light")
        tab.goto(path)
        tab.evaluate("document.querySelectorAll('details').forEach(it => { it.open = true; })")
        assert "owned" not in tab.title(), path  # texts of strangers stand on all of them
        light = _axe(tab)
        tab.emulate_media(color_scheme="dark")
        dark = _axe(tab, runOnly=["color-contrast"])  # a theme has its own colours, and no more
        out_of_place = tab.evaluate(_OUT_OF_PLACE)
        tab.set_viewport_size({"width": _SMALL, "height": 640})
        width = tab.evaluate("document.documentElement.scrollWidth")
        looks.append(Look(path, light, dark, max(0, width - _SMALL), out_of_place))
    context.close()
    return looks


def _axe(tab: Page, **options: Any) -> str:
    """Return what axe finds on the page."""
    result = Axe().run(tab, options={"resultTypes": ["violations"], **options})
    return str(result.generate_report()) if result.violations_count else ""


def test_axe_finds_nothing_on_any_page(looks: list[Look]) -> None:
    assert {look.path: look.light for look in looks if look.light} == {}
    assert {look.path: look.dark for look in looks if look.dark} == {}


def test_no_page_is_wider_than_a_small_screen(looks: list[Look]) -> None:
    assert {look.path: look.too_wide for look in looks if look.too_wide} == {}


def test_no_text_of_a_stranger_widens_turns_or_hides_what_stands_beside_it(
    looks: list[Look],
) -> None:
    """Long words are broken where they stand, and what is not seen is spelled out."""
    assert {look.path: look.out_of_place for look in looks if look.out_of_place} == {}


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


@pytest.mark.parametrize(
    "has_script",
    [pytest.param(True, id="script", marks=pytest.mark.nightly), pytest.param(False, id="none")],
)
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
