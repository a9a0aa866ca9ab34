"""The requests of a page while it is open."""

from __future__ import annotations

import contextlib
import sqlite3

from playwright.sync_api import Page, expect

from tests.api.dashboard.conftest import Pages


def test_a_paused_or_hidden_page_asks_for_nothing(pages: Pages, tab: Page) -> None:
    run_id = pages.start("hold")
    tab.clock.install()
    tab.goto(f"/runs/{run_id}", wait_until="networkidle")
    asked: list[str] = []
    tab.on("request", lambda request: asked.append(request.url))

    tab.get_by_role("button", name="Live: pause").click()
    asked.clear()  # it may just have looked
    tab.clock.run_for(60_000)
    assert asked == []

    with tab.expect_request(f"**/runs/{run_id}"):
        tab.get_by_role("button", name="Paused: look again").click()
    tab.evaluate(
        "Object.defineProperty(document, 'hidden', {value: true, configurable: true});"
        "document.dispatchEvent(new Event('visibilitychange'));"
    )
    asked.clear()
    tab.clock.run_for(60_000)
    assert asked == []
    pages.let_go(run_id)


def test_a_poll_that_finds_nothing_new_is_a_304_and_moves_nothing(pages: Pages, tab: Page) -> None:
    run_id = pages.start("retry")
    pages.wait(run_id, lambda run: run["status"] == "ERROR")
    tab.goto(f"/runs/{run_id}")
    tab.get_by_text("Retry…").click()
    tab.get_by_label("a note for the handler").fill("half a sen")
    tab.evaluate("window.scrollTo(0, 200)")

    with tab.expect_response(lambda answer: answer.status == 304):
        pass

    expect(tab.get_by_label("a note for the handler")).to_have_value("half a sen")
    expect(tab.get_by_label("a note for the handler")).to_be_focused()
    assert tab.evaluate("window.scrollY") == 200


def test_the_forms_of_an_open_page_are_those_of_what_it_shows(pages: Pages, tab: Page) -> None:
    """A form that was left as it was is refused, though its page shows the run as it is now."""
    run_id = pages.start("hold")
    first = pages.wait(run_id, lambda run: run["steps"]["draft"]["progress"])
    tab.goto(f"/runs/{run_id}")
    generation = tab.locator("#act-cancel [name=generation]")
    expect(generation).to_have_value(str(first["dispatch"]["generation"]))
    for operation in ("pause", "resume"):
        pages.post(f"/runs/{run_id}:{operation}", {"reason": "a break"})
    pages.let_go(run_id)

    expect(tab.locator(".headline .chip")).to_contain_text("completed")
    expect(tab.locator("#act-cancel, #act-pause")).to_have_count(0)
    last = pages.run(run_id)["dispatch"]["generation"]
    assert last > first["dispatch"]["generation"]
    expect(tab.locator("#act-recreate [name=generation]")).to_have_value(str(last))

    again = pages.start("gate")
    pages.wait(again, lambda run: run["status"] == "BLOCKED")
    tab.goto(f"/runs/{again}")
    generation = tab.locator("#act-approve [name=generation]")
    before = generation.input_value()
    pages.post(f"/runs/{again}:retry", {"reason": "another look"})
    expect(generation).not_to_have_value(before)
    pages.wait(again, lambda run: run["status"] == "BLOCKED")
    expect(generation).to_have_value(str(pages.run(again)["dispatch"]["generation"]))
    tab.get_by_role("button", name="Approve this run").click()
    expect(tab.get_by_role("status").first).to_have_text("The output is handed off.")


def test_a_server_that_is_away_is_said_and_its_return_is_seen(pages: Pages, tab: Page) -> None:
    run_id = pages.start("hold")
    tab.goto(f"/runs/{run_id}")

    tab.context.set_offline(True)
    expect(tab.locator("#away")).to_contain_text("does not answer")
    expect(tab.get_by_role("heading", level=1)).to_have_text(f"Run {run_id}")
    tab.context.set_offline(False)

    expect(tab.locator("#away")).to_be_hidden()
    pages.let_go(run_id)
    expect(tab.locator(".headline .chip")).to_contain_text("completed")
    expect(tab.locator("#heard")).to_have_text("✓ completed")  # a screen reader says so once


def test_a_page_without_news_to_come_asks_nothing_when_it_is_seen_again(tab: Page) -> None:
    """The audit would read all runs again, and an answer to a form has no address."""
    tab.clock.install()
    tab.goto("/audit", wait_until="networkidle")
    asked: list[str] = []
    tab.on("request", lambda request: asked.append(request.url))

    tab.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    tab.clock.run_for(60_000)

    assert asked == []
    expect(tab.locator("#away")).to_be_hidden()


def test_a_page_of_a_run_that_is_gone_says_so_and_asks_no_more(pages: Pages, tab: Page) -> None:
    """Its store was put back to an earlier state while the page was open."""
    run_id = pages.start("retry")
    pages.wait(run_id, lambda run: run["status"] == "ERROR")
    tab.goto(f"/runs/{run_id}")
    file = sqlite3.connect(pages.folder / "leasehold.db")
    with contextlib.closing(file), file:
        assert file.execute("DELETE FROM runs WHERE id = ?", (run_id,)).rowcount == 1

    expect(tab.locator("#away")).to_contain_text("is not in the store")
    expect(tab.get_by_role("button", name="Paused: look again")).to_be_visible()
    expect(tab.get_by_role("heading", level=1)).to_have_text(f"Run {run_id}")
