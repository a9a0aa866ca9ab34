"""The page on the HTTP API has every call, field and code, and its commands do what they say."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from docs.http_api import missing_meanings
from leasehold import errors
from leasehold.api import calls
from leasehold.api.call_row import CallRow
from leasehold.api.calls import CALLS
from leasehold.api.errors import status_of
from leasehold.remote_workers.calls import LEASE_CALLS
from leasehold.testing import InProcessEngine
from pipelines.catalog import GATES, PIPELINES, STEPS
from tests.worlds.builders import environ_of
from tests.worlds.runs_api import runs_api

PAGE = (Path(__file__).parents[2] / "docs" / "http-api.md").read_text()


def test_each_field_of_the_api_is_described() -> None:
    """One that is missing here is described in api/openapi.py."""
    assert missing_meanings() == []


def test_each_call_that_is_defined_is_served() -> None:
    """A client has its method, and got 404 from every server."""
    defined = {row.name for row in vars(calls).values() if isinstance(row, CallRow) and row.path}

    assert defined <= {row.name for row in CALLS}


def test_each_call_stands_on_the_page() -> None:
    rows = (*CALLS, *LEASE_CALLS)
    paths = [re.sub(r"<(?:path:)?run_id>", "{runId}", row.path) for row in rows]
    paths = [re.sub(r"<(?:path:)?(step|name)>", r"{\1}", path) for path in paths]
    expected = {f"{row.method} {path}" for row, path in zip(rows, paths, strict=True)}

    heads = [line for line in PAGE.splitlines() if line.startswith("### `")]

    assert {call for line in heads for call in re.findall(r"`([^`]+)`", line)} == expected


def test_each_code_that_has_a_status_stands_on_the_page() -> None:
    """Those that only commands meet have none."""
    with_status = {
        error.code
        for error in vars(errors).values()
        if isinstance(error, type)
        and issubclass(error, errors.LeaseholdError)
        and status_of(error.code) != 400
    }

    assert {code for code in with_status if f"`{code}`" not in PAGE} == set()


def test_each_link_of_the_page_leads_somewhere() -> None:
    heads = {line.lstrip("# ").lower() for line in PAGE.splitlines() if line.startswith("#")}

    assert set(re.findall(r"\]\(#([a-z]+)\)", PAGE)) <= heads


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The runs API of a bundle that has a worker, beside a folder of documents; its address."""
    monkeypatch.chdir(tmp_path)
    text = "# A\n\nA lease is never shared. It ends by itself.\n"
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text(text)
    environ = environ_of(tmp_path / "store")
    with (
        InProcessEngine(STEPS, PIPELINES, GATES, environ=environ) as engine,
        runs_api(engine.engine) as url,
    ):
        yield url


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_commands_of_the_page_do_what_they_say(api: str, tmp_path: Path) -> None:
    (commands,) = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)

    done = subprocess.run(
        ["/bin/sh", "-e", "-c", commands],
        cwd=tmp_path,
        env=os.environ | {"API": api},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout

    run_id = json.loads((tmp_path / "run.json").read_text())["runId"]
    files, runs, recreated = map(json.loads, re.sub(r"\}\{", "}\n{", done).splitlines())
    report = (tmp_path / "report.md").read_bytes()
    sizes = {entry["name"]: entry["size"] for entry in files["files"]}
    assert json.loads((tmp_path / "output.json").read_text())["report"].endswith("report.md")
    assert "a.md" in (tmp_path / "extraction.json").read_text()
    assert sizes["report.md"] == len(report)
    assert [run["runId"] for run in runs["runs"]] == [run_id]
    assert (
        json.loads((tmp_path / "trace.json").read_text())["events"][-1]["type"] == "run_completed"
    )
    assert (recreated["status"], recreated["currentStep"]) == ("PENDING", "publish")
