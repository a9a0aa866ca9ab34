"""While traffic is split between two releases, no run waits in vain, and all complete."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.chaos.storm.split_traffic import Split, survive_split
from tests.worlds.emulators import need_firestore

IS_LONG = bool(os.environ.get("LEASEHOLD_STORM"))

#: What the releases differ in, the share of the new one in the end, and what may block meanwhile.
SPLITS = [
    pytest.param("renamed step", 0.5, set(), id="a step that one of them does not know"),
    pytest.param("changed model", 0.0, {"input_mismatch"}, id="a model that differs"),
]


@pytest.mark.skipif(not IS_LONG, reason="takes minutes: make storm")
@pytest.mark.sandboxed
@pytest.mark.parametrize(("mistake", "last", "blocks"), SPLITS)
def test_what_one_release_cannot_run_the_other_does(
    tmp_path: Path, mistake: str, last: float, blocks: set[str]
) -> None:
    need_firestore()
    runs, rounds = 60, 5

    after = survive_split(Split(mistake, runs=runs, rounds=rounds, last=last), tmp_path)

    assert after.given_up == []
    assert {run.status for run in after.runs} == {"COMPLETED"}
    assert after.failures == 0
    assert after.unexplained == []
    assert len(after.paid) == runs * (3 + 3 + 1)
    assert after.blocked.keys() <= blocks
    assert after.kills > 0
