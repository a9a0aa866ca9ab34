"""`task.toml`: right in each attempt, whatever was there, and refused where it is not."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from leasehold.testing import FrozenClock, InProcessEngine, step_context
from pipelines.review import task_config
from pipelines.review.models import Claim, Document, Extraction, Finding
from tests.worlds.builders import environ_of

ODD = 'a "b"\n\x00\u202e\U000e0001.md'

STALE = [
    None,
    b"",
    b"trial = ",
    b"\xff\xfe",
    b"[" * 100_000,
    b'run = "another"\ntrial = 1\npoints = 3\ndocuments = []\n',
]


def document(path: str, *, claims: int = 1) -> Document:
    claim = Claim(
        id=f"{path}:1", document=path, section="", line=1, kind="rule", weight=0.5, text="So it is."
    )
    return Document(
        path=path,
        title=None,
        lines=1,
        words=3,
        sections=(),
        links=(),
        claims_found=claims,
        claims=(claim,) * claims,
    )


GIVEN = Extraction(
    folder="/docs",
    agent="test",
    points=7,
    documents=(document("a.md"), document("empty.md", claims=0), document(ODD)),
    skipped_folders=(),
    findings=(),
)


def finding(severity: Any, **fields: Any) -> Any:
    found = Finding(severity=severity, code="c", message="m", remediation="r", **fields)
    return found.model_dump(mode="json")


@pytest.mark.parametrize("stale", STALE)
def test_it_is_written_whatever_is_there_and_says_what_the_trial_is_to_do(
    stale: bytes | None,
) -> None:
    files = {} if stale is None else {task_config.FILE: stale}
    with step_context(run_id="r-1", files=files, attempt=4) as ctx:
        task_config.rewrite(ctx, GIVEN)
        written = ctx.artifacts.get(task_config.FILE).decode()
        config = task_config.read(ctx)

    assert tomllib.loads(written) == {
        "run": "r-1",
        "trial": 1,
        "points": 7,
        "documents": ["a.md", ODD],
        "address": [],
    }
    assert (config.points, config.documents, config.avoid) == (7, ("a.md", ODD), ())
    assert all(line.isprintable() for line in written.splitlines())


def test_each_attempt_of_a_trial_writes_the_same() -> None:
    texts = []
    for attempt in (1, 5):
        with step_context(run_id="r-1", attempt=attempt) as ctx:
            task_config.rewrite(ctx, GIVEN)
            task_config.rewrite(ctx, GIVEN)
            texts.append(ctx.artifacts.get(task_config.FILE))

    assert texts[0] == texts[1]


@pytest.mark.parametrize("stale", STALE)
def test_a_file_that_is_not_of_this_trial_is_not_used(stale: bytes | None) -> None:
    files = {} if stale is None else {task_config.FILE: stale}
    with (
        step_context(run_id="r-1", files=files) as ctx,
        pytest.raises(ValueError, match=r"^task\.toml .*; it is written anew\.$") as refused,
    ):
        task_config.read(ctx)

    assert len(str(refused.value)) < 500


def test_the_step_begins_with_the_right_file_after_a_kill_and_with_a_spoiled_one(
    tmp_path: Path,
) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text("# A\n\nA worker must renew its lease in time.\n")
    environ = environ_of(tmp_path)
    with InProcessEngine(clock=FrozenClock(), workers=0, environ=environ) as engine:
        engine.faults.kill_before_settlement("synthesis")
        run_id = engine.start("review", {"folder": str(tmp_path / "docs"), "points": 3}).run_id
        engine.run_until_idle()
        (file,) = tmp_path.rglob(task_config.FILE)
        right = file.read_bytes()
        file.write_bytes(b"trial = 9")

        run = engine.run_until_settled(run_id)

    assert (run.status, run.steps["synthesis"].attempts.expired) == ("COMPLETED", 1)
    assert file.read_bytes() == right
    assert tomllib.loads(right.decode())["points"] == 3
    assert json.loads(run.steps["publish"].output or "")["verdict"] == "pass"
