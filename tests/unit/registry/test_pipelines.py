"""Pipelines, and the catalog that holds them with their steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from leasehold import Step, TrialPolicy
from leasehold.domain.manifest_parts import TrialRule
from leasehold.errors import InvalidEntryError, UnknownPipelineError
from leasehold.registry.dispatch import EnvOverrides, StepDispatchEntry
from leasehold.registry.pipelines import Catalog, PipelineEntry
from leasehold.registry.registry import Registry

Entry = Callable[..., StepDispatchEntry]


def catalog(steps: list[StepDispatchEntry], *pipelines: PipelineEntry) -> Catalog:
    return Catalog(steps=Registry("dispatch", steps), pipelines=Registry("pipelines", pipelines))


def test_a_pipeline_without_steps_is_refused() -> None:
    with pytest.raises(InvalidEntryError, match="allowed: at least one step"):
        PipelineEntry(name="letters", steps=())


def test_a_pipeline_that_comes_back_to_a_step_is_refused() -> None:
    """A run knows where it is by the name of its step."""
    with pytest.raises(InvalidEntryError, match="each name once; 'draft' is there twice"):
        PipelineEntry(name="letters", steps=("draft", "send", "draft"))


def test_a_step_type_stands_at_several_places_under_names() -> None:
    letters = PipelineEntry(name="letters", steps=("draft", Step("cut", "a"), Step("cut", "b")))

    assert letters.plan == ("draft", "a", "b")
    assert letters.step_types == ("draft", "cut")
    assert [letters.step_type_of(name) for name in letters.plan] == ["draft", "cut", "cut"]


def test_a_step_without_a_name_is_its_step_type() -> None:
    assert PipelineEntry(name="letters", steps=(Step("draft"),)) == PipelineEntry(
        name="letters", steps=("draft",)
    )


def test_a_name_of_another_step_type_is_refused(entry: Entry) -> None:
    """A worker that does not know names would run that step."""
    letters = PipelineEntry(name="letters", steps=(Step("draft", name="send"),))

    with pytest.raises(InvalidEntryError, match="is 'send'; allowed: another name, which is not"):
        catalog([entry("draft"), entry("send")], letters)


@pytest.mark.parametrize(
    ("step", "allowed"),
    [
        (Step("draft", name="a b"), "for a name a letter, then up to 62"),
        (Step(3), "the names of step types"),  # type: ignore[arg-type] # what a person may give
        (Step("draft", skips_to="send"), "a tuple of names"),  # type: ignore[arg-type] # likewise
        (Step("draft", skips_to=("sent",)), r"a later step than 'draft' \(send, last\)"),
        (Step("draft", skips_to=("draft",)), "a later step than 'draft'"),
    ],
)
def test_an_entry_that_cannot_stand_in_a_pipeline_is_refused(step: Step, allowed: str) -> None:
    with pytest.raises(InvalidEntryError, match=allowed):
        PipelineEntry(name="letters", steps=(step, "send", "last"))


@pytest.mark.parametrize(("skipping", "target"), [("a", "last"), ("first", "b")])
def test_a_skip_that_would_leave_out_a_part_of_the_trials_is_refused(
    skipping: str, target: str
) -> None:
    names = ("first", "a", "b", "last")
    steps = [Step(name, skips_to=(target,)) if name == skipping else name for name in names]

    with pytest.raises(InvalidEntryError, match=r"all steps of the trials, or none \(a, b\)"):
        PipelineEntry(name="letters", steps=tuple(steps), trials=TrialPolicy("a", "b", 3))


def test_a_pipeline_is_found_by_its_name(entry: Entry) -> None:
    letters = PipelineEntry(name="letters", steps=("draft",))

    assert catalog([entry("draft")], letters).pipeline("letters") == letters


def test_an_unknown_pipeline_is_answered_with_the_known_ones(entry: Entry) -> None:
    known = catalog([entry("draft")], PipelineEntry(name="letters", steps=("draft",)))

    with pytest.raises(UnknownPipelineError) as unknown:
        known.pipeline("reports")

    assert unknown.value.message == "Pipeline 'reports' is not known; known: letters."


def test_a_catalog_without_pipelines_says_so(entry: Entry) -> None:
    with pytest.raises(UnknownPipelineError, match="known: none"):
        catalog([entry("draft")]).pipeline("letters")


def test_a_step_that_no_entry_describes_is_refused_with_those_there_are(entry: Entry) -> None:
    with pytest.raises(InvalidEntryError) as refused:
        catalog(
            [entry("draft"), entry("send")], PipelineEntry(name="letters", steps=("draft", "sent"))
        )

    assert refused.value.message == (
        "steps of 'letters' in the pipelines registry is 'sent'; "
        "allowed: steps of the dispatch registry: draft, send."
    )


@pytest.mark.parametrize(("one", "other"), [("a-b", "a_b"), ("read", "READ")])
def test_two_steps_that_would_share_a_variable_are_refused(
    entry: Entry, one: str, other: str
) -> None:
    """To set one would silently set the other."""
    with pytest.raises(InvalidEntryError) as refused:
        catalog([entry(one), entry(other)])

    stem = one.upper().replace("-", "_")
    assert (refused.value.details["key"], refused.value.details["allowed"]) == (
        other,
        f"a name whose variable PIPELINE_{stem}_TIMEOUT_MS is not that of {one!r}",
    )


def test_two_steps_that_name_the_same_variable_are_refused(entry: Entry) -> None:
    shared = EnvOverrides(timeout_ms="", deadline_s="SLOW_DEADLINE_S")

    with pytest.raises(InvalidEntryError, match="SLOW_DEADLINE_S is not that of 'draft'"):
        catalog([entry("draft", env_overrides=shared), entry("send", env_overrides=shared)])


def test_two_steps_may_share_a_queue(entry: Entry) -> None:
    both = catalog([entry("draft", queue="slow"), entry("send", queue="slow")])

    assert [step.queue_id for step in both.steps] == ["slow", "slow"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (5, "5"),
        (None, "None"),
        ("", "''"),
        ("two words", "'two words'"),
        ("a\n", "'a\\n'"),
        ("é", "'é'"),
        ("n" * 64, f"'{'n' * 64}'"),
    ],
)
def test_a_pipeline_has_a_plain_name(name: Any, said: str) -> None:
    with pytest.raises(InvalidEntryError) as refused:
        PipelineEntry(name=name, steps=("draft",))

    assert refused.value.message == (
        f"name of {said} in the pipelines registry is {said}; allowed: 1 to 63 of a-z A-Z 0-9 _ -."
    )


@pytest.mark.parametrize("name", ["a", "1", "_-", "n" * 63])
def test_plain_names_are_taken(name: str) -> None:
    assert PipelineEntry(name=name, steps=("draft",)).key == name


@pytest.mark.parametrize("steps", ["draft", None, 5, {"draft"}])
def test_steps_are_a_tuple(steps: Any) -> None:
    """A string, where a comma was forgotten, would be a step for each letter."""
    with pytest.raises(InvalidEntryError) as refused:
        PipelineEntry(name="letters", steps=steps)

    assert refused.value.message == (
        f"steps of 'letters' in the pipelines registry is {steps!r}; "
        "allowed: a tuple of step types."
    )


def test_a_step_is_named_and_nothing_else(entry: Entry) -> None:
    steps: Any = ("draft", entry("send"))

    with pytest.raises(InvalidEntryError, match="allowed: the names of step types"):
        PipelineEntry(name="letters", steps=steps)


def test_steps_in_a_list_are_taken_as_they_are_at_that_time() -> None:
    steps: Any = ["draft", "send"]
    letters = PipelineEntry(name="letters", steps=steps)

    steps.append("draft")

    assert letters.steps == ("draft", "send")


def test_an_entry_in_the_wrong_registry_is_refused(entry: Entry) -> None:
    steps: Any = Registry("dispatch", [entry("draft")])
    pipelines: Any = Registry("pipelines", [PipelineEntry(name="letters", steps=("draft",))])

    with pytest.raises(InvalidEntryError) as among_pipelines:
        Catalog(steps=steps, pipelines=steps)
    with pytest.raises(InvalidEntryError) as among_steps:
        Catalog(steps=pipelines, pipelines=pipelines)

    assert among_pipelines.value.message == (
        "class of 'draft' in the pipelines registry is 'StepDispatchEntry'; allowed: PipelineEntry."
    )
    assert among_steps.value.message == (
        "class of 'letters' in the dispatch registry is 'PipelineEntry'; "
        "allowed: StepDispatchEntry."
    )


# -- trials ----------------------------------------------------------------------------------------

STEPS = ("collect", "write", "polish", "review")


@pytest.mark.parametrize(
    ("policy", "field", "allowed"),
    [
        ("often", "trials", "a TrialPolicy, or None"),
        (
            TrialPolicy("rewrite", "review", 3),
            "trials.author",
            "a step of the pipeline: collect, write, polish, review",
        ),
        (
            TrialPolicy("write", ["review"], 3),  # type: ignore[arg-type]
            "trials.reviewer",
            "a step of the pipeline: collect, write, polish, review",
        ),
        (
            TrialPolicy("write", "write", 3),
            "trials.reviewer",
            "a step after 'write': no step reviews itself",
        ),
        (
            TrialPolicy("review", "write", 3),
            "trials.reviewer",
            "a step after the author, 'review'",
        ),
        (TrialPolicy("write", "review", 0), "trials.max_trials", "a whole number from 1 to 100"),
        (TrialPolicy("write", "review", True), "trials.max_trials", "a whole number from 1 to 100"),
        (
            TrialPolicy("write", "review", 2.5),  # type: ignore[arg-type]
            "trials.max_trials",
            "a whole number from 1 to 100",
        ),
        (
            TrialPolicy("write", "review", 100),
            "trials.max_trials",
            "at most 66, where a trial has 3 steps",
        ),
    ],
)
def test_trials_that_do_not_go_with_the_steps_are_refused(
    policy: Any, field: str, allowed: str
) -> None:
    with pytest.raises(InvalidEntryError) as refused:
        PipelineEntry(name="paper", steps=STEPS, trials=policy)

    assert (refused.value.details["field"], refused.value.details["allowed"]) == (field, allowed)


def test_trials_are_kept_as_a_run_has_them() -> None:
    paper = PipelineEntry(name="paper", steps=STEPS, trials=TrialPolicy("write", "review", 3))

    assert paper.trial_rule == TrialRule(author="write", reviewer="review", max_trials=3)
    assert PipelineEntry(name="plain", steps=STEPS).trial_rule is None
