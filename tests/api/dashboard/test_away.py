"""A browser while the server starts, and while its store is away."""

from __future__ import annotations

import re
import resource
import secrets
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.api.dashboard.conftest import serve
from tests.api.server.servers import servers
from tests.api.server.test_starting import WHOLE, starting
from tests.worlds.emulators import firestore_host, need_firestore
from tests.worlds.ports import own_port
from tests.worlds.waiting import until

HTML = "text/html; charset=utf-8"


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
        with starting(tmp_path, WHOLE, port=port) as (_, api):
            until(lambda: api.ask("GET", "/ready").status == 200)
            tab.goto("/")
        expect(tab.locator("#away")).to_contain_text("The server does not answer")
        go_on.unlink()
        with starting(tmp_path, WHOLE, port=port) as (_, api):
            expect(tab.locator("#away")).to_contain_text("the server starts")
            expect(tab.get_by_role("heading", level=1)).to_have_text("Runs")
            go_on.touch()
            until(lambda: api.ask("GET", "/ready").status == 200)
            started = api.post("/runs", {"pipeline": "notes", "input": {}})

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
        tab.goto("/registry")
    with starting(tmp_path, WHOLE, port=port, **header, LEASEHOLD_RIGHTS="bob=operator"):
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
