"""A handler in a child: what it is given, calls, returns and raises is as in the worker itself."""

from __future__ import annotations

import json
import os
import time
from contextlib import closing
from pathlib import Path

import pytest

from leasehold.domain.result import Failed, Finished, Unable
from leasehold.domain.spend import Spend
from leasehold.worker.context.checkpoints import IncrementalState
from leasehold.worker.sandbox.sandbox import Sandbox
from tests.chaos.sandbox import handlers
from tests.worlds.attempts import Attempts
from tests.worlds.waiting import until

UNAVAILABLE = ("handler_unavailable", "handler_not_found")


def output_of(result: object) -> str:
    assert isinstance(result, Finished), result
    return result.output


def failure_of(result: object) -> Failed:
    assert isinstance(result, Failed), result
    return result


def what_is_wrong(result: object) -> tuple[str, str]:
    """Return the code of a block, and that of its error."""
    assert isinstance(result, Unable), result
    return result.code.value, result.error.code


def test_a_handler_runs_in_another_process_with_the_facts_of_its_attempt(
    attempts: Attempts,
) -> None:
    began = time.monotonic()
    output = json.loads(output_of(attempts.run("who_runs", {"a": 1})))

    assert output.pop("pid") != os.getpid()
    assert 119 - (time.monotonic() - began) < output.pop("left") < 120
    assert output == {"facts": ["r-1", "step", 1, 1], "given": {"a": 1}}


def test_models_are_validated_in_the_child(attempts: Attempts) -> None:
    assert output_of(attempts.run("model", {"title": "a"})) == '{"title":"A","lines":1}'

    unable = attempts.run("model", {"lines": "many"})
    assert what_is_wrong(unable) == ("input_mismatch", "invalid_input")
    assert unable == attempts.run_inline("model", {"lines": "many"})


def test_handlers_are_resolved_once_for_all_children_of_a_module(tmp_path: Path) -> None:
    names = [f"{handlers.__name__}:{name}" for name in ("builds_its_model", "nowhere", "model")]
    with closing(Sandbox(names)) as sandbox:
        attempts = Attempts(sandbox, tmp_path)
        first = output_of(attempts.run("model", {"title": "a"}))
        until(lambda: sandbox._children._ready_zygote(handlers.__name__), 60)  # noqa: SLF001

        assert output_of(attempts.run("builds_its_model")) == "false"
        assert output_of(attempts.run("model", {"title": "a"})) == first
        assert what_is_wrong(attempts.run("nowhere")) == UNAVAILABLE


def test_every_call_of_the_context_is_answered(attempts: Attempts) -> None:
    held = attempts.held(
        outputs={"before": {"n": 1}}, resume=IncrementalState("first", 2, ["kept"])
    )

    output = output_of(attempts.run("all_calls", held=held))

    assert output == (
        '{"resume":["first",["kept"]],"output":{"n":1},"file":true,"exists":[true,false],'
        '"list":["a/b.bin","empty"]}'
    )
    assert attempts.checkpoints == [IncrementalState("reading", 3, {"pages": [1, 2]})]
    assert held.progress is not None
    assert (held.progress.fraction, held.progress.message) == (0.5, "half")
    assert held.notes.spent == Spend(tokens=1000, usd=0.3)


def test_what_a_call_raises_is_raised_in_the_handler(attempts: Attempts) -> None:
    output = output_of(attempts.run("errors_of_calls"))

    assert output == output_of(attempts.run_inline("errors_of_calls"))
    assert '"get":["ArtifactNotFoundError",' in output


def test_a_large_file_crosses(attempts: Attempts) -> None:
    """With a pause each time that the socket is full, it took more than a minute."""
    held = attempts.held(timeout=20)

    assert output_of(attempts.run("large_file", 48 * 1024 * 1024, held)) == "true"


def test_a_handler_that_may_open_nothing_more_is_answered_and_heard(attempts: Attempts) -> None:
    """Linux then refuses to poll even what is open."""
    assert output_of(attempts.run("may_open_nothing_more")) == f'"{"x" * 100_000}"'


def test_many_threads_of_a_handler_may_call_at_once(attempts: Attempts) -> None:
    assert output_of(attempts.run("calls_of_threads", 40)) == "[]"


def test_every_call_of_a_coroutine_reaches_the_worker(attempts: Attempts) -> None:
    held = attempts.held(outputs={"before": {"pages": 3}})

    result = attempts.run("all_calls_of_coroutines", held=held)

    assert json.loads(output_of(result)) == {
        "output": {"pages": 3},
        "file": "a",
        "exists": [True, False],
        "list": ["a.txt"],
    }
    assert [kept.partial_results for kept in attempts.checkpoints] == [["one"]]


def test_an_error_is_made_and_redacted_in_the_child(attempts: Attempts) -> None:
    failed = failure_of(attempts.run("raises", 7))

    assert (failed.error.type, failed.error.code) == ("ValueError", "handler_raised")
    assert failed.error.message == "it failed, token=[redacted]"
    assert "hunter22" not in str(failed)
    assert failed == attempts.run_inline("raises", 7)


def test_an_error_says_that_it_is_permanent(attempts: Attempts) -> None:
    failed = failure_of(attempts.run("raises_permanently"))

    assert (failed.error.code, failed.permanent) == ("never", True)


def test_sys_exit_is_a_failure_of_the_handler(attempts: Attempts) -> None:
    assert failure_of(attempts.run("leaves_by_sys_exit")).error.type == "SystemExit"


def test_a_handler_that_cannot_be_imported_is_no_failure_of_the_run(attempts: Attempts) -> None:
    assert what_is_wrong(attempts.run("tests.chaos.sandbox.nowhere:f")) == UNAVAILABLE


@pytest.mark.parametrize(
    ("handler", "code"),
    [("returns_no_json", "invalid_output"), ("returns_too_much", "too_large")],
)
def test_an_output_that_cannot_be_kept_is_a_mistake(
    attempts: Attempts, handler: str, code: str
) -> None:
    assert what_is_wrong(attempts.run(handler)) == ("handler_mistake", code)


def test_a_process_that_exits_without_a_result_says_with_which_code(attempts: Attempts) -> None:
    error = failure_of(attempts.run("exits_at_once")).error

    assert error.code == "handler_died"
    assert "it exited with code 0" in error.message
    assert error.details == '{"printed":"last words"}'


def test_a_handler_that_closes_its_connection_is_killed(attempts: Attempts) -> None:
    error = failure_of(attempts.run("closes_the_socket")).error

    assert error.code == "handler_garbled"
    assert "closed its connection" in error.message


def test_a_handler_that_writes_into_its_connection_is_killed(attempts: Attempts) -> None:
    assert failure_of(attempts.run("writes_garbage")).error.code == "handler_garbled"


def test_a_result_counts_although_the_process_crashes_after_it(attempts: Attempts) -> None:
    assert output_of(attempts.run("crashes_after_its_result")) == '"done"'


def test_a_process_that_ends_slowly_is_waited_for_without_cpu(attempts: Attempts) -> None:
    """The pipe that it has closed is always ready: each process was asked 300 times and more."""
    assert output_of(attempts.run("crashes_after_its_result")) == '"done"'  # the first takes more
    began = time.thread_time()

    assert output_of(attempts.run("ends_slowly")) == '"done"'
    assert time.thread_time() - began < 0.05


def test_neither_a_handler_that_waits_nor_its_worker_takes_cpu(attempts: Attempts) -> None:
    """Each is woken by the other, and has to take note of it."""
    assert attempts.run("waits_without_cpu", 0.0)  # the first takes more
    began = time.thread_time()

    of_handler = float(output_of(attempts.run("waits_without_cpu", 0.5)))

    assert (of_handler < 0.05, time.thread_time() - began < 0.05) == (True, True)


def test_what_a_handler_registers_for_the_exit_is_called(
    attempts: Attempts, tmp_path: Path
) -> None:
    assert output_of(attempts.run("exits_cleanly", str(tmp_path / "said"))) == '"done"'
    assert (tmp_path / "said").read_text() == "was called"


def test_a_fork_of_the_process_has_no_context_and_sends_no_result(attempts: Attempts) -> None:
    assert output_of(attempts.run("forks")) == '["of the handler",0]'


def test_a_secret_of_more_lines_than_are_kept_of_the_output_is_cut(attempts: Attempts) -> None:
    result = attempts.run("prints_a_key_and_exits")

    assert isinstance(result, Failed)
    assert result.error.details == '{"printed":"[redacted]\\nbye"}'


def test_a_fork_of_the_process_ends_by_the_signals_that_programs_end_by(attempts: Attempts) -> None:
    assert output_of(attempts.run("terminates_its_forks")) == "[-15,-2,-1]"


def test_a_breakpoint_says_where_it_works(attempts: Attempts) -> None:
    assert (
        "set LEASEHOLD_ISOLATION=inline"
        in failure_of(attempts.run("has_a_breakpoint")).error.message
    )
