"""What a browser sends and gets, without the browser: queries and forms that are strange."""

from __future__ import annotations

import contextlib
import html
import json
import re
import shlex
import sqlite3
import urllib.error
import urllib.request
from http import HTTPStatus
from urllib.parse import urlencode

import pytest

from tests.api.dashboard.answered_page import words_of
from tests.api.dashboard.catalog import MARKUP, REASON
from tests.api.dashboard.conftest import Pages
from tests.api.dashboard.reader import Reader
from tests.worlds.waiting import until


@pytest.fixture
def reader(pages: Pages) -> Reader:
    return Reader(pages)


@pytest.mark.parametrize(
    "path",
    [
        "/?pipeline=&status=&label=mode%3Aok&since=",
        "/?label=team%3A%F0%9F%98%80%20x",
        "/deliveries?state=&channel=",
        "/budgets/draft?whatIf=5",
        "/registry",
    ],
)
def test_the_command_below_a_page_reads_its_json(reader: Reader, pages: Pages, path: str) -> None:
    """Fields that were left empty are not the row's."""
    text = reader.open(path)[2]

    found = re.search(r"JSON of this page: <code>(.*?)</code>", text)
    assert found is not None
    curl, url = shlex.split(html.unescape(found[1]))
    assert curl == "curl"
    assert isinstance(pages.api.call(url.removeprefix(pages.api.url)), dict)


def test_the_page_of_a_limit_has_the_share_of_attempts_that_take_longer(
    reader: Reader, pages: Pages
) -> None:
    done = pages.start("ok")
    pages.wait(done, lambda run: run["status"] == "COMPLETED")

    text = reader.open("/budgets/draft?whatIf=60")[2]

    assert "Attempts that take longer, by estimate" in text
    assert re.search(r'what if</th><td class="num">1 min</td><td class="num">\d+\.\d %</td>', text)


@pytest.mark.parametrize("path", ["/runs:batch", "/audit:repair", "/runs/r-0123456789abcdef:pause"])
def test_the_address_of_a_form_is_no_page_and_a_page_says_so(reader: Reader, path: str) -> None:
    status, kind, text = reader.open(path)

    assert (status, kind) == (405, "text/html")
    assert "All runs" in text


@pytest.mark.parametrize("path", ["/", "/registry", "/runs/r-0123456789abcdef"])
def test_a_form_to_what_takes_none_is_answered_with_a_page(reader: Reader, path: str) -> None:
    status, kind, _ = reader.send(path, reason="x")

    assert (status, kind) == (405, "text/html")


def test_a_form_that_is_too_large_is_said_to_be(reader: Reader) -> None:
    status, kind, text = reader.send("/runs/r-0123456789abcdef:approve", output="x" * 2_000_000)

    assert (status, kind) == (413, "text/html")
    assert re.search(r"The form has 2,000,\d+ bytes, and at most [\d,]+ are read\.", text)
    assert "make it shorter" in text


@pytest.mark.parametrize(
    ("strange", "status", "says"),
    [
        ({"Host": "evil.example"}, 403, "Open it by a name that it answers as."),
        ({"Host": "evil.example"}, 403, "this server answers as 127.0.0.1:"),
        ({"Sec-Fetch-Site": "cross-site"}, 403, "Open the page at this server itself"),
        ({"Content-Type": "text/plain", "Sec-Fetch-Site": "same-origin"}, 415, "send its form"),
    ],
)
def test_a_browser_that_may_not_come_in_gets_a_page_that_says_what_to_do(
    reader: Reader, strange: dict[str, str], status: int, says: str
) -> None:
    body = b"x" if "Content-Type" in strange else None
    found, kind, text = reader.ask("/registry", body, {"Sec-Fetch-Site": "none", **strange})

    assert (found, kind) == (status, "text/html")
    assert says in text
    assert reader.ask("/registry", body, {**strange, "Accept": "*/*"})[1] == "application/json"


def test_no_text_stands_for_the_token_of_a_form(reader: Reader) -> None:
    """It would show the token, and send it along in the link of a label."""
    page = reader.open("/?label=mode:leasehold-form-token")[2]

    assert 'value="mode:leasehold-form-token"' in page


@pytest.mark.parametrize("hours", ["0", "-1", "8785", "nan", "soon"])
def test_a_limit_is_overridden_for_a_year_at_most(reader: Reader, hours: str) -> None:
    status, _, text = reader.send("/overrides/draft:set", timeoutS="60", hours=hours, why="slow")

    assert (status, "hours" in text) == (400, True)


def test_a_filter_that_is_given_twice_is_said_on_the_page(reader: Reader) -> None:
    status, kind, text = reader.open("/?status=ERROR&status=BLOCKED&deadLettered=x")

    assert (status, kind) == (400, "text/html")
    assert "PENDING, IN_PROGRESS" in text


def test_a_page_shows_the_latest_of_many_events_and_the_command_for_all(
    reader: Reader, pages: Pages
) -> None:
    """A run that goes on for weeks would make a page of megabytes, every other second."""
    run_id = pages.start("hold")
    for number in range(103):
        pages.post(f"/runs/{run_id}:pause", {"reason": f"a break, {number}"})
        pages.post(f"/runs/{run_id}:resume", {"reason": "it goes on"})

    text = reader.open(f"/runs/{run_id}")[2]

    assert text.count("it goes on") + text.count("a break") <= 200
    assert ("a break, 102" in text, "a break, 0" in text) == (True, False)
    assert re.search(r"The latest events; \d+ earlier: .*leasehold trace", text)
    pages.let_go(run_id)


def test_a_run_is_seen_while_its_files_are_away(reader: Reader, pages: Pages) -> None:
    run_id = pages.start("dead")
    pages.wait(run_id, lambda run: run["deadLettered"])
    stored, away = pages.folder / "artifacts", pages.folder / "away"
    stored.rename(away)
    stored.touch()

    status, _, text = reader.open(f"/runs/{run_id}")

    stored.unlink()
    away.rename(stored)
    assert status == 200
    assert "The files cannot be listed" in text
    assert "Recreate this run" in text


def test_a_value_that_is_cut_has_a_link_to_the_whole_of_it(reader: Reader, pages: Pages) -> None:
    """It is longer as people read it than as it is kept."""
    given = {"mode": "dead", "numbers": list(range(800))}
    run_id = pages.api.start(given, pipeline="letters")

    text = reader.open(f"/runs/{run_id}")[2]

    assert "…</pre>" in text
    assert f'<a href="/runs/{run_id}/input">The whole of it</a>' in text


def test_a_run_that_begins_after_the_count_is_not_acted_on(reader: Reader, pages: Pages) -> None:
    counted = pages.api.start({"mode": "retry"}, pipeline="letters", labels={"team": "counted"})
    asked = {"filter": "label=team:counted", "limit": 1, "action": "pause", "reason": "a break"}
    text = reader.send("/runs:batch", dryRun="true", **asked)[2]
    assert "1 run looked at" in text
    assert "more may fit the filter" in text
    late = pages.api.start({"mode": "retry"}, pipeline="letters", labels={"team": "counted"})

    act = dict(re.findall(r'name="(\w+)" value="([^"]*)"', text))
    reader.send("/runs:batch", **{name: html.unescape(it) for name, it in act.items()})

    assert pages.run(counted)["paused"]
    assert not pages.run(late)["paused"]


def test_what_a_form_has_done_is_said_by_its_page_alone_and_for_a_while(
    reader: Reader, pages: Pages
) -> None:
    run_id = pages.start("retry")
    generation = pages.wait(run_id, lambda run: run["status"] == "ERROR")["dispatch"]["generation"]

    assert "The run was paused." in reader.send(f"/runs/{run_id}:pause", generation=generation)[2]

    assert "The run was paused." in reader.open(f"/runs/{run_id}")[2]
    assert "The run was" not in reader.open("/")[2]
    assert [it.expires for it in reader.cookies if "-done-" in it.name] != [None]
    assert "The run was" not in Reader(pages).open(f"/runs/{run_id}")[2]
    assert "The run was cancelled." not in Reader(pages).open(f"/runs/{run_id}?done=cancel")[2]


def test_the_trial_that_counts_leads_those_of_a_run_that_had_many(
    reader: Reader, pages: Pages
) -> None:
    run_id = pages.api.start(pipeline="tries")
    pages.wait(run_id, lambda run: run["status"] == "COMPLETED")

    text = reader.open(f"/runs/{run_id}")[2]

    trials = re.findall(r"<td><b>trial (\d+)(, counts)?", text)
    others = [(str(one), "") for one in range(1, 11) if one != 3]
    assert trials == [("3", ", counts"), *others] * 2
    assert len(text) < 75_000  # it travels in a tenth of that


def test_a_link_of_an_announcement_leads_a_person_to_the_page_of_the_run(
    reader: Reader, pages: Pages
) -> None:
    run_id = pages.start("dead")

    for part in ("why", "trace", "deliveries"):
        status, kind, text = reader.open(f"/runs/{run_id}/{part}")
        assert (status, kind) == (200, "text/html")
        assert f'Run <span class="id">{run_id}' in text


def test_a_form_that_is_refused_leads_back_to_its_run(reader: Reader, pages: Pages) -> None:
    run_id = pages.start("gate")
    pages.wait(run_id, lambda run: run["status"] == "BLOCKED")

    wrong = reader.send(f"/runs/{run_id}:approve", output='{"a": ')
    stale = reader.send(f"/runs/{run_id}:approve", generation=1)

    assert [wrong[0], stale[0]] == [400, 409]
    assert "Go back, and correct it." in wrong[2]
    for page in (wrong, stale):
        assert f'<a href="/runs/{run_id}">The run as it is now</a>' in page[2]


def test_a_repair_leads_to_the_audit_which_a_reload_only_reads(
    reader: Reader, pages: Pages
) -> None:
    """A page that answered the form itself would repair again whenever it is loaded anew."""
    run_id = pages.start("retry")
    pages.wait(run_id, lambda run: run["status"] == "ERROR")
    file = sqlite3.connect(pages.folder / "leasehold.db")
    with contextlib.closing(file), file:
        file.execute(
            "UPDATE runs SET body = json_set(body, '$.alarmAt', NULL), alarmAt = NULL WHERE id = ?",
            (run_id,),
        )
    found = reader.open("/audit?look=all")[2]
    assert f'<a href="/runs/{run_id}">' in found
    assert "Repair 1 run<" in found

    done = reader.send("/audit:repair")

    assert "Every run was looked at: 1 run was not in order, 1 repaired." in done[2]
    assert reader.url.endswith("/audit")
    assert "every run was looked at" in reader.open("/audit?look=all")[2]
    assert pages.run(run_id)["alarmAt"]


def test_the_page_of_limits_names_the_keys_that_are_lowered(reader: Reader, pages: Pages) -> None:
    """A key is what runs were given: a text of a stranger."""
    assert "is lowered" not in reader.open("/registry")[2]
    at = {"loweredAt": "2026-01-01T00:00:00Z", "growsFrom": "2099-01-01T00:00:00Z"}
    lowered = {"key": f"team:{MARKUP}", "share": 0.5, **at}
    file = sqlite3.connect(pages.folder / "leasehold.db")
    with contextlib.closing(file), file:
        file.execute(
            "INSERT INTO slots (parent, id, version, body) VALUES ('', 'lowered-0', 1, ?)",
            (json.dumps(lowered),),
        )

    shown = reader.open("/registry")[2]

    assert f"Limit team:{html.escape(MARKUP)[:20]}" in shown
    assert "is lowered to 50.0 %" in shown
    (listed,) = pages.api.call("/registry")["loweredLimits"]
    assert (listed["key"], listed["share"]) == (f"team:{MARKUP}", 0.5)


def test_a_back_fill_says_how_many_runs_it_has_started(reader: Reader) -> None:
    for first, last, says in (
        ("2023-01-01", "2024-01-02", "The span has 2 times, each with its run now."),
        ("2024-01-01", "2024-01-02", "The span has 1 time, each with its run now."),
    ):
        page = reader.send("/schedules/nightly:backfill", first=first, last=last)
        assert (page[0], says in page[2]) == (200, True), says
    status, _, text = reader.send(
        "/schedules/nightly:backfill", first="2024-02-01", last="2024-02-02"
    )
    assert (status, "each with its run now" in text) == (400, False)


def test_a_form_that_starts_a_run_now_starts_one_however_often_it_is_sent(
    reader: Reader, pages: Pages
) -> None:
    """A second click on the page, or a reload of what came after the first, is the same order."""
    before = len(pages.api.call("/runs?label=schedule:nightly")["runs"])
    orders = []
    for _ in range(2):
        form = reader.open("/schedules")[2].partition("nightly:trigger")[2]
        orders.append(re.findall(r'name="id" value="([^"]*)"', form)[0])
        sent = [reader.send("/schedules/nightly:trigger", id=orders[-1])[0] for _ in range(2)]
        assert sent == [200, 200]

    assert orders[0] != orders[1]
    assert len(pages.api.call("/runs?label=schedule:nightly")["runs"]) == before + 2


def test_a_form_for_a_signal_that_is_sent_twice_counts_once(reader: Reader, pages: Pages) -> None:
    """A second click, or a reload of what came after the first, is the same signal."""
    run_id = pages.begin("asked", {})
    pages.wait(run_id, lambda run: run["status"] == "BLOCKED")
    page = reader.open(f"/runs/{run_id}")[2].partition('id="act-signal"')[2]
    fields = {
        "id": re.findall(r'name="id" value="([^"]*)"', page)[0],
        "value": '{"approved": true}',
    }

    sent = [reader.send(f"/runs/{run_id}/signals/approval", **fields)[0] for _ in range(2)]

    assert sent == [200, 200]
    assert len(pages.run(run_id)["signals"]) == 1


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/pauses:set", {"all": "true", "why": "x"}),
        ("/schedules/nightly:trigger", {}),
        ("/schedules/nightly:backfill", {"first": "2025-01-01", "last": "2025-01-02"}),
        ("/runs/r-0123456789abcdef/signals/approval", {"value": "1"}),
    ],
)
def test_a_form_of_a_pattern_that_no_page_made_is_refused(
    reader: Reader, pages: Pages, path: str, fields: dict[str, str]
) -> None:
    before = pages.api.call("/pauses"), pages.api.call("/schedules")

    forged = reader.send(path, **fields, formToken="ab" * 32)
    foreign = reader.ask(path, b"why=x", {"Sec-Fetch-Site": "cross-site"})

    assert (forged[0], foreign[0]) == (403, 403)
    assert (pages.api.call("/pauses"), pages.api.call("/schedules")) == before


def test_a_form_of_another_person_s_page_is_refused(reader: Reader, pages: Pages) -> None:
    """Its token is one of this server, and of the cookie of another browser."""
    run_id = pages.start("retry")
    pages.wait(run_id, lambda run: run["status"] == "ERROR")
    reader.token = Reader(pages).token

    status, kind, text = reader.send(f"/runs/{run_id}:cancel", reason="x")

    assert (status, kind) == (403, "text/html")
    assert "open the page again" in text
    assert not pages.run(run_id)["cancelled"]


@pytest.mark.parametrize(
    "header",
    ["X-Forwarded-User", "X-Goog-Authenticated-User-Email", "Remote-User", "X-Forwarded-Email"],
)
def test_a_header_that_names_a_person_is_nothing_where_none_is_switched_on(
    reader: Reader, pages: Pages, header: str
) -> None:
    run_id = pages.start("retry")
    pages.wait(run_id, lambda run: run["status"] == "ERROR")
    named = {"Sec-Fetch-Site": "same-origin", header: "accounts.google.com:eve@shop.example"}
    body = urlencode({"formToken": reader.token, "reason": "x"}).encode()

    page = reader.ask(f"/runs/{run_id}", None, named)[2]
    status = reader.ask(f"/runs/{run_id}:pause", body, named)[0]

    assert "eve" not in page
    assert status == 200
    assert [one["actor"] for one in pages.run(run_id)["operations"]] == ["dashboard"]


def test_the_page_of_a_run_that_waits_for_a_limit_names_who_has_it(
    reader: Reader, pages: Pages
) -> None:
    """The key of a limit is what the run was given: a text of a stranger."""
    first, second = (pages.begin("calls", {"mode": "hold", "team": MARKUP}) for _ in range(2))
    runs = (first, second)
    (waiting,) = until(lambda: [one for one in runs if pages.run(one)["slotWait"]])
    held = second if waiting == first else first

    text = reader.open(f"/runs/{waiting}")[2]

    why = text.partition('id="why">')[2].partition("</p>")[0]
    assert held in why
    assert "&lt;img" in why
    assert "<img" not in text
    for run_id in runs:
        pages.let_go(run_id)


def _stack_is_asked(pages: Pages, lane: str) -> bool:
    """Ask a lane what it does; on a busy machine it is between two attempts at times."""
    try:
        pages.post(f"{lane}:stack", {})
    except urllib.error.HTTPError as refused:
        if refused.code != HTTPStatus.CONFLICT:
            raise
        refused.close()
        return False
    return True


def test_lanes_are_seen_by_name_while_they_work_and_after_a_kill(
    reader: Reader, pages: Pages
) -> None:
    """The document of their run is not written meanwhile: the poll looks at each lane."""
    run_id = pages.begin("items", {})
    page = reader.poll(
        f"/runs/{run_id}",
        lambda it: "0 of 4 items done, 2 lanes at work" in it.words and it.links("lane 1"),
    )

    known = {"Sec-Fetch-Site": "same-origin", "If-None-Match": reader.etag}
    (lane,) = page.links("lane 1")
    until(lambda: _stack_is_asked(pages, lane))
    assert reader.ask(f"/runs/{run_id}", None, known)[0] == 200
    call = ".//rect[@class='call']/title"
    page = reader.page_with(lane, lambda it: it.root.find(call) is not None)
    assert page.heading.startswith("Run l-")
    assert MARKUP[:40] in words_of(page.one(call))
    pages.let_go(run_id)

    page = reader.poll(f"/runs/{run_id}", lambda it: "completed" in it.headline)
    assert '"ok": 3' in words_of(page.one(".//*[@id='step-gather']"))


def test_pages_look_again_soon_where_something_moves_later_elsewhere_and_those_of_figures_never(
    reader: Reader, pages: Pages
) -> None:
    held, blocked = pages.start("hold"), pages.start("gate")
    pages.wait(held, lambda run: run["status"] == "IN_PROGRESS")
    pages.wait(blocked, lambda run: run["status"] == "BLOCKED")

    def seconds(path: str) -> str | None:
        return reader.page(path).one(".//body").get("data-poll")

    moving = [f"/runs/{held}", "/?status=IN_PROGRESS"]
    idle = [f"/runs/{blocked}", "/?status=BLOCKED", "/registry", "/deliveries", "/workers"]
    assert {path: seconds(path) for path in moving} == dict.fromkeys(moving, "2")
    assert {path: seconds(path) for path in (*idle, "/schedules")} == dict.fromkeys(
        (*idle, "/schedules"), "10"
    )
    assert {seconds(path) for path in ("/audit", "/budgets", "/budgets/draft")} == {"0"}
    pages.let_go(held)


def test_no_text_of_a_stranger_is_more_than_a_text(reader: Reader, pages: Pages) -> None:
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
    places += [f"/runs/{run_id}" for run_id in (*runs, new)]
    for path in [*places, f"/?label={'%3Cscript%3E'}&pipeline=%22%3E%3Cimg%20src=x%3E"]:
        main = reader.page(path).one(".//main")
        assert [it.tag for it in main.iter() if it.tag in ("img", "script")] == [], path
        assert not [it for it in main.iter() if any(name.startswith("on") for name in it.attrib)]
    pages.post("/overrides/draft:clear", {})
    pages.let_go(runs[3])


def test_the_first_load_of_fifty_runs_fits_in_40_kilobytes(reader: Reader, pages: Pages) -> None:
    path = "/?pipeline=letters"
    for number in range(len(reader.page(path).rows()), 55):
        pages.start("retry" if number % 5 == 0 else "ok", idempotencyKey=f"first-load-{number}")
    page = reader.page(path)
    assert len(page.rows()) >= 50

    parts = [it.get("href") for it in page.root.iter("link")]
    parts += [it.get("src") for tag in ("script", "img") for it in page.root.iter(tag)]
    size = 0
    for part in [path, *parts]:
        headers = {"Accept": "text/html,*/*;q=0.8", "Accept-Encoding": "gzip"}
        request = urllib.request.Request(f"{pages.api.url}{part}", headers=headers)  # noqa: S310 - our own server
        with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
            size += len(answer.read()) + len(str(answer.headers))

    assert len(parts) == 3  # its style sheet, its script, its icon
    assert 0 < size <= 40 * 1024
