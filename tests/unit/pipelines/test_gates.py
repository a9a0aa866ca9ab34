"""Gates between a digest and what is built on it: what they let pass, and what they block."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from leasehold import LeaseholdError, Registry
from leasehold.bootstrap import load_catalog
from leasehold.domain.lifecycle import Operation
from leasehold.domain.manifest import Manifest
from leasehold.registry.pipelines import Catalog
from leasehold.services.operate import OperationRequest, operate
from leasehold.testing import InProcessEngine
from pipelines.review.models import Digest, Point, Summary
from tests.unit.pipelines.spoiled_digests import GATES, PIPELINES, SPOILS, STEPS

ROOT = Path(__file__).parents[3]
REPEATED = "It is so, whatever the documents say of leases and of workers."

pytestmark = pytest.mark.usefixtures("spoiled")


def started(engine: InProcessEngine, folder: Path, pipeline: str = "review") -> str:
    run_id = engine.start(pipeline, {"folder": str(folder)}).run_id
    engine.run_until_idle()
    return run_id


def blocked(engine: InProcessEngine, run_id: str) -> Manifest:
    run = engine.show(run_id)
    assert run.status == "BLOCKED"
    assert run.block is not None
    return run


def do(engine: InProcessEngine, operation: Operation, run_id: str) -> Manifest:
    operate(engine.engine, run_id, OperationRequest(operation, actor="ann"))
    engine.run_until_idle()
    return engine.show(run_id)


def with_point(digest: Digest, **update: Any) -> Digest:
    """Change the first key point."""
    first, *others = digest.points
    return digest.model_copy(update={"points": (first.model_copy(update=update), *others)})


def cite(digest: Digest, **update: Any) -> Digest:
    """Change the first citation of the first key point."""
    citation = digest.points[0].citations[0].model_copy(update=update)
    return with_point(digest, citations=(citation,))


def only(digest: Digest, document: str) -> Digest:
    """Keep what rests on one document."""
    points = [each for each in digest.points if each.citations[0].document == document]
    summaries = [each for each in digest.summaries if each.document == document]
    return digest.model_copy(update={"points": tuple(points), "summaries": tuple(summaries)})


@pytest.mark.parametrize("folder", ["docs/decisions", pytest.param(".", marks=pytest.mark.nightly)])
def test_the_documents_of_this_repository_pass(engine: InProcessEngine, folder: str) -> None:
    run = engine.show(started(engine, ROOT / folder))

    assert run.status == "COMPLETED"


@pytest.mark.parametrize(
    ("spoil", "finding"),
    [
        (
            lambda digest: digest.model_copy(update={"points": ()}),
            "(1) The digest has no key points; the documents make 3 claims.",
        ),
        (lambda digest: with_point(digest, text=" "), "(1) Key point 1 is empty."),
        (
            lambda digest: with_point(digest, text="So.\n# Not so."),
            "(1) Key point 1 is not one line of text: 'So.\\n# Not so.'.",
        ),
        (
            lambda digest: with_point(digest, text="so " * 200),
            f"(1) Key point 1 has 600 characters; allowed: 500: {('so ' * 200)[:80]!r}…",
        ),
        (
            lambda digest: digest.model_copy(
                update={
                    "points": tuple(
                        Point(text=REPEATED, citations=point.citations) for point in digest.points
                    )
                }
            ),
            (
                f"(1) Key points 1 and 2 say the same: “{REPEATED}” "
                f"(2) Key points 1 and 3 say the same: “{REPEATED}”"
            ),
        ),
        (
            lambda digest: digest.model_copy(
                update={"summaries": (*digest.summaries, Summary(document="x.md", points=()))}
            ),
            (
                "(1) There is more than one summary of x.md, or it makes no claims. "
                "(2) The summary of x.md is empty."
            ),
        ),
        (
            lambda digest: digest.model_copy(
                update={"summaries": (*digest.summaries, digest.summaries[0])}
            ),
            "(1) There is more than one summary of a.md, or it makes no claims.",
        ),
        (
            lambda digest: digest.model_copy(update={"points": digest.points * 5}),
            "(1) The digest has 15 key points; allowed: 12.",
        ),
    ],
)
def test_a_digest_that_does_not_read_as_one_is_blocked(
    engine: InProcessEngine, docs: Path, spoil: Callable[[Digest], Digest], finding: str
) -> None:
    SPOILS.append(spoil)

    run = blocked(engine, started(engine, docs))

    assert run.block is not None
    assert run.block.check_id == "format_compliance"
    assert run.block.finding.startswith(finding)
    assert f"(leasehold retry {run.run_id})" in run.block.remediation


@pytest.mark.parametrize(
    ("spoil", "finding"),
    [
        (
            lambda digest: with_point(digest, text="Trust me.", citations=()),
            "(1) A point of the digest cites nothing: “Trust me.”",
        ),
        (
            lambda digest: cite(digest, claim="a.md:99"),
            "(1) The digest cites a.md:99, which is not a claim of any document.",
        ),
        (
            lambda digest: cite(digest, claim="a.md:3", document="a.md", quote="It may renew."),
            (
                "(1) The digest quotes “It may renew.” from a.md:3; a.md:3 says "
                "“A worker must renew its lease every 10 seconds.”"
            ),
        ),
        (
            lambda digest: only(digest, "a.md"),
            (
                "(1) The digest cites 1 of 3 documents that make claims; it needs 50%. "
                "Not cited: b.md, c.md."
            ),
        ),
        (
            lambda digest: digest.model_copy(
                update={
                    "summaries": (
                        Summary(document="a.md", points=digest.summaries[1].points),
                        *digest.summaries[1:],
                    )
                }
            ),
            "(1) The summary of a.md cites only other documents: “A run is given up",
        ),
    ],
)
def test_a_digest_that_does_not_rest_on_its_documents_is_blocked(
    engine: InProcessEngine, docs: Path, spoil: Callable[[Digest], Digest], finding: str
) -> None:
    SPOILS.append(spoil)

    run = blocked(engine, started(engine, docs))

    assert run.block is not None
    assert run.block.check_id == "citation_coverage"
    assert run.block.finding.startswith(finding)
    assert "Do not pass the digest on" in run.block.remediation


def test_a_blocked_run_keeps_its_output_and_says_why_in_run_trace_and_log(
    engine: InProcessEngine, docs: Path, caplog: pytest.LogCaptureFixture
) -> None:
    SPOILS.append(lambda digest: with_point(digest, text="Trust me.", citations=()))

    run = blocked(engine, started(engine, docs))

    output = run.steps["synthesis"].output
    assert output is not None
    assert json.loads(output)["points"][0]["text"] == "Trust me."
    assert run.block is not None
    facts = {
        "checkId": "citation_coverage",
        "finding": "(1) A point of the digest cites nothing: “Trust me.”",
        "remediation": run.block.remediation,
    }
    event = next(each for each in engine.trace(run.run_id) if each.type == "gate_blocked")
    assert facts.items() <= (event.model_extra or {}).items()
    logged = [json.loads(line.message) for line in caplog.records if "GATE" in line.message]
    assert [facts.items() <= line.items() for line in logged] == [True]
    assert run.alarm_at is None


def test_what_is_approved_goes_on_as_it_is_and_the_report_fails_it(
    engine: InProcessEngine, docs: Path
) -> None:
    SPOILS.append(lambda digest: with_point(digest, text="Trust me.", citations=()))
    run_id = started(engine, docs)

    run = do(engine, Operation.APPROVE, run_id)

    assert run.status == "COMPLETED"
    assert run.block is None
    published = json.loads(run.steps["publish"].output or "")
    assert published["verdict"] == "fail"
    assert run.steps["synthesis"].trial == 1  # nobody asks the person again
    assert "Trust me." in Path(published["report"]).read_text()


def test_what_is_retried_is_written_again(engine: InProcessEngine, docs: Path) -> None:
    SPOILS.append(lambda digest: with_point(digest, text="Trust me.", citations=()))
    run_id = started(engine, docs)

    run = do(engine, Operation.RETRY, run_id)

    assert run.status == "COMPLETED"
    assert json.loads(run.steps["publish"].output or "")["verdict"] == "pass"
    digest = json.loads(run.steps["synthesis"].output or "")
    assert "Trust me." not in [point["text"] for point in digest["points"]]


def test_a_gate_that_falls_over_fails_the_attempt_and_is_tried_again(
    engine: InProcessEngine, docs: Path
) -> None:
    """It is unknown then whether the output is good: it is neither handed off nor blocked."""
    run = engine.show(started(engine, docs, "buggy"))

    assert run.status == "ERROR"
    assert run.alarm_at is not None
    assert run.steps["judged"].output is not None, "it was paid for"
    assert run.error is not None
    assert (run.error.code, run.error.permanent) == ("gate_raised", False)
    assert run.error.message == "gate buggy: the gate has a bug"


def test_a_gate_that_the_catalog_does_not_have_is_refused() -> None:
    with pytest.raises(LeaseholdError) as refusal:
        Catalog(steps=STEPS, pipelines=PIPELINES, gates=Registry("gates", list(GATES)[:1]))

    assert refusal.value.message == (
        "gates of 'synthesis' in the dispatch registry is 'citation_coverage'; "
        "allowed: format_compliance."
    )


def test_a_catalog_without_gates_needs_none() -> None:
    catalog = load_catalog("tests.worlds.catalogs.sample")

    assert catalog.gates_of("add") == []
