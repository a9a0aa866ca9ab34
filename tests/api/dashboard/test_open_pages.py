"""Pages that are open in a real browser: what their script does, and its requests.

Also while the server starts, and while its store is away.
"""

from __future__ import annotations

import contextlib
import re
import resource
import secrets
import socket
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests.api.dashboard.conftest import LATER, Pages, serve
from tests.api.server.test_starting import WHOLE, starting
from tests.worlds.emulators import firestore_host, need_firestore
from tests.worlds.ports import own_port
from tests.worlds.servers import servers
from tests.worlds.waiting import until

HTML = "text/html; charset=utf-8"


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
    expect(tab.locator(".bars rect.spared").first).to_be_attached()
    assert tab.locator("details.output").last.evaluate("it => it.open")


def test_what_was_decided_on_another_state_changes_nothing(
    pages: Pages, context: BrowserContext
) -> None:
    """Two people have the same run open, and one of them is slower."""
    run_id = pages.start("gate")
    pages.wait(run_id, lambda run: run["status"] == "BLOCKED")
    first, second = context.new_page(), context.new_page()
    for tab, why in ((first, "it is right"), (second, "it will do")):
        tab.clock.install()
        tab.goto(f"/runs/{run_id}")
        tab.get_by_label("why").first.fill(why)  # a form that is filled in stays as it is
    first.get_by_role("button", name="Approve this run").click()
    expect(first.get_by_role("status").first).to_be_visible()
    pages.wait(run_id, lambda run: run["status"] == "COMPLETED")
    second.clock.run_for(LATER)
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
    tab.clock.install()
    tab.goto(f"/runs/{run_id}")
    tab.get_by_text("Retry…").click()
    tab.get_by_label("a note for the handler").fill("half a sen")
    tab.evaluate("window.scrollTo(0, 200)")

    for status in (200, 304):  # at its first look it knows no version of the page yet
        with tab.expect_response(lambda answer, status=status: answer.status == status):
            tab.clock.run_for(LATER)

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
    tab.clock.install()
    tab.goto(f"/runs/{again}")
    generation = tab.locator("#act-approve [name=generation]")
    before = generation.input_value()
    pages.post(f"/runs/{again}:retry", {"reason": "another look"})
    pages.wait(again, lambda run: run["status"] == "BLOCKED")
    tab.clock.run_for(LATER)
    expect(generation).not_to_have_value(before)
    expect(generation).to_have_value(str(pages.run(again)["dispatch"]["generation"]))
    tab.get_by_role("button", name="Approve this run").click()
    expect(tab.get_by_role("status").first).to_have_text("The output is handed off.")


def test_a_server_that_is_away_is_said_and_its_return_is_seen(pages: Pages, tab: Page) -> None:
    run_id = pages.start("hold")
    tab.clock.install()
    tab.goto(f"/runs/{run_id}")

    tab.context.set_offline(True)
    tab.clock.run_for(LATER)
    expect(tab.locator("#away")).to_contain_text("does not answer")
    expect(tab.get_by_role("heading", level=1)).to_have_text(f"Run {run_id}")
    tab.context.set_offline(False)
    tab.clock.run_for(LATER)

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
    tab.clock.install()
    tab.goto(f"/runs/{run_id}")
    file = sqlite3.connect(pages.folder / "leasehold.db")
    with contextlib.closing(file), file:
        assert file.execute("DELETE FROM runs WHERE id = ?", (run_id,)).rowcount == 1
    tab.clock.run_for(LATER)

    expect(tab.locator("#away")).to_contain_text("is not in the store")
    expect(tab.get_by_role("button", name="Paused: look again")).to_be_visible()
    expect(tab.get_by_role("heading", level=1)).to_have_text(f"Run {run_id}")


# -- a server or a store that is away --------------------------------------------------------------


class Relay:
    """A way to the emulator of Firestore that can be cut."""

    def __init__(self, host: str) -> None:
        name, _, port = host.rpartition(":")
        self._to, self.port = (name, int(port)), own_port()
        self._open: set[socket.socket] = set()
        self._listener: socket.socket | None = None

    def begin(self) -> None:
        """Pass on what comes."""
        self._listener = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def cut(self) -> None:
        """Break off every connection, and refuse new ones."""
        assert self._listener is not None
        for one in (self._listener, *self._open):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        self._open.clear()

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                near = listener.accept()[0]
                far = socket.create_connection(self._to)
                self._open |= {near, far}
                for ends in ((near, far), (far, near)):
                    threading.Thread(target=self._pass, args=ends, daemon=True).start()

    @staticmethod
    def _pass(source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                sink.sendall(data)
        for one in (source, sink):
            one.close()


@contextmanager
def new_tab(browser: Browser, url: str, *, has_script: bool = True) -> Iterator[Page]:
    """Give a tab of another person."""
    context = browser.new_context(base_url=url, java_script_enabled=has_script)
    yield context.new_page()
    context.close()


@pytest.mark.parametrize("command", ["serve", pytest.param("dev", marks=pytest.mark.nightly)])
def test_a_page_that_comes_too_early_opens_by_itself_without_a_script(
    browser: Browser, tmp_path: Path, command: str
) -> None:
    with (
        starting(tmp_path, WHOLE, command) as (_, api),
        new_tab(browser, f"http://127.0.0.1:{api.port}", has_script=False) as tab,
    ):
        answer = tab.goto("/?status=ERROR")
        assert answer is not None
        assert answer.status == 503
        expect(tab.get_by_role("alert")).to_have_text(
            "Not ready: the server starts; ask again in a moment."
        )
        (tmp_path / "go-on").touch()

        expect(tab.get_by_role("heading", level=1)).to_have_text("Runs")
        assert tab.url.endswith("/?status=ERROR")


def test_a_page_that_is_open_says_what_a_restart_of_the_server_does_and_goes_on(
    browser: Browser, tmp_path: Path
) -> None:
    port, go_on = own_port(), tmp_path / "go-on"
    go_on.touch()
    with new_tab(browser, f"http://127.0.0.1:{port}") as tab:
        tab.clock.install()
        with starting(tmp_path, WHOLE, port=port) as (_, api):
            until(lambda: api.ask("GET", "/ready").status == 200)
            tab.goto("/")
        tab.clock.run_for(LATER)
        expect(tab.locator("#away")).to_contain_text("The server does not answer")
        go_on.unlink()
        with starting(tmp_path, WHOLE, port=port) as (_, api):
            tab.clock.run_for(LATER)
            expect(tab.locator("#away")).to_contain_text("the server starts")
            expect(tab.get_by_role("heading", level=1)).to_have_text("Runs")
            go_on.touch()
            until(lambda: api.ask("GET", "/ready").status == 200)
            started = api.post("/runs", {"pipeline": "notes", "input": {}})
            tab.clock.run_for(LATER)

            expect(tab.get_by_role("link", name=started["runId"])).to_be_visible()
            expect(tab.locator("#away")).to_be_hidden()


def test_a_lost_role_is_said_by_the_form_and_by_the_page_that_were_open(
    browser: Browser, tmp_path: Path
) -> None:
    """The server was started again with other rights, under a page that is open."""
    port = own_port()
    (tmp_path / "go-on").touch()
    url, header = f"http://127.0.0.1:{port}", {"LEASEHOLD_IDENTITY_HEADER": "X-Forwarded-User"}
    context = browser.new_context(base_url=url, extra_http_headers={"X-Forwarded-User": "ann"})
    tab = context.new_page()
    with starting(tmp_path, WHOLE, port=port, **header, LEASEHOLD_RIGHTS="ann=operator"):
        tab.goto("/registry")
        expect(tab.get_by_role("heading", level=1)).to_have_text("Limits in force")
        tab.get_by_role("button", name="Live: pause").click()
        tab.get_by_text("Set one…").first.click()
        tab.get_by_label("why").first.fill("more time")
    with starting(tmp_path, WHOLE, port=port, **header, LEASEHOLD_RIGHTS="ann=viewer") as (_, api):
        until(lambda: api.ask("GET", "/ready", X_Forwarded_User="ann").status == 200)
        tab.get_by_role("button", name=re.compile("^Set for")).first.click()
        expect(tab.get_by_role("heading", level=1)).to_have_text("You may not do that")
        expect(tab.get_by_role("alert")).to_contain_text("ann may read")
        tab.clock.install()
        tab.goto("/registry")
    others = {**header, "LEASEHOLD_RIGHTS": "bob=operator"}
    with starting(tmp_path, WHOLE, port=port, **others) as (_, api):
        until(lambda: api.ask("GET", "/ready", X_Forwarded_User="bob").status == 200)
        tab.clock.run_for(LATER)
        expect(tab.locator("#away")).to_contain_text("ann may do nothing")
        expect(tab.get_by_role("button", name="Paused: look again")).to_be_visible()
    context.close()


def test_a_form_meets_a_full_disk_and_is_done_when_there_is_room(
    browser: Browser, tmp_path: Path
) -> None:
    with servers(tmp_path) as begin:
        process, api = begin(LEASEHOLD_CATALOG="tests.api.dashboard.catalog")
        run_id = api.start({"mode": "retry"}, pipeline="letters")
        until(lambda: api.call(f"/runs/{run_id}")["status"] == "ERROR")
        with new_tab(browser, api.url) as tab:
            tab.goto(f"/runs/{run_id}")
            tab.get_by_text("Pause…").click()
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))
            tab.get_by_role("button", name="Pause this run").click()
            expect(tab.get_by_role("alert")).to_contain_text("leasehold.db does not answer")
            expect(tab.get_by_role("main")).to_contain_text("look again before you repeat it")
            assert not api.call(f"/runs/{run_id}")["paused"]
            unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, unlimited)

            tab.goto(f"/runs/{run_id}")
            tab.get_by_text("Pause…").click()
            tab.get_by_role("button", name="Pause this run").click()
            expect(tab.get_by_role("status")).to_have_text("The run was paused.")


@pytest.mark.nightly  # each look at it takes 4 s until Firestore is given up
def test_a_firestore_that_is_away_is_said_and_its_pages_heal(
    browser: Browser, tmp_path: Path
) -> None:
    need_firestore()
    relay = Relay(firestore_host())
    relay.begin()
    stores = {
        "FIRESTORE_EMULATOR_HOST": f"127.0.0.1:{relay.port}",
        "LEASEHOLD_STORE": f"firestore://p-{secrets.token_hex(8)}/(default)",
        "LEASEHOLD_ARTIFACTS_SHARED": "yes",
    }
    with (
        serve(tmp_path, **stores) as pages,
        new_tab(browser, pages.api.url) as kept,
        new_tab(browser, pages.api.url) as opened,
    ):
        run_id = pages.start("hold")
        kept.goto(f"/runs/{run_id}")
        relay.cut()
        expect(kept.locator("#away")).to_contain_text("does not answer", timeout=60_000)
        answer = opened.goto(f"/runs/{run_id}", timeout=60_000)
        assert answer is not None
        assert (answer.status, answer.headers["content-type"]) == (503, HTML)
        relay.begin()

        expect(opened.get_by_role("heading", level=1)).to_have_text(f"Run {run_id}")
        expect(kept.locator("#away")).to_be_hidden(timeout=60_000)
        pages.let_go(run_id)
        expect(kept.locator(".headline .chip")).to_contain_text("completed", timeout=60_000)
