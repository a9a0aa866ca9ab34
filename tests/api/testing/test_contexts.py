"""Handlers and gates by themselves, with the contexts that production gives them."""

from __future__ import annotations

import asyncio
import tempfile
from datetime import timedelta
from pathlib import Path

import pytest

from leasehold import (
    AgentClientError,
    ContinuedError,
    GatePolicyFailure,
    IncrementalState,
    StepContext,
)
from leasehold.errors import (
    ArtifactNameError,
    ArtifactNotFoundError,
    InvalidRequestError,
    TooLargeError,
    UnknownLimitError,
)
from leasehold.testing import gate_context, step_context
from leasehold.testing.contexts import RecordingContext
from tests.api.testing.letters import Draft, Text, has_lines, send, write, write_later

GIVEN = Text(words=["one", "two", "three"])


def test_what_a_handler_keeps_is_recorded() -> None:
    with step_context() as ctx:
        out = write(ctx, GIVEN)

    assert out == Draft(lines=["ONE", "TWO", "THREE"])
    assert ctx.recorded.checkpoints == [
        IncrementalState("writing", 1, ["ONE"]),
        IncrementalState("writing", 2, ["ONE", "TWO"]),
        IncrementalState("writing", 3, ["ONE", "TWO", "THREE"]),
    ]


def test_a_handler_resumes_from_what_an_earlier_attempt_kept() -> None:
    with step_context(attempt=2, resume=IncrementalState("writing", 2, ["a", "b"])) as ctx:
        out = write(ctx, GIVEN)

    assert (ctx.attempt, out.lines) == (2, ["a", "b", "THREE"])
    assert len(ctx.recorded.checkpoints) == 1


def test_a_handler_is_asked_to_stop_at_a_checkpoint() -> None:
    with step_context(stop_at_checkpoint=2) as ctx, pytest.raises(InterruptedError):
        write(ctx, GIVEN)

    assert len(ctx.recorded.checkpoints) == 2


def test_a_handler_is_asked_to_stop_on_demand() -> None:
    with step_context() as ctx:
        before = ctx.wait_or_shutdown(60)
        ctx.request_stop()

        assert (before, ctx.shutdown_requested, ctx.wait_or_shutdown(60)) == (False, True, True)


def test_a_coroutine_has_a_twin_of_each_call_that_blocks() -> None:
    blocking = {"checkpoint", "output_of", "checkpointed"}
    files = {"put", "get", "exists", "list"}

    async def handler(ctx: RecordingContext) -> list[object]:
        before = await ctx.aoutput_of("before")
        address = await ctx.artifacts.aput("a.txt", b"a")
        with pytest.raises(ArtifactNotFoundError):
            await ctx.artifacts.aget("b.txt")
        with pytest.raises(InvalidRequestError):
            await ctx.aoutput_of("nobody")
        found = await ctx.artifacts.aget("a.txt"), await ctx.artifacts.aexists("b.txt")
        return [before, address.endswith("a.txt"), found, await ctx.artifacts.alist()]

    with step_context(outputs={"before": 7}) as ctx:
        made = asyncio.run(handler(ctx))

        assert {name for name in blocking if not hasattr(ctx, f"a{name}")} == set()
        assert {name for name in files if not hasattr(ctx.artifacts, f"a{name}")} == set()
    assert made == [7, True, (b"a", False), ["a.txt"]]


def test_a_coroutine_runs_with_the_same_context() -> None:
    with step_context() as ctx:
        out = asyncio.run(write_later(ctx, GIVEN))
        left = ctx.time_left()

    assert out.lines == ["ONE", "TWO", "THREE"]
    assert len(ctx.recorded.checkpoints) == 3
    assert left == timedelta(minutes=9)  # it waited for one of ten minutes, in no time


def test_files_and_outputs_and_progress_and_the_log_are_there() -> None:
    with step_context(
        run_id="r-1",
        step_type="report",
        outputs={"write": Draft(lines=["x"])},
        files={"notes.txt": b"n"},
        time_left=30,
    ) as ctx:
        ctx.progress(1.0000001, "done")
        ctx.log.info("sent to %s", "ada")
        sent = send(ctx, Draft(lines=["ab", "c"]))
        seen = ctx.recorded.files

        assert ctx.output_of("write") == {"lines": ["x"]}
        assert ctx.time_left() == timedelta(seconds=30)
        assert sent.size == 3
        assert seen == {"letter.txt": b"ab\nc", "notes.txt": b"n"}

    assert ctx.recorded.files == seen  # they outlast the folder
    assert [(made.fraction, made.message) for made in ctx.recorded.progress] == [(1.0, "done")]
    assert ctx.recorded.messages == ["sent to ada"]


def test_what_production_refuses_is_refused() -> None:
    with step_context() as ctx:
        with pytest.raises(InvalidRequestError, match=r"partial_results is 'not JSON'.*object"):
            ctx.checkpoint(1, {"at": object()})
        with pytest.raises(InvalidRequestError, match="without NaN and infinity"):
            ctx.checkpoint(1, [float("nan")])
        with pytest.raises(InvalidRequestError, match=r"results\.scores\[1\]\['a b'\] is infinity"):
            ctx.checkpoint(1, {"scores": [1, {"a b": float("inf")}]})
        with pytest.raises(InvalidRequestError, match="a share from 0 to 1; of 100 it is 40/100"):
            ctx.progress(40, "pages")
        with pytest.raises(InvalidRequestError, match="iteration_count is"):
            ctx.checkpoint(-1, [])
        with pytest.raises(TooLargeError):
            ctx.checkpoint(1, "x" * 20_000_000)
        with pytest.raises(ArtifactNameError):
            ctx.artifacts.put("../up.txt", b"")
        with pytest.raises(ArtifactNotFoundError):
            ctx.artifacts.get("nothing.txt")
        with pytest.raises(InvalidRequestError, match="allowed: none yet"):
            ctx.output_of("write")

    assert ctx.recorded.checkpoints == []


def test_nothing_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ZeroDivisionError), step_context(files={"a": b"a"}):
        raise ZeroDivisionError

    assert list(tmp_path.iterdir()) == []


def test_a_gate_is_called_by_itself() -> None:
    with gate_context(given=GIVEN) as ctx:
        has_lines(ctx, Draft(lines=["x"]))
        with pytest.raises(GatePolicyFailure, match=r"no lines of \{'words': \['one'"):
            has_lines(ctx, Draft(lines=[]))

    with gate_context(outputs={"write": {"lines": []}}, files={"a.txt": b"a"}) as ctx:
        assert ctx.given == ctx.output_of("write") == {"lines": []}
        assert ctx.artifacts.get("a.txt") == b"a"


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ({"run_id": "../x"}, "run_id is '../x'; allowed: up to 128"),
        ({"attempt": 0}, "attempt is '0'; allowed: a whole number from 1 on"),
        ({"trial": True}, "trial is 'True'; allowed: a whole number from 1 on"),
        ({"time_left": "5 min"}, "time_left is '5 min'; allowed: a timedelta or seconds"),
        ({"time_left": float("nan")}, "time_left is 'nan'; allowed: a timedelta or seconds"),
        ({"resume": {"phase": ""}}, "resume is .*; allowed: IncrementalState"),
        ({"resume": IncrementalState("", "2", [])}, "resume is .*; allowed: IncrementalState"),  # type: ignore[arg-type]
        ({"outputs": {"a": object()}}, r"outputs\['a'\] is .*; allowed: JSON values"),
        ({"step_type": "a", "outputs": {"a": 1}}, "step_type is 'a'; allowed: the name of a step"),
        ({"stop_at_checkpoint": 0}, "stop_at_checkpoint is '0'"),
    ],
)
def test_bad_arguments_are_refused_in_one_line(arguments: dict[str, object], line: str) -> None:
    with pytest.raises(InvalidRequestError, match=line) as refused, step_context(**arguments):  # type: ignore[arg-type]
        pass
    assert "\n" not in refused.value.message


def ask(ctx: StepContext, busy_s: float | None = None) -> str:
    """Call a provider under a limit, which may take no more for now."""
    with ctx.limit("openai"):
        if busy_s is not None:
            raise AgentClientError("busy", code="rate_limited", retry_after=busy_s)
        return ctx.once("call", lambda: "an answer")


def test_a_limit_is_free_or_taken_as_the_test_says() -> None:
    with step_context(limits={"openai": "free"}) as ctx:
        assert ask(ctx) == "an answer"
    assert ctx.recorded.limits == ["openai"]

    with step_context(limits={"openai": "taken"}) as ctx, pytest.raises(ContinuedError):
        ask(ctx)
    assert (ctx.recorded.limits, ctx.recorded.calls) == ([], {})

    with step_context() as ctx, pytest.raises(UnknownLimitError, match="no Limit"):
        ask(ctx)


def test_a_provider_that_takes_no_more_in_the_block_is_recorded() -> None:
    with step_context(limits={"openai": "free"}) as ctx, pytest.raises(AgentClientError):
        ask(ctx, busy_s=30)

    assert ctx.recorded.refusals == [("openai", 30)]


def test_a_step_has_the_name_that_its_pipeline_gives_it() -> None:
    with step_context(step_type="summarise", step="shorten", calls={"a": 1}) as ctx:
        assert (ctx.step, ctx.step_type) == ("shorten", "summarise")
        assert ctx.once("a", lambda: 2) == 1


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"limits": {"openai": "busy"}}, "'free' or 'taken'"),
        ({"limits": {"openai": True}}, "'free' or 'taken'"),
        ({"step": ""}, "the name of a step that is not in outputs"),
        ({"step": "read", "outputs": {"read": 1}}, "the name of a step that is not in outputs"),
    ],
)
def test_a_limit_or_a_name_that_there_cannot_be_is_refused(given: dict, problem: str) -> None:
    with pytest.raises(InvalidRequestError) as refused, step_context(**given):
        pass

    assert refused.value.details["allowed"] == problem
