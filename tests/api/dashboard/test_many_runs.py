"""Pages among very many runs, as a browser loads them."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from playwright.sync_api import Browser, expect

from bench.many_runs import Size, sqlite_place
from tests.worlds.bundles import ROOT
from tests.worlds.ports import own_port

#: What a first load may travel as, with the style sheet and the script.
FIRST_LOAD_BYTES = 40 * 1024


@pytest.mark.nightly  # to write so many runs takes half a minute, and to take them up a whole one
def test_a_hundred_thousand_runs_are_listed_and_filtered_in_a_small_page(browser: Browser) -> None:
    port = own_port()
    words = [sys.executable, "-m", "leasehold", "serve", "--port", str(port), "--workers", "1"]
    with sqlite_place(Size(98_000, 200, 2_000)) as place:
        environ = os.environ | place.environ | {"PYTHONPATH": str(ROOT)}
        server = subprocess.Popen(words, env=environ, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        context = browser.new_context(base_url=f"http://127.0.0.1:{port}")
        try:
            assert server.stdout is not None
            assert server.stdout.readline().startswith("ready")
            tab = context.new_page()
            loaded: list[int] = []
            network = context.new_cdp_session(tab)
            network.send("Network.enable")
            network.on("Network.loadingFinished", lambda it: loaded.append(it["encodedDataLength"]))
            tab.goto("/", wait_until="networkidle")
            assert 0 < sum(loaded) <= FIRST_LOAD_BYTES
            assert len(loaded) <= 4  # the page, its style sheet, its script, its icon

            expect(tab.get_by_role("link", name="1,000+ pending")).to_be_visible()
            tab.get_by_role("link", name="1,000+ dead-lettered").click()
            expect(tab.get_by_role("row")).to_have_count(51)
            tab.get_by_role("link", name="Older").click()
            expect(tab.get_by_role("row")).to_have_count(51)
            tab.goto("/")
            tab.get_by_label("run id").fill("r-0009799")
            tab.get_by_role("button", name="Filter").click()
            expect(tab.get_by_role("row")).to_have_count(11)
        finally:
            context.close()
            server.kill()
            server.communicate()
