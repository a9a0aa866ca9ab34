"""A recorded result is written under the lease, and counts until its step is over."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from leasehold.domain import lifecycle
from leasehold.domain.change import Change
from leasehold.domain.checkpoint import CallCount, CallResult, Checkpoint, KeptCounts
from leasehold.domain.lease import Fence
from leasehold.domain.manifest import CALL_TEXT_BYTES, INLINE_BYTES, Manifest, to_document
from leasehold.domain.notes import Notes
from leasehold.domain.once_results import (
    MAX_KEY,
    MAX_RESULTS,
    MAX_TYPE,
    check_call_key,
    recorded_call,
)
from leasehold.domain.stored import replace
from leasehold.errors import InvalidRequestError, LeaseLostError, TooManyCallsError
from tests.unit.domain.runs import FOLDER, At, Runs
from tests.worlds.builders import at_position, with_step

REF = f"{FOLDER}/checkpoints/draft-1/1-a.json.gz"


def call_of(key: str = "ask", inline: str | None = '"yes"', **fields: Any) -> CallResult:
    """The result of a call of the step draft, in its first trial."""
    usable: dict[str, Any] = {"step": "draft", "trial": 1, "type": "str"}
    return CallResult(key=key, inline=inline, **(usable | fields))


def by_reference(key: str = "ask", ref: str = REF, **fields: Any) -> CallResult:
    return call_of(key, None, ref=ref, digest="d" * 64, **fields)


def recorded(
    runs: Runs, run: Manifest, call: CallResult | None = None, *, at: float = 1, **facts: Any
) -> Change:
    usable: dict[str, Any] = {"fence": runs.fence(run), "call": call or call_of()}
    return lifecycle.record_call(run, runs.at(at), rules=runs.rules, **(usable | facts))


# -- one write ---------------------------------------------------------------------------------


def test_a_result_is_recorded_and_counted_and_the_lease_renewed(runs: Runs, at: At) -> None:
    change = recorded(runs, runs.leased(), at=20)

    run = change.manifest
    assert (change.outcome, change.events, change.owed) == ("renewed", (), ())
    assert run.position.lease is not None
    assert (run.position.lease.expires_at, run.position.heartbeat_at, run.alarm_at) == (
        at(50),
        at(20),
        at(50),
    )
    assert run.position.calls == (call_of(),)
    assert run.steps["draft"].calls == CallCount(made=1, spared=0)
    assert recorded_call(run, "ask") == call_of()


def test_the_same_write_twice_is_one_call(runs: Runs) -> None:
    """The answer to the first one may have been lost."""
    once = recorded(runs, runs.leased()).manifest

    twice = recorded(runs, once, call_of(inline='"no"'), at=2).manifest

    assert (twice.position.calls, twice.steps["draft"].calls) == (
        once.position.calls,
        CallCount(made=1),
    )


def test_a_result_that_could_not_be_read_is_replaced_once(runs: Runs) -> None:
    lost = recorded(runs, runs.leased(), by_reference()).manifest

    again = recorded(runs, lost, call_of(), in_place_of=REF).manifest
    twice = recorded(runs, again, call_of(inline='"no"'), in_place_of=REF).manifest

    assert again.position.calls == twice.position.calls == (call_of(),)
    assert twice.steps["draft"].calls == CallCount(made=2)


def test_spared_calls_are_noted_with_any_write(runs: Runs) -> None:
    run = recorded(runs, runs.leased(), notes=Notes(calls_spared=3)).manifest

    for _ in range(2):
        run = lifecycle.renew(
            run, runs.at(2), rules=runs.rules, fence=runs.fence(run), notes=Notes(calls_spared=4)
        ).manifest

    assert run.steps["draft"].calls == CallCount(made=1, spared=4)


@pytest.mark.parametrize(
    ("fence", "second"),
    [(Fence("lease-1", 1), 30), (Fence("lease-1", 2), 1), (Fence("lease-2", 1), 1)],
    ids=["over", "another token", "another lease"],
)
def test_who_does_not_hold_the_lease_records_nothing(runs: Runs, fence: Fence, second: int) -> None:
    with pytest.raises(LeaseLostError):
        recorded(runs, runs.leased(), at=second, fence=fence)


def test_at_the_dispatch_deadline_the_attempt_ends_and_the_result_is_kept(runs: Runs) -> None:
    """It was paid for."""
    steady = runs.rules.known_settings("draft")
    rules = replace(runs.rules, settings_for={"draft": replace(steady, heartbeat=None)}.get)
    late = replace(runs, rules=rules)
    run = late.leased()

    change = recorded(late, run, at=181)

    assert (change.manifest.position.lease, change.manifest.position.attempts.failed) == (None, 1)
    assert change.manifest.position.calls == (call_of(),)


def test_a_large_result_makes_the_run_owe_the_deletion_of_its_folder(runs: Runs) -> None:
    run = recorded(runs, runs.leased(), by_reference()).manifest
    run = recorded(runs, run, by_reference("another")).manifest

    assert run.owed == (f"{FOLDER}/checkpoints/draft-1",)
    assert recorded(runs, runs.leased(), by_reference(keep=True)).manifest.owed == ()


# -- how long it counts ------------------------------------------------------------------------


def two_calls(runs: Runs, run: Manifest) -> Manifest:
    """The run with a result that goes with its step, and one that is kept."""
    run = recorded(runs, run).manifest
    return recorded(runs, run, call_of("kept", keep=True)).manifest


def keys(run: Manifest) -> list[str]:
    return [call.key for call in run.position.calls]


def test_an_attempt_that_comes_later_finds_all_of_them(runs: Runs) -> None:
    run = runs.leased(runs.failed(two_calls(runs, runs.leased())), at=30, lease_id="lease-2")

    assert keys(run) == ["ask", "kept"]
    assert recorded_call(run, "ask") == call_of()


@pytest.mark.parametrize("end", ["handed off", "completed", "given up", "cancelled"])
def test_results_go_with_their_step_unless_they_are_kept(runs: Runs, end: str) -> None:
    """A run that stopped before the end of its step has them for the one that is made of it."""
    run = two_calls(runs, runs.leased())
    match end:
        case "handed off":
            run = runs.with_output(run, at=5)
        case "completed":
            run = runs.with_output(replace(run, plan=("draft",)), at=5)
        case "cancelled":
            run = runs.cancelled(run)
        case _:
            run = lifecycle.fail(
                run,
                runs.at(5),
                rules=runs.rules,
                fence=runs.fence(run),
                error=runs.error(),
                permanent=True,
            ).manifest

    is_over = end in ("handed off", "completed")
    assert keys(run) == (["kept"] if is_over else ["ask", "kept"])
    assert run.steps["draft"].calls == CallCount(made=2)


def test_a_kept_result_is_none_of_another_steps(runs: Runs) -> None:
    run = runs.with_output(two_calls(runs, runs.leased()), at=5)

    assert (run.current_step, recorded_call(run, "kept")) == ("send", None)


def test_a_step_that_is_retried_goes_on_with_them_unless_a_person_says_otherwise(
    runs: Runs,
) -> None:
    """Also after a refusal by a gate: its calls were not at fault, and are not paid twice."""
    failed = runs.failed(two_calls(runs, runs.leased()))
    blocked = runs.blocked(two_calls(runs, runs.leased()))
    unknown = two_calls(runs, runs.leased())
    unknown = lifecycle.release(
        unknown,
        runs.at(5),
        rules=runs.knowing_nothing(),
        fence=runs.fence(unknown),
        reason="instance_shutdown",
    ).manifest
    unknown = runs.swept_unknown(unknown).manifest

    after = [
        lifecycle.retry(run, runs.at(8), rules=runs.rules, actor="ada", reason="").manifest
        for run in (failed, blocked, unknown)
    ]

    anew = lifecycle.retry(blocked, runs.at(8), rules=runs.rules, actor="ada", reason="", anew=True)
    assert [keys(run) for run in after] == [["ask", "kept"]] * 3
    assert keys(anew.manifest) == []
    assert unknown.status == "BLOCKED"


def test_another_trial_has_results_of_its_own_beside_the_kept_ones(runs: Runs) -> None:
    run = at_position(two_calls(runs, runs.leased()), trial=2)

    found = [recorded_call(run, key) is not None for key in ("ask", "kept")]
    later = recorded(runs, run, call_of(trial=2)).manifest

    assert found == [False, True]
    assert [(call.key, call.trial) for call in later.position.calls] == [("kept", 1), ("ask", 2)]


@pytest.mark.parametrize("anew", [False, True])
def test_a_run_that_is_recreated_begins_with_them_unless_a_person_says_otherwise(
    runs: Runs, *, anew: bool
) -> None:
    run = runs.cancelled(two_calls(runs, runs.leased()))

    change = lifecycle.recreate(
        run, runs.at(9), rules=runs.rules, new=runs.new("r-2"), actor="ada", reason="", anew=anew
    )

    created = change.created
    assert created is not None
    assert change.kept == KeptCounts(calls=0 if anew else 2)
    assert (created.position.calls, created.owed) == (() if anew else run.position.calls, ())


# -- keys and room -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "key", ["", "k" * (MAX_KEY + 1), "a\nb", "\x00", "\ud800", "\u202e", None, 3, b"k"]
)
def test_a_key_is_a_short_printable_text(key: object) -> None:
    with pytest.raises(InvalidRequestError, match="allowed: a text of 1 to 128"):
        check_call_key(key)


def test_the_number_of_results_of_a_run_is_limited(runs: Runs) -> None:
    run = runs.leased()
    for number in range(MAX_RESULTS):
        run = recorded(runs, run, call_of(f"call {number}")).manifest

    with pytest.raises(TooManyCallsError, match="beside 100 others; a run keeps at most 100"):
        recorded(runs, run, call_of("one more"))
    assert recorded(runs, run, call_of("call 7")).manifest.position.calls == run.position.calls


def test_what_has_no_room_in_the_manifest_has_it_by_reference(runs: Runs) -> None:
    run = runs.leased()
    with pytest.raises(TooManyCallsError):
        recorded(runs, run, call_of(inline=f'"{"x" * INLINE_BYTES}"'))
    for number in range(6):
        text = f'"{"x" * 31_000}"'
        try:
            run = recorded(runs, run, call_of(f"call {number}", text)).manifest
        except TooManyCallsError:
            run = recorded(runs, run, by_reference(f"call {number}")).manifest

    assert [call.ref is None for call in run.position.calls] == [True] * 5 + [False]
    assert at_position(run, calls=run.position.calls[:5]).text_bytes <= CALL_TEXT_BYTES


#: One that JSON and UTF-8 make longer than it looks.
_LETTERS = 'aé"\\😀'


def any_calls(chance: random.Random) -> list[CallResult]:
    """Up to 130 results, small and large; of some worlds all keys, types and names are long."""
    is_long = chance.random() < 0.5

    def text(most: int) -> str:
        size = most if is_long else chance.randint(1, most)
        return "".join(chance.choices(_LETTERS, k=size))

    calls = []
    for _ in range(chance.randint(1, 130)):
        facts = {"type": text(MAX_TYPE), "keep": chance.random() < 0.5}
        if chance.random() < 0.5:
            size = chance.choice((2, 300, 3_000, 40_000))
            calls.append(call_of(text(MAX_KEY), '"' + "é" * (size // 2) + '"', **facts))
        else:
            calls.append(by_reference(text(MAX_KEY), text(200), **facts))
    return calls


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(seed=st.integers(0, 2**32))
def test_a_manifest_stays_small_whatever_is_recorded(runs: Runs, seed: int) -> None:
    """With input, outputs and a checkpoint beside it; each of those as large as it may be."""
    chance = random.Random(seed)  # noqa: S311 - of a test
    calls = any_calls(chance)
    kept = [chance.randint(1, 32_000) for _ in range(3)]
    run = runs.leased()
    texts = [f'"{"x" * size}"' for size in kept]
    run = at_position(
        replace(run, input=texts[0], steps=with_step(run, "send", output=texts[1])),
        checkpoint=Checkpoint(
            step="draft",
            trial=1,
            iteration_count=1,
            inline=texts[2],
            saved_at=run.created_at,
            fencing_token=1,
        ),
    )
    for call in calls:
        for stored in (call, by_reference(call.key, call.ref or REF, keep=call.keep)):
            try:
                run = recorded(runs, run, stored).manifest
                break
            except TooManyCallsError:
                continue

    assert len(run.position.calls) <= MAX_RESULTS
    assert len(run.model_dump_json(exclude_none=True).encode()) < 212 * 1024
    assert Manifest.model_validate(to_document(run)) == run
