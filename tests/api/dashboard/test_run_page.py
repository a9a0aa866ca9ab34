"""The page of one run, in a real browser, and its requests while it is open."""

from __future__ import annotations

import contextlib
import json
import re
import sqlite3

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tests.api.dashboard.catalog import HOSTILE, MARKUP, REASON
from tests.api.dashboard.conftest import Pages
from tests.worlds.waiting import until


def test_a_run_goes_on_before_the_eyes_of_its_reader(pages: Pages, tab: Page) -> None:
    """A kill, the next attempt and the end come by themselves; what was opened stays open."""
    run_id = pages.start("kill")
    tab.goto(f"/runs/{run_id}")
    tab.get_by_text("Input", exact=True).click()
    expect(tab.get_by_role("row").filter(has_text="failed").first).to_be_visible()
    expect(tab.get_by_role("row").filter(has_text="running").first).to_be_visible()

    pages.let_go(run_id)

    expect(tab.locator(".headline .chip")).to_contain_text("completed")
    expect(tab.get_by_text("resumed from checkpoint 3 of pages, not repeated")).to_be_visible()
    assert tab.locator("details.output").last.evaluate("it => it.open")


def test_a_person_pauses_resumes_and_cancels(pages: Pages, tab: Page) -> None:
    run_id = pages.start("hold")
    tab.goto(f"/runs/{run_id}")

    for operation, state in (("Pause", "paused"), ("Resume", ""), ("Cancel", "cancelled")):
        tab.get_by_text(f"{operation}…").click()
        form = tab.locator("form").filter(has=tab.get_by_role("button", name=operation))
        form.get_by_label("why").fill(f"because of {operation}")
        form.get_by_role("button", name=operation).click()
        expect(tab.get_by_role("status").first).to_contain_text("run")
        if state:
            expect(tab.locator(".headline .chip")).to_contain_text(state)

    run = pages.run(run_id)
    assert [(one["operation"], one["actor"]) for one in run["operations"]] == [
        ("pause", "dashboard"),
        ("resume", "dashboard"),
        ("cancel", "dashboard"),
    ]
    expect(tab.get_by_role("row").filter(has_text="run cancelled")).to_contain_text(
        "because of Cancel"
    )


def test_a_run_over_its_budget_is_given_more(pages: Pages, tab: Page) -> None:
    run_id = pages.start("spend", budget={"usd": 1})
    pages.wait(run_id, lambda run: run["status"] == "BLOCKED")
    tab.goto("/")
    row = tab.get_by_role("row").filter(has_text=run_id).first
    expect(row).to_contain_text("budget_exceeded")
    expect(row).to_contain_text("1.50 USD, 9.4k tokens")
    tab.get_by_role("link", name=run_id).first.click()

    expect(tab.locator(".headline")).to_contain_text("spent 1.50 USD, 9.4k tokens of 1.00 USD")
    expect(tab.locator(".bars rect.call")).to_have_count(1)
    expect(tab.locator(".bars rect.call title")).to_have_text("call ask <b>: 1.50 USD, 9.4k tokens")
    expect(tab.get_by_role("button", name="Retry this run")).to_have_count(0)
    form = tab.locator("form").filter(has=tab.get_by_role("button", name="Resume this run"))
    form.get_by_label("a higher budget").fill("9")
    form.get_by_role("button", name="Resume this run").click()

    expect(tab.locator(".headline .chip")).to_contain_text("completed")
    expect(tab.locator(".headline")).to_contain_text(
        "kills did not cost 1.50 USD, 9.4k tokens in 1 call"
    )
    assert pages.run(run_id)["budget"] == {"usd": 9.0, "tokens": None}


def test_an_output_is_approved_beside_what_was_found(pages: Pages, tab: Page) -> None:
    run_id = pages.start("gate")
    pages.wait(run_id, lambda run: run["status"] == "BLOCKED")
    tab.goto("/")
    tab.get_by_role("link", name=run_id).first.click()

    expect(tab.locator(".remedy")).to_contain_text("A person is to look.")
    expect(tab.locator("#step-draft pre")).to_contain_text('"mode": "gate"')
    tab.get_by_role("button", name="Approve this run").click()

    expect(tab.get_by_role("status").first).to_have_text("The output is handed off.")
    expect(tab.locator(".headline .chip")).to_contain_text("completed")


def test_what_was_decided_on_another_state_changes_nothing(
    pages: Pages, context: BrowserContext
) -> None:
    """Two people have the same run open, and one of them is slower."""
    run_id = pages.start("gate")
    pages.wait(run_id, lambda run: run["status"] == "BLOCKED")
    first, second = context.new_page(), context.new_page()
    for tab, why in ((first, "it is right"), (second, "it will do")):
        tab.goto(f"/runs/{run_id}")
        tab.get_by_label("why").first.fill(why)  # a form that is filled in stays as it is
    first.get_by_role("button", name="Approve this run").click()
    expect(first.get_by_role("status").first).to_be_visible()
    expect(second.locator(".headline .chip")).to_contain_text("completed")
    expect(second.locator("#act-approve [name=reason]")).to_have_value(
        "it will do"
    )  # it was not lost

    with second.expect_navigation() as answered:
        second.get_by_role("button", name="Approve this run").click()

    assert answered.value is not None
    assert answered.value.status == 409
    expect(second.get_by_role("heading", level=1)).to_have_text("It has changed since you looked")
    assert len(pages.run(run_id)["operations"]) == 1


def test_a_dead_letter_is_recreated_where_its_remedy_stands(pages: Pages, tab: Page) -> None:
    run_id = pages.start("dead")
    pages.wait(run_id, lambda run: run["deadLettered"])
    tab.goto(f"/runs/{run_id}")
    expect(tab.locator(".remedy")).to_contain_text("What helps:")

    tab.get_by_label("another input").fill('{"mode": "ok"}')
    tab.get_by_role("button", name="Recreate this run").click()

    expect(tab.get_by_role("status").first).to_have_text("This is the new run.")
    expect(tab.locator(".headline .chip")).to_contain_text("completed")
    expect(tab.get_by_role("link", name=run_id)).to_be_visible()


def test_a_run_that_is_gone_is_a_page(tab: Page) -> None:
    answer = tab.goto("/runs/r-0123456789abcdef")

    assert answer is not None
    assert answer.status == 404
    expect(tab.get_by_role("alert")).to_contain_text("r-0123456789abcdef")
    expect(tab.get_by_role("link", name="All runs")).to_be_visible()


def test_without_a_script_all_is_there_and_all_can_be_done(pages: Pages, browser: object) -> None:
    run_id = pages.start("gate")
    pages.wait(run_id, lambda run: run["status"] == "BLOCKED")
    context = browser.new_context(base_url=pages.api.url, java_script_enabled=False)  # type: ignore[attr-defined]
    tab = context.new_page()
    tab.goto("/")
    tab.get_by_role("link", name=run_id).first.click()

    tab.get_by_role("button", name="Approve this run").click()

    expect(tab.get_by_role("status").first).to_have_text("The output is handed off.")
    context.close()


def test_a_form_that_no_page_made_is_refused(pages: Pages, tab: Page) -> None:
    """Another page could send one with the cookies of the reader, but knows no token."""
    run_id = pages.start("hold")
    tab.goto(f"/runs/{run_id}")
    tab.get_by_role("button", name="Live: pause").click()  # a poll would bring the right token
    tab.get_by_text("Cancel…").click()
    tab.locator("#act-cancel input[name=formToken]").evaluate(
        "it => { it.value = 'a'.repeat(64); }"
    )

    with tab.expect_navigation() as answered:
        tab.get_by_role("button", name="Cancel this run").click()

    assert answered.value is not None
    assert answered.value.status == 403
    expect(tab.get_by_role("alert")).to_contain_text("open the page again")
    assert not pages.run(run_id)["cancelled"]
    pages.let_go(run_id)


def test_a_limit_is_overridden_until_a_time_and_cleared(pages: Pages, tab: Page) -> None:
    tab.goto("/registry")
    row = tab.get_by_role("row").filter(has=tab.get_by_role("link", name="publish"))
    row.get_by_text("Set one…").click()
    row.get_by_label("agent timeout").fill("90")
    row.get_by_label("why").fill("a slow day")

    row.get_by_role("button", name=re.compile("Set for")).click()

    expect(row).to_contain_text("dashboard: a slow day")
    expect(row).to_contain_text("1 min 30 s")
    row.get_by_role("button", name="Clear it").click()
    expect(row).not_to_contain_text("a slow day")


def test_a_running_attempt_says_what_it_does(pages: Pages, tab: Page) -> None:
    """It is asked with its next heartbeat, and goes on."""
    run_id = pages.start("hold")
    pages.wait(run_id, lambda run: run["steps"]["draft"]["progress"])
    tab.goto(f"/runs/{run_id}")

    tab.get_by_role("button", name="Ask the attempt what it does").click()

    expect(tab.locator("#stack-answer pre")).to_contain_text("wait_or_shutdown")
    pages.let_go(run_id)
    expect(tab.locator(".headline .chip")).to_contain_text("completed")


def test_a_person_sends_the_signal_that_a_run_waits_for(
    pages: Pages, context: BrowserContext
) -> None:
    """What is wrong changes nothing; of two people who answer, the first one counts."""
    run_id = pages.begin("asked", {})
    pages.wait(run_id, lambda run: run["status"] == "BLOCKED")
    first, second = context.new_page(), context.new_page()
    for tab, text in ((first, "no JSON"), (second, '{"approved": false}')):
        tab.goto(f"/runs/{run_id}")
        tab.get_by_label("the signal approval").fill(text)

    for wrong in ("no JSON", '{"approved": 7}'):
        first.get_by_label("the signal approval").fill(wrong)
        first.get_by_role("button", name="Send the signal").click()
        expect(first.get_by_role("heading", level=1)).to_have_text("That cannot be asked for")
        first.get_by_role("link", name="The run as it is now").click()
    said = json.dumps({"approved": True, "by": HOSTILE})
    first.get_by_label("the signal approval").fill(said)
    first.get_by_role("button", name="Send the signal").press("Enter")
    expect(first.locator(".headline .chip")).to_contain_text("completed")
    second.get_by_role("button", name="Send the signal").click()

    expect(second.get_by_role("heading", level=1)).to_have_text("It has changed since you looked")
    first.locator("#step-approval summary").click()
    expect(first.locator("#step-approval pre")).to_contain_text("<script>")
    assert json.loads(
        pages.api.call(f"/runs/{run_id}")["steps"]["approval"]["output"]
    ) == json.loads(said)
    assert "owned" not in first.title()


def test_lanes_are_seen_by_name_while_they_work_and_after_a_kill(pages: Pages, tab: Page) -> None:
    """The document of their run is not written meanwhile: the poll looks at each lane."""
    run_id = pages.begin("items", {})
    tab.goto(f"/runs/{run_id}")
    lanes = tab.locator("#part-children")
    expect(lanes).to_contain_text("0 of 4 items done, 2 lanes at work")
    lanes.get_by_role("link", name="lane 1").click()
    expect(tab.get_by_role("heading", level=1)).to_contain_text("Run l-")
    expect(tab.locator(".bars rect.call title")).to_contain_text(MARKUP[:40])
    tab.go_back()

    pages.let_go(run_id)

    expect(tab.locator(".headline .chip")).to_contain_text("completed")
    expect(tab.locator("#step-gather pre")).to_contain_text('"ok": 3')
    assert "owned" not in tab.title()


@pytest.mark.parametrize("path", ["/runs/{run}", "/deliveries"])
def test_an_announcement_that_was_given_up_is_told_again(
    pages: Pages, tab: Page, path: str
) -> None:
    away = pages.folder / "desk-is-away"
    away.touch()
    run_id = pages.start("dead")
    pages.wait(run_id, lambda run: run["deadLettered"])
    until(lambda: pages.api.call(f"/runs/{run_id}/deliveries")["deliveries"][0]["givenUpWhy"])
    tab.goto(path.format(run=run_id))
    again = tab.get_by_role("button", name=re.compile("^Send again .*on desk"))
    row = tab.get_by_role("row").filter(has=again).first
    expect(row).to_contain_text("given up")
    expect(row).to_contain_text("nobody is at the desk <img")
    away.unlink()

    row.get_by_role("button").click()

    expect(tab.get_by_role("status").first).to_have_text("The announcement is due again.")
    expect(tab).to_have_url(re.compile(f"/runs/{run_id}$"))
    expect(tab.locator("#part-told .chip")).to_contain_text("announced", timeout=60_000)
    assert "owned" not in tab.title()


def test_a_step_is_paused_and_resumed_and_so_are_all(pages: Pages, tab: Page) -> None:
    tab.goto("/registry")
    for button, named in (("Pause the step", "step judge"), ("Pause all steps", "all steps")):
        tab.get_by_text("Pause one, or all…").click()
        form = tab.locator("form").filter(has=tab.get_by_role("button", name=button))
        if named != "all steps":
            form.get_by_label("step").select_option("judge")
        form.get_by_label("why").fill(REASON)
        form.get_by_role("button", name=button).click()
        notice = tab.locator(".notice").filter(has_text=f"{named} paused")
        expect(notice).to_contain_text("<script>")

        tab.get_by_role("button", name="Resume").click()
        expect(tab.get_by_text("No step is paused.")).to_be_visible()

    assert pages.api.call("/pauses") == {"pauses": []}
    assert "owned" not in tab.title()


def test_a_schedule_is_paused_resumed_triggered_and_back_filled(pages: Pages, tab: Page) -> None:
    tab.goto("/schedules")
    tab.get_by_text("Pause it…").click()
    tab.get_by_label("why").fill(REASON)
    tab.get_by_role("button", name="Pause nightly").click()
    expect(tab.get_by_text("Paused by dashboard: <img")).to_be_visible()
    tab.get_by_role("button", name="Resume").click()
    tab.get_by_role("button", name="Start a run now").click()
    expect(tab.get_by_role("row")).to_have_count(2)

    tab.get_by_text("Start the runs of past times…").click()
    tab.get_by_label("from").fill("2025-01-01")
    tab.get_by_label("to, at 00:00 UTC").fill("2025-01-02")
    tab.get_by_role("button", name="Back-fill nightly").click()

    expect(tab.get_by_role("row").filter(has_text="2025-01-01")).to_contain_text("dashboard")
    assert len(pages.api.call("/runs?label=schedule:nightly")["runs"]) == 2
    assert "owned" not in tab.title()


# -- its requests ----------------------------------------------------------------------------------


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
