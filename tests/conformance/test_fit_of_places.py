"""What of a live run fits a catalog, at each kind of place: names, waits, children, trials."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from pydantic import BaseModel

from leasehold import (
    Child,
    Each,
    GateEntry,
    Parallel,
    PipelineEntry,
    Registry,
    Step,
    StepContext,
    StepDispatchEntry,
    TrialPolicy,
    Wait,
)
from leasehold.domain import lifecycle
from leasehold.domain.checkpoint import KeptValue
from leasehold.domain.children import Children
from leasehold.domain.manifest import Manifest
from leasehold.domain.manifest_parts import Place
from leasehold.domain.stored import make, replace
from leasehold.errors import (
    ArtifactNotFoundError,
    CatalogMisfitError,
    DamagedFileError,
    OutputGoneError,
)
from leasehold.registry.pipelines import Catalog
from leasehold.services.catalog_fit import (
    GivenValue,
    LiveRunCheck,
    check_approval,
    check_recreation,
    check_retry,
    live_runs,
)
from leasehold.services.engine import Engine, change_run
from leasehold.services.start_run import StartRequest, start_run
from tests.conformance.changed_code import IS_GONE
from tests.worlds.builders import at_position, new_run
from tests.worlds.engines import OpenEngine

pytestmark = pytest.mark.one_store


class Letter(BaseModel):
    text: str


class Parcel(BaseModel):
    weight: int


def write(ctx: StepContext, given: Letter) -> Letter:
    return given


def wrap(ctx: StepContext, given: Parcel) -> Letter:
    return Letter(text=str(given.weight))


REMOTE = {"handler": "remote"}
GONE = {"handler": IS_GONE}


def split(ctx: StepContext, given: Letter) -> list[Letter]:
    return [given]


class Verdict(Letter):
    settled: bool
    score: float
    findings: list[str]


def judge(ctx: StepContext, given: Letter) -> Verdict:
    return Verdict(text=given.text, settled=True, score=1, findings=[])


TAKES_PARCELS = {"handler": f"{__name__}:wrap"}
PLACES = PipelineEntry(
    name="places",
    steps=("draft", Step("cut", name="shorten"), Wait("approval"), Child("inner"), "send"),
)
INNER = PipelineEntry(name="inner", steps=(Step("bind", name="tie"), "sign"))
AT_ONCE = PipelineEntry(name="at-once", steps=("draft", Parallel("send", "bind")))
LISTS = PipelineEntry(name="lists", steps=("split", Each("bind")))
LOOPED = PipelineEntry(
    name="looped",
    steps=("draft", "cut", "judge", "mail"),
    trials=TrialPolicy(author="cut", reviewer="judge", max_trials=2),
)
HANDLERS = {
    **dict.fromkeys(("draft", "cut", "send", "bind", "sign", "mail"), "write"),
    "split": "split",
    "judge": "judge",
}
NO_PIPELINES = Registry[PipelineEntry]("pipelines", [])


def catalog_with(*gates: GateEntry, **changes: Mapping[str, Any]) -> Catalog:
    """Return the catalog, with other values for the fields of some steps."""
    steps = [
        StepDispatchEntry(
            step_type=name,
            dispatch_deadline=timedelta(minutes=2),
            **{
                "handler": f"{__name__}:{handler}",
                "agent_timeout": timedelta(minutes=1),
                "isolation": "inline",
                **changes.get(name, {}),
            },
        )
        for name, handler in HANDLERS.items()
    ]
    pipelines = Registry("pipelines", [PLACES, INNER, AT_ONCE, LISTS, LOOPED])
    return Catalog(Registry("dispatch", steps), pipelines, Registry("gates", gates))


def catalog_without(*names: str) -> Catalog:
    """Return the catalog without some steps, and without all pipelines."""
    steps = [one for one in catalog_with().steps if one.step_type not in names]
    return Catalog(Registry("dispatch", steps), NO_PIPELINES)


@pytest.fixture
def start(open_engine: OpenEngine) -> Callable[..., Manifest]:
    """Starts a run with the catalog as it is."""
    engine = open_engine(catalog_with())

    def begin(pipeline: str, **options: Any) -> Manifest:
        return start_run(engine, StartRequest(pipeline, {"text": "x"}, **options)).manifest

    return begin


Start = Callable[..., Manifest]
LETTER = '{"text":"x"}'


def standing_at(run: Manifest, step: str, output: str | None = None) -> Manifest:
    """Return the run at a step: what is before it has an output, and the step this one."""
    done = dict.fromkeys(run.plan[: run.plan.index(step)], LETTER) | {step: output}
    steps = {name: replace(run.steps[name], output=text) for name, text in done.items()}
    dispatch = replace(run.position.dispatch, step=step)
    return at_position(replace(run, steps={**run.steps, **steps}), step=step, dispatch=dispatch)


def with_children(run: Manifest, kind: str) -> Manifest:
    now = run.created_at
    return at_position(run, children=make(Children, kind=kind, runs=1, since=now, look_at=now))


def found(engine: Engine, run: Manifest) -> list[tuple[str, str]]:
    return [(one.step, one.code) for one in LiveRunCheck(engine).misfits(run)]


@pytest.mark.parametrize("pipeline", [PLACES, AT_ONCE, LOOPED], ids=lambda one: one.name)
def test_a_run_fits_the_catalog_that_began_it_wherever_it_stands(
    open_engine: OpenEngine, start: Start, pipeline: PipelineEntry
) -> None:
    run, engine = start(pipeline.name, max_retries=7), open_engine(catalog_with())

    places = {step: found(engine, standing_at(run, step)) for step in pipeline.plan}

    assert [*places.items()] == [(step, []) for step in pipeline.plan]


def test_at_a_wait_no_code_runs_and_nothing_that_was_given_is_needed(
    open_engine: OpenEngine, start: Start
) -> None:
    """It has the queue and the limits of a step beside it, which may be another one by then."""

    def lost(_: GivenValue) -> str:
        raise ArtifactNotFoundError(name="a", store="the test")

    run = standing_at(start("places"), "approval")
    others = (
        open_engine(catalog_with(cut={**GONE, "max_retries": 9})),
        open_engine(catalog_without("cut")),
    )

    looks = [[*LiveRunCheck(engine, lost).misfits(run)] for engine in others]

    assert [[one.step for one in look] for look in looks] == [[], ["inner"]]  # a pipeline is gone
    assert refused(lambda: check_retry(others[1], run)) is None


def test_what_the_catalog_lacks_is_said_with_what_it_has(
    open_engine: OpenEngine, start: Start
) -> None:
    """A place of a later version has no step type that is known here: it goes by its name."""
    run = start("places")
    of_later = replace(run, places={**(run.places or {}), "shorten": make(Place, step_type="")})

    looks = [
        next(LiveRunCheck(open_engine(catalog)).misfits(standing_at(one, step)))
        for one, step, catalog in (
            (of_later, "shorten", catalog_with()),
            (run, "draft", catalog_without(*HANDLERS)),
            (run, "inner", catalog_without()),
        )
    ]

    assert [(one.step, one.code, one.detail.partition("knows no ")[2]) for one in looks] == [
        (
            "shorten",
            "step_unknown",
            "step 'shorten'; known: draft, cut, send, bind, sign, mail, split, judge",
        ),
        ("draft", "step_unknown", "step 'draft'; known: none"),
        ("inner", "step_unknown", "pipeline 'inner'; known: none"),
    ]


def test_of_a_step_that_is_gone_nothing_else_is_said(open_engine: OpenEngine, start: Start) -> None:
    engine = open_engine(catalog_without("split"))

    assert found(engine, start("lists")) == [("split", "step_unknown")]


def test_a_child_that_has_begun_needs_its_parents_own_steps_alone(
    open_engine: OpenEngine, start: Start
) -> None:
    """It keeps its plan and has taken its input; the place has the queue of a step beside it."""
    before = standing_at(start("places"), "inner")
    begun = with_children(before, "child")
    takes_parcels = open_engine(catalog_with(bind=TAKES_PARCELS))

    assert found(takes_parcels, before) == [("inner", "input_mismatch")]
    assert found(takes_parcels, begun) == []
    assert found(open_engine(catalog_without()), begun) == []
    assert found(open_engine(catalog_without("cut")), begun) == [("inner", "step_unknown")]
    assert found(open_engine(catalog_with(send=GONE)), begun) == [("send", "handler_unavailable")]


def test_a_list_that_has_begun_needs_its_step_for_the_items_to_come(
    open_engine: OpenEngine, start: Start
) -> None:
    begun = with_children(standing_at(start("lists"), "bind", "[]"), "each")

    assert ("bind", "handler_unavailable") in found(open_engine(catalog_with(bind=GONE)), begun)


def test_a_gate_is_called_here_also_where_its_step_is_remote(
    open_engine: OpenEngine, start: Start
) -> None:
    gone = GateEntry(name="gone", check=IS_GONE)
    engine = open_engine(catalog_with(gone, mail={**REMOTE, "gates": ("gone",)}))

    assert found(engine, start("looped")) == [("mail", "handler_unavailable")]


@pytest.mark.parametrize("handler", [{}, REMOTE], ids=["here", "remote"])
@pytest.mark.parametrize(
    "error",
    [
        ArtifactNotFoundError(name="a", store="the test"),
        DamagedFileError(name="a", problem="it is short"),
        OutputGoneError(step="draft", run_id="r-1", problem="it is short"),
    ],
    ids=lambda error: error.code,
)
def test_a_value_that_is_lost_is_said(
    open_engine: OpenEngine, start: Start, error: Exception, handler: Mapping[str, Any]
) -> None:
    def lost(_: GivenValue) -> str:
        raise error

    run = standing_at(start("looped"), "mail")
    looks = LiveRunCheck(open_engine(catalog_with(mail=handler)), lost).misfits(run)

    assert ("mail", "input_missing") in [(one.step, one.code) for one in looks]


def test_the_value_that_is_taken_next_is_asked_for_by_its_source(
    open_engine: OpenEngine, start: Start
) -> None:
    """An output that waits for a decision, the one before the step, or the input of the run."""
    asked: list[tuple[str | None, str]] = []

    def load(value: GivenValue) -> str:
        asked.append((value.source, value.taker))
        return LETTER

    run = start("looped")
    skipped = standing_at(run, "mail")
    skipped = replace(skipped, steps={**skipped.steps, "judge": run.steps["judge"]})
    last = standing_at(run, "mail", LETTER)  # there is no step behind it that could take that
    look = LiveRunCheck(open_engine(catalog_with()), load)

    for one in (run, standing_at(run, "mail"), standing_at(run, "draft", LETTER), skipped, last):
        list(look.misfits(one))

    assert asked == [
        (None, "draft"),
        ("judge", "mail"),
        ("draft", "cut"),
        (None, "mail"),
        ("judge", "mail"),
    ]


def test_a_deadline_that_was_that_of_a_request_is_no_limit_that_changed(
    open_engine: OpenEngine, start: Start
) -> None:
    run, engine = start("looped"), open_engine(catalog_with())
    slower = open_engine(catalog_with(draft={"agent_timeout": timedelta(seconds=90)}))
    dispatch = replace(run.position.dispatch, deadline_s=100)
    sources = {**dispatch.sources, "dispatchDeadline": "request"}
    of_request = at_position(run, dispatch=replace(dispatch, sources=sources))

    assert found(engine, at_position(run, dispatch=dispatch)) == [("draft", "limit_changed")]
    assert found(engine, of_request) == []
    assert found(slower, of_request) == [("draft", "limit_changed")]


def test_the_steps_of_a_further_trial_are_ahead_and_those_before_the_trials_are_not(
    open_engine: OpenEngine, start: Start
) -> None:
    run, engine = start("looped"), open_engine(catalog_with(cut=GONE))
    before_it = open_engine(catalog_with(draft=GONE))

    assert found(engine, standing_at(run, "judge")) == [("cut", "handler_unavailable")]
    assert found(engine, standing_at(run, "mail")) == []
    assert found(before_it, standing_at(run, "judge")) == []


def test_a_run_that_moves_on_while_all_are_read_is_looked_at_once(
    open_engine: OpenEngine, start: Start
) -> None:
    run, engine = start("lists"), open_engine(catalog_with())
    arrive = partial(lifecycle.arrive, rules=engine.rules, generation=1, lease_id="1", holder="a")
    looked_at = []

    for one in live_runs(engine):
        looked_at.append(one.run_id)
        if looked_at.count(run.run_id) == 1 and one.run_id == run.run_id:
            change_run(engine, run.run_id, arrive)

    assert looked_at.count(run.run_id) == 1


# What operations ask before they write.


def refused(check: Callable[[], object]) -> tuple[str, str] | None:
    """Return the step for which an operation is refused, and why; None: it is not."""
    try:
        check()
    except CatalogMisfitError as error:
        return error.details["step"], error.details["misfit"]
    return None


@pytest.mark.parametrize(
    ("pipeline", "step", "changes", "problem"),
    [
        ("places", "draft", {}, None),
        ("places", "draft", {"cut": TAKES_PARCELS}, ("shorten", "input_mismatch")),
        ("places", "shorten", {"cut": GONE}, None),  # it is followed by a wait
        ("looped", "mail", {}, None),  # none follows
        ("looped", "cut", {"judge": TAKES_PARCELS}, ("judge", "input_mismatch")),
        ("looped", "judge", {"mail": TAKES_PARCELS}, None),  # its verdict says which follows
    ],
)
def test_an_approval_asks_whether_the_step_behind_the_output_can_take_it(
    open_engine: OpenEngine,
    start: Start,
    pipeline: str,
    step: str,
    changes: Mapping[str, Any],
    problem: tuple[str, str] | None,
) -> None:
    run, engine = standing_at(start(pipeline), step, LETTER), open_engine(catalog_with(**changes))

    assert refused(lambda: check_approval(engine, run)) == problem


@pytest.mark.parametrize(
    ("edited", "lacks", "changes", "problem"),
    [
        ('{"weight":1}', (), {"cut": TAKES_PARCELS}, None),
        ('{"weight":1}', (), {}, ("shorten", "input_mismatch")),
        (
            LETTER,
            (),
            {"draft": TAKES_PARCELS},
            None,
        ),  # it is what the step makes, not what it takes
        (LETTER, ("draft",), {}, ("draft", "step_unknown")),
        (None, ("draft",), {}, None),
    ],
)
def test_an_edited_output_is_that_of_its_step_and_the_next_one_has_to_take_it(
    open_engine: OpenEngine,
    start: Start,
    edited: str | None,
    lacks: Sequence[str],
    changes: Mapping[str, Any],
    problem: tuple[str, str] | None,
) -> None:
    run = standing_at(start("places"), "draft", LETTER)
    engine = open_engine(catalog_without(*lacks) if lacks else catalog_with(**changes))

    assert refused(lambda: check_approval(engine, run, edited)) == problem


@pytest.mark.parametrize(
    ("from_step", "changes", "problem"),
    [
        ("draft", {}, ("draft", "input_mismatch")),  # of the new input
        ("draft", {"draft": TAKES_PARCELS}, None),
        ("shorten", {}, None),
        ("shorten", {"cut": TAKES_PARCELS}, ("shorten", "input_mismatch")),
        ("shorten", {"send": GONE}, ("send", "handler_unavailable")),
        ("approval", {"cut": GONE}, None),
        ("approval", {"send": GONE}, ("send", "handler_unavailable")),
        ("inner", {"bind": TAKES_PARCELS}, ("inner", "input_mismatch")),
        ("send", {"send": GONE}, None),  # it begins without an output before it: that is said else
        ("elsewhere", {"send": GONE}, None),
    ],
)
def test_a_recreation_asks_what_its_first_step_is_given_and_whether_those_behind_it_can_run(
    open_engine: OpenEngine,
    start: Start,
    from_step: str,
    changes: Mapping[str, Any],
    problem: tuple[str, str] | None,
) -> None:
    run, engine = standing_at(start("places"), "inner"), open_engine(catalog_with(**changes))
    new = new_run("r-new", plan=PLACES.plan, places=PLACES.places)
    given = KeptValue(text='{"weight":1}')

    assert refused(lambda: check_recreation(engine, run, new, from_step, given)) == problem


def test_a_recreation_does_not_look_at_what_the_old_run_never_had(
    open_engine: OpenEngine, start: Start
) -> None:
    """That it is missing, the recreation itself says."""
    run = standing_at(start("looped"), "mail")
    new = new_run("r-new", plan=("draft", "fold", "mail"))
    engine = open_engine(catalog_with(mail=TAKES_PARCELS))

    assert refused(lambda: check_recreation(engine, run, new, "mail", KeptValue(text="1"))) is None


def test_an_output_that_is_lost_is_not_needed_where_a_wait_follows(
    open_engine: OpenEngine, start: Start
) -> None:
    run, engine = standing_at(start("places"), "shorten"), open_engine(catalog_with())
    lost = replace(run.steps["shorten"], output_ref="r-1/nowhere.json")
    run = replace(run, steps={**run.steps, "shorten": lost})
    new = new_run("r-new", plan=PLACES.plan, places=PLACES.places)

    assert refused(lambda: check_approval(engine, run)) is None
    assert refused(lambda: check_recreation(engine, run, new, "approval", run.given)) is None
