"""Where results of recorded calls lie, for which request they count, and until when."""

from __future__ import annotations

from typing import Any

import pytest

from leasehold.domain import lifecycle
from leasehold.domain.checkpoint import CallCount, CallResult, CallSource
from leasehold.domain.effect import Deletion, owed_effects
from leasehold.domain.manifest import Manifest
from leasehold.domain.notes import Notes
from leasehold.domain.recorded_calls import (
    MAX_CALL_KEY_CHARS,
    MAX_REQUEST_FIELDS,
    call_ref,
    check_call_key,
    difference,
    fingerprint_of,
    is_for,
    may_have_results,
    places_of,
    prefix_of_life,
)
from leasehold.domain.stored import replace
from leasehold.errors import InvalidRequestError
from tests.unit.domain.runs import FOLDER, Runs
from tests.worlds.builders import at_position, with_step


def call_of(key: str = "ask", **fields: Any) -> CallResult:
    """The result of a call of the step draft, in its first trial."""
    usable: dict[str, Any] = {"step": "draft", "trial": 1, "type": "str", "inline": '"yes"'}
    return CallResult(key=key, **(usable | fields))


def counts(run: Manifest, call: CallResult, of: Manifest | None = None) -> bool:
    """Whether the result of a call of one run counts for the current step of another."""
    ref = call_ref(of or run, call)
    return any(
        ref.collection == place.collection and ref.id.startswith(place.prefix) and place.has(ref.id)
        for place in places_of(run)
    )


# -- names -------------------------------------------------------------------------------------


def test_a_result_is_found_by_each_attempt_of_its_step_and_trial(runs: Runs) -> None:
    run = runs.leased()
    later = runs.leased(runs.failed(run), at=30, lease_id="lease-2")

    assert call_ref(run, call_of()) == call_ref(later, call_of())
    assert counts(later, call_of(), of=run)
    assert call_ref(run, call_of()).id.startswith(prefix_of_life(run.life))


@pytest.mark.parametrize(
    "other",
    [
        {"key": "another"},
        {"trial": 2},
        {"step": "send"},
        {"keep": True},
        {"request": {"prompt": "a"}},
    ],
)
def test_what_a_result_is_of_is_in_its_name(runs: Runs, other: dict[str, Any]) -> None:
    run = runs.leased()

    assert call_ref(run, call_of(**other)) != call_ref(run, call_of())


def test_another_trial_finds_what_outlasts_the_one_before(runs: Runs) -> None:
    run = runs.leased()
    second = at_position(run, trial=2)

    assert [counts(second, call_of(keep=keep), of=run) for keep in (False, True)] == [False, True]


def test_a_step_that_is_begun_anew_finds_nothing_of_before(runs: Runs) -> None:
    run = runs.leased()
    anew = replace(run, steps=with_step(run, "draft", anew=1))

    for keep in (False, True):
        assert not counts(anew, call_of(keep=keep), of=run)
        assert counts(anew, call_of(keep=keep))


def test_a_run_finds_what_it_goes_on_from(runs: Runs) -> None:
    old = replace(runs.leased(), run_id="r-old", life="01234567")
    source = CallSource(run_id="r-old", life="01234567", step="draft", trial=1, as_trial=2)
    run = replace(at_position(runs.leased(), trial=2), call_sources=(source,))

    assert counts(run, call_of(), of=old)
    assert not counts(run, call_of(trial=2), of=old)
    assert not counts(at_position(run, trial=3), call_of(), of=old)
    assert counts(at_position(run, trial=3), call_of(keep=True), of=old)
    assert may_have_results(run)


def test_a_first_attempt_has_nothing_to_look_for(runs: Runs) -> None:
    run = runs.leased()
    later = runs.leased(runs.failed(run), at=30, lease_id="lease-2")

    assert (may_have_results(run), may_have_results(later)) == (False, True)
    assert may_have_results(at_position(run, trial=2))


@pytest.mark.parametrize("key", ["", "x" * (MAX_CALL_KEY_CHARS + 1), "a\nb", 7, None])
def test_a_key_is_a_short_printable_text(key: object) -> None:
    with pytest.raises(InvalidRequestError, match="1 to 128 printable characters"):
        check_call_key(key)


# -- requests ----------------------------------------------------------------------------------


def test_a_result_counts_for_the_same_request_alone() -> None:
    asked = {"model": "m-1", "messages": ["a", {"b": 1}]}
    call = call_of(request=fingerprint_of(asked))

    assert is_for(call, fingerprint_of({"messages": ["a", {"b": 1}], "model": "m-1"}))
    assert not is_for(call, fingerprint_of(asked | {"messages": ["a"]}))
    assert not is_for(call, fingerprint_of(asked | {"tools": []}))
    assert is_for(call, None)
    assert is_for(call_of(), fingerprint_of(asked))


@pytest.mark.parametrize(
    ("now", "field"),
    [
        ({"model": "m-2", "messages": []}, "model"),
        ({"model": "m-1", "messages": ["x"]}, "messages"),
        ({"model": "m-1", "messages": [], "tools": []}, "tools"),
        ({"model": "m-1"}, "messages"),
    ],
)
def test_the_first_difference_has_a_name(now: dict[str, Any], field: str) -> None:
    call = call_of(request=fingerprint_of({"model": "m-1", "messages": []}))

    assert difference(call, fingerprint_of(now)) == field


def test_a_fingerprint_is_small_and_tells_nothing_of_the_request() -> None:
    asked = {f"field {number}": f"secret {number}" for number in range(100)}
    told = fingerprint_of(asked)

    assert len(told) == MAX_REQUEST_FIELDS + 1
    assert all(len(digest) == 12 for digest in told.values())
    assert fingerprint_of(asked | {"field 99": "another"}) != told
    assert fingerprint_of("words") == fingerprint_of({"request": "words"})


def test_long_field_names_of_a_request_are_told_apart() -> None:
    """They are cut to what is kept, and each keeps its own mark."""
    first, second = "a" * 100 + "1", "a" * 100 + "2"
    told = fingerprint_of({first: 1, second: 2})

    assert len(told) == 2
    assert all(len(name) <= 64 for name in told)
    assert told == fingerprint_of({second: 2, first: 1})
    assert told != fingerprint_of({first: 2, second: 1})
    assert not set(told) & set(fingerprint_of({"a" * 100 + "3": 1}))
    assert difference(call_of(request=told), fingerprint_of({first: 1, second: 3})) in told


def test_a_field_of_the_name_that_the_rest_has_is_no_rest() -> None:
    many = {f"field {number}": number for number in range(20)}

    assert fingerprint_of(many) != fingerprint_of(many | {"…": 1})


@pytest.mark.parametrize("request_", [object(), float("nan"), {"a": {1, 2}}, "\ud800"])
def test_a_request_is_json(request_: object) -> None:
    with pytest.raises((ValueError, TypeError)):
        fingerprint_of(request_)


# -- what the run hears of it ------------------------------------------------------------------


def noted(runs: Runs, run: Manifest, at: float = 2, **notes: Any) -> Manifest:
    facts: dict[str, Any] = {"rules": runs.rules, "fence": runs.fence(run)}
    return lifecycle.renew(run, runs.at(at), **facts, notes=Notes(**notes)).manifest


def test_calls_are_counted_with_any_write_and_to_write_it_twice_does_no_harm(runs: Runs) -> None:
    run = runs.leased()
    for _ in range(2):
        run = noted(runs, run, calls=CallCount(made=3, spared=1), recorded_calls=3)

    assert (run.steps["draft"].calls, run.position.recorded_calls) == (
        CallCount(made=3, spared=1),
        3,
    )


def test_a_recorded_call_is_progress(runs: Runs) -> None:
    """A step that is killed in each attempt goes on as long as each gets further."""
    failed = runs.leased(runs.failed(), at=30, lease_id="lease-2")

    run = noted(runs, failed, at=31, calls=CallCount(made=1), recorded_calls=1)
    again = noted(
        runs, at_position(run, failures=1), at=32, calls=CallCount(made=1), recorded_calls=1
    )

    assert (failed.position.failures, run.position.failures) == (1, 0)
    assert again.position.failures == 1  # it is no further


def test_they_are_deleted_once_their_step_is_over(runs: Runs) -> None:
    run = noted(runs, runs.leased(), calls=CallCount(made=1), recorded_calls=1)
    other = at_position(run, step="send", lease=None, step_started_at=None, recorded_calls=0)
    (prefix,) = [
        prefix
        for effect in owed_effects(other)
        if isinstance(effect, Deletion)
        for prefix in effect.calls
    ]

    assert run.owed == (f"{FOLDER}/calls/draft-1",)
    assert call_ref(run, call_of()).id.startswith(prefix)
    assert not call_ref(run, call_of(keep=True)).id.startswith(prefix)
    assert not call_ref(run, call_of(trial=11)).id.startswith(prefix)
