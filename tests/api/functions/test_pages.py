"""Pages of the deployed serve_api: what a look costs, and what a browser gets without a run."""

from __future__ import annotations

import gzip
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from werkzeug.test import TestResponse

from leasehold.registry.setting_texts import rights
from leasehold.services.read_runs import get_run
from leasehold.testing import InProcessEngine
from leasehold.web.callers import CallerCheck
from tests.worlds.functions import Function, function_of, one_store
from tests.worlds.ports import own_port
from tests.worlds.tokens import ACCOUNT, AUDIENCE, claims, removed
from tests.worlds.wrapped import Wrapped

BROWSER = {
    "Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
    "Sec-Fetch-Site": "same-origin",
}


class Counted(Wrapped[Any]):
    """A store that notes what it is asked for."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.reads: list[tuple[str, int]] = []

    def get(self, ref: Any) -> Any:
        self.reads.append(("get", 1))
        return self.inner.get(ref)

    def query(self, query: Any) -> Any:
        found = self.inner.query(query)
        self.reads.append((f"query {query.collection}", len(found)))
        return found

    @property
    def documents(self) -> int:
        return sum(count for _, count in self.reads)


@pytest.fixture
def counted(serve_api: Function, monkeypatch: pytest.MonkeyPatch) -> Counted:
    """The store of the function, counted from here on; no page is anew because time has passed."""
    monkeypatch.setattr("leasehold.web.pages._PAGE_FRESH_S", 10**12)
    provider = serve_api.provider
    counted = Counted(provider.engine.documents)
    bundle = provider._bundle  # noqa: SLF001 - it opens its stores itself
    monkeypatch.setattr(
        provider, "_bundle", replace(bundle, engine=replace(bundle.engine, documents=counted))
    )
    return counted


def look(function: Function, path: str, **headers: str) -> TestResponse:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return function.client.get(path, headers=BROWSER | named)


def test_a_poll_of_a_run_without_news_reads_one_document(
    serve_api: Function, engine: InProcessEngine, counted: Counted
) -> None:
    run_id = engine.start("three", {"n": 1}).run_id
    first = look(serve_api, f"/runs/{run_id}", If_None_Match='""')
    counted.reads.clear()

    again = look(serve_api, f"/runs/{run_id}", If_None_Match=first.headers["ETag"])

    assert (first.status_code, again.status_code, again.data) == (200, 304, b"")
    assert counted.documents == 1
    serve_api.post(f"/runs/{run_id}:pause")
    assert (
        look(serve_api, f"/runs/{run_id}", If_None_Match=first.headers["ETag"]).status_code == 200
    )


def test_a_list_reads_its_page_and_a_poll_of_it_makes_one_query(
    serve_api: Function, engine: InProcessEngine, counted: Counted
) -> None:
    for _ in range(70):
        engine.start("three", {"n": 1})
    first = look(serve_api, "/")
    whole = counted.documents
    first = look(serve_api, "/", If_None_Match='""')
    counted.reads.clear()

    again = look(serve_api, "/", If_None_Match=first.headers["ETag"])

    assert len(set(re.findall(r"/runs/(r-[0-9a-f]+)", first.text))) == 50
    assert whole <= 60
    assert again.status_code == 304
    assert [what for what, _ in counted.reads] == ["query runs"]
    counted.reads.clear()
    assert look(serve_api, "/?limit=1000", If_None_Match='"x"').status_code == 200
    assert max(counted.reads, key=lambda it: it[1])[1] <= 51  # it shows 50, and is looked at so


def test_a_program_gets_json_and_a_browser_a_page_at_one_address(
    serve_api: Function, engine: InProcessEngine
) -> None:
    run_id = engine.start("three", {"n": 1}).run_id

    for path in (
        "/",
        "/runs",
        f"/runs/{run_id}",
        "/registry",
        "/deliveries",
        "/workers",
        "/audit",
    ):
        page, answer = look(serve_api, path), serve_api.client.get(path)
        assert (page.status_code, page.mimetype) == (200, "text/html"), path
        assert (answer.status_code, answer.mimetype) == (200, "application/json"), path
        assert "Accept" in page.headers["Vary"]
    assert "every run was looked at" in look(serve_api, "/audit?look=all").text


def test_a_page_may_do_nothing_that_is_not_of_this_server(serve_api: Function) -> None:
    for path in ("/", "/runs/r-0123456789abcdef", "/nothing", "/assets/dashboard.js"):
        headers = look(serve_api, path).headers
        assert "unsafe" not in headers["Content-Security-Policy"]
        assert headers["Content-Security-Policy"].startswith("default-src 'none'")
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["X-Frame-Options"] == "DENY"
    assert look(serve_api, "/").headers["Cache-Control"] == "no-store"


def test_a_page_is_compressed_and_its_token_is_another_one_each_time(
    serve_api: Function, engine: InProcessEngine
) -> None:
    """A secret that is compressed beside a text of a stranger could be guessed by its length."""
    run_id = engine.start("three", {"n": 1}).run_id
    answers = [look(serve_api, f"/runs/{run_id}", Accept_Encoding="gzip") for _ in range(2)]

    assert {answer.headers["Content-Encoding"] for answer in answers} == {"gzip"}
    tokens = [
        re.findall(r'formToken" value="([0-9a-f]+)"', gzip.decompress(answer.data).decode())[0]
        for answer in answers
    ]
    assert tokens[0] != tokens[1]
    assert {"HttpOnly", "SameSite=Strict"} <= {*answers[0].headers["Set-Cookie"].split("; ")}
    assert {answer.headers["Cache-Control"] for answer in answers} == {"no-store"}


def test_a_viewer_is_offered_no_form_and_one_from_elsewhere_is_refused(
    serve_api: Function, engine: InProcessEngine
) -> None:
    """It was opened by an operator, in the same browser; and who has no right sees no page."""
    run_id = engine.start("three", {"n": 1}).run_id
    signed = {"Authorization": f"Bearer {removed(claims(email=ACCOUNT))}"}
    paths = ["/", "/?status=PENDING", f"/runs/{run_id}", "/registry", "/schedules", "/deliveries"]

    def has_role(role: str) -> None:
        serve_api.provider.callers = CallerCheck(
            ("iam",), (AUDIENCE,), service="serve-api", rights=rights(f"{ACCOUNT}={role}")
        )

    has_role("operator")
    page = look(serve_api, f"/runs/{run_id}", **signed).text
    (token,) = {*re.findall(r'formToken" value="([0-9a-f]+)"', page)}
    etag = look(serve_api, f"/runs/{run_id}", If_None_Match='""', **signed).headers["ETag"]
    has_role("viewer")
    anew = look(serve_api, f"/runs/{run_id}", If_None_Match=etag, **signed)
    seen = [look(serve_api, path, **signed) for path in paths]
    form = {"formToken": token, "generation": "1"}
    refused = serve_api.client.post(f"/runs/{run_id}:cancel", data=form, headers=BROWSER | signed)
    has_role("cancel")
    blind = [look(serve_api, path, **signed) for path in paths]

    assert "Cancel this run" in page
    assert anew.status_code == 200  # the page that the browser has is another one
    assert [answer.status_code for answer in seen] == [200] * len(paths)
    assert [
        path for path, answer in zip(paths, seen, strict=True) if "formToken" in answer.text
    ] == []
    assert (refused.status_code, get_run(engine.engine, run_id).cancelled) == (403, False)
    assert [answer.status_code for answer in blind] == [403] * len(paths)


def test_the_files_of_pages_are_kept_by_browsers_while_they_are_the_same(
    serve_api: Function,
) -> None:
    (address,) = re.findall(r'src="(/assets/dashboard.js[^"]*)"', look(serve_api, "/").text)

    named = serve_api.client.get(address)

    assert (named.status_code, named.mimetype) == (200, "text/javascript")
    assert "immutable" in named.headers["Cache-Control"]
    assert serve_api.client.get("/assets/dashboard.js").headers["Cache-Control"] == "no-cache"
    assert serve_api.client.get("/assets/../main.py").status_code == 404
    assert len(named.data) <= 8 * 1024


def test_a_form_of_another_place_changes_nothing(
    serve_api: Function, engine: InProcessEngine
) -> None:
    run_id = engine.start("three", {"n": 1}).run_id
    look(serve_api, f"/runs/{run_id}")  # the browser has its cookie

    answers = [
        serve_api.client.post(
            f"/runs/{run_id}:cancel",
            data={"formToken": token, "reason": "x"},
            headers=BROWSER | {"Sec-Fetch-Site": site, "Origin": "http://localhost"},
        )
        for token, site in (("", "same-origin"), ("ff" * 32, "same-origin"), ("ff" * 32, "none"))
    ]

    assert {answer.status_code for answer in answers} == {403}
    assert not serve_api.get(f"/runs/{run_id}")[1]["cancelled"]


@pytest.mark.parametrize("path", ["/", "/audit"])
def test_a_page_of_a_store_that_does_not_answer_says_so_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """Nothing listens there. A program waits 20 s for its answer, and a person does not.

    The counts of a page, which are made side by side, are given up as soon.
    """
    monkeypatch.setattr("leasehold.web.pages._STORE_PATIENCE_S", 0.2)
    one_store(
        tmp_path,
        monkeypatch,
        LEASEHOLD_STORE="firestore://p-away/(default)",
        LEASEHOLD_ARTIFACTS_SHARED="yes",
        LEASEHOLD_TASKS="cloud-tasks://p/l",
        LEASEHOLD_FUNCTION_URL="http://127.0.0.1:1/",
        LEASEHOLD_TASK_ACCOUNT="tasks@p.iam.gserviceaccount.com",
        CLOUD_TASKS_EMULATOR_URL="http://127.0.0.1:1",
        FIRESTORE_EMULATOR_HOST=f"127.0.0.1:{own_port()}",
    )
    for serve_api in function_of("serve_api"):
        begun = time.monotonic()
        answer = look(serve_api, path)

        assert (answer.status_code, answer.mimetype) == (503, "text/html")
        assert "no success within 0.2 s" in answer.text
        assert "looks again by itself" in answer.text
        assert time.monotonic() - begun < 10
