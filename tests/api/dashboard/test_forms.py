"""What people do on pages, without style and script: each form, by the names of its fields."""

from __future__ import annotations

import json
from xml.etree.ElementTree import Element

import pytest

from tests.api.dashboard.answered_page import AnsweredPage, words_of
from tests.api.dashboard.catalog import HOSTILE, REASON
from tests.api.dashboard.conftest import Pages
from tests.api.dashboard.reader import Reader
from tests.worlds.waiting import until


@pytest.fixture
def reader(pages: Pages) -> Reader:
    return Reader(pages)


def completed(reader: Reader, run_id: str) -> AnsweredPage:
    """Open the page of a run once it says that the run has completed."""
    return reader.page_with(f"/runs/{run_id}", lambda page: "completed" in chip_of(page))


def chip_of(page: AnsweredPage) -> str:
    return words_of(page.one(".//p[@class='headline']/span"))


def row_of(page: AnsweredPage, link: str) -> Element:
    """Return the row that begins with this link."""
    (row,) = (it for it in page.root.iter("tr") if words_of(it.find("th") or it).startswith(link))
    return row


# -- of a run --------------------------------------------------------------------------------------


def test_a_person_pauses_resumes_and_cancels(reader: Reader, pages: Pages) -> None:
    run_id = pages.start("hold")
    page = reader.page(f"/runs/{run_id}")

    for operation, state in (("Pause", "paused"), ("Resume", ""), ("Cancel", "cancelled")):
        page = page.press(f"{operation} this run", {"why": f"because of {operation}"})
        assert page.said.startswith("The run was ")
        assert state in chip_of(page)

    assert [one for one in ("Pause", "Resume", "Cancel") if page.buttons(f"{one} this run")] == []
    run = pages.run(run_id)
    assert [(one["operation"], one["actor"]) for one in run["operations"]] == [
        ("pause", "dashboard"),
        ("resume", "dashboard"),
        ("cancel", "dashboard"),
    ]
    assert page.rows("run cancelled", "because of Cancel")


def test_a_run_over_its_budget_is_given_more(reader: Reader, pages: Pages) -> None:
    run_id = pages.start("spend", budget={"usd": 1})
    pages.wait(run_id, lambda run: run["status"] == "BLOCKED")
    assert reader.page("/").rows(run_id, "budget_exceeded", "1.50 USD, 9.4k tokens")

    page = reader.page(f"/runs/{run_id}")
    assert "spent 1.50 USD, 9.4k tokens of 1.00 USD" in page.headline
    (call,) = page.root.iterfind(".//rect[@class='call']/title")
    assert words_of(call) == "call ask <b>: 1.50 USD, 9.4k tokens"
    assert page.buttons("Retry this run") == []
    page.press("Resume this run", {"a higher budget": "9"})

    page = completed(reader, run_id)
    assert "1 call (1.50 USD, 9.4k tokens) was not paid for again after kills" in page.headline
    assert pages.run(run_id)["budget"] == {"usd": 9.0, "tokens": None}


def test_an_output_is_approved_beside_what_was_found(reader: Reader, pages: Pages) -> None:
    run_id = pages.start("gate")
    pages.wait(run_id, lambda run: run["status"] == "BLOCKED")
    page = reader.page("/")
    assert page.links(run_id) == [f"/runs/{run_id}"]
    (blocked,) = (it for it in page.root.iter("a") if words_of(it).endswith(" blocked"))
    assert blocked.get("href") == "/?status=BLOCKED"

    page = reader.page(f"/runs/{run_id}")
    assert page.one(".//p[@class='headline']/span/span").get("class") == "chip blocked"
    assert "A person is to look." in words_of(page.one(".//p[@class='remedy']"))
    assert words_of(next(page.root.iter("summary"))) == "Approve…"  # what helps most is first
    assert '"mode": "gate"' in words_of(page.one(".//*[@id='step-draft']"))
    page = page.press("Approve this run")

    assert page.said == "The output is handed off."
    completed(reader, run_id)
    reader.page_with(f"/runs/{run_id}", lambda it: it.one(".//body").get("data-poll") == "0")


def test_a_form_of_an_earlier_state_changes_nothing(reader: Reader, pages: Pages) -> None:
    """It was retried since, and waits for the same decision, of another output."""
    run_id = pages.start("gate")
    blocked = pages.wait(run_id, lambda run: run["status"] == "BLOCKED")
    page, before = reader.page(f"/runs/{run_id}"), blocked["dispatch"]["generation"]
    pages.post(f"/runs/{run_id}:retry", {"reason": "again"})
    pages.wait(run_id, lambda run: run["block"] and run["dispatch"]["generation"] > before)

    page = page.press("Approve this run")

    assert (page.status, page.heading) == (409, "It has changed since you looked")
    assert len(pages.run(run_id)["operations"]) == 1


def test_a_dead_letter_is_recreated_where_its_remedy_stands(reader: Reader, pages: Pages) -> None:
    run_id = pages.start("dead")
    pages.wait(run_id, lambda run: run["deadLettered"])
    page = reader.page(f"/runs/{run_id}")
    assert "What helps:" in words_of(page.one(".//p[@class='remedy']"))
    assert "Traceback" in words_of(page.one(".//*[@id='part-error']"))

    page = page.press("Recreate this run", {"another input": '{"mode": "ok"}'})

    assert page.said == "This is the new run."
    assert page.links(run_id) == [f"/runs/{run_id}"]
    completed(reader, pages.run(run_id)["recreatedAs"][0])


def test_a_run_that_is_gone_is_a_page(reader: Reader) -> None:
    page = reader.page("/runs/r-0123456789abcdef")

    assert page.status == 404
    assert "r-0123456789abcdef" in page.alert
    assert page.links("All runs") == ["/"]


def test_a_form_that_no_page_made_is_refused(reader: Reader, pages: Pages) -> None:
    """Another page could send one with the cookies of the reader, but knows no token."""
    run_id = pages.start("hold")
    page = reader.page(f"/runs/{run_id}")
    (form,) = page.buttons("Cancel this run")
    (token,) = (it for it in form.iter("input") if it.get("name") == "formToken")
    token.set("value", "a" * 64)

    page = page.press("Cancel this run")

    assert page.status == 403
    assert "open the page again" in page.alert
    assert not pages.run(run_id)["cancelled"]
    pages.let_go(run_id)


def test_a_running_attempt_says_what_it_does(reader: Reader, pages: Pages) -> None:
    """It is asked with its next heartbeat, and goes on."""
    run_id = pages.start("hold")
    pages.wait(run_id, lambda run: run["steps"]["draft"]["progress"])

    reader.page(f"/runs/{run_id}").press("Ask the attempt what it does")

    place = ".//*[@id='stack-answer']"
    page = reader.page_with(f"/runs/{run_id}", lambda it: it.root.find(place) is not None)
    assert "in draft" in words_of(page.one(place))  # it waits there, or looks for a file
    pages.let_go(run_id)
    completed(reader, run_id)


def test_a_person_sends_the_signal_that_a_run_waits_for(reader: Reader, pages: Pages) -> None:
    """What is wrong changes nothing; of two people who answer, the first one counts."""
    run_id = pages.begin("asked", {})
    pages.wait(run_id, lambda run: run["status"] == "BLOCKED")
    path, field = f"/runs/{run_id}", "the signal approval"
    second = Reader(pages).page(path)

    for wrong in ("no JSON", '{"approved": 7}'):
        page = reader.page(path).press("Send the signal", {field: wrong})
        assert page.heading == "That cannot be asked for"
        assert page.links("The run as it is now") == [path]
    said = json.dumps({"approved": True, "by": HOSTILE})
    page = reader.page(path).press("Send the signal", {field: said})
    assert page.said == "The signal is sent."
    page = completed(reader, run_id)
    late = second.press("Send the signal", {field: '{"approved": false}'})

    assert late.heading == "It has changed since you looked"
    assert "<script>" in words_of(page.one(".//*[@id='step-approval']"))
    assert json.loads(pages.run(run_id)["steps"]["approval"]["output"]) == json.loads(said)


@pytest.mark.parametrize("path", ["/runs/{run}", "/deliveries"])
def test_an_announcement_that_was_given_up_is_told_again(
    reader: Reader, pages: Pages, path: str
) -> None:
    away = pages.folder / "desk-is-away"
    away.touch()
    run_id = pages.start("dead")
    pages.wait(run_id, lambda run: run["deadLettered"])
    until(lambda: pages.api.call(f"/runs/{run_id}/deliveries")["deliveries"][0]["givenUpWhy"])
    page = reader.page(path.format(run=run_id))
    rows = page.rows("given up", "nobody is at the desk <img", "on desk")
    (row,) = (it for it in rows if page.buttons("Send again", it))
    away.unlink()

    page = page.press("Send again", within=row)

    assert page.said == "The announcement is due again."
    assert reader.url.endswith(f"/runs/{run_id}")
    told = ".//*[@id='part-told']//span[@class='chip announced']"
    reader.page_with(f"/runs/{run_id}", lambda page: page.root.find(told) is not None)


# -- of all runs -----------------------------------------------------------------------------------


def test_a_run_that_was_given_up_has_a_skull_with_its_remedy(reader: Reader, pages: Pages) -> None:
    run_id = pages.start("dead")
    pages.wait(run_id, lambda run: run["deadLettered"])

    page = reader.page("/")

    (row,) = page.rows(run_id, "Permanent failure", "no source")
    chip = row.find(".//span[@class='chip dead']")
    assert chip is not None
    assert chip.find("svg[@class='skull']") is not None
    assert "recreate the run" in chip.get("title", "")
    assert page.links(run_id) == [f"/runs/{run_id}"]


def test_runs_in_trouble_stand_first_and_none_stands_twice(reader: Reader, pages: Pages) -> None:
    """One that went on in a new run is no trouble any more."""
    dead, gate, retry = (pages.start(mode) for mode in ("dead", "gate", "retry"))
    for run_id, is_so in ((dead, "deadLettered"), (gate, "block"), (retry, "error")):
        pages.wait(run_id, lambda run, name=is_so: run[name] and not run["lease"])
    done = pages.start("ok")
    pages.wait(done, lambda run: run["status"] == "COMPLETED")
    page = reader.page("/")
    in_trouble = words_of(page.one(".//*[@id='in-trouble']"))
    for run_id in (dead, gate, retry):
        assert run_id in in_trouble
        assert len(page.links(run_id)) == 1
    assert done not in in_trouble
    assert page.words.index("in trouble") < page.words.index(done)
    older = reader.page(reader.page("/?limit=1").links("Older")[0])
    assert "in trouble" not in older.words

    for _ in range(2):
        page.press(f"Recreate {dead}")
    page = reader.page("/")

    assert len(pages.run(dead)["recreatedAs"]) == 1

    assert dead not in words_of(page.one(".//*[@id='in-trouble']"))
    assert page.rows(dead, "Went on as r-")


def test_a_list_is_turned_over_page_by_page_and_back(reader: Reader, pages: Pages) -> None:
    oldest, middle, newest = (pages.start("ok") for _ in range(3))

    first = reader.page("/?pipeline=letters&limit=1")
    second = reader.page(first.links("Older")[0])
    third = reader.page(second.links("Older")[0])
    back = reader.page(third.links("Newest")[0])

    for page, run_id in ((first, newest), (second, middle), (third, oldest), (back, newest)):
        assert [row.get("data-key") for row in page.rows("letters")] == [run_id]
        assert page.one(".//input[@name='pipeline']").get("value") == "letters"
    assert first.links("Newest") == []


def test_a_filter_is_in_the_address_and_can_be_taken_back(reader: Reader, pages: Pages) -> None:
    dead, done = pages.start("dead"), pages.start("ok")
    pages.wait(dead, lambda run: run["deadLettered"])
    pages.wait(done, lambda run: run["status"] == "COMPLETED")

    page = reader.page("/").press("Filter", {"status": "completed", "run id": done[:8]})

    assert page.links(done)
    assert not page.links(dead)
    assert "status=COMPLETED" in reader.url
    assert f"idPrefix={done[:8]}" in reader.url
    assert page.links("all runs") == ["/"]
    assert reader.page("/").links(dead)


def test_a_wrong_filter_is_said_on_the_page_and_the_address_is_kept(reader: Reader) -> None:
    page = reader.page("/?status=asleep&pipeline=letters")

    assert page.status == 400
    assert "PENDING, IN_PROGRESS" in page.alert
    assert page.one(".//select[@name='status']").get("aria-invalid") == "true"
    assert reader.url.endswith("/?status=asleep&pipeline=letters")
    assert page.one(".//input[@name='pipeline']").get("value") == "letters"


def test_a_retrying_run_is_found_by_what_it_only_says(reader: Reader, pages: Pages) -> None:
    """It is ERROR with a retry to come: it needs a look, and no decision."""
    run_id = pages.start("retry")
    pages.wait(run_id, lambda run: run["status"] == "ERROR")

    page = reader.page("/").press("Filter", {"says running, but…": "retrying"})

    assert page.rows(run_id, "retrying", "1 failed")


# -- of steps and schedules ------------------------------------------------------------------------


def test_a_limit_is_overridden_until_a_time_and_cleared(reader: Reader) -> None:
    page = reader.page("/registry")

    page = page.press("Set for publish", {"agent timeout": "90", "why": "a slow day"})

    row = row_of(page, "publish")
    assert "dashboard: a slow day" in words_of(row)
    assert "1 min 30 s" in words_of(row)
    page = page.press("Clear it", within=row)
    assert "a slow day" not in words_of(row_of(page, "publish"))


def test_a_step_is_paused_and_resumed_and_so_are_all(reader: Reader, pages: Pages) -> None:
    page = reader.page("/registry")
    for button, step, named in (
        ("Pause the step", {"step": "judge"}, "step judge"),
        ("Pause all steps", {}, "all steps"),
    ):
        page = page.press(button, {"why": REASON, **step})
        (notice,) = (it for it in page.root.iter("p") if f"{named} paused" in words_of(it))
        assert "<script>" in words_of(notice)

        page = page.press("Resume")
        assert "No step is paused." in page.words

    assert pages.api.call("/pauses") == {"pauses": []}


def test_a_schedule_is_paused_resumed_triggered_and_back_filled(
    reader: Reader, pages: Pages
) -> None:
    started = len(pages.api.call("/runs?label=schedule:nightly")["runs"])
    page = reader.page("/schedules").press("Pause nightly", {"why": REASON})
    assert "Paused by dashboard: <img" in page.words
    page = page.press("Resume nightly").press("Start a run now")
    assert page.rows("dashboard")

    page = page.press("Back-fill nightly", {"from": "2025-01-01", "to, at": "2025-01-02"})

    assert page.rows("2025-01-01", "dashboard")
    assert len(pages.api.call("/runs?label=schedule:nightly")["runs"]) == started + 2
