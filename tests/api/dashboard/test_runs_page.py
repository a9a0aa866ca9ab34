"""The page of all runs, in a real browser."""

from __future__ import annotations

import re

from playwright.sync_api import Browser, Page, expect

from tests.api.dashboard.catalog import REASON
from tests.api.dashboard.conftest import STRANGE_HOST, Pages


def test_a_run_that_was_given_up_has_a_skull_with_its_remedy(pages: Pages, tab: Page) -> None:
    run_id = pages.start("dead")
    pages.wait(run_id, lambda run: run["deadLettered"])

    tab.goto("/")

    row = tab.get_by_role("row").filter(has=tab.get_by_role("link", name=run_id)).first
    expect(row.locator(".chip.dead svg.skull")).to_be_visible()
    expect(row.locator(".chip.dead")).to_have_attribute("title", re.compile("recreate the run"))
    expect(row).to_contain_text("Permanent failure")
    expect(row).to_contain_text("no source")
    row.get_by_role("link", name=run_id).click()
    expect(tab.get_by_role("heading", level=1)).to_have_text(f"Run {run_id}")


def test_runs_in_trouble_stand_first_and_none_stands_twice(pages: Pages, tab: Page) -> None:
    """One that went on in a new run is no trouble any more."""
    dead, gate, retry = (pages.start(mode) for mode in ("dead", "gate", "retry"))
    for run_id, is_so in ((dead, "deadLettered"), (gate, "block"), (retry, "error")):
        pages.wait(run_id, lambda run, name=is_so: run[name] and not run["lease"])
    done = pages.start("ok")
    pages.wait(done, lambda run: run["status"] == "COMPLETED")
    tab.goto("/")
    in_trouble = tab.locator("#in-trouble")
    for run_id in (dead, gate, retry):
        expect(in_trouble.get_by_role("link", name=run_id)).to_have_count(1)
        expect(tab.get_by_role("link", name=run_id)).to_have_count(1)
    expect(in_trouble.get_by_role("link", name=done)).to_have_count(0)

    in_trouble.get_by_role("button", name=f"Recreate {dead}").click()
    tab.goto("/")

    expect(in_trouble.get_by_role("link", name=dead)).to_have_count(0)
    expect(tab.get_by_role("row").filter(has_text=dead)).to_contain_text("Went on as r-")


def test_a_filter_is_in_the_address_and_can_be_taken_back(pages: Pages, tab: Page) -> None:
    dead, done = pages.start("dead"), pages.start("ok")
    pages.wait(dead, lambda run: run["deadLettered"])
    pages.wait(done, lambda run: run["status"] == "COMPLETED")
    tab.goto("/")

    tab.get_by_label("status").select_option("COMPLETED")
    tab.get_by_label("run id").fill(done[:8])
    tab.get_by_role("button", name="Filter").click()

    expect(tab.get_by_role("link", name=done)).to_be_visible()
    expect(tab.get_by_role("link", name=dead)).to_have_count(0)
    assert "status=COMPLETED" in tab.url
    assert f"idPrefix={done[:8]}" in tab.url
    tab.get_by_role("link", name="all runs").click()
    expect(tab.get_by_role("link", name=dead).first).to_be_visible()


def test_a_wrong_filter_is_said_on_the_page_and_the_address_is_kept(tab: Page) -> None:
    answer = tab.goto("/?status=asleep&pipeline=letters")

    assert answer is not None
    assert answer.status == 400
    expect(tab.get_by_role("alert")).to_contain_text("PENDING, IN_PROGRESS")
    expect(tab.get_by_label("status")).to_have_attribute("aria-invalid", "true")
    assert tab.url.endswith("/?status=asleep&pipeline=letters")
    expect(tab.get_by_label("pipeline")).to_have_value("letters")


def test_a_retrying_run_is_found_by_what_it_only_says(pages: Pages, tab: Page) -> None:
    """It is ERROR with a retry to come: it needs a look, and no decision."""
    run_id = pages.start("retry")
    pages.wait(run_id, lambda run: run["status"] == "ERROR")
    tab.goto("/")

    tab.get_by_label("says running, but…").select_option("retrying")
    tab.get_by_role("button", name="Filter").click()

    row = tab.get_by_role("row").filter(has=tab.get_by_role("link", name=run_id))
    expect(row).to_contain_text("retrying")
    expect(row).to_contain_text("1 failed")


def test_many_runs_are_changed_after_they_were_counted(pages: Pages, tab: Page) -> None:
    """The filter is what is acted on, whatever the page shows of it."""
    runs = [pages.start("retry", idempotencyKey=f"many-{number}") for number in range(3)]
    for run_id in runs:
        pages.wait(run_id, lambda run: run["status"] == "ERROR")
    tab.goto("/?label=mode:retry&status=ERROR&deadLettered=false")

    tab.get_by_text("Do something to every run of this filter").click()
    tab.get_by_label("what").select_option("cancel")
    tab.get_by_role("button", name="Count first").click()

    expect(tab.get_by_role("status")).to_contain_text("Nothing was changed yet")
    assert not any(pages.run(run_id)["cancelled"] for run_id in runs)
    tab.get_by_role("button", name=re.compile("Cancel . runs")).click()
    expect(tab.locator("main .notice[role=status]")).to_have_text(
        re.compile(r"Cancel: \d runs looked at, \d changed, refused: none\.")
    )
    expect(tab.locator("main .notice[role=status]")).to_be_focused()
    answer = tab.reload()
    assert answer is not None
    assert answer.request.method == "GET"  # it does not do all of it again
    tab.goto("/?label=mode:retry")
    expect(tab.get_by_text("looked at")).to_have_count(0)
    assert all(pages.run(run_id)["cancelled"] for run_id in runs)


def test_no_text_of_a_stranger_is_more_than_a_text(pages: Pages, tab: Page) -> None:
    """Labels, errors, details, progress, outputs, file names, actors and reasons are theirs."""
    runs = [pages.start(mode) for mode in ("dead", "ok", "gate", "hold")]
    pages.wait(runs[0], lambda run: run["deadLettered"])
    pages.wait(runs[1], lambda run: run["status"] == "COMPLETED")
    pages.wait(runs[2], lambda run: run["status"] == "BLOCKED")
    pages.wait(runs[3], lambda run: run["steps"]["draft"]["progress"])
    pages.post(f"/runs/{runs[3]}:pause", {"reason": REASON})
    new = pages.post(f"/runs/{runs[0]}:recreate", {"reason": REASON})["runId"]
    pages.post("/overrides/draft:set", {"timeoutS": 60, "until": "2099-01-01", "why": REASON})

    places = ["/", "/?deadLettered=true", "/registry", "/deliveries", "/workers", "/audit"]
    for path in [*places, *(f"/runs/{run_id}" for run_id in (*runs, new))]:
        tab.goto(path)
        assert tab.evaluate("document.querySelectorAll('main img, main script').length") == 0
        assert "owned" not in tab.title()
    tab.goto(f"/?label={'%3Cscript%3E'}&pipeline=%22%3E%3Cimg%20src=x%3E")
    assert tab.evaluate("document.querySelectorAll('main img, main script').length") == 0
    pages.post("/overrides/draft:clear", {})
    pages.let_go(runs[3])


def test_a_name_that_the_server_does_not_answer_as_is_said_with_those_that_it_does(
    browser: Browser, pages: Pages
) -> None:
    context = browser.new_context(base_url=pages.api.url.replace("127.0.0.1", STRANGE_HOST))
    tab = context.new_page()

    answer = tab.goto("/")

    assert answer is not None
    assert (answer.status, answer.headers["content-type"]) == (403, "text/html; charset=utf-8")
    expect(tab.get_by_role("alert")).to_contain_text("this server answers as 127.0.0.1:")
    expect(tab.get_by_role("main")).to_contain_text("Open it by a name that it answers as.")
    context.close()
