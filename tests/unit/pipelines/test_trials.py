"""A digest that its reviewer does not accept is written again, and the best of all is published."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from leasehold.domain.manifest import Manifest
from leasehold.testing import InProcessEngine
from pipelines.review.local_agent import LocalAgent
from pipelines.review.models import Claim, Digest
from pipelines.review.questions import DocumentClaims, FolderClaims
from tests.unit.pipelines.spoiled_digests import SPOILS

pytestmark = pytest.mark.usefixtures("spoiled")


def reviewed(engine: InProcessEngine, docs: Path) -> Manifest:
    run_id = engine.start("review", {"folder": str(docs)}).run_id
    engine.run_until_idle()
    return engine.show(run_id)


def lying(count: int) -> Any:
    """Return a hook that puts an invented number into so many key points."""

    def spoil(digest: Digest) -> Digest:
        points = [
            point.model_copy(update={"text": f"{point.text[:-1]}, 77 times."})
            if number < count
            else point
            for number, point in enumerate(digest.points)
        ]
        return digest.model_copy(update={"points": tuple(points)})

    return spoil


def types_of(engine: InProcessEngine, run: Manifest) -> list[str]:
    return [str(event.type) for event in engine.trace(run.run_id)]


def test_the_next_author_is_told_what_to_do_better(
    engine: InProcessEngine, docs: Path, tmp_path: Path
) -> None:
    SPOILS.append(lying(1))

    run = reviewed(engine, docs)

    published = json.loads(run.steps["publish"].output or "")
    (file,) = tmp_path.rglob("task.toml")
    config = tomllib.loads(file.read_text())
    assert (run.status, published["verdict"]) == ("COMPLETED", "pass")
    assert run.steps["synthesis"].trial == 2
    assert types_of(engine, run).count("author_slot_opened") == 1
    assert config["trial"] == 2
    (address,) = config["address"]
    assert address["code"] == "number_unfounded"
    assert address["point"].endswith(", 77 times.")
    assert (
        "; trial 2 of the digest counts, with the score 1 |"
        in Path(published["report"]).read_text()
    )


def test_the_best_is_published_where_none_is_accepted(engine: InProcessEngine, docs: Path) -> None:
    SPOILS.extend([lying(3), lying(1), lying(2)])

    run = reviewed(engine, docs)

    published = json.loads(run.steps["publish"].output or "")
    review = json.loads(run.steps["review"].output or "")
    assert (run.status, published["verdict"]) == ("COMPLETED", "fail")
    assert (run.steps["synthesis"].trial, review["supervision"]["trial"]) == (2, 2)
    assert (review["settled"], review["score"]) == (False, 0.8333)
    assert types_of(engine, run).count("trial_chosen") == 1


def test_a_digest_that_is_accepted_at_once_is_the_only_one(
    engine: InProcessEngine, docs: Path
) -> None:
    run = reviewed(engine, docs)

    assert (run.status, run.steps["synthesis"].trial) == ("COMPLETED", 1)
    assert "author_slot_opened" not in types_of(engine, run)


def test_the_local_agent_says_nothing_that_it_is_to_avoid() -> None:
    texts = ("Every run must have an alarm.", "A worker must renew its lease.")
    claims = tuple(
        Claim(
            id=f"a.md:{line}",
            document="a.md",
            section="",
            line=line,
            kind="rule",
            weight=0.5,
            text=text,
        )
        for line, text in enumerate(texts, start=1)
    )

    digest = LocalAgent().digest(FolderClaims(claims=claims, points=5, avoid=texts[:1]))
    summary = LocalAgent().summary(
        DocumentClaims(document="a.md", title="A", claims=claims, points=5, avoid=texts[:1])
    )

    assert [point.text for point in digest] == [texts[1]]
    assert [point.text for point in summary] == [texts[1]]
