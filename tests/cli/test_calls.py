"""The results of recorded results, as the command lists them: of a store, and over a server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from leasehold import testing
from leasehold.testing import InProcessEngine
from tests.worlds.catalogs import client as catalog
from tests.worlds.runs_api import runs_api
from tests.worlds.shell import Shell


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[InProcessEngine]:
    with testing.engine(catalog, tmp_path / ".leasehold") as engine:
        yield engine


def test_the_results_of_calls_are_listed_of_a_store_and_over_a_server(
    engine: InProcessEngine, shell: Shell
) -> None:
    run_id = engine.start("looks_up", {"word": "a\nb"}).run_id
    engine.run_until_settled(run_id)
    with runs_api(engine.engine) as url:
        for there in ((), ("--url", url)):
            done = shell.run("calls", run_id, *there)
            heads, *rows = done.stdout.splitlines()
            small, large = sorted(rows, key=lambda row: row.endswith("a file"))
            found = shell.json("calls", run_id, *there)["calls"]
            first, second = sorted(found, key=lambda call: call["isLarge"])

            assert heads.split() == [
                "STEP",
                "TRIAL",
                "KEY",
                "TYPE",
                "ATTEMPT",
                "TOOK",
                "BYTES",
                "RESULT",
            ]
            assert small.split()[:3] == ["look_up", "1", "small"]
            assert (first["attempt"], first["bytes"]) == (1, len('{"word":"a\\nb"}'))
            assert small.endswith('{"word":"a\\nb"}')
            assert large.endswith("a file")
            assert (first["key"], first["result"]) == ("small", {"word": "a\nb"})
            assert (second["key"], second["result"], second["isLarge"]) == ("large", None, True)
            refused = shell.run("calls", "r-none", *there)
            assert (refused.returncode, refused.stdout) == (2, "")


def test_a_run_without_such_calls_has_none(engine: InProcessEngine, shell: Shell) -> None:
    run_id = engine.start("refuses", {}).run_id

    done = shell.run("calls", run_id)

    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == (
        f"no results of calls in run {run_id}: they end with their step, unless kept\n"
    )
