"""The engine of a test plays remote workers, through the services that real ones call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from leasehold import (
    AgentClientError,
    PermanentError,
    PipelineEntry,
    Registry,
    StepContext,
    StepDispatchEntry,
    StepResult,
    testing,
)
from leasehold.errors import InvalidOutputError, InvalidRequestError, LeaseLostError
from leasehold.registry.pipelines import Catalog
from leasehold.testing import InProcessEngine, RemoteStep


class Text(BaseModel):
    words: list[str]


def record(ctx: StepContext, given: str) -> str:
    ctx.artifacts.put("audio.wav", given.encode())
    return given


def count(ctx: StepContext, given: Text) -> int:
    return len(given.words)


def entry(name: str, handler: str, **fields: Any) -> StepDispatchEntry:
    limits = {"agent_timeout": timedelta(minutes=1), "dispatch_deadline": timedelta(minutes=2)}
    return StepDispatchEntry(step_type=name, handler=handler, **limits, **fields)


STEPS = Registry(
    "dispatch",
    [
        entry("record", f"{__name__}:record"),
        entry("transcribe", "remote", output=f"{__name__}:Text", max_retries=2),
        entry("count", f"{__name__}:count"),
    ],
)
PIPELINES = Registry(
    "pipelines", [PipelineEntry(name="talk", steps=("record", "transcribe", "count"))]
)
CATALOG = Catalog(STEPS, PIPELINES)


def transcribe(step: RemoteStep, given: str) -> Text:
    return Text(words=step.artifacts.get("audio.wav").decode().split())


@contextmanager
def engine_with(folder: Path, function: Any) -> Iterator[InProcessEngine]:
    with testing.engine(CATALOG, folder, remote={"transcribe": function}) as engine:
        yield engine


def test_a_run_goes_through_a_remote_step(tmp_path: Path) -> None:
    with engine_with(tmp_path, transcribe) as engine:
        run = engine.start("talk", "so it goes")
        done = engine.run_until_settled(run.run_id)
        at_once = engine.run("talk", "one two")

        assert (done.status, engine.output(run.run_id)) == ("COMPLETED", 3)
        assert (at_once.status, engine.output(at_once.run_id)) == ("COMPLETED", 2)


def test_a_worker_may_be_async_say_how_far_it_is_and_how_good_its_output_is(tmp_path: Path) -> None:
    async def half(step: RemoteStep, given: str) -> StepResult[Mapping[str, Any]]:
        step.progress(0.5, "half of it")
        step.artifacts.put("text.txt", b"so")
        assert (step.artifacts.list(), step.attempt) == (["audio.wav", "text.txt"], 1)
        assert step.time_limit == timedelta(minutes=1)
        return StepResult({"words": ["so"]}, status="PARTIAL")

    with engine_with(tmp_path, half) as engine:
        run = engine.run("talk", "so it goes")

    record = run.steps["transcribe"]
    assert (run.status, record.output_status) == ("COMPLETED", "PARTIAL")
    assert record.progress is not None
    assert record.progress.message == "half of it"


def test_what_a_worker_spends_is_kept_with_the_run(tmp_path: Path) -> None:
    def pays(step: RemoteStep, given: str) -> Text:
        step.spend(usd=0.25)
        step.spend(usd=0.25, tokens=100)
        return Text(words=given.split())

    with engine_with(tmp_path, pays) as engine:
        run = engine.run("talk", "so it goes")

    assert (run.spend.usd, run.spend.tokens) == (0.5, 100)


def test_a_failure_is_tried_again_from_the_checkpoint(tmp_path: Path) -> None:
    seen: list[Any] = []

    def fail_once(step: RemoteStep, given: str) -> Text:
        seen.append(step.resume and step.resume.partial_results)
        step.checkpoint(1, ["so"], phase="words")
        if step.attempt == 1:
            raise AgentClientError("busy", code="busy", retry_after=45)
        return Text(words=given.split())

    with engine_with(tmp_path, fail_once) as engine:
        run = engine.start("talk", "so it goes")
        engine.run_until_idle()
        waiting = engine.show(run.run_id)
        done = engine.run_until_settled(run.run_id)

    assert waiting.error is not None
    assert (waiting.status, waiting.error.code) == ("ERROR", "busy")
    assert waiting.position.dispatch.not_before - waiting.updated_at == timedelta(seconds=45)
    assert (done.status, seen) == ("COMPLETED", [None, ["so"]])


def test_a_permanent_failure_gives_the_run_up(tmp_path: Path) -> None:
    def refuse(step: RemoteStep, given: str) -> Text:
        raise PermanentError("no such voice")

    with engine_with(tmp_path, refuse) as engine:
        assert engine.run("talk", "so").dead_letter_reason == "PERMANENT_FAILURE"


@pytest.mark.parametrize(
    ("how", "counted"), [("release", "interrupted"), ("continue_later", "continued")]
)
def test_a_step_that_is_released_is_claimed_again(tmp_path: Path, how: str, counted: str) -> None:
    def let_go(step: RemoteStep, given: str) -> Text:
        if step.attempt == 1:
            step.checkpoint(1, ["so"])
            getattr(step, how)()
        return Text(words=given.split())

    with engine_with(tmp_path, let_go) as engine:
        run = engine.run("talk", "so it goes")

    assert run.status == "COMPLETED"
    assert getattr(run.steps["transcribe"].attempts, counted) == 1


def test_a_worker_that_falls_silent_loses_its_lease(tmp_path: Path) -> None:
    lost: list[type] = []

    def sleep_once(step: RemoteStep, given: str) -> Text:
        if step.attempt == 1:
            engine.advance(timedelta(minutes=30))
            with pytest.raises(LeaseLostError) as caught:
                step.renew()
            lost.append(caught.type)
        return Text(words=given.split())

    with engine_with(tmp_path, sleep_once) as engine:
        run = engine.start("talk", "so it goes")
        done = engine.run_until_settled(run.run_id)

    assert (done.status, lost) == ("COMPLETED", [LeaseLostError])


def test_an_output_that_does_not_fit_is_the_test_s_to_see(tmp_path: Path) -> None:
    with engine_with(tmp_path, lambda _step, _given: {"text": "so"}) as engine:
        run = engine.start("talk", "so it goes")
        with pytest.raises(InvalidOutputError, match="words"):
            engine.run_until_idle()
        assert engine.show(run.run_id).status == "IN_PROGRESS"  # the worker still has it


def refusal(folder: Path, **options: Any) -> str:
    with pytest.raises(InvalidRequestError) as caught, testing.engine(CATALOG, folder, **options):
        pass
    return caught.value.message


def test_what_plays_no_remote_step_is_refused(tmp_path: Path) -> None:
    playing = {"transcribe": transcribe}

    assert "a step whose handler is 'remote' (transcribe)" in refusal(
        tmp_path, remote={"count": transcribe}
    )
    assert "a function (step, given)" in refusal(tmp_path, remote={"transcribe": 7})
    assert "0 beside remote" in refusal(tmp_path, remote=playing, workers=1)
