"""Outputs that are not whole: what a person sees of them, and what a recreated run keeps."""

from __future__ import annotations

import pytest

from tests.worlds.shell import Shell, only_line

CATALOG = """
from datetime import timedelta
from leasehold import PipelineEntry, Registry, StepDispatchEntry, StepResult, TrialPolicy

def read(ctx, given) -> list[int]:
    return StepResult([1, 2], status="PARTIAL")

def add(ctx, given: list[int]) -> int:
    return sum(given)

def entry(name):
    return StepDispatchEntry(step_type=name, handler=f"sums:{name}",
        agent_timeout=timedelta(minutes=1), dispatch_deadline=timedelta(minutes=2))

STEPS = Registry("dispatch", [entry("read"), entry("add")])
PIPELINES = Registry("pipelines", [PipelineEntry(name="sum", steps=("read", "add"))])
"""


@pytest.fixture
def sums(shell: Shell) -> Shell:
    (shell.folder / "sums.py").write_text(CATALOG)
    shell.settings["LEASEHOLD_CATALOG"] = "sums"
    return shell


def test_a_partial_output_is_shown_and_kept_only_by_a_person_who_says_so(sums: Shell) -> None:
    started = sums.run("start", "sum", "--input", "null", "--in-process")
    run_id = started.stdout.split()[1]
    traced = sums.run("trace", run_id).stdout.splitlines()
    refused = sums.run("recreate", run_id, "--from-step", "add")
    kept = sums.run("recreate", run_id, "--from-step", "add", "--keep-partial")

    assert "step read completed: PARTIAL" in started.stderr
    assert [line.split("\t")[-1] for line in traced if "\tstep_completed\t" in line] == [
        "PARTIAL",
        "",
    ]
    assert "\tPARTIAL [1,2]" in sums.run("show", run_id).stdout
    assert (refused.returncode, refused.stdout) == (2, "")
    assert only_line(refused.stderr) == (
        f"error: Cannot recreate run {run_id} from step add: the output of step read is PARTIAL, "
        "and only outputs of status SUCCESS are kept. Begin at step read (--from-step read), or "
        "keep it all the same (--keep-partial; keepPartial over HTTP)."
    )
    assert kept.returncode == 0, kept.stderr


def test_an_option_of_recreate_is_for_nothing_else(sums: Shell) -> None:
    done = sums.run("batch", "pause", "--pipeline", "sum", "--limit", "1", "--keep-partial")

    assert done.returncode == 2
    assert "--keep-partial is for recreate, not for pause." in done.stderr


def test_a_check_finds_trials_that_cannot_be(sums: Shell) -> None:
    file = sums.folder / "sums.py"
    trials = 'steps=("read", "add"), trials=TrialPolicy("read", "add", 2)'
    file.write_text(CATALOG.replace('steps=("read", "add")', trials))

    done = sums.run("check")
    shown = sums.run("registry").stdout

    assert done.returncode == 1
    assert only_line(done.stdout) == (
        "sums.py:8: Pipeline 'sum': step 'add' reviews its trials, and gives int: it is a number "
        "and must be an object. A verdict has settled (true or false), score (a number) and "
        "findings (a list)."
    )
    assert "read → add (read to add in up to 2 trials)" in shown
