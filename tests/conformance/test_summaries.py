"""The summary of an output is announced in place of the engine's sentence, on both stores.

A run is announced whatever the code for it does.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel

from leasehold import (
    GateContext,
    GateEntry,
    GatePolicyFailure,
    PipelineEntry,
    Registry,
    StepContext,
    StepDispatchEntry,
    StepResult,
)
from leasehold.domain.delivery import delivery_of, delivery_ref
from leasehold.domain.event_message import announced_facts
from leasehold.domain.lifecycle import Operation
from leasehold.domain.manifest import Manifest
from leasehold.registry.channels import LogChannel
from leasehold.registry.pipelines import Catalog
from leasehold.services.engine import Engine
from leasehold.services.execute_step import Hint, execute_step
from leasehold.services.operate import OperationRequest, operate
from leasehold.services.read_runs import get_run
from leasehold.services.start_run import StartRequest, start_run
from leasehold.worker.handler import gates
from tests.worlds.engines import OpenEngine

pytestmark = pytest.mark.one_store

GO_ON = threading.Event()


class Report(BaseModel):
    pages: int
    word: str = ""


def count(ctx: StepContext, given: Any) -> Any:
    return given


def report(ctx: StepContext, given: Report) -> Report:
    return given


def says_it_itself(ctx: StepContext, given: Report) -> StepResult[Report]:
    return StepResult(given, summary=f"{given.pages} pages, {given.word}")


def refuse(ctx: GateContext, output: Report) -> None:
    raise GatePolicyFailure("few", "There are few pages.", "Look at them.")


def words(ctx: GateContext, output: Report) -> str:
    before = ctx.output_of("count")["pages"]
    return f"{output.pages} of {before} pages:\n{output.word}"


async def words_later(ctx: GateContext, output: Report) -> str:
    return "later"


def raises(ctx: GateContext, output: Report) -> str:
    raise SystemExit("no words")


def hangs(ctx: GateContext, output: Report) -> str:
    GO_ON.wait(60)
    return "too late"


def is_a_number(ctx: GateContext, output: Report) -> str:
    return output.pages  # type: ignore[return-value] # as a user's may


def takes_another(ctx: GateContext, output: list[str]) -> str:
    return "never"


def _step(name: str, handler: str, **fields: Any) -> StepDispatchEntry:
    return StepDispatchEntry(
        step_type=name,
        handler=f"{__name__}:{handler}",
        agent_timeout=timedelta(minutes=1),
        dispatch_deadline=timedelta(minutes=2),
        **fields,
    )


STEPS = Registry(
    "dispatch",
    [
        _step("count", "count", isolation="inline"),
        _step("report", "report", isolation="inline"),
        _step("speaks", "says_it_itself", isolation="inline"),
        _step("speaks_afar", "says_it_itself"),
        _step("refused", "says_it_itself", isolation="inline", gates=("few",)),
    ],
)
FUNCTIONS = ("words", "words_later", "raises", "hangs", "is_a_number", "takes_another", "nowhere")
PIPELINES = Registry(
    "pipelines",
    [
        *(
            PipelineEntry(name=name, steps=("count", "report"), summary=f"{__name__}:{name}")
            for name in FUNCTIONS
        ),
        PipelineEntry(name="plain", steps=("count", "report")),
        PipelineEntry(name="speaks", steps=("count", "speaks"), summary=f"{__name__}:raises"),
        PipelineEntry(name="speaks_afar", steps=("speaks_afar",)),
        PipelineEntry(name="speaks_first", steps=("speaks", "report")),
        PipelineEntry(name="refused", steps=("refused",)),
    ],
)
CATALOG = Catalog(
    STEPS,
    PIPELINES,
    Registry("gates", [GateEntry(name="few", check=refuse)]),
    Registry("channels", [LogChannel(name="log")]),
)


@pytest.fixture
def engine(open_engine: OpenEngine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    monkeypatch.setattr(gates, "SUMMARY_TIMEOUT_S", 1.0)
    GO_ON.clear()
    yield open_engine(CATALOG)
    GO_ON.set()


def ended(engine: Engine, pipeline: str, given: dict[str, Any]) -> Manifest:
    run = start_run(engine, StartRequest(pipeline, given)).manifest
    for generation in range(1, len(run.plan) + 1):
        execute_step(engine, Hint(run.run_id, generation))
    return get_run(engine, run.run_id)


def told(engine: Engine, run: Manifest) -> str:
    """Return the summary that each channel gets of the last announcement of a run."""
    assert run.announcement is not None
    ref = delivery_ref(run.run_id, run.announcement.occurrence, "log")
    found = engine.documents.get(ref)
    assert found is not None
    return str(announced_facts(delivery_of(ref, found.document), "")["summary"])


@pytest.mark.parametrize(
    ("pipeline", "summary"),
    [
        pytest.param("words", "3 of 3 pages: fine", marks=pytest.mark.each_store),
        ("words_later", "later"),
        ("speaks", "3 pages, fine"),
    ],
)
def test_the_summary_of_a_pipeline_is_announced(
    engine: Engine, pipeline: str, summary: str
) -> None:
    """The words of the last step go before those of the function of the pipeline."""
    run = ended(engine, pipeline, {"pages": 3, "word": "fine"})

    assert run.status == "COMPLETED"
    assert told(engine, run) == summary


@pytest.mark.sandboxed
def test_what_a_handler_in_its_own_process_says_is_announced(engine: Engine) -> None:
    assert told(engine, ended(engine, "speaks_afar", {"pages": 3, "word": "fi\n\x1bne"})) == (
        "3 pages, fi \\x1bne"
    )


@pytest.mark.parametrize("pipeline", ["words", "speaks"])
def test_a_summary_is_kept_without_secrets_and_of_a_bounded_length(
    engine: Engine, pipeline: str
) -> None:
    secret = "sk-ant-api03-" + "aB3dE5" * 12
    run = ended(engine, pipeline, {"pages": 3, "word": f"password={secret} {'x' * 600}"})

    summary = told(engine, run)
    assert len(summary) == 500
    assert summary.endswith("x…")
    assert secret not in summary
    assert run.steps[run.plan[-1]].summary == summary


@pytest.mark.parametrize("pipeline", ["raises", "hangs", "is_a_number", "takes_another", "nowhere"])
def test_a_function_that_says_nothing_keeps_no_run_from_its_announcement(
    engine: Engine, pipeline: str, caplog: pytest.LogCaptureFixture
) -> None:
    run = ended(engine, pipeline, {"pages": 3})

    assert run.status == "COMPLETED"
    assert told(engine, run) == f"Run {run.run_id} of pipeline {pipeline} is completed."
    lines = [one.message for one in caplog.records if one.name == "leasehold.summary"]
    words = {
        "raises": "SystemExit: no words",
        "hangs": "it did not return within 1 s",
        "is_a_number": "TypeError: it returned int, and should return a text",
        "takes_another": "ValidationError: ",
        "nowhere": f"Summary '{__name__}:nowhere' of pipeline 'nowhere' does not resolve",
    }
    (line,) = lines
    prefix = f"run {run.run_id} is announced without its summary, by {__name__}:{pipeline}: "
    assert line.startswith(prefix)
    assert words[pipeline] in line


@pytest.mark.parametrize("pipeline", ["plain", "speaks_first"])
def test_without_a_summary_of_its_last_output_the_sentence_of_the_engine_stays(
    engine: Engine, pipeline: str
) -> None:
    run = ended(engine, pipeline, {"pages": 3})

    assert told(engine, run) == f"Run {run.run_id} of pipeline {pipeline} is completed."


def test_a_refused_output_is_announced_with_its_finding_and_an_approved_one_with_its_summary(
    engine: Engine,
) -> None:
    """An edited one is another one, of which nothing was said."""
    run = ended(engine, "refused", {"pages": 3, "word": "fine"})
    other = ended(engine, "refused", {"pages": 3, "word": "fine"})
    blocked = told(engine, run)
    operate(engine, run.run_id, OperationRequest(Operation.APPROVE, actor="ada"))
    edited = OperationRequest(Operation.APPROVE, actor="ada", output={"pages": 4})
    operate(engine, other.run_id, edited)

    assert "There are few pages." in blocked
    assert told(engine, get_run(engine, run.run_id)) == "3 pages, fine"
    assert told(engine, get_run(engine, other.run_id)) == (
        f"Run {other.run_id} of pipeline refused is completed."
    )
