"""In a storm of wrong deploys and kills every run completes, and nothing is paid for twice."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.chaos.storm.deploys import MISTAKES, Storm, survive_deploys
from tests.worlds.emulators import need_firestore

RUNS = 12
BLOCKS = {"handler_unavailable", "input_mismatch"}
#: A run has to be between two steps as a model changes; where none was, another storm is made.
SEEDS = (1, 2, 3)


#: A server looks at a store that is billed every 10 s, so there it takes a minute more.
KINDS = ["sqlite", "firestore"] if os.environ.get("LEASEHOLD_STORM") else ["sqlite"]


@pytest.mark.nightly  # tests/conformance/test_wrong_deploys.py has the rules, without processes
@pytest.mark.sandboxed
@pytest.mark.parametrize("kind", KINDS)
def test_what_was_deployed_by_mistake_and_put_right_gives_no_run_up(
    tmp_path: Path, kind: str
) -> None:
    if kind == "firestore":
        need_firestore()

    met: set[str] = set()
    for seed in SEEDS:
        storm = Storm(kind, runs=RUNS, rounds=len(MISTAKES), servers=2, seed=seed)
        folder = tmp_path / str(seed)
        folder.mkdir()

        after = survive_deploys(storm, folder)

        assert after.given_up == []
        assert {run.status for run in after.runs} == {"COMPLETED"}
        assert after.failures == 0
        assert after.unexplained == []
        assert len(after.paid) == RUNS * (6 + 6 + 1)
        met |= after.blocked.keys()
        if met >= BLOCKS:
            break
    assert met >= BLOCKS
