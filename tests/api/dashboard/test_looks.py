"""Every page for every reader: by eye in both themes, narrow, by keyboard, and by ear."""

from __future__ import annotations

import html
import re
import shlex
from collections.abc import Iterator
from typing import Literal, NamedTuple

import click
import pytest
from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import Browser, Locator, Page, expect

from leasehold.cli.commands import program
from leasehold.dashboard.rendering import static_file
from leasehold.domain.signal_link import SignalLink
from tests.api.dashboard.catalog import REASON
from tests.api.dashboard.conftest import LINK_SECRET, Pages
from tests.api.dashboard.reader import Reader

PATHS = (
    "/",
    "/runs/{dead}",
    "/runs/{gate}",
    "/runs/{asked}",
    "/runs/{items}",
    "/schedules",
    "{link}",
    "/registry",
    "/budgets",
    "/deliveries",
    "/workers",
    "/audit",
    "/nowhere",
)
#: Pages whose parts are on those above.
ALIKE = ("/?deadLettered=true", "/?status=nonsense", "/runs/{done}", "/budgets/draft")

#: The colours of a theme that texts have, on each of its grounds, and how they have to differ.
_OF_TEXTS = ("front", "quiet", "accent", "good", "warn", "bad", "info", "spare")
_GROUNDS = ("back", "card")
_LEAST_CONTRAST = 4.5

#: The width of a small screen.
_SMALL = 320
#: The rules of axe but for colours, which take it longer than all others: see `_PALE`.
_RULES = {"resultTypes": ["violations"], "rules": {"color-contrast": {"enabled": False}}}
#: What axe finds on the page with everything opened.
_LOOK = """async rules => {
  document.querySelectorAll('details').forEach(it => { it.open = true; });
  return (await axe.run(rules)).violations
    .map(it => `${it.id}: ${it.help}: ${it.nodes.map(node => node.target)}`);
}"""
#: The captions of tables that are wider than the page, and characters that turn or hide a text.
_OUT_OF_PLACE = """() => [...document.querySelectorAll('.scroll')]
  .filter(it => it.scrollWidth > it.clientWidth)
  .map(it => it.querySelector('caption').textContent)
  .concat(document.documentElement.outerHTML
    .match(/[\\u200b\\u202a-\\u202e\\u2066-\\u2069\\x1b\\x80-\\x9f]/g) ?? [])"""
#: The texts whose colour is too close to the grounds below them, as the page shows both.
_PALE = """least => {
  const parts = text => (text.match(/[\\d.]+/g) ?? []).map(Number);
  const over = ([r, g, b, a = 1], below) => [r, g, b].map((it, at) => it * a + below[at] * (1 - a));
  const ground = it => it ? over(parts(getComputedStyle(it).backgroundColor),
                                 ground(it.parentElement)) : [255, 255, 255];
  const faint = it => it ? getComputedStyle(it).opacity * faint(it.parentElement) : 1;
  const bright = colour => colour.map(it => it / 255)
    .map(it => it <= 0.04045 ? it / 12.92 : ((it + 0.055) / 1.055) ** 2.4)
    .reduce((sum, it, at) => sum + it * [0.2126, 0.7152, 0.0722][at], 0.05);
  const found = new Set();
  for (const it of document.body.querySelectorAll('*')) {
    const hasText = [...it.childNodes].some(one => one.nodeType === 3 && one.data.trim());
    if (!(hasText || it.matches('input, textarea')) || !it.checkVisibility()) continue;
    const below = ground(it);
    const [r, g, b, a = 1] = parts(getComputedStyle(it).color);
    const both = [below, over([r, g, b, a * faint(it)], below)].map(bright);
    const contrast = Math.max(...both) / Math.min(...both);
    if (contrast < least)
      found.add(`${it.localName}.${it.className}: ${contrast}: ${it.textContent.slice(0, 40)}`);
  }
  return [...found];
}"""


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
    return [path.format(**names, asked=asked, items=items, link=link) for path in PATHS + ALIKE]


class Look(NamedTuple):
    """What is wrong with a page, as it was looked at in one tab: nothing, if all is well."""

    path: str
    by_axe: list[str]
    pale: dict[str, list[str]]
    too_wide: int
    out_of_place: list[str]


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(slice(len(PATHS)), id="each"),
        pytest.param(slice(len(PATHS), None), id="alike", marks=pytest.mark.nightly),
    ],
)
def looks(
    browser: Browser, pages: Pages, paths: list[str], request: pytest.FixtureRequest
) -> list[Look]:
    """A look at each page: by axe, in both themes, on a small screen, and for long texts."""
    context = browser.new_context(base_url=pages.api.url, color_scheme="light")
    context.add_init_script(AXE_SCRIPT)
    tab = context.new_page()
    themes: list[Literal["light", "dark"]] = ["light", "dark"]
    looks = []
    for path in paths[request.param]:
        tab.set_viewport_size({"width": 900, "height": 640})
        tab.goto(path)
        assert "owned" not in tab.title(), path  # texts of strangers stand on all of them
        by_axe = tab.evaluate(_LOOK, _RULES)
        out_of_place = tab.evaluate(_OUT_OF_PLACE)
        pale = {themes[0]: tab.evaluate(_PALE, _LEAST_CONTRAST)}
        themes.reverse()  # the next page begins with the theme of this one
        tab.emulate_media(color_scheme=themes[0])
        pale[themes[0]] = tab.evaluate(_PALE, _LEAST_CONTRAST)
        tab.set_viewport_size({"width": _SMALL, "height": 640})
        width = tab.evaluate("document.documentElement.scrollWidth")
        looks.append(Look(path, by_axe, pale, max(0, width - _SMALL), out_of_place))
    context.close()
    return looks


def test_axe_finds_nothing_on_any_page(looks: list[Look]) -> None:
    assert {look.path: look.by_axe for look in looks if look.by_axe} == {}


def test_no_colour_of_a_text_is_too_close_to_its_ground_on_any_page(looks: list[Look]) -> None:
    """In both themes, as a page puts them together: a text or its ground may be see-through."""
    found = {(look.path, theme): pale for look in looks for theme, pale in look.pale.items()}
    assert {place: pale for place, pale in found.items() if pale} == {}


@pytest.mark.nightly  # the gate measures the same itself, in a tenth of the time
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_no_colour_too_close_to_its_ground_on_any_page(
    browser: Browser, pages: Pages, paths: list[str], theme: Literal["light", "dark"]
) -> None:
    context = browser.new_context(base_url=pages.api.url, color_scheme=theme)
    context.add_init_script(AXE_SCRIPT)
    tab = context.new_page()
    found = {}
    for path in paths:
        tab.goto(path)
        found[path] = tab.evaluate(_LOOK, {"runOnly": ["color-contrast"]})
    context.close()
    assert {path: words for path, words in found.items() if words} == {}


def test_each_colour_of_a_text_differs_from_its_grounds_in_both_themes() -> None:
    """Also one that no page of these tests has; and no rule has a colour that is of no theme."""
    style, _ = static_file("dashboard.css")
    themes, rules = style.decode().split("* { box-sizing", 1)
    assert re.findall(r"#[0-9a-fA-F]{3,8}\b(?![^{}]*\{)|\brgba?\(|\bhsla?\(", rules) == []

    light, dark = (
        dict(re.findall(r"--(\w+): (#\w{6});", theme)) for theme in themes.split("@media", 1)
    )
    assert set(light) == set(dark)
    wrong = [
        (text, ground, round(contrast, 1))
        for theme in (light, dark)
        for text in _OF_TEXTS
        for ground in _GROUNDS
        if (contrast := _contrast(theme[text], theme[ground])) < _LEAST_CONTRAST
    ]
    assert wrong == []


def _contrast(one: str, other: str) -> float:
    """Return the contrast of two colours, as WCAG 2 has it."""
    bright, dim = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (bright + 0.05) / (dim + 0.05)


def _luminance(colour: str) -> float:
    parts = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    red, green, blue = (
        it / 12.92 if it <= 0.04045 else ((it + 0.055) / 1.055) ** 2.4 for it in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


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
    texts = {path: reader.open(path)[2] for path in (*paths, "/?status=BLOCKED", "/?label=a:b%20c")}
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
    """Go there with the tab key from what stands before it, type the text, and press the keys."""
    what.focus()
    tab.keyboard.press("Shift+Tab")
    expect(what).not_to_be_focused()
    tab.keyboard.press("Tab")
    expect(what).to_be_focused()
    tab.keyboard.type(text)
    for key in keys:
        tab.keyboard.press(key)


@pytest.fixture(
    params=[
        pytest.param(True, id="script", marks=pytest.mark.nightly),
        pytest.param(False, id="none"),
    ]
)
def keyboard(browser: Browser, pages: Pages, request: pytest.FixtureRequest) -> Iterator[Page]:
    """A tab with and without a script."""
    context = browser.new_context(base_url=pages.api.url, java_script_enabled=request.param)
    yield context.new_page()
    context.close()


def test_a_person_pauses_and_signals_by_keyboard_alone(pages: Pages, keyboard: Page) -> None:
    """Also without a script: what is opened, chosen, filled in and sent."""
    asked = pages.begin("asked", {})
    pages.wait(asked, lambda run: run["status"] == "BLOCKED")
    tab = keyboard
    said = tab.get_by_role("status").first

    tab.goto("/schedules")
    press(tab, tab.locator("summary").filter(has_text="Pause it…"), "Enter")
    press(tab, tab.get_by_label("why"), "Enter", text="a holiday")
    expect(said).to_have_text("The schedule is paused: its times are skipped.")
    pages.post("/schedules/nightly:resume", {})

    tab.goto("/registry")
    press(tab, tab.locator("summary").filter(has_text="Pause one, or all…"), "Enter")
    press(tab, tab.locator("form[action='/pauses:set'] select"), text="imp")
    press(tab, tab.locator("form[action='/pauses:set'] input[name=why]").first, text="a look")
    press(tab, tab.get_by_role("button", name="Pause the step"), "Space")
    expect(tab.get_by_text("step improve paused")).to_be_visible()

    tab.goto(f"/runs/{asked}")
    press(tab, tab.get_by_label("the signal approval"), "Tab", "Enter", text='{"approved": true}')
    expect(said).to_have_text("The signal is sent.")
    pages.wait(asked, lambda run: run["status"] == "COMPLETED")


@pytest.mark.nightly  # forms and links as those above
def test_all_else_that_a_person_can_do_is_done_by_keyboard_alone(
    pages: Pages, keyboard: Page
) -> None:
    """Schedules and steps that go on, overrides, and the way to a lane."""
    items = pages.begin("items", {})
    pages.wait(items, lambda run: run.get("children"))
    pages.post("/schedules/nightly:pause", {"why": "a holiday"})
    pages.post("/pauses:set", {"step": "improve", "why": "a look"})
    tab = keyboard
    said = tab.get_by_role("status").first

    tab.goto("/schedules")
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
    press(tab, tab.get_by_role("button", name="Resume step improve"), "Enter")
    expect(tab.get_by_text("step improve paused")).to_have_count(0)

    tab.goto(f"/runs/{items}")
    press(tab, tab.get_by_role("link", name="lane 1"), "Enter")
    expect(tab.get_by_role("heading", level=1)).to_contain_text("Run l-")
    pages.let_go(items)
