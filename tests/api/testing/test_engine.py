"""The engine of a test: operations, time that is moved, and its own environment."""

from __future__ import annotations

import os
import tempfile
from datetime import timedelta
from pathlib import Path

import pytest

from leasehold import PipelineEntry, Registry, testing
from leasehold.errors import (
    CatalogError,
    ChainError,
    InvalidRequestError,
    NotAllowedError,
    RunUnfinishedError,
    StateChangedError,
    StepNotCompletedError,
    UnknownRunError,
)
from leasehold.registry.pipelines import Catalog
from leasehold.testing import InProcessEngine
from tests.api.testing import letters
from tests.api.testing.letters import Draft

WORDS = {"words": ["one"]}


def test_retries_are_waited_for_by_the_clock(engine: InProcessEngine) -> None:
    run = engine.start("busy", WORDS)
    began = engine.clock.now()

    done = engine.run_until_settled(run.run_id)

    assert (done.status, done.steps["busy"].attempts.failed) == ("COMPLETED", 2)
    assert engine.clock.now() - began == timedelta(seconds=30)  # 10 s, then 20 s


def test_a_blocked_run_is_approved_and_its_output_read(engine: InProcessEngine) -> None:
    run = engine.start("letters", {"words": []})
    blocked = engine.run_until_settled(run.run_id)

    generation = blocked.position.dispatch.generation
    engine.approve(run.run_id, reason="looked at it", generation=generation, step="write")
    done = engine.run_until_settled(run.run_id)

    assert (blocked.status, done.status) == ("BLOCKED", "COMPLETED")
    assert engine.output(run.run_id) == {"size": 0}
    assert engine.output(run.run_id, "write", model=Draft) == Draft(lines=[])


def test_runs_are_paused_resumed_cancelled_and_made_anew(engine: InProcessEngine) -> None:
    run = engine.start("letters", WORDS)

    assert engine.pause(run.run_id, reason="wait").paused
    assert engine.run_until_settled(run.run_id).status == "PENDING"
    assert not engine.resume(run.run_id).paused
    assert engine.cancel(run.run_id).cancelled
    again = engine.recreate(run.run_id, input={"words": ["two"]})
    done = engine.run_until_settled(again.run_id)

    assert (done.recreated_from, engine.output(done.run_id)) == (run.run_id, {"size": 3})
    assert [one.run_id for one in engine.runs(pipeline="letters")] == [done.run_id, run.run_id]
    assert [one.run_id for one in engine.runs(status="COMPLETED")] == [done.run_id]
    assert engine.audit() == []


def test_many_runs_are_changed_at_once(engine: InProcessEngine) -> None:
    runs = [engine.start("letters", WORDS) for _ in range(3)]

    tried = engine.batch("cancel", {"pipeline": "letters"}, limit=10, dry_run=True)
    done = engine.batch("cancel", {"pipeline": "letters"}, limit=2)

    assert (tried.matched, tried.changed) == (3, 0)
    assert (done.changed, sum(engine.show(run.run_id).cancelled for run in runs)) == (2, 2)


def test_a_retry_is_for_a_run_that_failed(engine: InProcessEngine) -> None:
    run = engine.start("busy", WORDS)
    engine.run_until_idle()
    engine.retry(run.run_id)
    engine.run_until_idle()

    assert engine.show(run.run_id).position.attempts.failed == 2
    assert engine.sweep().dead_lettered == 0


def test_what_is_not_allowed_is_refused_in_one_line(engine: InProcessEngine) -> None:
    run = engine.start("letters", WORDS)
    with pytest.raises(NotAllowedError, match="Cannot approve run"):
        engine.approve(run.run_id)
    with pytest.raises(StateChangedError):
        engine.pause(run.run_id, generation=7)
    with pytest.raises(UnknownRunError):
        engine.cancel("r-nothing")
    with pytest.raises(InvalidRequestError, match="generation"):
        engine.pause(run.run_id, generation=0)
    with pytest.raises(RunUnfinishedError, match="Wait for it first"):
        engine.output(run.run_id)
    with pytest.raises(StepNotCompletedError):
        engine.output(run.run_id, "send")
    with pytest.raises(InvalidRequestError, match="action"):
        engine.batch("delete", {"pipeline": "letters"}, limit=1)
    with pytest.raises(InvalidRequestError):
        [*engine.runs(state="COMPLETED")]  # type: ignore[call-arg]
    assert engine.show(run.run_id) == run


def test_time_is_moved_no_further_than_the_test_allows(engine: InProcessEngine) -> None:
    run = engine.start("busy", WORDS)

    with pytest.raises(TimeoutError, match=r"still moves after 0:00:05: it is ERROR at step busy"):
        engine.run_until_settled(run.run_id, within=timedelta(seconds=5))


def test_an_engine_whose_time_passes_by_itself_says_what_to_call(tmp_path: Path) -> None:
    with testing.engine(letters, tmp_path, workers=1, clock=testing.system_clock()) as engine:
        run = engine.start("letters", WORDS)
        with pytest.raises(TypeError, match="use wait"):
            engine.run_until_settled(run.run_id)
        with pytest.raises(TypeError, match="advance needs"):
            engine.advance(1)
        assert engine.wait(run.run_id, 30).status == "COMPLETED"


def test_the_environment_of_the_developer_has_no_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.chdir(home)
    monkeypatch.setattr(tempfile, "tempdir", str(home))
    monkeypatch.setenv("LEASEHOLD_STORE", f"sqlite:///{home}/mine.db")
    monkeypatch.setenv("PIPELINE_MAX_RETRIES", "0")
    with testing.engine("tests.api.testing.letters") as engine:
        run = engine.start("busy", WORDS)
        done = engine.run_until_settled(run.run_id)

    assert done.status == "COMPLETED"
    assert os.listdir(home) == []  # noqa: PTH208 - the temporary folder is gone too


def test_a_catalog_is_a_module_its_name_or_a_catalog(tmp_path: Path) -> None:
    catalog = Catalog(letters.STEPS, letters.PIPELINES, letters.GATES)
    for place, one in enumerate((letters, "tests.api.testing.letters", catalog)):
        with testing.engine(one, tmp_path / str(place)) as engine:
            assert engine.run("letters", WORDS).status == "COMPLETED"


@pytest.mark.parametrize("catalog", ["no_such_module", "", None, 7, "tests.worlds.waiting"])
def test_another_catalog_is_refused_in_one_line(tmp_path: Path, catalog: object) -> None:
    with pytest.raises(CatalogError) as refused, testing.engine(catalog, tmp_path):  # type: ignore[arg-type]
        pass
    assert "\n" not in refused.value.message
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "settings", [{"PIPELINE_MAX_RETRY": "1"}, {"PIPELINE_MAX_RETRIES": 1}, {"HOME": "/"}]
)
def test_an_unknown_setting_is_refused(tmp_path: Path, settings: dict[str, str]) -> None:
    with (
        pytest.raises(InvalidRequestError),
        testing.engine(letters, tmp_path, settings=settings),
    ):
        pass


def test_a_pipeline_that_cannot_reach_its_end_is_refused(tmp_path: Path) -> None:
    pipeline = PipelineEntry(name="mixed", steps=("send", "write"))
    catalog = Catalog(letters.STEPS, Registry("pipelines", [pipeline]), letters.GATES)

    with pytest.raises(ChainError) as refused, testing.engine(catalog, tmp_path):
        pass

    assert refused.value.message.startswith(
        "Pipeline 'mixed': step 'send' gives Sent, and step 'write' takes Text: it lacks 'words'"
    )


def test_an_input_may_be_a_model(engine: InProcessEngine) -> None:
    given = letters.Text(words=["one"])

    started = engine.start("letters", given, max_retries=0)
    ran = engine.run("letters", given)
    again = engine.recreate(ran.run_id, input=letters.Text(words=["two", "three"]))

    assert started.input == ran.input == '{"words":["one"]}'
    assert (started.max_retries, ran.max_retries) == (0, None)
    assert again.input == '{"words":["two","three"]}'


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ({"folder": 7}, "folder is '7'"),
        ({"workers": -1}, "workers is '-1'; allowed: a whole number from 0 on"),
        ({"clock": 3}, "clock is '3'"),
        ({"settings": ["A"]}, "settings is"),
    ],
)
def test_bad_arguments_are_refused_in_one_line(arguments: dict[str, object], line: str) -> None:
    with pytest.raises(InvalidRequestError, match=line), testing.engine(letters, **arguments):  # type: ignore[arg-type]
        pass
